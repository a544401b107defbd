"""Runs commands with a flag that does not exist, in one process.

    python bad_flags.py MODULE...

The last line is a JSON object: what each command did, and which of the slow
packages it had imported by then.
"""

import contextlib
import importlib
import io
import json
import sys

SLOW = {"jax", "keras", "tensorflow", "tensorflow_text"}


def main(modules):
    results = {}
    for module in modules:
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            try:
                importlib.import_module(module).main(["--no_such_flag=1"])
                status = 0
            except SystemExit as exit:
                status = exit.code
        results[module] = {
            "status": status,
            "err": err.getvalue(),
            "slow": sorted(SLOW & set(sys.modules)),
        }
    print(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1:])
