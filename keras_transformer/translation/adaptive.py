"""A search whose sentences that come alone are compiled by XLA where it pays.

In a search of one sentence, TensorFlow takes longer to start the operations
than to compute them; a program of XLA is one operation. A batch of many rows is
faster without XLA, which pads every cache to the longest output.
"""

import functools
import time
from collections.abc import Callable, Sequence

import numpy as np

from keras_transformer.translation.batching import BatchedInference
from keras_transformer.translation.grouping import padded_length
from keras_transformer.translation.inference import Inference
from keras_transformer.translation.requests import Row
from keras_transformer.translation.shortlist import Shortlist
from keras_transformer.vocabulary import EOS, UNK

TRIALS = 3  # of which the fastest counts


class AdaptiveInference(BatchedInference):
    """A `BatchedInference` that XLA compiles for some sentences.

    Only `compile_steps` makes these programs: no search waits for them.
    """

    def __init__(
        self,
        inference: Inference,
        batch_tokens: int,
        num_threads: int,
        shortlist: Shortlist | None = None,
    ):
        super().__init__(inference, batch_tokens, False, num_threads, shortlist)
        self._compiled = BatchedInference(
            inference, batch_tokens, True, 1, shortlist
        )
        self._faster: set[tuple[int, int, int]] = set()

    def search(
        self, rows: Sequence[Row], num_best: int
    ) -> list[tuple[list[list[int]], np.ndarray]]:
        """As of `BatchedInference`."""
        if len(rows) == 1 and _shape_of(rows[0], num_best) in self._faster:
            return self._compiled.search(rows, num_best)
        return super().search(rows, num_best)

    def compile_steps(
        self, num_best: int, given: Sequence[int] = ()
    ) -> list[tuple[int, Callable[[], bool]]]:
        """As of `BatchedInference`: one for each padded length."""
        if self.has_static_shapes:  # compiled anyway, by another backend
            return []
        if self.inference.decoding.sampling or self.shortlist is not None:
            return []  # shapes that depend on more than the length
        lengths = range(2, self.inference.max_source_length + 1)
        vocab_size = self.inference.configs[0].num_source_tokens
        random = np.random.default_rng(1)
        steps: list[tuple[int, Callable[[], bool]]] = []
        for length in {padded_length(n): n for n in lengths}.values():
            ids = random.integers(UNK + 1, vocab_size, length - 1).tolist()
            row = Row([*ids, EOS], 0, [*given], [], num_given=len(given))
            compile = functools.partial(self._compile, row, num_best)
            steps.append((length, compile))
        return steps

    def _compile(self, row, num_best):
        """Compiles the search of a row; returns whether it is faster."""
        for in_first_steps in self._compiled._rounds():
            self._compiled._search_batch(num_best, in_first_steps, [row])
        seconds = [
            min(_time(search, [row], num_best) for _ in range(TRIALS))
            for search in (super().search, self._compiled.search)
        ]
        if seconds[1] < seconds[0]:
            self._faster.add(_shape_of(row, num_best))
        return seconds[1] < seconds[0]


def _shape_of(row: Row, num_best: int) -> tuple[int, int, int] | None:
    """What a program of one row is compiled for; None for another search."""
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
