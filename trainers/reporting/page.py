"""The report as a page: the findings of `trainers.report` as HTML."""

import dataclasses
import itertools
import typing
from collections.abc import Sequence

from keras_transformer.figures.colors import COLORS
from keras_transformer.figures.pages import render_page
from keras_transformer.figures.plots import (
    LEFT,
    RIGHT,
    WIDTH,
    Series,
    plot,
    spell,
)
from keras_transformer.figures.saving import transparent_svg

LISTED = 10  # translations in each list
NUMBERS = 25  # rows of the table below a plot
READINGS = 75  # places of a plot at which the mouse reads its values
SMOOTHED = 50  # a curve with at least so many points has a smooth one, too
FACTS = ("host", "versions", "training data", "validation data", "test data")
# Validation records that are not scores.
NO_SCORES = ("loss", "perplexity", "wall_seconds")


class Curve(typing.NamedTuple):
    """A plot of records."""

    title: str
    unit: str  # the name of the y axis
    names: tuple[str | None, str | None]  # records of training, of validation
    logarithmic: bool = False  # the y axis
    y_low: float | None = None  # where it begins; None for the least value
    noisy: bool = False  # the records of training


CURVES = (
    Curve(
        "Loss",
        "nats per token, labels smoothed",
        ("train/loss", "validation/loss"),
        noisy=True,
    ),
    Curve(
        "Perplexity",
        "perplexity of a target token",
        ("train/perplexity", "validation/perplexity"),
        logarithmic=True,
        noisy=True,
    ),
    Curve("Learning rate", "learning rate", ("train/learning_rate", None)),
    Curve(
        "Speed",
        "source+target tokens per second",
        ("train/tokens_per_second", None),
        y_low=0.0,
        noisy=True,
    ),
)
ENDINGS = ("training", "validation")


def make_page(runs: Sequence, what: str) -> str:
    """The report, one HTML file without references to others.

    Args:
        runs: One `trainers.report.Run`, or two.
        what: A description of the translated pairs; empty if there are none.
    """
    names = [run.name for run in runs]
    return render_page(
        "trainers.reporting",
        "report.html",
        title=f"Training of {' and '.join(names)}",
        colors=COLORS,
        names=names,
        runs=runs,
        what=what,
        summary=_summary(runs, what),
        left=f"{100 * LEFT / WIDTH:.2f}%",
        right=f"{100 * RIGHT / WIDTH:.2f}%",
        limit=NUMBERS,
        curves=list(_curves(runs)),
        lengths=_lengths(runs) if what else None,
        translations=_translations(runs) if what else (),
        recipe=_recipe(runs),
    )


# The parts of the page


def _summary(runs, what):
    """Rows of the first table: a name, and a value for each run."""
    rows = [
        ("last step", [_last_step(run) for run in runs]),
        ("time", [_minutes(run) for run in runs]),
        *_last_values(runs),
        *_best_scores(runs),
    ]
    if what:
        rows += [
            ("parameters", [f"{run.num_parameters:,}" for run in runs]),
            ("checkpoint", [run.checkpoint for run in runs]),
            ("search", [run.decoding for run in runs]),
            (f"BLEU of {what}", [f"{run.scores['bleu']:.2f}" for run in runs]),
            (f"chrF of {what}", [f"{run.scores['chrf']:.2f}" for run in runs]),
            ("signature", [run.scores["signature"] for run in runs]),
        ]
    return rows + [
        (name, [run.records.facts.get(name, "not recorded") for run in runs])
        for name in FACTS
    ]


def _last_step(run):
    """The step of the newest checkpoint, unless there are later records."""
    recorded = run.records.last_step()
    if not run.progress:
        return f"{recorded:,}, as far as recorded"
    step = run.progress.step
    if recorded > step:
        return f"{step:,} in the newest checkpoint, {recorded:,} recorded"
    return f"{step:,}"


def _minutes(run):
    """The time of all sessions; without a checkpoint, as far as recorded."""
    if run.progress:
        wall, train = run.progress.wall_seconds, run.progress.train_seconds
        return f"{wall / 60:.1f} minutes, {train / 60:.1f} of them training"
    seconds = run.records.curves.get("validation/wall_seconds")
    if not seconds:
        return "not recorded"
    step, value = seconds[-1]
    return f"{value / 60:.1f} minutes to step {step:,}, validation included"


def _last_values(runs):
    """Rows of the last loss and perplexity."""
    for name in ("train/loss", "validation/loss", "validation/perplexity"):
        values = [
            f"{curve[-1][1]:.3f}" if curve else "not recorded"
            for curve in (run.records.curves.get(name) for run in runs)
        ]
        kind, value = name.split("/")
        yield f"last {'training' if kind == 'train' else kind} {value}", values


def _score_names(runs):
    """Validation scores: the name of the records, the usual spelling."""
    found = {name for run in runs for name in run.records.curves}
    for name in sorted(found):
        kind, _, score = name.partition("/")
        if kind == "validation" and score not in NO_SCORES:
            yield name, {"bleu": "BLEU", "chrf": "chrF"}.get(score, score)


def _best_scores(runs):
    """Rows of the best validations."""
    for name, spelled in _score_names(runs):
        values = []
        for run in runs:
            curve = run.records.curves.get(name)
            if curve:
                step, value = max(curve, key=lambda point: point[1])
                values.append(f"{value:.2f} at step {step:,}")
            else:
                values.append("not recorded")
        yield f"best validation {spelled}", values


def _curves(runs):
    """A plot for each kind of records; all have the same x axis."""
    last_step = max(run.records.last_step() for run in runs)
    scores = [
        Curve(f"Validation {spelled}", spelled, (None, name), y_low=0.0)
        for name, spelled in _score_names(runs)
    ]
    for curve in (*CURVES[:2], *scores, *CURVES[2:]):
        series = _series_of(curve, runs)
        if not any(one.points for one in series):
            continue
        figure = plot(
            series,
            label=curve.title,
            x_label="step",
            y_label=curve.unit,
            logarithmic=curve.logarithmic,
            x_low=0,
            x_high=last_step,
            y_low=curve.y_low,
        )
        yield {
            "title": curve.title,
            "svg": _inline(figure),
            "has_legend": len(series) > 1,
            "readings": _readings(series, last_step),
            "numbers": [
                (one.name, f"{x:,}", spell(y))
                for one in series
                for x, y in _thin(one.points, NUMBERS)
            ],
        }


def _inline(figure):
    """A plot inside the page, whose style sheet chooses the text color."""
    return transparent_svg(figure, "currentColor", bbox_inches=None)


def _series_of(curve, runs):
    """The `Series` of a plot: training and validation of each run."""
    series = []
    for i, run in enumerate(runs):
        for j, name in enumerate(curve.names):
            if name is None:
                continue
            points = run.records.curves.get(name, [])
            one = Series(
                ENDINGS[j] if len(runs) == 1 else f"{run.name}, {ENDINGS[j]}",
                points,
                color=COLORS[i if len(runs) > 1 else j],
                dashed=j == 1 and len(runs) > 1,
                marked=j == 1,
            )
            if curve.noisy and j == 0 and len(points) >= SMOOTHED:
                series.append(dataclasses.replace(one, opacity=0.35))
                one = _smoothed(one)
            series.append(one)
    return series


def _smoothed(series):
    """Means of neighboring points, as many before each as after it.

    Near the ends there are fewer, so that the mean stays in the middle.
    """
    points, reach = series.points, len(series.points) // SMOOTHED
    values = []
    for i, (step, _) in enumerate(points):
        near = min(reach, i, len(points) - 1 - i)
        window = points[i - near : i + near + 1]
        values.append((step, sum(y for _, y in window) / len(window)))
    name = f"{series.name}, mean of {2 * reach + 1}"
    return dataclasses.replace(series, name=name, points=values)


def _readings(series, last_step):
    """The values near a step, which the page shows where the mouse is.

    Each belongs to a strip; the strips stand side by side over the plot, from
    step 0 to the last. A style sheet can show them without a program.
    """
    steps = sorted({step for one in series for step, _ in one.points})
    steps = _thin(steps, READINGS)
    middles = [(one + two) / 2 for one, two in itertools.pairwise(steps)]
    edges = [0, *middles, last_step]
    strips = []
    for step, low, high in zip(steps, edges[:-1], edges[1:], strict=True):
        lines = [f"step {step:,}"]
        for one in series:
            inside = [point for point in one.points if low < point[0] <= high]
            if inside:
                x, y = min(inside, key=lambda point: abs(point[0] - step))
                other = f" (step {x:,})" if x != step else ""
                lines.append(f"{one.name}: {spell(y)}{other}")
        share = 100 * (step - low) / (high - low) if high > low else 50
        strips.append(
            {"lines": lines, "width": high - low, "place": round(share)}
        )
    return strips


def _thin(points, number):
    """At most `number` of many points, the last one among them."""
    step = max(1, -(-len(points) // number))
    return [*points[::-1][::step]][::-1]


def _spread(number, most):
    """At most `most` indices below `number`, evenly spread."""
    shown = min(number, most)
    return [i * number // shown for i in range(shown)]


def _translations(runs):
    """Headings and translations: evenly spread, the best and the worst."""
    number = len(runs[0].translations)
    scores = [[run.translations[i].bleu for run in runs] for i in range(number)]
    order = sorted(range(number), key=lambda i: -sum(scores[i]))
    mean = ", by the mean of both" if len(runs) > 1 else ""
    lists = [
        ("Spread evenly over the pairs", _spread(number, LISTED)),
        (f"Best by sentence BLEU{mean}", order[:LISTED]),
        (f"Worst by sentence BLEU{mean}", order[::-1][:LISTED]),
    ]
    if len(runs) > 1:
        gains = sorted(
            range(number), key=lambda i: -abs(scores[i][1] - scores[i][0])
        )
        lists.append(("Where the two differ most", gains[:LISTED]))
    return [
        (heading, [_sample(runs, i) for i in indices])
        for heading, indices in lists
    ]


def _lengths(runs):
    """Each sentence by its length and its BLEU, and the BLEU of groups."""
    series, rows = [], []
    for i, run in enumerate(runs):
        ending = "" if len(runs) == 1 else f", {run.name}"
        groups = run.scores["by_length"]
        series += [
            Series(
                f"a sentence{ending}",
                [(one.length, one.bleu) for one in run.translations],
                color=COLORS[i],
                joined=False,
                opacity=0.55,
                marked=True,
            ),
            Series(
                f"BLEU of about that length{ending}",
                [((low + high) / 2, bleu) for low, high, _, bleu in groups],
                color=COLORS[i + 2],
                marked=True,
            ),
        ]
        rows += [
            (run.name, f"{low}–{high}", number, f"{bleu:.1f}")
            for low, high, number, bleu in groups
        ]
    figure = plot(
        series,
        label="Length against BLEU",
        x_label="tokens of the source",
        y_label="BLEU",
        y_low=0.0,
    )
    return {"svg": _inline(figure), "numbers": rows}


def _sample(runs, i):
    """A sentence, its reference and translations: rows of four cells."""
    data, one = runs[0].sections["data"], runs[0].translations[i]
    target_language = data["target_language"]
    rows = [
        ("source", one.source, data["source_language"], ""),
        ("reference", one.reference, target_language, ""),
    ]
    for run in runs:
        name = run.name if len(runs) > 1 else "translation"
        found = run.translations[i]
        rows.append((name, found.output, target_language, f"{found.bleu:.1f}"))
    return rows


def _recipe(runs):
    """Every field: its name, its value in each run, whether they differ."""
    for section, fields in runs[0].sections.items():
        for name in fields:
            values = [run.sections[section][name] for run in runs]
            differs = any(value != values[0] for value in values)
            yield f"{section}.{name}", map(_spell, values), differs


def _spell(value):
    """The spelling of a field's value."""
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return "not set" if value is None else str(value)
