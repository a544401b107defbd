"""What a vocabulary cannot write: emoji, other signs, words of other scripts.

The model does not read it. `read` takes it out of a text; `restore` puts it
into the translation, where the words around it are. Invisible characters, such
as soft hyphens, are not read either, and are left out.

`savedmodel/reload/signs.py` is a copy of this file, which imports nothing.
"""

import bisect
import re
import typing
import unicodedata
from collections.abc import Callable, Iterator, Sequence

# Soft hyphens, joiners of words, marks of direction and the like. A zero-width
# space separates words in some scripts, which write no others.
INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u180e\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff]"
    "|(?<![\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff])\u200b"
)
ZERO_WIDTH_JOINER = "\u200d"
SKIN_TONES = "\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"
# In these scripts a word is not separated by spaces: each character is one.
SPACELESS = (
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ua4cf\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)
# These begin a unit of their own; so does a keycap, such as 1\ufe0f\u20e3.
NO_LETTER = re.compile(rf"{SPACELESS}|.[\ufe0f\u20e3]")
INSIDE_WORDS = frozenset("-'\u2019._@/&+")  # they join words of one kind
# A token that names a language, at the beginning.
TAG = re.compile(r"(?<!\s)\s*(?:<2[^\s<>]+>|>>[^\s<>]+<<)(?=\s|$)")
SENTENCE_END = re.compile(
    "[.!?\u2026\u3002\uff01\uff1f]+[\"'\u2019\u201d\u00bb)]*"
)
NO_SPACE_BEFORE = ".,;:!?)]}\u2026\u3002\uff0c\uff01\uff1f\u3001"
UNKNOWN = "\u2047"  # how SentencePiece writes an unknown token
# Emoji, other pictures and the private use of fonts. Arrows, mathematical signs
# and signs of Latin-1, which are in many texts, are none.
PICTURE = re.compile(
    "[\u20e3\u231a-\u23ff\u2600-\u27bf\u2b05-\u2b55\ue000-\uf8ff"
    "\U0001f000-\U0001ffff\U000e0000-\U0010ffff]"
)
WORD = re.compile(rf"(?:(?!{SPACELESS})\w)+|\S")
# No sign goes inside.
COMPOUND = re.compile(r"(?<!\w)\w+(?:[-'\u2019._@/&+]\w+)+")
Span = tuple[int, int]  # begin and end, in characters
Links = Sequence[tuple[Span, Span]]  # words of a text and their translations


class Sign(typing.NamedTuple):
    """A part of a text that the vocabulary cannot write."""

    text: str
    place: int  # where it was, in the characters that the model reads
    is_apart: tuple[bool, bool]  # whether a space or nothing was on each side

    @property
    def has_letters(self) -> bool:
        return any(map(str.isalpha, self.text))


class Reading(typing.NamedTuple):
    """A text as the model reads it."""

    text: str
    signs: tuple[Sign, ...] = ()
    # The index in the original of each character of `text`; None if equal.
    origins: Sequence[int] | None = None


EMPTY = Reading("")


def read(text: str, knows: Callable[[str], bool]) -> Reading:
    """Takes out of a text what a vocabulary cannot write.

    `knows` tells whether the vocabulary can write a text.

    >>> read("So! \u263a We go on.", lambda text: "\u263a" not in text).text
    'So! We go on.'
    """
    hidden = {match.start() for match in INVISIBLE.finditer(text)}
    if not hidden and knows(text):
        return Reading(text)
    origins = [i for i in range(len(text)) if i not in hidden]
    # Some white space, such as U+2028, is unknown, too.
    text = re.sub(r"\s", " ", "".join(text[i] for i in origins))
    parts, kept, signs, last, length = [], list[int](), list[Sign](), 0, 0
    for begin, end in _unknown(text, knows):
        first, beyond = begin, end
        while text[first - 1 : first].isspace():
            first -= 1
        while text[beyond : beyond + 1].isspace():
            beyond += 1
        left, right = text[max(first - 1, 0) : first], text[beyond : beyond + 1]
        is_open = first < begin or end < beyond
        is_open |= left.isalnum() and right.isalnum()
        is_inside = left and right and right not in NO_SPACE_BEFORE
        gap = " " * bool(is_open and is_inside)
        parts += [text[last:first], gap]
        kept += [*origins[last:first], *[origins[begin]] * len(gap)]
        length += first - last
        apart = first < begin or not first, end < beyond or beyond == len(text)
        signs.append(Sign(text[begin:end], length, apart))
        length, last = length + len(gap), beyond
    kept += origins[last:]
    return Reading("".join([*parts, text[last:]]), tuple(signs), kept)


def has_bytes(
    text: str,
    encode: Callable[[str], Sequence[int]],
    is_byte: Callable[[int], bool],
) -> bool:
    """Tells whether a vocabulary writes a picture of a text by bytes.

    A model learns letters and common signs by their bytes, but few pictures:
    these are not read.
    """
    return any(map(is_byte, encode(text))) and any(
        is_byte(id)
        for picture in set(PICTURE.findall(text))
        for id in encode(picture)
    )


def _unknown(text: str, knows: Callable[[str], bool]) -> list[Span]:
    """Finds the parts that a vocabulary cannot write, with spaces inside."""
    tag = TAG.match(text)
    units = [*_units(text, tag.end() if tag and knows(tag.group()) else 0)]
    is_unknown = [not knows(text[begin:end]) for begin, end in units]
    for i, unit in enumerate(units):
        if not is_unknown[i] or not _is_word(text[slice(*unit)]):
            continue
        for step in (-1, 1):  # to the ends of a word such as "Москва-City"
            j = i + step
            while 0 <= j + step < len(units) and _joins(
                text, *sorted((units[j - step], units[j], units[j + step]))
            ):
                is_unknown[j] = True
                if is_unknown[j + step]:
                    break  # that word goes on by itself
                is_unknown[j + step] = True
                j += 2 * step
    found: list[Span] = []
    for (begin, end), wanted in zip(units, is_unknown, strict=True):
        if wanted and found and not text[found[-1][1] : begin].strip():
            found[-1] = found[-1][0], end
        elif wanted:
            found.append((begin, end))
    return found


def _is_word(text):
    return text[:1].isalnum()


def _joins(text: str, left: Span, mark: Span, right: Span) -> bool:
    """Tells whether a mark joins two words to one."""
    return (
        left[1] == mark[0]
        and mark[1] == right[0]
        and text[slice(*mark)] in INSIDE_WORDS
        and all(_is_word(text[slice(*span)]) for span in (left, right))
    )


def _units(text: str, start: int) -> Iterator[Span]:
    """Yields each word or sign, with the marks and joiners after it."""
    begin, is_word = start, False
    for i in range(start, len(text)):
        character, last = text[i], text[i - 1 : i] if i > begin else " "
        category = unicodedata.category(character)
        is_letter = category[0] in "LN" and not NO_LETTER.match(text, i)
        is_space = last.isspace() or character.isspace()
        goes_on = not is_space and (
            category[0] == "M"
            or category == "Cf"
            or character in SKIN_TONES
            or last == ZERO_WIDTH_JOINER
            or (is_letter and is_word)
        )
        if not goes_on:
            if not last.isspace():
                yield begin, i
            begin, is_word = i, is_letter
    if text[begin:].strip():
        yield begin, len(text)


def restore(
    translation: str,
    reading: Reading,
    links: Links = (),
    prefix: Reading = EMPTY,
) -> str:
    """Puts the signs of a text into its translation.

    `links` are words of `reading.text` and their words in the translation.
    Without links, words at the same relative position are linked. With links,
    each unknown token of the translation becomes the word that it translates.
    `prefix` is what the translation must begin with.

    >>> text = Reading("So! We go on.", (Sign("\u263a", 3, (True, True)),))
    >>> restore("Gut! Weiter.", text)
    'Gut! \u263a Weiter.'
    """
    if not translation.startswith(prefix.text):
        prefix = EMPTY
    edits = [
        (*target, Sign(reading.text[slice(*source)], 0, (True, True)))
        for source, target in links
        if translation[slice(*target)] == UNKNOWN
        and target[0] >= len(prefix.text)
    ]
    there = [sign.text for sign in prefix.signs]
    anchors = _anchors(reading, translation)
    places = _places(reading, translation, links)
    for sign, anchor in zip(reading.signs, anchors, strict=True):
        if sign.text in there:
            there.remove(sign.text)
            continue
        place = places(sign) if anchor is None else anchor
        edits.append((place, place, sign))
    last = len(prefix.text)
    found = restore(prefix.text, prefix) if prefix.signs else prefix.text
    for begin, end, sign in sorted(edits, key=lambda edit: edit[0]):
        found += translation[last:begin]
        last = max(last, end)
        found, rest = found.rstrip(" "), translation[last:].lstrip(" ")
        last = len(translation) - len(rest)
        found += _spaced(found, sign, rest)
    return found + translation[last:]


def _spaced(left: str, sign: Sign, right: str) -> str:
    """Returns a sign with the spaces that it needs between two texts."""
    before, after = sign.is_apart
    before |= left[-1:].isalnum() and sign.text[0].isalpha()
    after |= right[:1].isalnum() and sign.text[-1].isalpha()
    return (
        " " * (before and bool(left))
        + sign.text
        + " " * (after and bool(right) and right[0] not in NO_SPACE_BEFORE)
    )


def needs_links(translation: str, reading: Reading) -> bool:
    """Tells whether `restore` is better with links."""
    return UNKNOWN in translation or None in _anchors(reading, translation)


def _anchors(reading: Reading, translation: str) -> list[int | None]:
    """Returns the places of signs at the edge of a text or of a sentence."""
    text, is_blank = reading.text, not translation.strip()
    tag = TAG.match(text)
    begin, end = tag.end() if tag else 0, len(text.rstrip())
    begin += len(text[begin:]) - len(text[begin:].lstrip())
    ends, others = (
        [match.end() for match in SENTENCE_END.finditer(one)]
        for one in (text, translation)
    )
    numbers = {place: number for number, place in enumerate(ends)}
    anchors: list[int | None] = []
    for sign in reading.signs:
        number = numbers.get(sign.place)
        if is_blank or sign.place <= begin:
            anchors.append(0)
        elif sign.place >= end:
            anchors.append(len(translation))
        elif number is not None and others:
            anchors.append(others[min(number, len(others) - 1)])
        else:
            anchors.append(None)
    return anchors


def _places(
    reading: Reading, translation: str, links: Links
) -> Callable[[Sign], int]:
    """Makes a function that finds the place beside the nearest word."""
    if not links:
        sources, targets = (
            [match.span() for match in WORD.finditer(one)]
            for one in (reading.text, translation)
        )
        links = [
            (sources[i * len(sources) // len(targets)], target)
            for i, target in enumerate(targets)
            if sources
        ]
    inside, around = (
        [match.span() for match in COMPOUND.finditer(one)]
        for one in (reading.text, translation)
    )

    def find(sign: Sign) -> int:
        def distance(link: tuple[Span, Span]) -> tuple[int, bool]:
            begin, end = link[0]
            if begin >= sign.place:
                return begin - sign.place, False
            return max(0, sign.place - end), True

        nearest = min(links, key=distance)
        place = nearest[1][distance(nearest)[1]]
        if _end_around(inside, sign.place) is not None:
            return place
        return _end_around(around, place) or place

    return find


def _end_around(spans: list[Span], place: int) -> int | None:
    """Returns the end of the span that has a place inside, if there is one."""
    i = bisect.bisect(spans, (place,)) - 1
    is_inside = i >= 0 and spans[i][0] < place < spans[i][1]
    return spans[i][1] if is_inside else None
