"""Glossaries: terms of the source and how their translations must read.

A file has a line for each term: the term, a tab, its translation, or several
separated by `|`, and, after another tab, flags separated by commas:

    valve       Ventil|Klappe
    IT          IT                case
    colou?rs?   Farbe             pattern

A term is a whole word, or several, in any case, unless a flag says otherwise:
`case` for exactly this case, `part` also inside words, `pattern` for a regular
expression. Blank lines and lines that begin with `#` do not count.
"""

import dataclasses
import os
import pathlib
import re
from collections.abc import Iterable, Sequence

FLAGS = ("case", "part", "pattern")
WORD = re.compile(r"\w+")
# Han, kana, Thai, Lao, Khmer, Myanmar: no spaces between words.
SPACELESS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uf900-\ufaff"
)


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
        try:
            self.pattern.match("")
        except re.error as error:
            raise ValueError(
                f"the pattern must be a regular expression ({error})."
                f" Received: {self.source!r}"
            ) from error

    @property
    def pattern(self) -> re.Pattern[str]:
        """The regular expression of the term."""
        term = self.source
        if "pattern" not in self.flags:
            term = r"\s+".join(map(re.escape, term.split()))
        if "part" not in self.flags:
            inside = rf"[^\W{SPACELESS}]"  # words of spaceless scripts touch
            term = (
                rf"(?<!{inside}(?={inside}))(?:{term})(?!(?<={inside}){inside})"
            )
        flags = re.NOFLAG if "case" in self.flags else re.IGNORECASE
        return re.compile(term, flags)


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
        self._by_word: dict[str, list[tuple[re.Pattern[str], Term]]] = {}
        self._others: list[tuple[re.Pattern[str], Term]] = []
        for term in self.terms:
            first = WORD.match(term.source.strip())
            if term.flags & {"part", "pattern"} or first is None:
                self._others.append((term.pattern, term))
            elif re.search(f"[{SPACELESS}]", first.group()):
                self._others.append((term.pattern, term))
            else:
                word = first.group().casefold()
                self._by_word.setdefault(word, []).append((term.pattern, term))

    def terms_of(self, text: str) -> tuple[tuple[str, ...], ...]:
        """The translations of the terms in a text, each once, in order.

        Of terms that overlap, the longest counts.
        """
        found = [
            (match, term)
            for pattern, term in self._others
            for match in pattern.finditer(text)
            if match.group()
        ]
        for word in WORD.finditer(text):
            for pattern, term in self._by_word.get(word.group().casefold(), ()):
                if match := pattern.match(text, word.start()):
                    found.append((match, term))
        found.sort(key=lambda x: (x[0].start() - x[0].end(), x[0].start()))
        chosen: list[tuple[re.Match[str], Term]] = []
        for match, term in found:
            if all(
                match.end() <= other.start() or other.end() <= match.start()
                for other, _ in chosen
            ):
                chosen.append((match, term))
        chosen.sort(key=lambda x: x[0].start())
        return tuple(dict.fromkeys(term.targets for _, term in chosen))

    @classmethod
    def parse(cls, lines: Iterable[str], name: str) -> "Glossary":
        """The glossary of the lines of a file.

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
    def read(cls, path: str | os.PathLike) -> "Glossary":
        """The glossary of a file, UTF-8.

        Raises:
            ValueError: As `parse`, or it is not UTF-8.
            OSError: It cannot be read.
        """
        try:
            text = pathlib.Path(path).read_text("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: not UTF-8 ({error.reason})") from error
        return cls.parse(text.split("\n"), str(path))


def _parse(fields: Sequence[str]) -> Term:
    """The term of the fields of a line."""
    if len(fields) not in (2, 3):
        raise ValueError(
            "expected a term, a tab and its translation, and flags after"
            f" another tab. Received: {len(fields)} fields"
        )
    source, targets, *flags = (field.strip() for field in fields)
    return Term(
        source,
        tuple(form.strip() for form in targets.split("|")),
        frozenset(
            f.strip() for flag in flags for f in flag.split(",") if f.strip()
        ),
    )
