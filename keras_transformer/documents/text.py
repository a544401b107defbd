"""Plain text: paragraphs, lines, indentation."""

import itertools
from collections.abc import Callable, Iterator

import regex

from keras_transformer.documents.items import (
    SPACE,
    Item,
    Split,
    plain_items,
    separate,
)

# A line end with the white space around it. A run of white space matches from
# its first character only, which takes linear time.
LINE_END = regex.compile(
    r"(?:(?<![ \t])[ \t]++)?(?>\r\n|[\n\r\v\f\x85\u2028\u2029])[ \t]*+"
)
LINE_ENDS = regex.compile(rf"(?:{LINE_END.pattern})++")
# A list mark has no letters, or is a short enumerator. `A. Smith` is text, and
# so is `3.5 km`: after 1.1, the first word must begin with a capital.
_NUMBER = r"\d{1,3}(?:\.\d{1,3}){0,5}"
_INDEX = rf"(?:{_NUMBER}|\p{{L}}|(?i:[ivx]{{2,5}}))"
LIST_MARK = regex.compile(
    rf"""(?:(?<![ \t])[ \t]++)?(?:
      # bullets, arrows, boxes, emoji; not quotes, brackets, prices, stops
      (?:(?![\p{{Sc}}\p{{Ps}}\p{{Pe}}\p{{Pi}}\p{{Pf}}"'`.,:;!?\u00a1\u00bf\u2026&@%\#/\\])
        [\p{{P}}\p{{S}}\p{{Co}}\u200d\ufe0f]){{1,20}}+[ \t]++
    | (?:[\u2022\u2023\u2043\u30fb\p{{Co}}\u2190-\u21ff\u2460-\u27bf]
        [\ufe0e\ufe0f]?)++[ \t]*+
    | o\t++ | \[[ xX*]?\][ \t]++ | \d\ufe0f?\u20e3[ \t]*+
    | [(\[]{_INDEX}[)\]][ \t]++ | {_INDEX}\.?\)[ \t]++
    | {_NUMBER}(?:\.[-\u2013]?|/)[ \t]++
    | (?:\p{{Ll}}|[ivx]{{2,5}})\.[ \t]++(?=\p{{L}}{{2}})(?!\p{{L}}{{1,3}}\.)
    | \d{{1,2}}(?:\.\d{{1,2}}){{1,5}}[ \t]++(?=\p{{Lu}})
        (?=(?:A[ ]|\p{{Lu}})\p{{Ll}})
    | (?:[\d一二三四五六七八九十]{{1,3}}\u3001|\uff08\w{{1,3}}\uff09)[ \t]*+
    ){{1,3}}+""",
    regex.VERBOSE,
)
PARAGRAPH_END = regex.compile(
    rf"(?:{LINE_END.pattern}){{2,}}|{LINE_END.pattern}(?={LIST_MARK.pattern})",
    regex.VERBOSE,
)
COLUMN_END = regex.compile(r"(?<=\S)(?: *\t[ \t]*| {3,})(?=\S)")
NARROWEST = 40  # least characters in the longest line of a wrapped paragraph
FULLEST = 0.85  # wrapped lines are longer than this share of the longest line


def read(
    text: str,
    split: Split,
    make_items: Callable[[str], list[Item]] = plain_items,
    escape: Callable[[str], str] = str,
) -> Iterator:
    """Yields the pieces of a plain text.

    A sentence ends with its line, unless the paragraph is wrapped: all lines
    but the last are full, and sentences continue on the next line. `make_items`
    splits text without line ends into items. `escape` is as in `Sentence`.
    """
    for paragraph, separator in separate(text, PARAGRAPH_END):
        mark = LIST_MARK.match(paragraph)
        if mark:
            yield mark.group()
            paragraph = paragraph[mark.end() :]
        lines = list(separate(paragraph, LINE_END))
        if _is_wrapped([line for line, _ in lines if line]):
            lines = [(paragraph, "")]
        for line, line_end in lines:
            for column, space in separate(line, COLUMN_END):
                yield from split(line_items(column, make_items), escape)
                yield space
            yield line_end
        yield separator


def _is_wrapped(lines):
    """Returns whether the lines of a paragraph are one wrapped text.

    A wrapped line has no room for the first word of the next line.
    """
    width = max(map(len, lines), default=0)
    return width >= NARROWEST and all(
        len(line) + 1 + len(after.split(" ")[0]) > FULLEST * width
        for line, after in itertools.pairwise(lines)
    )


def line_items(
    text: str, make_items: Callable[[str], list[Item]]
) -> list[Item]:
    """Makes the items of a line, or of several lines that are one text.

    `make_items` splits text without line ends into items.
    """
    return [
        item
        for part, line_end in separate(text, LINE_ENDS)
        for item in [*make_items(part), Item(line_end, " ", SPACE)]
        if item.raw
    ]
