"""The calibration of a model: fitted to validation pairs, kept in a file.

`confidence.json` in the work directory has the regressions, and what they were
worth on pairs that they were not fitted to.
"""

import collections
import dataclasses
import json
import os
import typing
from collections.abc import Sequence

import numpy as np

from keras_transformer.base.files import (
    read_checked_json,
    with_checksum,
    write_atomically,
)
from keras_transformer.base.refusals import expect
from keras_transformer.confidence.features import FEATURES, LENGTH, Evidence
from keras_transformer.confidence.regression import Regression
from keras_transformer.confidence.report import ACCEPTABLE, Report
from keras_transformer.translation.metrics import sentence_chrf

FORMAT_VERSION = 1
FEWEST = 200  # pairs of a calibration
FEWEST_WORDS = 1000
FOLDS = 5  # parts, each measured by a fit to the others


@dataclasses.dataclass(frozen=True)
class Calibration:
    """Gives probabilities that translations are acceptable.

    Attributes:
        sentences: The regression of sentences, on `FEATURES`.
        words: The regression of words, on their log-probability and the
            probability of their sentence; None if the pairs were too few.
        lengths: The usual "length" in each direction; "" is for the others.
        measured: What it was worth: "pairs", "acceptable" (the share),
            "calibration_error" and "correlation" with chrF, both on pairs that
            were not fitted to.
        checkpoint: The name of the checkpoint that it is for.
    """

    sentences: Regression
    words: Regression | None
    lengths: dict[str, float]
    measured: dict[str, float]
    checkpoint: str

    def of_sentences(
        self, examples: Sequence[Evidence]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Computes the probabilities of translations, float64 `[N]`.

        Also returns what each feature adds to the logit, `[N, F]`.
        """
        features = _features(examples, self.lengths)
        return self.sentences(features), self.sentences.parts(features)[:, 1:]

    def of_words(
        self, log_probs: Sequence[float], probability: float
    ) -> list[float]:
        """Computes the probability of each word of a translation."""
        if self.words is None or not log_probs:
            return []
        return self.words(_word_features(log_probs, probability)).tolist()

    def write(self, path: str | os.PathLike) -> None:
        """Writes the file."""
        sentences, words = (
            of and [values.tolist() for values in of]
            for of in (self.sentences, self.words)
        )
        values = {
            "format_version": FORMAT_VERSION,
            "checkpoint": self.checkpoint,
            "features": [*FEATURES],
            "sentences": sentences,
            "words": words,
            "lengths": self.lengths,
            "measured": self.measured,
        }
        text = json.dumps(with_checksum(values), indent=2)
        write_atomically(path, f"{text}\n")

    @classmethod
    def read(cls, path: str | os.PathLike) -> typing.Self:
        """Reads the file.

        Raises FileNotFoundError, and ValueError if it has changed or is of
        another version.
        """
        values = read_checked_json(path, FORMAT_VERSION)
        expect(
            values["features"] == [*FEATURES],
            "a calibration of this version: run kt-evaluate --calibrate again",
            features=", ".join(values["features"]),
            where=path,
        )
        sentences, words = (
            of and Regression(*map(np.array, of))
            for of in (values["sentences"], values["words"])
        )
        others = (values[n] for n in ("lengths", "measured", "checkpoint"))
        return cls(sentences, words, *others)


def fit(
    examples: Sequence[Evidence], references: Sequence[str], checkpoint: str
) -> Calibration:
    """Fits a calibration. Raises ValueError if the examples are too few."""
    expect(
        len(examples) >= FEWEST,
        f"at least {FEWEST} validation pairs to calibrate",
        len(examples),
    )
    texts = [one.translation for one in examples]
    chrf = np.array([*map(sentence_chrf, texts, references)])
    truth = (chrf >= ACCEPTABLE).astype(float)
    expect(
        0 < truth.sum() < len(truth),
        f"acceptable and other translations (chrF {ACCEPTABLE:.0f}) of"
        " validation pairs to calibrate",
        f"{truth.sum():.0f} acceptable of {len(truth)}",
    )
    lengths = _usual_lengths(examples)
    features = _features(examples, lengths)
    held_out = _held_out(features, truth)
    values = Report.of(held_out, chrf).values
    names = "acceptable", "calibration_error", "correlation"
    measured: dict[str, typing.Any] = {"pairs": len(examples)}
    measured |= {name: values[name] for name in names}
    return Calibration(
        Regression.fit(features, truth),
        _fit_words(examples, references, held_out),
        lengths,
        measured,
        checkpoint,
    )


def _usual_lengths(examples):
    """Returns the median "length" of each direction, and of all as ""."""
    groups = collections.defaultdict(list)
    for one in examples:
        for name in "", one.direction:
            groups[name].append(one.features[LENGTH])
    return {name: float(np.median(own)) for name, own in groups.items()}


def _features(examples, lengths):
    """Makes the features `[N, F]`; "length" is the distance from the usual."""
    features = np.array([one.features for one in examples])
    usual = [lengths.get(one.direction, lengths[""]) for one in examples]
    features[:, LENGTH] = abs(features[:, LENGTH] - usual)
    return features


def _held_out(features, truth):
    """Computes each probability by a regression fitted to other examples."""
    chances = np.zeros(len(truth))
    for part in range(FOLDS):
        own = np.arange(len(truth)) % FOLDS == part
        chances[own] = Regression.fit(features[~own], truth[~own])(
            features[own]
        )
    return chances


def _fit_words(examples, references, chances):
    """Fits the regression of words; None if there are too few.

    A word is acceptable if the reference has it, too.
    """
    features, truth = [], []
    for one, reference, chance in zip(
        examples, references, chances, strict=True
    ):
        features.append(_word_features(one.word_log_probs, chance))
        left = collections.Counter(reference.split())
        words = one.translation.split()[: len(one.word_log_probs)]
        for word in words:
            truth.append(float(left[word] > 0))
            left[word] -= 1
    if len(truth) < FEWEST_WORDS or min(truth) == max(truth):
        return None
    return Regression.fit(np.concatenate(features), np.array(truth))


def _word_features(log_probs, probability):
    log_probs = np.array(log_probs, float).reshape(-1)
    columns = log_probs, np.exp(log_probs), np.full(len(log_probs), probability)
    return np.stack(columns, axis=1)
