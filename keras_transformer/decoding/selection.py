"""Array operations that all searches use."""

import numpy as np
from keras import ops

from keras_transformer.base.backend import Tensor
from keras_transformer.base.refusals import expect
from keras_transformer.text.vocabulary import PAD


def blockwise_top_k(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Computes `ops.top_k` of long rows: [N, V] -> values, positions [N, k].

    Each row is divided into blocks. The k largest values are in the k blocks
    with the largest maxima (on a tie, the first blocks), so no others are
    searched.

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
    # In order of position, so that the lower position wins a tie.
    best = ops.sort(best, axis=-1)
    found = ops.take(blocks, row_numbers(values) * num_blocks + best, axis=0)
    values, places = ops.top_k(ops.reshape(found, (-1, k * size)), k)
    blocks = ops.take_along_axis(best, places // size, axis=-1)
    return values, blocks * size + places % size


def block_size(length: int, k: int) -> int | None:
    """Chooses the size of the blocks in which k values are searched.

    Returns None if a row of this length should not be divided.
    """
    for size in range(32, 65):
        if length % size == 0 and length >= 4 * k * size:
            return size
    return None


def first_position(hits: Tensor) -> Tensor:
    """Finds the first True of each row: bool [N, V] -> int32 [N].

    Returns V - 1 for a row without any.
    """
    # XLA does not vectorize argmax: two plain reductions (the caller's maximum
    # and this one) take half the time.
    size = hits.shape[-1]
    return ops.min(ops.where(hits, int_range(size), size - 1), axis=-1)


def value_at(values: Tensor, rank: Tensor) -> Tensor:
    """Picks one value of each row: values [N, k], rank [N] -> [N]."""
    here = int_range(values.shape[-1]) == rank[:, None]  # [N, k]
    return ops.sum(ops.where(here, values, ops.zeros_like(values)), axis=-1)


def gather_rows(values: Tensor, rows: Tensor, sentences: Tensor) -> Tensor:
    """Picks rows on axis 1: values [B, M, ...], rows [B, k] -> [B, k, ...].

    `sentences` are the `row_numbers` of the batch.
    """
    num_rows = values.shape[1]
    flat = ops.reshape(values, (-1, *values.shape[2:]))
    return ops.take(flat, sentences * num_rows + rows, axis=0)


def write_column(ids: Tensor, column: Tensor, index: Tensor) -> Tensor:
    """Sets `ids[..., index]` to a column: [..., T], [...] -> [..., T]."""
    here = int_range(ids.shape[-1]) == index  # [T]
    return ops.where(here, column[..., None], ids)


def row_numbers(values: Tensor) -> Tensor:
    """Numbers the rows from 0: [B, ...] -> int32 [B, 1]."""
    return ops.arange(ops.shape(values)[0], dtype="int32")[:, None]


def int_range(size: int) -> Tensor:
    """Returns 0, 1, ... as int32 [size]."""
    # A tensor: PyTorch's tensors cannot be compared with NumPy's arrays.
    return ops.convert_to_tensor(np.arange(size, dtype="int32"))


def count_tokens(ids: Tensor) -> Tensor:
    """Counts the tokens of each hypothesis: ids [..., T] -> int32 [...]."""
    return ops.sum(ops.cast(ids != PAD, "int32"), axis=-1)


def log_normalizer(logits: Tensor) -> Tensor:
    """Computes the log-sum-exp of each row of logits: [N, V] -> [N].

    It is NaN for a row that has NaN or +inf, or only -inf.
    """
    largest = ops.max(logits, axis=-1, keepdims=True)  # [N, 1]
    mass = ops.sum(ops.exp(logits - largest), axis=-1)
    return largest[:, 0] + ops.log(mass)


def float32_logits(logits: Tensor) -> Tensor:
    """Converts logits [N, V] to float32. Raises ValueError if V is unknown."""
    expect(
        len(logits.shape) == 2 and logits.shape[1] is not None,
        "logits [N, V] of step, with a known V",
        f"logits.shape={tuple(logits.shape)}",
    )
    return ops.cast(logits, "float32")


def is_failure(log_probs: Tensor) -> Tensor:
    """Tells which values are NaN or +inf, so no log-probabilities, as bool."""
    return ops.logical_not(log_probs < np.inf)
