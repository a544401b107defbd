"""Sentences of a document, with the markup that they carry."""

import bisect
import collections
import itertools
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence

import regex

from keras_transformer.data.languages import base_language
from keras_transformer.documents.messages import DEEPEST, find_messages
from keras_transformer.documents.pieces import (
    Block,
    Left,
    Written,
    joined,
    write,
)
from keras_transformer.documents.placeholders import (
    PLACEHOLDER,
    PROSE,
    added_placeholders,
    keeps_order,
    keeps_placeholders,
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
from keras_transformer.translation.alignment import SpanLink, word_spans
from keras_transformer.translation.glossary import SPACELESS

TEXT, SPACE = "text", "space"
CODES = (OPEN, CLOSE, ALONE, ACCELERATOR)
LONGEST = 10_000  # characters in which sentencex finds sentences at once
WORD = regex.compile(r"([ \t\r\n\f\v]+)|([^ \t\r\n\f\v]+)")
LINE_BREAK = regex.compile(r"[\r\n\v\f\x85\u2028\u2029]|\\[Nn]")
# What no script writes: it stays. The model would take long for it.
LONG_WORD = regex.compile(rf"[^\W{SPACELESS}]{{200,}}+")
# Where a sentence that is too long may be divided, best first.
DIVISIONS = (
    regex.compile(
        r"[,;:\u2013\u2014]\s++|[\u3001\uff0c\uff1b\uff1a\u060c\u061b]\s*+"
    ),
    regex.compile(r"\s++"),
)


class Item(typing.NamedTuple):
    """A part of a document's text."""

    raw: typing.Any  # as the document writes it; a piece of the document
    text: str  # as the model reads it: "" for markup, " " for white space
    # `TEXT`, `SPACE`, or one of `CODES`: a tag that opens or closes a range, a
    # code that stands alone, the mark of an accelerator key.
    kind: str = TEXT
    name: str = ""  # of a tag: `OPEN` and `CLOSE` of the same name are a pair


def plain_items(text: str) -> list[Item]:
    """The words and white space of a plain text.

    >>> [item.raw for item in plain_items("a  rose")]
    ['a', '  ', 'rose']
    """
    return [
        Item(space, " ", SPACE) if space else Item(word, word)
        for space, word in WORD.findall(text)
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

    The model translates `text`; the document has `pieces` in its place.
    `escape` writes plain text as its format does; `kind` is of placeholders.
    """

    def __init__(
        self,
        items: Sequence[Item],
        escape: Callable[[str], str],
        kind: regex.Pattern = PROSE,
    ):
        self._escape, self._kind = escape, kind
        self._given = list(items)
        self._set(self._given)

    def _set(self, items):
        self._items = items
        self._begins, text = _join(self._items)
        self.text = text.rstrip(" ")
        is_last = bool(items) and self._items[-1].kind == ALONE
        # White space before a tag that closes.
        self._after = "" if is_last else text[len(self.text) :]
        self.pieces = [item.raw for item in self._items]

    @property
    def needs_alignment(self) -> bool:
        """Whether it has markup, whose places the alignment decides."""
        return any(item.kind in CODES for item in self._items)

    def keeps_placeholders(self, translation: str) -> bool:
        """Whether a translation has all placeholders, in a usable order."""
        given = self.text, translation, self._kind
        return keeps_placeholders(*given) and keeps_order(*given)

    def hide_placeholders(self) -> None:
        """Makes markup of the placeholders, which the text has no more."""
        self._set(_join_codes(_hide_placeholders(self._items, self._kind)))

    def show_placeholders(self) -> None:
        """Undoes `hide_placeholders`."""
        if self._items is not self._given:
            self._set(self._given)

    def write(self, written: Written) -> str:
        """The translation as the document writes it, markup included.

        The next of `written` is the translation of `text`, with the `SpanLink`s
        of its words; then sentences inside the markup follow. If it is `text`
        itself, or None, the result is what the document has.
        """
        translation, links = next(written)
        raws = write(self.pieces, written)
        if translation is None or translation == self.text:
            return "".join(raws)
        links = _whole_placeholders(
            links or proportional_links(self.text, translation), translation
        )
        marks = self._marks(raws)
        links = _links_of_characters(self.text, marks, translation, links)
        edits = [
            *insert_marks(self.text, marks, translation, links),
            *self._break_lines(translation),
            *itertools.starmap(
                Edit, added_placeholders(self.text, translation, self._kind)
            ),
        ]
        parts, read = [], 0
        for offset, removed, text in sorted(edits, key=lambda e: e.offset):
            parts += [self._escape(translation[read:offset]), text]
            read = max(read, offset + removed)
        return "".join([*parts, self._escape(translation[read:]), self._after])

    def _marks(self, raws):
        """The `Mark`s of the codes."""
        before = _neighbours(self._items, raws, -1)
        after = _neighbours(self._items[::-1], raws[::-1], 0)[::-1]
        return [
            Mark(
                getattr(raws[i], "translated", raws[i]),
                item.kind,
                item.name,
                place=min(self._begins[i], len(self.text)),
                before=before[i],
                after=after[i],
            )
            for i, item in enumerate(self._items)
            if item.kind in CODES
        ]

    def _break_lines(self, translation):
        """Yields an edit for each line break, at the proportional place."""
        whole = _placeholder_spans(translation)
        spaces = [
            match.start()
            for match in regex.finditer(" ", translation)
            if not _span_around(whole, match.start())
        ]
        used = 0
        for item, begin in zip(self._items, self._begins, strict=True):
            if item.kind == SPACE and LINE_BREAK.search(item.raw):
                wanted = begin * len(translation) / len(self.text)
                after = max(bisect.bisect(spaces, wanted), used)
                nearest = range(max(after - 1, used), after + 1)
                places = [i for i in nearest if i < len(spaces)]
                if not places:
                    return
                place = min(
                    places, key=lambda i, at=wanted: abs(spaces[i] - at)
                )
                used = place + 1
                yield Edit(spaces[place], 1, item.raw)


def _placeholder_spans(text, kind=PLACEHOLDER):
    return [match.span() for match in kind.finditer(text)]


def _span_around(spans, offset):
    """The span that has an offset, of spans in order; or None."""
    i = bisect.bisect(spans, (offset, len(spans) and spans[-1][1] + 1)) - 1
    return spans[i] if i >= 0 and offset < spans[i][1] else None


def _whole_placeholders(links, translation):
    """The links; those from inside a placeholder are from all of it."""
    spans = _placeholder_spans(translation)
    return [
        link._replace(target=_span_around(spans, link.target[0]) or link.target)
        for link in links
    ]


def _links_of_characters(text, marks, translation, links):
    """The links; a word with a mark inside is linked character by character.

    That is if the translation has the same word, in any case.
    """
    inside = {mark.place for mark in marks if mark.kind != ACCELERATOR}
    if not inside:
        return links
    found = collections.defaultdict(list)
    for begin, end in word_spans(translation):
        found[translation[begin:end].casefold()].append((begin, end))
    sources: set[int] = set()  # where characters of such words are
    targets: set[int] = set()
    new = []
    for begin, end in word_spans(text):
        others = found[text[begin:end].casefold()]
        if not others or inside.isdisjoint(range(begin + 1, end)):
            continue
        first, last = others.pop(0)
        if last - first != end - begin:
            continue
        for i, j in zip(range(begin, end), range(first, last), strict=True):
            new.append(SpanLink((i, i + 1), (j, j + 1)))
        sources.update(range(begin, end))
        targets.update(range(first, last))
    return new + [
        link
        for link in links
        if link.source[0] not in sources and link.target[0] not in targets
    ]


def _neighbours(items, raws, side):
    """The character of the text before each item; tags have none."""
    last, found = "", []
    for item, raw in zip(items, raws, strict=True):
        found.append(last)
        if item.kind not in (OPEN, CLOSE):
            last = (item.text or raw)[side:][:1]
    return found


def _join(items):
    """Where each item begins in the text that the model reads, and the text.

    White space is one space: none at the start, or before a code and a sign
    such as ".". A code between two words keeps them apart.
    """
    begins, parts, length, apart = [], [], 0, False
    last = ""
    for i, item in enumerate(items):
        text = item.text
        if item.kind == SPACE and (
            last in ("", " ") or _is_before_sign(items, i + 1)
        ):
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


def _is_before_sign(items, first):
    """Whether codes begin at an index, and then a sign that has no space."""
    for i in range(first, len(items)):
        if items[i].kind not in (OPEN, CLOSE, ALONE):
            kinds = {item.kind for item in items[first:i]}
            return ALONE in kinds and items[i].text[:1] in tuple(".,;:!?)")
    return False


def _divide(items, begins, offsets):
    """The items, with texts divided at offsets of the joined text."""
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


def _hide_placeholders(items, kind):
    """The items, with each placeholder as one code that stands alone.

    One with a tag inside it stays text.
    """
    begins, text = _join(items)
    spans = _placeholder_spans(text, kind)
    items = _divide(items, begins, [o for span in spans for o in span])
    begins, _ = _join(items)
    shown, read = [], 0
    for begin, end in spans:
        first = bisect.bisect_left(begins, begin)
        while first == len(begins) or begins[first] > begin:
            first -= 1  # it begins inside of what cannot be divided
        last = bisect.bisect_left(begins, end)
        # White space and codes that are not in the text may begin there, too.
        while not items[first].text or items[first].kind == SPACE:
            first += 1
        while not items[last - 1].text:
            last -= 1
        hidden = items[first:last]
        if not any(item.kind in CODES for item in hidden):
            shown += [*items[read:first], _code(hidden)]
            read = last
    return shown + items[read:]


# From items to what `split` makes of them.
Split = Callable[..., list]


def split(
    items: Iterable[Item],
    escape: Callable[[str], str] = str,
    *,
    language: str,
    fits: Callable[[str], bool],
    depth: int = 0,
    placeholders: regex.Pattern = PROSE,
) -> list:
    """The pieces of a stretch of text: sentences, and what is between them.

    Together they have all items in order. `escape` is as of a `Sentence`,
    `language` a code, such as "en". A text that the model cannot read, by
    `fits`, is divided, at clause marks if there are any. `depth` counts ICU's
    messages around it; `placeholders` is their kind.
    """

    def split_branch(items: Iterable[Item]) -> list:
        return split(
            items,
            escape,
            language=language,
            fits=fits,
            depth=depth + 1,
            placeholders=placeholders,
        )

    items = list(items)
    if depth < DEEPEST:
        items = _join_messages(items, split_branch)
    items = _join_codes(_pair(items))
    begins, text = _join(items)
    offsets = [
        offset
        for begin, end in _sentence_spans(text, language)
        for offset in [begin, *_divisions(text, begin, end, fits)]
    ]
    whole = _placeholder_spans(text, placeholders)
    offsets = [o for o in offsets if (_span_around(whole, o) or (o, o))[0] == o]
    items = _divide(items, begins, offsets)
    begins, _ = _join(items)
    pieces: list = []
    group: list[Item] = []
    ends = iter([*offsets[1:], None])
    end = next(ends)
    for item, begin in zip(items, begins, strict=True):
        # A tag that closes stays with the sentence before it.
        if end is not None and begin >= end and (item.kind != CLOSE):
            pieces += _sentence(group, escape, placeholders)
            group = []
            end = next(e for e in ends if e is None or e > begin)
        group.append(item)
    return pieces + _sentence(group, escape, placeholders)


def _join_messages(items, split_branch):
    """The items, with each of ICU's messages as a code that stands alone."""
    begins, text = _join_with_signs(items)
    messages = list(find_messages(text))
    if not messages:
        return items
    cuts = set()
    for begin, end, branches, has_number in messages:
        cuts |= {begin, *itertools.chain(*branches)}
        if has_number:
            numbers = regex.finditer("#", text, pos=begin, endpos=end)
            cuts.update(*(match.span() for match in numbers))
    items = _divide(items, begins, sorted(cuts))
    begins, _ = _join_with_signs(items)

    def between(begin: int, end: int) -> list[Item]:
        first, last = (bisect.bisect_left(begins, at) for at in (begin, end))
        return items[first:last]

    found, read = [], 0
    for first, last, branches, has_number in messages:
        found += between(read, first)
        pieces, read = [], first
        for begin, end in branches:
            pieces += [item.raw for item in between(read, begin)]
            pieces += split_branch(
                _code([item]) if has_number and item.raw == "#" else item
                for item in between(begin, end)
            )
            read = end
        pieces += [item.raw for item in between(read, last)]
        found.append(_code([Item(Block(pieces), "")]))
        read = last
    return found + between(read, len(text))


def _join_with_signs(items):
    """Where each item begins in the joined text, where a code is one sign."""
    texts = [item.text or "\ufffc" for item in items]
    begins = itertools.accumulate(map(len, texts), initial=0)
    return list(begins)[: len(items)], "".join(texts)


def _pair(items):
    """The items, each pair of tags with a unique name.

    Tags without a partner, or that cross another pair, stand alone.
    """
    items = list(items)
    open_tags: list[int] = []
    counts: collections.Counter[str] = collections.Counter()
    alone = []
    for i, item in enumerate(items):
        if item.kind == OPEN:
            open_tags.append(i)
            counts[item.name] += 1
        elif item.kind == CLOSE and not counts[item.name]:
            alone.append(i)
        elif item.kind == CLOSE:
            while True:
                j = open_tags.pop()
                counts[items[j].name] -= 1
                if items[j].name == item.name:
                    break
                alone.append(j)
            for k in (j, i):
                items[k] = items[k]._replace(name=f"{item.name} {i}")
    for j in alone + open_tags:
        items[j] = items[j]._replace(kind=ALONE)
    return items


def _join_codes(items):
    """The items; neighbours that stand alone, and pairs without words, as one.

    The names of pairs are unique.
    """
    words, opens = 0, {}
    change = [0] * (len(items) + 1)  # in how many such pairs the item is
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
    found = []
    for is_alone, pairs in grouped:
        group = [item for item, _ in pairs]
        found += [_code(group)] if is_alone else group
    return found


def _code(items):
    """Items as one code that stands alone."""
    return Item(joined([item.raw for item in items]), "", ALONE)


def _sentence_spans(text, language):
    """Begin and end of each sentence of a text.

    A part at a time: sentencex takes the square of a run of signs. The last
    sentence of a part may go on, so it is read again with the next one.
    """
    import sentencex  # an extra

    spans: list[tuple[int, int]] = []
    read = 0
    while read < len(text):
        end = min(read + LONGEST, len(text))
        if end < len(text):
            end = text.rfind(" ", read, end) + 1 or end
        found = [
            (read + found["start_index"], read + found["end_index"])
            for found in sentencex.get_sentence_boundaries(
                base_language(language), text[read:end]
            )
        ]
        is_last = end == len(text)
        read = end
        if not is_last and len(found) > 1:
            read, _ = found.pop()
        spans += found
    return spans


def _divisions(text, begin, end, fits):
    """Where to divide a sentence so that its parts fit: offsets in order.

    The best division is at the clause mark nearest to the middle, else at white
    space; text without any is divided between characters.
    """
    part = text[begin:end].strip(" ")
    if end - begin < 2 or LONG_WORD.fullmatch(part) or fits(part):
        return []
    middle = (begin + end) / 2
    best = int(middle)
    for pattern in DIVISIONS:
        offsets = [
            match.end()
            for match in pattern.finditer(text, begin, end)
            if begin < match.end() < end
        ]
        if offsets:
            best = min(offsets, key=lambda offset: abs(offset - middle))
            break
    return [
        *_divisions(text, begin, best, fits),
        best,
        *_divisions(text, best, end, fits),
    ]


def _sentence(items, escape, kind):
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
    raws = [item.raw for item in items]
    sentence = Sentence(items[first:last], escape, kind)
    words = LONG_WORD.sub("", kind.sub("", sentence.text))
    if any(map(str.isalpha, words)):
        return [*raws[:first], sentence, *raws[last:]]
    inside = joined(raws[first:last])
    if isinstance(inside, str) and sentence.text:
        inside = Left(inside, "without words")
    return [*raws[:first], inside, *raws[last:]]
