"""Glossaries: terms of the source and how their translations must read.

A file has a line for each term: the term, a tab, its translation, or several
separated by `|`, and, after another tab, flags separated by commas:

    valve       Ventil|Klappe
    IT          IT                case
    colou?rs?   Farbe             pattern

A term is a whole word, or several, in any case, unless a flag says otherwise:
`case` for exactly this case, `part` also inside words, `pattern` for a regular
expression. Blank lines and lines that begin with `#` do not count.

A file of forbidden words has a word or a phrase in each line.
"""

import dataclasses
import functools
import hashlib
import os
import pathlib
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence

import regex

FLAGS = ("case", "part", "pattern")
# Han, kana, Thai, Lao, Khmer, Myanmar: no spaces between words.
SPACELESS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uf900-\ufaff"
)
IN_WORD = rf"[^\W{SPACELESS}]"  # with the marks that belong to a letter
WORD = regex.compile(rf"{IN_WORD}+")


@dataclasses.dataclass(frozen=True)
class Term:
    """A line of a glossary.

    Attributes:
        source: The term.
        targets: Its translations, one of which suffices.
        flags: A subset of `FLAGS`.
    """

    source: str
    targets: tuple[str, ...]
    flags: frozenset[str] = frozenset()

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

    @functools.cached_property
    def pattern(self) -> regex.Pattern:
        """The regular expression of the term."""
        term = self.source
        if "pattern" not in self.flags:
            term = r"\s+".join(map(regex.escape, term.split()))
        if "part" not in self.flags:
            # Words of spaceless scripts touch.
            term = (
                rf"(?<!{IN_WORD}(?={IN_WORD}))(?:{term})"
                rf"(?!(?<={IN_WORD}){IN_WORD})"
            )
        flags = 0 if "case" in self.flags else regex.IGNORECASE
        return regex.compile(term, flags)


class Glossary:
    """The terms of a glossary.

    >>> glossary = Glossary([Term("valve", ("Ventil", "Klappe"))])
    >>> glossary.terms_of("The Valve of a valveless pump.")
    (('Ventil', 'Klappe'),)
    """

    def __init__(self, terms: Iterable[Term]):
        self.terms = list(terms)
        # Terms of words by their first word: a text has few words, a glossary
        # many terms.
        self._by_word: dict[str, list[Term]] = {}
        self._others: list[Term] = []
        for term in self.terms:
            first = WORD.match(term.source.strip())
            if term.flags & {"part", "pattern"} or first is None:
                self._others.append(term)
            else:
                word = first.group().casefold()
                self._by_word.setdefault(word, []).append(term)

    @functools.cached_property
    def sha256(self) -> str:
        """The checksum of the terms."""
        rows = [(t.source, t.targets, sorted(t.flags)) for t in self.terms]
        return hashlib.sha256(repr(rows).encode()).hexdigest()

    def terms_of(self, text: str) -> tuple[tuple[str, ...], ...]:
        """The translations of the terms in a text, each once, in order.

        Of terms that overlap, the longest counts.
        """
        return tuple(dict.fromkeys(term.targets for _, term in self.find(text)))

    def find(self, text: str) -> list[tuple[regex.Match, Term]]:
        """The terms in a text, where they are, in order."""
        if not self.terms:
            return []
        found = [
            (match, term)
            for term in self._others
            for match in term.pattern.finditer(text)
            if match.group()
        ]
        for word in WORD.finditer(text):
            for term in self._by_word.get(word.group().casefold(), ()):
                if match := term.pattern.match(text, word.start()):
                    found.append((match, term))
        found.sort(key=lambda x: (x[0].start() - x[0].end(), x[0].start()))
        chosen: list[tuple[regex.Match, Term]] = []
        for match, term in found:
            if all(
                match.end() <= other.start() or other.end() <= match.start()
                for other, _ in chosen
            ):
                chosen.append((match, term))
        return sorted(chosen, key=lambda x: x[0].start())

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
    ) -> "Glossary":
        """The glossary of the lines of a file.

        `check` is called with the translations of each term; it may raise
        ValueError.

        Raises:
            ValueError: A line is wrong, or a term comes twice; the message has
                the name and the line.
        """
        terms: dict[tuple[str, frozenset[str]], Term] = {}
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            try:
                term = _parse(line.rstrip("\r\n").split("\t"))
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
    ) -> "Glossary":
        """The glossary of a file, UTF-8; `check` as in `parse`.

        Raises:
            ValueError: As `parse`, or it is not UTF-8.
            OSError: It cannot be read.
        """
        return cls.parse(_read_lines(path), str(path), check)


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
    """The glossary that finds words. Outputs are in the form NFKC."""
    forms = [unicodedata.normalize("NFKC", word) for word in words]
    return Glossary(Term(form, (form,)) for form in forms)


def _read_lines(path):
    """The lines of a file, UTF-8."""
    try:
        return pathlib.Path(path).read_text("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 ({error.reason})") from error


def _parse(fields: Sequence[str]) -> Term:
    """The term of the fields of a line."""
    if len(fields) not in (2, 3):
        raise ValueError(
            "expected a term, a tab and its translation, and flags after"
            f" another tab. Received: {len(fields)} fields"
        )
    source, targets, *flags = fields
    given = [f.strip() for flag in flags for f in flag.split(",")]
    return Term.of(source, targets, filter(None, given))
