"""Translates a document from standard input to standard output.

    kt-translate-document --workdir=DIR --format=html \
        < page.html > translated.html
    kt-translate-document --workdir=DIR --columns=English --into=German \\
        < table.xlsx > translated.xlsx

It writes the same document with its sentences translated. White space, line
ends, markup, placeholders such as %s or {name}, and addresses do not change. It
needs the extra `documents`.
"""

from keras_transformer.base.fields import GIVEN, Fields, hp
from keras_transformer.base.refusals import expect
from keras_transformer.commands import flags
from keras_transformer.commands.startup import end_on_interrupt
from keras_transformer.config import DecodingConfig
from keras_transformer.documents import (
    AUTO,
    FORMATS,
    WITH_COLUMNS,
    WITH_TRANSLATIONS,
)
from trainers.translating import documents
from trainers.translating.options import (
    TRANSLATOR,
    EnsembleOptions,
    TranslatorChoice,
)


class TranslateDocumentOptions(Fields):
    """The document."""

    format: str = hp(
        AUTO,
        "Format of the document. auto: detected from its content.",
        choices=FORMATS,
        common=True,
    )
    document_map: str = hp(
        "",
        "File to write: a JSON object for each sentence of the document, with"
        " its line, its source and its translation, and for each text that is"
        " left, with the reason.",
    )
    at_least: float | None = hp(
        None,
        "A sentence stays in the source language if a check fails, or if the"
        " probability that a reader would accept its translation is lower."
        " kt-evaluate --calibrate prepares a model for it.",
        low=0.0,
        high=1.0,
        common=True,
    )
    review: str = hp(
        "",
        "File to write: an HTML page of the sentences and their translations,"
        " the doubtful ones first, with the reasons. It needs a calibrated"
        " model, too.",
        common=True,
    )
    columns: tuple[str, ...] = hp(
        (),
        "Names of the columns of a table that are translated, in the first"
        " row.",
        needs={"into": GIVEN, "format": WITH_COLUMNS},
        common=True,
    )
    into: tuple[str, ...] = hp(
        (),
        "Columns for the translations, new or existing; cells with text are"
        " kept.",
        needs={"columns": GIVEN},
        common=True,
    )
    retranslate: bool = hp(
        False,
        "Also replace existing translations.",
        needs={"format": WITH_TRANSLATIONS},
    )
    charset: str = hp(
        "",
        "Charset of the document, if it has no byte order mark. Default: the"
        " declared one, else UTF-8.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        expect(
            len(self.columns) == len({*self.into}) == len(self.into)
            and {*self.columns}.isdisjoint(self.into),
            "another column in into for each of columns",
            f"{self.columns=}, {self.into=}",
        )


@flags.command(
    "kt-translate-document",
    __doc__,
    *TRANSLATOR,
    TranslateDocumentOptions,
    DecodingConfig,
)
def main(arguments: flags.Arguments) -> None:
    translator = TranslatorChoice.of(arguments, EnsembleOptions)
    options = arguments.build(TranslateDocumentOptions)
    flags.check_streams("stdin", "stdout")
    translator.options.prepare_process()
    documents.run(translator, **vars(options))


def script() -> None:
    """Runs the command in a process of its own: `kt-translate-document`."""
    end_on_interrupt()
    main()


if __name__ == "__main__":
    script()
