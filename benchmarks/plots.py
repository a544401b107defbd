"""Shared code of the benchmarks' pictures."""

import dataclasses
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from keras_transformer.figures.colors import COLORS, INK
from keras_transformer.figures.saving import render

NUM_TICKS = 5  # at most, on an axis


@dataclasses.dataclass(frozen=True)
class Series:
    """Points with one name and style."""

    name: str  # in the legend
    points: Sequence[tuple[float, float]]  # (x, y), finite, in drawing order
    color: str = COLORS[0]  # of the points and the line
    joined: bool = True  # whether a line joins the points
    dashed: bool = False  # whether the line is dashed
    opacity: float = 1.0
    marked: bool = False  # whether each point has a mark


def spell(number: float, position: float | None = None) -> str:
    """Formats a number beside an axis. `position` is ignored.

    >>> spell(20000), spell(0.0007), spell(2.5)
    ('20,000', '0.0007', '2.5')
    """
    if abs(number) >= 10000:
        return f"{number:,.0f}"
    return f"{number:.4g}"


def make_axes(
    width: float,
    height: float,
    left: float,
    right: float,
    bottom: float,
    top: float,
) -> tuple[Figure, Axes]:
    """Makes a figure and its only axes.

    Args:
        width, height: Size of the figure in points.
        left, right, bottom, top: Margins in points.
    """
    figure = Figure(figsize=(width / 72, height / 72))
    axes = figure.add_axes(
        (
            left / width,
            bottom / height,
            1 - (left + right) / width,
            1 - (bottom + top) / height,
        )
    )
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(NUM_TICKS, steps=[1, 2, 5, 10]))
        axis.set_major_formatter(spell)
    return figure, axes


def draw_series(axes: Axes, series: Series) -> None:
    """Adds the line and the marks of a series."""
    x, y = zip(*series.points, strict=True) if series.points else ((), ())
    style = "--" if series.dashed else "-"
    [line] = axes.plot(
        x,
        y,
        color=series.color,
        label=series.name,
        linestyle=style if series.joined else "none",
        linewidth=2,
        alpha=series.opacity,
        clip_on=False,
    )
    if series.marked or len(x) == 1:
        line.set(marker="o", markersize=7, markeredgewidth=0)


def transparent_svg(figure: Figure, ink: str) -> str:
    """Renders an SVG element without background, title and metadata.

    Args:
        figure: The figure.
        ink: Color of text and axes, in the notation of CSS.
    """
    svg = render(figure, transparent=True).decode()
    return svg[svg.index("<svg") :].replace(INK, ink)
