"""Translates standard input to standard output, line by line.

    kt-translate --workdir=DIR < source.txt > translation.txt
    echo "Hello world." | kt-translate --workdir=DIR --n_best=4
    kt-translate --workdir=DIR --glossary=terms.tsv < source.txt

It writes one line for each input line, in order. Blank lines stay blank. On a
terminal, each line is translated immediately. With --alignments, ' ||| ' and
the links of words follow each translation: 1-0 means that the first target word
translates the second source word. With the extra serve, a warning tells if the
text is in another language than the model's.

kt-translate-document translates documents. kt-translate-corpus translates large
files in shards.
"""

from collections.abc import Sequence

from keras_transformer.base.fields import GIVEN, hp, names_of
from keras_transformer.base.refusals import expect
from keras_transformer.commands import flags
from keras_transformer.commands.startup import end_on_interrupt
from keras_transformer.config import DecodingConfig
from keras_transformer.storage import box
from keras_transformer.storage.card import describe
from keras_transformer.storage.workdir import WorkDirectory
from trainers.translating import lines
from trainers.translating.options import (
    TRANSLATOR,
    EnsembleOptions,
    LanguageOptions,
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
    confidence: bool = hp(
        False,
        "After each translation write ' ||| ' and the probability, from 0 to 1,"
        " that a reader would accept it as it is; and if it is below 0.5 or a"
        " check fails, ' ||| ' and the reason. kt-evaluate --calibrate prepares"
        " a model for it.",
        excludes={"n_best": GIVEN},
        common=True,
    )
    about: bool = hp(
        False, "Show the card of the model, and translate nothing.", common=True
    )


ABOUT = {"about", "workdir", *names_of(LanguageOptions)}


def show_cards(arguments: flags.Arguments) -> None:
    """Shows the cards of the work directories, or of the package's models."""
    others = sorted(arguments.given.keys() - ABOUT)
    expect(
        not others,
        "about without other flags",
        *others,
        error=flags.CommandError,
    )
    options = arguments.build(EnsembleOptions)
    with flags.user_errors():
        paths: Sequence[str] = options.workdirs
        if not options.workdir:
            paths = box.find(**arguments.given_of(LanguageOptions))
        flags.show(*(describe(WorkDirectory(path)) for path in paths))


@flags.command(
    "kt-translate", __doc__, *TRANSLATOR, TranslateOptions, DecodingConfig
)
def main(arguments: flags.Arguments) -> None:
    options = arguments.build(TranslateOptions)
    if options.about:
        show_cards(arguments)
        return
    translator = TranslatorChoice.of(arguments, EnsembleOptions)
    flags.check_streams("stdin", "stdout")
    translator.options.prepare_process()
    lines.run(translator, options, options.prefix_file, options.confidence)


def script() -> None:
    """Runs the command in a process of its own: `kt-translate`."""
    end_on_interrupt()
    main()


if __name__ == "__main__":
    script()
