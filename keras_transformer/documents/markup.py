"""Markup as the items of a sentence, and the tags of HTML and XML.

Python's HTML parser takes a minute for 100 kB of unfinished tags. lxml and
html5lib do not give the position of a tag, and rewrite the page.
"""

import html
import sys
import typing
from collections.abc import Callable, Iterator
from html.entities import html5

import regex

from keras_transformer.data.files.tmx import BREAK
from keras_transformer.documents.items import (
    ACCELERATOR,
    ALONE,
    CLOSE,
    END,
    NARROW,
    OPEN,
    SPACE,
    Item,
    join,
    pair_tags,
    plain_items,
)
from keras_transformer.documents.placeholders import TEMPLATE
from keras_transformer.text.signs import INVISIBLE

ENTITY = r"&(?:\#[0-9]{1,7}|\#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31})"
# A tag or another code in plain text: <b>, </b>, <br/>, <a href="x">, Unity's
# <size=9>, forums' [b]; but not "<none of these>" or "a < b".
CODE = regex.compile(
    rf"""<(?<!(?<!\p{{N}})%<)(?<close>/?)(?<name>[A-Za-z][\w.:-]*+|\d{{1,2}}(?=/?>))
    (?:=(?:"[^"<>]*+"|[^\s"'<>]++))?+
    (?:\s++[\w:.-]++\s*+=\s*+(?:"[^"<]*+"|'[^'<]*+'|[^\s"'<>]++))*+\s*+
    (?<alone>/?)>
    |(?<!\w(?!\[/))\[(?<close>/?)(?<name>[bius]|url|img|color|size|quote)
    (?:=[^\[\]\n]{{1,200}}+)?+\]
    |\{{\\[^{{}}]*+\}}  # of subtitles
    |\xa7[0-9a-fk-or](?=\S)  # of Minecraft
    |\x1b\[[\d;]*+[A-Za-z]|[\0-\x08\x0e-\x1f\x7f]  # of terminals
    |{TEMPLATE}|(?<entity>{ENTITY};)
    # Apple's ^[%lld dogs](inflect: true)
    |(?<inflected>\^\[(?=[^\[\]]{{1,200}}+\]\((?:inflect|morph))
    |\]\((?:inflect|morph)[^()]{{1,80}}+\))
    # Escapes that a program reads: white space, and signs; not C:\new, '\n'.
    |(?<escape>(?<![A-Za-z]:\S{{0,80}}|\\)(?!(?<![^\s\p{{P}}]|[.:;!?)]\s?)\\.(?!\w|\\))
    (?:\\[nrtfv](?!\p{{Ll}}{{2,30}}+\{{))++
    |(?<!\\)\\(?:['"]|u(?![dD][89A-Fa-f])[0-9A-Fa-f]{{4}})
    |(?<=\p{{L}})''(?=\p{{L}})|&&)""",
    regex.X,
)
ESCAPED = ("\\'", '\\"', "''", "&&")  # signs
VOID = ("area", "br", "embed", "hr", "img", "input", "source", "track", "wbr")
# A mark before the letter of an accelerator key: E&xit, ~File, _Open; but not
# R&D, Drag&Drop, &amp;, max_length, __init__. Where letters are no keys, as in
# Japanese, it is in brackets: (_F).
ACCELERATOR_MARK = regex.compile(
    r"[(\uff08][&~_](?<key>[A-Za-z0-9])[)\uff09]"
    r"|(?<!\p{Lu}(?=&\p{Lu}))(?<!\p{Ll}(?=[&~]\p{Lu}))[&~](?=[^\W\d_])"
    r"|(?<!\w)_(?=[^\W_]++(?!_))|(?<=\b\p{Lu}\p{L}*)_(?=\p{L}++(?!_))"
)
NO_ACCELERATOR = regex.compile(r"://|[@%{$]")
# Characters that `text_of` may change. Most messages have none.
MARKED = regex.compile(r"[<{[\xa7&~_^\\\0-\x08\x0e-\x1f\x7f]|''")
RAW_TEXT = ("script", "style", "textarea", "xmp", "iframe", "noembed")
# Codes of ERB, PHP and Jinja in a tag.
IN_TAG = r"<%[^%]*+%>|<\?[^?]*+\?>|\{%[^%]*+%\}|\{\{[^{}]*+\}\}"
ATTRIBUTE = rf"""(?:{IN_TAG}|(?<attribute>[^\s/>][^\s/>=]*+)(?:\s*+=\s*+
    (?:"(?<value>(?:[^"<]++|{IN_TAG}|<)*+)"
    |'(?<value>(?:[^'<]++|{IN_TAG}|<)*+)'|(?!["'])(?<value>[^\s>]*+)))?+)"""
# A token without an end extends to the end of the text, as in HTML. So nothing
# is read twice.
TOKEN = r"""
    <!--(?:-?>|.*?(?:--!?>|\Z)) | OTHER
    | <[!?][^>]*+(?:>|\Z) | </(?!START)[^>]*+(?:>|\Z)
    | (?<tag><(?<close>/)?(?<name>START[^\s/>]*+)
      (?<attributes>(?:[\s/]++|ATTRIBUTE)*+)
      (?:>|\Z))
    | (?<entity>ENTITY;?)
    | (?<text>[^<&]++|[<&])
"""
SEARCHED = 1 << 16  # characters at the start that may say that it is XHTML
XHTML = regex.compile(
    r"""\A\s*+<\?xml\s|<!DOCTYPE\s(?:(?!XHTML)[^<>])*+XHTML
    |<(?:(?<prefix>[\w-]++):)?html\b[^<>]*?\sxmlns(?::[\w-]++)?\s*+=\s*+
      ["']http://www\.w3\.org/1999/xhtml["']""",
    regex.VERBOSE | regex.IGNORECASE,
)
FLAGS = regex.VERBOSE | regex.DOTALL
ATTRIBUTES = regex.compile(ATTRIBUTE, FLAGS)
# Entities of a document's own, and references to them.
OWN = r"""(?<entities><!DOCTYPE[^\[>]*+\[.*?(?:\]\s*+>|\Z))
    | (?<entity>&[A-Za-z_][\w.-]{0,80}+;)"""
CDATA = r"(?<cdata><!\[CDATA\[.*?(?:\]\]>|\Z))"
PROGRAM = r"""<\#--.*?(?:-->|\Z) | <[\#@][A-Za-z][^<>]*+> # FreeMarker
    | <%--.*?(?:--%>|\Z) | <%.*?(?:%>|\Z)
    | <\?(?:php\b|xml\s|[=\s]).*?(?:\?>|\Z)"""
HTML_TOKEN, XHTML_TOKEN, XML_TOKEN = (
    regex.compile(
        TOKEN.replace("START", start)
        .replace("ENTITY", ENTITY)
        .replace("ATTRIBUTE", ATTRIBUTE)
        .replace("OTHER", other),
        FLAGS,
    )
    for start, other in (
        ("[A-Za-z]", PROGRAM),
        ("[A-Za-z]", f"{PROGRAM} | {OWN} | {CDATA}"),
        (r"[^\s!?/>]", rf"<\?.*?(?:\?>|\Z) | {CDATA}"),
    )
)


class Event(typing.NamedTuple):
    """A stretch of HTML or XML; a tag has a name and attributes.

    `kind` is "open", "close", "empty" (of an HTML element that ends itself),
    "text", "entity", "cdata", "entities" (which a document defines) or "other".
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

    def values(self) -> dict[str, str]:
        """Returns the values of the attributes, without their references."""
        found: dict[str, str] = {}
        for match in ATTRIBUTES.finditer(self.attributes):
            value = html.unescape(match["value"] or "")
            found.setdefault((match["attribute"] or "").lower(), value)
        return found


def read_events(text: str, is_xml: bool = False) -> Iterator[Event]:
    """Yields the `Event`s of a text, which contain all of its characters.

    The text is HTML, or XHTML if it says so, or another XML.
    """
    found = None if is_xml else XHTML.search(text, 0, SEARCHED)
    prefix = f"{found['prefix']}:" if found and found["prefix"] else ""
    token = XML_TOKEN if is_xml else XHTML_TOKEN if found else HTML_TOKEN
    read = 0
    while match := token.match(text, read):
        read = match.end()
        kind = match.lastgroup
        if not match["name"]:
            yield Event(kind or "other", match.group())
            continue
        name = match["name"] if is_xml else match["name"].lower()
        name = sys.intern(name.removeprefix(prefix))
        kind = "close" if match["close"] else "open"
        if not match.group().endswith(">"):
            kind = "other"
        elif match.group().endswith("/>") and not (is_xml or name in VOID):
            # In HTML, "/>" ends no other element.
            kind = "empty" if found or name in ("svg", "math") else kind
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
    ordinary character. With `accelerators`, it is a message of a program: `&`,
    `~` or `_` before a letter marks the key of a menu or button, if there is
    exactly one such mark, and a program reads `\\n` or `\\'` as one character.

    >>> [item.kind for item in plain_text("")[0]("<b>a</b> <br>")]
    ['open', 'text', 'close', 'space', 'alone']
    """
    is_html = bool(regex.search(f"{ENTITY};", text))
    signs = _escaped_signs(text, is_html) if accelerators else {}

    def make_items(part: str) -> list[Item]:
        items, read = [], 0
        for match in CODE.finditer(part):
            raw, escaped = match.group(), match["escape"]
            is_read = raw in signs.values() if raw in ESCAPED else accelerators
            if (match["entity"] and not is_html) or (escaped and not is_read):
                continue
            items += plain_items(part[read : match.start()])
            read = match.end()
            if match["entity"]:
                items.append(entity_item(raw))
                continue
            if escaped:
                items.append(_escape_item(raw))
                continue
            name = (match["name"] or match["inflected"] or "").lower()
            kind = CLOSE if match["close"] or name[:1] == "]" else OPEN
            if name != "br" and BREAK.match(raw):
                kind = END
            elif not name or match["alone"] or name in VOID:
                kind = ALONE
            if name == "wbr" or raw.startswith("{\\"):
                name = NARROW
            name = "^" if match["inflected"] else name
            items.append(Item(raw, "", kind, name))
        items += plain_items(part[read:])
        return _mark_accelerator(items) if accelerators else items

    def write(part: str) -> str:
        written = escape(part) if is_html else part
        if "&nbsp;" in text:
            written = written.replace("\u00a0", "&nbsp;")
        for sign, raw in signs.items():
            written = written.replace(sign, raw)
        return written

    return make_items, write


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
        (i, match)
        for i, item in enumerate(items)
        for match in ACCELERATOR_MARK.finditer(item.text)
        if item.text == item.raw and not NO_ACCELERATOR.search(item.text)
    ]
    if len(marked) != 1:
        return items
    [(i, match)] = marked
    text, raw, first = items[i].text, match.group(), i
    if match["key"] and not match.start() and i and items[i - 1].kind == SPACE:
        raw, first = items[i - 1].raw + raw, i - 1
    key = match["key"] or text[match.end()]
    items[first : i + 1] = [
        *plain_items(text[: match.start()]),
        Item(raw, "", ACCELERATOR, key),
        *plain_items(text[match.end() :]),
    ]
    return items


def _escaped_signs(text, is_html):
    """Finds the signs that a text has only escaped; `&` also marks a key."""
    return {
        raw[-1]: raw
        for raw in ESCAPED
        if raw in text
        and (raw[-1] not in text.replace(raw, "") or raw == "&&")
        and not (raw == "&&" and is_html)
    }


def _escape_item(raw):
    """Makes an item of a written escape: a sign or white space."""
    if raw[1] == "u":
        return Item(raw, chr(int(raw[2:], 16)))
    return Item(raw, raw[-1]) if raw in ESCAPED else Item(raw, " ", SPACE)


def entity_item(raw: str) -> Item:
    """Makes an item of a character reference, such as `&amp;`.

    It is a code if it is not one of HTML: the document defines it.
    """
    if raw[1] != "#" and raw.endswith(";") and raw[1:] not in html5:
        return Item(raw, "", ALONE)
    text = html.unescape(raw)
    if text.isspace() and text != "\u00a0":
        return Item(raw, " ", SPACE)
    return Item(raw, INVISIBLE.sub("", text))


def escape(text: str) -> str:
    """Escapes `&`, `<` and `>` for HTML and XML."""
    return html.escape(text, quote=False)
