"""Measurements in processes of their own, and files that keep them."""

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]


def measure_apart(script: str, case: dict, environment: dict[str, str]) -> dict:
    """Output of a script for `--child=CASE`, in a process of its own.

    Args:
        script: Its path.
        case: The measurement; JSON in its command line.
        environment: Variables besides those of this process.

    Returns:
        The last line that the script prints, read as JSON.

    Raises:
        SystemExit: The process failed.
    """
    process = subprocess.run(
        [sys.executable, script, f"--child={json.dumps(case)}"],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            **environment,
        },
        capture_output=True,
        text=True,
    )
    if process.returncode:
        raise SystemExit(f"{case}: {process.stderr[-2000:]}")
    return json.loads(process.stdout.splitlines()[-1])


def measure_once(
    script: str,
    case: dict,
    environment: dict[str, str],
    path: pathlib.Path | None,
) -> dict:
    """As `measure_apart`, or the output that a file has for the case.

    Args:
        path: The file, which is extended; None for no file.
    """
    for known, found in read_results(path):
        if known == case:
            return found
    found = measure_apart(script, case, environment)
    if path is not None:
        with path.open("a") as file:
            file.write(json.dumps({"case": case, "found": found}) + "\n")
    return found


def read_results(path: pathlib.Path | None) -> list[tuple[dict, dict]]:
    """The cases in a file of `measure_once`, each with its output."""
    if path is None or not path.exists():
        return []
    lines = map(json.loads, path.read_text().splitlines())
    return [(line["case"], line["found"]) for line in lines]
