"""The work of `kt-translate-document`: translating one document."""

import json
import sys
import typing
from collections.abc import Callable, Iterable, Sequence

from absl import logging

from keras_transformer import documents
from keras_transformer.base.files import write_atomically
from keras_transformer.commands import flags
from keras_transformer.documents.document import Document
from keras_transformer.translation.requests import shown
from trainers.translating.lines import CHUNK, open_translator
from trainers.translating.options import TranslatorChoice

if typing.TYPE_CHECKING:
    from keras_transformer.translator import Translator


def run(
    choice: TranslatorChoice,
    format: str,
    document_map: str,
    columns: Sequence[str],
    into: Sequence[str],
    retranslate: bool,
    charset: str,
) -> None:
    """Translates standard input as one document. Arguments are as the flags."""
    with flags.user_errors():
        documents.check_installed()
        if document_map:
            flags.check_output(document_map)
        choice.read_search().check_one_output()
        choice.check()
        language, target = choice.read_direction()
    try:
        data = sys.stdin.buffer.read()
    except OSError as error:
        raise flags.RunError(f"standard input: {error.strerror}") from error

    def parse(fits: Callable[[str], bool]) -> Document:
        try:
            return documents.parse(
                *(data, format, language or "en", fits, retranslate, charset),
                target=target,
                columns=list(zip(columns, into, strict=True)),
            )
        except ValueError as error:
            raise flags.CommandError(f"standard input: {error}") from error

    document = parse(lambda sentence: True)  # before a framework is imported
    translator = open_translator(choice)
    if translator.direction is None:
        raise flags.CommandError(
            "a document needs --target_language: the model has the languages"
            f" {', '.join(translator.languages.targets)}. Received: no"
            " target_language"
        )
    if not all(map(translator.fits, document.sentences)):
        document = parse(translator.fits)
    lines = dict(zip(document.sentences, document.lines, strict=True))
    found = documents.translate(
        document,
        lambda sentences: _translate(translator, sentences, lines),
        translator.align_spans,
    )
    if document_map:
        with flags.user_errors():
            write_atomically(document_map, _map_lines(document, found.pairs))
    with flags.output_errors(sys.stdout.buffer):
        sys.stdout.buffer.write(found.data)
        sys.stdout.buffer.flush()
    number, left = len(found.pairs), document.summary()
    _report(
        f"{number:,} sentence{'s' * (number != 1)},"
        f" {sum(document.needs_alignment)} with markup or placeholders placed"
        f" by alignment ({found.repeated} translated again without their"
        f" placeholders){left and f'; {left}'}"
    )


def _translate(
    translator: "Translator", sentences: Sequence[str], lines: dict[str, int]
) -> list[str]:
    """Translates sentences in chunks, and reports how many are done.

    `lines` maps sentences to their lines in the document. A note on a sentence
    names its line; a sentence that is translated again without its placeholders
    has none, and is shown instead.
    """
    translations: list[str] = []
    for begin in range(0, len(sentences), CHUNK):
        chunk = sentences[begin : begin + CHUNK]
        for sentence, found in zip(
            chunk, translator.search(chunk, num_best=1), strict=True
        ):
            translations.append(found.texts[0])
            line = lines.get(sentence)
            place = f"line {line}" if line else shown(sentence)
            for note in found.notes:
                logging.warning("%s: the sentence %s", place, note)
        if len(sentences) > CHUNK:
            _report(f"{len(translations)} of {len(sentences)} sentences")
    return translations


def _report(line: str) -> None:
    print(f"kt-translate-document: {line}", file=sys.stderr, flush=True)


def _map_lines(document: Document, pairs: Iterable[tuple[str, str]]) -> str:
    """Returns lines of JSON: one per sentence or text left untranslated."""
    rows: list[dict[str, typing.Any]] = [
        {"line": line, "source": source, "translation": translation}
        for line, (source, translation) in zip(
            document.lines, pairs, strict=True
        )
    ]
    rows += [
        {"line": line, "source": text, "left": reason}
        for line, reason, text in document.left
    ]
    rows.sort(key=lambda row: row["line"])
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
