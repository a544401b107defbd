"""This package beside the peers: one command that measures all and shows it.

    python benchmarks/compare.py --peers=DIR --environments=DIR --data=DIR \
        --workdir=DIR --results=FILE.jsonl [--rounds=3] [--rows=train,decode]
        [--picture=docs/benchmarks.svg]
    python benchmarks/compare.py --print --results=FILE.jsonl [--record]

Every measurement is a process of its own, and the processes take turns, round
by round. The output of a process is appended to the results when it ends, with
the share of the CPUs that other processes used meanwhile; an interrupted run
continues where it ended. --print shows the results and measures nothing.

An alternative that is clearly slower than another one of its side, such as XLA
beside the plain graph, is measured in the first round only (`is_beaten`).

A row of the table sets this package beside the fastest peer: both are the ones
with the highest median, the ratio is the median of the ratios of the rounds.
Steps and batches during which other processes used much CPU time are excluded,
as in the peers' scripts. `docs/benchmarks.md` lists the preparations.
"""

import argparse
import json
import os
import pathlib
import platform
import resource
import subprocess
import sys
import time

from compare_results import (
    Results,
    compare_all,
    describe,
    draw,
    is_beaten,
    record,
    systems_of,
    table,
)
from compare_rows import COMMANDS, CORES, ROWS, SETUPS
from results import add_flag, code_commit, cpu_name, markdown

ROOT = pathlib.Path(__file__).parents[1]
PACKAGES = {
    "ours": "tensorflow keras ctranslate2 onnxruntime numpy",
    "torch": "torch ctranslate2",
    "onmt": "OpenNMT-tf tensorflow",
    "joey": "joeynmt torch",
}


def main():
    arguments = parse_arguments()
    rows = choose(arguments.rows)
    if not arguments.print:
        measure(rows, arguments)
    results = Results(arguments.results)
    print(describe(results))
    found = compare_all(rows, results)
    print(table(rows, found))
    print(markdown(systems_of(rows, results)))
    if arguments.record:
        record(rows, found, results)
    if arguments.picture:
        arguments.picture.write_text(draw(rows, found), encoding="utf-8")
    if results.errors:
        raise SystemExit("\n".join(results.errors))


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    path = pathlib.Path
    parser.add_argument("--results", type=path, required=True)
    parser.add_argument(
        "--rows", default="", help="names or their beginnings, with commas"
    )
    parser.add_argument("--picture", type=path, help="draw an SVG here")
    parser.add_argument(
        "--print", action="store_true", help="show the results, measure nothing"
    )
    add_flag(parser)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", type=path, help="the peers' scripts")
    parser.add_argument(
        "--environments", type=path, help="the peers' virtual environments"
    )
    parser.add_argument("--data", type=path, help="the peers' data")
    parser.add_argument("--workdir", type=path, help="a trained model's")
    arguments = parser.parse_args()
    for name in ("peers", "environments", "data", "workdir"):
        value = getattr(arguments, name)
        if not (arguments.print or value and value.is_dir()):
            parser.error(f"expected --{name}=DIR. Received: {value}")
    return arguments


def choose(names):
    """Rows by name.

    Args:
        names: Names or beginnings of names, with commas; "": all.
    """
    wanted = names.split(",")
    for name in wanted:
        if not any(row.startswith(name) for row in ROWS):
            raise SystemExit(
                f"expected names of rows, of {', '.join(ROWS)}."
                f" Received: {name}"
            )
    return {
        name: row
        for name, row in ROWS.items()
        if any(name.startswith(one) for one in wanted)
    }


def commands_of(rows):
    """Names of the commands that rows need, in the order of `COMMANDS`."""
    needed = {f.command for row in rows.values() for f in row.figures}
    return [name for name in COMMANDS if name in needed]


def measure(rows, arguments):
    """Runs the commands that the results lack."""
    places = places_of(arguments)
    arguments.results.parent.mkdir(parents=True, exist_ok=True)
    with open(arguments.results, "a", encoding="utf-8") as file:

        def keep(record):
            file.write(json.dumps(record) + "\n")
            file.flush()

        check_machine(
            Results(arguments.results), describe_machine(places), keep
        )
        commands = commands_of(rows)
        for needed in dict.fromkeys(
            n for c in commands for n in COMMANDS[c].needs
        ):
            make(SETUPS[needed], places)
        for number in range(1, arguments.rounds + 1):
            results = Results(arguments.results)
            for name in commands:
                if number > 1 and is_beaten(name, rows, results):
                    continue
                if (number, name) not in results.lines:
                    print(
                        f"round {number}: {name}", file=sys.stderr, flush=True
                    )
                    record = run(COMMANDS[name].argv, places)
                    keep({"round": number, "command": name, **record})


def places_of(arguments):
    """Values of the names in braces of a command."""
    environments = arguments.environments
    made = arguments.results.with_suffix(".exports")
    made.mkdir(parents=True, exist_ok=True)
    return {
        "ours": sys.executable,
        "peers": arguments.peers.resolve(),
        "data": arguments.data.resolve(),
        "work": arguments.data.resolve().parent,
        "workdir": arguments.workdir.resolve(),
        "made": made.resolve(),
    } | {
        name: environments.resolve() / name / "bin/python"
        for name in ("torch", "onmt", "joey")
    }


def fill(argv, places):
    """A command line as a list."""
    return [word.format(**places) for word in argv.split()]


def environment(places):
    """Variables of every process: all cores, no GPU, this package."""
    return {
        **os.environ,
        "NMT_PEERS": str(places["work"]),
        "OMP_NUM_THREADS": str(CORES),
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "PYTHONPATH": str(ROOT),
    }


def make(setup, places):
    """Makes the missing files."""
    target = pathlib.Path(setup.target.format(**places))
    if target.exists():
        return
    print(f"making {target}", file=sys.stderr, flush=True)
    found = run(setup.argv, places)
    if "error" in found:
        raise SystemExit(f"{target}: {found['error']}")


def run(argv, places):
    """JSON lines of a process, or its error; the load by other processes."""
    busy, own, started = busy_seconds(), children_seconds(), time.perf_counter()
    process = subprocess.run(
        fill(argv, places),
        cwd=ROOT,
        env=environment(places),
        capture_output=True,
        text=True,
    )
    seconds = time.perf_counter() - started
    foreign = busy_seconds() - busy - (children_seconds() - own)
    record = {
        "time": round(time.time()),
        "seconds": round(seconds, 1),
        "foreign_cpus": round(max(0.0, foreign / seconds), 3),
    }
    if process.returncode:
        return record | {"error": process.stderr[-1000:]}
    return record | {"lines": parse_lines(process.stdout)}


def parse_lines(text):
    """The JSON objects among the lines of a text.

    >>> parse_lines('step 1\\n{"kind": "ceiling", "n": 8}\\n| table |')
    [{'kind': 'ceiling', 'n': 8}]
    """
    return [
        json.loads(line) for line in text.splitlines() if line.startswith("{")
    ]


def busy_seconds():
    """CPU seconds of all processes since the machine started, Linux."""
    with open("/proc/stat") as file:
        fields = list(map(int, file.readline().split()[1:9]))
    idle = fields[3] + fields[4]  # the fifth is waiting for a disk
    return (sum(fields) - idle) / os.sysconf("SC_CLK_TCK")


def children_seconds():
    """CPU seconds of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def describe_machine(places):
    """CPU and versions, which must be the same in all rounds."""
    versions = {"python": platform.python_version()}
    for environment_name, packages in PACKAGES.items():
        script = (
            "import importlib.metadata as m, json; print(json.dumps("
            f"{{name: m.version(name) for name in {packages.split()}}}))"
        )
        found = subprocess.check_output(
            [places[environment_name], "-c", script], text=True
        )
        versions[environment_name] = json.loads(found)
    return {
        "cpu": cpu_name(),
        "cores": CORES,
        "commit": code_commit(),
        "versions": versions,
    }


def check_machine(results, machine, keep):
    """Results of another machine, version or commit do not belong together."""
    if results.machine is None:
        keep({"machine": machine})
    elif results.machine != machine:
        raise SystemExit(
            "expected results of this machine, these versions and this commit;"
            f" use another file.\nThe file: {results.machine}\nNow: {machine}"
        )


if __name__ == "__main__":
    main()
