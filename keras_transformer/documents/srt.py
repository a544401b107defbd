"""Subtitles: SubRip (.srt), and WebVTT, whose cues have the same form."""

from collections.abc import Iterator

import regex

from keras_transformer.documents.markup import tagged_items
from keras_transformer.documents.sentences import (
    Sentence,
    Split,
    separate,
)
from keras_transformer.documents.text import line_items

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
DASH = regex.compile(r"[ \t]*[-\u2013\u2014][ \t]*")


def read(text: str, split: Split) -> Iterator[str | Sentence]:
    """The pieces of a file of subtitles.

    Args:
        text, split: As of every reader.

    Raises:
        ValueError: It has text but no cue.
    """
    cues = list(CUE.finditer(text))
    if text.strip() and not cues:
        raise ValueError(
            "line 1: subtitles must have lines such as"
            " '00:00:01,000 --> 00:00:02,500'. Received: no such line"
        )
    read_to = 0
    for cue in cues:
        begin, end = cue.span("text")
        yield text[read_to:begin]
        for line, separator in separate(text[begin:end], SPEAKER):
            dash = DASH.match(line)
            if dash:
                yield dash.group()
                line = line[dash.end() :]
            yield from split(line_items(line, tagged_items))
            yield separator
        read_to = end
    yield text[read_to:]
