"""Assesses translations: probability, doubtful words, failed checks."""

import dataclasses
import functools
import pathlib
import typing
from collections.abc import Sequence

from absl import logging

from keras_transformer.base.refusals import expect
from keras_transformer.confidence.calibration import Calibration, fit
from keras_transformer.confidence.checks import Finding, check
from keras_transformer.confidence.features import (
    FEATURES,
    Evidence,
    features_of,
)
from keras_transformer.confidence.report import Report
from keras_transformer.data.languages import Direction
from keras_transformer.figures.saving import SUFFIXES, suffix_of
from keras_transformer.translation.requests import Request, make_requests
from keras_transformer.translation.results import PairReading, Translation

if typing.TYPE_CHECKING:
    from keras_transformer.translator import Translator

FILE = "confidence.json"
NUM_BEST = 2  # hypotheses that the margin needs
UNSURE = 0.5  # a lower probability is pointed out
DOUBTFUL = 0.3  # likewise of a word


@dataclasses.dataclass(frozen=True)
class Assessment:
    """How sure a translation is.

    Attributes:
        probability: The probability, in [0, 1], that a reader would accept the
            translation as it is. 1 for a blank sentence.
        words: The probability of each word of the translation, as `str.split`
            finds them; empty if the calibration had too few words.
        findings: What the checks by rule saw.
        doubt: What lowers the probability most.
    """

    probability: float
    words: list[float]
    findings: list[Finding]
    doubt: str = ""

    @property
    def reasons(self) -> list[str]:
        """The findings, or else the doubt, if the sentence is pointed out."""
        found = [finding.text for finding in self.findings]
        if not found and self.probability < UNSURE:
            found.append(self.doubt)
        return found

    def is_at_least(self, probability: float) -> bool:
        """Whether it has this probability, and no check failed."""
        failed = any(not finding.is_question for finding in self.findings)
        return self.probability >= probability and not failed


class Assessor:
    """Assesses the translations of a translator.

    Raises ValueError if the translator is an ensemble or samples.
    """

    def __init__(self, translator: "Translator", calibration: Calibration):
        check_single(translator)
        self.translator, self.calibration = translator, calibration

    @classmethod
    def of(cls, translator: "Translator") -> typing.Self:
        """Makes the assessor of a calibrated model.

        Raises ValueError if the work directory has no calibration, or one of
        another checkpoint.
        """
        check_single(translator)
        path = path_of(translator)
        expect(
            path.exists(),
            f"{path}, which kt-evaluate --calibrate makes",
            "no such file",
        )
        calibration = Calibration.read(path)
        name = _name_of(translator)
        expect(
            calibration.checkpoint == name,
            f"a calibration of {name}, which kt-evaluate --calibrate makes",
            calibration.checkpoint,
            where=path,
        )
        return cls(translator, calibration)

    @classmethod
    def find(cls, translator: "Translator") -> typing.Self | None:
        """Works as `of`, but returns None if the model is not calibrated.

        Logs what is wrong with a calibration.
        """
        if len(translator.models) > 1 or not path_of(translator).exists():
            return None
        try:
            return cls.of(translator)
        except ValueError as error:
            logging.warning("translations have no confidence: %s", error)
            return None

    def search(
        self, sentences: Sequence[str | Request]
    ) -> tuple[list[Translation], list[Assessment]]:
        """Translates sentences, and assesses the best hypothesis of each.

        Returns `Translation`s with one hypothesis, and their `Assessment`s.
        Arguments and errors are as in `Translator.search`.
        """
        found = _search(self.translator, sentences)
        assessed = self.assess(sentences, found)
        return [one.best for one in found], assessed

    def assess(
        self,
        sentences: Sequence[str | Request],
        found: Sequence[Translation],
        readings: Sequence[PairReading] = (),
    ) -> list[Assessment]:
        """Assesses the best hypothesis of each sentence.

        This takes one more pass over the pairs, and no search.

        Args:
            sentences: As in `Translator.search`, which found the hypotheses.
            found: Its results, with `NUM_BEST` hypotheses or more, if the beam
                has as many.
            readings: What `Translator.read` finds in the sentences and their
                best hypotheses, if it is known. Then there is no pass.

        Returns:
            An `Assessment` for each sentence, in order.
        """
        results = [Assessment(1.0, [], []) for _ in sentences]
        evidence = gather(self.translator, sentences, found, readings)
        if evidence:
            chances, parts = self.calibration.of_sentences([*evidence.values()])
        for n, (index, one) in enumerate(evidence.items()):
            chance = float(chances[n])
            words = self.calibration.of_words(one.word_log_probs, chance)
            doubt = _doubt(one, parts[n])
            results[index] = Assessment(chance, words, one.findings, doubt)
        return results

    def report(
        self, assessed: Sequence[Assessment], chrf: Sequence[float]
    ) -> Report:
        """Measures assessments with the sentences' chrF, in [0, 100]."""
        return Report.of([one.probability for one in assessed], chrf)

    @staticmethod
    def check_figure(path: str) -> None:
        """Raises ValueError if `Report.save` could not write to a path."""
        suffix_of(path, SUFFIXES)


def calibrate(
    translator: "Translator", pairs: Sequence[tuple[str | Request, str]]
) -> Calibration:
    """Fits a calibration to sentences and their references.

    Raises ValueError if there are too few, or if the translator is an ensemble.
    """
    check_single(translator)
    sentences = [source for source, _ in pairs]
    evidence = gather(translator, sentences, _search(translator, sentences))
    references = [pairs[index][1] for index in evidence]
    return fit([*evidence.values()], references, _name_of(translator))


def _search(translator, sentences):
    """Finds the hypotheses that the margin needs."""
    number = min(NUM_BEST, translator.decoding.num_hypotheses)
    return translator.search(sentences, num_best=number)


def gather(
    translator: "Translator",
    sentences: Sequence[str | Request],
    found: Sequence[Translation],
    readings: Sequence[PairReading] = (),
) -> dict[int, Evidence]:
    """Gathers the evidence on translations, by index; none on blank ones."""
    requests = {
        index: _with_direction(translator, request)
        for index, request in enumerate(make_requests(sentences))
        if found[index].ids[0]
    }
    pairs = [
        (request.as_source, found[index].texts[0])
        for index, request in requests.items()
    ]
    chosen = [readings[index] for index in requests] if readings else None
    languages_of = functools.cache(
        functools.partial(_languages_of, translator.languages)
    )
    evidence = {}
    for (index, request), reading in zip(
        requests.items(), chosen or translator.read(pairs), strict=True
    ):
        languages = languages_of(request.direction)
        source, text = request.text, found[index].texts[0]
        terms = translator.terminology.of(request).terms
        findings = check(source, text, languages, reading.spans, terms)
        evidence[index] = Evidence(
            "-".join(languages),
            text,
            features_of(source, found[index], reading, findings),
            reading.word_log_probs,
            findings,
        )
    return evidence


def path_of(translator: "Translator") -> pathlib.Path:
    """Returns the path of the calibration in a translator's work directory.

    Raises ValueError if it was not loaded from one.
    """
    expect(
        translator.checkpoint,
        "a translator of a work directory for confidence",
        "none",
    )
    return pathlib.Path(str(translator.checkpoint)).parents[1] / FILE


def check_single(translator: "Translator") -> None:
    """Raises ValueError if a translator is an ensemble or samples."""
    translator.check_use("confidence")
    number = len(translator.models)
    expect(number == 1, "one model with confidence", f"{number} models")
    expect(
        not translator.decoding.sampling,
        "confidence without sampling",
        sampling=translator.decoding.sampling,
    )


def _doubt(evidence, parts):
    """Returns what the feature says that lowers the probability most."""
    said = [*FEATURES.values()][parts.argmin()]
    words = zip(
        evidence.word_log_probs, evidence.translation.split(), strict=False
    )
    _, lowest = min(words, default=(0.0, ""))
    return said.format(word=f"“{lowest}”")


def _with_direction(translator, request):
    """Sets the direction of a request; a tag in its text is one."""
    text, direction = request.text, translator.encoding.direction_of(request)
    if direction is None:
        tag, *rest = text.split(maxsplit=1)
        text, direction = "".join(rest), Direction(tag)
    return dataclasses.replace(request, text=text, direction=direction)


def _languages_of(known, direction):
    """Returns the languages of a direction, "" if they are unknown."""
    of = (pair for pair in known.pairs if known.direction(*pair) == direction)
    return next(of, ("", ""))


def _name_of(translator):
    """Returns the name of the checkpoint."""
    return pathlib.Path(translator.checkpoint or "").name
