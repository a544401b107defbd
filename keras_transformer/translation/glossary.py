"""Glossaries: terms of the source and the translations that they must have.

A file has a line for each term: the term, a tab, its translation, or several
separated by `|`, and, after another tab, flags separated by commas:

    valve       Ventil|Klappe
    IT          IT                case
    colou?rs?   Farbe             pattern

A term matches one or more whole words in any case, unless it has flags: `case`
matches exactly this case, `part` also matches inside words, and `pattern` makes
the term a regular expression. Blank lines, lines that begin with `#`, and a
first line with two languages are skipped. Fields may be in quotes. A .csv file
has commas or semicolons, and may have the columns of DeepL: both texts, both
languages. A first line `sep=;`, as in Excel, names the separator.

Text is normalized before it is matched; see `read_as`.

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

from keras_transformer.base.refusals import expect
from keras_transformer.data.files.pairs import SEPARATOR

# Checks the translations of a term, and raises ValueError if they are wrong.
Check = Callable[[Sequence[str]], object]

FLAGS = ("case", "part", "pattern")
SEARCHED = {"part", "pattern"}  # flags of terms that need a regular expression
# Han, kana, Thai, Lao, Khmer, Myanmar have no spaces between words.
SPACELESS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uf900-\ufaff"
)
IN_WORD = rf"[^\W{SPACELESS}]"  # including the marks that belong to a letter
WORD = regex.compile(rf"{IN_WORD}++|\S")  # a word, or another character
WHOLE = regex.compile(r".+", regex.DOTALL)
# A key in the trie of terms: of the terms that end at a node and, among these,
# of the term that matches any case.
TERMS = ""
# Characters that readers do not see (soft hyphens, joiners, directions,
# tatweel), and quotes and hyphens that look like plain ones.
UNSEEN = "\u00ad\u034f\u061c\u0640\u200b-\u200f\u2060-\u2064\ufe00-\ufe0f\ufeff"
SIGNS = str.maketrans(
    dict.fromkeys("\u2018\u2019\u201b\u02bc\u2032`\u00b4", "'")
    | dict.fromkeys("\u2010\u2011", "-")
    | dict.fromkeys("\u201c\u201d\u201e\u201f", '"')
)
CLUSTER = regex.compile(rf"[{UNSEEN}]|\X")
LONGEST_CLUSTER = 32  # characters, since n marks take n * n steps to normalize
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
    """A normalized text, and the position of each character in the original."""

    text: str
    begins: Sequence[int]
    ends: Sequence[int]

    def span(self, match: regex.Match) -> tuple[int, int]:
        """Returns begin and end of a match in the original text."""
        return self.begins[match.start()], self.ends[match.end() - 1]


def read_as(text: str, fold: bool = False) -> View:
    """Normalizes a text to NFKC, with plain quotes and hyphens.

    `fold` removes differences of case, also between STRASSE and Straße.

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
    """Yields begin and end of the parts that are normalized independently."""
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
    if fold:  # treat the dotted and dotless i of Turkish alike
        plain = unicodedata.normalize("NFKC", plain.casefold())
        plain = plain.replace("i\u0307", "i").replace("\u0131", "i")
    return plain


@dataclasses.dataclass(frozen=True)
class Term:
    """A line of a glossary."""

    source: str  # the term
    targets: tuple[str, ...]  # its translations, of which an output needs one
    flags: frozenset[str] = frozenset()  # a subset of `FLAGS`

    def __post_init__(self):
        expect(
            self.source.strip() and all(map(str.strip, self.targets)),
            "a term, a tab and its translation",
            f"{self.source!r} and {'|'.join(self.targets)!r}",
        )
        unknown = sorted(self.flags - set(FLAGS))
        expect(not unknown, f"flags among {', '.join(FLAGS)}", *unknown)
        if "pattern" not in self.flags:
            return  # other terms are compiled on first use, most of them never
        try:
            self.pattern.match("")
        except regex.error as error:
            raise ValueError(
                f"expected a regular expression ({error})."
                f" Received: {self.source!r}"
            ) from error

    @classmethod
    def of(cls, source: str, targets: str, flags: Iterable[str] = ()) -> "Term":
        """Makes a term from `targets`, translations separated by `|`."""
        forms = (form.strip() for form in targets.split("|"))
        return cls(source.strip(), tuple(forms), frozenset(flags))

    @property
    def spelling(self) -> str:
        """The term normalized as in a `View`, with its case."""
        return _spelling(read_as(self.source).text)

    @functools.cached_property
    def pattern(self) -> regex.Pattern:
        """The regular expression that finds a `SEARCHED` term in a `View`."""
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
    """Terms with their translations.

    >>> glossary = Glossary([Term("valve", ("Ventil", "Klappe"))])
    >>> glossary.terms_of("The Valve of a valveless pump.")
    (('Ventil', 'Klappe'),)
    """

    def __init__(self, terms: Iterable[Term]):
        self.terms = list(terms)

    @functools.cached_property
    def _index(self):
        """A trie of the words of terms, and a list of the `SEARCHED` terms.

        So the cost of a search depends on the words of the text, not on the
        number of terms. The node of a term's last word has a dict at `TERMS`,
        with the term's number by its spelling, and by `TERMS` if it matches any
        case. The index is made on first use, because a server reads all
        requests in one thread.
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
        """The SHA-256 of the terms."""
        rows = [(t.source, t.targets, sorted(t.flags)) for t in self.terms]
        return hashlib.sha256(repr(rows).encode()).hexdigest()

    def terms_of(self, text: str) -> tuple[tuple[str, ...], ...]:
        """Returns the translations of the terms in a text, each once, in order.

        If terms overlap, the longest one is used. A tie is broken by the same
        case, then by the order in the glossary.
        """
        return tuple(dict.fromkeys(term.targets for _, term in self.find(text)))

    def find(self, text: str) -> list[tuple[regex.Match, Term]]:
        """Finds the terms in a text, in order, each with its match."""
        if not self.terms:
            return []
        reading = _Reading(text, *self._index)
        heap = [
            *reading.searched(),
            *filter(None, map(reading.longest, reading.words)),
        ]
        heapq.heapify(heap)
        # The chosen spans, in order. They never overlap.
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
        """Makes a glossary from translations by term, separated by `|`."""
        return cls(Term.of(*item) for item in translations.items())

    @classmethod
    def parse(
        cls,
        lines: Iterable[str],
        name: str,
        check: Check | None = None,
        tell: bool = True,
    ) -> "Glossary":
        """Parses the lines of a file of this name.

        `check` is called with the translations of each term. If `tell` is true,
        a first line that is read as a header is logged.

        Raises ValueError, with the name and the line, if a line is wrong or a
        term occurs twice.
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
            logging.log(
                logging.WARNING if tell else logging.DEBUG,
                "%s: line %d: read as the languages of the glossary, not as a"
                " term: %s. A term must not be on the first line",
                name,
                number,
                " and ".join(languages[:2]),
            )
        pairs: set[tuple[str, ...]] = set()
        for number, fields in table:
            try:
                is_table = len(fields) == 4 and all(map(_is_code, fields[2:]))
                if delimiter != "\t" and is_table:  # DeepL's
                    pairs.add(tuple(f.strip().lower() for f in fields[2:]))
                    fields = fields[:2]
                languages = "one source and one target language"
                expect(len(pairs) < 2, languages, sorted(pairs))
                term = _parse(fields)
                if check is not None:
                    check(term.targets)
                is_new = (term.source, term.flags) not in terms
                expect(is_new, "each term once", f"{term.source!r} again")
            except ValueError as error:
                raise ValueError(f"{name}: line {number}: {error}") from error
            terms[term.source, term.flags] = term
        return cls(terms.values())

    @classmethod
    def read(
        cls,
        path: str | os.PathLike,
        check: Check | None = None,
        tell: bool = True,
    ) -> "Glossary":
        """Reads a UTF-8 file; other arguments are as in `parse`.

        Raises ValueError as `parse` does, or if the file is not UTF-8, or has
        no term. Raises
        OSError if the file cannot be read.
        """
        found = cls.parse(_read_lines(path), str(path), check, tell)
        expect(found.terms, "terms, one a line", "none", where=path)
        return found


def read_words(path: str | os.PathLike) -> tuple[str, ...]:
    """Reads a file of forbidden words; errors as in `Glossary.read`."""
    lines = [line.strip() for line in _read_lines(path)]
    words = tuple(line for line in lines if line and not line.startswith("#"))
    expect(words, "words, one a line", "none", where=path)
    return words


def find_words(words: tuple[str, ...], text: str) -> list[regex.Match]:
    """Finds whole words in a text, ignoring case.

    >>> [m.group() for m in find_words(("valve",), "Valves (VALVE)")]
    ['VALVE']
    """
    return [match for match, _ in _glossary_of(words).find(text)]


def casings(word: str) -> list[str]:
    """Returns a word as it is, in lower case, capitalized and in upper case.

    >>> casings("check Valve")
    ['check Valve', 'check valve', 'Check valve', 'CHECK VALVE']
    """
    lower = word.lower()
    ways = word, lower, lower[:1].upper() + lower[1:], word.upper()
    return list(dict.fromkeys(ways))


@functools.lru_cache(8)
def _glossary_of(words):
    return Glossary(Term(word, (word,)) for word in words)


class _Reading:
    """A text in which the terms of a `Glossary._index` are searched.

    A match is a tuple: minus its length; whether its case differs; the number
    of the term; begin; end; the index of its first word, or -1 for a `SEARCHED`
    term. The smallest tuple takes precedence.
    """

    def __init__(self, text, trie, searched):
        self._trie, self._searched = trie, searched
        self._plain, self._folded = read_as(text), read_as(text, fold=True)
        words = list(_words(self._folded.text))
        self._keys = [*(key for key, _ in words), None]
        self._spans = [self._folded.span(match) for _, match in words]
        self.words = range(len(words))

    def longest(self, word, limit=math.inf):
        """Finds the longest term that begins at a word and ends by `limit`."""
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
        """Yields the matches of `SEARCHED` terms."""
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
        """Returns the spelling of a part of the text, with its case."""
        plain = self._plain
        first = bisect.bisect_left(plain.begins, begin)
        last = bisect.bisect_right(plain.ends, end)
        return _spelling(plain.text[first:last])


def _words(text):
    """Yields each word and its match.

    A word begins with a space if the text has space before it, except the first
    word.
    """
    end = len(text)
    for match in WORD.finditer(text):
        yield " " * (match.start() > end) + match.group(), match
        end = match.end()


def _spelling(text):
    """Replaces each run of white space by one space, and strips the ends."""
    return " ".join(text.split())


def _read_lines(path):
    try:
        return pathlib.Path(path).read_text("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: expected text in UTF-8; save a spreadsheet as CSV in"
            f" UTF-8. Received: {error.reason}"
        ) from error


def _delimiter(name, line):
    """Infers a glossary's field separator from its file name and first line."""
    if "\t" in line or not (name.lower().endswith(".csv") or line[:1] == '"'):
        return "\t"
    return max(",;", key=lambda sign: len(_fields(line, sign)))


def _fields(line, delimiter):
    """Splits a line into fields; quotes inside a field are kept."""
    try:
        [fields] = csv.reader([line], delimiter=delimiter, strict=True)
    except (csv.Error, ValueError):
        return line.split(delimiter)
    return fields


def _is_header(table):
    """Tells whether the first row names languages, and is no later term."""
    first, *others = table
    names = [regex.split("[-_ (]", f.strip().lower())[0] for f in first]
    terms = {row[0].strip().lower() for row in others}
    is_term = first[0].strip().lower() in terms
    return len(names) in (2, 4) and LANGUAGES.issuperset(names) and not is_term


def _is_code(field):
    """Tells whether a field is a language code, such as EN-GB."""
    match = CODE.fullmatch(field.strip().lower())
    return match is not None and match[1] in LANGUAGES


def _parse(fields: Sequence[str]) -> Term:
    expect(
        len(fields) in (2, 3),
        "a term, a tab and its translation, and flags after another tab",
        f"{len(fields)} fields",
    )
    source, targets, *flags = fields
    given = [f.strip() for flag in flags for f in flag.split(",")]
    return Term.of(source, targets, filter(None, given))
