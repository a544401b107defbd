"""The current result of each measurement: `benchmarks/results/NAME.json`.

    python benchmarks/results.py    # rewrites benchmarks/results/README.md

A script that runs with --record replaces its file, and the page with all
tables. A repeated measurement replaces the earlier one, which git keeps.
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
MEASURED += ("benchmarks/peers",)  # including their requirements
INK = "#767d86"  # color of pictures, legible on white and on black
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
    """Makes the text of a result's file.

    Args:
        title: Name of the measurement.
        tables: Heading -> rows. A row maps columns to numbers or text.
        **fields: Values that override the fields of this process.

    Raises:
        ValueError: The rows of a table have different columns.
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
    """Reads a result, as `record` wrote it."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def write(path, text):
    """Writes a file completely or not at all."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def parse_table(markdown):
    """Parses the rows of a Markdown table, with numbers as numbers.

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
    """Converts a cell to a number, if it is one.

    >>> value("1,024"), value("**0.50**"), value("2 x 3"), value("")
    (1024, 0.5, '2 x 3', '')
    """
    text = cell.strip("*")
    if not re.fullmatch(r"-?\d[\d,]*(\.\d+)?", text):
        return text
    return (float if "." in text else int)(text.replace(",", ""))


# The process that measures


def command():
    """Returns this command line, as typed in the repository's root."""
    script = pathlib.Path(sys.argv[0]).name
    words = [word for word in sys.argv[1:] if word != "--record"]
    return shlex.join(["python", f"benchmarks/{script}", *words])


def today():
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def code_commit():
    """Returns the last commit that changed the code.

    "-dirty" follows if the code has changed since. Returns "" in a copy of the
    tree without its repository.
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
    """Returns the number of cores, and the CPU."""
    return f"{len(os.sched_getaffinity(0))} cores of {cpu_name()}"


def cpu_name():
    """Returns the CPU, with the extensions that make products faster."""
    fields = cpu_fields()
    flags = [flag for flag in EXTENSIONS if flag in fields["flags"].split()]
    limit = ", limited to AVX2" if is_limited() else ""
    return f"{fields['model name']} ({', '.join(flags)}){limit}"


def cpu_kind():
    """Returns the last used one of `EXTENSIONS`, for a file's name."""
    flags = cpu_fields()["flags"].split()
    used = [flag for flag in EXTENSIONS if flag in flags]
    return used[0] if is_limited() else used[-1]


def is_limited():
    """Tells whether oneDNN is limited to kernels without AVX-512."""
    return os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper() == "AVX2"


def of_this_cpu(name):
    """Returns the name of a result that differs by kind of CPU."""
    return f"{name}_{cpu_kind()}"


def cpu_fields():
    """Returns {name: value} for the last CPU in /proc/cpuinfo."""
    words = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    return dict(
        map(str.strip, line.split(":", 1)) for line in words if ":" in line
    )


def versions(packages=PACKAGES):
    """Returns {package: version} for Python and the installed packages."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


# The page


def page():
    """Makes the page of all results, in Markdown."""
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


def fill(path):
    """Puts each recorded table behind its comment: `<!-- NAME: HEADING -->`."""

    def table(match):
        rows = read(match[1])["tables"][match[2]]
        return f"{match[0].splitlines()[0]}\n\n{markdown(rows)}"

    pattern = r"<!-- ([\w-]+): (.+) -->\n(?:\n(?:\|.*\n)+)?"
    write(path, re.sub(pattern, table, path.read_text("utf-8")))


def circumstances(result):
    """Makes a paragraph of a result's date, machine and versions."""
    names = [f"{name} {v}" for name, v in result["versions"].items()]
    parts = [result["date"], f"commit {result['commit'] or 'not recorded'}"]
    parts += [result["machine"], ", ".join(names)]
    notes = f" {result['notes']}" if result["notes"] else ""
    return f"{'; '.join(part for part in parts if part)}.{notes}"


def markdown(rows):
    """Formats rows as a Markdown table.

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
    """Formats a cell."""
    if number is None:
        return ""
    return number if isinstance(number, str) else f"{number:,}"


if __name__ == "__main__":
    write(FOLDER / PAGE, page())
