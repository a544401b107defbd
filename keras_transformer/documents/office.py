"""Office documents: zip archives whose XML parts have paragraphs.

A translated paragraph is rewritten, run by run; everything else in the archive
stays. python-docx and odfpy do not write an archive as they read it.
"""

import collections
import functools
import html
import io
import itertools
import lzma
import struct
import typing
import zipfile
import zlib
from collections.abc import Callable, Iterator

import regex

from keras_transformer.base.refusals import expect
from keras_transformer.data.languages import base_language
from keras_transformer.documents.charsets import HTML_DECLARATION, decode
from keras_transformer.documents.items import (
    ALONE,
    CLOSE,
    NARROW,
    OPEN,
    SPACE,
    TEXT,
    Item,
    Split,
)
from keras_transformer.documents.markup import escape, plain_text
from keras_transformer.documents.messages import DEEPEST
from keras_transformer.documents.pieces import Block, Left, Piece, write
from keras_transformer.documents.placeholders import MESSAGES
from keras_transformer.documents.xml import parse_xml

# An archive may unpack to at most `LARGEST` bytes, and to `SMALL` bytes plus
# `RATIO` for each packed byte.
LARGEST, RATIO, SMALL = 1 << 29, 100, 1 << 24
# An archive may have this many tags, and more for each packed byte. A tag takes
# about 1 kB of memory.
FEW_TAGS, TAGS_PER_BYTE = 200_000, 2
OLE = b"\xd0\xcf\x11\xe0"  # the start of encrypted and of old Word files
# Until a paragraph is written, its text has codes: the numbers of its steps,
# between characters that XML does not allow.
CODE = regex.compile(r"\x01([0-9]++)\x02")
# The first letter of a text, after codes, with the signs before it.
FIRST_LETTER = regex.compile(
    r"\A(?:\x01[0-9]++\x02)*+\K(?:[^\p{L}\x01]{0,9}+\p{L}\p{M}*+)?+"
)
NO_XML = regex.compile(r"[\0-\x08\v\f\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
# Kinds of items that `split` does not know: an `Around`; a break that ends a
# sentence; the start and end of a range such as a bookmark.
AROUND, BREAK, BEGIN, STOP = "around", "break", "begin", "stop"
FORMAT = "format"  # the name of a pair of codes
PARAGRAPH = "\n"  # each paragraph counts as a line of the document
# Words that readers see outside paragraphs: in images, forms and indexes.
# `[^<>]*?` is lazy: if it is greedy, `regex` takes square time in a tag.
SHOWN = regex.compile(
    r"""(?<!o:)\b(?<image>descr|alt|title|string)=["'][^"'<>\p{L}]*+\p{L}
    |<(?<image>svg:(?:title|desc)|a:t)>[^<\p{L}]*+\p{L}
    |<w:(?<form>listEntry|listItem|helpText|statusText|alias)\b[^<>]*?
        \bw:(?:val|displayText)=["'][^"'<>\p{L}]*+\p{L}
    |<form:[^<>]*?\bform:(?<form>label|title)=["'][^"'<>\p{L}]*+\p{L}
    |<text:(?<form>label)\b[^<>]*?\btext:value=["'][^"'<>\p{L}]*+\p{L}
    |<text:(?:\w{1,20}-)?(?<index>index|toc)-mark(?:-start)?\b[^<>]*?
        \btext:(?:string-value|key1|key2)=["'][^"'<>\p{L}]*+\p{L}
    |\bw:instr=["']\s*(?<index>XE|TC|TA)\b""",
    regex.VERBOSE,
)
SHOWN_REASONS = {
    "image": "text of an image",
    "form": "form field",
    "index": "index entry",
    "tip": "tooltip",
    "table": "text of a table",
}
# The same of links, tables and forms.
TIPS = regex.compile(
    r"""\b(?<tip>(?:w:)?tooltip|office:title)=["'][^"'<>\p{L}]*+\p{L}
    |\\o\s*+(?<tip>"|&quot;)[^"&<>\p{L}]*+\p{L}
    |<w:(?:(?<table>tblCaption|tblDescription)|(?<form>default))\s
        [^<>]*?\bw:val=["'][^"'<>\p{L}]*+\p{L}
    |<(?<table>table:(?:title|desc))>[^<\p{L}]*+\p{L}""",
    regex.VERBOSE,
)
# The words around the number of a list's item, a page or a note: "Chapter %1:".
NUMBER_WORDS = regex.compile(
    r"""(?:<w:lvlText\b[^<>]*?\bw:val|\bstyle:num-(?:pre|suf)fix)=
    (?:"\K(?=[^"<\p{L}]*+\p{L})[^"<]{2,}+|'\K(?=[^'<\p{L}]*+\p{L})[^'<]{2,}+)""",
    regex.VERBOSE,
)


# Styles of code in Word, LibreOffice and pandoc, without spaces.
CODE_STYLE = regex.compile(
    r"""html(?:code|keyboard|sample|variable|preformatted)
    |(?:source|inline)?code(?:block|char)?|sourcetext|verbatimchar
    |preformattedtext|userentry|macro(?:text)?""",
    regex.VERBOSE | regex.IGNORECASE,
)
# Tags that declare the language of an office document, or what is no tag.
LANGUAGE = regex.compile(
    r"<!(?>--(?s:.*?)(?:-->|\Z)|\[CDATA\[(?s:.*?)(?:\]\]>|\Z))"
    r"|<(?:w:lang|style:text-properties)\b[^<>]*+>"
)


def with_language(text: str, source: str, target: str) -> str:
    """Replaces the declared source language of an XML text by the target."""
    code, *others = target.replace("_", "-").split("-")
    word = {"zh": "eastAsia", "ja": "eastAsia", "ko": "eastAsia"}.get(
        code, "val"
    )
    old = r"[^\"']*+" if word != "val" else base_language(source)
    old += r"(?:[-_][\w-]*+)?"
    # ODF has an attribute for each part of a code such as sr-Latn-RS.
    scripts = [part for part in others if regex.fullmatch("[A-Za-z]{4}", part)]
    regions = [p for p in others if regex.fullmatch(r"[A-Za-z]{2}|\d{3}", p)]
    of_odf = f'fo:language="{code}"' + "".join(
        f' fo:script="{script}"' for script in scripts
    )
    country = f'fo:country="{(regions or ["none"])[0]}"'

    def change(match: regex.Match) -> str:
        if match.group().startswith("<!"):
            return match.group()
        tag = regex.sub(
            rf"\bw:{word}=[\"']{old}[\"']",
            f'w:{word}="{"-".join([code, *others])}"',
            match.group(),
        )
        tag, found = regex.subn(
            rf"\bfo:language=[\"']{base_language(source)}[\"']", "@@", tag
        )
        if not found:
            return tag
        tag = regex.sub(r"\sfo:script=[\"'][^\"']*+[\"']", "", tag)
        tag = regex.sub(r"\bfo:country=[\"'][^\"']*+[\"']", country, tag)
        return tag.replace("@@", of_odf)

    return LANGUAGE.sub(change, text) if source and target else text


def is_code_style(name: str) -> bool:
    """Tells whether a style, by its name, is one of code.

    >>> is_code_style("HTML Code"), is_code_style("Source_20_Text")
    (True, True)
    """
    name = regex.sub(r"_20_|[ _]", "", name)
    return CODE_STYLE.fullmatch(name) is not None


class Around(typing.NamedTuple):
    """An item for an element that encloses a part of a paragraph."""

    opening: str
    inside: list
    closing: str
    kind: str = AROUND
    text: str = ""
    name: str = ""


class Format(typing.NamedTuple):
    """The XML before and after a text."""

    before: str = ""
    after: str = ""


# A step of writing a paragraph: XML that stays, the format of what follows, or
# None, which ends the format.
Step: typing.TypeAlias = str | Format | None
PLAIN = Format()


def read_archive(data: bytes) -> dict[str, bytes]:
    """Reads the files of a zip archive, by name.

    Raises ValueError if it is not an intact zip archive, or is encrypted or
    hostile.
    """
    old = "an encrypted document, or one of old programs"
    expect(not data.startswith(OLE), "a zip archive", old)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            _check(archive, len(data))
            files = {_name(i): archive.read(i) for i in archive.infolist()}
    except (
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
        struct.error,
        EOFError,
        OSError,  # from bz2
        NotImplementedError,  # unknown compression
        UnicodeDecodeError,  # a file's name
    ) as error:
        raise ValueError(
            f"expected an intact zip archive. Received: {error}"
        ) from error
    tags = sum(file.count(b"<") for file in files.values())
    most = FEW_TAGS + TAGS_PER_BYTE * len(data)
    expect(
        tags <= most, f"a zip archive with at most {most:,} tags", f"{tags:,}"
    )
    return files


def _name(info):
    """Returns a file's name in an archive, as office programs read it."""
    return info.filename.replace("\\", "/")


def _check(archive, size):
    """Raises ValueError for unsafe names, a password or too many bytes."""
    names: set[str] = set()
    for info in archive.infolist():
        name = _name(info)
        leaves = regex.search(r"\A/|(?:\A|/)\.\.(?:/|\Z)", name)
        relative = "relative names, each once, in the zip archive"
        expect(not leaves and name not in names, relative, repr(name))
        is_open = not info.flag_bits & 1
        expect(is_open, "a zip archive without a password", repr(name))
        names.add(name)
    unpacked = sum(info.file_size for info in archive.infolist())
    most = min(LARGEST, SMALL + RATIO * size)
    expect(
        unpacked <= most,
        f"a zip archive of at most {most:,} bytes",
        f"{unpacked:,}",
    )


def content_types(files: dict[str, bytes]) -> dict[str, str]:
    """Returns the content type of each file of an Open XML document.

    The type is declared for the file's name, or else for its suffix.
    """
    listed = files.get("[Content_Types].xml", b"<none/>")
    root, _, _ = parse_xml(decode(listed, HTML_DECLARATION)[0])
    types = {
        element.get(key, "").lower(): element.get("ContentType", "")
        for element in root.iter("{*}Override", "{*}Default")
        for key in ("PartName", "Extension")
    }
    return {
        name: types.get(f"/{name}".lower())
        or types.get(name.rpartition(".")[2].lower(), "")
        for name in files
    }


def read_parts(
    data: bytes,
    files: dict[str, bytes],
    readers: dict[str, Callable[[str], Iterator]],
    languages: tuple[str, str] = ("", ""),
    declare: Callable[[str, str, str], str] = with_language,
) -> tuple[list, Callable]:
    """Returns the pieces of an archive's XML files, and `Document`'s `finish`.

    `files` are from `read_archive`. `readers` maps a file's name to the
    function that makes pieces of its text. `languages` are the codes of source
    and target; with `declare`, the target replaces the source in the files.
    Raises ValueError, with the file's name, if a file is broken.
    """
    charsets, texts, parts = {}, [], []
    for name in filter(readers.__contains__, files):
        try:
            text, charsets[name] = decode(files[name], HTML_DECLARATION)
            parts.append(Block(list(readers[name](text))))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        texts.append(text)

    def finish(written: list[str]) -> tuple[bytes, str]:
        if written == texts:
            return data, ""
        file, changed = io.BytesIO(), dict(files)
        new = dict(zip(charsets, written, strict=True))
        for name in files:
            if name in new or name.endswith("styles.xml"):
                old, charset = decode(files[name], HTML_DECLARATION)
                text = declare(new.get(name, old), *languages)
                if text != old:
                    changed[name], _ = charset.encode(text)
        with (
            zipfile.ZipFile(io.BytesIO(data)) as before,
            zipfile.ZipFile(file, "w") as archive,
        ):
            for info in before.infolist():
                archive.writestr(info, changed[_name(info)])
        return file.getvalue(), ""

    return parts, finish


def left_part(text: str, reason: str) -> Iterator:
    """Yields an untranslated XML file, with the reason if it has words."""
    has_words = regex.search(r">[^<>\p{L}]*+\p{L}", text)
    yield Block([Left(text, reason) if has_words else text], source=PARAGRAPH)


def _shown(xml):
    """Returns untranslated XML, as `Left` if it has words for readers."""
    found = TIPS.search(xml) or SHOWN.search(xml)
    return Left(xml, SHOWN_REASONS[found.lastgroup]) if found else xml


class Part:
    """A reader of an XML file of a document. Each format has a subclass."""

    # Names of elements: paragraphs, and elements that are left, with reasons.
    PARAGRAPHS: tuple[str, ...] = ()
    REASONS: dict[str, str] = {}

    def __init__(self, text: str, split: Split):
        self.root, self.events, self.spans = parse_xml(text)
        self._split = split
        # From the look of a format to the code that all such formats share.
        self.formats: dict[typing.Any, str] = {}
        self._steps: list[Step] = []
        self._codes: dict[Step, str] = {}

    def keep(self, step: Step) -> str:
        """Returns the code of a step. Equal steps share a code."""
        if step not in self._codes:
            self._codes[step] = f"\1{len(self._steps)}\2"
            self._steps.append(step)
        return self._codes[step]

    def name(self, element: typing.Any) -> str:
        """Returns an element's local name, or "" if it is of another format."""
        raise NotImplementedError

    def reason(self, element: typing.Any) -> str:
        """Returns why an element is left, or "" if it is not."""
        return self.REASONS.get(self.name(element), "")

    def drop_cap(self, element: typing.Any) -> typing.Any:
        """Returns the text element of a paragraph that is a drop cap, or None.

        The next paragraph continues its word.
        """
        return None

    def items(self, paragraph: typing.Any) -> tuple[int, list[Item | Around]]:
        """Returns the index of a paragraph's first inner event, and its items.

        The `name` of a text item is the code of its format.
        """
        raise NotImplementedError

    def write_text(self, text: str) -> str:
        """Writes plain text as XML, to go inside a `Format`."""
        return escape(text)

    def raw(self, begin: int, end: int) -> str:
        """Returns the XML of the events `begin` to `end - 1`."""
        return "".join(event.raw for event in self.events[begin:end])

    def read(self, element: typing.Any = None) -> Iterator:
        """Yields the pieces of an element, by default of the whole part."""
        read_to, last = 0, len(self.events)
        if element is not None:
            read_to, last = self.spans[element][0], self.spans[element][1] + 1
        for found in (self.root if element is None else element).iter("{*}*"):
            begin, end = self.spans[found]
            reason = self.reason(found)
            is_paragraph = self.name(found) in self.PARAGRAPHS
            if is_paragraph and self.drop_cap(found) is not None:
                continue  # the next paragraph has its text
            if is_paragraph and self.drop_cap(found.getprevious()) is not None:
                begin, _ = self.spans[found.getprevious()]
            if begin >= read_to and (reason or is_paragraph):
                yield self._between(read_to, begin)
                read_to = end + 1
                if is_paragraph and not reason and begin < end:
                    yield self._read_paragraph(found)
                else:
                    left = self._left(found, reason)
                    yield Block([left], source=PARAGRAPH * is_paragraph)
        yield self._between(read_to, last)

    def _between(self, begin, end):
        """Returns the XML between paragraphs, with the words of numbers."""
        pieces, read, xml = list[Piece](), 0, self.raw(begin, end)
        for match in NUMBER_WORDS.finditer(xml):
            make_items, _ = plain_text(match.group())
            pieces.append(_shown(xml[read : match.start()]))
            pieces += self._split(
                make_items(match.group()), html.escape, placeholders=MESSAGES
            )
            read = match.end()
        return Block([*pieces, _shown(xml[read:])], source="")

    def _left(self, element, reason):
        """Returns an element's XML, as `Left` if it has words and a reason."""
        begin, end = self.spans[element]
        xml = self.raw(begin, end + 1)
        if reason and any(map(str.isalpha, element.xpath("string()"))):
            return Left(xml, reason)
        return xml

    def code(
        self, element: typing.Any, format: Format = PLAIN, reason: str = ""
    ) -> Item:
        """Makes one `ALONE` item of an element."""
        reason = self.reason(element) or reason
        inside = [self._left(element, reason)]
        if not reason and len(pieces := list(self.read(element))) > 1:
            inside = pieces  # it has paragraphs
        elif type(inside[0]) is str:
            inside = [_shown(inside[0])]
        parts = [format.before, *inside, format.after]
        if all(type(part) is str for part in parts):
            return Item(self.keep("".join(parts)), "", ALONE)
        return Item(Block(parts, self.keep), "", ALONE)

    def _read_paragraph(self, element):
        begin, end = self.spans[element]
        first, found = self.items(element)
        cap = self.drop_cap(element.getprevious())
        if cap is not None:
            begin, _ = self.spans[element.getprevious()]
            at = next((i for i, item in enumerate(found) if item.text), 0)
            name = found[at].name if found else self.keep(PLAIN)
            found.insert(at, Item(cap.text or "", cap.text or "", name=name))
        base, items, _ = self._arrange(found)
        pieces: list = []
        for is_break, group in itertools.groupby(
            items, lambda item: item.kind == BREAK
        ):
            if is_break:
                pieces += [item.raw for item in group]
            else:
                # `DEEPEST` excludes ICU messages, which could divide elements.
                clean = functools.partial(NO_XML.sub, "")
                pieces += self._split(group, clean, depth=DEEPEST)
        same = "".join(write(pieces, itertools.repeat((None, ()))))

        def finish(text: str) -> str:
            if text == same:
                return self.raw(begin, end + 1)
            before, text = self.raw(begin, first), base + text
            if cap is not None:
                letter = FIRST_LETTER.search(text)
                opening, closing = self.spans[cap]
                before = self.raw(begin, opening + 1) + escape(letter.group())
                before += self.raw(closing, first)
                text = text[: letter.start()] + text[letter.end() :]
            return f"{before}{self._write(text)}{self.raw(end, end + 1)}"

        number = 1 if cap is None else 2
        return Block(pieces, finish, source=PARAGRAPH * number)

    def _write(self, text):
        parts: list[str] = []
        formats: list[Format] = []
        for i, part in enumerate(CODE.split(text)):
            step = self._steps[int(part)] if i % 2 else part
            if isinstance(step, Format):
                formats.append(step)
            elif step is None:
                formats.pop()
            elif i % 2:
                parts.append(step)
            elif step:
                before, after = formats[-1]
                parts += [before, self.write_text(step), after]
        return "".join(parts)

    def _arrange(self, items):
        """Returns the main format's code, items, and whether one is a break.

        Each other format becomes a pair of tags, as does a range without a
        break that begins and ends in the same element.
        """
        sizes: collections.Counter[str] = collections.Counter()
        for item in items:
            if item.kind in (TEXT, SPACE):  # the names of others are no formats
                sizes[item.name] += len(item.text) * (item.kind == TEXT)
        base = max(sizes, key=sizes.__getitem__, default="") or self.keep(PLAIN)
        found: list[Item] = []
        begun: list[int] = []  # where ranges begin
        current, has_break = base, False

        def change(format: str) -> None:
            nonlocal current
            if format != current != base:
                found.append(Item(self.keep(None), "", CLOSE, FORMAT))
            if current != format != base:
                found.append(Item(format, "", OPEN, FORMAT))
            current = format

        for item in items:
            if item.kind in (TEXT, SPACE):
                if item.name and item.raw != " ":
                    change(item.name)
                found.append(item._replace(name=""))
                continue
            if item.kind != ALONE:
                change(base)
            if item.kind == AROUND:
                opening, inside, closing, *_ = item
                format, inside, is_broken = self._arrange(inside)
                raw = Block(
                    [_shown(opening)],
                    lambda xml, format=format: self.keep(xml) + format,
                )
                closing = self.keep(None) + self.keep(closing)
                kinds = (BREAK, BREAK) if is_broken else (OPEN, CLOSE)
                found.append(Item(raw, "", kinds[0], AROUND))
                found += [*inside, Item(closing, "", kinds[1], AROUND)]
            else:
                is_broken = item.kind == BREAK
                kind = BREAK if is_broken else ALONE
                last = found[begun[-1]].name if begun else None
                if item.kind == STOP and item.name == last:
                    begin, kind = begun.pop(), CLOSE
                    found[begin] = found[begin]._replace(kind=OPEN)
                elif item.kind == BEGIN:
                    begun.append(len(found))
                found.append(item._replace(kind=kind))
            if is_broken:
                begun.clear()
                has_break = True
        change(base)
        for i, item in enumerate(found):
            if item.kind == ALONE and item.name:  # one end of a range
                found[i] = item._replace(name=NARROW)
        return base, found, has_break
