"""Translation of documents: sentences change, everything else stays.

    document = documents.parse(data, "html", "en", translator.fits)
    documents.translate(document, translator.translate, translator.align_spans)

Text between sentences never changes. A sentence that equals its translation
keeps its original form, too.
"""

import functools
import importlib.util
import itertools
import pathlib
import typing
from collections.abc import Callable, Generator, Iterable, Sequence

import regex

from keras_transformer.base.refusals import expect
from keras_transformer.commands.flags import how_to_install
from keras_transformer.data.languages import base_language
from keras_transformer.documents import (
    docx,
    html,
    markdown,
    odt,
    po,
    subtitles,
    text,
    xliff,
)
from keras_transformer.documents.charsets import (
    HTML_DECLARATION,
    PO_DECLARATION,
    XML_DECLARATION,
    decode,
    text_of,
)
from keras_transformer.documents.document import Document
from keras_transformer.documents.sentences import split
from keras_transformer.translation.alignment import SpanLink


class Format(typing.NamedTuple):
    """A format of documents."""

    # `read(text, split)` returns pieces; `split` is `sentences.split` for the
    # language. For a container, `read(data, split, languages)` returns pieces
    # and the `finish` of `Document`.
    read: Callable
    suffixes: tuple[str, ...]  # of file names
    sign: str = r"(?!)"  # pattern that only the start of its files matches
    # Finds the charset that a file declares.
    declaration: regex.Pattern | None = None
    # Whether its files have source and translation. `read` then has the option
    # `replace` and is told the language of the target.
    has_translations: bool = False
    is_container: bool = False  # whether its files are binary


XML_START = r"(?:<\?xml[^>]*+>\s*+|<!--(?:(?!-->).)*+-->\s*+)*+"
# The start of files without a reader: XML, RTF, other archives, PDF.
OTHERS = (
    rf"{XML_START}<(?:[!?][A-Z]|[a-z_][\w.-]*(?::[\w.-]+)?(?=[\s/>]))"
    r"|\{\\rtf|PK[\x05\x07]|\x1f\x8b|%PDF-"
)
HTML_LANGUAGE = regex.compile(
    r"(?:<html\b|\G(?!\A))[^<>]*?\s(?:xml:)?lang\s*=\s*[\"']?\K[\w-]+", regex.I
)
READERS: dict[str, Format] = {
    "text": Format(text.read, (".txt", ".text")),
    "html": Format(
        html.read,
        (".html", ".htm", ".xhtml"),
        rf"{XML_START}<(?:!DOCTYPE\s+html|(?!xliff)[a-z][a-z0-9]*(?:\s[^<]*)?>)",
        HTML_DECLARATION,
    ),
    "xliff": Format(
        xliff.read,
        (".xlf", ".xliff"),
        rf"{XML_START}<(?:\w+:)?xliff\b",
        XML_DECLARATION,
        has_translations=True,
    ),
    "srt": Format(
        subtitles.read,
        (".srt", ".vtt"),
        r"WEBVTT\b|(?:\d+\s+)?[\d:]+[\d.,]*[ \t]*-->",
    ),
    "ass": Format(subtitles.read_ass, (".ass", ".ssa"), r"\[Script Info\]"),
    "po": Format(
        po.read,
        (".po", ".pot"),
        r"(?:#[^\n]*+\s++)*+(?:domain|msgctxt|msgid)\s+\"",
        PO_DECLARATION,
        has_translations=True,
    ),
    "markdown": Format(
        markdown.read,
        (".md", ".markdown", ".mdx"),
        r"(?:---|\+\+\+)\r?\n|.*?(?m:\]\([^)\s]+\)"
        r"|^(?:#{1,6} \S|```|[-*+] \[[ xX]\] |> \[!\w+\]))",
    ),
    "odt": Format(
        odt.read,
        (".odt", ".ott"),
        r"PK\x03\x04.{,60}?mimetypeapplication/vnd\.oasis\.opendocument\.",
        is_container=True,
    ),
    # Matches any other archive, too: the reader reports what is missing.
    "docx": Format(
        docx.read,
        (".docx", ".docm", ".dotx", ".dotm"),
        r"PK\x03\x04|\xd0\xcf\x11\xe0",
        is_container=True,
    ),
}
# Modules of the extra `documents`.
LIBRARIES = ("babel", "lxml", "markdown_it", "mdit_py_plugins", "sentencex")
BYTE_ORDER_MARK = "\ufeff"
AUTO = "auto"
WITH_TRANSLATIONS = (
    *(name for name, format in READERS.items() if format.has_translations),
    AUTO,
)
FORMATS = (*READERS, AUTO)
# The formats whose documents are text.
TEXT_FORMATS = (
    *(name for name, format in READERS.items() if not format.is_container),
    AUTO,
)


def parse(
    data: bytes | str,
    format: str = "text",
    language: str = "en",
    fits: Callable[[str], bool] = lambda sentence: True,
    replace: bool = False,
    charset: str = "",
    name: str = "",
    target: str = "",
) -> Document:
    """Parses bytes or text as a document.

    Args:
        data: The document.
        format: One of `FORMATS`. "auto" detects it by name or content.
        language: Code of the source language, which decides where sentences
            end.
        fits: Returns whether the model can read a sentence. A longer sentence
            is divided at a clause mark, or else at white space.
        replace: Whether to translate text again that already has a translation.
            Only for `WITH_TRANSLATIONS`.
        charset: The charset of bytes without a byte order mark. By default the
            declared charset, or else UTF-8.
        name: The file name, by which "auto" detects the format.
        target: Code of the target language. A document that declares its
            language, or that of its translations, gets this code.

    Raises ValueError if the format or charset is unknown, if the document does
    not fit it (the message has the line), or if the extra `documents` is not
    installed.

    >>> parse("One.  Two.\\n\\n  Three.").sentences
    ['One.', 'Two.', 'Three.']
    """
    expect(format in FORMATS, f"one of {', '.join(FORMATS)}", f"{format=}")
    check_installed()
    if not regex.fullmatch(r"[a-z]{2,3}(?:[-_][A-Za-z0-9]+)*", target):
        target = ""  # not a language code
    elif base_language(target) != regex.match(r"[a-z]+", target).group():
        target = base_language(target)  # NLLB's deu_Latn
    is_text = isinstance(data, str)
    if isinstance(data, str):
        data, charset = data.encode(), "utf-8"
    if format == AUTO:
        format = detect(name, data)
    reader = READERS[format]
    expect(
        not (reader.is_container and (is_text or charset)),
        f"a file for the format {format}: bytes without a charset",
        "a text" if is_text else f"{charset=}",
    )
    expect(
        reader.has_translations or not replace,
        "a format with translations, which can be replaced",
        f"{format=}",
    )
    options = (
        {"replace": replace, "target": target}
        if reader.has_translations
        else {}
    )
    divide = functools.partial(split, language=language, fits=fits)
    if reader.is_container:
        languages = (language, target)
        return Document(*reader.read(data, divide, languages))
    content, found = decode(data, reader.declaration, charset)
    mark = BYTE_ORDER_MARK * content.startswith(BYTE_ORDER_MARK)
    pieces = [mark, *reader.read(content.removeprefix(mark), divide, **options)]

    def finish(texts: Iterable[str]) -> tuple[bytes, str]:
        texts = list(texts)
        text = "".join(texts)
        if text != content:
            parts = zip(pieces, texts, strict=True)
            text = "".join(getattr(p, "translated", t) for p, t in parts)
        if format == "html" and target and text != content:
            text = HTML_LANGUAGE.sub(target.replace("_", "-"), text)
        # Unchanged text keeps its bytes: some charsets have two codes for a
        # character.
        return (data, found.name) if text == content else found.encode(text)

    return Document(pieces, finish)


def detect(name: str, data: bytes) -> str:
    """Detects a document's format by its name's suffix, or else its content.

    The default is "text". Raises ValueError if the content begins like XML, RTF
    or another format without a reader.

    >>> detect("readme.md", b""), detect("", b"<!DOCTYPE html>")
    ('markdown', 'html')
    """
    suffix = pathlib.PurePath(name).suffix.lower()
    named = (n for n, f in READERS.items() if suffix in f.suffixes)
    # The signs are ASCII. Without NUL bytes, they also match UTF-16.
    start = data[:4096].decode("latin-1").replace("\0", "")
    start = regex.sub(r"\A(?:\xef\xbb\xbf|\xff\xfe|\xfe\xff)?\s*+", "", start)
    signed = (
        n
        for n, f in READERS.items()
        if regex.match(f.sign, start, regex.I | regex.S)
    )
    found = next(itertools.chain(named, signed), None)
    if not found and (other := regex.match(OTHERS, start, regex.I | regex.S)):
        raise ValueError(
            f"expected a document of a known format: {', '.join(READERS)}."
            f" Received: one that begins with {other.group()[-60:]!r}"
        )
    return found or "text"


class Translated(typing.NamedTuple):
    """The translation of a document."""

    data: bytes
    charset: str  # "" if the document is binary
    # Each sentence and its translation, in order, as the model read and wrote
    # them.
    pairs: list[tuple[str, str]]
    # How many sentences were translated twice, the second time without
    # placeholders.
    repeated: int

    @property
    def text(self) -> str:
        """The document as text. Raises ValueError if it is binary."""
        return text_of(self.data, self.charset)


class Stage(typing.NamedTuple):
    """One call of the model for a document."""

    kind: str  # "translate" or "align"
    # Sentences to translate, or pairs of sentence and translation to align.
    items: list


def stages(document: Document) -> Generator[Stage | Translated, list, None]:
    """Yields the stages of a document's translation, then the `Translated`.

    For each `Stage`, send the results for all its items, as
    `Translator.translate` or `Translator.align_spans` returns them. A sentence
    whose translation lacks a placeholder is translated again without its
    placeholders, which the alignment then places as it places markup. Start new
    stages for each further hypothesis of the document.
    """
    document.show_placeholders()
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
    data, charset = document.write_bytes(translations, alignments)
    yield Translated(data, charset, pairs, len(hidden))


def translate(
    document: Document,
    translate: Callable[[list[str]], list[str]],
    align: Callable[[list[tuple[str, str]]], Sequence[Sequence[SpanLink]]],
) -> Translated:
    """Translates a document by running its `stages`.

    `translate` and `align` are `translate` and `align_spans` of a `Translator`.
    """
    run: dict[str, Callable] = {"translate": translate, "align": align}
    work = stages(document)
    stage = next(work)
    while isinstance(stage, Stage):
        stage = work.send(run[stage.kind](stage.items))
    return stage


@functools.cache  # `find_spec` takes the import lock
def check_installed() -> None:
    """Raises ValueError if a library of the extra `documents` is missing."""
    for name in LIBRARIES:
        expect(
            importlib.util.find_spec(name),
            f"the extra 'documents': {how_to_install('documents')}",
            f"no module {name!r}",
        )
