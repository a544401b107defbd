"""Batches of rows: few shapes, few programs, and threads that share them."""

import concurrent.futures
import dataclasses
import functools
import itertools
import threading
import typing
from collections.abc import Callable, Iterator, Sequence

import keras
import numpy as np
from absl import logging

from keras_transformer.backend import ON_TENSORFLOW
from keras_transformer.config import DecodingConfig
from keras_transformer.decoding import (
    MISSING_SCORE,
    UNCONSTRAINED,
    UNFINISHED,
    Constraints,
)
from keras_transformer.decoding.phrases import NO_TOKEN, Phrases
from keras_transformer.translation.automaton import Automaton
from keras_transformer.translation.draws import make_draws
from keras_transformer.translation.grouping import (
    batches_of,
    divided,
    full_rows,
    padded_length,
)
from keras_transformer.translation.inference import Inference
from keras_transformer.translation.programs import (
    Nest,
    Program,
    make_program,
    shape_of,
)
from keras_transformer.translation.requests import Row
from keras_transformer.translation.shortlist import Shortlist
from keras_transformer.vocabulary import EOS, PAD, UNK

# Numbers in each table of a batch's phrases.
LARGEST_PHRASES = 1 << 19

Item = typing.TypeVar("Item")
Result = typing.TypeVar("Result")


class BatchedInference:
    """An `Inference` on rows: batches, programs, threads; see `Translator`.

    Attributes:
        has_static_shapes: Whether no shape may change while a program runs.
        row_factor: A batch that is not full is padded to the rows of a full one
            divided by a power of this. A greater factor means fewer programs.
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
        self.jit_compile = jit_compile
        self.has_static_shapes = jit_compile or not ON_TENSORFLOW
        self.row_factor = 2 if ON_TENSORFLOW else 8  # JAX compiles each
        self.num_threads = num_threads
        self._programs: dict[Program, Callable[..., Nest]] = {}
        self._one_compiles = threading.Lock()

    def search(
        self, rows: Sequence[Row], num_best: int
    ) -> list[tuple[list[list[int]], np.ndarray]]:
        """Ids and scores of the hypotheses of each row, best first.

        Samples are in the order of their numbers.
        Rows with terms have a search of their own if this one cannot have
        terms: see `search_for_terms`.
        The scores are NaN if the search failed. A blank sentence has one
        hypothesis, `[]` with the score 0.
        """
        if self.inference.decoding.sampling:
            return self._sample(rows, num_best)
        if not any(row.has_terms for row in rows) or self._for_terms is self:
            return self._search(rows, num_best)
        results: list = [None] * len(rows)
        for has_terms, batched in ((False, self), (True, self._for_terms)):
            chosen = [i for i, r in enumerate(rows) if r.has_terms == has_terms]
            found = batched._search([rows[i] for i in chosen], num_best)
            for i, result in zip(chosen, found, strict=True):
                results[i] = result
        return results

    @functools.cached_property
    def _for_terms(self) -> "BatchedInference":
        """The search of rows with terms, which has programs of its own."""
        decoding = search_for_terms(self.inference.decoding)
        if decoding == self.inference.decoding:
            return self
        if decoding.beam_size != self.inference.decoding.beam_size:
            logging.warning(
                "sentences with terms of a glossary have beam_size=%d, the"
                " others beam_size=%d",
                decoding.beam_size,
                self.inference.decoding.beam_size,
            )
        return BatchedInference(
            self.inference.with_decoding(decoding),
            self.batch_tokens,
            self.jit_compile,
            self.num_threads,
            self.shortlist,
        )

    def _sample(
        self, rows: Sequence[Row], num_samples: int
    ) -> list[tuple[list[list[int]], np.ndarray]]:
        """`search` in sampling: each sample is a row of its own."""
        counts = [num_samples if len(r.source_ids) > 1 else 1 for r in rows]
        found = iter(
            self._search(
                [
                    row._replace(sample=number)
                    for row, count in zip(rows, counts, strict=True)
                    for number in range(count)
                ],
                1,
            )
        )
        results = []
        for count in counts:
            ids, scores = zip(*itertools.islice(found, count), strict=True)
            ids = list(itertools.chain(*ids))
            results.append((ids, np.concatenate(scores)))
        return results

    def _search(
        self, rows: Sequence[Row], num_best: int
    ) -> list[tuple[list[list[int]], np.ndarray]]:
        """`search` of rows that this search can have."""
        results = [([list[int]()], np.zeros(1)) for _ in rows]
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
            lengths = [0] * len(rows)  # not 0 where the search goes on
            each = in_threads(
                functools.partial(self._search_batch, num_best, in_first_steps),
                [[rows[i] for i in batch] for batch in batches],
                self.num_threads,
            )
            for batch, found in zip(batches, each, strict=True):
                for i, ids, scores, of_ids in zip(batch, *found, strict=False):
                    if of_ids[0] == UNFINISHED:
                        lengths[i] = sizes[i]
                        continue
                    number = _count_existing(scores)
                    hypotheses = zip(ids, of_ids[:number], strict=False)
                    results[i] = (
                        [row[:length].tolist() for row, length in hypotheses],
                        scores[:number],
                    )
        return results

    def warm_up_steps(
        self, num_best: int, given: Sequence[int] = ()
    ) -> list[tuple[int, Callable[[], object]]]:
        """What makes the programs of `search` for rows without a prefix.

        Args:
            num_best: As in `search`.
            given: The `target_ids` of a row that has no others.

        Returns:
            Functions, each with the longest source that its program is for,
            shortest first.
        """
        if self.inference.decoding.sampling:
            num_best = 1  # of each row
        is_static = self.has_static_shapes
        shape_for = padded_length if is_static else _free_room
        lengths = range(2, self.inference.max_source_length + 1)
        steps: list[tuple[int, Callable[[], object]]] = []
        for length in {shape_for(n): n for n in lengths}.values():
            full = full_rows(padded_length(length), self.batch_tokens)
            numbers = range(1, full + 1) if is_static else [1]
            row = Row([UNK] * (length - 1) + [EOS], 0, [*given], [])
            row = row._replace(num_given=len(given))
            counts = {padded_count(n, full, self.row_factor) for n in numbers}
            make = functools.partial(self._search_batch, num_best)
            steps += [
                (length, functools.partial(make, in_first_steps, [row] * size))
                for size in sorted(counts)
                for in_first_steps in self._rounds()
            ]
        return steps

    def compile_steps(
        self, num_best: int, given: Sequence[int] = ()
    ) -> list[Callable[[], bool | None]]:
        """What compiles the search of a sentence alone, if it is faster so.

        Args:
            num_best, given: As in `warm_up_steps`.

        Returns:
            Functions that take seconds each, to be called in turn. For each
            length, the last one returns whether XLA now searches for such
            sentences, the others return None.
        """
        return []

    def score(self, rows: Sequence[Row]) -> list[np.ndarray]:
        """The log-probabilities of the whole `target_ids` of each row."""
        return self._of_pairs(Inference.score_ids, rows)

    def attention(self, rows: Sequence[Row]) -> list[np.ndarray]:
        """The attention of whole `target_ids`: see `alignment_ids`."""
        return self._of_pairs(Inference.alignment_ids, rows)

    def _of_pairs(self, kind, rows):
        """A row of a method's result for each row."""
        lengths = [max(len(r.source_ids), len(r.target_ids)) for r in rows]
        results: list = [None] * len(rows)
        for batch in batches_of(lengths, self.batch_tokens):
            arrays = self._pad(
                [rows[i].source_ids for i in batch],
                [rows[i].target_ids for i in batch],
            )
            for i, row in zip(batch, self.run(kind, arrays), strict=False):
                results[i] = row
        return results

    def run(
        self,
        kind: Callable[..., Nest],
        arrays: Sequence[Nest],
        room: int | None = None,
        **options: typing.Any,
    ) -> Nest:
        """The result of a `Program`, which is made at its first use."""
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
        """Whether each round of a search ends after a few steps.

        With static shapes a cache has room for the longest output, and the cost
        of a step grows with it. So the first round makes few steps, which
        suffice for most sentences; the second searches the others again.
        """
        return (True, False) if self.has_static_shapes else (False,)

    def _search_batch(
        self, num_best: int, in_first_steps: bool, rows: Sequence[Row]
    ):
        """Ids `[B, W, T]`, scores and lengths `[B, W]` of a batch of rows."""
        sources = [row.source_ids for row in rows]
        [source_ids] = self._pad(sources)
        num_rows, length = source_ids.shape
        tokens = None
        if self.shortlist is not None:
            required = [row.required_ids for row in rows]
            tokens = self.shortlist.tokens(sources, required)

        def to_array(targets: Sequence[Sequence[int]]) -> np.ndarray:
            longest = self.inference.output_limit(length)
            return pad_rows(targets, longest, PAD, num_rows)

        constraints = constraints_of(rows, num_rows, to_array, tokens)
        if self.inference.decoding.sampling:
            draws = np.zeros(
                (num_rows, self.inference.output_limit(length)), np.int32
            )
            for own, row in zip(draws, rows, strict=False):
                own[:] = make_draws(
                    row.seed, row.source_ids, row.sample, len(own)
                )
            constraints = constraints._replace(draws=draws)
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
        """`pad_rows` of each side of a batch, with the same number of rows.

        Rows are no longer than there are learned positions.
        """
        length = padded_length(max(len(ids) for side in sides for ids in side))
        num_rows = padded_count(
            len(sides[0]),
            full_rows(length, self.batch_tokens),
            self.row_factor,
        )
        longest = self.inference.position_limit
        return [pad_rows(side, longest, EOS, num_rows) for side in sides]


def search_for_terms(decoding: DecodingConfig) -> DecodingConfig:
    """The search of sentences with terms: exact, with at least four beams.

    >>> search_for_terms(DecodingConfig(beam_size=1)).beam_size
    4
    """
    return dataclasses.replace(
        decoding,
        beam_size=max(decoding.beam_size, DecodingConfig.beam_size),
        stopping="exact",
    )


def padded_count(number: int, full: int, factor: int) -> int:
    """The number of rows that a batch is padded to, `full` if it is a full one.

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


def _free_room(length: int) -> int:
    """The `room` for a row of any length."""
    return room(padded_length(length))


def constraints_of(
    rows: Sequence[Row],
    num_rows: int,
    to_array: Callable[[Sequence[Sequence[int]]], np.ndarray],
    tokens: np.ndarray | None = None,
) -> Constraints:
    """The `Constraints` of a batch.

    Args:
        rows: Its rows.
        num_rows: B, the number that they are padded to.
        to_array: Makes int32 `[B, P]` of the ids of each row.
        tokens: The shortlist, whose places the search has for ids.
    """

    def places(ids: np.ndarray) -> np.ndarray:
        if tokens is None:
            return ids
        found = np.searchsorted(tokens, ids).astype(np.int32)
        return np.where(ids < 0, ids, found)

    constraints = UNCONSTRAINED
    if any(row.target_ids for row in rows):
        prefix = to_array([row.target_ids for row in rows])
        constraints = constraints._replace(prefix=places(prefix))
    if any(row.num_given for row in rows):
        num_given = np.zeros((num_rows, 1), np.int32)
        num_given[: len(rows), 0] = [row.num_given for row in rows]
        constraints = constraints._replace(num_given=num_given)
    if any(row.automaton for row in rows):
        phrases = stack([row.automaton for row in rows], num_rows)
        phrases = phrases._replace(tokens=places(phrases.tokens))
        constraints = constraints._replace(phrases=phrases)
    return constraints


def stack(
    automata: Sequence[Automaton | None], num_rows: int | None = None
) -> Phrases:
    """The `Phrases` of a batch. Few shapes: sizes are powers of two.

    Args:
        automata: Of each sentence; None for one without phrases.
        num_rows: B; sentences that are not given have no phrases.
    """
    given = [automaton for automaton in automata if automaton is not None]
    num_rows = num_rows or len(automata)
    num_tokens = _rounded(max(len(a.tokens) for a in given))
    num_states = _rounded(max(len(a.children) for a in given))
    num_terms = _rounded(max(len(a.sizes) for a in given))
    shape = num_rows, num_states
    tokens = np.full((num_rows, num_tokens), NO_TOKEN, np.int32)
    following = np.zeros((*shape, num_tokens + 1), np.int32)
    bans = np.zeros((*shape, num_tokens), np.int32)
    ends, parts = np.zeros((2, *shape, num_terms), np.int32)
    sizes = np.zeros((num_rows, num_terms), np.int32)
    for row, automaton in enumerate(automata):
        if automaton is None:
            continue
        tokens[row, : len(automaton.tokens)] = automaton.tokens
        sizes[row, : len(automaton.sizes)] = automaton.sizes
        place = {token: i for i, token in enumerate(automaton.tokens)}
        for state in automaton.order:
            following[row, state] = following[row, automaton.suffix[state]]
            for token, to in automaton.children[state].items():
                following[row, state, place[token]] = to
            ends[row, state, list(automaton.ends[state])] = 1
            for term, size in automaton.parts[state].items():
                parts[row, state, term] = size
        is_ban = np.array(automaton.bans, np.int32)
        bans[row] = is_ban[following[row, :, :-1]]
    has_terms = any(automaton.sizes for automaton in given)
    return Phrases(
        tokens,
        following,
        bans if bans.any() else (),
        *((ends, parts, sizes) if has_terms else ()),
    )


def _rounded(number):
    """The next power of two, at least 1."""
    return 1 << max(0, number - 1).bit_length()


def pad_rows(
    rows: Sequence[Sequence[int]],
    longest: int | None = None,
    filler: int = EOS,
    num_rows: int | None = None,
) -> np.ndarray:
    """Rows of ids as int32 `[B, T]`, then `PAD`, in one of a few shapes.

    No row, and no T, is longer than `longest`. `filler` is the first id of the
    rows that are added to reach B, by default a power of two: XLA compiles for
    each B.

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


def _count_existing(scores: np.ndarray) -> int:
    """Hypotheses that exist: the first, and those after it with a score."""
    missing = np.flatnonzero(scores[1:] <= MISSING_SCORE)
    return 1 + int(missing[0]) if missing.size else len(scores)
