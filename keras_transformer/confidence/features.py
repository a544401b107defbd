"""What a search and one more pass tell of a translation, as numbers."""

import collections
import math
from collections.abc import Sequence

import numpy as np

from keras_transformer.confidence.checks import Finding
from keras_transformer.translation.alignment import SpanLink, word_spans
from keras_transformer.translation.results import PairReading, Translation

# A token or word below these log-probabilities is doubtful.
LOW_TOKEN = math.log(0.2)
# The features, and what a reader is told if one of them lowers the probability
# most; "" if that tells nothing.
FEATURES = {
    "mean_probability": "the model is unsure of many words",
    "lowest_token": "the model is unsure of {word}",
    "lowest_word": "the model is unsure of {word}",
    "log_probability": "the model is unsure of some words",
    "low_tokens": "the model is unsure of several words",
    "margin": "another translation is nearly as probable",
    "length": "it is unusually long or short",
    "unlinked": "some words of the source have no counterpart",
    "longest_unlinked": "some words of the source have no counterpart",
    "most_linked": "many words translate one word of the source",
    "source_length": "",
    "copied": "words of the source are copied",
    "findings": "a check failed",
    "notes": "the source was truncated, or has unknown words",
}
LENGTH = list(FEATURES).index("length")


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
    translation = found.texts[0]
    log_probs = np.array(reading.score.log_probs)
    alone, most = _links(source, translation, reading.spans)
    words = source.split()
    copied = sum(word in words for word in translation.split())
    values = {
        "mean_probability": math.exp(log_probs.mean()),
        "lowest_token": log_probs.min(),
        "lowest_word": min(reading.word_log_probs, default=0.0),
        "log_probability": -math.sqrt(max(0.0, -log_probs.sum())),
        "low_tokens": (log_probs < LOW_TOKEN).sum(),
        "margin": found.scores[0] - found.scores[1]
        if len(found.scores) > 1
        else 0.0,
        "length": math.log((len(translation) + 2) / (len(source) + 2)),
        "unlinked": sum(alone) / max(1, len(alone)),
        "longest_unlinked": _longest_run(alone),
        "most_linked": most,
        "source_length": math.log(1 + len(source)),
        "copied": copied / max(1, len(translation.split())),
        "findings": sum(not finding.is_question for finding in findings),
        "notes": float(bool(found.notes)),
    }
    return np.array([values[name] for name in FEATURES], float)


def _links(
    source: str, translation: str, spans: Sequence[SpanLink]
) -> tuple[list[bool], float]:
    """Tells which words of the source have no link.

    Also returns the share of the translation's words that are linked to the
    source word with the most links.
    """
    linked = collections.Counter(link.source for link in spans)
    words = [
        span for span in word_spans(source) if source[slice(*span)].isalnum()
    ]
    most = max(linked.values(), default=0)
    alone = [span not in linked for span in words]
    return alone, most / max(1, len(word_spans(translation)))


def _longest_run(values):
    longest = run = 0
    for value in values:
        run = run + 1 if value else 0
        longest = max(longest, run)
    return longest
