"""Glossaries: terms of the source and how their translations must read.

A file has a line for each term: the term, a tab, its translation, or several
separated by `|`, and, after another tab, flags separated by commas:

    valve       Ventil|Klappe
    IT          IT                case
    colou?rs?   Farbe             pattern

A term is a whole word, or several, in any case, unless a flag says otherwise:
`case` for exactly this case, `part` also inside words, `pattern` for a regular
expression. Blank lines and lines that begin with `#` do not count, nor does a
first line of two languages. Fields may be in quotes; a file .csv has commas or
semicolons, and may have the columns of DeepL: both texts, both languages. A
first line `sep=;`, which Excel reads, names what separates the fields.

A text is matched as the model reads it, see `read_as`.

A file of forbidden words has a word or a phrase in each line.
"""

import bisect
import csv
import dataclasses
import functools
import hashlib
import heapq
import math
import os
import pathlib
import typing
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence

import regex
from absl import logging

from keras_transformer.data.pairs import SEPARATOR

FLAGS = ("case", "part", "pattern")
SEARCHED = {"part", "pattern"}  # terms that are no row of whole words
# Han, kana, Thai, Lao, Khmer, Myanmar: no spaces between words.
SPACELESS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uf900-\ufaff"
)
IN_WORD = rf"[^\W{SPACELESS}]"  # with the marks that belong to a letter
WORD = regex.compile(rf"{IN_WORD}++|\S")  # or a sign
WHOLE = regex.compile(r".+", regex.DOTALL)
TERMS = ""  # the key of terms that end with a word, and of one in any case
# What no reader sees (soft hyphens, joiners, directions, tatweel), and signs
# that readers take for others.
UNSEEN = "\u00ad\u034f\u061c\u0640\u200b-\u200f\u2060-\u2064\ufe00-\ufe0f\ufeff"
SIGNS = str.maketrans(
    dict.fromkeys("\u2018\u2019\u201b\u02bc\u2032`\u00b4", "'")
    | dict.fromkeys("\u2010\u2011", "-")
    | dict.fromkeys("\u201c\u201d\u201e\u201f", '"')
)
CLUSTER = regex.compile(rf"[{UNSEEN}]|\X")
LONGEST_CLUSTER = 32  # characters; to normalize n marks takes n * n steps
CODE = regex.compile(r"([a-z]{2,3})([-_][a-z]{4})?([-_]([a-z]{2}|\d{3}))?")
LANGUAGES = frozenset(
    """
    aa ab af ak am an ar as av ay az ba be bg bh bm bn bo br bs ca ce ch co cr
    cs cv cy da de dv dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn
    gu gv ha he hi ho hr ht hu hy hz ia id ig ii ik io is it iu ja jv ka kg ki
    kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml
    mn mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pl ps pt
    qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw ta
    te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo
    za zh zu deu eng fra ger fre spa ita por rus zho jpn ukr pol nld
    afrikaans albanian amharic arabic armenian azerbaijani basque belarusian
    bengali bosnian bulgarian catalan chinese croatian czech danish dutch
    english esperanto estonian finnish french galician georgian german greek
    gujarati hebrew hindi hungarian icelandic indonesian irish italian japanese
    kazakh khmer korean lao latin latvian lithuanian macedonian malay maltese
    marathi mongolian nepali norwegian pashto persian polish portuguese punjabi
    romanian russian serbian sinhala slovak slovenian somali spanish swahili
    swedish tamil telugu thai tibetan turkish ukrainian urdu uzbek vietnamese
    welsh deutsch englisch anglais italiano source target
    """.split()
)


class View(typing.NamedTuple):
    """A text as terms match it, and where its characters are in the text."""

    text: str
    begins: Sequence[int]
    ends: Sequence[int]

    def span(self, match: regex.Match) -> tuple[int, int]:
        """Where a match is in the text."""
        return self.begins[match.start()], self.ends[match.end() - 1]


def read_as(text: str, fold: bool = False) -> View:
    """A text in the form NFKC, with plain quotes and hyphens.

    With `fold` in any case: also STRASSE and Straße are the same.

    >>> read_as("Ven\u00adtil\u2019s", fold=True).text
    "ventil's"
    """
    if text.isascii():
        clean = (text.lower() if fold else text).translate(SIGNS)
        return View(clean, range(len(text)), range(1, len(text) + 1))
    parts, begins, ends = [], [], []
    for begin, end in _clusters(text):
        part = _clean(text[begin:end], fold)
        parts.append(part)
        begins += [begin] * len(part)
        ends += [end] * len(part)
    return View("".join(parts), begins, ends)


def _clusters(text):
    """Yields where a text has what is normalized alone."""
    for match in CLUSTER.finditer(text):
        begin, end = match.span()
        while end - begin > LONGEST_CLUSTER:
            yield begin, begin + LONGEST_CLUSTER
            begin += LONGEST_CLUSTER
        yield begin, end


@functools.lru_cache(4096)
def _clean(cluster, fold):
    plain = regex.sub(f"[{UNSEEN}]", "", cluster).translate(SIGNS)
    plain = unicodedata.normalize("NFKC", plain).translate(SIGNS)
    if fold:  # Turkish has two letters i
        plain = unicodedata.normalize("NFKC", plain.casefold())
        plain = plain.replace("i\u0307", "i").replace("\u0131", "i")
    return plain


@dataclasses.dataclass(frozen=True)
class Term:
    """A line of a glossary."""

    source: str  # the term
    targets: tuple[str, ...]  # its translations, one of which suffices
    flags: frozenset[str] = frozenset()  # a subset of `FLAGS`

    def __post_init__(self):
        if not self.source.strip() or not all(map(str.strip, self.targets)):
            raise ValueError(
                "expected a term, a tab and its translation. Received:"
                f" {self.source!r} and {'|'.join(self.targets)!r}"
            )
        if unknown := self.flags - set(FLAGS):
            raise ValueError(
                f"flags must be among {', '.join(FLAGS)}. Received:"
                f" {', '.join(sorted(unknown))}"
            )
        if "pattern" not in self.flags:
            return  # many terms are never compiled
        try:
            self.pattern.match("")
        except regex.error as error:
            raise ValueError(
                f"the pattern must be a regular expression ({error})."
                f" Received: {self.source!r}"
            ) from error

    @classmethod
    def of(cls, source: str, targets: str, flags: Iterable[str] = ()) -> "Term":
        """The term with translations that `|` separates."""
        forms = (form.strip() for form in targets.split("|"))
        return cls(source.strip(), tuple(forms), frozenset(flags))

    @property
    def spelling(self) -> str:
        """The term in its own case, as a `View` has it."""
        return _spelling(read_as(self.source).text)

    @functools.cached_property
    def pattern(self) -> regex.Pattern:
        """The regular expression in a `View` of a term that is `SEARCHED`."""
        if "pattern" not in self.flags:
            words = read_as(self.source, fold=True).text.split()
            return regex.compile(r"\s++".join(map(regex.escape, words)))
        parts = (self.source[b:e] for b, e in _clusters(self.source))
        pairs = ((part, _clean(part, False)) for part in parts)
        term = "".join(c if c == p else regex.escape(p) for c, p in pairs)
        if "part" not in self.flags:
            # Words of spaceless scripts touch.
            term = (
                rf"(?<!{IN_WORD}(?={IN_WORD}))(?:{term})"
                rf"(?!(?<={IN_WORD}){IN_WORD})"
            )
        is_any = "case" not in self.flags
        return regex.compile(term, regex.IGNORECASE if is_any else 0)


class Glossary:
    """The terms of a glossary.

    >>> glossary = Glossary([Term("valve", ("Ventil", "Klappe"))])
    >>> glossary.terms_of("The Valve of a valveless pump.")
    (('Ventil', 'Klappe'),)
    """

    def __init__(self, terms: Iterable[Term]):
        self.terms = list(terms)

    @functools.cached_property
    def _index(self):
        """A trie of the words of terms, and the terms that are `SEARCHED`.

        A text has few words, a glossary many terms. Where words are a term, its
        number is found by its spelling, or by `TERMS` if any case will do. Made
        when it is needed: a server reads a request in the thread of all.
        """
        trie: dict = {}
        searched = []
        for number, term in enumerate(self.terms):
            if term.flags & SEARCHED:
                searched.append((number, term))
                continue
            node = trie
            for word, _ in _words(read_as(term.source, fold=True).text):
                node = node.setdefault(word, {})
            forms = node.setdefault(TERMS, {})
            forms.setdefault(term.spelling, number)
            if "case" not in term.flags:
                forms.setdefault(TERMS, number)
        return trie, searched

    @functools.cached_property
    def sha256(self) -> str:
        """The checksum of the terms."""
        rows = [(t.source, t.targets, sorted(t.flags)) for t in self.terms]
        return hashlib.sha256(repr(rows).encode()).hexdigest()

    def terms_of(self, text: str) -> tuple[tuple[str, ...], ...]:
        """The translations of the terms in a text, each once, in order.

        Of terms that overlap, the longest counts; of two, the one in the same
        case, or else the one that comes first in the glossary.
        """
        return tuple(dict.fromkeys(term.targets for _, term in self.find(text)))

    def find(self, text: str) -> list[tuple[regex.Match, Term]]:
        """The terms in a text, where they are, in order."""
        if not self.terms:
            return []
        reading = _Reading(text, *self._index)
        heap = [
            *reading.searched(),
            *filter(None, map(reading.longest, reading.words)),
        ]
        heapq.heapify(heap)
        # Spans that are chosen, in order, never overlap.
        spans: list[tuple[int, int]] = []
        chosen: list[tuple[regex.Match, Term]] = []
        while heap:
            *_, number, begin, end, word = heapq.heappop(heap)
            i = bisect.bisect(spans, (begin, end))
            if i and begin < spans[i - 1][1]:
                continue
            limit = spans[i][0] if i < len(spans) else end
            if end <= limit:
                match = WHOLE.fullmatch(text, begin, end)
                spans.insert(i, (begin, end))
                chosen.insert(i, (match, self.terms[number]))
            elif word >= 0 and (shorter := reading.longest(word, limit)):
                heapq.heappush(heap, shorter)
        return chosen

    @classmethod
    def of(cls, translations: Mapping[str, str]) -> "Glossary":
        """The glossary of terms and their translations, as in a file."""
        return cls(Term.of(*item) for item in translations.items())

    @classmethod
    def parse(
        cls,
        lines: Iterable[str],
        name: str,
        check: Callable[[Sequence[str]], object] = lambda targets: None,
        tell: bool = True,
    ) -> "Glossary":
        """The glossary of the lines of a file.

        `check` is called with the translations of each term; it may raise
        ValueError. It logs what it takes for a header, if `tell` is true.

        Raises ValueError: a line is wrong, or a term comes twice; the message
        has the name and the line.
        """
        terms: dict[tuple[str, frozenset[str]], Term] = {}
        rows = [
            (number, line.rstrip("\r\n"))
            for number, line in enumerate(lines, 1)
            if line.strip() and not line.startswith("#")
        ]
        first = rows[0][1] if rows else ""
        named = SEPARATOR.fullmatch(first)
        delimiter = named[1] if named else _delimiter(name, first)
        table = [
            (number, _fields(row, delimiter))
            for number, row in rows[named is not None :]
        ]
        if table and _is_header([fields for _, fields in table]):
            (number, languages), *table = table
            told = name, number, " and ".join(languages[:2])
            logging.log(
                logging.WARNING if tell else logging.DEBUG,
                "%s: line %d: read as the languages of the glossary, not as a"
                " term: %s. A term must not be on the first line",
                *told,
            )
        pairs: set[tuple[str, ...]] = set()
        for number, fields in table:
            try:
                is_table = len(fields) == 4 and all(map(_is_code, fields[2:]))
                if delimiter != "\t" and is_table:  # DeepL's
                    pairs.add(tuple(f.strip().lower() for f in fields[2:]))
                    fields = fields[:2]
                if len(pairs) > 1:
                    raise ValueError(
                        "expected one source and one target language."
                        f" Received: {sorted(pairs)}"
                    )
                term = _parse(fields)
                check(term.targets)
                if (term.source, term.flags) in terms:
                    raise ValueError(
                        "expected each term once. Received:"
                        f" {term.source!r} again"
                    )
            except ValueError as error:
                raise ValueError(f"{name}: line {number}: {error}") from error
            terms[term.source, term.flags] = term
        return cls(terms.values())

    @classmethod
    def read(
        cls,
        path: str | os.PathLike,
        check: Callable[[Sequence[str]], object] = lambda targets: None,
        tell: bool = True,
    ) -> "Glossary":
        """The glossary of a file, UTF-8; `check` and `tell` as in `parse`.

        Raises ValueError: as `parse`, or it is not UTF-8; OSError: it cannot be
        read.
        """
        return cls.parse(_read_lines(path), str(path), check, tell)


def read_words(path: str | os.PathLike) -> tuple[str, ...]:
    """The forbidden words and phrases of a file; errors as `Glossary.read`."""
    lines = [line.strip() for line in _read_lines(path)]
    return tuple(line for line in lines if line and not line.startswith("#"))


def find_words(words: tuple[str, ...], text: str) -> list[regex.Match]:
    """Where a text has some words, in any case.

    >>> [m.group() for m in find_words(("valve",), "Valves (VALVE)")]
    ['VALVE']
    """
    return [match for match, _ in _glossary_of(words).find(text)]


def casings(word: str) -> list[str]:
    """A word as it is, in lower case, capitalized, and in capitals.

    >>> casings("check Valve")
    ['check Valve', 'check valve', 'Check valve', 'CHECK VALVE']
    """
    lower = word.lower()
    ways = word, lower, lower[:1].upper() + lower[1:], word.upper()
    return list(dict.fromkeys(ways))


@functools.lru_cache(8)
def _glossary_of(words):
    """The glossary that finds words."""
    return Glossary(Term(word, (word,)) for word in words)


class _Reading:
    """A text, in which the terms of a `Glossary._index` are looked for.

    A term that is found is a tuple, the least of which counts first: its
    length, negative; whether its case differs; its number; begin; end; the
    number of its first word, or -1.
    """

    def __init__(self, text, trie, searched):
        self._trie, self._searched = trie, searched
        self._plain, self._folded = read_as(text), read_as(text, fold=True)
        words = list(_words(self._folded.text))
        self._keys = [*(key for key, _ in words), None]
        self._spans = [self._folded.span(match) for _, match in words]
        self.words = range(len(words))

    def longest(self, word, limit=math.inf):
        """The longest term from a word on that ends in time; None: none."""
        found, last, begin = [], word, self._spans[word][0]
        node = self._trie.get(self._keys[word].strip())
        while node and (end := self._spans[last][1]) <= limit:
            if TERMS in node:
                found.append((end, node[TERMS]))
            last += 1
            node = node.get(self._keys[last])
        for end, numbers in reversed(found):
            own = numbers.get(self._spelling(begin, end))
            number = numbers.get(TERMS) if own is None else own
            if number is not None:
                return begin - end, own is None, number, begin, end, word
        return None

    def searched(self):
        """Yields the terms that are `SEARCHED`."""
        for number, term in self._searched:
            in_case, is_pattern = (f in term.flags for f in ("case", "pattern"))
            view = self._plain if is_pattern else self._folded
            for match in term.pattern.finditer(view.text):
                if match.group():
                    begin, end = view.span(match)
                    is_same = in_case
                    if not is_pattern:
                        is_same = self._spelling(begin, end) == term.spelling
                    if is_same or not in_case:
                        yield begin - end, not is_same, number, begin, end, -1

    def _spelling(self, begin, end):
        """A part of the text in its own case."""
        plain = self._plain
        first = bisect.bisect_left(plain.begins, begin)
        last = bisect.bisect_right(plain.ends, end)
        return _spelling(plain.text[first:last])


def _words(text):
    """Yields each word, after a space if the text has one there, and a match.

    The first one has none.
    """
    end = len(text)
    for match in WORD.finditer(text):
        yield " " * (match.start() > end) + match.group(), match
        end = match.end()


def _spelling(text):
    """A text whose words have one space between them."""
    return " ".join(text.split())


def _read_lines(path):
    """The lines of a file, UTF-8."""
    try:
        return pathlib.Path(path).read_text("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: expected text in UTF-8, as of a spreadsheet that is saved"
            f" as CSV. Received: no UTF-8 ({error.reason})"
        ) from error


def _delimiter(name, line):
    """What separates the fields of a glossary, by its name and first line."""
    if "\t" in line or not (name.lower().endswith(".csv") or line[:1] == '"'):
        return "\t"
    return max(",;", key=lambda sign: len(_fields(line, sign)))


def _fields(line, delimiter):
    """The fields of a line; quotes that are not around one are signs."""
    try:
        [fields] = csv.reader([line], delimiter=delimiter, strict=True)
    except (csv.Error, ValueError):
        return line.split(delimiter)
    return fields


def _is_header(table):
    """Whether the first row names languages, and no other has its term."""
    first, *others = table
    names = [regex.split("[-_ (]", f.strip().lower())[0] for f in first]
    terms = {row[0].strip().lower() for row in others}
    is_term = first[0].strip().lower() in terms
    return len(names) in (2, 4) and LANGUAGES.issuperset(names) and not is_term


def _is_code(field):
    """Whether a field is the code of a language, such as EN-GB."""
    match = CODE.fullmatch(field.strip().lower())
    return match is not None and match[1] in LANGUAGES


def _parse(fields: Sequence[str]) -> Term:
    """The term of the fields of a line."""
    if len(fields) not in (2, 3):
        plural = "s" * (len(fields) != 1)
        raise ValueError(
            "expected a term, a tab and its translation, and flags after"
            f" another tab. Received: {len(fields)} field{plural}"
        )
    source, targets, *flags = fields
    given = [f.strip() for flag in flags for f in flag.split(",")]
    return Term.of(source, targets, filter(None, given))
