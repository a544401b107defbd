"""Curves, points and matrices as matplotlib figures."""

import dataclasses
from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator

from keras_transformer.figures.colors import COLORS
from keras_transformer.figures.saving import STYLE

# In points. A phone shows it at almost this width, so its text has 12 pixels.
WIDTH, HEIGHT = 390, 250
LEFT, RIGHT, BOTTOM = 70, 30, 48  # margins
ROW = 20  # height of a line of the legend
NUM_TICKS = 5  # at most, on an axis that is not logarithmic


@dataclasses.dataclass(frozen=True)
class Series:
    """Points of one kind."""

    name: str  # in the legend
    points: Sequence[tuple[float, float]]  # (x, y), finite, in drawing order
    color: str = COLORS[0]  # of the points and the line
    joined: bool = True  # by a line
    dashed: bool = False  # the line
    opacity: float = 1.0
    marked: bool = False  # each point


def spell(number: float, position: float | None = None) -> str:
    """A number beside an axis; `position` is ignored.

    >>> spell(20000), spell(0.0007), spell(2.5)
    ('20,000', '0.0007', '2.5')
    """
    if abs(number) >= 10000:
        return f"{number:,.0f}"
    return f"{number:.4g}"


@matplotlib.rc_context(STYLE)
def plot(
    series: Sequence[Series],
    *,
    label: str,
    x_label: str,
    y_label: str,
    logarithmic: bool = False,
    x_low: float | None = None,
    x_high: float | None = None,
    y_low: float | None = None,
) -> Figure:
    """Several series in the same axes.

    Args:
        series: The `Series`; those without points are in the legend alone.
        label: Title of the file.
        x_label, y_label: Names of the axes, with their units.
        logarithmic: Whether the y axis is; all y must then be positive.
        x_low, x_high, y_low: Limits of the axes; None to fit the points.

    Raises:
        ValueError: There is no point at all.
    """
    values = [y for one in series for _, y in one.points]
    if not values:
        raise ValueError(f"{label}: expected points. Received: none")
    top = ROW * len(series) + 12 if len(series) > 1 else 16
    figure, axes = make_axes(WIDTH, HEIGHT + top, LEFT, RIGHT, BOTTOM, top)
    figure.set_label(label)
    if logarithmic:
        axes.set_yscale("log")
        axes.minorticks_off()
        factors = (1, 2, 5) if max(values) < 1000 * min(values) else (1,)
        axes.yaxis.set_major_locator(LogLocator(subs=factors))
        axes.yaxis.set_major_formatter(spell)
    for one in series:
        draw_series(axes, one)
    axes.set(xlabel=x_label, ylabel=y_label)
    axes.set_xlim(x_low, x_high)
    axes.set_ylim(y_low)
    axes.grid(axis="y")
    if len(series) > 1:
        axes.legend(
            loc="lower left",
            bbox_to_anchor=(0, 1),
            borderaxespad=0,
            borderpad=0.3,
        )
    return figure


@matplotlib.rc_context(STYLE)
def matrix_plot(
    matrix: np.ndarray, *, label: str, x_label: str, y_label: str
) -> Figure:
    """A matrix as a picture: 0 is white, blue is below, red is above.

    Args:
        matrix: float `[rows, columns]`; row 0 is the lowest.
        label: Title of the file.
        x_label, y_label: Names of columns and rows.
    """
    rows, columns = matrix.shape
    figure, axes = make_axes(WIDTH, HEIGHT, LEFT, RIGHT, BOTTOM, 16)
    figure.set_label(label)
    limit = float(np.abs(matrix).max()) or 1.0
    image = axes.imshow(
        matrix,
        cmap="RdBu_r",
        vmin=-limit,
        vmax=limit,
        origin="lower",
        aspect="auto",
        interpolation="none",
        extent=(0, columns, 0, rows),
    )
    axes.set(xlabel=x_label, ylabel=y_label)
    figure.colorbar(image).outline.set_visible(False)
    return figure


def make_axes(
    width: float,
    height: float,
    left: float,
    right: float,
    bottom: float,
    top: float,
) -> tuple[Figure, Axes]:
    """A figure and its only axes.

    Args:
        width, height: Size of the figure in points.
        left, right, bottom, top: Its margins in points.
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
