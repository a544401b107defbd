"""Placement of a sentence's markup in its translation, by alignment.

A pair of tags encloses one range of the translation: the range with the most
words that translate its words, and the fewest others. Ranges nest as in the
source, so the result is well-formed for any alignment.
"""

import bisect
import dataclasses
import itertools
import typing
from collections.abc import Sequence

import regex

from keras_transformer.documents.items import ACCELERATOR, ALONE, CLOSE, OPEN
from keras_transformer.translation.alignment import SpanLink, word_spans

# The scripts of Chinese, Japanese and Korean.
NO_KEYS = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}]")
OPENING = "([{<\"'\u00ab\u201e\u201c"
CLOSING = ".,;:!?)]}>\"'\u00bb\u201d\u2026\u3001\u3002\uff01\uff0c\uff1f"


class Mark(typing.NamedTuple):
    """A tag or another code in a sentence."""

    raw: str  # as the document writes it
    kind: str  # `OPEN`, `CLOSE`, `ALONE` or `ACCELERATOR`
    name: str  # `OPEN` and `CLOSE` of the same name are a pair
    place: int  # the position in the sentence's text, in characters
    before: str  # the document's character before it, or ""
    after: str  # the character after it, or ""


class Edit(typing.NamedTuple):
    """A text to insert in place of `removed` characters."""

    offset: int
    removed: int  # number of characters that it replaces
    text: str


@dataclasses.dataclass
class _Range:
    """A pair of tags, or a mark that stands alone, with its place.

    `begin` and `end` are offsets in the source, in characters. The range holds
    the links `first` to `last - 1`.
    """

    begin: int
    end: int
    mark: Mark | None = None
    close: Mark | None = None
    inner: list["_Range"] = dataclasses.field(default_factory=list)
    first: int = 0
    last: int = 0
    after_link: bool = False

    @property
    def alone(self):
        return self.mark is not None and self.mark.kind == ALONE

    @property
    def starts_earlier(self):
        return self.mark is None and self.close is not None

    @property
    def ends_later(self):
        return self.mark is not None and not (self.alone or self.close)


def insert_marks(
    text: str,
    marks: Sequence[Mark],
    translation: str,
    links: Sequence[SpanLink],
) -> list[Edit]:
    """Finds where the marks of a sentence belong in its translation.

    The marks are in order, and pairs are nested. A range from an earlier
    sentence has only its `CLOSE`; a range into a later sentence has only its
    `OPEN`. Returns one `Edit` per mark; those at the same offset are in order.
    """
    if not marks:
        return []
    links = sorted(links, key=lambda link: link.target)
    root = _nest([m for m in marks if m.kind != ACCELERATOR], len(text))
    root.last = len(links)
    _place(root, links, text, translation)
    return _write(root, links, translation) + [
        _accelerator(mark, translation, links)
        for mark in marks
        if mark.kind == ACCELERATOR
    ]


def _accelerator(mark, translation, links):
    """Marks the key where the translation of its word begins.

    If the source has the key in brackets, the mark is before this letter. In
    Chinese, Japanese and Korean, the key is in brackets after the last word.
    """
    sign = accelerator_sign(mark.raw, mark.name)
    if NO_KEYS.search(translation):
        end = len(
            translation.rstrip(" .:!?\u2026\u3000\u3002\uff01\uff1a\uff1f")
        )
        return Edit(end, 0, f"({sign}{mark.name.upper()})")
    if sign != mark.raw:
        for before in (r"\b", ""):
            if key := regex.search(before + mark.name, translation, regex.I):
                return Edit(key.start(), 0, sign)
    words = [link for link in links if translation[link.target[0]].isalpha()]
    if not words:
        return Edit(0, 0, sign)
    nearest = min(words, key=lambda w: abs(w.source[0] - mark.place))
    return Edit(nearest.target[0], 0, sign)


def accelerator_sign(raw: str, key: str) -> str:
    """Returns the sign of a mark that may be in brackets.

    >>> accelerator_sign("(&F)", "F"), accelerator_sign("_", "F")
    ('&', '_')
    """
    return raw.strip().strip("()\uff08\uff09").removesuffix(key)


def proportional_links(text: str, translation: str) -> list[SpanLink]:
    """Links the words and punctuation at the same relative positions."""
    source, target = word_spans(text), word_spans(translation)
    return [
        SpanLink(source[i * len(source) // len(target)], span)
        for i, span in enumerate(target)
    ]


def _nest(marks, length):
    root = _Range(0, length)
    open_ranges = [root]
    for mark in marks:
        top = open_ranges[-1]
        if mark.kind == OPEN:
            found = _Range(mark.place, length, mark)
            top.inner.append(found)
            open_ranges.append(found)
        elif mark.kind != CLOSE:
            top.inner.append(_Range(mark.place, mark.place, mark))
        elif top.mark and top.mark.name == mark.name:
            top.end, top.close = mark.place, mark
            open_ranges.pop()
        else:  # it began in an earlier sentence and holds everything so far
            top.inner = [_Range(0, mark.place, None, mark, top.inner)]
    return root


def _place(root, links, text, translation):
    """Sets `first` and `last` of everything inside a range."""
    outers, sources = [root], _Sources(links)
    for outer in outers:
        free = [(outer.first, outer.last)]
        ranges = [r for r in outer.inner if not r.alone]
        # Ranges with a fixed edge choose first, then the longest.
        ranges.sort(
            key=lambda r: (
                not (r.starts_earlier or r.ends_later),
                r.begin - r.end,
            )
        )
        for found in ranges:
            _choose(found, free, outer, links, sources)
            _trim(found, links, text, translation)
            if found.first < found.last:  # then it is inside one stretch
                i = bisect.bisect(free, (found.first, len(links) + 1)) - 1
                begin, end = free[i]
                free[i : i + 1] = [(begin, found.first), (found.last, end)]
        for found in outer.inner:
            if found.alone:
                _choose_gap(found, free, outer, links)
        outers += ranges  # no recursion: a hostile text may have any depth


def _choose(found, free, outer, links, sources):
    """Chooses the free stretch with most links of the range, fewest others.

    Without a link from the range, it chooses the nearest word, so that a range
    with text never becomes empty. A range that extends beyond the sentence
    keeps that edge of the sentence.
    """
    if found.starts_earlier:
        free = [part for part in free if part[0] == outer.first]
        found.first = found.last = outer.first
    elif found.ends_later:
        free = [part for part in free if part[1] == outer.last]
        found.first = found.last = outer.last
    best = 0
    own = sources.find(found.begin, found.end)
    for begin, end in free:
        value, first, read = 0, begin, begin
        inside = own[
            bisect.bisect_left(own, begin) : bisect.bisect_left(own, end)
        ]
        for i in [*inside, end]:
            value -= i - read  # links of other ranges
            if value < 0 and not found.starts_earlier:
                value, first = 0, i
            value, read = value + (i < end), i + 1
            if value > best and (i == end or not found.ends_later):
                best, found.first, found.last = value, first, min(read, end)
    if best or found.starts_earlier or found.ends_later:
        return
    words = [i for begin, end in free for i in range(begin, end)]
    if words and found.begin < found.end:
        found.first = min(
            words, key=lambda i: abs(links[i].source[0] - found.begin)
        )
        found.last = found.first + 1
    else:
        _choose_gap(found, free, outer, links)


def _trim(found, links, text, translation):
    """Leaves out signs at the edges, such as a full stop, if the text has none.

    A range that extends beyond the sentence keeps that edge.
    """
    if found.starts_earlier or found.ends_later or found.begin == found.end:
        return

    def is_extra(i: int, edge: str, signs: str) -> bool:
        is_long = found.last - found.first > 1 and edge.isalnum()
        return is_long and translation[links[i].target[0]] in signs

    while is_extra(found.last - 1, text[found.end - 1], CLOSING):
        found.last -= 1
    while is_extra(found.first, text[found.begin], OPENING):
        found.first += 1


class _Sources:
    """An index of links by source, which finds the links from a range fast."""

    def __init__(self, links):
        self._links = links
        self._order = sorted(range(len(links)), key=lambda i: links[i].source)
        spans = [links[i].source for i in self._order]
        self._begins = [begin for begin, _ in spans]
        self._ends = list(itertools.accumulate((e for _, e in spans), max))

    def find(self, begin: int, end: int) -> list[int]:
        """Returns the indices, in order, of the links from words in a range."""
        first = bisect.bisect_right(self._ends, begin)
        beyond = bisect.bisect_left(self._begins, end)
        found = ((i, *self._links[i].source) for i in self._order[first:beyond])
        return sorted(i for i, b, e in found if max(b, begin) < min(e, end))


def _choose_gap(found, free, outer, links):
    """Chooses the free gap between links for a place in the source.

    The gap is the nearest one to the link whose source is nearest to the place:
    before a link that begins at the place or later, after any other. Of two
    links that are equally near, the one after the place is used.
    """
    place = found.begin

    def distance(i: int) -> tuple[int, int]:
        begin, end = links[i].source
        if begin >= place:
            return begin - place, 0
        return place - end if end <= place else 0, 1

    candidates = range(outer.first, outer.last)
    if not candidates:
        found.first = found.last = outer.first
        return
    nearest = min(candidates, key=distance)
    found.after_link = bool(distance(nearest)[1])
    wanted = nearest + found.after_link
    gaps = [g for begin, end in free for g in range(begin, end + 1)]
    gap = min(gaps, key=lambda g: abs(g - wanted))
    found.first = found.last = gap


def _write(root, links, translation):
    """Returns the edits of everything inside a range, in order."""
    edits: list[Edit] = []
    code = Edit(-1, 0, "")  # the last mark that stands alone

    def begin_of(gap: int) -> int:
        return links[gap].target[0] if gap < len(links) else len(translation)

    def end_of(gap: int) -> int:
        return links[gap - 1].target[1] if gap else 0

    pending = [(root, root)]  # (outer range, inner range or closing edit)
    while pending:
        outer, found = pending.pop()
        least = edits[-1].offset if edits else 0
        if isinstance(found, Edit):
            edits.append(found._replace(offset=max(found.offset, least)))
            continue
        empty = found.first == found.last
        after = found.after_link or found.first == outer.last
        offset = (end_of if empty and after else begin_of)(found.first)
        if found.alone:
            offset = max(offset, least)
            before = translation[:offset] if code.offset < offset else code.text
            spaced = _spaced(found.mark, before, translation[offset:])
            code = Edit(offset, 0, spaced)
            edits.append(code)
            continue
        if found.mark:
            edits.append(Edit(max(offset, least), 0, found.mark.raw))
        if found.close:
            end = offset if empty else end_of(found.last)
            pending.append((found, Edit(end, 0, found.close.raw)))
        inner = sorted(found.inner, key=lambda r: (r.first, r.last))
        pending += [(found, inside) for inside in reversed(inner)]
    return edits


def _spaced(mark, before, after):
    """Returns the text of an `ALONE` mark, with spaces where it needs them."""
    apart = [
        (before[-1:], mark.before, OPENING),
        (after[:1], mark.after, CLOSING),
    ]
    spaces = [
        " "
        if (there.isalnum() and not here.isalnum())
        or (here == " " and there.strip() and there not in attached)
        else ""
        for there, here, attached in apart
    ]
    return spaces[0] + mark.raw + spaces[1]
