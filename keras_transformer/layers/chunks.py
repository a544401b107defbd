"""Restricted self-attention by chunks, without an n x n matrix.

Section 4 restricts self-attention to "a neighborhood of size r in the input
sequence centered around the respective output position". A sequence of n
positions is divided into G chunks of C queries. A chunk sees M keys: those of
its own positions and of a margin on each side. A mask inside the chunk
restricts each query to its neighborhood. With C about r, time and memory grow
with r * n. Sizes are ints if the shape is static, and int scalar tensors
otherwise.

`by_key` and `by_distance` convert between two views of the same numbers:

    by key       x[i, j]: query i, key j
    by distance  x[i, m]: query i, the key at distance m - (T - 1) from it
"""

import typing

from keras import ops

from keras_transformer.base.backend import Tensor

Size: typing.TypeAlias = typing.Any  # int, or an int scalar tensor

# Minimum number of queries in a chunk: smaller matrices leave processors idle.
MIN_CHUNK = 32


class Neighborhood(typing.NamedTuple):
    """The number of positions that a query sees before and after its own."""

    before: int
    after: int


def centered_neighborhood(size: int) -> Neighborhood:
    """Returns the neighborhood of `size` positions centered on the query.

    If `size` is even, there is one more position before it than after it.

    >>> centered_neighborhood(5), centered_neighborhood(4)
    (Neighborhood(before=2, after=2), Neighborhood(before=2, after=1))
    """
    return Neighborhood(size // 2, (size - 1) // 2)


def last_neighborhood(size: int) -> Neighborhood:
    """Returns the neighborhood of the last `size` positions, for causal use.

    >>> last_neighborhood(4)
    Neighborhood(before=3, after=0)
    """
    return Neighborhood(size - 1, 0)


class Chunks(typing.NamedTuple):
    """A sequence divided into chunks; see `divide`."""

    length: Size  # positions n of the sequence
    count: Size  # chunks G
    size: Size  # queries C of a chunk
    before: Size  # keys of the margin before a chunk
    after: Size  # keys of the margin after it

    @property
    def width(self) -> Size:
        """Number of keys that a chunk sees, M."""
        return self.before + self.size + self.after

    def split(self, x: Tensor) -> Tensor:
        """Splits [B, H, n, K] -> [B, H, G, C, K]; zeros fill the last chunk."""
        x = _extended(x, self.count * self.size - self.length)
        shape = (-1, x.shape[1], self.count, self.size, x.shape[3])
        return ops.reshape(x, shape)

    def split_with_margins(self, x: Tensor) -> Tensor:
        """Splits [B, H, n, K] -> [B, H, G, M, K]; zeros fill the margins."""
        x = self.split(x)
        if _is(self.before, 0) and _is(self.after, 0):
            return x
        end = x[:, :, :, self.size - self.before :]
        beginning = x[:, :, :, : self.after]
        parts = [
            ops.concatenate([ops.zeros_like(end[:, :, :1]), end[:, :, :-1]], 2),
            x,
            ops.concatenate(
                [beginning[:, :, 1:], ops.zeros_like(beginning[:, :, :1])], 2
            ),
        ]
        return ops.concatenate(parts, axis=3)

    def join(self, x: Tensor) -> Tensor:
        """Inverts `split`: [B, H, G, C, K] -> [B, H, n, K]."""
        shape = (-1, x.shape[1], self.count * self.size, ops.shape(x)[4])
        return ops.reshape(x, shape)[:, :, : self.length]

    def split_key_mask(self, mask: Tensor) -> Tensor:
        """Splits a mask of keys, bool [B, H, 1, n] -> [B, H, G, 1, M]."""
        mask = self.split_with_margins(ops.swapaxes(mask, 2, 3))
        return ops.swapaxes(mask, 3, 4)  # [B, H, G, M, 1] -> [B, H, G, 1, M]

    def split_mask(self, mask: Tensor) -> Tensor:
        """Splits a mask of pairs, bool [B, H, n, n] -> [B, H, G, C, M]."""
        first = self.length - self.size - self.before
        last = first + self.size + self.width - 1
        x = by_distance(mask)[..., first:last]  # [B, H, n, C + M - 1]
        x = _extended(x, self.count * self.size - self.length)
        shape = (-1, x.shape[1], self.count, self.size, ops.shape(x)[3])
        return by_key(ops.reshape(x, shape), self.width)

    def join_by_key(self, x: Tensor) -> Tensor:
        """Joins [B, H, G, C, M] -> [B, H, n, n], zeros outside the chunks."""
        x = self.join(by_distance(x))  # [B, H, n, C + M - 1]
        batch_size, num_heads, length, _ = ops.shape(x)
        before, after = (
            ops.zeros((batch_size, num_heads, length, number), x.dtype)
            for number in (
                self.length - self.size - self.before,
                self.length - self.size - self.after,
            )
        )
        x = ops.concatenate([before, x, after], axis=3)  # [B, H, n, 2n - 1]
        return by_key(x, self.length)


def divide(length: Size, neighborhood: Neighborhood) -> Chunks:
    """Divides a sequence into chunks for queries that see a neighborhood.

    A sequence that is not much longer than a neighborhood is one chunk without
    margins, which is no more work than several chunks.

    >>> divide(1000, Neighborhood(64, 63))
    Chunks(length=1000, count=8, size=128, before=64, after=63)
    >>> divide(100, Neighborhood(64, 63))
    Chunks(length=100, count=1, size=100, before=0, after=0)
    """
    before, after = neighborhood
    size = max(before + 1 + after, MIN_CHUNK)
    longest_chunk = size + before + after
    if isinstance(length, int):
        if length <= longest_chunk:
            return Chunks(length, 1, max(1, length), 0, 0)
        return Chunks(length, -(-length // size), size, before, after)
    is_one = length <= longest_chunk
    size = ops.where(is_one, ops.maximum(length, 1), size)
    return Chunks(
        length,
        (length + size - 1) // size,
        size,
        ops.where(is_one, 0, before),
        ops.where(is_one, 0, after),
    )


def by_key(x: Tensor, num_keys: Size) -> Tensor:
    """Converts [..., T, T + S - 1] by distance to [..., T, S] by key.

    >>> by_key(ops.array([[1, 2, 3, 4], [5, 6, 7, 8]]), 3).numpy()
    array([[2, 3, 4],
           [5, 6, 7]], dtype=int32)
    """
    *others, num_queries, width = ops.shape(x)
    if _is(num_queries, 0) or _is(num_queries, 1):
        return x
    # Relative shift: pad one column, flatten, reshape. Row i then starts one
    # column earlier than row i - 1.
    x = ops.concatenate([x, ops.zeros_like(x[..., :1])], axis=-1)
    x = ops.reshape(x, (*others, num_queries * (width + 1)))
    first = num_queries - 1
    x = x[..., first : first + num_queries * width]
    return ops.reshape(x, (*others, num_queries, width))[..., :num_keys]


def by_distance(x: Tensor) -> Tensor:
    """Converts [..., T, S] by key to [..., T, T + S - 1] by distance.

    Distances without a key have zeros.

    >>> by_distance(ops.array([[2, 3, 4], [5, 6, 7]])).numpy()
    array([[0, 2, 3, 4],
           [5, 6, 7, 0]], dtype=int32)
    """
    *others, num_queries, num_keys = ops.shape(x)
    if _is(num_queries, 1):
        return x
    first = num_queries - 1
    width = num_keys + first
    x = ops.concatenate(
        [x, ops.zeros((*others, num_queries, first), x.dtype)], axis=-1
    )
    x = ops.reshape(x, (*others, num_queries * width))
    x = ops.concatenate(
        [
            ops.zeros((*others, first), x.dtype),
            x,
            ops.zeros((*others, 1), x.dtype),
        ],
        axis=-1,
    )
    x = ops.reshape(x, (*others, num_queries, width + 1))
    return x[..., :width]


def _extended(x, number):
    """Appends `number` positions of zeros to [B, H, n, K]."""
    if _is(number, 0):
        return x
    batch_size, num_heads, _, size = ops.shape(x)
    zeros = ops.zeros((batch_size, num_heads, number, size), x.dtype)
    return ops.concatenate([x, zeros], axis=2)


def _is(size, number):
    return isinstance(size, int) and size == number
