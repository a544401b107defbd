"""Case marks, as in `keras_transformer/text/case_marks.py`."""

import functools
import re

# Case marks, from a private use area: capitals are the next letter, the next
# unit, which ends at a space, hyphen, slash or apostrophe, or a region.
TITLE, UPPER = "\U0010ff54", "\U0010ff55"
BEGIN, END = "\U0010ff42", "\U0010ff45"
MARKS = TITLE + UPPER + BEGIN + END
UNIT_BREAKS = "▁ -‐–—/'’"


@functools.cache
def casing() -> tuple[dict[int, int], dict[int, int], re.Pattern, re.Pattern]:
    """Returns maps to small and to capital letters, and two patterns.

    The patterns find text that gets a mark, and a final capital sigma.
    """
    lower = {}
    for code in range(0x20000):  # letters with case have lower code points
        small = chr(code).lower()
        if len(small) == 1 and chr(code) != small:
            if small.upper() == chr(code):
                lower[code] = ord(small)
    upper = {small: capital for capital, small in lower.items()}
    upper[ord("ς")] = ord("Σ")
    ends, big = re.escape(UNIT_BREAKS), "".join(map(chr, lower))
    small = "".join(map(chr, upper))
    other = f"[^{ends}{small}{big}]*"
    rest = f"[^{ends}{small}]*(?![^{ends}])"
    unit = f"[{big}](?:{other}[{big}])+(?={other}(?![^{ends}]))"
    more = f"(?:{rest}[{ends}])+{other}{unit}"
    pattern = f"(?<![^{ends}])({other})({unit}({more})?)|[{big}]+"
    final = f"(?<=[{big}])Σ(?![{big}])"  # a sigma at the end of a word
    return lower, upper, re.compile(pattern), re.compile(final)


def mark(text: str) -> str:
    """Converts normalized text to lower case, with marks for capital letters.

    UPPER marks a unit of several capital letters. Several such units, without
    small letters between them, are a region, from BEGIN to END.
    """
    lower, _, pattern, final = casing()

    def replace(match: re.Match) -> str:
        before, capitals, more = match.groups()
        first, last = (BEGIN, END) if more else (UPPER, "")
        if capitals is None:
            capitals = match[0]
            single = len(capitals) == 1
            first, last = (TITLE, "") if single else (BEGIN, END)
        small = final.sub("ς", capitals).translate(lower)
        return (before or "") + first + small + last

    text = pattern.sub(replace, re.sub(f"[{MARKS}]", "\ufffd", text))
    return re.sub(f"▁([{TITLE}{UPPER}{BEGIN}])", r"\1▁", text)


def restore(text: str) -> str:
    """Restores the capital letters of marked text, and removes the marks."""
    ends = re.escape(UNIT_BREAKS) + MARKS
    text = re.sub(
        f"{BEGIN}[^{END}]*|{UPPER}[ ▁]?[^{ends}]*|{TITLE}[ ▁]?[^{MARKS}]",
        lambda match: match[0].translate(casing()[1]),
        text,
    )
    return re.sub(f"[{MARKS}]", "", text)
