"""Documents: their sentences are translated, everything else stays.

    document = documents.parse(text, "html", "en", translator.fits)
    documents.translate(document, translator.translate, translator.align_spans)

Text between sentences never changes, and a sentence whose translation equals it
stays as it is written.
"""

import functools
import importlib.util
import itertools
import typing
from collections.abc import Callable, Generator, Sequence

from keras_transformer.commands.flags import how_to_install
from keras_transformer.documents.document import Document
from keras_transformer.documents.html import read as read_html
from keras_transformer.documents.markdown import (
    read as read_markdown,
)
from keras_transformer.documents.po import read as read_po
from keras_transformer.documents.sentences import split
from keras_transformer.documents.srt import read as read_srt
from keras_transformer.documents.text import read as read_text
from keras_transformer.documents.xliff import read as read_xliff
from keras_transformer.translation.alignment import SpanLink

# A reader has a text of its format and `sentences.split` for its language. It
# yields the text in order: `Sentence`s, `Block`s, and what stays as `str`.
READERS: dict[str, Callable] = {
    "text": read_text,
    "html": read_html,
    "xliff": read_xliff,
    "srt": read_srt,
    "po": read_po,
    "markdown": read_markdown,
}
WITH_TRANSLATIONS = ("po", "xliff")  # formats that have source and translation
FORMATS = tuple(READERS)
BYTE_ORDER_MARK = "\ufeff"


def parse(
    text: str,
    format: str = "text",
    language: str = "en",
    fits: Callable[[str], bool] = lambda sentence: True,
    replace: bool = False,
) -> Document:
    """The document that a text is.

    Args:
        text: The text.
        format: One of `FORMATS`.
        language: Code of its language, which decides where sentences end.
        fits: Whether the model can read a sentence. A longer one is divided at
            a clause mark, else at white space; the parts are sentences.
        replace: Whether to translate again what has a translation; only for
            `WITH_TRANSLATIONS`.

    Raises:
        ValueError: There is no such format, or the text is not of this format;
            the message has the line. Or the extra `documents` is not installed.

    >>> parse("One.  Two.\\n\\n  Three.").sentences
    ['One.', 'Two.', 'Three.']
    """
    if format not in READERS:
        raise ValueError(
            f"format must be one of {', '.join(FORMATS)}."
            f" Received: format={format!r}"
        )
    check_installed()
    mark = BYTE_ORDER_MARK * text.startswith(BYTE_ORDER_MARK)
    options = {"replace": replace} if format in WITH_TRANSLATIONS else {}
    pieces = READERS[format](
        text.removeprefix(mark),
        functools.partial(split, language=language, fits=fits),
        **options,
    )
    return Document([mark, *pieces])


class Translated(typing.NamedTuple):
    """The translation of a document.

    Attributes:
        text: The document.
        pairs: Each sentence and its translation, in order, as the model read
            and wrote them.
        repeated: How many sentences were translated twice, the second time
            without placeholders.
    """

    text: str
    pairs: list[tuple[str, str]]
    repeated: int


class Stage(typing.NamedTuple):
    """Work of the model on a document.

    Attributes:
        kind: "translate" or "align".
        items: Sentences to translate; or pairs of a sentence and its
            translation to align.
    """

    kind: str
    items: list


def stages(
    document: Document,
) -> Generator[Stage | Translated, list, None]:
    """The stages of translating a document, with its markup and placeholders.

    A sentence whose translation lacks a placeholder is translated again without
    its placeholders, which then follow the alignment, as markup does.

    Args:
        document: From `parse`.

    Yields:
        Each `Stage`, for which the results of all items must be sent, those of
        `Translator.translate` or `Translator.align_spans`; at the end the
        `Translated`.
    """
    translations = yield Stage("translate", document.sentences)
    hidden = document.hide_placeholders(translations)
    sentences = document.sentences
    if hidden:
        again = yield Stage("translate", [sentences[i] for i in hidden])
        for i, translation in zip(hidden, again, strict=True):
            translations[i] = translation
    pairs = list(zip(sentences, translations, strict=True))
    marked = list(itertools.compress(pairs, document.needs_alignment))
    alignments = (yield Stage("align", marked)) if marked else []
    text = document.write(translations, alignments)
    yield Translated(text, pairs, len(hidden))


def translate(
    document: Document,
    translate: Callable[[list[str]], list[str]],
    align: Callable[[list[tuple[str, str]]], Sequence[Sequence[SpanLink]]],
) -> Translated:
    """The translation of a document, by its `stages`.

    Args:
        document: From `parse`.
        translate: `Translator.translate`.
        align: `Translator.align_spans`.
    """
    run: dict[str, Callable] = {"translate": translate, "align": align}
    work = stages(document)
    stage = next(work)
    while isinstance(stage, Stage):
        stage = work.send(run[stage.kind](stage.items))
    return stage


def check_installed() -> None:
    """Raises ValueError if a library of the extra `documents` is missing."""
    for name in ("sentencex", "polib", "markdown_it"):
        if importlib.util.find_spec(name) is None:
            raise ValueError(
                "documents need the extra 'documents':"
                f" {how_to_install('documents')}. Received: no module {name!r}"
            )
