"""What a search and one more pass tell of a translation, as numbers."""

import math
import typing
from collections.abc import Sequence

import numpy as np

from keras_transformer.confidence.checks import Finding
from keras_transformer.translation.alignment import word_spans
from keras_transformer.translation.results import PairReading, Translation

# The features, and what a reader is told if one of them lowers the probability
# most. Six more, of the probabilities, the links and the source's length, did
# not lower the calibration error on texts of other documents.
FEATURES = {
    "mean_probability": "the model is unsure of many words",
    "lowest_token": "the model is unsure of {word}",
    "lowest_word": "the model is unsure of {word}",
    "margin": "another translation is nearly as probable",
    "length": "it is unusually long or short",
    "unlinked": "some words of the source have no counterpart",
    "findings": "a check failed",
    "notes": "the source was truncated, or has unknown words",
}
LENGTH = list(FEATURES).index("length")


class Evidence(typing.NamedTuple):
    """What is known of a translation, before a calibration."""

    direction: str  # "en-de"
    translation: str
    features: np.ndarray  # float64 [F]
    word_log_probs: Sequence[float]
    findings: list[Finding]


def features_of(
    source: str,
    found: Translation,
    reading: PairReading,
    findings: Sequence[Finding],
) -> np.ndarray:
    """Computes the features of the best hypothesis, float64 `[F]`.

    "length" is the logarithm of the ratio of lengths, in characters, from which
    the caller subtracts the usual one. A sentence with one hypothesis has no
    margin, so the margin is 0.
    """
    log_probs = np.array(reading.score.log_probs)
    linked = {link.source for link in reading.spans}
    words = [s for s in word_spans(source) if source[slice(*s)].isalnum()]
    unlinked = sum(word not in linked for word in words)
    values = {
        "mean_probability": math.exp(log_probs.mean()),
        "lowest_token": log_probs.min(),
        "lowest_word": min(reading.word_log_probs, default=0.0),
        "margin": found.scores[0] - found.scores[:2][-1],
        "length": math.log((len(found.texts[0]) + 2) / (len(source) + 2)),
        "unlinked": unlinked / max(1, len(words)),
        "findings": sum(not finding.is_question for finding in findings),
        "notes": bool(found.notes),
    }
    return np.array([values[name] for name in FEATURES], float)
