"""Grouping of rows into batches, for any engine."""

from collections.abc import Callable, Sequence

import numpy as np


def batches_of(
    lengths: Sequence[int], batch_tokens: int, num_threads: int = 1
) -> list[list[int]]:
    """Batches the indices of rows by their lengths, shortest first.

    Rows of different lengths may share a batch, which costs less than a search
    for each length, but no row is padded to more than twice its
    `padded_length`. No batch has more than a thread's equal share of the rows,
    nor more than `batch_tokens`, padding included, unless it has only one row.
    Rows of length 0 are skipped.

    >>> batches_of([3, 0, 40, 5, 2], batch_tokens=16)
    [[4], [0, 3], [2]]
    >>> batches_of([3, 5, 4, 2], batch_tokens=2048, num_threads=2)
    [[3, 0], [2, 1]]
    """

    def size_of(rows: list[int]) -> int:
        length = padded_length(lengths[rows[-1]])
        rows = rows[-full_rows(length, batch_tokens) :]
        return sum(2 * padded_length(lengths[i]) >= length for i in rows)

    return _from_the_longest(lengths, num_threads, size_of)


def few_batches_of(
    lengths: Sequence[int], batch_tokens: int, num_threads: int = 1
) -> list[list[int]]:
    """Makes fewer batches than `batches_of`, with a wider range of lengths.

    This is for engines that pad and change shapes at low cost. If the weights
    do not fit into the processor's cache, a batch of few rows costs nearly as
    much as a batch of many.

    >>> few_batches_of([3, 0, 40, 5, 2], batch_tokens=80, num_threads=2)
    [[4, 0], [3, 2]]
    """
    return _from_the_longest(
        lengths,
        num_threads,
        lambda rows: max(1, batch_tokens // lengths[rows[-1]]),
    )


def _from_the_longest(
    lengths: Sequence[int],
    num_threads: int,
    size_of: Callable[[list[int]], int],
) -> list[list[int]]:
    """Makes batches of at most a thread's equal share of the rows.

    `size_of` takes row indices, sorted by length, and returns how many of the
    last ones fill a batch.
    """
    order = np.argsort(lengths, kind="stable").tolist()
    rows = [i for i in order if lengths[i] > 0]
    share = max(1, -(-len(rows) // num_threads))
    batches = []
    while rows:
        size = min(size_of(rows[-share:]), share)
        batches.append(rows[-size:])
        del rows[-size:]
    return batches[::-1]


def divided(
    rows: Sequence[int], sizes: Sequence[int], most: int
) -> list[list[int]]:
    """Divides a batch into batches of rows with similar sizes.

    A row counts as the square of its size, rounded up to a power of two of at
    least 32. These add up to at most `most` in a batch of more than one row.

    >>> divided([0, 1, 2, 3], sizes=[3, 40, 0, 33], most=4096)
    [[0, 2], [1], [3]]
    """
    groups: dict[int, list[int]] = {}
    for row in rows:
        power = 1 << max(5, (sizes[row] - 1).bit_length())
        groups.setdefault(power, []).append(row)
    parts = []
    for power, group in groups.items():
        size = max(1, most // power**2)
        parts += [group[i : i + size] for i in range(0, len(group), size)]
    return parts


def full_rows(length: int, batch_tokens: int) -> int:
    """Computes the number of rows of a full batch, a power of two.

    >>> full_rows(24, batch_tokens=2048)
    64
    """
    return 1 << (max(1, batch_tokens // length).bit_length() - 1)


def padded_length(length: int) -> int:
    """Computes the length that a row of this length is padded to.

    There are few such lengths, so that few graphs are made, and padding is
    short.

    >>> [padded_length(length) for length in (1, 8, 9, 33, 200)]
    [8, 8, 16, 48, 256]
    """
    step = 8 if length <= 32 else 16 if length <= 128 else 64
    return -(-length // step) * step


def first_steps(source_length: int) -> int:
    """Estimates how many decoding steps suffice for most sources of a length.

    >>> [first_steps(length) for length in (8, 16, 24, 32)]
    [16, 24, 40, 48]
    """
    # 1.25 S + 4, rounded up to a multiple of 8.
    return -(-(5 * source_length + 16) // 32) * 8
