"""Mixtures of corpora: the pairs of each epoch, stage by stage."""

from __future__ import annotations

import fractions
import math
import typing
from collections.abc import Sequence

import numpy as np

from keras_transformer.base.fields import read_amounts

STREAM = 2  # seeds its random numbers; subword sampling has 0 and 1


class Stage(typing.NamedTuple):
    """Consecutive epochs that mix corpora in the same way.

    The first corpus decides the size of an epoch.
    """

    weights: dict[int, fractions.Fraction]  # of each corpus, by its number
    end: float  # the first epoch of the next stage, from 0; inf if none


def parse_mixture(
    text: str, prefixes: Sequence[str]
) -> tuple[list[Stage], list[str]]:
    """Reads the stages of `--mixture`, and the name that each corpus has there.

    An example is `"original 0.5, back 0.5, until 10; original 1"`. A name is
    one of the prefixes, or the end of one after a slash. Raises ValueError if
    the text is invalid or lacks a corpus.

    >>> stages, names = parse_mixture("a 1, b 3, until 9; a 1", ["x/a", "x/b"])
    >>> stages[0], names
    (Stage(weights={0: Fraction(1, 1), 1: Fraction(3, 1)}, end=9), ['a', 'b'])
    """
    stages: list[Stage] = []
    names: dict[int, str] = {}  # by number
    parts = text.split(";")
    for number, part in enumerate(parts, 1):
        amounts = read_amounts("mixture", part)
        begin = stages[-1].end if stages else 0
        end = amounts.pop("until", None)
        is_last = number == len(parts)
        if is_last != (end is None) or (end and (end <= begin or end % 1)):
            raise ValueError(
                "mixture: 'until N' must be in every stage but the last; N is"
                " the number of its last epoch, greater from stage to stage."
                f" Received: stage {part.strip()!r} of {len(parts)}"
            )
        numbers = [_find_corpus(name, prefixes) for name in amounts]
        if len(set(numbers)) < len(numbers) or not numbers:
            raise ValueError(
                "mixture: a stage must have a corpus, and each once. Received:"
                f" stage {part.strip()!r}"
            )
        names = dict(zip(numbers, amounts, strict=True)) | names
        weights = dict(zip(numbers, amounts.values(), strict=True))
        stages.append(Stage(weights, int(end) if end else math.inf))
    unused = [p for i, p in enumerate(prefixes) if i not in names]
    if unused:
        raise ValueError(
            "mixture: every corpus of train_files must be in a stage. Received:"
            f" none with {', '.join(unused)}"
        )
    return stages, [names[number] for number in range(len(prefixes))]


def _find_corpus(name: str, prefixes: Sequence[str]) -> int:
    found = [i for i, prefix in enumerate(prefixes) if prefix == name]
    if not found:
        found = [i for i, p in enumerate(prefixes) if p.endswith("/" + name)]
    if len(found) != 1:
        raise ValueError(
            "mixture: a name must be one of train_files, or its end after a"
            f" slash. Received: {name!r}, which matches {len(found)} of"
            f" {', '.join(prefixes)}"
        )
    return found[0]


def temperature_stage(sizes: Sequence[int], temperature: float) -> Stage:
    """Makes a stage with temperature sampling (Arivazhagan et al. 2019).

    The share of a corpus of n pairs is proportional to n ** (1 / temperature):
    at 1 an epoch has every pair once; the higher the temperature, the more
    often it has the pairs of the smaller corpora, up to equal shares.

    >>> stage = temperature_stage([100, 400], 2)
    >>> stage.weights[0] / stage.weights[1]
    Fraction(1, 2)
    """
    # The largest comes first: an epoch has each of its pairs once.
    order = sorted(range(len(sizes)), key=lambda number: -sizes[number])
    weights = {
        number: fractions.Fraction(sizes[number] ** (1 / temperature))
        for number in order
    }
    return Stage(weights, math.inf)


class Mixture:
    """The pairs of each epoch if corpora are mixed, for `make_batches`.

    An epoch has every pair of its stage's first corpus once. The number of
    pairs from another corpus is the size of the first, times the ratio of the
    weights. These pairs come from an endless sequence of shuffles of that
    corpus, which continues from epoch to epoch and from stage to stage. So the
    counts of two pairs of a corpus differ by at most one. With 4 pairs of a, 3
    pairs of b and the stage `a 1, b 0.5`:

        epoch 1    a1 a2 a3 a4  b2 b1
        epoch 2    a1 a2 a3 a4  b3 b1

    The pairs depend only on the stages, the corpora, the seed and the epoch.
    The batches have one corpus that joins all corpora in order, each with
    `kept` of its `read` pairs. Raises ValueError if a corpus keeps no pair.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        names: Sequence[str],
        read: Sequence[int],
        kept: Sequence[int],
        seed: int,
    ):
        for name, size in zip(names, kept, strict=True):
            if not size:
                raise ValueError(
                    "mixture: every corpus must keep sentence pairs."
                    f" Received: all pairs of {name} were dropped"
                )
        self._stages = stages
        self._names = names
        self._read = read
        self._kept = kept
        self._starts = np.cumsum([0, *kept])
        self._seed = seed

    def __str__(self):
        corpora = [
            f"{name} {read:,} pairs read, {kept:,} kept"
            for name, read, kept in zip(
                self._names, self._read, self._kept, strict=True
            )
        ]
        begins = [0, *(int(stage.end) for stage in self._stages[:-1])]
        first = [f"epoch {e + 1}: {self.describe(e)}" for e in begins]
        return "; ".join([*corpora, *first])

    @property
    def identity(self) -> str:
        """A text that two mixtures share only if all their epochs are equal."""
        return repr((self._stages, self._kept, self._seed))

    def describe(self, epoch: int) -> str:
        """Describes how many pairs of each corpus an epoch has."""
        numbers = np.searchsorted(
            self._starts, self.pairs_of(epoch), side="right"
        )
        return ", ".join(
            f"{np.sum(numbers == number):,} of {name}"
            for number, name in enumerate(self._names, 1)
        )

    def pairs_of(self, epoch: int) -> np.ndarray:
        """Returns the pairs of an epoch, corpus by corpus, int32 `[pairs]`."""
        stage = next(stage for stage in self._stages if epoch < stage.end)
        first, *others = stage.weights
        parts = [np.arange(self._kept[first]) + self._starts[first]]
        for corpus in others:
            begin, end = (self._taken(corpus, e) for e in (epoch, epoch + 1))
            parts.append(
                self._sequence(corpus, begin, end) + self._starts[corpus]
            )
        return np.concatenate(parts).astype(np.int32)

    def _taken(self, corpus, epoch):
        """Counts the pairs of a corpus' endless sequence before an epoch."""
        taken, begin = 0, 0
        for weights, end in self._stages:
            first, *others = weights
            epochs = max(0, min(epoch, end) - begin)
            if corpus in others:
                share = weights[corpus] / weights[first]
                taken += math.floor(epochs * share * self._kept[first])
            begin = end
        return taken

    def _sequence(self, corpus: int, begin: int, end: int) -> np.ndarray:
        """Returns pairs `begin` to `end - 1` of a corpus' endless sequence."""
        size = self._kept[corpus]
        shuffles = range(begin // size, -(-end // size))
        pairs = [
            np.random.default_rng(
                [self._seed, shuffle, corpus, STREAM]
            ).permutation(size)
            for shuffle in shuffles
        ]
        skipped = shuffles.start * size
        joined = np.concatenate([np.arange(0), *pairs])
        return joined[begin - skipped : end - skipped]
