"""Properties of written text, for figures, pages and messages."""

import re
import unicodedata

# Characters that XML 1.0 cannot hold, in any notation.
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
RIGHT_TO_LEFT = frozenset(
    "acm ajp apc ar ara arb arc ars ary arz azb ckb dv div fa fas he heb iw ji"
    " ks lrc mzn nqo pbt pes pnb prs ps pus sd snd syr ug uig ur urd yi"
    " yid".split()
)
RIGHT_TO_LEFT_SCRIPTS = frozenset("adlm arab hebr nkoo rohg syrc thaa".split())


def printable(text: str) -> str:
    """Replaces every character that XML cannot hold by U+FFFD.

    >>> printable("a\\0b\\ud800")
    'a\ufffdb\ufffd'
    """
    return NOT_XML.sub("\ufffd", text)


def is_wide(character: str) -> bool:
    """Returns whether a character is as wide as it is high, as in Chinese."""
    return unicodedata.east_asian_width(character) in "WF"


def direction(language: str | None) -> str:
    """Returns HTML's `dir` for text in a language: rtl, ltr or auto.

    With auto, the browser follows the first letter, which is wrong for a Hebrew
    sentence that begins with a Latin name. The code may name a script.

    >>> direction("he"), direction("az_Arab"), direction("de"), direction(None)
    ('rtl', 'rtl', 'ltr', 'auto')
    """
    if not language:
        return "auto"
    name, *others = language.lower().replace("_", "-").split("-")
    scripts = [part for part in others if len(part) == 4 and part.isalpha()]
    if scripts:
        return "rtl" if scripts[0] in RIGHT_TO_LEFT_SCRIPTS else "ltr"
    return "rtl" if name in RIGHT_TO_LEFT else "ltr"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Writes a number with its noun: `1 shape`, `2 shapes`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
