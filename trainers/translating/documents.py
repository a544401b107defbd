"""The work of `kt-translate-document`: translating one document."""

import json
import sys
import typing
from collections.abc import Callable, Iterable, Sequence

from absl import logging

from keras_transformer import documents
from keras_transformer.base.files import write_atomically
from keras_transformer.commands import flags
from keras_transformer.confidence.review import Row, render
from keras_transformer.documents.document import Document, Unread
from keras_transformer.translation.requests import shown
from trainers.translating.lines import CHUNK, open_translator, search
from trainers.translating.options import TranslatorChoice

if typing.TYPE_CHECKING:
    from keras_transformer.confidence.assessment import Assessment, Assessor
    from keras_transformer.translator import Translator

UNSURE = "unsure"  # the reason why a sentence is left
Pair = tuple[str, str]  # a sentence and its translation


def run(
    choice: TranslatorChoice,
    format: str,
    document_map: str,
    at_least: float | None,
    review: str,
    columns: Sequence[str],
    into: Sequence[str],
    retranslate: bool,
    charset: str,
) -> None:
    """Translates standard input as one document. Arguments are as the flags."""
    with flags.user_errors():
        documents.check_installed()
        for file in filter(None, (document_map, review)):
            flags.check_output(file)
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
    is_assessed = bool(review) or at_least is not None
    with flags.user_errors():
        assessor = translator.assessor() if is_assessed else None
    if not all(map(translator.fits, document.sentences)):
        document = parse(translator.fits)
    lines = dict(zip(document.sentences, document.lines, strict=True))
    assessed: dict[Pair, Assessment] = {}

    def choose(pairs: Sequence[Pair]) -> list[bool]:
        """Tells which translations are sure enough."""
        return [
            at_least is None or assessed[pair].is_at_least(at_least)
            for pair in pairs
        ]

    found = documents.translate(
        document,
        lambda sentences: _translate(
            translator, sentences, lines, assessor, assessed
        ),
        translator.align_spans,
        choose,
    )
    rows = [
        Row(line, *pair, assessed.get(pair), is_used)
        for line, pair, is_used in zip(
            document.lines, found.pairs, choose(found.pairs), strict=True
        )
    ]
    with flags.user_errors():
        if document_map:
            write_atomically(document_map, _map_lines(rows, document.left))
        if review:
            page = render(rows, document.left, (language, target))
            write_atomically(review, page)
    with flags.output_errors(sys.stdout.buffer):
        sys.stdout.buffer.write(found.data)
        sys.stdout.buffer.flush()
    document.left += [
        Unread(row.line, UNSURE, row.source) for row in rows if not row.is_used
    ]
    number, left = len(found.pairs), document.summary()
    _report(
        f"{number:,} sentence{'s' * (number != 1)},"
        f" {sum(document.needs_alignment)} with markup or placeholders placed"
        f" by alignment ({found.repeated} translated again without their"
        f" placeholders){left and f'; {left}'}"
    )


def _translate(
    translator: "Translator",
    sentences: Sequence[str],
    lines: dict[str, int],
    assessor: "Assessor | None",
    assessed: dict[Pair, "Assessment"],
) -> list[str]:
    """Translates sentences in chunks, and reports how many are done.

    `lines` maps sentences to their lines in the document. A note on a sentence
    names its line; a sentence that is translated again without its placeholders
    has none, and is shown instead. An `assessor` adds to `assessed`.
    """
    translations: list[str] = []
    for begin in range(0, len(sentences), CHUNK):
        chunk = sentences[begin : begin + CHUNK]
        results, assessments = search(translator, chunk, assessor)
        for sentence, found, one in zip(
            chunk, results, assessments, strict=True
        ):
            translations.append(found.texts[0])
            if one:
                assessed[sentence, found.texts[0]] = one
            line = lines.get(sentence)
            place = f"line {line}" if line else shown(sentence)
            for note in found.notes:
                logging.warning("%s: the sentence %s", place, note)
        if len(sentences) > CHUNK:
            _report(f"{len(translations)} of {len(sentences)} sentences")
    return translations


def _report(line: str) -> None:
    print(f"kt-translate-document: {line}", file=sys.stderr, flush=True)


def _map_lines(rows: Iterable[Row], left: Iterable[Unread]) -> str:
    """Returns lines of JSON: one per sentence or text left untranslated."""
    objects: list[dict[str, typing.Any]] = []
    for row in rows:
        one = {"line": row.line, "source": row.source}
        one |= (
            {"translation": row.translation}
            if row.is_used
            else {"left": UNSURE}
        )
        if row.assessment:
            one["probability"] = round(row.assessment.probability, 4)
            one["reasons"] = row.reasons
        objects.append(one)
    objects += [
        {"line": line, "source": text, "left": reason}
        for line, reason, text in left
    ]
    objects.sort(key=lambda one: one["line"])
    return "".join(
        json.dumps(one, ensure_ascii=False) + "\n" for one in objects
    )
