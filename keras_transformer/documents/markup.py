"""Markup as the items of a sentence, and the tags of HTML and XML.

Python's HTML parser takes a minute for 100 kB of unfinished tags. lxml and
html5lib do not give the position of a tag, and rewrite the page.
"""

import html
import sys
import typing
from collections.abc import Callable, Iterator

import regex

from keras_transformer.data.files.tmx import BREAK
from keras_transformer.documents.items import (
    ACCELERATOR,
    ALONE,
    CLOSE,
    END,
    OPEN,
    SPACE,
    Item,
    join,
    pair_tags,
    plain_items,
)

ENTITY = r"&(?:\#[0-9]{1,7}|\#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31})"
# A tag or another code in plain text: <b>, </b>, <br/>, <a href="x">; but not
# "<none of these>" or "a < b".
CODE = regex.compile(
    r"<(?<close>/?)(?<name>[A-Za-z][\w.:-]*+)"
    r"(?:\s++[\w:.-]++\s*+=\s*+(?:\"[^\"<]*+\"|'[^'<]*+'|[^\s\"'<>]++))*+\s*+"
    r"(?<alone>/?)>"
    r"|\{\\[^{}]*+\}"  # of subtitles
    r"|\x1b\[[\d;]*+[A-Za-z]|[\0-\x08\x0e-\x1f\x7f]"  # of terminals
    rf"|(?<entity>{ENTITY};)"
)
VOID = ("area", "br", "embed", "hr", "img", "input", "source", "track", "wbr")
# A mark before the letter of an accelerator key: E&xit, ~File, _Open; but not
# R&D, &amp;, max_length.
ACCELERATOR_MARK = regex.compile(
    r"(?<![A-Z](?=&[A-Z]))[&~](?=[^\W\d_])|(?<!\w)_(?=\w)"
    r"|(?<=\b\p{Lu}\p{L}*)_(?=\p{L}++(?!_))"
)
NO_ACCELERATOR = regex.compile(r"://|[@%{$]")
# Characters that `text_of` may change. Most messages have none.
MARKED = regex.compile(r"[<{&~_\0-\x08\x0e-\x1f\x7f]")
RAW_TEXT = ("script", "style", "textarea", "xmp", "iframe", "noembed")
# A token without an end extends to the end of the text, as in HTML. So nothing
# is read twice.
TOKEN = r"""
    <!--(?:-?>|.*?(?:--!?>|\Z)) | CDATA
    | <[!?][^>]*+(?:>|\Z) | </(?!START)[^>]*+(?:>|\Z)
    | (?<tag><(?<close>/)?(?<name>START[^\s/>]*+)
      (?<attributes>(?:[\s/]++|\{%[^%]*+%\}|\{\{[^{}]*+\}\}|[^\s/>][^\s/>=]*+
        (?:\s*+=\s*+(?:"[^"]*+"|'[^']*+'|(?!["'])[^\s>]*+))?+)*+)
      (?:>|\Z))
    | (?<entity>ENTITY;?)
    | (?<text>[^<&]++|[<&])
"""
FLAGS = regex.VERBOSE | regex.DOTALL
HTML_TOKEN, XML_TOKEN = (
    regex.compile(
        TOKEN.replace("START", start)
        .replace("ENTITY", ENTITY)
        .replace("CDATA", cdata),
        FLAGS,
    )
    for start, cdata in (
        ("[A-Za-z]", "(?!)"),
        (
            r"[^\s!?/>]",
            r"<\?.*?(?:\?>|\Z) | (?<cdata><!\[CDATA\[.*?(?:\]\]>|\Z))",
        ),
    )
)


class Event(typing.NamedTuple):
    """A stretch of HTML or XML; a tag has a name and attributes.

    `kind` is "open", "close", "text", "entity", "cdata" or "other".
    """

    kind: str
    raw: str
    name: str = ""
    attributes: str = ""

    @property
    def item_kind(self) -> str:
        """The kind of the item for this tag or other code."""
        is_pair = self.kind in (OPEN, CLOSE) and self.name not in VOID
        return self.kind if is_pair else ALONE


def read_events(text: str, is_xml: bool = False) -> Iterator[Event]:
    """Yields the `Event`s of a text, which contain all of its characters."""
    token, read = XML_TOKEN if is_xml else HTML_TOKEN, 0
    while match := token.match(text, read):
        read = match.end()
        kind = match.lastgroup
        if not match["name"]:
            kind = kind if kind in ("text", "entity", "cdata") else "other"
            yield Event(kind, match.group())
            continue
        name = match["name"] if is_xml else match["name"].lower()
        name = sys.intern(name)
        kind = "close" if match["close"] else "open"
        if not match.group().endswith(">"):
            kind = "other"
        elif name in ("svg", "math") and match.group().endswith("/>"):
            kind, name = "other", ""  # in HTML "/>" ends no other element
        yield Event(kind, match.group(), name, match["attributes"])
        if kind == "open" and name in RAW_TEXT and not is_xml:
            end = regex.compile(rf"</{name}(?=[\s/>])", regex.I).search(
                text, read
            )
            begin, read = read, end.start() if end else len(text)
            if begin < read:
                yield Event("other", text[begin:read])


def plain_text(
    text: str, accelerators: bool = False
) -> tuple[Callable[[str], list[Item]], Callable[[str], str]]:
    """Returns a reader and a writer for parts of a plain text with tags.

    The reader splits a part into items. The writer turns plain text into a
    part. The text is HTML if it has a character reference; otherwise `&` is an
    ordinary character. With `accelerators`, `&`, `~` or `_` before a letter
    marks the key of a menu or button, if there is exactly one such mark.

    >>> [item.kind for item in plain_text("")[0]("<b>a</b> <br>")]
    ['open', 'text', 'close', 'space', 'alone']
    """
    is_html = bool(regex.search(f"{ENTITY};", text))

    def make_items(part: str) -> list[Item]:
        items, read = [], 0
        for match in CODE.finditer(part):
            if match["entity"] and not is_html:
                continue
            items += plain_items(part[read : match.start()])
            read = match.end()
            if match["entity"]:
                items.append(entity_item(match.group()))
                continue
            name = (match["name"] or "").lower()
            kind = CLOSE if match["close"] else OPEN
            if name != "br" and BREAK.match(match.group()):
                kind = END
            elif not name or match["alone"] or name in VOID:
                kind = ALONE
            items.append(Item(match.group(), "", kind, name))
        items += plain_items(part[read:])
        return _mark_accelerator(items) if accelerators else items

    def write(part: str) -> str:
        written = escape(part)
        if "&nbsp;" in text:
            written = written.replace("\u00a0", "&nbsp;")
        return written

    return make_items, write if is_html else str


def text_of(message: str) -> str:
    """Removes the markup of a program's message, for the model to read.

    >>> text_of("Save <b>%s</b> _as")
    'Save %s as'
    """
    if not MARKED.search(message):
        return message
    make_items, _ = plain_text(message, accelerators=True)
    return join(
        [
            Item(item.raw, " ", SPACE) if BREAK.match(str(item.raw)) else item
            for item in pair_tags(make_items(message))
        ]
    )[1].strip()


def _mark_accelerator(items):
    """Makes an item of the accelerator mark if there is exactly one."""
    marked = [
        (i, match.start())
        for i, item in enumerate(items)
        for match in ACCELERATOR_MARK.finditer(item.text)
        if item.text == item.raw and not NO_ACCELERATOR.search(item.text)
    ]
    if len(marked) != 1:
        return items
    [(i, at)] = marked
    text = items[i].text
    items[i : i + 1] = [
        *plain_items(text[:at]),
        Item(text[at], "", ACCELERATOR),
        *plain_items(text[at + 1 :]),
    ]
    return items


def entity_item(raw: str) -> Item:
    """Makes an item of a character reference, such as `&amp;`."""
    text = html.unescape(raw)
    if text.isspace() and text != "\u00a0":
        return Item(raw, " ", SPACE)
    return Item(raw, text)


def escape(text: str) -> str:
    """Escapes `&`, `<` and `>` for HTML and XML."""
    return html.escape(text, quote=False)
