"""Markup that can stand inside a text, as the items of a sentence."""

import html
import typing

import regex

from keras_transformer.documents.placement import (
    ACCELERATOR,
    ALONE,
    CLOSE,
    OPEN,
)
from keras_transformer.documents.sentences import (
    SPACE,
    Item,
    plain_items,
)

# <b>, </b>, <br/>, <a href="x">; but not "<none of these>" or "a < b".
TAG = regex.compile(
    r"<(?<close>/?)(?<name>[A-Za-z][\w.:-]*)"
    r"(?:\s+[\w:.-]+\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s\"'<>]+))*\s*(?<alone>/?)>"
    r"|\{\\[^{}]*\}"  # of subtitles
)
VOID = ("area", "br", "embed", "hr", "img", "input", "source", "track", "wbr")
# A mark before the letter of an accelerator key: E&xit, ~File, _Open; not R&D.
ACCELERATOR_MARK = regex.compile(r"(?<![A-Z](?=&[A-Z]))[&~_](?=[^\W_])")


class Event(typing.NamedTuple):
    """A stretch of an HTML or XML text.

    Attributes:
        kind: "open", "close", "text", "entity" or "other".
        raw: Its characters.
        name: Of a tag.
        attributes: Of a tag that opens.
    """

    kind: str
    raw: str
    name: str = ""
    attributes: typing.Mapping[str, str] = {}


def tagged_items(text: str, accelerators: bool = False) -> list[Item]:
    """The items of a plain text with tags.

    Args:
        text: The text. It is no HTML: `&amp;` stands for itself.
        accelerators: Whether `&`, `~` or `_` before a letter marks the key of a
            menu or button, if there is one such mark.

    >>> [item.kind for item in tagged_items("<b>a</b> <br>")]
    ['open', 'text', 'close', 'space', 'alone']
    """
    items, read = [], 0
    for match in TAG.finditer(text):
        items += plain_items(text[read : match.start()])
        name = (match["name"] or "").lower()
        kind = CLOSE if match["close"] else OPEN
        if not name or match["alone"] or name in VOID:
            kind = ALONE
        items.append(Item(match.group(), "", kind, name))
        read = match.end()
    items += plain_items(text[read:])
    return _mark_accelerator(items) if accelerators else items


def _mark_accelerator(items):
    """The items, with the mark of the accelerator key as one."""
    marked = [
        (i, match.start())
        for i, item in enumerate(items)
        if item.text and not regex.search(r"://|[@%{$]", item.text)
        for match in ACCELERATOR_MARK.finditer(item.text)
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
    """A character reference of HTML or XML, such as `&amp;`, as an item."""
    text = html.unescape(raw)
    if text.isspace() and text != "\u00a0":
        return Item(raw, " ", SPACE)
    return Item(raw, text)
