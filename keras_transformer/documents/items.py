"""The items of a text: words, white space and markup, in order.

Readers of formats make them; `sentences.split` makes pieces of them.
"""

import bisect
import collections
import itertools
import typing
from collections.abc import Callable, Iterator, Sequence

import regex

from keras_transformer.documents.pieces import Piece, joined
from keras_transformer.text.signs import INVISIBLE, SPACELESS

# The kinds of items: a word, white space, a tag that opens or closes a range, a
# code that stands alone, the mark of an accelerator key.
TEXT, SPACE = "text", "space"
OPEN, CLOSE, ALONE, ACCELERATOR = "open", "close", "alone", "accelerator"
CODES = (OPEN, CLOSE, ALONE, ACCELERATOR)
END = "end"  # a code where sentences begin or end
# The name of an `ALONE` code that has no width, such as <wbr>: the letters
# before and after it are one word.
NARROW = "no width"
UNSEEN = regex.compile(INVISIBLE.pattern)
WORD = regex.compile(r"([ \t\r\n\f\v]+)|([^ \t\r\n\f\v]+)")


class Item(typing.NamedTuple):
    """A part of a document's text."""

    raw: Piece  # what the document has
    text: str  # what the model reads: "" for markup, " " for white space
    kind: str = TEXT
    # Of a tag: `OPEN` and `CLOSE` of the same name are a pair. Of a code:
    # `NARROW`, or "".
    name: str = ""


# `sentences.split` for a language: splits items into pieces.
Split = Callable[..., list[Piece]]


def plain_items(text: str) -> list[Item]:
    """Splits a plain text into words, white space and invisible characters.

    The model does not read the invisible ones.

    >>> [item.raw for item in plain_items("a  rose")]
    ['a', '  ', 'rose']
    >>> [item.text for item in plain_items("no\\u00adon")]
    ['no', '', 'on']
    """
    items = []
    for part, invisible in separate(text, UNSEEN):
        items += [
            Item(space, " ", SPACE) if space else Item(word, word)
            for space, word in WORD.findall(part)
        ]
        items += [Item(invisible, "")] * bool(invisible)
    return items


def separate(text: str, separator: regex.Pattern) -> Iterator[tuple[str, str]]:
    """Splits a text. Yields each part with the separator after it."""
    read = 0
    for match in separator.finditer(text):
        yield text[read : match.start()], match.group()
        read = match.end()
    yield text[read:], ""


def join(items: Sequence[Item]) -> tuple[list[int], str]:
    """Returns the offset of each item in the joined text, and the text.

    The model reads the text. A run of white space is one space. It is dropped
    at the start, and before a code that a punctuation mark such as "." follows.
    A code between two words becomes a space, unless it is `NARROW` or the
    script has no spaces.
    """
    begins, parts, length, apart = [], [], 0, False
    last = ""
    for i, item in enumerate(items):
        text = item.text
        if item.kind == SPACE and (
            last in ("", " ") or _is_before_sign(items, i + 1)
        ):
            text = ""
        is_between = apart and last.isalnum() and text[:1].isalnum()
        if is_between and not regex.search(SPACELESS, last + text[0]):
            parts.append(" ")
            length += 1
        begins.append(length)
        parts.append(text)
        length += len(text)
        last = text[-1:] or last
        is_apart = item.kind == ALONE and item.name != NARROW
        apart = is_apart or (apart and not text)
    return begins, "".join(parts)


def _is_before_sign(items: Sequence[Item], first: int) -> bool:
    """Returns whether a lone code and punctuation follow."""
    for i in range(first, len(items)):
        if items[i].kind not in (OPEN, CLOSE, ALONE):
            kinds = {item.kind for item in items[first:i]}
            return ALONE in kinds and items[i].text[:1] in tuple(".,;:!?)")
    return False


def divide(
    items: Sequence[Item], begins: Sequence[int], offsets: Sequence[int]
) -> tuple[list[Item], list[int]]:
    """Divides text items at offsets of the joined text.

    Returns the items and the offset of each. An item whose raw form differs
    from its text, such as `&amp;`, is not divided.
    """
    divided, places = [], []
    for item, begin in zip(items, begins, strict=True):
        if item.kind == TEXT and item.raw == item.text:
            inside = bisect.bisect_right(offsets, begin)
            beyond = bisect.bisect_left(offsets, begin + len(item.text))
            for offset in offsets[inside:beyond]:
                part, rest = (
                    item.text[: offset - begin],
                    item.text[offset - begin :],
                )
                divided.append(Item(part, part))
                places.append(begin)
                item, begin = Item(rest, rest), offset
        divided.append(item)
        places.append(begin)
    return divided, places


def pair_tags(items: Sequence[Item]) -> list[Item]:
    """Gives each pair of tags a unique name.

    Tags that have no partner, or cross another pair, stand alone.
    """
    paired = list(items)
    open_tags: list[int] = []
    counts: collections.Counter[str] = collections.Counter()
    alone = []
    for i, item in enumerate(paired):
        if item.kind == OPEN:
            open_tags.append(i)
            counts[item.name] += 1
        elif item.kind == CLOSE and not counts[item.name]:
            alone.append(i)
        elif item.kind == CLOSE:
            while True:
                j = open_tags.pop()
                counts[paired[j].name] -= 1
                if paired[j].name == item.name:
                    break
                alone.append(j)
            for k in (j, i):
                paired[k] = paired[k]._replace(name=f"{item.name} {i}")
    for j in alone + open_tags:
        paired[j] = paired[j]._replace(kind=ALONE)
    return paired


def join_codes(items: Sequence[Item]) -> list[Item]:
    """Joins adjacent lone codes, and pairs without words, into one code.

    The names of pairs must be unique.
    """
    words, opens = 0, dict[str, tuple[int, int]]()
    change = [0] * (len(items) + 1)  # of the number of such pairs around items
    for i, item in enumerate(items):
        words += item.kind == TEXT or item.kind == ACCELERATOR
        if item.kind == OPEN:
            opens[item.name] = i, words
        elif item.kind == CLOSE and item.name in opens:
            begin, before = opens[item.name]
            if before == words:
                change[begin] += 1
                change[i + 1] -= 1
    depths = itertools.accumulate(change[:-1])
    alone = [
        d > 0 or i.kind == ALONE for i, d in zip(items, depths, strict=True)
    ]
    grouped = itertools.groupby(
        zip(items, alone, strict=True), key=lambda pair: pair[1]
    )
    found: list[Item] = []
    for is_alone, pairs in grouped:
        group = [item for item, _ in pairs]
        found += [code(group)] if is_alone else group
    return found


def code(items: Sequence[Item]) -> Item:
    """Joins items into one `ALONE` code, `NARROW` if it has tags alone."""
    name = NARROW * all(
        item.kind in (OPEN, CLOSE) or item.name == NARROW for item in items
    )
    return Item(joined([item.raw for item in items]), "", ALONE, name)
