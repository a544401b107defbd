"""Runs commands with bad flags, in one process.

Each line of standard input is a JSON list of MODULE and arguments. A last
argument `<FILE` is the command's standard input. The output has a JSON object
for each: what the command did, and which slow packages were imported by then.
"""

import contextlib
import importlib
import io
import json
import sys

SLOW = {"jax", "keras", "tensorflow", "tensorflow_text"}


def main(commands):
    for module, *argv in map(json.loads, commands):
        out, err, status = io.StringIO(), io.StringIO(), 0
        stdin = io.BytesIO(b"One dog.\n")
        if argv and argv[-1][:1] == "<":
            stdin = open(argv.pop()[1:], "rb")
        sys.stdin = io.TextIOWrapper(stdin)
        with contextlib.redirect_stderr(err), contextlib.redirect_stdout(out):
            try:
                importlib.import_module(module).main(argv)
            except SystemExit as exit:
                status = exit.code
        result = {
            "status": status,
            "err": err.getvalue(),
            "slow": sorted(SLOW & set(sys.modules)),
        }
        print(json.dumps(result), flush=True)
        if result["slow"]:
            break  # one is enough, and other commands may train for hours


if __name__ == "__main__":
    main(sys.stdin.readlines())
