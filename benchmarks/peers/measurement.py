"""Sizes, data, clock and output, which all scripts of this folder share.

Every environment imports it, so it needs only the standard library. Each script
measures one system once and prints one line of JSON. A rate counts lines or
tokens, with EOS and without padding.
"""

import argparse
import importlib.metadata
import itertools
import json
import math
import os
import pathlib
import time

CORES = len(os.sched_getaffinity(0))
VOCAB_SIZE = 8000
PAD, BOS, EOS, UNK = range(4)  # in the vocabulary of `prepare.py`
BATCH_TOKENS = 4096  # on the longer side of a batch, padding included
MAX_LENGTH = 100
LABEL_SMOOTHING = 0.1
ADAM_BETAS = 0.9, 0.98
LEARNING_RATE = 1e-4
LENGTH_PENALTY = 0.6
# `tiny` of Wu et al. 2021 for Multi30k, `base` of Table 3 of the paper; both
# post-norm, with one embedding matrix for source, target and softmax.
SHAPES = {
    "tiny": {
        "num_layers": 4,
        "d_model": 128,
        "d_ff": 256,
        "num_heads": 4,
        "dropout": 0.3,
    },
    "base": {
        "num_layers": 6,
        "d_model": 512,
        "d_ff": 2048,
        "num_heads": 8,
        "dropout": 0.1,
    },
}
QUIET = 0.15  # CPUs that other processes may use


class Clock:
    """A clock that also measures other processes' use of CPUs, on Linux."""

    def __init__(self):
        self._last = self._read()

    def lap(self):
        """Returns `{"seconds": s, "foreign_cpus": CPUs}` since the last lap."""
        now = self._read()
        wall, busy, own = (b - a for a, b in zip(self._last, now, strict=True))
        self._last = now
        foreign = max(0.0, (busy - own) / wall)
        return {"seconds": wall, "foreign_cpus": foreign}

    @staticmethod
    def _read():
        """Returns wall seconds, and CPU seconds of all and of this process."""
        with open("/proc/stat") as file:
            fields = list(map(int, file.readline().split()[1:9]))
        idle = fields[3] + fields[4]  # the fifth is the wait for a disk
        busy = (sum(fields) - idle) / os.sysconf("SC_CLK_TCK")
        return time.perf_counter(), busy, sum(os.times()[:2])


def print_rates(parts, package):
    """Prints the result of a script as a line of JSON.

    Rates are computed from the quiet parts, during which other processes used
    less than `QUIET` CPUs, or from all parts if none was quiet.

    Args:
        parts: The timed parts, such as steps. Each is a lap of `Clock` with the
            amounts of finished work under other keys.
        package: Distribution of the system. Its version is printed.
    """
    quiet = [part for part in parts if part["foreign_cpus"] < QUIET]
    foreign = sum(part["foreign_cpus"] for part in parts) / len(parts)
    line = {
        "version": f"{package} {importlib.metadata.version(package)}",
        "parts": len(parts),
        "quiet_parts": len(quiet),
        "foreign_cpus": round(foreign, 3),
    }
    counted = quiet or parts
    seconds = sum(part["seconds"] for part in counted)
    for name in parts[0].keys() - {"seconds", "foreign_cpus"}:
        amount = sum(part[name] for part in counted)
        line[f"{name}_per_second"] = amount / seconds
    print(json.dumps(line), flush=True)


def read_lines(path):
    """Reads the lines of a file, which only newlines separate."""
    return pathlib.Path(path).read_text(encoding="utf-8").split("\n")[:-1]


def write_lines(path, lines):
    text = "".join(f"{line}\n" for line in lines)
    pathlib.Path(path).write_text(text, encoding="utf-8")


def make_parser(description):
    return argparse.ArgumentParser(
        description=description,
        formatter_class=argparse.RawTextHelpFormatter,
    )


def training_parser(description):
    """Makes the parser of a script that measures training."""
    parser = make_parser(description)
    parser.add_argument(
        "--data", type=pathlib.Path, required=True, help="from `prepare.py`"
    )
    parser.add_argument("--size", choices=SHAPES, default="tiny")
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument(
        "--skip",
        type=int,
        default=6,
        help="first steps, not measured: tracing and compiling are in them",
    )
    return parser


def measure_training(steps, arguments, package):
    """Times steps.

    Args:
        steps: Iterator that makes a step and yields its loss and its number of
            target tokens.
        arguments: Parsed by `training_parser`.
        package: As in `print_rates`.
    """
    parts, clock = [], Clock()
    number = arguments.skip + arguments.steps
    for loss, tokens in itertools.islice(steps, number):
        if not math.isfinite(loss):
            raise SystemExit(f"The loss is not finite: {loss}")
        parts.append(clock.lap() | {"target_tokens": tokens})
    print_rates(parts[arguments.skip :], package)


def translation_parser(description):
    """Makes the parser of a script that measures translation."""
    parser = make_parser(description)
    parser.add_argument(
        "--text", type=pathlib.Path, required=True, help="a line a sentence"
    )
    parser.add_argument("--limit", type=int, help="lines (default: all)")
    parser.add_argument("--beam_size", type=int, default=4)
    parser.add_argument("--max_output_length", type=int, help="tokens")
    parser.add_argument(
        "--output", type=pathlib.Path, help="file for the translations"
    )
    parser.add_argument(
        "--single",
        action="store_true",
        help="each line by itself, by one worker",
    )
    return parser


def measure_translation(translate, arguments, package):
    """Translates the text twice to warm up, then measures.

    Args:
        translate: Function from a list of lines to a list of translations.
        arguments: Parsed by `translation_parser`.
        package: As in `print_rates`.
    """
    lines = read_lines(arguments.text)[: arguments.limit]
    calls = [[line] for line in lines] if arguments.single else [lines]
    for _ in range(3):  # shapes are traced and compiled in the first two
        clock = Clock()
        translations = [line for call in calls for line in translate(call)]
        part = clock.lap() | {"lines": len(lines)}
    if arguments.output:
        write_lines(arguments.output, translations)
    print_rates([part], package)
