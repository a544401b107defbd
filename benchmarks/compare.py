"""Compares this package with other systems, which are measured in turn.

    make peers
    python benchmarks/compare.py --data=DATA --workdir=DIR [--record]

DATA is Multi30k, DIR a trained work directory, which translates its test set.
Every measurement is a process of its own, a script of benchmarks/peers in the
environment of its system. The systems take turns, round by round. The output of
a process is appended to `results.jsonl` in --folder. An interrupted run
continues where it ended, and a complete run only shows its tables. Each number
is the median of the rounds. --record writes the tables to the file for this
kind of CPU in benchmarks/results, and draws docs/benchmarks.svg if all rows
were measured. With ONEDNN_MAX_CPU_ISA, CT2_FORCE_CPU_ISA and
MKL_ENABLE_INSTRUCTIONS set to AVX2, a CPU with AVX-512 multiplies like others.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import compare_tables
import results as files
from compare_rows import OPUS_MT, ROWS, TRANSLATION

ROOT = pathlib.Path(__file__).parents[1]
SCRIPTS = ROOT / "benchmarks/peers"
ENVIRONMENTS = ROOT / ".venv-peers"


def main():
    arguments = parse_arguments()
    path = arguments.folder / "results.jsonl"
    measure(arguments, path)
    results = compare_tables.Results(path)
    for heading, rows in compare_tables.tables_of(results).items():
        print(f"{heading}\n\n{files.markdown(rows)}")
    print(compare_tables.notes_of(results))
    if arguments.record:
        compare_tables.record(results)
    if results.errors:
        raise SystemExit("\n".join(results.errors))


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    path = pathlib.Path
    parser.add_argument("--data", type=path, required=True)
    parser.add_argument("--workdir", type=path)
    parser.add_argument(
        "--folder",
        type=path,
        default=path("runs/peers"),
        help="for prepared data, the export and results",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--rows",
        type=choose,
        default="",
        help=f"names or their beginnings, with commas: {', '.join(ROWS)}",
    )
    parser.add_argument(
        "--systems",
        nargs="+",
        default=[],
        help="names; default: all without variables of their own",
    )
    parser.add_argument(
        "--small",
        action="store_true",
        help="a trial: a step and 8 lines, in the folder small of --folder",
    )
    files.add_flag(parser)
    arguments = parser.parse_args()
    if arguments.small and arguments.record:
        parser.error("a trial is no result: --small excludes --record")
    if arguments.workdir is None and has(TRANSLATION, arguments.rows):
        parser.error("rows of translation need --workdir=DIR")
    arguments.rows = with_systems(arguments.rows, arguments.systems)
    if not arguments.rows:
        parser.error(
            "expected systems of these rows. Received:"
            f" --systems {arguments.systems}"
        )
    if arguments.small:  # an export belongs to the results beside it
        arguments.folder /= "small"
    return arguments


def choose(names):
    """Chooses rows by name.

    Args:
        names: Names or beginnings of names, separated by commas. "" chooses
            all.
    """
    wanted = names.split(",")
    for name in wanted:
        if not any(row.startswith(name) for row in ROWS):
            raise argparse.ArgumentTypeError(
                f"expected names of rows, of {', '.join(ROWS)}."
                f" Received: {name}"
            )
    return {
        name: row
        for name, row in ROWS.items()
        if name.startswith(tuple(wanted))
    }


def with_systems(rows, names):
    """Limits rows to the systems to measure. Drops rows without systems.

    Args:
        rows: The chosen rows.
        names: Names of systems. If empty, all without variables of their own.
    """
    chosen = {}
    for name, row in rows.items():
        systems = tuple(
            system
            for system in row.systems
            if (
                system in names
                if names
                else not row.table.systems[system].variables
            )
        )
        if systems:
            chosen[name] = row._replace(systems=systems)
    return chosen


def has(table, rows):
    """Tells whether a table has any of these rows."""
    return any(row.table is table for row in rows.values())


def measure(arguments, path):
    """Runs the scripts whose lines are missing from the file of results."""
    check_environments(arguments.rows)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8") as file:

        def keep(record):
            file.write(json.dumps(record) + "\n")
            file.flush()

        check_setting(compare_tables.Results(path), setting(arguments), keep)
        prepare(arguments)
        known = compare_tables.Results(path).lines
        for number in range(1, arguments.rounds + 1):
            for name, row in arguments.rows.items():
                for system in row.systems:
                    if (number, name, system) in known:
                        continue
                    log(f"round {number}: {row.title}: {system}")
                    found = run(
                        argv_of(row, system, arguments),
                        row.table.systems[system].variables,
                    )
                    key = {"round": number, "row": name, "system": system}
                    keep(key | {"time": round(time.time())} | found)


def log(text):
    print(text, file=sys.stderr, flush=True)


def check_environments(rows):
    """Raises SystemExit if the environment of a system is missing."""
    for row in rows.values():
        for name in row.systems:
            python = python_of(row.table.systems[name])
            if not python.exists():
                raise SystemExit(
                    f"expected an environment for {name}: run `make peers`."
                    f" Received: no {python}"
                )


def python_of(system):
    """Returns the path of a system's Python."""
    if system.environment is None:
        return pathlib.Path(sys.executable)
    return ENVIRONMENTS / system.environment / "bin/python"


def setting(arguments):
    """Returns the values that all lines of a file of results share."""
    workdir = arguments.workdir and str(arguments.workdir.resolve())
    return {
        "machine": files.machine(),
        "commit": files.code_commit(),
        "data": str(arguments.data.resolve()),
        "workdir": workdir,
    }


def check_setting(results, now, keep):
    """Raises SystemExit if results are of another machine, commit or input."""
    if results.setting is None:
        keep({"setting": now})
    elif results.setting != now:
        raise SystemExit(
            "expected results of this machine, commit and input: use another"
            f" --folder.\nThe file: {results.setting}\nNow: {now}"
        )


def prepare(arguments):
    """Makes missing data, models and exports."""
    folder, rows = arguments.folder, arguments.rows
    data = folder / "data"
    make_data(data, arguments.data)
    if has(TRANSLATION, rows):
        make_export(folder / "ctranslate2", arguments.workdir)
    if has(OPUS_MT, rows):
        model, workdir = folder / "opus_mt", folder / "opus_workdir"
        script = str(SCRIPTS / "make_opus_mt.py")
        python = python_of(OPUS_MT.systems["transformers"])
        train, into = data / "train", "--workdir={output}"
        make(
            model,
            [script, "--output={output}", f"--text={train}"],
            python=python,
        )
        make(
            workdir,
            ["-m", "trainers.import_model", f"--source={model}", into],
            ["-m", "trainers.shortlist", f"--train_files={train}", into],
        )
        make_export(folder / "opus_ctranslate2", workdir)


def make_data(path, data):
    """Prepares Multi30k for all systems."""
    script = str(SCRIPTS / "prepare.py")
    make(path, [script, f"--data={data}", "--output={output}"])


def make_export(path, workdir):
    """Exports a work directory for CTranslate2."""
    module = ["-m", "savedmodel.export", "--format=ctranslate2"]
    make(path, [*module, f"--workdir={workdir}", "--output={output}"])


def make(path, *commands, python=sys.executable):
    """Runs commands that make a directory, `{output}`, if it is missing."""
    if path.exists():
        return
    log(f"making {path}")
    unfinished = path.with_name(f"{path.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    for command in commands:
        argv = [argument.format(output=unfinished) for argument in command]
        process = start([str(python), *argv])
        if process.returncode:
            raise SystemExit(f"{path}: {process.stderr[-1000:]}")
    unfinished.rename(path)


def argv_of(row, name, arguments):
    """Returns the command line of a measurement."""
    system = row.table.systems[name]
    options = [*row.table.options, *row.options, *system.options]
    if arguments.small:
        options += row.table.trial
    places = {"folder": arguments.folder, "workdir": arguments.workdir}
    return [
        str(python_of(system)),
        str(SCRIPTS / f"{system.script}.py"),
        *(option.format(**places) for option in options),
    ]


def run(argv, variables=()):
    """Runs a script. Returns its last line, which is JSON, or its error."""
    process = start(argv, variables)
    if process.returncode:
        return {"error": process.stderr[-1000:]}
    return {"line": json.loads(process.stdout.splitlines()[-1])}


def start(argv, variables=()):
    """Runs a process on all cores, with no GPU, and with our modules."""
    shared = {
        "OMP_NUM_THREADS": str(len(os.sched_getaffinity(0))),
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.run(
        argv,
        env=os.environ | shared | dict(v.split("=") for v in variables),
        capture_output=True,
        text=True,
    )


if __name__ == "__main__":
    main()
