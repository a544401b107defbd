"""Checks of a translation by rule: each names what it saw.

A check compares a translation with its source. It knows no model, and reports
only what is seldom true of a good translation: what a translator may do as
well, such as to write `3` in letters, is no finding.
"""

import bisect
import collections
import functools
import itertools
import typing
from collections.abc import Callable, Iterator, Sequence

import regex

from keras_transformer.data.languages import base_language
from keras_transformer.documents.placeholders import (
    MESSAGES,
    count_placeholders,
)
from keras_transformer.text.signs import SPACELESS
from keras_transformer.translation.alignment import SpanLink, word_spans


class Finding(typing.NamedTuple):
    """What a check saw."""

    kind: str  # the name of the check in `CHECKS`
    text: str  # "number 12.5 is missing"
    is_question: bool = False  # a good translation may have it, too


class Pair(typing.NamedTuple):
    """What the checks read."""

    source: str
    translation: str
    languages: tuple[str, str]
    links: Sequence[SpanLink]
    terms: Sequence[Sequence[str]]
    plain: Sequence[str]  # both texts without code and placeholders
    placeholders: Sequence[collections.Counter[str]]  # of both texts


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
    own, other = map(base_language, languages)
    texts = source, translation
    plain = [CODE.sub(" # ", MESSAGES.sub(" # ", text)) for text in texts]
    counts = [count_placeholders(text, MESSAGES) for text in texts]
    pair = Pair(*texts, (own, other), links, terms, plain, counts)
    return [
        Finding(kind, text, kind in QUESTIONS)
        for kind, find in CHECKS.items()
        for text in find(pair)
    ]


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
        for text in pair[:2]
    ]
    counts = [_numbers(text) for text in texts]
    lost, new = map(set, _differences(*counts))
    if "".join(counts[0].elements()) == "".join(counts[1].elements()):
        return
    lost_names, new_names = (
        [n for n in WRITTEN.findall(text) if not groups.isdisjoint(_numbers(n))]
        for text, groups in zip(texts, (lost, new), strict=True)
    )
    if (
        (lost and new)
        or any(len(n) > 2 or int(n) > LARGEST_WORD for n in lost | new)
        or any(map(DECIMAL.fullmatch, lost_names + new_names))
    ):
        yield from (f"number {name} is missing" for name in lost_names)
        yield from (f"number {name} is added" for name in new_names)


def _numbers(text):
    """Counts the groups of digits, without signs between thousands."""
    return collections.Counter(
        "".join(str(int(d)) for d in match.group() if d.isdecimal()).lstrip("0")
        or "0"
        for match in GROUPS.finditer(text)
    )


def _differences(source, translation):
    return [*(source - translation)], [*(translation - source)]


# Units

# A unit in each row: signs, read as they are, and beginnings of words.
UNITS = {
    form: row.split()[0]
    for row in """
        km км kilomet chilomet quilômet quilómet kilómet километр
        cm см centimet zentimet centímet centimèt сантиметр
        mm мм millimet milímet millimèt миллиметр
        m м meter metre mètre metro метр
        mi mile meile миль
        inch zoll pouce pulgada pollic polegada дюйм
        pt пт point punkt punto ponto пункт
        px пикс pixel píxel пиксел
        % percent prozent pourcent
        € EUR euro евро
        $ USD dollar dólar доллар
        £ GBP pfund
        °C ℃
        °F ℉
        B byte octet байт
        kB KB Ko КБ Кб кБ kilobyte
        MB Mo МБ Мб megabyte
        GB Go ГБ Гб gigabyte
        TB To ТБ terabyte
        bit бит
        ms мс millise миллисек milise
        s sec с сек second sekund segund секунд
        min мин minut минут
        h hr час hour stunde heure hora ore
        day tag jour día dias giorn день дня дней
        week woche semaine semana settiman недел
        month monat mois mes meses mese mesi mês месяц
        year jahr année año anno anni ano anos год лет
        Hz Гц hertz
        kHz кГц
        MHz МГц
        GHz ГГц
        dpi ppp
    """.strip().splitlines()
    for form in row.split()
}
# A number may be a placeholder, such as `{0}`.
UNIT = regex.compile(
    r"(?<before>[$€£]?+)[\p{Nd}}][\s\u00a0\u202f-]?"
    r"(?<after>[%$€£℃℉]|°?\p{L}++)?"
)


def other_units(pair: Pair) -> Iterator[str]:
    """Compares the units beside numbers; one that is left out is no finding."""
    lost, new = _differences(*(_units(t) for t in pair[:2]))
    if lost and new:
        yield f"unit {lost[0]} is {new[0]}"


def _units(text):
    """Counts the units of a text, as the first form of each."""
    found: collections.Counter[str] = collections.Counter()
    for match in UNIT.finditer(text):
        for form in match["before"], match["after"] or "":
            begins = (form[:end].lower() for end in range(len(form), 2, -1))
            units = [UNITS[f] for f in (form, *begins) if f in UNITS]
            found.update(units[:1])
    return found


# Addresses and placeholders

ADDRESS = regex.compile(r"://|^www\.|[^\s@]@[^\s@]+\.")
# What a translator may change: {part of a formula}, $5, a brace.
OTHER = regex.compile(r"\{\s*+[^\s}]++[\s=(,][^}]|\{=|[{}]$|[%$]L?[0-9]")


def changed_placeholders(
    pair: Pair, kind: str = "placeholder"
) -> Iterator[str]:
    """Compares what must stay. The name and the ending of a word may follow."""
    lost, new = map(sorted, _differences(*pair.placeholders))
    for name in [*lost]:
        at = bisect.bisect(new, name)
        if new[at:] and regex.match(r"[)\]]?-", new[at][len(name) :]):
            if new[at].startswith(name):
                lost.remove(name)
                del new[at]
    for names, what in (lost, "missing"), (new, "added"):
        for name in names:
            is_address = bool(ADDRESS.search(name))
            if (kind == "address") == is_address and not OTHER.match(name):
                yield f"{kind} {name} is {what}"


# Signs in pairs

BRACKETS = ("(", ")"), ("[", "]"), ("{", "}")
QUOTATION = regex.compile('["„“”«»]')


def open_brackets(pair: Pair) -> Iterator[str]:
    """Finds brackets without their other half, if the source has all."""
    for begin, end in BRACKETS:
        more, own = (t.count(begin) - t.count(end) for t in pair[:2])
        if own and not more:
            yield f"bracket {begin if own > 0 else end} stands alone"


def open_quotations(pair: Pair) -> Iterator[str]:
    source, translation = (QUOTATION.findall(t) for t in pair[:2])
    if len(translation) % 2 > len(source) % 2:
        yield f"quotation mark {translation[-1]} stands alone"


# Words

LONGEST_PHRASE = 8  # in words
SYLLABLES = regex.compile(r"(\p{L}{1,4}?)\1{5,}+")
# Two of them may follow each other.
DOUBLES = frozenset("der die das den dem sie nous vous that had".split())


def repetitions(pair: Pair) -> Iterator[str]:
    """Finds phrases that follow themselves, and do not in the source."""
    source = pair.source.lower()
    syllables = (
        match[1]
        for match in SYLLABLES.finditer(pair.translation)
        if match.group().lower() not in source
    )
    known = {size for size, _ in _repeated(pair.source)}
    phrases = (
        phrase
        for size, phrase in _repeated(pair.translation)
        if size not in known
    )
    if found := next(itertools.chain(syllables, phrases), None):
        yield f"'{found}' is repeated"


def _repeated(text):
    """Yields phrases that follow themselves: the number of words, the phrase.

    A phrase may have signs, as a list of menus has. Then, and in scripts
    without spaces, twice is usual.
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
                are_letters = [word.isalpha() for word in phrase]
                is_usual = (
                    not all(are_letters)
                    or phrase[0] in DOUBLES
                    or regex.search(SPACELESS, phrase[0])
                )
                if any(are_letters) and run == size * (2 if is_usual else 1):
                    yield size, text[spans[begin][0] : spans[n][1]]


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
    if source == translation and _small_words(source) >= ENOUGH / 2:
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

# Letters of a text for each letter of its English translation.
LENGTHS = {"de": 1.2, "es": 1.17, "fr": 1.2, "it": 1.2, "pt": 1.12, "ru": 1.1}
SHORT = 0.65  # of the expected length
UNLINKED = 4  # words


def missing_clauses(pair: Pair) -> Iterator[str]:
    """Finds words without links where the translation is short, too.

    Links by attention lack many words, and a good translation may be short:
    either of them alone says little. The limits are those of validation pairs
    of six languages.
    """
    source, translation = pair[:2]
    lengths = [LENGTHS.get(language, 1) for language in pair.languages]
    expected = len(source) * lengths[1] / lengths[0]
    is_known = pair.links and not regex.search(SPACELESS, source + translation)
    if not is_known or len(translation) > SHORT * expected:
        return
    linked = {link.source for link in pair.links}
    words = [s for s in word_spans(source) if source[s[0]].isalpha()]
    runs = [
        [*run]
        for has_links, run in itertools.groupby(words, linked.__contains__)
        if not has_links
    ]
    longest = max(runs, key=len, default=[])
    if len(longest) >= UNLINKED:
        text = source[longest[0][0] : longest[-1][1]]
        yield f"'{text}' has no counterpart"


# Words that negate, but for "no obstante", "or not" and the like. Then words,
# and beginnings of words, that a good translation may have in their place.
NEGATING = {
    "en": (
        r"(?<!or )not(?! equal| only)|cannot|never|\p{L}++(?<=n)['’]t|(?-i:no)",
        "no non- none nothing nobody neither nor without unless until hardly"
        r" un(?!der|it|iq)- in(?:valid|correct|activ|compat|accur|access)-"
        r" in(?:suff|determ|compl|feas)- im(?:poss|prop)- disa- discon- ill-"
        " miss- mis- fail- wrong error lose lost ignor- except exclu- avoid-"
        " prevent- prohib- forbid- deny denied reject- refus- skip- stop- only"
        r" instead rather but hid- omit- lack- absen- empty \p{L}++(?<=less)"
        r" spam at\s(?:least|most) already other exceed- sure remov- zero",
    ),
    "de": (
        r"(?<!oder )nicht(?! nur)|niemals|nie|keine?[mnrs]?",
        r"ohne un(?!d\b|s\b|ser|ter)- nichts niemand- nirgend- nein weder fehl-"
        " deaktiv- verhinder- vermeid- verbiet- verbot- verweig- ausschl-"
        " ausgeschl- ignor- außer abbrech- leer- statt nur falsch-",
    ),
    "fr": (
        r"ne|n['’](?!importe)\p{L}+|jamais|aucune?",
        r"pas sans non ni rien personne impossib- in(?:valid|connu|corr|dispo)-"
        r" in(?:suff|act|ut|interr|compa)- interdi- désact- échec échou- refus-"
        " empêch- évit- exclu- ignor- sauf absen- vide- manqu-",
    ),
    "es": (
        r"(?<!\bo )no(?! obstante| solo| sólo)|nunca|jamás|ningun[ao]|ningún",
        r"sin ni nada nadie imposib- in(?:váli|corr|disp|suf|act|comp)- desact-"
        " deshab- desconoc- falt- fall- error- evit- exclu- ignor- excepto"
        " salvo prohíb- prohib- impid- impe- vací-",
    ),
    "it": (
        r"non(?! solo| appena)|mai|nessun[ao]?",
        r"senza no né nulla niente impossib- in(?:vali|corr|disp|suff|att)-"
        " incomp- disatt- disab- sconosc- manc- error- evit- esclu- ignor-"
        " eccetto tranne vieta- impedi- nega- vuot- alcun-",
    ),
    "pt": (
        r"não(?! só| apenas)|nunca|jamais|nenhuma?",
        r"sem nem nada ninguém impossív- in(?:váli|corr|disp|suf|at|comp)-"
        " desat- desab- desconh- falt- falh- erro- evit- exclu- ignor- exceto"
        " salvo proib- imped- vazi-",
    ),
    "ru": (
        r"не(?! (?:более|менее|ниже|выше|только|позже|раньше))|никогда|нет"
        r"|нельзя",
        "без не- ни ник- нич- отсутств- кроме запре- отключ- избе- исключ-"
        " пуст- ошиб- отказ-",
    ),
}
NEGATIONS = {
    language: [
        regex.compile(
            rf"(?<![\p{{L}}\p{{M}}-])(?:{row})(?![\p{{L}}\p{{M}}])", regex.I
        )
        for row in (
            words,
            "|".join([words, *others.replace("-", r"\p{L}*+").split()]),
        )
    ]
    for language, (words, others) in NEGATING.items()
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
    lower = pair.translation.lower()
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
