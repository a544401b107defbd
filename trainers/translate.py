"""Translates standard input to standard output, line by line.

    kt-translate --workdir=DIR < source.txt > translation.txt
    echo "Hello world." | kt-translate --workdir=DIR --n_best=4
    kt-translate --workdir=DIR --glossary=terms.tsv < source.txt

It writes one line for each input line, in order. Blank lines stay blank. On a
terminal, each line is translated immediately. With --alignments, ' ||| ' and
the links of words follow each translation: 1-0 means that the first target word
translates the second source word.

kt-translate-document translates documents. kt-translate-corpus translates large
files in shards.
"""

from keras_transformer.base.fields import hp
from keras_transformer.commands import flags
from keras_transformer.commands.startup import end_on_interrupt
from keras_transformer.config import DecodingConfig
from trainers.translating import lines
from trainers.translating.options import (
    TRANSLATOR,
    EnsembleOptions,
    OutputOptions,
    TranslatorChoice,
)


class TranslateOptions(OutputOptions):
    """The output."""

    prefix_file: str | None = hp(
        None,
        "File with one line per input line: the required beginning of its"
        " translation, or a blank line.",
    )


@flags.command(
    "kt-translate", __doc__, *TRANSLATOR, TranslateOptions, DecodingConfig
)
def main(arguments: flags.Arguments) -> None:
    translator = TranslatorChoice.of(arguments, EnsembleOptions)
    options = arguments.build(TranslateOptions)
    flags.check_streams("stdin", "stdout")
    translator.options.prepare_process()
    lines.run(translator, options, options.prefix_file)


def script() -> None:
    """Runs the command in a process of its own: `kt-translate`."""
    end_on_interrupt()
    main()


if __name__ == "__main__":
    script()
