"""What a search is: a function of rows.

An engine has a search: `batched` or `ctranslate2`. A search in `around/` wraps
another one, and changes it for some sentences.
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
    """What a search is made of; attributes as in `Translator`."""

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
        """Raises ValueError for models that do not fit the other parts."""
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
    """The hypotheses of a row, best first, or samples as they were drawn."""

    # The tokens of each; a blank sentence has one hypothesis, `[]`.
    ids: list[list[int]]
    # One score a hypothesis: 0 for a blank sentence, NaN if the search failed.
    scores: np.ndarray
    # A sentence for each requirement that the first one does not meet.
    notes: Sequence[str] = ()


class Step(typing.NamedTuple):
    """What makes a program of a search in advance, in some seconds."""

    longest: int  # source that the program is for
    # If the program is for a sentence alone, returns whether XLA is faster and
    # will be used, or None if this step does not tell.
    make: Callable[[], typing.Any]
    is_single: bool = False  # whether the program is for a sentence alone


Steps: typing.TypeAlias = Iterator[Step]


class Search(typing.Protocol):
    """A search, by an engine of this name."""

    @property
    def name(self) -> str: ...

    @property
    def limits(self) -> Limits: ...

    def with_decoding(self, decoding: DecodingConfig) -> "Search":
        """Returns another search of the same models, without its programs."""

    def search(self, rows: Sequence[Row], num_best: int) -> list[Found]:
        """Finds at most `num_best` hypotheses for each row."""

    def score(self, rows: Sequence[Row]) -> list[np.ndarray]:
        """Returns the log-probabilities of the whole `target_ids` of rows."""

    def attention(self, rows: Sequence[Row]) -> list[np.ndarray]:
        """Returns the attention of whole `target_ids`.

        For each row it is as in `Inference.alignment_ids`.
        """

    def programs(self, num_best: int, given: Sequence[int] = ()) -> Steps:
        """Yields the steps that make programs for rows without a prefix.

        They are to be made in turn. `given` are the `target_ids` of a row.
        """


@dataclasses.dataclass(eq=False)
class Around(abc.ABC):
    """A search around another one, which it changes for some rows.

    Rows none of which has the attribute `concerns` go to the inner search.
    """

    inner: Search
    # By default all rows: each has ids.
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
        """Searches rows, at least one of which has `concerns`."""

    def search(self, rows: Sequence[Row], num_best: int) -> list[Found]:
        is_concerned = any(map(self.concerns, rows))
        search = self.change if is_concerned else self.inner.search
        return search(rows, num_best)

    def score(self, rows: Sequence[Row]) -> list[np.ndarray]:
        return self.inner.score(rows)

    def attention(self, rows: Sequence[Row]) -> list[np.ndarray]:
        return self.inner.attention(rows)

    def programs(self, num_best: int, given: Sequence[int] = ()) -> Steps:
        return self.inner.programs(num_best, given)
