"""Subtitles: SubRip, WebVTT, and Advanced SubStation Alpha (.ass).

pysubs2 and webvtt-py rewrite times and tags, and lose some. This module finds
the same text in a cue as they do.
"""

from collections.abc import Iterator

import regex

from keras_transformer.documents.items import (
    ALONE,
    CLOSE,
    NARROW,
    OPEN,
    SPACE,
    Item,
    Split,
    plain_items,
    separate,
)
from keras_transformer.documents.markup import entity_item, escape, plain_text
from keras_transformer.documents.pieces import Label, Left
from keras_transformer.documents.text import line_items

LINE_END = r"(?:\r\n|[\r\n])"
# The line with a cue's times.
TIMES = regex.compile(
    r"^[ \t]*(?:\d+:)?\d+:\d+(?:[.,:]\d*)?[ \t]*-->[ \t]*\d[^\r\n]*", regex.M
)
VTT_BLOCK_END = regex.compile(rf"{LINE_END}(?:[ \t]*{LINE_END})+")
VTT_LANGUAGE = regex.compile(
    r"(?<before>[^\r\n]++(?:\r?\n(?!Language:)[^\r\n]++)*+\r?\nLanguage:\s*+)"
    r"[\w-]++"
)
VTT_CODE = regex.compile(
    r"(?<ruby><rt\b[^<>]*+>[^<>]*+</rt>)|(?<entity>&\#?\w{1,31};)"
    r"|<(?<close>/?)(?<name>[a-z]*+)[^<>]*+>"
)
NO_TEXT = ("WEBVTT", "STYLE", "REGION")
# A new line is a new sentence only if another speaker begins.
SPEAKER = regex.compile(
    rf"(?<![\r\n]){LINE_END}++(?=[ \t]*+(?:<[^<>]*+>)*+[-\u2013\u2014])"
)
DASH = regex.compile(r"\A[\r\n]*+[ \t]*+[-\u2013\u2014][ \t]*")
ASS_CODE = regex.compile(r"\{[^{}]*+\}|\\[Nnh]")
DRAWING = regex.compile(r"\\p[1-9]")


def read(text: str, split: Split, target: str = "") -> Iterator:
    """Yields the pieces of a SubRip or WebVTT file.

    If WebVTT says its language, the translation says `target`.

    Raises ValueError if a SubRip file has no cue.
    """
    is_vtt = text.startswith("WEBVTT")
    cues = list(TIMES.finditer(text))
    if text.strip() and not (cues or is_vtt):
        raise ValueError(
            "line 1: subtitles must have lines such as"
            " '00:00:01,000 --> 00:00:02,500'. Received: no such line"
        )
    ends = [cue.start() for cue in cues] + [len(text)]
    head = text[: ends[0]]
    if is_vtt and target and (found := VTT_LANGUAGE.match(head)):
        code = target.replace("_", "-")
        yield Label(head[: found.end()], f"{found['before']}{code}")
        head = head[found.end() :]
    yield from _read_blocks(head) if is_vtt else [head]
    for number, cue in enumerate(cues):
        yield cue.group()
        rest = text[cue.end() : ends[number + 1]]
        end = len(rest)
        make_items, write = plain_text(rest)
        if is_vtt:
            between = VTT_BLOCK_END.search(rest)
            end = between.start() if between else end
            make_items, write = _vtt_items, escape
        elif number + 1 < len(cues):
            end = _end_of_cue(rest)
        yield from _read_cue(rest[:end], split, make_items, write)
        yield from _read_blocks(rest[end:]) if is_vtt else [rest[end:]]


def _end_of_cue(rest):
    """Finds the end of a cue's text, before the next cue's number."""
    kept = rest.rstrip()
    begin = max(kept.rfind("\n"), kept.rfind("\r")) + 1
    return begin if kept[begin:].strip().isdecimal() else len(rest)


def _read_cue(text, split, make_items, write):
    if not text.strip():
        yield Left(text, "cue without text")
        return
    for line, separator in separate(text, SPEAKER):
        dash = DASH.match(line)
        begin = dash.end() if dash else 0
        yield line[:begin]
        yield from split(line_items(line[begin:], make_items), write)
        yield separator


def _read_blocks(text):
    """Yields the pieces of the text between WebVTT cues."""
    for block, separator in separate(text, VTT_BLOCK_END):
        words = block.split(maxsplit=1)
        is_last = not separator  # then the block is the identifier of a cue
        if words and words[0] == "NOTE":
            yield Left(block, "NOTE")
        elif is_last or not words or words[0] in NO_TEXT:
            yield block
        else:
            yield Left(block, "text outside cues")
        yield separator


def _vtt_items(line):
    items, read = [], 0
    for match in VTT_CODE.finditer(line):
        items += plain_items(line[read : match.start()])
        read = match.end()
        if match["entity"]:
            items.append(entity_item(match.group()))
        elif match["ruby"]:
            items.append(Item(Left(match.group(), "ruby"), "", ALONE))
        else:
            kind = CLOSE if match["close"] else OPEN
            kind = kind if match["name"] else ALONE  # a time
            name = match["name"] or NARROW
            items.append(Item(match.group(), "", kind, name))
    return items + plain_items(line[read:])


def read_ass(text: str, split: Split) -> Iterator:
    """Yields the pieces of an Advanced SubStation Alpha file.

    Raises ValueError if it has no line of dialogue.
    """
    num_fields, has_dialogue = 10, False
    for line, line_end in separate(text, regex.compile(LINE_END)):
        key, _, value = line.partition(":")
        if key == "Format":  # the last such line is for events
            num_fields = value.count(",") + 1
        fields = value.split(",", num_fields - 1)
        if key == "Dialogue" and len(fields) == num_fields:
            has_dialogue = True
            yield line[: len(line) - len(fields[-1])]
            if DRAWING.search(fields[-1]):
                yield Left(fields[-1], "drawing")
            else:
                yield from split(_ass_items(fields[-1]))
        elif key == "Comment":
            yield Left(line, "comment")
        else:
            yield line
        yield line_end
    if text.strip() and not has_dialogue:
        raise ValueError(
            "line 1: subtitles must have lines that begin with 'Dialogue:'."
            " Received: no such line"
        )


def _ass_items(words):
    items = []
    for part, code in separate(words, ASS_CODE):
        items += plain_items(part)
        if code.startswith("\\"):
            items.append(Item(code, " ", SPACE))
        elif code:
            is_comment = "\\" not in code and any(map(str.isalpha, code))
            raw = Left(code, "comment") if is_comment else code
            items.append(Item(raw, "", ALONE, NARROW))
    return items
