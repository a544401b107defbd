"""Measures a parser on trees: labeled bracketing F1, counted as EVALB does.

    kt-parse-evaluate --workdir=DIR --trees=FILE[,FILE...]

By default, it uses the test trees of the data that the parser was trained on,
if there are any. The last line is a JSON object.
"""

from keras_transformer.base.fields import Fields, hp
from keras_transformer.commands import flags
from trainers.parse_text import ParserOptions
from trainers.parsing import evaluation
from trainers.parsing.parser_config import ParserDecoding


class ParseEvaluateOptions(Fields):
    """The trees."""

    trees: tuple[str, ...] = hp(
        (),
        "Files of trees in the format of the Penn Treebank, or their .gz,"
        " separated by commas.",
        common=True,
    )
    output: str | None = hp(
        None,
        "File to write the parser's trees to, for EVALB: words have the tags of"
        " the reference.",
        common=True,
    )


@flags.command(
    "kt-parse-evaluate",
    __doc__,
    ParserOptions,
    ParseEvaluateOptions,
    ParserDecoding,
)
def main(arguments: flags.Arguments) -> None:
    """Runs the command."""
    parser = arguments.build(ParserOptions)
    options = arguments.build(ParseEvaluateOptions)
    flags.check_streams("stdout")
    parser.prepare_process()
    search = arguments.given_of(ParserDecoding)
    evaluation.run(parser, search, **vars(options))


if __name__ == "__main__":
    main()
