"""A sentence that comes alone: XLA searches for it, where XLA is faster.

In a search of one sentence, TensorFlow needs much of the time to start the
operations; a program of XLA is one operation. A batch of many rows is often
faster without XLA, which pads every cache to the longest output.
"""

import functools
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from absl import logging

from keras_transformer.translation.batched import BatchedSearch, first_steps
from keras_transformer.translation.grouping import padded_length
from keras_transformer.translation.requests import Row
from keras_transformer.translation.search import Around, Found, Programs
from keras_transformer.vocabulary import EOS, UNK

LONGEST = 64  # tokens of a sentence that XLA compiles for
TRIALS = 3  # of which the fastest counts
EXAMPLES = 5  # of which one has an output of usual length

# What a program is compiled for: padded length, num_best, num_given.
Kind = tuple[int, int, int]


class Single(Around):
    """A `BatchedSearch` that XLA compiles for some sentences.

    Only the functions of `programs` make these programs: no search makes one.
    """

    inner: BatchedSearch

    def __init__(self, inner: BatchedSearch):
        super().__init__(inner)
        self._faster: dict[Kind | None, BatchedSearch] = {}

    def search(self, rows: Sequence[Row], num_best: int) -> list[Found]:
        search: BatchedSearch | None = None
        if len(rows) == 1 and self._faster:
            search = self._faster.get(_kind_of(rows[0], num_best))
        return (search or self.inner).search(rows, num_best)

    def programs(self, num_best: int, given: Sequence[int] = ()) -> Programs:
        longest = min(self.inner.inference.max_source_length, LONGEST)
        steps: list[Callable[[], bool | None]] = []
        for length in {padded_length(n): n for n in range(2, longest + 1)}:
            parts = self._compile(length, num_best, given)
            # Two programs and their measurement.
            steps += [functools.partial(next, parts, None)] * 3
        return Programs(self.inner.programs(num_best, given).made, steps)

    def _compile(
        self, padded: int, num_best: int, given: Sequence[int]
    ) -> Iterator[bool | None]:
        """Yields None after each of two programs, then if XLA is faster."""
        inference = self.inner.inference
        length = min(padded, inference.max_source_length)
        row = self._example(length, num_best, given)
        compiled = BatchedSearch(
            inference, self.inner.batch_tokens, True, num_threads=1
        )
        try:
            for make in compiled.rounds_of([row], num_best):
                make()
                yield None
            seconds = [
                min(_time(search, [row], num_best) for _ in range(TRIALS))
                for search in (self.inner.search, compiled.search)
            ]
        except Exception as error:  # the search without XLA is there
            logging.warning("XLA cannot compile the search: %s", error)
            yield False
            return
        if seconds[1] < seconds[0]:
            self._faster[_kind_of(row, num_best)] = compiled
        yield seconds[1] < seconds[0]

    def _example(self, length, num_best, given):
        """A row whose output is not unusually long."""
        vocab_size = self.inner.inference.configs[0].num_source_tokens
        random = np.random.default_rng(length)
        for _ in range(EXAMPLES):
            ids = random.integers(UNK + 1, vocab_size, length - 1).tolist()
            row = Row([*ids, EOS], target_ids=given, num_given=len(given))
            [found] = self.inner.search([row], num_best)
            if len(found.ids[0]) < first_steps(length):
                break
        return row


def _kind_of(row: Row, num_best: int) -> Kind | None:
    """The kind of a row; None if its output has a prefix or phrases."""
    if row.automaton is not None or len(row.target_ids) > row.num_given:
        return None
    return padded_length(len(row.source_ids)), num_best, row.num_given


def _time(
    search: Callable[..., object], rows: Sequence[Row], num_best: int
) -> float:
    """Seconds of a search."""
    begin = time.perf_counter()
    search(rows, num_best)
    return time.perf_counter() - begin
