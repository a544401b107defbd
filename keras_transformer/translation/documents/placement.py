"""Puts the markup of a sentence into its translation, by alignment.

A pair of tags is one range of the translation and stays one: the range that
holds most of the words that translate its words, and fewest others. Ranges nest
as in the source, so that the result is well-formed for any alignment.
"""

import dataclasses
import itertools
import typing
from collections.abc import Sequence

from keras_transformer.translation.alignment import SpanLink, word_spans

OPEN, CLOSE, ALONE, ACCELERATOR = "open", "close", "alone", "accelerator"


class Mark(typing.NamedTuple):
    """Markup that a sentence carries.

    Attributes:
        raw: As the document writes it.
        kind: `OPEN`, `CLOSE`, `ALONE` or `ACCELERATOR`.
        name: `OPEN` and `CLOSE` of the same name are a pair.
        place: The position in the sentence's text, in characters.
        before: The character that the document has before it, or "".
        after: The character after it, or "".
    """

    raw: str
    kind: str
    name: str
    place: int
    before: str
    after: str


class Edit(typing.NamedTuple):
    """A text to insert, in place of some characters.

    Attributes:
        offset: The position.
        removed: Number of characters that it replaces.
        text: The text.
    """

    offset: int
    removed: int
    text: str


@dataclasses.dataclass
class _Range:
    """A pair of tags, or a mark that stands alone, with its place.

    `begin` and `end` count characters of the source, `first` and `last` links:
    the range holds the links `first` to `last - 1`.
    """

    begin: int
    end: int
    mark: Mark | None = None
    close: Mark | None = None
    starts_earlier: bool = False
    ends_later: bool = False
    inner: list["_Range"] = dataclasses.field(default_factory=list)
    first: int = 0
    last: int = 0
    after_link: bool = False

    @property
    def alone(self):
        return self.mark is not None and self.mark.kind == ALONE


def insert_marks(
    text: str,
    marks: Sequence[Mark],
    translation: str,
    links: Sequence[SpanLink],
) -> list[Edit]:
    """Where the marks of a sentence belong in its translation.

    Args:
        text: The sentence.
        marks: Its `Mark`s in order. Pairs are nested; a range that begins in an
            earlier sentence has only its `CLOSE`, one that ends in a later
            sentence only its `OPEN`.
        translation: The translation.
        links: Its `SpanLink`s.

    Returns:
        The `Edit`s, each mark once. Those at the same offset are in order.
    """
    if not marks:
        return []
    links = sorted(links, key=lambda link: link.target)
    root = _nest([m for m in marks if m.kind != ACCELERATOR], len(text))
    root.last = len(links)
    _place(root, links)
    edits: list[Edit] = []
    _write(root, links, translation, edits)
    return edits + [
        Edit(_accelerator_offset(mark, translation, links), 0, mark.raw)
        for mark in marks
        if mark.kind == ACCELERATOR
    ]


def _accelerator_offset(mark, translation, links):
    """The beginning of the word that translates the accelerator's word."""
    words = [link for link in links if translation[link.target[0]].isalnum()]
    if not words:
        return 0
    return min(words, key=lambda w: abs(w.source[0] - mark.place)).target[0]


def proportional_links(text: str, translation: str) -> list[SpanLink]:
    """Links of the words and signs at the same relative positions."""
    source, target = word_spans(text), word_spans(translation)
    return [
        SpanLink(source[i * len(source) // len(target)], span)
        for i, span in enumerate(target)
    ]


def _nest(marks, length):
    """The tree of ranges of a sentence."""
    root = _Range(0, length)
    open_ranges = [root]
    for mark in marks:
        top = open_ranges[-1]
        if mark.kind == OPEN:
            found = _Range(mark.place, length, mark, ends_later=True)
            top.inner.append(found)
            open_ranges.append(found)
        elif mark.kind != CLOSE:
            top.inner.append(_Range(mark.place, mark.place, mark))
        elif top.mark and top.mark.name == mark.name:
            top.end, top.close, top.ends_later = mark.place, mark, False
            open_ranges.pop()
        else:  # it began in an earlier sentence and holds all that is so far
            whole = _Range(0, mark.place, None, mark, starts_earlier=True)
            whole.inner, top.inner = top.inner, [whole]
    return root


def _place(outer, links):
    """Finds `first` and `last` of everything inside a range."""
    free = [(outer.first, outer.last)]
    ranges = [r for r in outer.inner if not r.alone]
    # Ranges with a fixed edge choose first, then the longest.
    ranges.sort(
        key=lambda r: (not (r.starts_earlier or r.ends_later), r.begin - r.end)
    )
    for found in ranges:
        _choose(found, free, outer, links)
        _place(found, links)
        free = [
            part
            for begin, end in free
            for part in _without(begin, end, found.first, found.last)
        ]
    for found in outer.inner:
        if found.alone:
            _choose_gap(found, free, outer, links)


def _without(begin, end, first, last):
    """The parts of a free stretch that a range leaves, maybe empty."""
    if first == last or last <= begin or end <= first:
        return [(begin, end)]
    return [(begin, first), (last, end)]


def _choose(found, free, outer, links):
    """The free stretch with most links from the range and fewest others.

    Without a link from the range it is the nearest word, so that no range with
    text becomes an empty one. A range that goes beyond the sentence has an edge
    in common with it.
    """
    if found.starts_earlier:
        free = [part for part in free if part[0] == outer.first]
        found.first = found.last = outer.first
    elif found.ends_later:
        free = [part for part in free if part[1] == outer.last]
        found.first = found.last = outer.last
    is_empty = found.begin == found.end
    values = [
        1 if _is_from(link, found) and not is_empty else -1 for link in links
    ]
    sums = [0, *itertools.accumulate(values)]
    stretches = [
        (sums[last] - sums[first], first, last)
        for begin, end in free
        for first in ([begin] if found.starts_earlier else range(begin, end))
        for last in ([end] if found.ends_later else range(first + 1, end + 1))
    ]
    value, first, last = max(stretches, default=(0, 0, 0), key=lambda s: s[0])
    goes_beyond = found.starts_earlier or found.ends_later
    if value > 0:
        found.first, found.last = first, last
    elif not goes_beyond and (is_empty or not stretches):
        _choose_gap(found, free, outer, links)
    elif not goes_beyond:
        words = [i for begin, end in free for i in range(begin, end)]
        found.first = min(
            words, key=lambda i: abs(links[i].source[0] - found.begin)
        )
        found.last = found.first + 1


def _is_from(link, found):
    """Whether a link is from a word inside a range of the source."""
    return link.source[0] < found.end and link.source[1] > found.begin


def _choose_gap(found, free, outer, links):
    """The gap between links that is nearest to a place of the source.

    It is beside the link whose source is nearest; of two, before the one that
    follows.
    """
    place = found.begin

    def distance(i):
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


def _write(outer, links, translation, edits):
    """Appends the edits of everything inside a range, in order."""

    def add(offset, text):
        if edits:
            offset = max(offset, edits[-1].offset)
        edits.append(Edit(offset, 0, text))

    def begin_of(gap):
        return links[gap].target[0] if gap < len(links) else len(translation)

    def end_of(gap):
        return links[gap - 1].target[1] if gap else 0

    for found in sorted(outer.inner, key=lambda r: (r.first, r.last)):
        empty = found.first == found.last
        after = found.after_link or found.first == outer.last
        offset = (end_of if empty and after else begin_of)(found.first)
        if found.alone:
            if edits:
                offset = max(offset, edits[-1].offset)
            add(offset, _spaced(found.mark, offset, translation, edits))
            continue
        if found.mark:
            add(offset, found.mark.raw)
        _write(found, links, translation, edits)
        if found.close:
            add(offset if empty else end_of(found.last), found.close.raw)


def _spaced(mark, offset, translation, edits):
    """A mark that stands alone, with the spaces that keep it apart."""
    before, after = translation[:offset][-1:], translation[offset:][:1]
    if edits and edits[-1].offset == offset:
        before = edits[-1].text[-1:]
        needs_before = mark.before == " " and before != " "
    else:
        needs_before = before.isalnum() and not mark.before.isalnum()
    needs_after = after.isalnum() and not mark.after.isalnum()
    return " " * needs_before + mark.raw + " " * needs_after
