"""The figure of `kt-evaluate --confidence_plot`: how well confidence fits."""

from collections.abc import Sequence

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator

from keras_transformer.confidence.regression import Bin, calibration_error
from keras_transformer.figures.colors import COLORS, INK
from keras_transformer.figures.saving import STYLE, save_figure

WIDTH = 5.0  # inches


def save(bins: Sequence[Bin], path: str) -> None:
    """Draws bins as points beside the diagonal, and saves the figure."""
    save_figure(draw(bins), path)


@matplotlib.rc_context(STYLE)
def draw(bins: Sequence[Bin]) -> Figure:
    """Draws the acceptable share of each bin over its mean probability."""
    title = "Calibration of confidence"
    figure = Figure((WIDTH, WIDTH), layout="constrained", label=title)
    axes = figure.subplots()
    axes.plot([0, 100], [0, 100], color=INK, alpha=0.4, linewidth=1)
    axes.plot(
        [100 * one.probability for one in bins],
        [100 * one.share for one in bins],
        color=COLORS[0],
        label=f"tenths of {sum(one.number for one in bins):,} sentences;"
        f" error {calibration_error(list(bins)):.3f}",
        linewidth=2,
        marker="o",
        markersize=6,
    )
    axes.set(xlim=(0, 100), ylim=(0, 100), aspect="equal")
    axes.set_xlabel("probability, %")
    axes.set_ylabel("acceptable translations, %")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MultipleLocator(20))
    axes.grid()
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return figure
