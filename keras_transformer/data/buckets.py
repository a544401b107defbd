"""Buckets by length: the few shapes that the batches of a corpus have."""

from collections.abc import Sequence

import numpy as np

from keras_transformer.base.fields import check_positive
from keras_transformer.base.refusals import expect

NUM_BUCKETS = 8  # the default


def choose_shapes(
    lengths: Sequence[int] | np.ndarray,
    batch_tokens: int,
    num_buckets: int,
    rows_multiple: int,
) -> list[tuple[int, int]]:
    """Chooses a few shapes of batches, `(rows, length)`, for these lengths.

    With `batch_tokens=24` and boundaries at 3 and 10:

        8 rows of 3 tokens    pairs whose longer side has 1 to 3 tokens
        2 rows of 10 tokens   4 to 10

    No shape has more rows than there are pairs, rounded up to `rows_multiple`.
    If one batch can hold all pairs, there is one shape. `lengths` has the
    tokens of each pair's longer side. The other arguments are as in
    `make_batches`. Raises ValueError if `batch_tokens` is too small.

    >>> choose_shapes([2, 2, 3, 9, 10] * 9, 24, num_buckets=2, rows_multiple=1)
    [(8, 3), (2, 10)]
    >>> choose_shapes([2, 2, 3, 9, 10], 10**12, num_buckets=2, rows_multiple=2)
    [(6, 10)]
    """
    check_positive(num_buckets=num_buckets, rows_multiple=rows_multiple)
    longest = int(np.max(lengths))
    expect(
        batch_tokens >= longest * rows_multiple,
        f"at least {longest * rows_multiple}: {longest} tokens in each of"
        f" {rows_multiple} slices (replicas x micro-batches)",
        f"{batch_tokens=}",
    )

    def rows_of(length: int) -> int:
        return batch_tokens // length // rows_multiple * rows_multiple

    all_rows = -(-len(lengths) // rows_multiple) * rows_multiple
    if rows_of(longest) >= all_rows:
        return [(all_rows, longest)]
    return [
        (min(rows_of(length), all_rows), length)
        for length in choose_boundaries(lengths, num_buckets)
    ]


def choose_boundaries(
    lengths: Sequence[int] | np.ndarray, num_buckets: int
) -> list[int]:
    """Finds the bucket boundaries that need the least padding.

    A row goes into the first bucket whose boundary is not below its length, and
    is padded up to the boundary. The last boundary is the maximum length. There
    are fewer than `num_buckets` if there are fewer distinct lengths. The result
    is exact, by dynamic programming over the histogram:

        cost[k, b] = min over a < b of cost[k - 1, a] + b * rows in (a, b]

    >>> choose_boundaries([2, 2, 3, 9, 10], num_buckets=2)
    [3, 10]
    """
    counts = np.bincount(lengths)
    values = np.flatnonzero(counts)
    rows_up_to = np.concatenate([[0], np.cumsum(counts[values])])
    num_buckets = min(num_buckets, len(values))
    # cost[b]: least padded length of the first b values, in k buckets.
    cost = np.where(rows_up_to == 0, 0.0, np.inf)
    choices = []
    for _ in range(num_buckets):
        in_bucket = rows_up_to[1:, None] - rows_up_to[None, :]  # [b, a]
        total = cost + values[:, None] * in_bucket
        total[in_bucket <= 0] = np.inf
        choices.append(total.argmin(axis=1))
        cost = np.concatenate([[np.inf], total.min(axis=1)])
    boundaries = []
    last = len(values)
    for choice in reversed(choices):
        boundaries.append(int(values[last - 1]))
        last = int(choice[last - 1])
    return boundaries[::-1]
