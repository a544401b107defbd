"""The search that uses XLA for single sentences, where XLA is faster.

In a search of one sentence, TensorFlow needs much of the time to start the
operations; a program of XLA is one operation. A batch of many rows is often
faster without XLA, which pads every cache to the longest output.
"""

import functools
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from absl import logging

from keras_transformer.translation.batching import (
    BatchedInference,
    first_steps,
)
from keras_transformer.translation.grouping import padded_length
from keras_transformer.translation.inference import Inference
from keras_transformer.translation.requests import Row
from keras_transformer.translation.shortlist import Shortlist
from keras_transformer.vocabulary import EOS, UNK

LONGEST = 64  # tokens of a sentence that XLA compiles for
TRIALS = 3  # of which the fastest counts
EXAMPLES = 5  # of which one has an output of usual length

# What a program is compiled for: padded length, num_best, num_given.
Kind = tuple[int, int, int]


class AdaptiveInference(BatchedInference):
    """A `BatchedInference` that XLA compiles for some sentences.

    Only `compile_steps` makes these programs: no search makes one.
    """

    def __init__(
        self,
        inference: Inference,
        batch_tokens: int,
        num_threads: int,
        shortlist: Shortlist | None = None,
    ):
        super().__init__(inference, batch_tokens, False, num_threads, shortlist)
        self._faster: dict[Kind | None, BatchedInference] = {}

    def search(
        self, rows: Sequence[Row], num_best: int
    ) -> list[tuple[list[list[int]], np.ndarray]]:
        """As of `BatchedInference`."""
        if len(rows) == 1 and self._faster:
            compiled = self._faster.get(_kind_of(rows[0], num_best))
            if compiled is not None:
                return compiled.search(rows, num_best)
        return super().search(rows, num_best)

    def compile_steps(
        self, num_best: int, given: Sequence[int] = ()
    ) -> list[Callable[[], bool | None]]:
        """As of `BatchedInference`."""
        if (
            self.has_static_shapes  # compiled anyway, by another backend
            or self.inference.decoding.sampling
            or self.shortlist is not None  # more shapes than lengths
            # Results would depend on whether a sentence comes alone.
            or any(m.compute_dtype != "float32" for m in self.inference.models)
        ):
            return []
        longest = min(self.inference.max_source_length, LONGEST)
        steps: list[Callable[[], bool | None]] = []
        for length in {padded_length(n): n for n in range(2, longest + 1)}:
            parts = self._compile(length, num_best, given)
            # Two programs and their measurement.
            steps += [functools.partial(next, parts, None)] * 3
        return steps

    def _compile(
        self, padded: int, num_best: int, given: Sequence[int]
    ) -> Iterator[bool | None]:
        """Compiles in two steps; the third tells whether XLA is faster."""
        length = min(padded, self.inference.max_source_length)
        row = self._example(length, num_best, given)
        compiled = BatchedInference(
            self.inference, self.batch_tokens, True, num_threads=1
        )
        try:
            for in_first_steps in compiled._rounds():
                compiled._search_batch(num_best, in_first_steps, [row])
                yield None
            seconds = [
                min(_time(search, [row], num_best) for _ in range(TRIALS))
                for search in (super().search, compiled.search)
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
        vocab_size = self.inference.configs[0].num_source_tokens
        random = np.random.default_rng(length)
        for _ in range(EXAMPLES):
            ids = random.integers(UNK + 1, vocab_size, length - 1).tolist()
            row = Row([*ids, EOS], 0, [*given], [], num_given=len(given))
            [(found, _)] = super().search([row], num_best)
            if len(found[0]) < first_steps(length):
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
