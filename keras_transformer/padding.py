"""Few shapes for rows of many lengths: which one each is padded to."""

import numpy as np

from keras_transformer.vocabulary import EOS, PAD


def padded_length(length: int) -> int:
    """The length that a row of this length is padded to.

    Few lengths, so that few graphs are made, and none far above the row's.

    >>> [padded_length(length) for length in (1, 8, 9, 33, 200)]
    [8, 8, 16, 48, 256]
    """
    step = 8 if length <= 32 else 16 if length <= 128 else 64
    return -(-length // step) * step


def first_positions(source_length: int) -> int:
    """Positions that the searches of most sentences of a length need.

    >>> [first_positions(length) for length in (8, 16, 24, 32)]
    [16, 24, 40, 48]
    """
    # 1.25 S + 4, as a multiple of 8.
    return -(-(5 * source_length + 16) // 32) * 8


def room(length: int) -> int:
    """The longest source that a graph for a length has room for.

    So that a few graphs serve all lengths, and none has far too much room.

    >>> [room(length) for length in (8, 32, 48, 200)]
    [32, 32, 64, 256]
    """
    return max(32, 1 << (length - 1).bit_length())


def power_of_two(number: int) -> int:
    """The greatest power of two that is not above a number."""
    return 1 << (number.bit_length() - 1)


def pad_rows(rows: list[list[int]], longest: int | None = None) -> np.ndarray:
    """Rows of ids as int32 `[B, S]`, in one of a few shapes.

    B is a power of two, since XLA compiles for each B. Rows that are added to
    reach it are nothing but `EOS`. S is at most `longest`, as every row is.

    >>> pad_rows([[5, 2], [6, 7, 2], [8, 2]]).shape
    (4, 8)
    """
    source_ids = _padded(rows, longest)
    source_ids[len(rows) :, 0] = EOS
    return source_ids


def pad_prefixes(rows: list[list[int]], longest: int) -> np.ndarray:
    """Prefixes as int32 `[B, P]`, in one of a few shapes; B as in `pad_rows`.

    Args:
        rows: Ids of each prefix, none longer than `longest`.
        longest: What P may be.

    >>> pad_prefixes([[5], [], [6, 7]], longest=5).shape
    (4, 5)
    """
    return _padded(rows, longest)


def _padded(rows, longest):
    """Rows as int32 `[B, T]`, `PAD` after each, in one of a few shapes."""
    batch_size = 1 << (len(rows) - 1).bit_length()
    length = padded_length(max(map(len, rows)))
    length = length if longest is None else min(length, longest)
    padded = np.full((batch_size, length), PAD, np.int32)
    for ids, row in zip(padded, rows, strict=False):
        ids[: len(row)] = row
    return padded
