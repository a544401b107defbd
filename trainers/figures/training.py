"""The work of `kt-visualize --plot=training`: the curves of a run."""

import typing
from collections.abc import Mapping

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from keras_transformer.base.refusals import expect
from keras_transformer.commands import flags
from keras_transformer.figures.colors import COLORS
from keras_transformer.figures.saving import STYLE, save_figure
from keras_transformer.storage.workdir import WorkDirectory
from trainers.run.event_file import Curves, read_curves

WIDTH = 7.5  # inches
# A curve with fewer points has a mark at each point. With as many or more, the
# noisy training loss is drawn faintly behind the mean of neighboring points.
MANY = 50
# The first part of a record's name -> its label in the legend, and its color.
KINDS = {
    "train": ("training", COLORS[0]),
    "validation": ("validation", COLORS[1]),
}
NO_SCORES = ("loss", "perplexity", "wall_seconds")  # validation's other records
SPELLED = {"bleu": "BLEU", "chrf": "chrF", "f1": "F1"}


class Panel(typing.NamedTuple):
    """Axes with the curves of some records. All panels share the x axis."""

    label: str  # of the y axis
    height: float  # inches
    names: list[str]  # of the records
    is_score: bool = False


def run(workdir: str, output: str) -> None:
    """Draws the records in a work directory's `logs/`."""
    with flags.user_errors():
        directory = WorkDirectory(workdir)
        directory.read_config()  # raises if this is no work directory
        curves = read_curves(directory.logs)
        expected = "TensorBoard records of a training"
        expect(panels_of(curves), expected, f"none in {directory.logs}")
        save_figure(draw(curves, f"Training of {workdir}"), output)


def panels_of(curves: Curves) -> list[Panel]:
    """Lists the panels with records: losses, validation scores, learning rate.

    >>> [panel.label for panel in panels_of({"validation/bleu": {10: 2.5}})]
    ['BLEU']
    """
    scores = [
        Panel(SPELLED.get(score, score), 2.0, [name], is_score=True)
        for name in sorted(curves)
        for kind, score in [name.split("/", 1)]
        if kind == "validation" and score not in NO_SCORES
    ]
    panels = [
        Panel("loss, nats per token", 2.8, ["train/loss", "validation/loss"]),
        *scores,
        Panel("learning rate", 1.5, ["train/learning_rate"]),
    ]
    found = [
        panel._replace(names=[name for name in panel.names if curves.get(name)])
        for panel in panels
    ]
    return [panel for panel in found if panel.names]


@matplotlib.rc_context(STYLE)
def draw(curves: Curves, title: str) -> Figure:
    """Draws the panels of a run, at least one, in a column."""
    panels = panels_of(curves)
    heights = [panel.height for panel in panels]
    figure = Figure((WIDTH, sum(heights)), layout="constrained", label=title)
    grid = figure.subplots(
        len(panels), sharex=True, squeeze=False, height_ratios=heights
    )
    for axes, panel in zip(grid[:, 0], panels, strict=True):
        for name in panel.names:
            draw_curve(axes, name, curves[name])
        if panel.is_score:
            mark_best(axes, curves[panel.names[0]])
        axes.set_ylabel(panel.label)
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.grid(axis="y")
        if len(axes.lines) > 1:
            axes.legend()
    axes.set_xlabel("step")
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(
        MaxNLocator(6, steps=[1, 2, 5, 10], integer=True)
    )
    axes.xaxis.set_major_formatter("{x:,.0f}")
    figure.align_ylabels()
    return figure


def draw_curve(axes: Axes, name: str, points: Mapping[int, float]) -> None:
    """Adds the curve of a record."""
    label, color = KINDS[name.split("/")[0]]
    steps, values = np.array(list(points)), np.array(list(points.values()))
    is_long = len(steps) >= MANY
    if is_long and name == "train/loss":
        width = 2 * (len(steps) // MANY) + 1  # odd
        axes.plot(steps, values, color=color, alpha=0.3, linewidth=1)
        label = f"{label}, mean of {width}"
        steps = steps[width // 2 : -(width // 2)]
        values = np.convolve(values, np.full(width, 1 / width), "valid")
    axes.plot(
        steps,
        values,
        color=color,
        label=label,
        linewidth=2,
        marker="" if is_long else "o",
        markersize=4,
    )


def mark_best(axes: Axes, points: Mapping[int, float]) -> None:
    """Adds a ring around the highest score."""
    step, score = max(points.items(), key=lambda point: point[1])
    axes.plot(
        step,
        score,
        color=KINDS["validation"][1],
        label=f"best: {score:.2f} at step {step:,}",
        linestyle="none",
        marker="o",
        markersize=9,
        fillstyle="none",
        markeredgewidth=2,
    )
