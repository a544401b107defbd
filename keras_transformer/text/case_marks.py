"""Case marks: text in lower case, with a mark where capital letters are.

A model that reads lower case with marks knows a word in every casing, also in
capitals (Bérard et al. 2019, "inline casing"). The marks, and what is in
capitals after each:

    TITLE   the next letter
    UPPER   the next unit: it ends at a space, hyphen, slash or apostrophe
    BEGIN   everything up to END

A mark is before the space before its letter, so that a word has the same tokens
in every casing. With ^ for TITLE, U for UPPER, < for BEGIN and > for END:

    The NASA's iPhone: READ THIS!     ^▁theU▁nasa's▁i^phone:<▁read▁this>!

Marks are put into text that SentencePiece has normalized. A capital letter is
lower-cased only if its lower case is a single letter whose upper case is the
same capital letter. So "İ" and "ẞ" stay as they are.
"""

import functools
import re
import typing

from keras_transformer.text.vocabulary import SPACE

# Private-use characters whose last byte is an ASCII letter.
TITLE, UPPER = "\U0010ff54", "\U0010ff55"
BEGIN, END = "\U0010ff42", "\U0010ff45"
MARKS = TITLE + UPPER + BEGIN + END
STRAY = "\ufffd"  # replaces marks in text
# How figures and lists of tokens show the marks.
GLYPHS = dict(zip(MARKS, ("⇧", "⇪", "⇪…", "…⇩"), strict=True))
UNIT_BREAKS = SPACE + " -‐–—/'’"
SIGMA, FINAL_SIGMA = "Σ", "ς"
CODES = 0x20000  # Unicode has no letters with case from here on

_WITHOUT_MARKS = dict.fromkeys(map(ord, MARKS))


class Casing(typing.NamedTuple):
    """The letters with case, and the patterns that find them."""

    lower: dict[int, int]  # the small letter of each capital one, by code point
    # The capital letter of each small one, including the final sigma.
    upper: dict[int, int]
    marked: re.Pattern[str]  # text with capital letters that share a mark
    final: re.Pattern[str]  # a capital sigma that becomes a final one


@functools.cache
def casing() -> Casing:
    """Makes the `Casing` of this version of Unicode."""
    lower = {}
    for code in range(CODES):
        small = chr(code).lower()
        if len(small) == 1 and chr(code) != small:
            if small.upper() == chr(code):
                lower[code] = ord(small)
    upper = {small: capital for capital, small in lower.items()}
    upper[ord(FINAL_SIGMA)] = ord(SIGMA)
    ends, capital = re.escape(UNIT_BREAKS), "".join(map(chr, lower))
    small = "".join(map(chr, upper))
    other = f"[^{ends}{small}{capital}]*"
    rest = f"[^{ends}{small}]*(?![^{ends}])"  # of a unit without small letters
    # From the first to the last capital letter of such a unit, at least two.
    unit = f"[{capital}](?:{other}[{capital}])+(?={other}(?![^{ends}]))"
    more = f"(?:{rest}[{ends}])+{other}{unit}"
    return Casing(
        lower,
        upper,
        re.compile(
            f"(?<![^{ends}])(?P<other>{other})(?P<unit>{unit}(?P<more>{more})?)"
            f"|[{capital}]+"
        ),
        re.compile(f"(?<=[{capital}]){SIGMA}(?![{capital}])"),
    )


def mark(text: str) -> str:
    """Converts normalized text to lower case, with marks.

    A unit with two or more capital letters and no small ones has UPPER. Several
    such units without small letters between them form one region, from BEGIN to
    END. In other units, several capital letters in a row form a region, and a
    single one has TITLE.

    Marks in the text become `STRAY`.

    >>> [GLYPHS.get(c, c) for c in mark("▁An▁OLD")]
    ['⇧', '▁', 'a', 'n', '⇪', '▁', 'o', 'l', 'd']
    """
    text = re.sub(f"[{MARKS}]", STRAY, text)
    text = casing().marked.sub(_mark_found, text)
    return re.sub(f"{SPACE}([{TITLE}{UPPER}{BEGIN}])", rf"\1{SPACE}", text)


def _mark_found(match):
    """Marks the text of a match of `Casing.marked`."""
    capitals, first, last = match["unit"], BEGIN, END
    if capitals is None:
        capitals = match[0]
        if len(capitals) == 1:
            first, last = TITLE, ""
    elif match["more"] is None:
        first, last = UPPER, ""
    capitals = casing().final.sub(FINAL_SIGMA, capitals)
    lower = capitals.translate(casing().lower)
    return f"{match['other'] or ''}{first}{lower}{last}"


def capitalize(text: str) -> str:
    """Restores the capital letters of marked text, with `▁` or spaces.

    The marks stay, so that offsets do not change. Any marks are valid: BEGIN
    without END extends to the end of the text, and a mark with nothing to
    capitalize has no effect.

    >>> remove_marks(capitalize(mark("▁IBM's▁iPhone▁SALE▁IS▁ON!")))
    "▁IBM's▁iPhone▁SALE▁IS▁ON!"
    """
    ends = re.escape(UNIT_BREAKS) + MARKS
    return re.sub(
        f"{BEGIN}[^{END}]*|{UPPER}[ {SPACE}]?[^{ends}]*"
        f"|{TITLE}[ {SPACE}]?[^{MARKS}]",
        lambda match: match[0].translate(casing().upper),
        text,
    )


def remove_marks(text: str) -> str:
    """Removes the marks from a text."""
    return text.translate(_WITHOUT_MARKS)
