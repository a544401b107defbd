"""Checks of a translation by rule: each names what it saw.

A check compares a translation with its source. It knows no model, and reports
only what is seldom true of a good translation: what a translator may do as
well, such as to write `3` in letters, is no finding.
"""

import bisect
import collections
import functools
import itertools
import pathlib
import tomllib
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence

import regex

from keras_transformer.data.languages import base_language
from keras_transformer.documents.placeholders import (
    MESSAGES,
    count_placeholders,
)
from keras_transformer.text.signs import SPACELESS
from keras_transformer.translation.alignment import SpanLink, word_spans

KNOWN = tomllib.loads(
    pathlib.Path(__file__).with_name("languages.toml").read_text("utf-8")
)
LANGUAGES = KNOWN["languages"]


class Finding(typing.NamedTuple):
    """What a check saw."""

    kind: str  # the name of the check in `CHECKS`
    text: str  # "number 12.5 is missing"
    is_question: bool = False  # a good translation may have it, too


class Pair(typing.NamedTuple):
    """What the checks read."""

    texts: tuple[str, str]  # source and translation
    languages: tuple[str, str]
    links: Sequence[SpanLink]
    terms: Sequence[Sequence[str]]
    plain: Sequence[str]  # the texts without code and placeholders
    placeholders: Sequence[collections.Counter[str]]  # of the texts


def check(
    source: str,
    translation: str,
    languages: tuple[str, str],
    links: Sequence[SpanLink] = (),
    terms: Sequence[Sequence[str]] = (),
) -> list[Finding]:
    """Compares a translation with its source.

    Args:
        source, translation: The texts.
        languages: Their codes, such as `("en", "pt-BR")`. Checks that need a
            language do nothing if it is empty or unknown.
        links: As `Translator.align_spans` returns them. If there are none,
            no clause is missed.
        terms: As `Request.terms`: the translation needs one form of each.

    Returns:
        The findings, in the order of `CHECKS`.

    >>> check("Wait 30 seconds.", "Warten Sie 20 Sekunden.", ("en", "de"))
    [Finding(kind='number', text='number 30 is missing', is_question=False), \
Finding(kind='number', text='number 20 is added', is_question=False)]
    """
    texts = source, translation
    plain = [CODE.sub(" # ", MESSAGES.sub(" # ", text)) for text in texts]
    counts = [count_placeholders(text, MESSAGES) for text in texts]
    own, other = map(base_language, languages)
    pair = Pair(texts, (own, other), links, terms, plain, counts)
    return [
        Finding(kind, text, kind in QUESTIONS)
        for kind, find in CHECKS.items()
        for text in find(pair)
    ]


def _differences(source, translation):
    """Returns what only one of two texts has; arguments are counters."""
    return source - translation, translation - source


def _changes(
    kind: str, lost: Iterable[str], new: Iterable[str]
) -> Iterator[str]:
    for names, what in (lost, "missing"), (new, "added"):
        yield from (f"{kind} {name} is {what}" for name in names)


# Numbers

# Digits in any script, and the signs between them: 1,000.5, 12/31/2024, 10:30.
WRITTEN = regex.compile(r"\p{Nd}++(?:[.,:/'\u2019\u00a0\u202f ]\p{Nd}++)*+")
GROUPS = regex.compile(
    r"\p{Nd}++(?:[.,'\u2019\u00a0\u202f ]\p{Nd}{3}(?!\p{Nd}))*+"
)
AFTERNOON = regex.compile(
    r"(?<!\p{Nd})0?([1-9]|1[01])(?=(?::\p{Nd}\p{Nd})?\s?p\.?m\b)", regex.I
)
DECIMAL = regex.compile(r"\p{Nd}++[.,]\p{Nd}++")
LARGEST_WORD = 12  # a translator may write such a number in letters


def changed_numbers(pair: Pair) -> Iterator[str]:
    """Compares the groups of digits, since other signs differ by language.

    A small number may be in letters on one side, and 5 pm may be 17:00.
    """
    texts = [
        AFTERNOON.sub(lambda match: str(int(match[1]) + 12), text)
        for text in pair.texts
    ]
    counts = [_numbers(text) for text in texts]
    if "".join(counts[0].elements()) == "".join(counts[1].elements()):
        return
    changes = lost, new = _differences(*counts)
    names = [
        [name for name in WRITTEN.findall(text) if groups & _numbers(name)]
        for text, groups in zip(texts, changes, strict=True)
    ]
    if (
        (lost and new)
        or any(len(n) > 2 or int(n) > LARGEST_WORD for n in lost | new)
        or any(map(DECIMAL.fullmatch, itertools.chain(*names)))
    ):
        yield from _changes("number", *names)


def _numbers(text):
    """Counts the groups of digits, without signs between thousands."""
    return collections.Counter(
        "".join(str(int(d)) for d in match.group() if d.isdecimal()).lstrip("0")
        or "0"
        for match in GROUPS.finditer(text)
    )


# Units

UNITS = {
    form: unit.split()[0]
    for unit in KNOWN["units"].split(";")
    for form in unit.split()
}
LONGEST_FORM = max(map(len, UNITS))
NAME = r"([%$€£℃℉]|°?\p{L}++)"
NAMED = regex.compile(NAME)
# A number may be a placeholder, such as `{0}`.
COUNTED = regex.compile(r"([$€£]?+)[\p{Nd}}][\s\u00a0\u202f-]?" + NAME + "?")


def other_units(pair: Pair) -> Iterator[str]:
    """Compares the units beside numbers; one that is left out is no finding.

    The source may name an added one elsewhere: "8 more pixels".
    """
    lost, new = _differences(*(_units(COUNTED, text) for text in pair.texts))
    if lost and new:
        yield f"unit {next(iter(lost))} is {next(iter(new))}"
    elif new:
        known = _units(NAMED, pair.texts[0])
        yield from (
            f"unit {unit} is added" for unit in new if unit not in known
        )


def _units(pattern, text):
    """Counts the units that a pattern finds, as the first form of each."""
    found: collections.Counter[str] = collections.Counter()
    for match in pattern.finditer(text):
        for form in match.groups(""):
            ends = range(min(len(form), LONGEST_FORM), 2, -1)
            begins = (form[:end].lower() for end in ends)
            units = [UNITS[f] for f in (form, *begins) if f in UNITS]
            found.update(units[:1])
    return found


# Addresses and placeholders

ADDRESS = regex.compile(r"://|^www\.|[^\s@]@[^\s@]+\.")
ENDING = regex.compile(r"[)\]]?-")  # of a word: (https://a.org)-Seite
# What a translator may change: {part of a formula}, $5, a brace.
OTHER = regex.compile(r"\{\s*+[^\s}]++[\s=(,][^}]|\{=|[{}]$|[%$]L?[0-9]")


def changed_placeholders(
    pair: Pair, kind: str = "placeholder"
) -> Iterator[str]:
    """Compares what must stay. The name and the ending of a word may follow."""
    lost, new = (
        [
            name
            for name in sorted(names)
            if bool(ADDRESS.search(name)) == (kind == "address")
            and not OTHER.match(name)
        ]
        for names in _differences(*pair.placeholders)
    )
    for name in [*lost]:
        at = bisect.bisect(new, name)
        for longer in new[at : at + 1]:
            if longer.startswith(name) and ENDING.match(longer, len(name)):
                lost.remove(name)
                del new[at]
    yield from _changes(kind, lost, new)


# Signs in pairs

BRACKETS = ("(", ")"), ("[", "]"), ("{", "}")
QUOTATION = regex.compile('["„“”«»]')


def open_brackets(pair: Pair) -> Iterator[str]:
    """Finds brackets without their other half, if the source has all."""
    for begin, end in BRACKETS:
        more, own = (t.count(begin) - t.count(end) for t in pair.texts)
        if own and not more:
            yield f"bracket {begin if own > 0 else end} stands alone"


def open_quotations(pair: Pair) -> Iterator[str]:
    source, translation = map(QUOTATION.findall, pair.texts)
    if len(translation) % 2 > len(source) % 2:
        yield f"quotation mark {translation[-1]} stands alone"


# Words

LONGEST_PHRASE = 8  # in words
SYLLABLES = regex.compile(r"(\p{L}{1,4}?)\1{5,}+")
# Two of them may follow each other.
DOUBLES = frozenset("der die das den dem sie nous vous that had".split())


def repetitions(pair: Pair) -> Iterator[str]:
    """Finds phrases that follow themselves, and do not in the source."""
    source, translation = pair.texts
    longest = {  # of the runs of the same letters
        frozenset(run[1]): len(run[0])
        for run in sorted(SYLLABLES.finditer(source.lower()), key=_length)
    }
    syllables = (
        run[1]
        for run in SYLLABLES.finditer(translation)
        if _length(run) > longest.get(frozenset(run[1].lower()), 0)
    )
    known = {size for size, _ in _repeated(source)}
    phrases = (
        phrase for size, phrase in _repeated(translation) if size not in known
    )
    if found := next(itertools.chain(syllables, phrases), None):
        yield f"'{found}' is repeated"


def _length(match):
    return len(match[0])


def _repeated(text):
    """Yields phrases that follow themselves: the number of words, the phrase.

    A phrase has a word, and may have signs, as a list of menus has.
    """
    spans = word_spans(text)
    words = [text[slice(*span)].lower() for span in spans]
    for size in range(1, LONGEST_PHRASE + 1):
        run = 0
        for n in range(size, len(words)):
            run = run + 1 if words[n] == words[n - size] else 0
            if run in (size, 2 * size):
                begin = n - size + 1
                phrase = words[begin : n + 1]
                if run == size * (1 + _may_be_double(phrase)):
                    if any(map(str.isalpha, phrase)):
                        yield size, text[spans[begin][0] : spans[n][1]]


def _may_be_double(phrase):
    """Tells whether a good text may have a phrase twice, but no more often.

    That is usual with signs, and in scripts without spaces.
    """
    return (
        phrase[0] in DOUBLES
        or not all(map(str.isalpha, phrase))
        or bool(regex.search(SPACELESS, phrase[0]))
    )


# Code, and names with signs inside.
CODE = regex.compile(r"`[^`]*+`|(?<!\S)(?=\S*?\w(?:[^\w\s'’-]|_)\w)\S++")
PLAIN = regex.compile(r"\p{L}[\p{L}\p{M}'’-]*+|\S")
ENOUGH = 4  # words: names have fewer that begin with small letters


def untranslated(pair: Pair) -> Iterator[str]:
    """Finds words of the source in the translation.

    A text may be equal as a whole, or have a long part of the source.
    """
    if pair.languages[0] == pair.languages[1]:
        return
    source, translation = map(PLAIN.findall, pair.plain)
    is_equal = pair.texts[0].split() == pair.texts[1].split()
    if is_equal and _small_words(source) >= ENOUGH / 2:
        yield "all of it is untranslated"
        return
    known = set(zip(*(source[n:] for n in range(ENOUGH)), strict=False))
    run: list[str] = []
    for n in range(len(translation)):
        phrase = translation[n : n + ENOUGH]
        if tuple(phrase) in known and all(w[0].isalpha() for w in phrase):
            run += phrase[-1:] if run else phrase
        else:
            if _small_words(run) >= ENOUGH:
                yield f"'{' '.join(run)}' is untranslated"
            run = []


def _small_words(words):
    return sum(len(w) > 1 and w.islower() for w in words)


# Clauses and negation

SHORT = 0.65  # of the expected length
UNLINKED = 4  # words


def missing_clauses(pair: Pair) -> Iterator[str]:
    """Finds words without links where the translation is short, too.

    Links by attention lack many words, and a good translation may be short:
    either of them alone says little. The limits are those of validation pairs
    of six languages.
    """
    source, translation = pair.texts
    lengths = [
        LANGUAGES.get(code, LANGUAGES["en"])["length"]
        for code in pair.languages
    ]
    expected = len(source) * lengths[1] / lengths[0]
    is_known = pair.links and not regex.search(SPACELESS, source + translation)
    if not is_known or len(translation) > SHORT * expected:
        return
    linked = {link.source for link in pair.links}
    words = [s for s in word_spans(source) if source[s[0]].isalpha()]
    runs = (
        [*run]
        for has_links, run in itertools.groupby(words, linked.__contains__)
        if not has_links
    )
    longest = max(runs, key=len, default=[])
    if len(longest) >= UNLINKED:
        text = source[longest[0][0] : longest[-1][1]]
        yield f"'{text}' has no counterpart"


def _any_of(*words):
    """Makes a pattern of words; a hyphen at the end stands for letters."""
    either = "|".join(regex.sub("-$", r"\\p{L}*+", word) for word in words)
    return regex.compile(
        rf"(?<![\p{{L}}\p{{M}}-])(?:{either})(?![\p{{L}}\p{{M}}])", regex.I
    )


# For each language: words that negate, and also those in their place.
NEGATIONS = {
    code: [
        _any_of(known["negates"]),
        _any_of(known["negates"], *known["instead"].split()),
    ]
    for code, known in LANGUAGES.items()
}


def negations(pair: Pair) -> Iterator[str]:
    """Asks where one side alone negates."""
    if not all(language in NEGATIONS for language in pair.languages):
        return
    for own, what in (0, "has no counterpart"), (1, "is added"):
        other = 1 - own
        word = NEGATIONS[pair.languages[own]][0].search(pair.plain[own])
        others = NEGATIONS[pair.languages[other]][1]
        if word and not others.search(pair.plain[other]):
            yield f"'{word.group()}' {what}"


def missing_terms(pair: Pair) -> Iterator[str]:
    lower = pair.texts[1].lower()
    for forms in pair.terms:
        if not any(form.lower() in lower for form in forms):
            yield f"term '{forms[0]}' is missing"


CHECKS: dict[str, Callable[[Pair], Iterator[str]]] = {
    "number": changed_numbers,
    "unit": other_units,
    "address": functools.partial(changed_placeholders, kind="address"),
    "placeholder": changed_placeholders,
    "bracket": open_brackets,
    "quotation": open_quotations,
    "repetition": repetitions,
    "untranslated": untranslated,
    "clause": missing_clauses,
    "negation": negations,
    "term": missing_terms,
}
QUESTIONS = frozenset(["negation"])
