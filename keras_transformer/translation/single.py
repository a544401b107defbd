"""Searches for single sentences, compiled by XLA where that is faster.

In a search for one sentence, TensorFlow spends much of the time starting
operations, but an XLA program is one operation. A batch of many rows is often
faster without XLA, which pads every cache to the longest output.
"""

import dataclasses
import functools
import time
import typing
from collections.abc import Iterator, Sequence

import numpy as np
from absl import logging

from keras_transformer.text.vocabulary import EOS, UNK
from keras_transformer.translation.arrays import numbers_of
from keras_transformer.translation.grouping import first_steps, padded_length
from keras_transformer.translation.requests import Row
from keras_transformer.translation.search import Step

LONGEST = 64  # maximum length, in tokens, of a sentence that XLA compiles for
TRIALS = 3  # measurements; the fastest is used
EXAMPLES = 5  # maximum number of sentences tried for an output of usual length

# What a program is compiled for: padded length, num_best, `numbers_of`.
Kind = tuple[int, int, tuple[int, ...]]


class Single:
    """The compiled searches of a `BatchedSearch` for single sentences.

    Only `steps` makes them: a search never compiles.
    """

    def __init__(self) -> None:
        self._faster: dict[Kind | None, typing.Any] = {}

    def find(self, rows: Sequence[Row], num_best: int) -> typing.Any | None:
        """Returns a compiled search that is faster for these rows, or None."""
        if len(rows) != 1 or not self._faster:
            return None
        return self._faster.get(_kind_of(rows[0], num_best))

    def steps(
        self, search: typing.Any, num_best: int, given: Sequence[int]
    ) -> Iterator[Step]:
        """Yields steps that compile a search for each length and measure it."""
        longest = min(search.limits.max_source_length, LONGEST)
        for length in {padded_length(n): n for n in range(2, longest + 1)}:
            parts = self._compile(search, length, num_best, given)
            for _ in range(3):  # two programs and their measurement
                make = functools.partial(next, parts, None)
                yield Step(length, make, is_single=True)

    def _compile(
        self,
        search: typing.Any,
        padded: int,
        num_best: int,
        given: Sequence[int],
    ) -> Iterator[bool | None]:
        """Yields None for each of two programs, then whether XLA is faster."""
        length = min(padded, search.limits.max_source_length)
        row = _example(search, length, num_best, given)
        compiled = dataclasses.replace(
            search, jit_compile=True, num_threads=1, single=None
        )
        try:
            for make in compiled.rounds_of([row], num_best):
                make()
                yield None
            seconds = [
                min(_time(one, row, num_best) for _ in range(TRIALS))
                for one in (search, compiled)
            ]
        except Exception as error:  # the search without XLA still works
            logging.warning("XLA cannot compile the search: %s", error)
            yield False
            return
        if seconds[1] < seconds[0]:
            self._faster[_kind_of(row, num_best)] = compiled
        yield seconds[1] < seconds[0]


def _example(search, length, num_best, given):
    """Makes a row of random tokens whose output is not unusually long."""
    vocab_size = search.limits.configs[0].num_source_tokens
    random = np.random.default_rng(length)
    for _ in range(EXAMPLES):
        ids = random.integers(UNK + 1, vocab_size, length - 1).tolist()
        row = Row([*ids, EOS], target_ids=given, num_given=len(given))
        [found] = search.search_batches([row], num_best)
        if len(found.ids[0]) < first_steps(length):
            break
    return row


def _kind_of(row: Row, num_best: int) -> Kind | None:
    """Returns the kind of a row, None if it has a prefix or phrases."""
    if row.automaton is not None or len(row.target_ids) > row.num_given:
        return None
    return padded_length(len(row.source_ids)), num_best, numbers_of(row)


def _time(search: typing.Any, row: Row, num_best: int) -> float:
    """Measures the time of a search in seconds."""
    begin = time.perf_counter()
    search.search_batches([row], num_best)
    return time.perf_counter() - begin
