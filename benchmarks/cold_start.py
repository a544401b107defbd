"""Cold start: seconds from the command to its first answer, by phase.

    python benchmarks/cold_start.py --workdir=DIR [--rounds=5]

For `trainers.translate` of one line, it measures the slowest imports (from
`python -X importtime`) and the whole command. For `trainers.serve`, it measures
the time until the server listens, is ready, and answers first. Each runs with
both engines, round by round, after the export is made. Numbers are medians. The
last command is refused, since its work directory is none.
"""

import argparse
import collections
import json
import re
import statistics
import subprocess
import sys
import time
import urllib.request

from processes import ROOT
from results import add_flag, markdown, record

ENGINES = {
    "native": [],
    "ctranslate2": ["--engine=ctranslate2"],
}
LINE = "A dog runs on the beach.\n"
PACKAGES = 6  # the slowest ones
IMPORT = re.compile(r"import time:\s+(\d+) \|\s+\d+ \| +(\S+)")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--workdir", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    add_flag(parser)
    arguments = parser.parse_args()
    found = collections.defaultdict(list)
    imports = collections.defaultdict(list)
    for number in range(arguments.rounds + 1):  # the first makes the export
        for engine, flags in ENGINES.items():
            argv = [f"--workdir={arguments.workdir}", *flags]
            measured = {
                ("translate", "a line"): translate(argv),
                **{("serve", k): v for k, v in serve(argv).items()},
            }
            if number:
                for key, seconds in measured.items():
                    found[engine, *key].append(seconds)
        if number:
            seconds = translate(["--workdir=/nowhere"], status=2)
            found["none", "translate", "a refusal"].append(seconds)
    for engine, flags in ENGINES.items():
        argv = [f"--workdir={arguments.workdir}", *flags]
        imports[engine] = slowest_imports(argv)
    phases = [
        {
            "engine": engine,
            "command": command,
            "until": phase,
            "seconds": round(statistics.median(values), 2),
        }
        for (engine, command, phase), values in sorted(found.items())
    ]
    packages = [
        {"engine": engine, "imports": name, "seconds": round(seconds, 2)}
        for engine, rows in imports.items()
        for name, seconds in rows
    ]
    print(markdown(phases), markdown(packages), sep="\n\n")
    if arguments.record:
        tables = {"Phases": phases, "Imports": packages}
        record("cold_start", "Cold start of commands", tables)


def translate(argv, status=0, options=()):
    """Returns the seconds that `trainers.translate` takes for a line."""
    begin = time.perf_counter()
    run_translate(argv, status)
    return time.perf_counter() - begin


def run_translate(argv, status=0, options=()):
    """Runs `trainers.translate` on a line. Returns its standard error."""
    command = [sys.executable, *options, "-m", "trainers.translate", *argv]
    process = subprocess.run(
        command, cwd=ROOT, input=LINE, capture_output=True, text=True
    )
    if process.returncode != status:
        raise SystemExit(f"{command}: {process.stderr[-1000:]}")
    return process.stderr


def slowest_imports(argv):
    """Returns the seconds of all imports, and of the slowest packages."""
    seconds = collections.Counter()
    text = run_translate(argv, options=("-X", "importtime"))
    for microseconds, module in IMPORT.findall(text):
        seconds[module.partition(".")[0]] += int(microseconds) / 1e6
    return [("all", sum(seconds.values())), *seconds.most_common(PACKAGES)]


def serve(argv):
    """Returns the seconds until `trainers.serve` listens, is ready, answers."""
    begin = time.perf_counter()
    command = [sys.executable, "-m", "trainers.serve", "--port=0", *argv]
    times = {}
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            for line in process.stdout:
                if found := re.search(r"listening at (\S+),", line):
                    url = found[1]
                    times["it listens"] = time.perf_counter() - begin
                if line == "ready\n":
                    times["it is ready"] = time.perf_counter() - begin
                    break
            with urllib.request.urlopen(f"{url}/languages") as answer:
                [language] = json.load(answer)[:1]
            fields = {"q": LINE, "source": language["code"]}
            fields["target"] = language["targets"][0]
            request = urllib.request.Request(
                f"{url}/translate",
                json.dumps(fields).encode(),
                {"Content-Type": "application/json"},
            )
            urllib.request.urlopen(request).read()
            times["the first answer"] = time.perf_counter() - begin
        finally:
            process.terminate()
    return times


if __name__ == "__main__":
    main()
