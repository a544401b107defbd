"""Curves, points and pictures of matrices over axes, as SVG."""

import dataclasses
import math
import typing
from collections.abc import Sequence

import numpy as np

from keras_transformer.figures.drawing import (
    COLORS,
    Theme,
    document,
    element,
    escape,
    image_uri,
    line,
    text,
)

# A phone shows it at almost this width, and so its text in 12 pixels.
WIDTH, HEIGHT = 390, 250
LEFT, RIGHT, BOTTOM = 70, 30, 48  # margins
ROW = 20  # height of a line of the legend
NUM_TICKS = 6  # at most, on an axis that is not logarithmic


@dataclasses.dataclass(frozen=True)
class Series:
    """Points of one kind.

    Attributes:
        name: In the legend.
        points: `(x, y)`, finite numbers, in the order they are joined.
        color: Of the points and of the line.
        joined: Whether a line joins them.
        dashed: Whether that line is dashed.
        opacity: Of that line.
        marked: Whether each point has a mark.
        labels: What each point is, shown when the mouse rests on its mark;
            left out: its numbers.
    """

    name: str
    points: Sequence[tuple[float, float]]
    color: str = COLORS[0]
    joined: bool = True
    dashed: bool = False
    opacity: float = 1.0
    marked: bool = False
    labels: Sequence[str] = ()


class Axis(typing.NamedTuple):
    """From numbers to pixels.

    Attributes:
        low, high: The numbers at its ends.
        start, end: The pixels there.
        logarithmic: Whether equal steps are equal factors.
    """

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, value = map(math.log, (low, high, value))
        share = (value - low) / (high - low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """The numbers to write at the axis."""
        if self.logarithmic:
            return logarithmic_ticks(self.low, self.high)
        return ticks(self.low, self.high)


def ticks(low: float, high: float, number: int = NUM_TICKS) -> list[float]:
    """Round numbers between two others, at most `number`.

    >>> ticks(0, 2.2), ticks(0.13, 0.42, 4)
    ([0.0, 0.5, 1.0, 1.5, 2.0], [0.2, 0.3, 0.4])
    """
    unit = 10.0 ** math.floor(math.log10((high - low) / number))
    found: list[float] = []
    for factor in (1, 2, 5, 10, 20):
        step = unit * factor
        first, last = (
            math.ceil(low / step - 1e-9),
            math.floor(high / step + 1e-9),
        )
        found = [float(f"{i * step:.12g}") for i in range(first, last + 1)]
        if len(found) <= number:
            break
    return found


def logarithmic_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten, or the powers alone if these suffice.

    >>> logarithmic_ticks(3, 120), logarithmic_ticks(1, 10000)
    ([5.0, 10.0, 20.0, 50.0, 100.0], [1.0, 10.0, 100.0, 1000.0, 10000.0])
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1,), (1, 2, 5)):
        found = [
            float(f"{factor * 10.0**power:.12g}")
            for power in powers
            for factor in factors
        ]
        found = [tick for tick in found if low <= tick <= high]
        if len(found) >= 3:
            break
    return found or [low, high]


def spell(number: float) -> str:
    """A number beside an axis.

    >>> spell(20000), spell(0.0007), spell(2.5)
    ('20,000', '0.0007', '2.5')
    """
    if abs(number) >= 10000:
        return f"{number:,.0f}"
    return f"{number:.4g}"


def plot(
    series: Sequence[Series],
    *,
    label: str,
    x_label: str,
    y_label: str,
    theme: Theme,
    logarithmic: bool = False,
    x_low: float | None = None,
    x_high: float | None = None,
    y_low: float | None = None,
) -> str:
    """Several series in the same axes, as SVG.

    Args:
        series: The `Series`; those without points are in the legend alone.
        label: What the plot shows, for those who cannot see it.
        x_label, y_label: What the axes are, with their units.
        theme: The `Theme`.
        logarithmic: Whether the y axis is; all y are then above 0.
        x_low, x_high, y_low: Ends of the axes; None: those of the points.

    Raises:
        ValueError: There is no point at all.
    """
    points = [point for one in series for point in one.points]
    if not points:
        raise ValueError(f"{label}: expected points. Received: none")
    top = ROW * len(series) + 12 if len(series) > 1 else 16
    height = HEIGHT + top
    x_axis = _axis(
        [x for x, _ in points], (LEFT, WIDTH - RIGHT), False, x_low, x_high
    )
    y_axis = _axis(
        [y for _, y in points], (height - BOTTOM, top), logarithmic, y_low
    )
    body = [
        *_axes(x_axis, y_axis, x_label, y_label, theme),
        *(drawn for one in series for drawn in _draw(one, x_axis, y_axis)),
    ]
    if len(series) > 1:
        body += _legend(series, theme)
    return document(WIDTH, height, body, label, theme)


def _axis(values, pixels, logarithmic=False, low=None, high=None):
    """The `Axis` that has room for all values, and a little more."""
    first, last = min(values), max(values)
    if logarithmic:
        first, last = (first, last) if first < last else (first / 2, last * 2)
        return Axis(first, last, *pixels, logarithmic)
    if first == last:
        first, last = first - 0.5, last + 0.5
    room = 0.04 * (last - first)
    first = first - room if low is None else min(low, first)
    last = last + room if high is None else max(high, last)
    return Axis(first, last, *pixels)


def _axes(x_axis, y_axis, x_label, y_label, theme, grid=0.2):
    """Lines, numbers and names of the two axes; `grid` is how dark it is."""
    ink, parts = theme.ink, []
    for tick in y_axis.ticks():
        y = y_axis(tick)
        parts.append(
            line(x_axis.start, y, x_axis.end, y, ink, stroke_opacity=grid)
        )
        parts.append(text(LEFT - 8, y + 4, spell(tick), ink, "end"))
    base = y_axis.start
    parts.append(line(x_axis.start, base, x_axis.end, base, ink))
    for tick in x_axis.ticks():
        x = x_axis(tick)
        parts.append(line(x, base, x, base + 4, ink))
        parts.append(text(x, base + 18, spell(tick), ink, "middle"))
    middle = (x_axis.start + x_axis.end) / 2
    parts.append(text(middle, base + 40, x_label, ink, "middle"))
    parts.append(_turned(12, (y_axis.start + y_axis.end) / 2, y_label, ink))
    return parts


def _turned(x, y, words, ink):
    """Text that is read from below, its middle at (x, y)."""
    turn = f"rotate(-90 {x:.1f} {y:.1f})"
    return text(x, y, words, ink, "middle", transform=turn)


def _draw(series, x_axis, y_axis):
    """The line and the marks of one series."""
    points = [(x_axis(x), y_axis(y)) for x, y in series.points]
    if series.joined and len(points) > 1:
        yield element(
            "polyline",
            points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points),
            fill="none",
            stroke=series.color,
            stroke_width=2,
            stroke_opacity=series.opacity,
            stroke_linejoin="round",
            stroke_dasharray="6 4" if series.dashed else None,
        )
    if not (series.marked or len(points) == 1):
        return
    labels = series.labels or [
        f"{series.name}: {spell(x)}, {spell(y)}" for x, y in series.points
    ]
    for (x, y), words in zip(points, labels, strict=True):
        yield element(
            "circle",
            element("title", escape(words)),
            cx=x,
            cy=y,
            r=3.5,
            fill=series.color,
            fill_opacity=1 if series.joined else 0.55,
        )


def _legend(series, theme):
    """The name of each series beside its line or its mark, one below another.

    They stand above the axes, where no point can be.
    """
    for i, one in enumerate(series):
        y = 14 + ROW * i
        if one.joined:
            yield line(
                LEFT,
                y,
                LEFT + 28,
                y,
                one.color,
                stroke_width=2.5,
                stroke_opacity=one.opacity,
                stroke_dasharray="6 4" if one.dashed else None,
            )
        else:
            yield element("circle", cx=LEFT + 14, cy=y, r=4, fill=one.color)
        yield text(LEFT + 36, y + 4, one.name, theme.ink)


def matrix_plot(
    matrix: np.ndarray,
    *,
    label: str,
    x_label: str,
    y_label: str,
    theme: Theme,
) -> str:
    """A matrix as a picture: white is 0, blue below, red above.

    Args:
        matrix: float `[rows, columns]`; row 0 is the lowest.
        label: What the plot shows, for those who cannot see it.
        x_label, y_label: What columns and rows are.
        theme: The `Theme`.
    """
    rows, columns = matrix.shape
    top, right = 16, 76
    height = HEIGHT + top
    x_axis = Axis(0, columns, LEFT, WIDTH - right)
    y_axis = Axis(0, rows, height - BOTTOM, top)
    limit = float(np.abs(matrix).max()) or 1.0
    bar = Axis(-limit, limit, height - BOTTOM, top)
    x = WIDTH - right + 16
    shades = np.linspace(-limit, limit, 101)[:, None]
    body = [
        _picture(matrix / limit, x_axis.start, x_axis.end, y_axis),
        *_axes(x_axis, y_axis, x_label, y_label, theme, grid=0),
        _picture(shades / limit, x, x + 12, bar),
        *(
            text(x + 18, bar(tick) + 4, spell(tick), theme.ink)
            for tick in ticks(-limit, limit, 5)
        ),
    ]
    return document(WIDTH, height, body, label, theme)


def _picture(values, left, right, y_axis):
    """Numbers in [-1, 1] as colors; row 0 is the lowest."""
    blue, red = np.array([33, 102, 172]), np.array([178, 24, 43])
    strength = np.abs(values)[..., None]  # [rows, columns] -> [..., 1]
    ends = np.where(values[..., None] < 0, blue, red)
    pixels = np.round(255 + strength * (ends - 255)).astype(np.uint8)
    return element(
        "image",
        href=image_uri(pixels[::-1]),
        x=left,
        y=y_axis.end,
        width=right - left,
        height=y_axis.start - y_axis.end,
        preserveAspectRatio="none",
        image_rendering="optimizeSpeed",
        style="image-rendering: pixelated",
    )
