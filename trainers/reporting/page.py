"""A report as a page: what `trainers.report` has found, as HTML and SVG."""

import dataclasses
import importlib.resources
import itertools
import typing
from collections.abc import Iterable, Sequence

from keras_transformer.figures.drawing import (
    COLORS,
    PAGE,
    direction,
    element,
    escape,
    fill_template,
)
from keras_transformer.figures.plots import (
    LEFT,
    RIGHT,
    WIDTH,
    Series,
    plot,
    spell,
)

LISTED = 10  # of the best translations, of the worst, and of all
NUMBERS = 25  # rows of the table below a plot
READINGS = 75  # places of a plot at which the mouse reads its values
SMOOTHED = 50  # points of a curve, from which on it has a smooth one, too
FACTS = ("host", "versions", "training data", "validation data", "test data")
# Validation records that are no scores.
NO_SCORES = ("loss", "perplexity", "wall_seconds")


class Curve(typing.NamedTuple):
    """A plot of records.

    Attributes:
        title: Its heading.
        unit: Of the y axis.
        names: The records, of training and of validation; None: there is none.
        logarithmic: Whether the y axis is.
        y_low: Where the y axis begins; None: at the least value.
        noisy: Whether the records of training vary from one to the next.
    """

    title: str
    unit: str
    names: tuple[str | None, str | None]
    logarithmic: bool = False
    y_low: float | None = None
    noisy: bool = False


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
        what: What they have translated, in words; empty: nothing.
    """
    names = " and ".join(run.name for run in runs)
    sections = [
        _summary(runs, what),
        _curves(runs),
        *([_translations(runs, what)] if what else []),
        _recipe(runs),
    ]
    return fill_template(
        _read("report.html"),
        title=escape(f"Training of {names}"),
        style=_read("report.css"),
        body="\n".join(sections),
    )


def _read(name):
    """The text of a file beside this one."""
    file = importlib.resources.files("trainers.reporting").joinpath(name)
    return file.read_text(encoding="utf-8")


# The parts of the page


def _summary(runs, what):
    """A table with a column for each run."""
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
    rows += [
        (name, [run.records.facts.get(name, "not recorded") for run in runs])
        for name in FACTS
    ]
    shown = [
        _row([escape(name), *map(escape, values)], head=True)
        for name, values in rows
    ]
    if len(runs) > 1:
        heads = [_swatch(i) + escape(run.name) for i, run in enumerate(runs)]
        shown.insert(0, _row(["", *heads], cell="th"))
    parts = [_table(shown)]
    for run in runs:
        if run.records.not_finite:
            parts.append(
                _paragraph(
                    f"{run.name}: {run.records.not_finite} recorded values are"
                    " infinite or not numbers, and are not drawn."
                )
            )
    return "\n".join(parts)


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
    """The time of all sessions; without a checkpoint, what is recorded."""
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
        kind, what = name.split("/")
        yield f"last {'training' if kind == 'train' else kind} {what}", values


def _score_names(runs):
    """Names of the records that are scores of a validation."""
    found = {
        name
        for run in runs
        for name in run.records.curves
        if name.startswith("validation/")
        and name.split("/")[1] not in NO_SCORES
    }
    return sorted(found)


def _spell_score(name):
    """A score's name as people write it."""
    short = name.split("/")[1]
    return {"bleu": "BLEU", "chrf": "chrF"}.get(short, short)


def _best_scores(runs):
    """Rows of the best validations."""
    for name in _score_names(runs):
        values = []
        for run in runs:
            curve = run.records.curves.get(name)
            if not curve:
                values.append("not recorded")
                continue
            step, value = max(curve, key=lambda point: point[1])
            values.append(f"{value:.2f} at step {step:,}")
        yield f"best validation {_spell_score(name)}", values


def _curves(runs):
    """A plot for each kind of records."""
    scores = [
        Curve(f"Validation {spelled}", spelled, (None, name), y_low=0.0)
        for name in _score_names(runs)
        for spelled in [_spell_score(name)]
    ]
    figures = []
    last_step = max(run.records.last_step() for run in runs)
    for curve in (*CURVES[:2], *scores, *CURVES[2:]):
        series = _series_of(curve, runs)
        if any(one.points for one in series):
            figures.append(_figure(curve, series, last_step))
    missing = [run.name for run in runs if not run.records.curves]
    notes = [
        _paragraph(f"{name}: there are no records in its logs/.")
        for name in missing
    ]
    return "\n".join(
        [
            element("h2", "Curves"),
            *notes,
            element("div", "\n".join(figures), class_="plots"),
        ]
    )


def _series_of(curve, runs):
    """The `Series` of a plot: those of training, and of validation."""
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


def _figure(curve, series, last_step):
    """A plot with its heading and its numbers; all have the same x axis."""
    drawing = plot(
        series,
        label=f"{curve.title} by step",
        x_label="step",
        y_label=curve.unit,
        theme=PAGE,
        logarithmic=curve.logarithmic,
        x_low=0,
        x_high=last_step,
        y_low=curve.y_low,
    )
    caption = element("figcaption", escape(curve.title))
    shown = element(
        "div", drawing + _readings(series, last_step), class_="plot"
    )
    plots = element("div", shown, class_="scrolls")
    return element("figure", caption + plots + _numbers(series))


def _readings(series, last_step):
    """The values at a step, which a page shows where the mouse is.

    Strips side by side over the plot, from its first step to its last; a style
    sheet can show and hide them without a program.
    """
    steps = sorted({step for one in series for step, _ in one.points})
    steps = _thin(steps, READINGS)
    middles = [(one + two) / 2 for one, two in itertools.pairwise(steps)]
    edges = [0, *middles, last_step]
    strips = []
    for step, low, high in zip(steps, edges[:-1], edges[1:], strict=True):
        words = [f"step {step:,}"]
        for one in series:
            inside = [point for point in one.points if low < point[0] <= high]
            if inside:
                x, y = min(inside, key=lambda point: abs(point[0] - step))
                other = f" (step {x:,})" if x != step else ""
                words.append(f"{one.name}: {spell(y)}{other}")
        share = 100 * (step - low) / (high - low) if high > low else 50
        strips.append(
            element(
                "div",
                element("p", "<br>".join(map(escape, words))),
                class_="reading",
                style=f"flex:{high - low:g};--place:{share:.0f}%",
            )
        )
    return element(
        "div",
        "".join(strips),
        # Several series have a legend above, which the values may cover.
        class_="readings" if len(series) > 1 else "readings low",
        style=f"left:{_percent(LEFT, WIDTH)};right:{_percent(RIGHT, WIDTH)}",
        aria_hidden="true",  # the numbers below are for those who cannot see
    )


def _percent(part, whole):
    """A share as CSS writes it."""
    return f"{100 * part / whole:.2f}%"


def _numbers(series):
    """The points of a plot as a table, which is closed at first."""
    rows = [_row(["series", "step", "value"], cell="th")]
    for one in series:
        for x, y in _thin(one.points, NUMBERS):
            rows.append(_row([escape(one.name), f"{x:,}", spell(y)]))
    summary = element("summary", f"numbers, at most {NUMBERS} of each series")
    return element("details", summary + _table(rows))


def _thin(points, number):
    """At most `number` of many points, the last one among them."""
    step = max(1, -(-len(points) // number))
    return [*points[::-1][::step]][::-1]


def _spread(number, most):
    """At most `most` indices below `number`, evenly spread."""
    shown = min(number, most)
    return [i * number // shown for i in range(shown)]


def _translations(runs, what):
    """Length against BLEU; some translations, the best and the worst."""
    first = runs[0].translations
    order = sorted(range(len(first)), key=lambda i: -_mean_bleu(runs, i))
    parts = [
        element("h2", "Translations"),
        _paragraph(
            f"{what}. Sentence BLEU is sacreBLEU's with effective order, so"
            " that a short sentence is not 0 for want of 4-grams."
        ),
        element("div", _length_figure(runs), class_="plots"),
        element("h3", "Spread evenly over the pairs"),
        _texts(runs, _spread(len(first), LISTED)),
        element("h3", _order_title("Best", runs)),
        _texts(runs, order[:LISTED]),
        element("h3", _order_title("Worst", runs)),
        _texts(runs, order[::-1][:LISTED]),
    ]
    if len(runs) > 1:
        gains = sorted(range(len(first)), key=lambda i: -abs(_gain(runs, i)))
        parts += [
            element("h3", "Where the two differ most"),
            _texts(runs, gains[:LISTED]),
        ]
    return "\n".join(parts)


def _order_title(which, runs):
    mean = ", by the mean of both" if len(runs) > 1 else ""
    return f"{which} by sentence BLEU{mean}"


def _mean_bleu(runs, i):
    return sum(run.translations[i].bleu for run in runs) / len(runs)


def _gain(runs, i):
    """How much better the second run translates a sentence."""
    return runs[1].translations[i].bleu - runs[0].translations[i].bleu


def _length_figure(runs):
    """Each sentence by its length and its BLEU, and the groups' BLEU."""
    series, rows = [], [_row(["run", "tokens", "pairs", "BLEU"], cell="th")]
    for i, run in enumerate(runs):
        ending = "" if len(runs) == 1 else f", {run.name}"
        color = COLORS[i]
        series.append(
            Series(
                f"a sentence{ending}",
                [(one.length, one.bleu) for one in run.translations],
                color=color,
                joined=False,
                marked=True,
                labels=[
                    f"{one.length} tokens, BLEU {one.bleu:.1f}: {one.output}"
                    for one in run.translations
                ],
            )
        )
        groups = run.scores["by_length"]
        series.append(
            Series(
                f"BLEU of about that length{ending}",
                [((low + high) / 2, bleu) for low, high, _, bleu in groups],
                color=COLORS[i + 2],
                marked=True,
                labels=[
                    f"{low} to {high} tokens, {number} sentences:"
                    f" BLEU {bleu:.1f}"
                    for low, high, number, bleu in groups
                ],
            )
        )
        rows += [
            _row([escape(run.name), f"{low}–{high}", str(n), f"{bleu:.1f}"])
            for low, high, n, bleu in groups
        ]
    drawing = plot(
        series,
        label="Sentence BLEU by length",
        x_label="tokens of the source",
        y_label="BLEU",
        theme=PAGE,
        y_low=0.0,
    )
    summary = element("summary", "numbers")
    return element(
        "figure",
        element("figcaption", "Length against BLEU")
        + element("div", drawing, class_="scrolls")
        + element("details", summary + _table(rows)),
    )


def _texts(runs, indices):
    """Sentences with their references and translations."""
    languages = [
        runs[0].sections["data"][f"{side}_language"]
        for side in ("source", "target")
    ]
    rows = []
    for i in indices:
        one = runs[0].translations[i]
        lines = [
            ("source", one.source, languages[0], ""),
            ("reference", one.reference, languages[1], ""),
        ]
        for run in runs:
            name = run.name if len(runs) > 1 else "translation"
            found = run.translations[i]
            lines.append(
                (name, found.output, languages[1], f"{found.bleu:.1f}")
            )
        for j, (name, words, language, score) in enumerate(lines):
            is_last = j == len(lines) - 1
            ends = {0: "first"}.get(j, "last" if is_last else None)
            rows.append(
                element(
                    "tr",
                    element("th", escape(name), scope="row")
                    + element(
                        "td",
                        escape(words),
                        dir=direction(language),
                        lang=language,
                    )
                    + element("td", score, class_="number"),
                    class_=ends,
                )
            )
    return _table(rows, "texts")


def _recipe(runs):
    """Every field of the configuration; those that differ stand out."""
    rows = []
    for section in runs[0].sections:
        for name in runs[0].sections[section]:
            values = [run.sections[section][name] for run in runs]
            differs = any(value != values[0] for value in values)
            cells = "".join(
                element("td", escape(_spell(value))) for value in values
            )
            head = element("th", escape(f"{section}.{name}"), scope="row")
            rows.append(
                element(
                    "tr", head + cells, class_="changed" if differs else None
                )
            )
    if len(runs) > 1:
        heads = [_swatch(i) + escape(run.name) for i, run in enumerate(runs)]
        rows.insert(0, _row(["field", *heads], cell="th"))
    parts = [element("h2", "Recipe")]
    if len(runs) > 1:
        parts.append(_paragraph("Fields that differ have a colored row."))
    parts.append(_table(rows))
    for run in runs:
        content = "\n".join(run.flag_lines) or "there is no flags.txt"
        parts.append(
            element(
                "details",
                element("summary", escape(f"flags.txt of {run.name}"))
                + element("pre", escape(content)),
            )
        )
    return "\n".join(parts)


def _spell(value):
    """A field's value as the page shows it."""
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return "left out" if value is None else str(value)


# Elements


def _swatch(index):
    """The color of a run."""
    return (
        f'<span class="swatch" style="background:{COLORS[index]}"'
        ' aria-hidden="true"></span>'
    )


def _row(cells: Sequence[str], cell: str = "td", head: bool = False) -> str:
    """A row of a table, of cells that are HTML already."""
    tags = [cell] * len(cells)
    if head:
        tags[0] = "th"
    return element(
        "tr",
        "".join(
            f"<{tag}>{content}</{tag}>"
            for tag, content in zip(tags, cells, strict=True)
        ),
    )


def _table(rows: Iterable[str], kind: str | None = None) -> str:
    """A table that scrolls if it is too wide."""
    table = element("table", "\n".join(rows), class_=kind)
    return element("div", table, class_="scrolls")


def _paragraph(words: str) -> str:
    return element("p", escape(words), class_="soft")
