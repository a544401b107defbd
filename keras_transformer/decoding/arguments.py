"""What a search is given: types, and checks at trace time."""

import typing
from collections.abc import Callable

import keras
from keras import ops

from keras_transformer.backend import Tensor
from keras_transformer.fields import is_of_kind

Cache: typing.TypeAlias = typing.Any  # a nest of tensors
Step: typing.TypeAlias = Callable[[Tensor, Cache, Tensor], tuple[Tensor, Cache]]
Reorder: typing.TypeAlias = Callable[[Cache, Tensor], Cache]


def clip_limits(max_lengths, max_length):
    """Length limits as int32 [B], none above the size of the buffers."""
    check_max_length(max_length)
    max_lengths = ops.convert_to_tensor(max_lengths, dtype="int32")
    if len(max_lengths.shape) != 1:
        raise ValueError(
            "max_lengths must have one number for each sentence, [B]."
            f" Received: max_lengths.shape={tuple(max_lengths.shape)}"
        )
    return ops.minimum(max_lengths, max_length)


def check_max_length(max_length):
    if not is_of_kind(max_length, int) or max_length < 1:
        raise ValueError(
            "max_length must be an int of at least 1."
            f" Received: max_length={max_length!r}"
        )


def checked_positions(max_positions, max_length, pick, prefix):
    """`max_positions`, if it limits anything and goes with the others."""
    if pick is not None and (max_positions is not None or prefix is not None):
        raise ValueError(
            "pick excludes max_positions and prefix. Received: max_positions="
            f"{max_positions}, {'no' if prefix is None else 'a'} prefix"
        )
    if max_positions is None:
        return None
    if not is_of_kind(max_positions, int) or max_positions < 1:
        raise ValueError(
            "max_positions must be an int of at least 1."
            f" Received: max_positions={max_positions!r}"
        )
    return max_positions if max_positions < max_length else None


def check_cache(cache, max_lengths, beam_size):
    """Every tensor of the cache has one row for each hypothesis."""
    if max_lengths.shape[0] is None:
        return
    num_rows = max_lengths.shape[0] * beam_size
    for tensor in keras.tree.flatten(cache):
        if tensor.shape[0] not in (None, num_rows):
            raise ValueError(
                f"Tensors of the cache must have {num_rows} rows, batch times"
                " beam_size. Received: a tensor of shape"
                f" {tuple(tensor.shape)}"
            )


def float32_logits(logits):
    """Logits [N, V] of any float dtype -> float32, if V is known."""
    if len(logits.shape) != 2 or logits.shape[1] is None:
        raise ValueError(
            "step must return logits [N, V] with a known V."
            f" Received: logits.shape={tuple(logits.shape)}"
        )
    return ops.cast(logits, "float32")
