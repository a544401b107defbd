"""Operations on arrays that searches share."""

import numpy as np
from keras import ops

from keras_transformer.base.backend import Tensor
from keras_transformer.base.refusals import expect
from keras_transformer.text.vocabulary import PAD


def blockwise_top_k(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Does `ops.top_k` on long rows: [N, V] -> values, positions: [N, k].

    The k best of a row are in the k blocks of neighbours with the greatest
    maxima, the first ones among equals; the other blocks are not searched.

    >>> blockwise_top_k(ops.array([[5.0, 1.0, 7.0, 7.0]]), 2)[1].numpy()
    array([[2, 3]], dtype=int32)
    """
    # Never slice the result of a top_k over V: XLA would sort the whole
    # vocabulary instead, a hundred times slower.
    length = values.shape[-1]
    size = block_size(length, k)
    if size is None:
        return ops.top_k(values, k)
    num_blocks = length // size
    blocks = ops.reshape(values, (-1, size))  # [N * V / size, size]
    maxima = ops.reshape(ops.max(blocks, axis=-1), (-1, num_blocks))
    _, best = ops.top_k(maxima, k)  # [N, V / size] -> [N, k]
    # In the order of their positions, so that the lower wins a tie.
    best = ops.sort(best, axis=-1)
    found = ops.take(blocks, row_numbers(values) * num_blocks + best, axis=0)
    values, places = ops.top_k(ops.reshape(found, (-1, k * size)), k)
    blocks = ops.take_along_axis(best, places // size, axis=-1)
    return values, blocks * size + places % size


def block_size(length: int, k: int) -> int | None:
    """Returns the size of a block if k are searched; None without blocks."""
    for size in range(32, 65):
        if length % size == 0 and length >= 4 * k * size:
            return size
    return None


def first_position(hits: Tensor) -> Tensor:
    """Finds the first True in each row: bool [N, V] -> int32 [N]."""
    # Two plain reductions (this and the maximum before it) take XLA half the
    # time of one argmax, which it does not vectorize.
    size = hits.shape[-1]
    return ops.min(ops.where(hits, int_range(size), size - 1), axis=-1)


def value_at(values: Tensor, rank: Tensor) -> Tensor:
    """Picks one value of each row: values [N, k], rank [N] -> [N]."""
    here = int_range(values.shape[-1]) == rank[:, None]  # [N, k]
    return ops.sum(ops.where(here, values, ops.zeros_like(values)), axis=-1)


def gather_rows(values: Tensor, rows: Tensor, sentences: Tensor) -> Tensor:
    """Picks from axis 1: [B, M, ...], rows [B, k] -> [B, k, ...]."""
    num_rows = values.shape[1]
    flat = ops.reshape(values, (-1, *values.shape[2:]))
    return ops.take(flat, sentences * num_rows + rows, axis=0)


def write_column(ids: Tensor, column: Tensor, index: Tensor) -> Tensor:
    """Writes ids[..., index] = column: [..., T], [...] -> [..., T]."""
    here = int_range(ids.shape[-1]) == index  # [T]
    return ops.where(here, column[..., None], ids)


def row_numbers(values: Tensor) -> Tensor:
    """Numbers the rows, 0, 1, ...: [B, ...] -> int32 [B, 1]."""
    return ops.arange(ops.shape(values)[0], dtype="int32")[:, None]


def int_range(size: int) -> Tensor:
    """Returns 0, 1, ... as int32 [size]."""
    # A tensor: PyTorch's tensors cannot be compared with NumPy's arrays.
    return ops.convert_to_tensor(np.arange(size, dtype="int32"))


def count_tokens(ids: Tensor) -> Tensor:
    """Counts the tokens of each hypothesis: ids [..., T] -> int32 [...]."""
    return ops.sum(ops.cast(ids != PAD, "int32"), axis=-1)


def log_normalizer(logits: Tensor) -> Tensor:
    """Computes log sum exp of logits, to subtract from them: [N, V] -> [N].

    NaN if the logits have a NaN or +inf, or nothing but -inf: then the
    differences below have a NaN.
    """
    largest = ops.max(logits, axis=-1, keepdims=True)  # [N, 1]
    mass = ops.sum(ops.exp(logits - largest), axis=-1)
    return largest[:, 0] + ops.log(mass)


def float32_logits(logits: Tensor) -> Tensor:
    """Converts logits [N, V] to float32; V must be known."""
    expect(
        len(logits.shape) == 2 and logits.shape[1] is not None,
        "logits [N, V] of step, with a known V",
        f"logits.shape={tuple(logits.shape)}",
    )
    return ops.cast(logits, "float32")


def is_failure(log_probs: Tensor) -> Tensor:
    """Tells which cannot be log-probabilities: NaN, or +inf."""
    return ops.logical_not(log_probs < np.inf)
