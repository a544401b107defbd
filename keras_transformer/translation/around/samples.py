"""Samples of a sentence, and the one that is most like the others."""

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from keras_transformer.translation.consensus import rank
from keras_transformer.translation.requests import Row
from keras_transformer.translation.search import Around, Found, Programs, Search


class Samples(Around):
    """A search for `num_best` samples: each is a row of its own."""

    def search(self, rows: Sequence[Row], num_best: int) -> list[Found]:
        """As of `Search`."""
        counts = [num_best if len(r.source_ids) > 1 else 1 for r in rows]
        samples = [
            row._replace(sample=number)
            for row, count in zip(rows, counts, strict=True)
            for number in range(count)
        ]
        found = iter(self.inner.search(samples, 1))
        results = []
        for count in counts:
            ids, scores = zip(*itertools.islice(found, count), strict=True)
            ids = list(itertools.chain(*ids))
            results.append(Found(ids, np.concatenate(scores)))
        return results

    def programs(self, num_best: int, given: Sequence[int] = ()) -> Programs:
        """As of `Search`."""
        return self.inner.programs(1, given)


class Consensus(Around):
    """A search that returns the samples of the highest expected utility.

    Args:
        inner: Finds the samples.
        num_samples: Their number.
        metric: The utility, as of `rank`.
        to_strings: Makes texts of ids.
    """

    def __init__(
        self,
        inner: Search,
        num_samples: int,
        metric: str,
        to_strings: Callable[[Sequence[Sequence[int]]], list[str]],
    ):
        super().__init__(inner)
        self._num_samples, self._metric = num_samples, metric
        self._to_strings = to_strings

    def search(self, rows: Sequence[Row], num_best: int) -> list[Found]:
        """As of `Search`; a failed search is as it was found."""
        results = []
        for found in self.inner.search(rows, self._num_samples):
            if np.isfinite(found.scores).all():
                order = rank(self._to_strings(found.ids), self._metric)
                order = order[:num_best]
                ids = [found.ids[i] for i in order]
                found = Found(ids, found.scores[order])
            results.append(found)
        return results
