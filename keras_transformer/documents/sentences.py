"""Sentences of a document, with the markup that they carry."""

import bisect
import collections
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence

import regex

from keras_transformer.documents.placeholders import (
    PLACEHOLDER,
    count_placeholders,
)
from keras_transformer.documents.placement import (
    ACCELERATOR,
    ALONE,
    CLOSE,
    OPEN,
    Edit,
    Mark,
    insert_marks,
    proportional_links,
)
from keras_transformer.translation.alignment import SpanLink

TEXT, SPACE = "text", "space"
CODES = (OPEN, CLOSE, ALONE, ACCELERATOR)
# Where a sentence that is too long may be divided, best first.
DIVISIONS = (
    regex.compile(
        r"[,;:\u2013\u2014]\s+|[\u3001\uff0c\uff1b\uff1a\u060c\u061b]\s*"
    ),
    regex.compile(r"\s+"),
    regex.compile(r"(?<=.)(?=.)", regex.DOTALL),
)


class Item(typing.NamedTuple):
    """A part of a document's text.

    Attributes:
        raw: As the document writes it.
        text: As the model reads it: "" for markup, " " for white space.
        kind: `TEXT`, `SPACE`, or one of `CODES`: a tag that opens or closes a
            range, a code that stands alone, the mark of an accelerator key.
        name: Of a tag: `OPEN` and `CLOSE` of the same name are a pair.
    """

    raw: str
    text: str
    kind: str = TEXT
    name: str = ""


def plain_items(text: str) -> list[Item]:
    """The words and white space of a plain text.

    >>> [item.raw for item in plain_items("a  rose")]
    ['a', '  ', 'rose']
    """
    return [
        Item(space, " ", SPACE) if space else Item(word, word)
        for space, word in regex.findall(
            r"([ \t\r\n\f\v]+)|([^ \t\r\n\f\v]+)", text
        )
    ]


def separate(text: str, separator: regex.Pattern) -> Iterator[tuple[str, str]]:
    """Yields the stretches of a text, each with the separator after it."""
    read = 0
    for match in separator.finditer(text):
        yield text[read : match.start()], match.group()
        read = match.end()
    yield text[read:], ""


class Sentence:
    """A sentence, or a part of one, and its place in the document.

    Args:
        items: Its `Item`s.
        escape: Writes plain text as the document's format does.

    Attributes:
        text: What the model translates.
    """

    def __init__(self, items: Sequence[Item], escape: Callable[[str], str]):
        self._items = list(items)
        self._escape = escape
        self._begins, text = _join(self._items)
        self.text = text.rstrip(" ")

    @property
    def needs_alignment(self) -> bool:
        """Whether it has markup, whose places the alignment decides."""
        return any(item.kind in CODES for item in self._items)

    def keeps_placeholders(self, translation: str) -> bool:
        """Whether a translation has all placeholders of the text."""
        return count_placeholders(self.text) <= count_placeholders(translation)

    def without_placeholders(self) -> "Sentence":
        """The same sentence, with its placeholders as markup."""
        return Sentence(_hide_placeholders(self._items), self._escape)

    def write(self, translation: str, links: Sequence[SpanLink] = ()) -> str:
        """The translation as the document writes it, markup included.

        Args:
            translation: The translation of `text`. If it is `text` itself, the
                result is what the document has.
            links: The `SpanLink`s of its words, if it needs an alignment.
        """
        if translation == self.text:
            return _raw(self._items)
        links = _whole_placeholders(
            links or proportional_links(self.text, translation), translation
        )
        edits = [
            *insert_marks(self.text, list(self._marks()), translation, links),
            *self._break_lines(translation),
            *_remove_added(translation, self.text),
        ]
        parts, read = [], 0
        for offset, removed, text in sorted(edits, key=lambda e: e.offset):
            parts += [self._escape(translation[read:offset]), text]
            read = max(read, offset + removed)
        return "".join([*parts, self._escape(translation[read:])])

    def _marks(self):
        """Yields the `Mark`s of the codes."""
        for i, item in enumerate(self._items):
            if item.kind in CODES:
                yield Mark(
                    item.raw,
                    item.kind,
                    item.name,
                    place=min(self._begins[i], len(self.text)),
                    before=_neighbour(reversed(self._items[:i]))[-1:],
                    after=_neighbour(self._items[i + 1 :])[:1],
                )

    def _break_lines(self, translation):
        """Yields an edit for each line break, at the proportional place."""
        spaces = [m.start() for m in regex.finditer(" ", translation)]
        for item, begin in zip(self._items, self._begins, strict=True):
            if not spaces:
                return
            if item.kind == SPACE and regex.search(r"[\r\n]", item.raw):
                wanted = begin * len(translation) / len(self.text)
                place = min(spaces, key=lambda s, at=wanted: abs(s - at))
                spaces = [space for space in spaces if space > place]
                yield Edit(place, 1, item.raw)


def _whole_placeholders(links, translation):
    """The links; those from inside a placeholder are from all of it."""
    spans = [match.span() for match in PLACEHOLDER.finditer(translation)]
    begins = [begin for begin, _ in spans]
    whole = []
    for link in links:
        i = bisect.bisect(begins, link.target[0]) - 1
        if i >= 0 and link.target[0] < spans[i][1]:
            link = link._replace(target=spans[i])
        whole.append(link)
    return whole


def _neighbour(items):
    """The text beside a code; tags have none."""
    for item in items:
        if item.kind not in (OPEN, CLOSE):
            return item.text or item.raw
    return ""


def _remove_added(translation, text):
    """Yields an edit for each placeholder that the text does not have."""
    allowed = count_placeholders(text)
    for match in PLACEHOLDER.finditer(translation):
        allowed[match.group()] -= 1
        if allowed[match.group()] < 0:
            yield Edit(match.start(), len(match.group()), "")


def _join(items):
    """Where each item begins in the text that the model reads, and the text.

    White space is one space, and none at the beginning. A code between two
    words keeps them apart.
    """
    begins, parts, length, apart = [], [], 0, False
    last = ""
    for item in items:
        text = item.text
        if item.kind == SPACE and last in ("", " "):
            text = ""
        if apart and last.isalnum() and text[:1].isalnum():
            parts.append(" ")
            length += 1
        begins.append(length)
        parts.append(text)
        length += len(text)
        last = text[-1:] or last
        apart = item.kind == ALONE or (apart and not text)
    return begins, "".join(parts)


def _divide(items, offsets):
    """The items, with texts divided at offsets of the joined text."""
    begins, _ = _join(items)
    divided = []
    for item, begin in zip(items, begins, strict=True):
        if item.kind == TEXT and item.raw == item.text:
            inside = bisect.bisect_right(offsets, begin)
            beyond = bisect.bisect_left(offsets, begin + len(item.text))
            for offset in offsets[inside:beyond]:
                part = item.text[: offset - begin]
                divided.append(Item(part, part))
                rest = item.text[len(part) :]
                item, begin = Item(rest, rest), offset
        divided.append(item)
    return divided


def _hide_placeholders(items):
    """The items, with each placeholder as one code that stands alone.

    One with a tag inside it stays text.
    """
    _, text = _join(items)
    spans = [m.span() for m in PLACEHOLDER.finditer(text)]
    items = _divide(items, [offset for span in spans for offset in span])
    begins, _ = _join(items)
    for begin, end in reversed(spans):
        covered = [
            i
            for i, item in enumerate(items)
            # White space that is not in the text may begin there, too.
            if item.text and begin + (item.kind == SPACE) <= begins[i] < end
        ]
        hidden = items[covered[0] : covered[-1] + 1]
        if not any(item.kind in CODES for item in hidden):
            items[covered[0] : covered[-1] + 1] = [
                Item(_raw(hidden), "", ALONE)
            ]
    return items


# From items to what `split` makes of them.
Split = Callable[..., list["str | Sentence"]]


def split(
    items: Iterable[Item],
    escape: Callable[[str], str] = str,
    *,
    language: str,
    fits: Callable[[str], bool],
) -> list["str | Sentence"]:
    """The sentences of a stretch of text, and what stands between them.

    Args:
        items: The `Item`s of the text.
        escape: As of a `Sentence`.
        language: Code of the language, such as "en".
        fits: Whether the model can read a text; others are divided, at clause
            marks if there are any.

    Returns:
        Texts and `Sentence`s, which together have all items in order.
    """
    items = _pair(items)
    _, text = _join(items)
    offsets = [
        offset
        for begin, end in _sentence_spans(text, language)
        for offset in [begin, *_divisions(text, begin, end, fits)]
    ]
    whole = [match.span() for match in PLACEHOLDER.finditer(text)]
    offsets = [o for o in offsets if not any(b < o < e for b, e in whole)]
    items = _divide(items, offsets)
    begins, _ = _join(items)
    pieces: list[str | Sentence] = []
    group: list[Item] = []
    ends = iter([*offsets[1:], None])
    end = next(ends)
    for item, begin in zip(items, begins, strict=True):
        # A tag that closes stays with the sentence before it.
        if end is not None and begin >= end and (item.kind != CLOSE):
            pieces += _sentence(group, escape)
            group = []
            end = next(e for e in ends if e is None or e > begin)
        group.append(item)
    return pieces + _sentence(group, escape)


def _pair(items):
    """The items, each pair of tags with a unique name.

    Tags without a partner, or that cross another pair, stand alone.
    """
    items = list(items)
    open_tags = []
    alone = []
    for i, item in enumerate(items):
        if item.kind == OPEN:
            open_tags.append(i)
        elif item.kind == CLOSE:
            depths = reversed(range(len(open_tags)))
            same = (k for k in depths if items[open_tags[k]].name == item.name)
            depth = next(same, None)
            if depth is None:
                alone.append(i)
                continue
            alone += open_tags[depth + 1 :]
            for j in (open_tags[depth], i):
                items[j] = items[j]._replace(name=f"{item.name} {i}")
            del open_tags[depth:]
    for j in alone + open_tags:
        items[j] = items[j]._replace(kind=ALONE)
    return items


def _sentence_spans(text, language):
    """Begin and end of each sentence of a text."""
    import sentencex  # an extra

    return [
        (found["start_index"], found["end_index"])
        for found in sentencex.get_sentence_boundaries(language, text)
    ]


def _divisions(text, begin, end, fits):
    """Where to divide a sentence so that its parts fit: offsets in order.

    The best division is at the clause mark nearest to the middle, else at white
    space; text without any is divided between characters.
    """
    if end - begin < 2 or fits(text[begin:end].strip(" ")):
        return []
    middle = (begin + end) / 2
    for pattern in DIVISIONS:
        offsets = [
            match.end()
            for match in pattern.finditer(text, begin, end)
            if begin < match.end() < end
        ]
        if offsets:
            best = min(offsets, key=lambda offset: abs(offset - middle))
            return [
                *_divisions(text, begin, best, fits),
                best,
                *_divisions(text, best, end, fits),
            ]
    return []


def _sentence(items, escape):
    """A sentence, and apart from it the white space and tags at its edges.

    Text without letters needs no translation.
    """
    tags = collections.Counter(
        item.name for item in items if item.kind in (OPEN, CLOSE)
    )

    def is_apart(item: Item) -> bool:
        """Whether it is no text, nor a tag of a pair inside the sentence."""
        is_tag = item.kind in (OPEN, CLOSE)
        return item.kind in (SPACE, ALONE) or (is_tag and tags[item.name] < 2)

    first, last = 0, len(items)
    while first < last:
        begins, ends = items[first], items[last - 1]
        if is_apart(begins):
            first += 1
        elif is_apart(ends):
            last -= 1
        elif begins.kind == OPEN and ends[2:] == (CLOSE, begins.name):
            first, last = first + 1, last - 1
        else:
            break
    sentence = Sentence(items[first:last], escape)
    words = PLACEHOLDER.sub("", sentence.text)
    if not any(character.isalpha() for character in words):
        return [_raw(items)]
    return [_raw(items[:first]), sentence, _raw(items[last:])]


def _raw(items):
    """Items as the document writes them."""
    return "".join(item.raw for item in items)
