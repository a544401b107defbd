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
    epub,
    html,
    localization,
    markdown,
    odt,
    po,
    subtitles,
    tables,
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
from keras_transformer.documents.unread import known_format
from keras_transformer.translation.alignment import SpanLink

# Tells of each sentence and its translation whether the translation is used.
Choose = Callable[[list[tuple[str, str]]], Sequence[bool]]


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
    has_language: bool = False  # whether `read` has the option `target`
    extra: str = ""  # that it needs beside `documents`
    has_columns: bool = False  # `read` has the options `columns`, `replace`


def _messages(find, suffixes, sign, declaration=None, extra=""):
    read = localization.reader(find)
    return Format(
        read, suffixes, sign, declaration, has_language=True, extra=extra
    )


XML_START = r"(?:<\?xml[^>]*+>\s*+|<!--(?:(?!-->).)*+-->\s*+)*+"
HTML_NAMES = (
    r"(?:[abipqsu]|abbr|address|article|aside|audio|base|bd[io]|big|blockquote"
    r"|body|br|button|canvas|caption|center|cite|code|col|colgroup|data"
    r"|datalist|dd|del|details|dfn|dialog|div|d[lt]|em|embed|fieldset"
    r"|figcaption|figure|font|footer|form|frameset|h[1-6r]|head|header|hgroup"
    r"|html|iframe|img|input|ins|kbd|label|legend|li|link|main|map|mark|math"
    r"|menu|meta|meter|nav|noscript|object|ol|optgroup|option|output|param"
    r"|picture|pre|progress|r[pt]|ruby|samp|script|search|section|select|slot"
    r"|small|source|span|strike|strong|style|sub|summary|sup|svg|table|tbody"
    r"|td|template|textarea|tfoot|th|thead|time|title|tr|track|tt|ul|var|video"
    r"|wbr|[a-z]++-[\w-]++)"
)
QUOTED = r'"(?:[^"\\]++|\\.)*+"'
# Lines of the start of a file. "a: b" may be prose: in YAML, a key has an entry
# inside, or the file has nothing but entries, one with a program's name.
COMMENT = r"(?:[ \t]*+(?:\#[^\n]*+)?+\r?\n)*+"
YAML_ENTRY = r"(?:[\"']?+[\w.-]++[\"']?+:(?:[ \t]++[^\n]*+)?+)"
YAML_SIGN = (
    rf"(?!---\r?\n(?:(?!---)[^\n]*+\n)*+---)(?:---[^\n]*+\n)?+(?:{COMMENT}"
    rf"(?-i:(?:{YAML_ENTRY}\r?\n{COMMENT}(?!\s))*?"
    rf"[\"']?+[a-z0-9][\w.-]*+[\"']?+:[ \t]*+\r?\n{COMMENT}"
    rf"(?:[ \t]++|[ \t]*+-[ \t]++)[\"']?+[\w.-]++[\"']?+:\s"
    rf"|- [a-z][\w.-]*+:(?:[ \t]++[^\n]*+)?+\r?\n  [ \t]*+[\w.-]++:\s"
    rf"|(?=(?:{YAML_ENTRY}\r?\n{COMMENT})*?[a-z0-9]++(?:[._][\w.-]|[A-Z])"
    rf"[\w.-]*+:[ \t]){YAML_ENTRY}"
    rf"(?:\r?\n(?:{YAML_ENTRY}|[ \t]*+(?:\#[^\n]*+)?+(?=\r?\n))?+)*+"
    r"[\w.-]*+\Z))"
)
PROPERTY = r"[\w.$\\/-]++[ \t]*+=(?![=>]|[ \t]*+[\"\[])(?:\\\r?\n|[^\n])*+"
PROPERTIES_SIGN = (
    rf"(?:[ \t]*+(?:[\#!][^\n]*+)?+\n)*+(?=[\w.]{{2}}){PROPERTY}"
    rf"(?:\n(?:[ \t]*+[\#!][^\n]*+|{PROPERTY}|\s*+)?+)*+[\w.]*+\Z"
)
READERS: dict[str, Format] = {
    "text": Format(text.read, (".txt", ".text")),
    "html": Format(
        html.read,
        (".html", ".htm", ".xhtml"),
        rf"{XML_START}<(?:!DOCTYPE\s+)?+html\b"
        rf"|(?!<\?xml|<tt\s){XML_START}<{HTML_NAMES}(?:[\s/][^<>]*+)?+>",
        HTML_DECLARATION,
        has_language=True,
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
        r"WEBVTT\b|(?:\d++\s++)?[\d:]++[\d.,]*+[ \t]*+-->",
        has_language=True,
    ),
    "ass": Format(subtitles.read_ass, (".ass", ".ssa"), r"\[Script Info\]"),
    "po": Format(
        po.read,
        (".po", ".pot"),
        r"(?:#[^\n]*+\s++)*+(?:domain|msgctxt|msgid)\s+\"",
        PO_DECLARATION,
        has_translations=True,
    ),
    "json": _messages(
        localization.read_json,
        (".json", ".arb"),
        rf"\{{\s*+(?!\"sourceLanguage\")(?:{QUOTED}\s*+:|(?<=\n\s*)\"|\}}\s*+\Z)"
        rf"|\[\s*+(?:\{{\s*+{QUOTED}\s*+:|{QUOTED}\s*+[,\]])",
    ),
    "yaml": _messages(
        localization.read_yaml,
        (".yml", ".yaml"),
        YAML_SIGN,
        extra="localization",
    ),
    "android": _messages(
        localization.read_android,
        (),  # .xml may be anything
        rf"{XML_START}<resources\b",
        XML_DECLARATION,
    ),
    "resx": _messages(
        localization.read_resx,
        (".resx", ".resw"),
        rf"{XML_START}<root>(?=.*?<(?:resheader|data|xsd:schema)\b)",
        XML_DECLARATION,
    ),
    "strings": _messages(
        localization.read_strings,
        (".strings",),
        rf"(?:/\*(?:[^*]++|\*(?!/))*+\*/|//[^\n]*+|\s++)*+"
        rf"(?:{QUOTED}|[\w.-]++)\s*+=\s*+{QUOTED}\s*+;",
    ),
    "stringsdict": _messages(
        localization.read_stringsdict,
        (".stringsdict",),
        rf"{XML_START}<!DOCTYPE\s+plist\b(?=.*?<key>NSStringLocalizedFormatKey)",
        XML_DECLARATION,
    ),
    "fluent": _messages(
        localization.read_fluent,
        (".ftl",),
        r"(?:\#[^\n]*+\n|\s++)*+-?+[A-Z][\w-]*+ *+=(?!=)"
        r"(?=.*?(?:\{\s*+(?:\$|-[a-z])|\n[ ]++(?:\*\[|\.[\w-]++ =)))",
        extra="localization",
    ),
    "properties": _messages(
        localization.read_properties,
        (".properties",),
        PROPERTIES_SIGN,
    ),
    "epub": Format(
        epub.read,
        (".epub",),
        r"PK\x03\x04.{,60}?mimetypeapplication/epub\+zip",
        is_container=True,
    ),
    "odt": Format(
        odt.read,
        (".odt", ".ott"),
        r"PK\x03\x04.{,60}?mimetypeapplication/vnd\.oasis\.opendocument\.(?!s)",
        is_container=True,
    ),
    "csv": Format(tables.read_csv, (".csv",), has_columns=True),
    "tsv": Format(
        functools.partial(tables.read_csv, signs="\t", has_quotes=False),
        (".tsv", ".tab"),
        has_columns=True,
    ),
    "ods": Format(
        tables.read_sheet,
        (".ods", ".ots"),
        r"PK\x03\x04.{,60}?mimetypeapplication/vnd\.oasis\.opendocument\.s",
        is_container=True,
        has_columns=True,
    ),
    "xlsx": Format(
        tables.read_sheet,
        (".xlsx", ".xlsm", ".xltx", ".xltm"),
        r"PK\x03\x04(?=.*?PK\x03\x04.{,30}?xl/)",
        is_container=True,
        has_columns=True,
    ),
    # Matches any other archive, too: the reader reports what is missing.
    "docx": Format(
        docx.read,
        (".docx", ".docm", ".dotx", ".dotm"),
        r"PK\x03\x04|\xd0\xcf\x11\xe0",
        is_container=True,
    ),
    # Matches comments of other formats, too: asked after `known_format`.
    "markdown": Format(
        markdown.read,
        (".md", ".markdown", ".mdx"),
        r"(?:---|\+\+\+)\r?\n|.*?(?m:\]\([^)\]\s]++\)"
        r"|^(?:#{1,6} \S|```|[-*+] \[[ xX]\] |> \[!\w+\]))",
    ),
}
# Modules of the extras.
LIBRARIES = {
    "documents": "babel lxml markdown_it mdit_py_plugins sentencex",
    "localization": "ruamel.yaml fluent.syntax",
}
BYTE_ORDER_MARK = "\ufeff"
AUTO = "auto"
TABLES = tuple(n for n, format in READERS.items() if format.has_columns)
WITH_COLUMNS = (*TABLES, AUTO)
WITH_TRANSLATIONS = (
    *(name for name, format in READERS.items() if format.has_translations),
    *TABLES,
    AUTO,
)
FORMATS = (*READERS, AUTO)
# The formats whose documents are text.
TEXT_FORMATS = (
    *(
        name
        for name, format in READERS.items()
        if not (format.is_container or format.has_columns)
    ),
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
    columns: tables.Columns = (),
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
        columns: For tables: the name of each column to translate, and of the
            column of its translations, which may be new.

    Raises ValueError if the format or charset is unknown, if the document does
    not fit it (the message has the line), or if the extra `documents` is not
    installed.

    >>> parse("One.  Two.\\n\\n  Three.").sentences
    ['One.', 'Two.', 'Three.']
    """
    expect(format in FORMATS, f"one of {', '.join(FORMATS)}", f"{format=}")
    check_installed()
    if not regex.fullmatch(r"[a-z]{2,3}(?:[-_][A-Za-z0-9]++)*+", target):
        target = ""  # not a language code
    elif base_language(target) != regex.match(r"[a-z]+", target).group():
        target = base_language(target)  # NLLB's deu_Latn
    is_text = isinstance(data, str)
    if isinstance(data, str):
        data, charset = data.encode(), "utf-8"
    if format == AUTO:
        format = detect(name, data, bool(columns))
    reader = READERS[format]
    expect(
        bool(columns) == reader.has_columns,
        f"columns and into with a table ({', '.join(TABLES)}), only there",
        f"{format=}, {columns=}",
    )
    if reader.extra:
        check_installed(reader.extra)
    expect(
        not (reader.is_container and (is_text or charset)),
        f"a file for the format {format}: bytes without a charset",
        "a text" if is_text else f"{charset=}",
    )
    expect(
        reader.has_translations or reader.has_columns or not replace,
        "a format with translations, which can be replaced",
        f"{format=}",
    )
    options = (
        {"columns": columns, "replace": replace}
        if reader.has_columns
        else {"replace": replace, "target": target}
        if reader.has_translations
        else {"target": target}
        if reader.has_language
        else {}
    )
    divide = functools.partial(split, language=language, fits=fits)
    if reader.is_container:
        languages = () if reader.has_columns else ((language, target),)
        return Document(*reader.read(data, divide, *languages, **options))
    content, found = decode(data, reader.declaration, charset)
    mark = BYTE_ORDER_MARK * content.startswith(BYTE_ORDER_MARK)
    pieces = [mark, *reader.read(content.removeprefix(mark), divide, **options)]

    def finish(texts: Iterable[str]) -> tuple[bytes, str]:
        texts = list(texts)
        text = "".join(texts)
        if text != content:
            parts = zip(pieces, texts, strict=True)
            text = "".join(getattr(p, "translated", t) for p, t in parts)
        # Unchanged text keeps its bytes: some charsets have two codes for a
        # character.
        return (data, found.name) if text == content else found.encode(text)

    return Document(pieces, finish)


def detect(name: str, data: bytes, is_table: bool = False) -> str:
    """Detects a document's format by its name's suffix, or else its content.

    The default is "text", or "csv" of a table. Raises ValueError if the content
    begins like XML, RTF or another format without a reader.

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
    found = next(itertools.chain(named, signed), "csv" if is_table else "text")
    is_sure = suffix in READERS[found].suffixes
    if found in ("text", "markdown") and not is_sure:
        other = known_format(suffix, start)
        expect(
            not other,
            f"a document of a known format: {', '.join(READERS)}; the format"
            " 'text' translates any text as it is",
            f"{other}",
        )
    return found


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


def use_all(pairs: list[tuple[str, str]]) -> list[bool]:
    """Uses the translation of each sentence."""
    return [True] * len(pairs)


def stages(
    document: Document, choose: Choose = use_all
) -> Generator[Stage | Translated, list, None]:
    """Yields the stages of a document's translation, then the `Translated`.

    For each `Stage`, send the results for all its items, as
    `Translator.translate` or `Translator.align_spans` returns them. A sentence
    whose translation lacks a placeholder is translated again without its
    placeholders, which the alignment then places as it places markup. `choose`
    tells which translations are used; the other sentences stay. Start new
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
    used = [
        translation if is_used else None
        for translation, is_used in zip(
            translations, choose(pairs), strict=True
        )
    ]
    data, charset = document.write_bytes(used, alignments)
    yield Translated(data, charset, pairs, len(hidden))


def translate(
    document: Document,
    translate: Callable[[list[str]], list[str]],
    align: Callable[[list[tuple[str, str]]], Sequence[Sequence[SpanLink]]],
    choose: Choose = use_all,
) -> Translated:
    """Translates a document by running its `stages`.

    `translate` and `align` are `translate` and `align_spans` of a `Translator`.
    `choose` is as in `stages`.
    """
    run: dict[str, Callable] = {"translate": translate, "align": align}
    work = stages(document, choose)
    stage = next(work)
    while isinstance(stage, Stage):
        stage = work.send(run[stage.kind](stage.items))
    return stage


@functools.cache  # `find_spec` takes the import lock
def check_installed(extra: str = "documents") -> None:
    """Raises ValueError if a library of an extra is missing."""
    for name in LIBRARIES[extra].split():
        expect(
            importlib.util.find_spec(name.partition(".")[0])
            and importlib.util.find_spec(name),
            f"the extra {extra!r}: {how_to_install(extra)}",
            f"no module {name!r}",
        )
