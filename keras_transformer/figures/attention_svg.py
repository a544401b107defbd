"""Attention as SVG: lines as in Figures 3 to 5 of the paper, or a heat map."""

import math
import typing
from collections.abc import Sequence

import numpy as np

from keras_transformer.figures.drawing import (
    PAPER,
    document,
    element,
    is_wide,
    line,
    text,
    text_width,
)

SIZE = 14  # of the font, in pixels
STEP = 22  # pixels from one token to the next
GAP = 150  # pixels between the two rows of tokens
MARGIN = 14
FAINTEST = 0.005  # weights below it are not drawn


class Drawing(typing.NamedTuple):
    """What a figure shows.

    Attributes:
        title: What it is, for those who cannot see it.
        queries, keys: The tokens, as they are shown.
        weights: float `[H, T, S]`, of the heads that are shown.
        heads: Their numbers, counted from 0, H of them.
        num_heads: How many heads the layer has.
        notes: Sentences below the figure, such as that the source is truncated.
    """

    title: str
    queries: Sequence[str]
    keys: Sequence[str]
    weights: np.ndarray
    heads: Sequence[int]
    num_heads: int
    notes: Sequence[str] = ()


def head_color(head: int, num_heads: int, dark: bool = False) -> str:
    """The color of a head, on white or on the dark background of the page.

    All heads have the same lightness of OKLCH (Ottosson 2020), which follows
    what people see, and so a contrast of at least 3:1 (WCAG 2) to either
    background. In HSL yellow and cyan would have less than 2:1 on white.

    >>> head_color(0, 8), head_color(0, 8, dark=True)
    ('#b85377', '#eb85a6')
    """
    lightness, chroma = (0.735, 0.13) if dark else (0.58, 0.135)
    angle = 2 * math.pi * head / num_heads
    a, b = chroma * math.cos(angle), chroma * math.sin(angle)
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    middle = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * middle + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * middle - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * middle + 1.7076147010 * short,
    )
    return "#" + "".join(f"{_channel(value):02x}" for value in linear)


def _channel(linear):
    """A linear intensity as a number of sRGB, 0 to 255."""
    linear = min(1.0, max(0.0, linear))
    if linear <= 0.0031308:
        return round(255 * 12.92 * linear)
    return round(255 * (1.055 * linear ** (1 / 2.4) - 0.055))


def draw_lines(drawing: Drawing, token: int | None = None) -> str:
    """Queries above, keys below, a line for each weight.

    Args:
        drawing: The `Drawing`.
        token: Index of the query whose attention alone is shown; None: all.
    """
    above, below = _height(drawing.queries), _height(drawing.keys)
    top, bottom = MARGIN + above, MARGIN + above + GAP
    number = max(len(drawing.queries), len(drawing.keys))
    width = 2 * MARGIN + STEP * number
    body = []
    for head, weights in zip(drawing.heads, drawing.weights, strict=True):
        color = head_color(head, drawing.num_heads)
        for i, j in np.argwhere(weights >= FAINTEST):
            if token in (None, int(i)):
                body.append(
                    line(
                        _x(int(i)),
                        top + 4,
                        _x(int(j)),
                        bottom - 4,
                        color,
                        stroke_width=2,
                        stroke_opacity=round(float(weights[i, j]), 3),
                    )
                )
    shown = range(len(drawing.queries))
    body += [
        _upright(_x(i), top, drawing.queries[i], "start", token in (None, i))
        for i in shown
    ]
    body += [
        _upright(_x(j), bottom, words, "end", True)
        for j, words in enumerate(drawing.keys)
    ]
    height = bottom + below + MARGIN
    return _document(width, height, body, drawing)


def draw_heat_map(drawing: Drawing) -> str:
    """A cell for each pair of query and key: the mean over the heads."""
    weights = drawing.weights.mean(axis=0)
    strongest = float(weights.max())
    left = MARGIN + max(text_width(words, SIZE) for words in drawing.queries)
    left += 8
    top = MARGIN + _height(drawing.keys) + 8
    width = left + STEP * len(drawing.keys) + MARGIN
    height = top + STEP * len(drawing.queries) + 3 * MARGIN
    body = [
        element(
            "rect",
            x=left + STEP * int(j),
            y=top + STEP * int(i),
            width=STEP,
            height=STEP,
            fill="#1f4e9c",
            fill_opacity=round(float(weights[i, j]) / strongest, 3),
        )
        for i, j in np.argwhere(weights >= FAINTEST)
    ]
    body.append(
        element(
            "rect",
            x=left,
            y=top,
            width=STEP * len(drawing.keys),
            height=STEP * len(drawing.queries),
            fill="none",
            stroke=PAPER.ink,
            stroke_opacity=0.4,
        )
    )
    for i, words in enumerate(drawing.queries):
        y = top + STEP * i + STEP / 2 + 5
        body.append(text(left - 8, y, words, PAPER.ink, "end", font_size=SIZE))
    for j, words in enumerate(drawing.keys):
        x = left + STEP * j + STEP / 2 + 5
        body.append(_upright(x, top - 8, words, "start", True))
    scale = f"darkest cell: {strongest:.2f}"
    body.append(text(left, height - MARGIN, scale, PAPER.ink, font_size=12))
    return _document(width, height, body, drawing)


def _document(width, height, body, drawing):
    """The whole figure, with its notes below."""
    for note in drawing.notes:
        width = max(width, 2 * MARGIN + text_width(note, 12))
        body.append(text(MARGIN, height, note, PAPER.ink, font_size=12))
        height += 18
    return document(width, height, body, drawing.title, PAPER)


def _x(index):
    """The middle of a token, of those side by side."""
    return MARGIN + STEP * index + STEP / 2


def _height(tokens):
    """Pixels that the longest token needs when it stands upright."""
    return max(
        len(words) * (SIZE + 1) if _stacks(words) else text_width(words, SIZE)
        for words in tokens
    )


def _stacks(words):
    """Whether a token is written downwards, as Chinese and Japanese are."""
    return all(is_wide(character) for character in words)


def _upright(x, y, words, anchor, is_shown):
    """A token that stands upright at (x, y).

    Args:
        anchor: start: it ends above y; end: it begins below y.
    """
    opacity = None if is_shown else 0.35
    if not _stacks(words):
        place = f"translate({x + 5:.1f} {y:.1f}) rotate(-90)"
        return text(
            0,
            0,
            words,
            PAPER.ink,
            anchor,
            transform=place,
            font_size=SIZE,
            fill_opacity=opacity,
        )
    first = y + SIZE if anchor == "end" else y - (SIZE + 1) * (len(words) - 1)
    return "".join(
        text(
            x,
            first + (SIZE + 1) * i - (0 if anchor == "end" else 2),
            character,
            PAPER.ink,
            "middle",
            font_size=SIZE,
            fill_opacity=opacity,
        )
        for i, character in enumerate(words)
    )
