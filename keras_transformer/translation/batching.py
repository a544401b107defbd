"""Batches of rows: few shapes, few graphs, and threads that share them."""

import collections
import concurrent.futures
import threading
import typing
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from keras_transformer.vocabulary import EOS, PAD

Item = typing.TypeVar("Item")
Result = typing.TypeVar("Result")


def batches_of(
    lengths: Sequence[int], batch_tokens: int
) -> Iterator[list[int]]:
    """Lists of indices of rows that are computed together, shortest first.

    Args:
        lengths: Tokens of each row; rows of length 0 are skipped.
        batch_tokens: Tokens in a batch, padding included, at most; a single row
            may have more.

    >>> list(batches_of([3, 0, 40, 5, 2], batch_tokens=16))
    [[4, 0], [3], [2]]
    """
    by_length = collections.defaultdict(list)
    for i in np.argsort(lengths, kind="stable"):
        if lengths[i] > 0:
            by_length[padded_length(lengths[i])].append(int(i))
    for length, indices in by_length.items():
        size = power_of_two(max(1, batch_tokens // length))
        for start in range(0, len(indices), size):
            yield indices[start : start + size]


def in_threads(
    function: Callable[[Item], Result],
    batches: Sequence[Item],
    num_threads: int,
) -> Iterator[Result]:
    """Yields a function's result of each batch, in their order.

    As many batches as there are threads are computed at the same time, the last
    first: these have the longest sentences, and whichever is computed at the
    end keeps one thread busy alone.
    """
    if num_threads == 1:
        yield from map(function, batches)
        return
    with concurrent.futures.ThreadPoolExecutor(num_threads) as pool:
        last_first = [pool.submit(function, b) for b in reversed(batches)]
        try:
            for future in reversed(last_first):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


class Graphs:
    """Graphs of methods of ids, made at their first use.

    A graph takes a second or two to make. Without XLA, which compiles for every
    shape, one graph serves ids of all lengths.

    Args:
        jit_compile: Whether XLA compiles them.
    """

    def __init__(self, jit_compile: bool):
        self.jit_compile = jit_compile
        self._graphs: dict[tuple, Callable] = {}
        self._one_traces = threading.Lock()

    def __call__(
        self, method: Callable, *arrays: np.ndarray, **options: typing.Any
    ) -> typing.Any:
        """Calls a method of an `Inference` through its graph.

        Args:
            method: The method.
            *arrays: Its tensors, int32 `[B, T]` each.
            **options: Other arguments of it, which the graph is made for.
        """
        import tensorflow as tf

        lengths = tuple(
            array.shape[1] if self.jit_compile else None for array in arrays
        )
        room_for = method.__self__.max_source_length  # type: ignore[attr-defined]
        key = (method.__name__, room_for, lengths, tuple(options.items()))
        with self._one_traces:
            if key not in self._graphs:
                # Concrete at once: TensorFlow warns of a function that is
                # traced for many shapes, which XLA needs. Without default
                # values: with them it looks for two signatures in each call.
                self._graphs[key] = tf.function(
                    lambda *arrays: method(*arrays, **options),
                    input_signature=[
                        tf.TensorSpec([None, length], tf.int32)
                        for length in lengths
                    ],
                    jit_compile=self.jit_compile,
                    autograph=False,  # it would take most of the tracing time
                ).get_concrete_function()
        return self._graphs[key](*map(tf.constant, arrays))


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
