"""The results of `compare.py`: read from its file, compared, shown, drawn."""

import dataclasses
import datetime
import json
import pathlib
import statistics
import typing

import matplotlib
import results as files
from compare_rows import Figure, Row
from matplotlib.patches import Patch

from keras_transformer.figures.plots import make_axes
from keras_transformer.figures.saving import STYLE, transparent_svg

NAME = "compare"  # of the file in benchmarks/results


class Results:
    """What is in a file of results.

    Attributes:
        machine: The result of `describe_machine`; None before a measurement.
        lines: The lines of each (round, command).
        foreign: CPUs that other processes used meanwhile, of each.
        times: When each was measured, in seconds since 1970.
        errors: Of commands that failed and have not succeeded since.
    """

    def __init__(self, path: pathlib.Path):
        self.machine, self.lines, self.foreign, self.times = None, {}, {}, {}
        failed = {}
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        # A run that was killed may have left the beginning of a line.
        complete = text[: text.rfind("\n") + 1]
        for record in map(json.loads, complete.splitlines()):
            if "machine" in record:
                self.machine = record["machine"]
                continue
            key = record["round"], record["command"]
            if "error" in record:
                failed[key] = f"round {key[0]}: {key[1]}: {record['error']}"
                continue
            failed.pop(key, None)
            self.lines[key] = record["lines"]
            self.foreign[key] = record["foreign_cpus"]
            self.times[key] = record["time"]
        self.errors = list(failed.values())

    def values(self, figure: Figure) -> dict[int, float]:
        """The figure in each round that has it."""
        found = {
            number: figure.read(lines)
            for (number, command), lines in self.lines.items()
            if command == figure.command
        }
        return {n: value for n, value in found.items() if value is not None}

    def fastest(self, figures: tuple[Figure, ...]) -> tuple | None:
        """The figure with the highest median, and its values, or None."""
        found = [(figure, self.values(figure)) for figure in figures]
        found = [(figure, values) for figure, values in found if values]
        if not found:
            return None
        return max(found, key=median)


class Compared(typing.NamedTuple):
    """A row with its numbers.

    Attributes:
        ours, peer: `(figure, values by round)`.
        ratios: Ours by the peer's, of each round that has both.
        shares: Of the ceiling, of each round that has both; or none.
    """

    ours: tuple
    peer: tuple
    ratios: list[float]
    shares: list[float]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def share(self) -> float:
        return statistics.median(self.shares)


def compare(row: Row, results: Results) -> Compared | None:
    """The numbers of a row; None if ours or the peers' are missing."""
    ours, peer = results.fastest(row.ours), results.fastest(row.peers)
    if not (ours and peer):
        return None
    ratios = quotients(ours[1], peer[1])
    if not ratios:
        return None
    shares = []
    if row.ceiling:
        work = row.work[row.ours.index(ours[0])]
        shares = quotients(results.values(work), results.values(row.ceiling))
    return Compared(ours, peer, ratios, shares)


def compare_all(rows: dict, results: Results) -> dict[str, Compared | None]:
    """The numbers of each row, by its name."""
    return {name: compare(row, results) for name, row in rows.items()}


def quotients(ours, others):
    """Of the rounds that both have.

    >>> quotients({1: 3.0, 2: 8.0}, {2: 2.0, 3: 1.0})
    [4.0]
    """
    return [ours[n] / others[n] for n in sorted(ours) if n in others]


BEATEN = 0.8  # of the fastest of its side: no longer measured


def is_beaten(command: str, rows: dict, results: Results) -> bool:
    """Whether a command measures only alternatives that are clearly slower.

    That is, in each row that has figures of the command among ours or among
    the peers', the fastest of them is below `BEATEN` of that side's fastest.
    """
    row_sides = []
    for row in rows.values():
        if row.ceiling and row.ceiling.command == command:
            return False
        row_sides += [row.ours, row.peers]
    found = []
    for side in row_sides:
        own = results.fastest(tuple(f for f in side if f.command == command))
        if own:
            found.append((own, results.fastest(side)))
    return bool(found) and all(
        median(own) < BEATEN * median(fastest) for own, fastest in found
    )


def median(pair):
    """Of what `Results.fastest` found."""
    return statistics.median(pair[1].values())


def is_met(row: Row, compared: Compared) -> bool | None:
    """Whether the goals are reached; None if there is no goal."""
    if row.goal is None:
        return None
    if row.share is not None and compared.share < row.share:
        return False
    return compared.ratio >= row.goal


# Recording


def record(rows, found, results):
    """Writes the new measurements to benchmarks/results."""
    commit = results.machine["commit"]
    measured = {
        "rows": [
            as_record(row, found[name], commit)
            for name, row in rows.items()
            if found[name]
        ],
        "systems": systems_of(rows, results),
    }
    names = {"rows": ("row",), "systems": ("row", "system")}
    files.record(
        NAME,
        "This package and its peers",
        {
            table: merged(recorded_rows(table), measured[table], columns)
            for table, columns in names.items()
        },
        date=days_of(results)[-1],
        commit=commit,
        versions=versions_of(results),
    )


def merged(kept, measured, columns):
    """Rows of a table; of those with the same name the ones measured now.

    >>> kept = [{"row": "a", "n": 1}, {"row": "b", "n": 1}]
    >>> merged(kept, [{"row": "a", "n": 2}], ("row",))
    [{'row': 'a', 'n': 2}, {'row': 'b', 'n': 1}]
    """
    found = {tuple(r[c] for c in columns): r for r in kept + measured}
    return list(found.values())


def recorded_rows(table):
    """The rows of a table in benchmarks/results; none before the first."""
    if not (files.FOLDER / f"{NAME}.json").exists():
        return []
    return files.read(NAME)["tables"][table]


def versions_of(results):
    """System and package -> version."""
    return {
        f"{package} ({system})": version
        for system, packages in results.machine["versions"].items()
        if system != "python"
        for package, version in packages.items()
    }


def heading(row):
    """The first cell of a row."""
    return f"{row.title}, {row.unit}"


def as_record(row, compared, commit):
    """A row of the file."""
    ours, peer = compared.ours, compared.peer
    return {
        "row": heading(row),
        "this package": ours[0].label,
        "its speed": rounded(median(ours)),
        "peer": peer[0].label,
        "the peer's speed": rounded(median(peer)),
        "ratio": round(compared.ratio, 2),
        "lowest ratio": round(min(compared.ratios), 2),
        "highest ratio": round(max(compared.ratios), 2),
        "share of the ceiling": (
            round(compared.share, 2) if compared.shares else None
        ),
        "commit": commit,
    }


def rounded(value):
    """Three digits, or a whole number.

    >>> rounded(9330.4), rounded(27.64), rounded(0.5549)
    (9330, 27.6, 0.555)
    """
    return round(value) if value >= 100 else float(f"{value:.3g}")


def recorded(rows: dict) -> dict[str, Compared | None]:
    """The numbers of each row as benchmarks/results has them."""
    kept = {row["row"]: row for row in recorded_rows("rows")}
    return {
        name: from_record(kept[heading(row)]) if heading(row) in kept else None
        for name, row in rows.items()
    }


def from_record(values):
    """What `as_record` was given."""

    def side(label, speed):
        figure = Figure("", values[label], "", {})
        return figure, {} if values[speed] is None else {1: values[speed]}

    keys = "lowest ratio", "ratio", "highest ratio"
    share = values["share of the ceiling"]
    return Compared(
        side("this package", "its speed"),
        side("peer", "the peer's speed"),
        [values[key] for key in keys],
        [] if share is None else [share],
    )


# Showing


def days_of(results):
    """The days of measuring, in order."""
    return sorted(
        {
            datetime.datetime.fromtimestamp(t, datetime.UTC).date().isoformat()
            for t in results.times.values()
        }
    )


def describe(results):
    """When, on what and with which versions, as lines of Markdown."""
    if not results.times:
        return "Nothing was measured."
    days = days_of(results)
    machine = results.machine
    versions = machine["versions"]
    shown = [f"Python {versions['python']}"] + [
        f"{name}: " + ", ".join(f"{p} {v}" for p, v in versions[name].items())
        for name in sorted(versions.keys() - {"python"})
    ]
    return (
        f"{' to '.join(days[:1] + days[1:][-1:])}; {machine['cores']} cores of"
        f" {machine['cpu']}; commit {machine['commit']};"
        f" {max(n for n, _ in results.lines)} rounds; CPUs that other processes"
        f" used: median {statistics.median(results.foreign.values()):.2f},"
        f" at most {max(results.foreign.values()):.2f}.\n\n"
        f"{'; '.join(shown)}.\n"
    )


def table(rows, found):
    """The rows as Markdown, as docs/benchmarks.md has them.

    Args:
        rows: Rows by name.
        found: Their numbers; a ratio that reaches the goal is bold.
    """
    lines = [
        "| | this package | fastest peer | ratio | range | goal |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        compared = found[name]
        goal = "" if row.goal is None else f"{row.goal:g}"
        if row.share is not None:
            goal += f", {percent(row.share)} of the ceiling"
        if compared is None:
            cells = ["not measured", "", "", "", goal]
        else:
            ratio = f"{compared.ratio:.2f}"
            if is_met(row, compared):
                ratio = f"**{ratio}**"
            if compared.shares:
                ratio += f", {percent(compared.share)} of the ceiling"
            cells = [
                cell(*compared.ours),
                cell(*compared.peer),
                ratio,
                spread(compared.ratios),
                goal,
            ]
        lines.append(f"| {' | '.join([heading(row), *cells])} |")
    return "\n".join([*lines, ""])


def percent(share):
    """A share of 1 in words.

    >>> percent(0.755)
    '76 %'
    """
    return f"{100 * share:.0f} %"


def cell(figure, values):
    """A median and its system; values of a record may be missing."""
    if not values:
        return figure.label
    return f"{number(statistics.median(values.values()))} ({figure.label})"


def spread(values):
    """The least and the greatest.

    >>> spread([1.333, 1.5, 1.2])
    '1.20 to 1.50'
    """
    return f"{min(values):.2f} to {max(values):.2f}"


def number(value):
    """As a table has it, three digits or more.

    >>> number(9330.4), number(27.64), number(8.123)
    ('9,330', '27.6', '8.12')
    """
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def systems_of(rows, results):
    """Every figure that was measured, as rows of a table."""
    shown = {}
    for row in rows.values():
        for figure in row.ours + row.peers:
            key = json.dumps(dataclasses.asdict(figure))
            shown.setdefault(key, (heading(row), figure))
        if row.ceiling:
            key = json.dumps(dataclasses.asdict(row.ceiling))
            name = f"ceiling {row.ceiling.where['type']}, GFLOP/s"
            shown.setdefault(key, (name, row.ceiling))
    found = []
    for name, figure in shown.values():
        values = results.values(figure)
        if values:
            numbers = list(values.values())
            found.append(
                {
                    "row": name,
                    "system": figure.label,
                    "median": rounded(statistics.median(numbers)),
                    "lowest": rounded(min(numbers)),
                    "highest": rounded(max(numbers)),
                    "rounds": len(values),
                    "CPUs used by others": max(
                        results.foreign[n, figure.command] for n in values
                    ),
                }
            )
    return found


BAR, TOP, BOTTOM = 26, 72, 30  # points: height of a row, and margins
LEFT, RIGHT, SCALE_WIDTH = 330, 116, 400
COLUMNS = 46, 96  # right edges of the two numbers, beside the scale
MET, MISSED, NO_GOAL = "#3aa17e", "#e07b39", "#6b8fc9"
LEGEND = {"goal met": MET, "goal missed": MISSED, "no goal": NO_GOAL}
RANGE = "#59616a"  # also legible on the bars


@matplotlib.rc_context(STYLE)
def draw(rows, numbers):
    """The ratios as bars, with their range and their goal, as SVG."""
    found = [(row, numbers[name]) for name, row in rows.items()]
    found = [(row, compared) for row, compared in found if compared]
    if not found:
        raise SystemExit("There is nothing to draw: no row was measured.")
    size = LEFT + SCALE_WIDTH + RIGHT, TOP + BOTTOM + BAR * len(found)
    figure, axes = make_axes(*size, LEFT, RIGHT, BOTTOM, TOP)
    for i, (row, compared) in enumerate(found):
        met = is_met(row, compared)
        color = {True: MET, False: MISSED, None: NO_GOAL}[met]
        axes.barh(i, compared.ratio, 0.55, color=color)
        axes.hlines(i, min(compared.ratios), max(compared.ratios), RANGE)
        write_beside(axes, COLUMNS[0], i, f"{compared.ratio:.2f}")
        if row.goal is not None:
            axes.vlines(row.goal, i - 0.4, i + 0.4, files.INK, linewidth=2)
            write_beside(axes, COLUMNS[1], i, f"{row.goal:.2f}")
    write_beside(axes, COLUMNS[0], -0.9, "ratio")
    write_beside(axes, COLUMNS[1], -0.9, "goal")
    axes.axvline(1, color=files.INK, linestyle="--", linewidth=1)
    axes.set_yticks(range(len(found)), [short(row.title) for row, _ in found])
    axes.set(xlim=(0, None), ylim=(len(found) - 0.5, -0.5))
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    title = "Speed as a ratio to the fastest peer"
    figure.text(0.02, 1 - 20 / size[1], title, fontweight="bold")
    lines = "bar: median, thin line: range of the rounds, upright line: goal"
    figure.legend(
        [*(Patch(color=color) for color in LEGEND.values()), Patch(alpha=0)],
        [*LEGEND, lines],
        loc="upper left",
        bbox_to_anchor=(0.01, 1 - 22 / size[1]),
        ncols=4,
        handlelength=1,
        columnspacing=1,
    )
    return transparent_svg(figure, files.INK)


def write_beside(axes, points, row, words):
    """Writes words in a row; they end so far to the right of the scale."""
    axes.annotate(
        words,
        (1, row),
        (points, 0),
        xycoords=axes.get_yaxis_transform(),
        textcoords="offset points",
        horizontalalignment="right",
        verticalalignment="center",
        annotation_clip=False,
    )


def short(title):
    """A title of the table without its Markdown."""
    return title.replace("`", "")
