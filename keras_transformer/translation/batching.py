"""Batches of rows: few shapes, few graphs, and threads that share them."""

import concurrent.futures
import functools
import typing
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from keras_transformer.decoding import MISSING_SCORE, UNFINISHED
from keras_transformer.translation.inference import Inference
from keras_transformer.translation.programs import Runner, make_runner
from keras_transformer.translation.shortlist import Shortlist
from keras_transformer.vocabulary import EOS, PAD, UNK

Item = typing.TypeVar("Item")
Result = typing.TypeVar("Result")


class BatchedInference:
    """An `Inference` on lists of ids: batches, graphs, threads.

    Args:
        inference: The `Inference`.
        batch_tokens: As in `Translator`.
        jit_compile: As in `Translator`.
        num_threads: As in `Translator`.
        shortlist: As in `Translator`.
    """

    def __init__(
        self,
        inference: Inference,
        batch_tokens: int,
        jit_compile: bool,
        num_threads: int,
        shortlist: Shortlist | None = None,
    ):
        self.inference = inference
        self.shortlist = shortlist
        self.batch_tokens = batch_tokens
        self.run: Runner = make_runner(jit_compile)
        self.has_static_shapes = self.run.has_static_shapes
        self.row_factor = self.run.row_factor
        self.num_threads = 1 if inference.decoding.sampling else num_threads

    def search(
        self, rows: list[list[int]], prefixes: list[list[int]], num_best: int
    ) -> list[tuple[list[list[int]], np.ndarray]]:
        """The hypotheses of each source, best first.

        Args:
            rows: The ids of each source, EOS included.
            prefixes: The ids that each output begins with.
            num_best: Number of wanted hypotheses.

        Returns:
            For each source the ids and the scores of its hypotheses, NaN if the
            search failed. A source of EOS alone has one, `[]` with the score 0.
        """
        results = [([list[int]()], np.zeros(1)) for _ in rows]
        lengths = [len(row) if len(row) > 1 else 0 for row in rows]
        for in_first_steps in self._rounds():
            batches = batches_of(lengths, self.batch_tokens, self.num_threads)
            lengths = [0] * len(rows)  # not 0 where the search goes on
            search = functools.partial(
                self._search_batch, rows, prefixes, num_best, in_first_steps
            )
            each = in_threads(search, batches, self.num_threads)
            for batch, found in zip(batches, each, strict=True):
                for i, ids, scores, of_ids in zip(batch, *found, strict=False):
                    if of_ids[0] == UNFINISHED:
                        lengths[i] = len(rows[i])
                        continue
                    number = _count_existing(scores)
                    hypotheses = zip(ids, of_ids[:number], strict=False)
                    results[i] = (
                        [row[:length].tolist() for row, length in hypotheses],
                        scores[:number],
                    )
        return results

    def warm_up(self, num_best: int) -> None:
        """Makes the programs of all shapes that `search` without prefixes has.

        Args:
            num_best: As in `search`.
        """
        is_static = self.has_static_shapes
        shape_of = padded_length if is_static else _free_room
        lengths = range(2, self.inference.max_source_length + 1)
        for length in {shape_of(length): length for length in lengths}.values():
            full = full_rows(padded_length(length), self.batch_tokens)
            numbers = range(1, full + 1) if is_static else [1]
            factor = self.row_factor
            for size in {padded_count(n, full, factor) for n in numbers}:
                rows = [[UNK] * (length - 1) + [EOS]] * size
                for in_first_steps in self._rounds():
                    self._search_batch(
                        rows,
                        [[]] * size,
                        num_best,
                        in_first_steps,
                        range(size),
                    )

    def of_pairs(
        self,
        method: Callable,
        sources: list[list[int]],
        labels: list[list[int]],
    ) -> list[np.ndarray]:
        """A row of a method's result for each source and its labels.

        Args:
            method: A method of the `Inference`.
            sources: The ids of each source, EOS included.
            labels: The ids of each target, EOS included.
        """
        lengths = [
            max(map(len, pair)) for pair in zip(sources, labels, strict=True)
        ]
        results: list = [None] * len(sources)
        for batch in batches_of(lengths, self.batch_tokens):
            found = self.run(method, *self._pad(batch, sources, labels))
            for i, row in zip(batch, found, strict=False):
                results[i] = row
        return results

    def _rounds(self):
        """Whether each round of a search ends after a few steps.

        With static shapes a cache has room for the longest output, and the cost
        of a step grows with it. So the first round makes few steps, which
        suffice for most sentences; the second searches the others again.
        """
        is_sampling = self.inference.decoding.sampling
        has_two = self.has_static_shapes and not is_sampling
        return (True, False) if has_two else (False,)

    def _search_batch(self, rows, prefixes, num_best, in_first_steps, batch):
        """Ids `[B, W, T]`, scores and lengths `[B, W]` of a batch.

        Args:
            rows, prefixes, num_best: As in `search`.
            in_first_steps: Whether the search ends after a few steps.
            batch: Indices of the rows.
        """
        arrays = self._pad(batch, rows)
        length = arrays[0].shape[1]
        inference, shapes = self.inference, "static"
        if not self.has_static_shapes:
            inference = inference.for_sources_up_to(room(length))
            shapes = "free"
        forced = [prefixes[i] for i in batch]
        if any(forced):
            longest = self.inference.output_limit(length)
            arrays.append(pad_rows(forced, longest, PAD, len(arrays[0])))
        method: Callable = inference.translate_ids
        tokens = None
        if self.shortlist is not None:
            tokens = self.shortlist.tokens((rows[i] for i in batch), forced)
        if tokens is not None:
            method = inference.translate_among
            prefix = [np.searchsorted(tokens, ids) for ids in arrays[1:]]
            arrays = [tokens, arrays[0], *(p.astype(np.int32) for p in prefix)]
        found = self.run(
            method,
            *arrays,
            num_best=num_best,
            shapes=shapes,
            max_steps=first_steps(length) if in_first_steps else None,
        )
        return found.ids, found.scores, found.lengths

    def _pad(self, batch, *sides):
        """`pad_rows` of each side of a batch, with the same number of rows.

        Rows are no longer than there are learned positions.
        """
        sides = [[rows[i] for i in batch] for rows in sides]
        length = padded_length(max(len(row) for rows in sides for row in rows))
        num_rows = padded_count(
            len(batch),
            full_rows(length, self.batch_tokens),
            self.row_factor,
        )
        longest = self.inference.model.config.position_limit
        return [pad_rows(rows, longest, EOS, num_rows) for rows in sides]


def batches_of(
    lengths: Sequence[int], batch_tokens: int, num_threads: int = 1
) -> list[list[int]]:
    """Lists of indices of rows that are batched together, shortest first.

    Rows of different lengths may share a batch, which costs less than a search
    for each length, but none is padded to more than twice its `padded_length`.
    No batch has more than a thread's equal share of the rows.

    Args:
        lengths: Tokens of each row; rows of length 0 are skipped.
        batch_tokens: Maximum number of tokens in a batch, padding included; a
            single row may have more.
        num_threads: Threads that will share the batches.

    >>> batches_of([3, 0, 40, 5, 2], batch_tokens=16)
    [[4], [0, 3], [2]]
    >>> batches_of([3, 5, 4, 2], batch_tokens=2048, num_threads=2)
    [[3, 0], [2, 1]]
    """
    order = np.argsort(lengths, kind="stable").tolist()
    rows = [i for i in order if lengths[i] > 0]
    share = max(1, -(-len(rows) // num_threads))
    batches = []
    while rows:  # the longest first: they decide how many fit
        length = padded_length(lengths[rows[-1]])
        size = min(full_rows(length, batch_tokens), share)
        size = sum(
            2 * padded_length(lengths[i]) >= length for i in rows[-size:]
        )
        batches.append(rows[-size:])
        del rows[-size:]
    return batches[::-1]


def full_rows(length: int, batch_tokens: int) -> int:
    """Rows of a full batch: a power of two.

    >>> full_rows(24, batch_tokens=2048)
    64
    """
    return 1 << (max(1, batch_tokens // length).bit_length() - 1)


def padded_count(number: int, full: int, factor: int) -> int:
    """The number of rows that a batch is padded to.

    Args:
        number: Its rows.
        full: The rows of a full batch.
        factor: `Runner.row_factor`.

    >>> [padded_count(n, 64, factor=2) for n in (1, 3, 64)]
    [1, 4, 64]
    >>> [padded_count(n, 64, factor=8) for n in (1, 3, 64)]
    [1, 8, 64]
    """
    while full // factor >= number:
        full //= factor
    return full


def in_threads(
    function: Callable[[Item], Result],
    batches: Sequence[Item],
    num_threads: int,
) -> Iterator[Result]:
    """Yields a function's result of each batch, in their order.

    Each thread computes a batch at a time, beginning with the last batch: it
    has the longest sentences, and the batch that is computed at the end keeps
    one thread busy alone.
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


def padded_length(length: int) -> int:
    """The length that a row of this length is padded to.

    There are few such lengths, so that few graphs are made, and none is far
    above the row's.

    >>> [padded_length(length) for length in (1, 8, 9, 33, 200)]
    [8, 8, 16, 48, 256]
    """
    step = 8 if length <= 32 else 16 if length <= 128 else 64
    return -(-length // step) * step


def first_steps(source_length: int) -> int:
    """Decoding steps that suffice for most sentences of a length.

    >>> [first_steps(length) for length in (8, 16, 24, 32)]
    [16, 24, 40, 48]
    """
    # 1.25 S + 4, as a multiple of 8.
    return -(-(5 * source_length + 16) // 32) * 8


def room(length: int) -> int:
    """The longest source that the graph for a length has room for.

    A few graphs serve all lengths, and none has far too much room.

    >>> [room(length) for length in (8, 32, 48, 200)]
    [32, 32, 64, 256]
    """
    return max(32, 1 << (length - 1).bit_length())


def _free_room(length):
    """The `room` for a row of any length."""
    return room(padded_length(length))


def pad_rows(
    rows: list[list[int]],
    longest: int | None = None,
    filler: int = EOS,
    num_rows: int | None = None,
) -> np.ndarray:
    """Rows of ids as int32 `[B, T]`, then `PAD`, in one of a few shapes.

    Args:
        rows: The ids of each row.
        longest: Upper bound of T and of the length of any row, if any.
        filler: The first id of the rows that are added to reach B.
        num_rows: B; by default a power of two. XLA compiles for each B.

    >>> pad_rows([[5, 2], [6, 7, 2], [8, 2]]).shape
    (4, 8)
    >>> pad_rows([[5], [], [6, 7]], longest=5, filler=PAD).shape
    (4, 5)
    """
    length = padded_length(max(map(len, rows)))
    length = length if longest is None else min(length, longest)
    num_rows = num_rows or 1 << (len(rows) - 1).bit_length()
    padded = np.full((num_rows, length), PAD, np.int32)
    for ids, row in zip(padded, rows, strict=False):
        ids[: len(row)] = row
    padded[len(rows) :, 0] = filler
    return padded


def _count_existing(scores):
    """Hypotheses that exist: the first, and those after it with a score."""
    missing = np.flatnonzero(scores[1:] <= MISSING_SCORE)
    return 1 + int(missing[0]) if missing.size else len(scores)
