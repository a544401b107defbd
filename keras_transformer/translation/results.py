"""The results that a `Translator` returns."""

import typing
from collections.abc import Sequence

import numpy as np
from absl import logging

from keras_transformer.commands.flags import RunError
from keras_transformer.translation.alignment import SpanLink
from keras_transformer.translation.requests import shown


class Translation(typing.NamedTuple):
    """The hypotheses of a sentence, best first.

    Attributes:
        texts: The text of each hypothesis; one empty text for a blank sentence.
        ids: The tokens of each hypothesis, EOS included unless the length limit
            truncated it.
        scores: The score of each hypothesis: log-probability after length
            penalty.
        notes: A sentence for each truncation, such as "has 120 tokens,
            truncated to 99 (A man ...)", and for each problem with terms or
            forbidden words.
    """

    texts: list[str]
    ids: list[list[int]]
    scores: list[float]
    notes: list[str]

    @property
    def best(self) -> "Translation":
        """The best hypothesis alone."""
        return Translation(
            self.texts[:1], self.ids[:1], self.scores[:1], self.notes
        )


class PairScore(typing.NamedTuple):
    """The model's probability of a given translation.

    Attributes:
        ids: The tokens of the translation, EOS included.
        log_probs: The log-probability of each token given those before it,
            natural logarithm.
        notes: A sentence for each truncation, as in `Translation`. Truncated
            tokens are not scored.
    """

    ids: list[int]
    log_probs: list[float]
    notes: list[str]

    @property
    def truncated(self) -> bool:
        """Whether source or translation exceeded the translator's limits."""
        return bool(self.notes)


class Alignment(typing.NamedTuple):
    """The words of a pair that translate each other.

    Attributes:
        links: Pairs of word indices, source and target, from 0, sorted; words
            are separated by white space.
        truncated: As in `PairScore`. Words after the limit have no links.
    """

    links: list[tuple[int, int]]
    truncated: bool


class PairReading(typing.NamedTuple):
    """What one pass over a pair tells: probabilities and links of words.

    Attributes:
        score: The `PairScore`.
        word_log_probs: The log-probability of each word of the translation, as
            `str.split` finds them: the sum of its tokens'.
        alignment: The `Alignment`.
        spans: The links of `Translator.align_spans`.
    """

    score: PairScore
    word_log_probs: list[float]
    alignment: Alignment
    spans: list[SpanLink]


def warn_of_notes(found: Sequence[Translation]) -> None:
    """Logs each note on a translation as a warning."""
    for number, translation in enumerate(found, 1):
        for note in translation.notes:
            logging.warning("sentence %d %s", number, note)


class NotFiniteError(FloatingPointError, RunError):
    """The model's logits are not finite. Commands end with this message."""


def check_finite(numbers: np.ndarray, string: str) -> None:
    """Raises NotFiniteError if the search or score of a string failed."""
    if not np.isfinite(numbers).all():
        raise NotFiniteError(
            f"the model's logits are not finite ({shown(string)}). Its weights"
            " are corrupt, or its training diverged"
        )
