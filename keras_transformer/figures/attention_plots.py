"""Draws attention as lines (Figures 3 to 5 of the paper) or as a heat map."""

import functools
import re
import textwrap
import typing
from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, to_rgba_array
from matplotlib.figure import Figure
from matplotlib.font_manager import get_font_names

from keras_transformer.figures.colors import head_color
from keras_transformer.figures.saving import STYLE
from keras_transformer.text.writing import is_wide, printable

SIZE = 14  # of the font, in points
STEP = 22  # points from one token to the next
GAP = 150  # points between the two rows of tokens
NOTE_SIZE = 12
NOTE_WIDTH = 40  # minimum characters in a line of a note
CHARACTER = 7  # average width of a note's characters, in points
FAINTEST = 0.005  # weights below it are not drawn
HEAT = LinearSegmentedColormap.from_list("heat", ["white", "#1f4e9c"])
# Searched in this order for characters that DejaVu Sans lacks.
FALLBACK_FONTS = """
Noto Sans, Noto Sans CJK JP, Noto Sans CJK SC, Noto Sans JP, Noto Sans SC,
Noto Sans KR, Noto Sans Arabic, Noto Sans Hebrew, Noto Sans Devanagari,
Noto Sans Bengali, Noto Sans Tamil, Noto Sans Telugu, Noto Sans Thai,
Noto Sans Lao, Noto Sans Khmer, Noto Sans Myanmar, Noto Sans Georgian,
Noto Sans Armenian, Noto Sans Ethiopic, Noto Sans Symbols2, IPAexGothic,
WenQuanYi Zen Hei, Hiragino Sans, PingFang SC, Apple SD Gothic Neo, Yu Gothic,
Microsoft YaHei, Malgun Gothic, Arial Unicode MS
"""


class Drawing(typing.NamedTuple):
    """The content of a figure."""

    title: str  # in the file's metadata
    queries: Sequence[str]
    keys: Sequence[str]
    weights: np.ndarray  # float [H, T, S], of the heads shown
    heads: Sequence[int]  # the heads shown, counted from 0
    num_heads: int  # in the layer
    notes: Sequence[str] = ()  # sentences below the figure


def draw_lines(drawing: Drawing, token: int | None = None) -> Figure:
    """Draws queries above, keys below, and a line for each weight.

    `token` is the index of the only query to show, or None for all.
    """
    number = max(len(drawing.queries), len(drawing.keys))
    with _style():
        figure, axes = _make_axes(drawing, STEP * number, GAP)
        axes.set(xlim=(-0.5, number - 0.5), ylim=(0, 1), yticks=())
        for head, weights in zip(drawing.heads, drawing.weights, strict=True):
            places = [
                (i, j)
                for i, j in np.argwhere(weights >= FAINTEST)
                if token in (None, i)
            ]
            opacity = [min(1.0, float(weights[place])) for place in places]
            color = head_color(head, drawing.num_heads)
            axes.add_collection(
                LineCollection(
                    [[(i, 0.97), (j, 0.03)] for i, j in places],
                    colors=to_rgba_array([color] * len(places), opacity),
                    linewidths=2,
                )
            )
        _label(axes.xaxis, drawing.keys)
        above = axes.secondary_xaxis("top")
        above.tick_params(length=0)
        above.spines["top"].set_visible(False)
        labels = _label(above.xaxis, drawing.queries)
        if token is not None:
            for label in labels[:token] + labels[token + 1 :]:
                label.set_alpha(0.35)
        _write_below(axes, drawing.notes)
    return figure


def draw_heat_map(drawing: Drawing) -> Figure:
    """Draws a cell for each query and key, shaded by the mean over heads."""
    weights = drawing.weights.mean(axis=0)
    rows, columns = weights.shape
    with _style():
        figure, axes = _make_axes(drawing, STEP * columns, STEP * rows)
        axes.pcolormesh(
            np.arange(columns + 1) - 0.5,
            np.arange(rows + 1) - 0.5,
            weights,
            cmap=HEAT,
            vmin=0,
            edgecolors="white",
            linewidth=0.5,
        )
        axes.invert_yaxis()
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        _label(axes.xaxis, drawing.keys)
        axes.set_yticks(range(rows), list(map(_clean, drawing.queries)))
        scale = f"darkest cell: {weights.max():.2f}"
        _write_below(axes, [scale, *drawing.notes])
    return figure


def _style():
    """Returns a context with the figures' style and fonts for many scripts."""
    style = {"font.family": _families(), "font.size": SIZE}
    return matplotlib.rc_context({**STYLE, **style})


@functools.cache
def _families():
    """Lists DejaVu Sans and the installed fallback fonts, best first."""
    installed = set(get_font_names())
    names = re.split(r",\s+", FALLBACK_FONTS.strip())
    found = [name for name in names if name in installed]
    return ["DejaVu Sans", *found, "sans-serif"]


def _make_axes(drawing, width, height):
    """Makes a figure with frameless axes. Width and height are in points."""
    figure = Figure(figsize=(width / 72, height / 72), label=drawing.title)
    axes = figure.add_axes((0, 0, 1, 1), frame_on=False)
    axes.tick_params(length=0)
    return figure, axes


def _label(axis, tokens):
    """Labels an x axis with tokens: rotated, or stacked if wide."""
    tokens = list(map(_clean, tokens))
    stacked = [all(map(is_wide, token)) for token in tokens]
    axis.set_ticks(
        range(len(tokens)),
        [
            "\n".join(token) if is_stacked else token
            for token, is_stacked in zip(tokens, stacked, strict=True)
        ],
    )
    labels = axis.get_ticklabels()
    for label, is_stacked in zip(labels, stacked, strict=True):
        label.set(rotation=0 if is_stacked else 90, linespacing=1.1)
    return labels


def _clean(text):
    """Joins the lines of a text, and replaces characters not allowed in XML."""
    return " ".join(printable(text).splitlines())


def _write_below(axes, notes):
    """Writes notes below the axes, in lines of about the same width."""
    points = 72 * axes.figure.get_figwidth()
    width = max(NOTE_WIDTH, round(points / CHARACTER))
    lines = [textwrap.fill(_clean(note), width) for note in notes]
    axes.set_xlabel("\n".join(lines), loc="left", fontsize=NOTE_SIZE)
    axes.xaxis.set_label_position("bottom")
