"""The work of `kt-evaluate --calibrate` and `--confidence`."""

import json
import typing
from collections.abc import Sequence

import numpy as np
from absl import logging

from keras_transformer.base.refusals import expect
from keras_transformer.commands import flags
from keras_transformer.commands.startup import load
from keras_transformer.storage.workdir import WorkDirectory
from keras_transformer.translation.metrics import make_metric
from trainers.datasets.dataset import to_translate
from trainers.scoring.options import TestOptions
from trainers.scoring.test_sets import read_data, read_pairs
from trainers.translating.lines import (
    ASSESSMENT,
    open_assessor,
    open_translator,
)
from trainers.translating.options import TranslatorChoice

if typing.TYPE_CHECKING:
    from keras_transformer.confidence.assessment import Assessment
    from keras_transformer.confidence.regression import Bin
    from keras_transformer.translator import Translator

HIGH = 0.9  # the table counts sentences with at least this probability


def calibrate(choice: TranslatorChoice, test: TestOptions) -> None:
    """Fits the confidence of a model, and writes it to its work directory.

    The pairs are the test files, by default the validation pairs of the data.
    """
    path = choice.options.workdir
    with flags.user_errors():
        workdir = WorkDirectory(path)
        expect(
            not workdir.read_package(),
            "a work directory that may be written with calibrate",
            "a packed model",
            where=path,
        )
        data = read_data(path, choice.languages)
        expect(not test.test_set, "calibrate with files", test.test_set)
        files = test.test_files or data.valid_files
        metric = make_metric(data.directions_in(*files), "auto")
        found = read_pairs(data, "valid", test.test_files)
        groups = to_translate(data, metric.by_direction, found)
    pairs = [pair for group in groups.values() for pair in group]
    translator = open_translator(choice)
    assessment = load(ASSESSMENT)
    with flags.user_errors():
        calibration = assessment.calibrate(translator, pairs)
        file = assessment.path_of(translator)
        calibration.write(file)
    flags.show(json.dumps({"output": str(file), **calibration.measured}))


def translate_and_assess(
    translator: "Translator", sources: Sequence[str]
) -> tuple[list[str], list["Assessment"]]:
    """Translates sentences, and assesses the translations.

    Logs the notes on sentences. Raises CommandError without a calibration.
    """
    found, assessed = open_assessor(translator).search(sources)
    for number, translation in enumerate(found, 1):
        for note in translation.notes:
            logging.warning("sentence %d %s", number, note)
    return [translation.texts[0] for translation in found], assessed


def report(
    assessed: Sequence["Assessment"], chrf: Sequence[float], plot: str | None
) -> dict[str, typing.Any]:
    """Shows how well probabilities fit, as a table, and draws them in a file.

    `chrf` are those of the sentences. Returns the `confidence` part of the JSON
    object.
    """
    calibration = load("keras_transformer.confidence.calibration")
    regression = load("keras_transformer.confidence.regression")
    chances = np.array([one.probability for one in assessed])
    truth = np.array(chrf) >= calibration.ACCEPTABLE
    bins = regression.bins_of(chances, truth.astype(float))
    flags.show(*table(bins))
    high = chances >= HIGH
    if plot:
        save = load("trainers.figures.confidence").save
        save(bins, plot)
    return {
        **calibration.measure(chances, np.array(chrf)),
        "acceptable": truth.mean(),
        "share_of_90": high.mean(),
        "acceptable_of_90": truth[high].mean() if high.any() else None,
        "findings": sum(bool(one.findings) for one in assessed),
    }


def table(bins: Sequence["Bin"]) -> list[str]:
    """Formats bins, least probable first.

    >>> from keras_transformer.confidence.regression import Bin
    >>> print("\\n".join(table([Bin(0.1, 0.25, 0.5, 8)])))
      sentences  from %  probability %  acceptable %
              8      10           25.0          50.0
    """
    rows = ["  sentences  from %  probability %  acceptable %"]
    for low, probability, share, number in bins:
        rows.append(
            f"{number:>11}{100 * low:>8.0f}{100 * probability:>15.1f}"
            f"{100 * share:>14.1f}"
        )
    return rows
