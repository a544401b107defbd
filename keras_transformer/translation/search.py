"""What a search is: a function of rows.

An engine searches by itself, as `batched` or `ctranslate2`. What changes a
search for some sentences is a search around another one, in `around/`.
`assemble` puts them together.
"""

import dataclasses
import typing
from collections.abc import Callable, Sequence

import numpy as np

from keras_transformer.translation.requests import Row


class Found(typing.NamedTuple):
    """The hypotheses of a row, best first; samples are by their numbers."""

    # The tokens of each; a blank sentence has one hypothesis, `[]`.
    ids: list[list[int]]
    # Of each, 0 of a blank sentence; NaN if the search failed.
    scores: np.ndarray


class Programs(typing.NamedTuple):
    """What makes the programs of a search in advance."""

    # Functions that make a program each, with the longest source that it is
    # for, shortest first.
    made: list[tuple[int, Callable[[], object]]]
    # Functions that take seconds each and compile the search of a sentence
    # alone, to be called in turn. For each length, the last one returns whether
    # XLA is faster and will be used, the others return None.
    compiled: list[Callable[[], bool | None]]


class Search(typing.Protocol):
    """A search, by an engine of this name."""

    @property
    def name(self) -> str: ...

    def search(self, rows: Sequence[Row], num_best: int) -> list[Found]:
        """What is found for each row: at most `num_best` hypotheses."""

    def score(self, rows: Sequence[Row]) -> list[np.ndarray]:
        """The log-probabilities of the whole `target_ids` of each row."""

    def attention(self, rows: Sequence[Row]) -> list[np.ndarray]:
        """The attention of whole `target_ids`: `Inference.alignment_ids`."""

    def programs(self, num_best: int, given: Sequence[int] = ()) -> Programs:
        """The programs of `search` for rows without a prefix.

        `given` are the `target_ids` of a row that has no others.
        """


@dataclasses.dataclass(eq=False)
class Around:
    """A search around another one, of which it changes a part."""

    inner: Search

    @property
    def name(self) -> str:
        return self.inner.name

    def search(self, rows: Sequence[Row], num_best: int) -> list[Found]:
        return self.inner.search(rows, num_best)

    def score(self, rows: Sequence[Row]) -> list[np.ndarray]:
        return self.inner.score(rows)

    def attention(self, rows: Sequence[Row]) -> list[np.ndarray]:
        return self.inner.attention(rows)

    def programs(self, num_best: int, given: Sequence[int] = ()) -> Programs:
        return self.inner.programs(num_best, given)
