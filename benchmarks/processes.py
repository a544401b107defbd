"""Runs measurements in processes of their own, and keeps them in files."""

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]


def measure_apart(script: str, case: dict, environment: dict[str, str]) -> dict:
    """Runs a script with `--child=CASE` in a process of its own.

    Args:
        script: The path of the script.
        case: The measurement, passed as JSON.
        environment: Variables to add to those of this process.

    Returns:
        The last line that the script prints, read as JSON.

    Raises:
        SystemExit: The process fails.
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
    """Calls `measure_apart`, unless a file has the output of the case.

    Args:
        path: The file, to which new output is appended, or None.
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
    """Reads the cases in a file of `measure_once`, each with its output."""
    if path is None or not path.exists():
        return []
    lines = map(json.loads, path.read_text().splitlines())
    return [(line["case"], line["found"]) for line in lines]
