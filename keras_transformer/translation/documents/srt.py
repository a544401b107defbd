"""Subtitles: SubRip (.srt), and WebVTT, whose cues have the same form."""

import regex

from keras_transformer.translation.documents.markup import tagged_items
from keras_transformer.translation.documents.sentences import (
    SPACE,
    Item,
    Sentence,
    Split,
    separate,
)

# The line with a cue's times, and the lines after it up to a blank one.
CUE = regex.compile(
    r"""
    ^[ \t]*(?:\d+:)?\d+:\d+[.,]\d+[ \t]*-->.*(?:\r\n|[\r\n])
    (?<text>(?:[ \t]*[^\s].*(?:\r\n|[\r\n]|\Z))*)
    """,
    regex.VERBOSE | regex.MULTILINE,
)
# A new line is a new sentence only if another speaker begins.
SPEAKER = regex.compile(
    r"(?:\r\n|[\r\n])+(?=[ \t]*(?:<[^<>]*>)*[-\u2013\u2014])"
)
LINE_END = regex.compile(r"(?:(?<![ \t])[ \t]++)?(?:\r\n|[\r\n])+[ \t]*")
DASH = regex.compile(r"[ \t]*[-\u2013\u2014][ \t]*")


def read(text: str, split: Split) -> list[str | Sentence]:
    """The pieces of a file of subtitles.

    Args:
        text: The file.
        split: `sentences.split` for its language.

    Raises:
        ValueError: It has text but no cue.
    """
    cues = list(CUE.finditer(text))
    if text.strip() and not cues:
        raise ValueError(
            "line 1: subtitles must have lines such as"
            " '00:00:01,000 --> 00:00:02,500'. Received: no such line"
        )
    pieces: list[str | Sentence] = []
    read_to = 0
    for cue in cues:
        begin, end = cue.span("text")
        pieces.append(text[read_to:begin])
        for line, separator in separate(text[begin:end], SPEAKER):
            dash = DASH.match(line)
            if dash:
                pieces.append(dash.group())
                line = line[dash.end() :]
            items = [
                item
                for part, line_end in separate(line, LINE_END)
                for item in [*tagged_items(part), Item(line_end, " ", SPACE)]
                if item.raw
            ]
            pieces += [*split(items), separator]
        read_to = end
    return [piece for piece in [*pieces, text[read_to:]] if piece]
