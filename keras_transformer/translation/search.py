"""The interface of a search, which finds hypotheses for rows.

The engines have the searches in `batched` and `ctranslate2`. A search in
`around/` wraps another search, and changes it for some sentences.
"""

import abc
import dataclasses
import operator
import typing
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from keras_transformer.base.refusals import expect
from keras_transformer.config import (
    DecodingConfig,
    TransformerConfig,
    check_position_limit,
)
from keras_transformer.text.tokenization import Tokenizer, TokenizerPair
from keras_transformer.translation.limits import Limits
from keras_transformer.translation.requests import Row
from keras_transformer.translation.shortlist import Shortlist


class Setup(typing.NamedTuple):
    """The parts from which a search is made; attributes as in `Translator`."""

    tokenizer: Tokenizer | TokenizerPair
    models: Sequence[typing.Any]
    decoding: DecodingConfig
    max_source_length: int
    batch_tokens: int
    jit_compile: bool | None
    num_threads: int
    shortlist: Shortlist | None

    @property
    def configs(self) -> list[TransformerConfig]:
        return [model.config for model in self.models]

    def check(self) -> None:
        """Raises ValueError if a model does not fit the other parts."""
        length = self.max_source_length
        expect(
            length >= 2,
            "max_source_length of at least 2: a token and EOS",
            max_source_length=length,
        )
        sides = self.tokenizer.source, self.tokenizer.target
        for config in self.configs:
            known = tuple(side.vocab_size for side in sides)
            sizes = config.num_source_tokens, config.vocab_size
            same = "the same vocabularies for tokenizer and model"
            expect(known == sizes, same, f"{known} and {sizes} tokens")
            if self.shortlist is not None:
                self.shortlist.check(config)
            check_position_limit(config, max_source_length=length)


class Found(typing.NamedTuple):
    """The hypotheses of a row, best first, or samples in order of drawing."""

    # The tokens of each; a blank sentence has one hypothesis, `[]`.
    ids: list[list[int]]
    # One score per hypothesis, 0 for a blank sentence, NaN for a failed search.
    scores: np.ndarray
    # A sentence for each requirement that is not met.
    notes: Sequence[str] = ()


class Step(typing.NamedTuple):
    """One step that makes a program of a search in advance, in seconds."""

    longest: int  # length of the longest source that the program is for
    # Makes the program. If it is for single sentences, the last step returns
    # whether XLA is faster and will be used, and the others return None.
    make: Callable[[], typing.Any]
    is_single: bool = False  # whether the program is for single sentences


Steps: typing.TypeAlias = Iterator[Step]


class Search(typing.Protocol):
    """A search by the engine `name`."""

    @property
    def name(self) -> str: ...

    @property
    def limits(self) -> Limits: ...

    def with_decoding(self, decoding: DecodingConfig) -> "Search":
        """Returns a search of the same models, which has no programs yet."""

    def search(self, rows: Sequence[Row], num_best: int) -> list[Found]:
        """Finds at most `num_best` hypotheses for each row."""

    def score(self, rows: Sequence[Row]) -> list[np.ndarray]:
        """Computes the log-probabilities of rows with whole `target_ids`."""

    def attention(self, rows: Sequence[Row]) -> list[np.ndarray]:
        """Computes the attention of each row's `target_ids` to its source.

        The `target_ids` are whole translations. Each result is a row of
        `Inference.alignment_ids`.
        """

    def read(self, rows: Sequence[Row]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Computes the results of `score` and `attention` for each row."""

    def programs(self, num_best: int, given: Sequence[int] = ()) -> Steps:
        """Yields the steps that make programs for rows without a prefix.

        The caller runs them in order. `given` are the language tokens with
        which outputs begin.
        """


@dataclasses.dataclass(eq=False)
class Around(abc.ABC):
    """A search that wraps another search, and changes it for some rows.

    If `concerns` is false for all rows, the inner search does the work.
    """

    inner: Search
    # By default true for all rows, since each has ids.
    concerns: typing.ClassVar[operator.attrgetter] = operator.attrgetter(
        "source_ids"
    )

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def limits(self) -> Limits:
        return self.inner.limits

    def with_decoding(self, decoding: DecodingConfig) -> Search:
        inner = self.inner.with_decoding(decoding)
        return dataclasses.replace(self, inner=inner)

    @abc.abstractmethod
    def change(self, rows: Sequence[Row], num_best: int) -> list[Found]:
        """Searches rows, of which `concerns` is true for at least one."""

    def search(self, rows: Sequence[Row], num_best: int) -> list[Found]:
        is_concerned = any(map(self.concerns, rows))
        search = self.change if is_concerned else self.inner.search
        return search(rows, num_best)

    def score(self, rows: Sequence[Row]) -> list[np.ndarray]:
        return self.inner.score(rows)

    def attention(self, rows: Sequence[Row]) -> list[np.ndarray]:
        return self.inner.attention(rows)

    def read(self, rows: Sequence[Row]) -> list[tuple[np.ndarray, np.ndarray]]:
        return self.inner.read(rows)

    def programs(self, num_best: int, given: Sequence[int] = ()) -> Steps:
        return self.inner.programs(num_best, given)
