"""Parses standard input to standard output, one sentence a line.

    kt-parse-text --workdir=DIR < sentences.txt > trees.txt

It writes one tree for each input line, in order, in the format of the Penn
Treebank. Blank lines stay blank. Words are tagged XX, except punctuation. On a
terminal, each line is parsed immediately.
"""

from keras_transformer.base.fields import Fields, hp, required
from keras_transformer.commands import flags
from keras_transformer.commands.startup import end_on_interrupt
from trainers.parsing import text
from trainers.parsing.parser_config import ParserDecoding
from trainers.translating.options import TranslatorOptions


class ParserOptions(TranslatorOptions):
    """The parser."""

    workdir: str = required("DIR", "Directory that kt-parse made.")


class ParseTextOptions(Fields):
    """The input."""

    tokenized: bool = hp(
        False,
        "Lines are words separated by spaces, as in the Penn Treebank, not"
        " text.",
    )


@flags.command(
    "kt-parse-text", __doc__, ParserOptions, ParseTextOptions, ParserDecoding
)
def main(arguments: flags.Arguments) -> None:
    """Runs the command."""
    options = arguments.build(ParserOptions)
    tokenized = arguments.build(ParseTextOptions).tokenized
    flags.check_streams("stdin", "stdout")
    options.prepare_process()
    text.run(options, arguments.given_of(ParserDecoding), tokenized)


def script() -> None:
    """Runs the command in a process of its own: `kt-parse-text`."""
    end_on_interrupt()
    main()


if __name__ == "__main__":
    script()
