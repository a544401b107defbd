"""Translates a file in shards, and joins them.

    kt-translate-corpus --workdir=DIR --input=mono.de.gz \
        --output=DIR
    kt-translate-corpus --output=DIR --collect=mono.en.gz

If the first command is stopped or killed, rerun it to resume. To go faster,
start it several times, on one machine or on several that share --output.
--collect checks the shards and joins them.
"""

import importlib.util
import typing
from collections.abc import Mapping

from keras_transformer.base.fields import GIVEN, Fields, hp, names_of, required
from keras_transformer.base.refusals import expect
from keras_transformer.commands import flags
from keras_transformer.commands.startup import end_on_interrupt
from keras_transformer.config import DecodingConfig
from trainers.translating import collection, shards
from trainers.translating.options import (
    TRANSLATOR,
    EnsembleOptions,
    OutputOptions,
    TranslatorChoice,
)


class TranslateCorpusOptions(Fields):
    """The file and its shards."""

    input: str = hp("", "File to translate: text or .gz.", common=True)
    output: str = required(
        "DIR", "Directory of the shards: new, or to continue or collect."
    )
    shard_lines: int = hp(
        100_000,
        "Lines of a shard. A killed command loses the lines of one shard; the"
        " text of a shard is in memory.",
        low=1,
        high=10**9,
        needs={"input": GIVEN},
    )
    runner: str = hp(
        "",
        "Translate the shards as a pipeline of Apache Beam (extra beam) on this"
        " runner, options included: 'FlinkRunner --flink_master=HOST:8081'.",
        needs={"input": GIVEN},
    )
    collect: str = hp(
        "",
        "File to write instead, text or .gz: the translations of all shards, in"
        " the order of the input. Excludes the options of the translator.",
        excludes={"input": GIVEN},
        common=True,
    )

    def __post_init__(self):
        super().__post_init__()
        given = self.input or self.collect
        expect(given, "--input=FILE or --collect=FILE", "neither")


def collect(
    options: TranslateCorpusOptions, given: Mapping[str, typing.Any]
) -> None:
    """Joins the shards. Raises CommandError if translator options are given."""
    others = sorted(given.keys() - names_of(TranslateCorpusOptions))
    expect(
        not others,
        "collect without options of the translator",
        *(f"{name}={given[name]!r}" for name in others),
        error=flags.CommandError,
    )
    collection.run(options.output, options.collect)


def check_beam() -> None:
    """Raises CommandError if the extra `beam` is not installed."""
    expect(
        importlib.util.find_spec("apache_beam"),
        f"the extra 'beam' for runner: {flags.how_to_install('beam')}",
        error=flags.CommandError,
    )


@flags.command(
    "kt-translate-corpus",
    __doc__,
    TranslateCorpusOptions,
    OutputOptions,
    *TRANSLATOR,
    DecodingConfig,
)
def main(arguments: flags.Arguments) -> None:
    options = arguments.build(TranslateCorpusOptions)
    if options.collect:
        collect(options, arguments.given)
        return
    translator = TranslatorChoice.of(arguments, EnsembleOptions)
    lines = arguments.build(OutputOptions)
    translator.options.prepare_process()
    settings = {"shard_lines": options.shard_lines, **vars(lines)}
    job = translator, options.input, options.output
    if options.runner:
        check_beam()
        from trainers.translating import pipeline  # needs apache_beam

        pipeline.run(*job, options.runner, **settings)
    else:
        shards.run(*job, **settings)


def script() -> None:
    """Runs the command in a process of its own: `kt-translate-corpus`."""
    end_on_interrupt()
    main()


if __name__ == "__main__":
    script()
