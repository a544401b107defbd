"""Reads the results of `compare.py`, makes their tables and their picture."""

import datetime
import itertools
import json
import pathlib
import statistics

import matplotlib
import results as files
from compare_rows import CEILING, ROWS, TABLES
from plots import make_axes, transparent_svg

from keras_transformer.figures.saving import STYLE

NAME = "peers"  # of the files in benchmarks/results, one for each kind of CPU
RATIOS = "ratios"  # heading of a table
PICTURE = files.ROOT / "docs/benchmarks.svg"


class Results:
    """The contents of a file of results.

    Attributes:
        setting: The machine, commit and input, or None before a measurement.
        lines: The line of each (round, row, system).
        times: The time of each measurement, in seconds since 1970.
        errors: Errors of scripts that have not succeeded since.
    """

    def __init__(self, path: pathlib.Path):
        self.setting, self.lines, self.times = None, {}, {}
        failed = {}
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        # A killed run may have left an incomplete line.
        complete = text[: text.rfind("\n") + 1]
        for record in map(json.loads, complete.splitlines()):
            if "setting" in record:
                self.setting = record["setting"]
                continue
            key = record["round"], record["row"], record["system"]
            if "error" in record:
                failed[key] = record["error"]
                continue
            failed.pop(key, None)
            self.lines[key] = record["line"]
            self.times[key] = record["time"]
        self.errors = [
            f"round {number}: {row}: {system}: {error}"
            for (number, row, system), error in failed.items()
        ]

    @property
    def systems(self) -> set[str]:
        """The names of the measured systems."""
        return {system for _, _, system in self.lines}

    def rates(self, row: str, system: str) -> dict[int, float]:
        """Returns the rate of a system by round."""
        name = ROWS[row].table.rate
        return {
            key[0]: line[name]
            for key, line in self.lines.items()
            if key[1:] == (row, system)
        }

    def median(self, row: str, system: str) -> float | None:
        """Returns the median of the rounds, or None."""
        rates = self.rates(row, system).values()
        return statistics.median(rates) if rates else None


def tables_of(results: Results) -> dict[str, list[dict]]:
    """Makes the tables of speeds, and of our ratios to each peer."""
    tables = {
        table.heading: [
            speeds_of(name, row, results)
            for name, row in ROWS.items()
            if row.table is table
            and any(key[1] == name for key in results.lines)
        ]
        for table in TABLES
    }
    tables[RATIOS] = [
        ratio for name in ROWS for ratio in ratios_of(name, results)
    ]
    return {heading: rows for heading, rows in tables.items() if rows}


def speeds_of(name, row, results):
    """Makes a row: all systems' medians, and our ratio to the fastest peer."""
    medians = {
        system: rounded(results.median(name, system))
        for system, values in row.table.systems.items()
        if not values.variables or system in results.systems
    }
    to_peers = [
        ratio["ratio"]
        for ratio in ratios_of(name, results)
        if ratio["peer"] != CEILING
        and row.table.systems[ratio["ours"]].engine == "native"
    ]
    ratio = min(to_peers, default=None)
    return {row.table.heading: row.title, **medians, "ratio": ratio}


def ratios_of(name, results):
    """Compares our fastest variant of each engine with each peer.

    The ratio is the median over the rounds. A variant that computes in less
    than float32 is compared only with peers that do so, too.
    """
    row, systems = ROWS[name], ROWS[name].table.systems
    measured = [s for s in row.systems if results.rates(name, s)]
    ours = [s for s in measured if systems[s].is_ours]
    engines = dict.fromkeys(systems[s].engine for s in ours)
    found = []
    for engine, peer in itertools.product(engines, measured):
        comparable = [
            s
            for s in ours
            if systems[s].engine == engine
            and (systems[peer].is_reduced or not systems[s].is_reduced)
        ]
        if peer in ours or not comparable:
            continue
        fastest = max(
            comparable, key=lambda system: results.median(name, system)
        )
        ratios = quotients(
            results.rates(name, fastest), results.rates(name, peer)
        )
        if ratios:
            found.append(
                {
                    "row": row.title,
                    "ours": fastest,
                    "peer": peer,
                    "ratio": round(statistics.median(ratios), 2),
                    "lowest": round(min(ratios), 2),
                    "highest": round(max(ratios), 2),
                }
            )
    return found


def quotients(ours, others):
    """Returns the ratio of two systems in each round that both have.

    >>> quotients({1: 3.0, 2: 8.0}, {2: 2.0, 3: 1.0})
    [4.0]
    """
    return [ours[n] / others[n] for n in sorted(ours) if n in others]


def rounded(value):
    """Rounds to three digits, or to a whole number. None stays None.

    >>> rounded(9330.4), rounded(27.64), rounded(0.5549), rounded(None)
    (9330, 27.6, 0.555, None)
    """
    if value is None:
        return None
    return round(value) if value >= 100 else float(f"{value:.3g}")


def notes_of(results):
    """Returns a note on the number of rounds and the other processes."""
    rounds = max((number for number, *_ in results.lines), default=0)
    foreign = [line["foreign_cpus"] for line in results.lines.values()]
    return (
        f"Rounds: {rounds}. CPUs that other processes used:"
        f" at most {max(foreign, default=0.0):.2f}."
    )


def record(results):
    """Writes the tables to benchmarks/results. Draws the picture if complete.

    The tables of other kinds of CPU stay. Raises SystemExit if a recorded row
    was not measured again.
    """
    name = files.of_this_cpu(NAME)
    tables = tables_of(results)
    if (files.FOLDER / f"{name}.json").exists():
        missing = titles_of(files.read(name)["tables"]) - titles_of(tables)
        if missing:
            raise SystemExit(
                "expected all rows that are recorded. Received: no"
                f" {', no '.join(sorted(missing))}"
            )
    last = datetime.datetime.fromtimestamp(
        max(results.times.values()), datetime.UTC
    )
    versions = files.versions(("tensorflow", "keras"))
    for line in results.lines.values():
        package, version = line["version"].split()
        versions[package] = version
    files.record(
        name,
        f"This package and its peers, {files.cpu_kind()}",
        tables,
        date=last.date().isoformat(),
        commit=results.setting["commit"],
        machine=results.setting["machine"],
        versions=versions,
        notes=notes_of(results),
    )
    if titles_of(tables) == {row.title for row in ROWS.values()}:
        files.write(PICTURE, draw(tables[RATIOS]))


def titles_of(tables):
    """Returns the titles of the rows in tables."""
    return {row["row"] for row in tables[RATIOS]}


BAR, TOP, BOTTOM = 26, 48, 30  # points: height of a row, and margins
LEFT, RIGHT, SCALE_WIDTH = 330, 60, 400
FASTER, SLOWER = "#3aa17e", "#e07b39"
RANGE = "#59616a"  # also legible on the bars


@matplotlib.rc_context(STYLE)
def draw(ratios):
    """Draws the ratios as bars with the range of the rounds. Returns SVG."""
    shown = [row for row in ratios if row["peer"] != CEILING]
    size = LEFT + SCALE_WIDTH + RIGHT, TOP + BOTTOM + BAR * len(shown)
    figure, axes = make_axes(*size, LEFT, RIGHT, BOTTOM, TOP)
    for i, row in enumerate(shown):
        color = FASTER if row["ratio"] >= 1 else SLOWER
        axes.barh(i, row["ratio"], 0.55, color=color)
        axes.hlines(i, row["lowest"], row["highest"], RANGE)
        axes.annotate(
            f"{row['ratio']:.2f}",
            (max(row["ratio"], row["highest"]), i),
            (6, 0),
            textcoords="offset points",
            verticalalignment="center",
        )
    axes.axvline(1, color=files.INK, linestyle="--", linewidth=1)
    names = [f"{row['row']}: {row['peer']}" for row in shown]
    axes.set_yticks(range(len(shown)), [n.replace("`", "") for n in names])
    axes.set(xlim=(0, None), ylim=(len(shown) - 0.5, -0.5))
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    title = "Speed of this package, divided by the speed of each peer"
    figure.text(0.02, 1 - 20 / size[1], title, fontweight="bold")
    lines = "bar: median of the rounds; line: lowest to highest"
    figure.text(0.02, 1 - 38 / size[1], lines)
    return transparent_svg(figure, files.INK)
