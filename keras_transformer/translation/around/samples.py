"""Searches that sample, and that choose the sample most like the others."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence

import numpy as np

from keras_transformer.translation.around.words import with_note
from keras_transformer.translation.consensus import rank
from keras_transformer.translation.requests import Row
from keras_transformer.translation.search import Around, Found, Steps


class Samples(Around):
    """A search for `num_best` samples, each in a row of its own."""

    def change(self, rows: Sequence[Row], num_best: int) -> list[Found]:
        counts = [num_best if len(r.source_ids) > 1 else 1 for r in rows]
        samples = [
            row._replace(sample=number)
            for row, count in zip(rows, counts, strict=True)
            for number in range(count)
        ]
        found = iter(self.inner.search(samples, 1))
        results = []
        for count in counts:
            own = [*itertools.islice(found, count)]
            ids = [*itertools.chain(*(one.ids for one in own))]
            scores = np.concatenate([one.scores for one in own])
            results.append(Found(ids, scores))
        return results

    def programs(self, num_best: int, given: Sequence[int] = ()) -> Steps:
        return self.inner.programs(1, given)


@dataclasses.dataclass(eq=False)
class Consensus(Around):
    """A search that returns the samples with the highest expected utility."""

    num_samples: int
    metric: str  # the utility, as in `rank`
    to_strings: Callable[[Sequence[Sequence[int]]], list[str]]

    def change(self, rows: Sequence[Row], num_best: int) -> list[Found]:
        """Ranks samples by utility, except those of a failed search."""
        results = []
        samples = self.inner.search(rows, self.num_samples)
        for row, found in zip(rows, samples, strict=True):
            if np.isfinite(found.scores).all():
                order = rank(self.to_strings(found.ids), self.metric)
                order = order[:num_best]
                ids = [found.ids[i] for i in order]
                found = with_note(row, Found(ids, found.scores[order]))
            results.append(found)
        return results
