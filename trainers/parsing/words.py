"""Splits text into words, as in the Penn Treebank.

Punctuation, the parts of contractions (`did n't`, `Anna 's`) and quotation
marks are words. Brackets are spelled out, since trees are written with them.
"""

import re

# Names of brackets in trees.
BRACKETS = {
    "(": "-LRB-",
    ")": "-RRB-",
    "[": "-LSB-",
    "]": "-RSB-",
    "{": "-LCB-",
    "}": "-RCB-",
}
# Pattern -> replacement, applied in order.
RULES = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        # Quotation marks: the opening and the closing ones are different words.
        ("[\u201c\u00ab]", " `` "),
        ("[\u201d\u00bb]", " '' "),
        ("\u2018", " ` "),
        ("\u2019", "'"),
        (r'(^|[\s(\[{<])"', r"\1 `` "),
        ('"', " '' "),
        (r"(^|[\s(\[{<])'(?=\w)(?!(?:s|m|d|ll|re|ve|t|em)\b)", r"\1 ` "),
        # Dashes and dots.
        ("\u2014|--+", " -- "),
        (r"\u2026|\.\.\.+", " ... "),
        # Punctuation; commas and colons stay in 1,000 and 3:30.
        (r"([;@#$%&?!])", r" \1 "),
        (r"([,:])(?!\d)", r" \1 "),
        (r"(?<!\d)([,:])", r" \1 "),
        (r"([()\[\]{}])", r" \1 "),
        # The period that ends the sentence, not those of abbreviations in it.
        (r"(?<![.\s])\.(?=[\s'\])}]*$)", " ."),
        # Contractions.
        (r"(?i)(?<=\w)(n't)\b", r" \1"),
        (r"(?i)(?<=\w)('(?:s|m|d|ll|re|ve))\b", r" \1"),
        (r"(?<=\w)'(?=\s|$)", " '"),
        (r"(?i)\b(can)(not)\b", r"\1 \2"),
        (r"(?i)\b(gon|wan)(na)\b", r"\1 \2"),
        (r"(?i)\b(got)(ta)\b", r"\1 \2"),
    )
)


def split_words(text: str) -> list[str]:
    """Splits a sentence into words.

    >>> print(*split_words('"He didn\u2019t see (Anna\u2019s) dog," she said.'))
    `` He did n't see -LRB- Anna 's -RRB- dog , '' she said .
    """
    for pattern, replacement in RULES:
        text = pattern.sub(replacement, text)
    return escape_brackets(text.split())


def escape_brackets(words: list[str]) -> list[str]:
    """Spells out the brackets that would begin or end a constituent.

    Replaces words that are brackets, and round brackets within other words.

    >>> escape_brackets(["(", "f(x)", "["])
    ['-LRB-', 'f-LRB-x-RRB-', '-LSB-']
    """
    return [
        BRACKETS.get(word)
        or word.replace("(", BRACKETS["("]).replace(")", BRACKETS[")"])
        for word in words
    ]
