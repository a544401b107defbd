"""A measurement in a process of its own."""

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
