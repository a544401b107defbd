"""A search and training steps with the installed version of JAX, on the CPU.

    taskset -c 1 python benchmarks/jax_versions.py --text=FILE

Run it in environments with several versions (requirements-jax.txt), in turns.
The package's model translates the lines of FILE, English, into German, after a
search that compiles; `line` is a search for one of them. `tiny` and `base` are
three steps of 32 and 8 rows of 32 tokens. Prints milliseconds of CPU time, the
least of five runs, as JSON.
"""

import argparse
import json
import os
import pathlib
import time

os.environ["KERAS_BACKEND"] = "jax"

import accelerator_jax  # noqa: E402
import jax  # noqa: E402
import numpy as np  # noqa: E402
from accelerator import config_of  # noqa: E402

from keras_transformer.translator import Translator  # noqa: E402

STEPS = {"tiny": 32, "base": 8}  # rows of a batch
LENGTH, VOCABULARY = 32, 6000


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--text", required=True, type=pathlib.Path)
    lines = parser.parse_args().text.read_text("utf-8").splitlines()
    translator = Translator.load(target_language="de")
    row = {
        "jax": jax.__version__,
        "search": measure(lambda: translator.translate(lines)),
        "line": measure(lambda: translator.translate(lines[:1])),
    }
    for name, rows in STEPS.items():
        row[name] = measure(steps(name, rows))
    print(json.dumps(row))


def measure(run):
    run()  # compiles
    seconds = []
    for _ in range(5):
        begin = time.process_time()
        run()
        seconds.append(time.process_time() - begin)
    return round(1000 * min(seconds))


def steps(name, rows):
    """Returns a function that runs three training steps."""
    config = config_of(name, False, vocab_size=VOCABULARY)
    step, state = accelerator_jax.make_step(config, "float32", jax.devices()[0])
    [batch] = accelerator_jax.copies(1, rows, LENGTH, VOCABULARY)
    batch = step.place_rows(*batch)

    def run():
        nonlocal state
        for _ in range(3):
            state, sums = step(state, *batch)
        np.asarray(sums)

    return run


if __name__ == "__main__":
    main()
