"""Measures a translator on sentence pairs: BLEU, chrF and TER by sacreBLEU.

    kt-evaluate --workdir=DIR --test_files=PREFIX[,PREFIX...]
    kt-evaluate --workdir=DIR --test_set=wmt14/full
    kt-evaluate --workdir=DIR --test_files=PREFIX --compare=DIR2
    kt-evaluate --workdir=DIR --test_files=PREFIX --references=FILE[,FILE...]
    kt-evaluate --workdir=DIR --calibrate

By default, it uses the test pairs of the data set that the model was trained
on, if there are any. The last line is a JSON object. With --compare, the table
above it shows the differences between systems and their significance.
--score_command='comet-score -s {source} -t {output} -r {reference}' runs COMET.
"""

from keras_transformer.base.fields import GIVEN, Fields, hp
from keras_transformer.commands import flags
from keras_transformer.config import DecodingConfig
from trainers.scoring import evaluation
from trainers.scoring.options import MetricOptions, TestOptions
from trainers.translating.options import (
    TRANSLATOR,
    EnsembleOptions,
    TranslatorChoice,
)


class EvaluateOptions(Fields):
    """The measurement."""

    references: tuple[str, ...] = hp(
        (),
        "Files of more references, separated by commas, with a line for each"
        " test pair.",
        common=True,
    )

    output: str | None = hp(
        None, "File to write the translations to.", common=True
    )
    compare: tuple[str, ...] = hp(
        (),
        "Other systems, separated by commas: files of translations, or work"
        " directories. The first is the baseline of all differences. Work"
        " directories use the same search options. If --checkpoint is a path,"
        " they use averaged, else best, else latest.",
        common=True,
    )
    score_command: str | None = hp(
        None,
        "Program that also scores the translations, such as COMET, with"
        " arguments: {output}, {source} and {reference} are files with a"
        " sentence in each line. Its score is in the last line of its output.",
    )

    calibrate: bool = hp(
        False,
        "Instead of a measurement: fit the confidence of the model to its"
        " validation pairs, or to those of --test_files, and write"
        " DIR/confidence.json.",
        excludes={
            "confidence": True,
            "compare": GIVEN,
            "output": GIVEN,
            "references": GIVEN,
            "score_command": GIVEN,
        },
        common=True,
    )
    confidence: bool = hp(
        False,
        "Also show how well the calibrated confidence fits the translations.",
    )
    confidence_plot: str | None = hp(
        None,
        "File for a figure of it: .svg, .pdf or .png.",
        needs={"confidence": True},
    )


@flags.command(
    "kt-evaluate",
    __doc__,
    *TRANSLATOR,
    TestOptions,
    EvaluateOptions,
    MetricOptions,
    DecodingConfig,
)
def main(arguments: flags.Arguments) -> None:
    """Runs the command."""
    translator = TranslatorChoice.of(arguments, EnsembleOptions)
    options = arguments.build(EvaluateOptions)
    test = arguments.build(TestOptions)
    metric = arguments.build(MetricOptions)
    flags.check_streams("stdout")
    translator.options.prepare_process()
    others = dict(vars(options))
    if others.pop("calibrate"):
        evaluation.calibrate(translator, test)
        return
    evaluation.run(translator, test, metric, **others)


if __name__ == "__main__":
    main()
