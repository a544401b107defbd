"""The native search, in batches of few shapes, with programs and threads."""

import concurrent.futures
import dataclasses
import functools
import threading
import typing
from collections.abc import Callable, Iterator, Sequence

import keras
import numpy as np
import tqdm

from keras_transformer.base.backend import ON_TENSORFLOW
from keras_transformer.config import DecodingConfig
from keras_transformer.decoding import MISSING_SCORE, UNFINISHED
from keras_transformer.text.vocabulary import EOS, UNK
from keras_transformer.translation.arrays import constraints_of, pad_rows
from keras_transformer.translation.grouping import (
    batches_of,
    divided,
    first_steps,
    full_rows,
    padded_length,
)
from keras_transformer.translation.inference import Inference
from keras_transformer.translation.limits import Limits
from keras_transformer.translation.programs import (
    Nest,
    Program,
    make_program,
    shape_of,
)
from keras_transformer.translation.requests import Row
from keras_transformer.translation.search import Found, Setup, Step, Steps
from keras_transformer.translation.shortlist import Shortlist
from keras_transformer.translation.single import Single

# Maximum number of entries in each table of a batch's phrases.
LARGEST_PHRASES = 1 << 19

Item = typing.TypeVar("Item")
Result = typing.TypeVar("Result")


@dataclasses.dataclass(eq=False)
class BatchedSearch:
    """The `Search` of an `Inference`; arguments as in `Translator`."""

    inference: Inference
    batch_tokens: int
    jit_compile: bool
    num_threads: int
    shortlist: Shortlist | None = None
    # Compiled programs for single sentences, if there are any.
    single: Single | None = None

    name = "native"
    # A short batch is padded to full / row_factor^k rows. The factor is larger
    # for JAX, which compiles for each number of rows.
    row_factor = 2 if ON_TENSORFLOW else 8

    def __post_init__(self):
        # Shapes do not change while a program runs.
        self.has_static_shapes = self.jit_compile or not ON_TENSORFLOW
        self._programs: dict[Program, Callable[..., Nest]] = {}
        self._one_compiles = threading.Lock()

    @property
    def limits(self) -> Limits:
        return self.inference.limits

    def with_decoding(self, decoding: DecodingConfig) -> "BatchedSearch":
        """Returns a search of the same models, without `single`."""
        inference = self.inference.with_decoding(decoding)
        return dataclasses.replace(self, inference=inference, single=None)

    def search(self, rows: Sequence[Row], num_best: int) -> list[Found]:
        faster = self.single and self.single.find(rows, num_best)
        return (faster or self).search_batches(rows, num_best)

    def search_batches(self, rows: Sequence[Row], num_best: int) -> list[Found]:
        """Finds hypotheses without `single`; in sampling, a row is a sample."""
        results = [Found([[]], np.zeros(1)) for _ in rows]
        sizes = [len(row.source_ids) for row in rows]
        lengths = [size if size > 1 else 0 for size in sizes]
        phrases = [
            len(r.automaton.children) if r.automaton else 0 for r in rows
        ]
        for in_first_steps in self._rounds():
            batches = [
                part
                for batch in batches_of(
                    lengths, self.batch_tokens, self.num_threads
                )
                for part in divided(batch, phrases, LARGEST_PHRASES)
            ]
            lengths = [0] * len(rows)  # set again for unfinished searches
            each = self._each_batch(
                [[rows[i] for i in batch] for batch in batches],
                functools.partial(self._search_batch, num_best, in_first_steps),
            )
            for batch, found in zip(batches, each, strict=True):
                for i, ids, scores, of_ids in zip(batch, *found, strict=False):
                    if of_ids[0] == UNFINISHED:
                        lengths[i] = sizes[i]
                        continue
                    number = _count_existing(scores)
                    hypotheses = zip(ids, of_ids[:number], strict=False)
                    results[i] = Found(
                        [row[:length].tolist() for row, length in hypotheses],
                        scores[:number],
                    )
        return results

    def _each_batch(self, batches, search):
        """Yields the result of each batch, in order.

        On a terminal, a progress bar appears after two seconds. It counts the
        sentences of finished batches, in any order.
        """
        with tqdm.tqdm(
            desc="translated",
            total=sum(map(len, batches)),
            unit=" sentences",
            disable=None,
            delay=2,
            leave=False,
        ) as bar:

            def counted(rows):
                found = search(rows)
                bar.update(len(rows))
                return found

            yield from in_threads(counted, batches, self.num_threads)

    def programs(self, num_best: int, given: Sequence[int] = ()) -> Steps:
        is_static = self.has_static_shapes
        shape = padded_length if is_static else room
        lengths = range(2, self.limits.max_source_length + 1)
        for length in {shape(n): n for n in lengths}.values():
            full = full_rows(padded_length(length), self.batch_tokens)
            numbers = range(1, full + 1) if is_static else [1]
            ids = [UNK] * (length - 1) + [EOS]
            row = Row(ids, target_ids=given, num_given=len(given))
            for size in sorted(
                {padded_count(n, full, self.row_factor) for n in numbers}
            ):
                for make in self.rounds_of([row] * size, num_best):
                    yield Step(length, make)
        if self.single is not None:
            yield from self.single.steps(self, num_best, given)

    def rounds_of(
        self, rows: Sequence[Row], num_best: int
    ) -> list[Callable[[], object]]:
        """Returns one function per round, which runs it to make its program."""
        return [
            functools.partial(self._search_batch, num_best, short, rows)
            for short in self._rounds()
        ]

    def score(self, rows: Sequence[Row]) -> list[np.ndarray]:
        return self._of_pairs(Inference.score_ids, rows)

    def attention(self, rows: Sequence[Row]) -> list[np.ndarray]:
        return self._of_pairs(Inference.alignment_ids, rows)

    def read(self, rows: Sequence[Row]) -> list[tuple[np.ndarray, np.ndarray]]:
        return self._of_pairs(Inference.read_ids, rows)

    def _of_pairs(self, kind, rows):
        """Runs a method of `Inference`; returns its result for each row."""
        lengths = [max(len(r.source_ids), len(r.target_ids)) for r in rows]
        results: list = [None] * len(rows)
        for batch in batches_of(lengths, self.batch_tokens):
            arrays = self._pad(
                [rows[i].source_ids for i in batch],
                [rows[i].target_ids for i in batch],
            )
            found = self.run(kind, arrays)
            if not isinstance(found, np.ndarray):  # several results a row
                found = zip(*found, strict=True)
            for i, row in zip(batch, found, strict=False):
                results[i] = row
        return results

    def run(
        self,
        kind: Callable[..., Nest],
        arrays: Sequence[Nest],
        room: int | None = None,
        **options: typing.Any,
    ) -> Nest:
        """Runs an `Inference` method's `Program`, making it on first use."""
        shapes = keras.tree.map_structure(
            lambda array: shape_of(array, self.jit_compile), tuple(arrays)
        )
        program = Program(kind, room, shapes, tuple(options.items()))
        with self._one_compiles:
            if program not in self._programs:
                self._programs[program] = make_program(
                    program, self.inference, arrays, self.jit_compile
                )
        return self._programs[program](*arrays)

    def _rounds(self):
        """Tells for each round of a search whether it ends after a few steps.

        With static shapes a cache has room for the longest output, and the cost
        of a step grows with this room. So the first round takes only the steps
        that suffice for most sentences. The second searches the others again.
        """
        return (True, False) if self.has_static_shapes else (False,)

    def _search_batch(
        self, num_best: int, in_first_steps: bool, rows: Sequence[Row]
    ):
        """Finds ids `[B, W, T]`, scores and lengths `[B, W]` for a batch."""
        sources = [row.source_ids for row in rows]
        [source_ids] = self._pad(sources)
        num_rows, length = source_ids.shape
        tokens = None
        if self.shortlist is not None:
            required = [row.required_ids for row in rows]
            tokens = self.shortlist.tokens(sources, required)
        constraints = constraints_of(
            rows,
            num_rows,
            self.limits.output_limit(length),
            self.limits.decoding.sampling,
            tokens,
        )
        arrays = [source_ids, constraints]
        if tokens is not None:
            arrays.append(tokens)
        found = self.run(
            Inference.translate_ids,
            arrays,
            None if self.has_static_shapes else room(length),
            num_best=num_best,
            shapes="static" if self.has_static_shapes else "free",
            max_steps=first_steps(length) if in_first_steps else None,
        )
        return found.ids, found.scores, found.lengths

    def _pad(self, *sides):
        """Pads the sides of a batch to the same number of rows.

        Each side has at most as many columns as there are learned positions.
        """
        length = padded_length(max(len(ids) for side in sides for ids in side))
        num_rows = padded_count(
            len(sides[0]), full_rows(length, self.batch_tokens), self.row_factor
        )
        longest = self.limits.position_limit
        return [pad_rows(side, longest, EOS, num_rows) for side in sides]


def make_batched(setup: Setup) -> BatchedSearch:
    """Makes the search of `Transformer`s, with `single` where it may help."""
    inference = Inference(setup.models, setup.decoding, setup.max_source_length)
    search = BatchedSearch(
        inference,
        setup.batch_tokens,
        bool(setup.jit_compile),
        setup.num_threads,
        setup.shortlist,
    )
    if (
        setup.jit_compile is None
        and not search.has_static_shapes  # JAX compiles anyway
        and setup.shortlist is None  # it has more shapes than lengths
        and not setup.decoding.sampling
        # In other precisions, results would depend on whether a sentence is
        # searched alone.
        and all(m.compute_dtype == "float32" for m in inference.models)
    ):
        search.single = Single()
    return search


def padded_count(number: int, full: int, factor: int) -> int:
    """Computes the number of rows that a batch is padded to, at most `full`.

    It is `full` / `factor`^k, at least `number`, for the largest possible k.

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
    """Yields a function's result for each batch, in order.

    Threads start with the last batch, which has the longest sentences, so that
    the batch that finishes last, while other threads are idle, is short.
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


def room(length: int) -> int:
    """Computes the longest source that the graph for a length has room for.

    A few graphs serve all lengths, and none has far too much room.

    >>> [room(length) for length in (8, 32, 48, 200)]
    [32, 32, 64, 256]
    """
    return max(32, 1 << (length - 1).bit_length())


def _count_existing(scores: np.ndarray) -> int:
    """Counts the hypotheses that exist; the first always counts as one."""
    missing = np.flatnonzero(scores[1:] <= MISSING_SCORE)
    return 1 + int(missing[0]) if missing.size else len(scores)
