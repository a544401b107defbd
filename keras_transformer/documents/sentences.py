"""The sentences of a document, with the markup inside them."""

import bisect
import collections
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

import regex

from keras_transformer.data.languages import base_language
from keras_transformer.documents.items import (
    ACCELERATOR,
    ALONE,
    CLOSE,
    CODES,
    END,
    OPEN,
    SPACE,
    TEXT,
    Item,
    code,
    divide,
    join,
    join_codes,
    pair_tags,
)
from keras_transformer.documents.messages import DEEPEST, find_messages
from keras_transformer.documents.pieces import (
    Block,
    Left,
    Piece,
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
    Edit,
    Mark,
    insert_marks,
    proportional_links,
)
from keras_transformer.translation.alignment import SpanLink, word_spans
from keras_transformer.translation.glossary import SPACELESS

Span = tuple[int, int]  # begin and end, in characters
LONGEST = 10_000  # characters that sentencex reads at once
LINE_BREAK = regex.compile(r"[\r\n\v\f\x85\u2028\u2029]|\\[Nnrtfv]")
# No script has words this long. They stay, since they would slow the model.
LONG_WORD = regex.compile(rf"[^\W{SPACELESS}]{{200,}}+")
# Where a sentence that is too long may be divided, best first.
DIVISIONS = (
    regex.compile(
        r"[,;:\u2013\u2014]\s++|[\u3001\uff0c\uff1b\uff1a\u060c\u061b]\s*+"
    ),
    regex.compile(r"\s++"),
)
# Words with a stop that sentencex takes for the end of a sentence in some
# languages: before a name, and before a number.
TITLES = (
    "M MM Mr Mrs Ms Mme Mmes Mlle Mlles Mgr Mag Dr Dra Drs Dott Prof Pr Ing Me"
    " St Ste Sv sv św Sr Sra Srta Sig sig dott Hr Hrn Fr Fru Frk Dhr Mevr mevr"
    " mw Dña Exmo ks inż mgr MUDr RNDr özv им ул акад проф dl dna Sf Doç"
    " Mt Ft vs cf inkl exkl zzgl"
)
COUNTED = (
    "p pp s n no nr num núm pag pág págs figs? abb afb obr rys ris ill рис стр"
    " с п ст гл табл ch chap cap kap sec sect abs art eq ref tab bd bl blz"
    " vols? approx ca kb č str pos"
)
# A stop that ends no sentence, before the sign \0, where sentencex ends one.
NO_END = regex.compile(
    rf"""(?<![\p{{L}}\p{{M}}\p{{N}}])(?:
        (?:{"|".join(TITLES.split())})\.\s*+\0\p{{Lu}}
      | (?i:{"|".join(COUNTED.split())})\.\s*+\0(?:\p{{Nd}}|[IVXLC]++\b)
      # Initials follow a name, another initial, or nothing.
      | (?:(?:\A|(?<=\p{{Lu}}[\p{{L}}.]{{0,20}}[ -]))\p{{Lu}}\.-?)\s*+\0
        (?!(?:L[aeo]s?|El|Ils?|Elle|Un\w?|De[nt]?|Het|[AO]s?)\s)\p{{Lu}}
      | (?<=\b[Dd](?:er|ie|as|em|en|es)\s|\b[IiAa]m\s|\b(?:[Zz]u[mr]|[Vv]om
        |[Uu]nd|[Bb]is|[Bb]eim)\s)\d{{1,2}}\.\s++\0
        (?!(?:D(?:er|ie|as|em|en|ann|a)|E(?:r|s|ine?)|Sie|Wir|Ich|I[mn]|A[mn]|Und
        |Aber|Doch)\b)\p{{Lu}}
      | \d++\.\s++\0\p{{Ll}}
      | (?<word>[\p{{L}}\p{{M}}.]{{1,5}})\.\s*+\0\p{{Ll}}
        (?!\p{{Ll}}{{0,9}}\p{{Lu}})
    ) | \.\0[-\u2010\u2011]""",
    regex.VERBOSE,
)


class Sentence:
    """A sentence of a document, or a part of a sentence.

    The model translates `text`; the document has `pieces` instead.

    Args:
        items: The words and the markup.
        escape: Writes plain text in the document's format.
        kind: The pattern of placeholders, from the module `placeholders`.
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

    def _set(self, items: list[Item]) -> None:
        self._items = items
        self._begins, text = join(items)
        self.text = text.rstrip(" ")
        is_last = bool(items) and items[-1].kind == ALONE
        # White space before a tag that closes.
        self._after = "" if is_last else text[len(self.text) :]
        self.pieces = [item.raw for item in items]

    @property
    def needs_alignment(self) -> bool:
        """Whether the sentence has markup, which the alignment places."""
        return any(item.kind in CODES for item in self._items)

    def keeps_placeholders(self, translation: str) -> bool:
        """Returns whether a translation keeps placeholders, in usable order."""
        given = self.text, translation, self._kind
        return keeps_placeholders(*given) and keeps_order(*given)

    def hide_placeholders(self) -> None:
        """Turns the placeholders into markup and removes them from `text`."""
        self._set(join_codes(_hide_placeholders(self._items, self._kind)))

    def show_placeholders(self) -> None:
        """Undoes `hide_placeholders`."""
        if self._items is not self._given:
            self._set(self._given)

    def write(self, written: Written) -> str:
        """Returns the translation in the document's format, with the markup.

        Args:
            written: Yields the translation of `text`, with the `SpanLink`s of
                its words; then the same for sentences inside the markup. If
                the translation is `text`, or None, the sentence stays.
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

    def _marks(self, raws: list[str]) -> list[Mark]:
        """Returns the codes as `Mark`s, with the characters around them."""
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

    def _break_lines(self, translation: str) -> Iterator[Edit]:
        """Yields an edit for each line break, at the proportional place."""
        whole = _placeholder_spans(translation)
        spaces = [
            match.start()
            for match in regex.finditer(" ", translation)
            if not _span_around(whole, match.start())
        ]
        used = 0
        for item, begin in zip(self._items, self._begins, strict=True):
            if item.kind == SPACE and LINE_BREAK.search(str(item.raw)):
                wanted = begin * len(translation) / len(self.text)
                after = max(bisect.bisect(spaces, wanted), used)
                nearest = range(max(after - 1, used), after + 1)
                places = [i for i in nearest if i < len(spaces)]
                if not places:
                    return
                _, place = min((abs(spaces[i] - wanted), i) for i in places)
                used = place + 1
                yield Edit(spaces[place], 1, str(item.raw))


def _placeholder_spans(
    text: str, kind: regex.Pattern = PLACEHOLDER
) -> list[Span]:
    return [match.span() for match in kind.finditer(text)]


def _span_around(spans: list[Span], offset: int) -> Span | None:
    """Finds the span that contains an offset, in sorted spans, or None."""
    i = bisect.bisect(spans, (offset, len(spans) and spans[-1][1] + 1)) - 1
    return spans[i] if i >= 0 and offset < spans[i][1] else None


def _whole_placeholders(
    links: Sequence[SpanLink], translation: str
) -> list[SpanLink]:
    """Extends links to part of a placeholder to the whole placeholder."""
    spans = _placeholder_spans(translation)
    return [
        link._replace(target=_span_around(spans, link.target[0]) or link.target)
        for link in links
    ]


def _links_of_characters(
    text: str, marks: list[Mark], translation: str, links: list[SpanLink]
) -> list[SpanLink]:
    """Links the characters of each word that has a mark inside.

    The translation must have the same word, in upper or lower case.
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


def _neighbours(
    items: Sequence[Item], raws: Sequence[str], side: int
) -> list[str]:
    """Returns the visible character before each item, ignoring tags.

    `side` is the character's index in its item: -1, or 0 for reversed items.
    """
    last, found = "", list[str]()
    for item, raw in zip(items, raws, strict=True):
        found.append(last)
        if item.kind not in (OPEN, CLOSE, TEXT) or item.text:
            last = (item.text or raw)[side:][:1]
    return found


def _hide_placeholders(items: list[Item], kind: regex.Pattern) -> list[Item]:
    """Turns each placeholder without a code inside into one code."""
    begins, text = join(items)
    spans = _placeholder_spans(text, kind)
    items, begins = divide(items, begins, [o for span in spans for o in span])
    shown: list[Item] = []
    read = 0
    for begin, end in spans:
        first = bisect.bisect_left(begins, begin)
        while first == len(begins) or begins[first] > begin:
            first -= 1  # the placeholder begins inside an indivisible item
        last = bisect.bisect_left(begins, end)
        # White space and codes may have the same offset as the placeholder.
        while not items[first].text or items[first].kind == SPACE:
            first += 1
        while not items[last - 1].text:
            last -= 1
        hidden = items[first:last]
        if not any(item.kind in CODES for item in hidden):
            shown += [*items[read:first], code(hidden)]
            read = last
    return shown + items[read:]


def split(
    items: Iterable[Item],
    escape: Callable[[str], str] = str,
    *,
    language: str,
    fits: Callable[[str], bool],
    depth: int = 0,
    placeholders: regex.Pattern = PROSE,
) -> list[Piece]:
    """Splits a stretch of text into sentences and the pieces between them.

    Args:
        items: The text. The pieces contain all items, in order.
        escape, placeholders: As `escape` and `kind` of `Sentence`.
        language: The code of the text's language, such as "en".
        fits: Returns whether the model can read a text. A sentence that is too
            long is divided, at a clause mark if it has one.
        depth: How many ICU messages enclose the text.
    """
    again = functools.partial(
        split,
        escape=escape,
        language=language,
        fits=fits,
        placeholders=placeholders,
    )
    items = list(items)
    if depth < DEEPEST:
        branch = functools.partial(again, depth=depth + 1)
        items = _join_messages(items, branch)
    if any(item.kind == END for item in items):
        parts = itertools.groupby(items, lambda item: item.kind == END)
        return [
            piece
            for is_end, part in parts
            for piece in (
                (item.raw for item in part)
                if is_end
                else again(part, depth=DEEPEST)
            )
        ]
    items = join_codes(pair_tags(items))
    begins, text = join(items)
    offsets = [
        offset
        for begin, end in _sentence_spans(text, language)
        for offset in [begin, *_divisions(text, begin, end, fits)]
    ]
    whole = _placeholder_spans(text, placeholders)
    offsets = [o for o in offsets if (_span_around(whole, o) or (o, o))[0] == o]
    groups: dict[int, list[Item]] = {}
    number = 0
    for item, begin in zip(*divide(items, begins, offsets), strict=True):
        if item.kind != CLOSE:  # which stays with the sentence before it
            number = bisect.bisect(offsets, begin, lo=min(1, len(offsets)))
        groups.setdefault(number, []).append(item)
    pieces: list[Piece] = []
    for group in groups.values():
        pieces += _sentence(group, escape, placeholders)
    return pieces


def _join_messages(
    items: list[Item], split_branch: Callable[[Iterable[Item]], list[Piece]]
) -> list[Item]:
    """Turns each ICU message into one code, with its branches split."""
    texts = [item.text or "\ufffc" for item in items]  # a sign for a code
    begins = [0, *itertools.accumulate(map(len, texts))][: len(texts)]
    text = "".join(texts)
    messages = list(find_messages(text))
    if not messages:
        return items
    cuts = set[int]()
    for begin, end, branches, has_number in messages:
        cuts |= {begin, *itertools.chain(*branches)}
        if has_number:
            numbers = regex.finditer("#", text, pos=begin, endpos=end)
            cuts.update(*(match.span() for match in numbers))
    items, begins = divide(items, begins, sorted(cuts))

    def between(begin: int, end: int) -> list[Item]:
        first, last = (bisect.bisect_left(begins, at) for at in (begin, end))
        return items[first:last]

    found: list[Item] = []
    read = 0
    for first, last, branches, has_number in messages:
        found += between(read, first)
        pieces, read = list[Piece](), first
        for begin, end in branches:
            pieces += [item.raw for item in between(read, begin)]
            pieces += split_branch(
                code([item]) if has_number and item.raw == "#" else item
                for item in between(begin, end)
            )
            read = end
        pieces += [item.raw for item in between(read, last)]
        found.append(Item(Block(pieces), "", ALONE))
        read = last
    return found + between(read, len(text))


def _sentence_spans(text: str, language: str) -> list[Span]:
    """Finds the sentences of a text, one part of it at a time.

    sentencex takes quadratic time for a run of symbols. The last sentence
    of a part may be incomplete, so it is read again with the next part.
    """
    import sentencex  # an extra

    spans: list[Span] = []
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
        for begin, stop in found:
            if spans and _is_no_end(text, *spans[-1]):
                begin, _ = spans.pop()
            spans.append((begin, stop))
    return spans


def _is_no_end(text: str, begin: int, end: int) -> bool:
    """Returns whether a sentence goes on after the stop at its end.

    Before a small letter it does if it begins with a capital: some people write
    no capitals.
    """
    tail = text[max(begin, end - 40) : end]
    match = NO_END.search(f"{tail}\0{text[end : end + 20]}")
    letters = filter(str.isalpha, text[begin:end])
    return bool(match and (not match["word"] or next(letters).isupper()))


def _divisions(
    text: str, begin: int, end: int, fits: Callable[[str], bool]
) -> list[int]:
    """Returns the offsets, in order, that divide a sentence into fitting parts.

    A sentence is divided at the clause mark nearest to its middle, else at
    white space, else between any two characters.
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


def _sentence(
    items: list[Item], escape: Callable[[str], str], kind: regex.Pattern
) -> list[Piece]:
    """Returns a sentence, and the white space and codes at its edges.

    A text without letters is not translated.
    """
    tags = collections.Counter(
        item.name for item in items if item.kind in (OPEN, CLOSE)
    )

    def is_apart(item: Item) -> bool:
        """Returns whether an item is neither text nor in a pair of tags."""
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
