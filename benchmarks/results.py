"""The current result of each measurement: `benchmarks/results/NAME.json`.

    python benchmarks/results.py    # rewrites benchmarks/results/README.md

A script that runs with --record replaces its file, and the page with all
tables. A measurement that is repeated replaces the earlier one; git keeps that.
"""

import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks/results"
PAGE = "README.md"
MEASURED = "keras_transformer", "trainers", "savedmodel", "benchmarks/*.py"
MEASURED += ("benchmarks/peers",)  # with what they require
INK = "#767d86"  # of pictures; legible on white and on black
EXTENSIONS = "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16"
PACKAGES = "tensorflow", "keras", "numpy", "onnxruntime", "ctranslate2"


def add_flag(parser):
    """Adds --record to the parser of a script."""
    parser.add_argument(
        "--record",
        action="store_true",
        help="replace the result in benchmarks/results",
    )


def record(name, title, tables, **fields):
    """Replaces a result, and the page of all results.

    Args:
        name: Name of the file, without its ending.
        title, tables, **fields: As in `as_json`.
    """
    write(FOLDER / f"{name}.json", as_json(title, tables, **fields))
    write(FOLDER / PAGE, page())


def as_json(title, tables, **fields):
    """The text of a result's file.

    Args:
        title: Name of the measurement.
        tables: Heading -> rows; a row maps columns to numbers or text.
        **fields: Values that override the fields of this process.
    """
    values = {"title": title, "command": command(), "date": today()}
    values |= {"commit": code_commit(), "machine": machine()}
    values |= {"versions": versions(), "notes": ""} | fields
    for heading, rows in tables.items():
        if any(row.keys() != rows[0].keys() for row in rows):
            raise ValueError(f"expected rows of the same columns in {heading}")
    text = json.dumps(values | {"tables": tables}, indent=1, ensure_ascii=False)
    return text + "\n"


def read(name):
    """A result, as `record` wrote it."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def write(path, text):
    """Writes a file, complete or not at all."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def parse_table(markdown):
    """The rows of a Markdown table, numbers as such.

    >>> parse_table("| n | s |\\n|---|---|\\n| 1,024 | **0.5** |\\n| no | |\\n")
    [{'n': 1024, 's': 0.5}, {'n': 'no', 's': ''}]
    """
    head, _, *body = (
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in markdown.strip().splitlines()
    )
    if len(set(head)) < len(head):
        raise ValueError(f"expected columns of different names: {head}")
    return [dict(zip(head, map(value, row), strict=True)) for row in body]


def value(cell):
    """A cell as a number, if it is one.

    >>> value("1,024"), value("**0.50**"), value("2 x 3"), value("")
    (1024, 0.5, '2 x 3', '')
    """
    text = cell.strip("*")
    if not re.fullmatch(r"-?\d[\d,]*(\.\d+)?", text):
        return text
    return (float if "." in text else int)(text.replace(",", ""))


# The process that measures


def command():
    """The command line, as it would be typed in the repository's root."""
    script = pathlib.Path(sys.argv[0]).name
    words = [word for word in sys.argv[1:] if word != "--record"]
    return shlex.join(["python", f"benchmarks/{script}", *words])


def today():
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def code_commit():
    """The last commit that changed the code; "-dirty": it has changed since.

    Empty in a copy of the tree without its repository.
    """
    if not (ROOT / ".git").exists():
        return ""

    def git(*words):
        output = subprocess.check_output(
            ["git", *words, "--", *MEASURED], cwd=ROOT, text=True
        )
        return output.strip()

    dirty = "-dirty" if git("status", "--porcelain") else ""
    return git("log", "-1", "--format=%h") + dirty


def machine():
    """Cores and CPU."""
    return f"{len(os.sched_getaffinity(0))} cores of {cpu_name()}"


def cpu_name():
    """The CPU, with the extensions that decide how fast products are."""
    fields = cpu_fields()
    flags = [flag for flag in EXTENSIONS if flag in fields["flags"].split()]
    limit = ", limited to AVX2" if is_limited() else ""
    return f"{fields['model name']} ({', '.join(flags)}){limit}"


def cpu_kind():
    """The last of `EXTENSIONS` that is used, for a file's name: "avx2"."""
    flags = cpu_fields()["flags"].split()
    used = [flag for flag in EXTENSIONS if flag in flags]
    return used[0] if is_limited() else used[-1]


def is_limited():
    """Whether oneDNN's kernels are those of CPUs without AVX-512."""
    return os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper() == "AVX2"


def of_this_cpu(name):
    """The name of a result of which each kind of CPU has its own."""
    return f"{name}_{cpu_kind()}"


def cpu_fields():
    """Name -> value of the last CPU in /proc/cpuinfo."""
    words = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    return dict(
        map(str.strip, line.split(":", 1)) for line in words if ":" in line
    )


def versions(packages=PACKAGES):
    """Package -> version: Python, and the packages that compute."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


# The page


def page():
    """All results in Markdown."""
    parts = [
        "# Results\n\nThe current result of each measurement, written by"
        " `benchmarks/results.py` from the JSON files in this folder. Change a"
        " result by measuring again (`--record`).\n"
    ]
    for path in sorted(FOLDER.glob("*.json")):
        result = read(path.stem)
        parts.append(f"## {result['title']}\n")
        parts.append(f"`{result['command']}`\n")
        parts.append(f"{circumstances(result)}\n")
        for heading, rows in result["tables"].items():
            if len(result["tables"]) > 1:
                parts.append(f"### {heading}\n")
            parts.append(markdown(rows))
    return "\n".join(parts)


def circumstances(result):
    """Date, machine and versions of a result: one paragraph."""
    names = [f"{name} {v}" for name, v in result["versions"].items()]
    parts = [result["date"], f"commit {result['commit'] or 'not recorded'}"]
    parts += [result["machine"], ", ".join(names)]
    notes = f" {result['notes']}" if result["notes"] else ""
    return f"{'; '.join(part for part in parts if part)}.{notes}"


def markdown(rows):
    """Rows as a Markdown table.

    >>> print(markdown([{"n": 1024, "s": 0.5}, {"n": 2, "s": None}]), end="")
    | n | s |
    |---|---|
    | 1,024 | 0.5 |
    | 2 |  |
    """
    lines = [list(rows[0]), *([shown(v) for v in row.values()] for row in rows)]
    text = [f"| {' | '.join(line)} |" for line in lines]
    text.insert(1, "|" + "---|" * len(rows[0]))
    return "\n".join(text) + "\n"


def shown(number):
    """A cell."""
    if number is None:
        return ""
    return number if isinstance(number, str) else f"{number:,}"


if __name__ == "__main__":
    write(FOLDER / PAGE, page())
