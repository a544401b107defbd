"""Measures a GPU unattended: correctness and speed.

    python benchmarks/accelerator.py --minutes=20 --results=accelerator.json

Needs JAX and PyTorch, each with CUDA; no TensorFlow, no network, no data:

    training     tokens per second of `JaxStep`, base and big, in bfloat16
    before       the same in another checkout, which --before names
    torch        the step of `training` in PyTorch, first with torch.compile
    profile      the kernels of a step of base and big: time and launches of
                 each part of the model, bytes of the arrays
    correctness  logits and 200 steps of training, the GPU against the CPU
    decoding     sentences per second of greedy and beam search
    generate     the same with `generate` of transformers, which is required

Each stage is a process with a share of the time, at least what its first cases
need. With few minutes, the last stages get no time. Most of it is compilation.
Rows are written when a stage ends, including those before a failure or the time
limit. An existing file is continued, so --stages may be run one by one. --small
tests this script with a toy model, also on a CPU. 8 minutes are enough for
steps of 64 tokens of two commits and torch.compile:

    python benchmarks/accelerator.py --minutes=8 --before=DIR

The FLOPs of a step are computed by formulas.py, which counts matrix products.
The column "of the product" is the ratio of the step's FLOPs per second to the
FLOPs per second of one large bfloat16 product, which `training` and `torch`
measure first.

A machine without a network needs the packages as wheels. If it has JAX,
PyTorch, sentencepiece, sacrebleu, safetensors, tensorboard, h5py and rich,
three are missing. For Python 3.12, on a machine with a network:

    python3 -m pip download --no-deps --only-binary=:all: \\
        --python-version 3.12 --implementation cp \\
        --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 \\
        -d .carry/wheels keras==3.15.1 optree namex

and on the machine without one, in the checkout:

    python3 -m pip install -q --no-index --no-deps --target /tmp/site \\
        .carry/wheels/*.whl
    PYTHONPATH=.:/tmp/site python3 benchmarks/accelerator.py ...

It may also need jax[cuda13], absl-py, lazy-loader, tqdm, jinja2, regex, and
what `pip show` lists as their requirements. To record a run, copy its file to
benchmarks/results/accelerator.json, and run `benchmarks/results.py`.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time

from formulas import training_flops
from results import (
    as_json,
    code_commit,
    machine,
    markdown,
    versions,
    write,
)

from keras_transformer.base.machine import find_gpus
from keras_transformer.config import preset

ROOT = pathlib.Path(__file__).parents[1]
TITLE = "A GPU: correctness and speed"
# Stage -> its script, and the seconds that its first cases need on a GPU: a
# minute for a case of training, 40 s for torch.compile. The most important one
# is first.
STAGES = {
    "training": ("accelerator_jax.py", 130),
    "before": ("accelerator_jax.py", 130),
    "torch": ("accelerator_torch.py", 110),
    "profile": ("accelerator_jax.py", 100),
    "correctness": ("accelerator_jax.py", 150),
    "decoding": ("accelerator_jax.py", 60),
    "generate": ("accelerator_torch.py", 60),
}
PACKAGES = "jax", "jaxlib", "keras", "numpy", "torch", "transformers"
# The training that the stages `training` and `torch` measure.
BATCH_TOKENS = 25_000  # on each side (sec. 5.1)
SPEED_CASES = ("base", 64), ("big", 64), ("base", 256), ("big", 256)
LABEL_SMOOTHING = 0.1


def main():
    arguments = parse_arguments()
    for module in ("keras", "optree"):
        if importlib.util.find_spec(module) is None:
            raise SystemExit(f"{module} is missing; see --help for the wheels")
    path = pathlib.Path(arguments.results)
    fields = circumstances(arguments.commit)
    tables = read_tables(path, fields) if path.exists() else {}
    deadline = time.monotonic() + 60 * arguments.minutes
    for number, stage in enumerate(arguments.stages):
        needed = [STAGES[name][1] for name in arguments.stages[number:]]
        left = max(1, deadline - time.monotonic())
        seconds = left if arguments.small else seconds_for(needed, left)
        print(f"{stage}: at most {seconds:.0f} s", flush=True)
        tables |= run_stage(stage, seconds, arguments, tables)
        print(f"  {tables['stages'][-1]}", flush=True)
        write(path, as_json(TITLE, tables, **fields))
    for heading, rows in tables.items():
        print(f"\n{heading}\n\n{markdown(rows)}", end="")
    unfinished = [
        r["stage"] for r in tables["stages"] if r["outcome"] != "done"
    ]
    if unfinished:
        raise SystemExit(f"not complete: {', '.join(unfinished)}")


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--small", action="store_true", help="a toy model")
    parser.add_argument("--results", default="accelerator.json")
    parser.add_argument("--commit", help="of the code, where there is no git")
    parser.add_argument(
        "--before",
        metavar="DIR",
        type=pathlib.Path,
        help="a checkout of another commit, after whose name its tables are"
        " named",
    )
    parser.add_argument("--stages", nargs="+", choices=[*STAGES])
    arguments = parser.parse_args()
    if arguments.stages is None:
        arguments.stages = [*STAGES]
        if arguments.before is None:
            arguments.stages.remove("before")
    elif "before" in arguments.stages and arguments.before is None:
        parser.error("the stage before needs --before=DIR")
    return arguments


def seconds_for(needed, left):
    """Returns the time of the first stage: its share, at least what it needs.

    >>> seconds_for([100, 300], left=800), seconds_for([100, 300], left=200)
    (200.0, 100)
    >>> seconds_for([100, 300], left=50)
    50
    """
    return min(left, max(needed[0], left * needed[0] / sum(needed)))


def run_stage(stage, seconds, arguments, tables):
    """Runs a stage in its own process.

    Returns:
        The tables to replace: those whose rows it printed, and `stages`.
    """
    case = {"stage": stage, "small": arguments.small, "seconds": seconds}
    root, suffix = ROOT, ""
    if stage == "before":
        root = arguments.before.resolve()
        case["stage"], suffix = "training", f", {root.name}"
    script = str(root / "benchmarks" / STAGES[stage][0])
    paths = [str(root), os.environ.get("PYTHONPATH", "")]
    xla_flags = os.environ.get("XLA_FLAGS", "")
    if stage == "profile" and find_gpus():  # else all kernels have one name
        xla_flags += " --xla_gpu_enable_command_buffer="
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, script, json.dumps(case)],
        env={
            **os.environ,
            "KERAS_BACKEND": "jax",
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "XLA_FLAGS": xla_flags,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # its process group can be ended
    )
    outcome = "done"
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
        outcome = f"ended after its {seconds:.0f} s"
    if process.returncode:
        print(errors[-3000:], file=sys.stderr)
    if process.returncode and outcome == "done":
        last = (errors.strip() or "it ended without a word").splitlines()[-1]
        outcome = last[:200].replace("|", "/")

    # The first line is the device. Each other line is a row.
    device, *lines = output.splitlines() or [""]
    found = {}
    for line in lines:
        table, row = json.loads(line)
        found.setdefault(table + suffix, []).append(row)
    row = {"stage": stage, "seconds": round(time.monotonic() - started)}
    row |= {"device": device.removeprefix("device: "), "outcome": outcome}
    others = [row for row in tables.get("stages", []) if row["stage"] != stage]
    return {**found, "stages": [*others, row]}


def circumstances(commit):
    """Returns commit, machine and versions, the same for a file's stages."""
    return {
        "commit": commit or code_commit(),
        "machine": ", ".join([*find_gpus(), machine()]),
        "versions": versions(PACKAGES),
    }


def read_tables(path, fields):
    """Reads the tables of a file to continue.

    Raises:
        SystemExit: The file has results of another commit, machine or version.
    """
    previous = json.loads(path.read_text(encoding="utf-8"))
    others = [name for name in fields if fields[name] != previous[name]]
    if others:
        raise SystemExit(f"{path} has results of other {', '.join(others)}")
    return previous["tables"]


# For the processes of the stages


def begin(device, is_accelerator):
    """Prints the device, and returns the case of the command line.

    Raises:
        SystemExit: The device is a CPU, and the model is not the toy.
    """
    case = json.loads(sys.argv[1])
    case["deadline"] = time.monotonic() + case["seconds"]
    print(device, flush=True)
    if not is_accelerator and not case["small"]:
        raise SystemExit(f"expected a GPU or --small. Received: {device}")
    return case


def emit(table, row):
    """Prints a row of a table, for `run_stage`."""
    print(json.dumps([table, row]), flush=True)


def config_of(name, small, vocab_size=37_000):
    """Returns a preset, or the toy model instead."""
    if not small:
        return preset(name, vocab_size=vocab_size)
    sizes = {"num_layers": 1, "num_heads": 2, "d_model": 64, "d_ff": 128}
    return preset(name, vocab_size=500, **sizes)


def speed_cases(case):
    """Yields name, `TransformerConfig`, rows, and tokens of each row's sides.

    Stops when there is too little time for the next case.
    """
    small, started = case["small"], time.monotonic()
    cases = SPEED_CASES[: 1 if small else None]
    for number, (name, length) in enumerate(cases):
        now = time.monotonic()
        if number and now + (now - started) / number > case["deadline"]:
            return
        batch_tokens = 512 if small else BATCH_TOKENS
        yield name, config_of(name, small), batch_tokens // length, length


def median_seconds(run, repeat, rounds=5):
    """Returns the median seconds of a call. `run(n)` waits for n calls."""
    run(2)
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        run(repeat)
        times.append((time.perf_counter() - started) / repeat)
    return statistics.median(times)


def measure_product(system, make_matrices, wait, small):
    """Measures the FLOP/s of a chain of products of square bfloat16 matrices.

    Args:
        system: The framework that computes the products.
        make_matrices: Function of a size that returns two normal matrices.
        wait: Function that waits for a product.
        small: Whether the matrices are small.
    """
    size = 256 if small else 8192
    x, matrix = make_matrices(size)
    matrix = matrix / size**0.5  # keeps the numbers in range

    def run(number):
        product = x
        for _ in range(number):
            product = product @ matrix
        wait(product)

    seconds = median_seconds(run, 20)
    rate = 2 * size**3 / seconds
    row = {"size": size, "ms": round(1e3 * seconds, 3)}
    emit(f"bfloat16 product, {system}", row | {"TFLOP/s": tera(rate)})
    return rate


def emit_speed(system, name, config, rows, length, seconds, product):
    """Prints the row of a training step.

    Args:
        system: The framework that computed it.
        name: The model's name.
        config: Its `TransformerConfig`.
        rows, length: The shape of a batch without padding.
        seconds: The time of a step.
        product: FLOP/s of a large product.
    """
    rate = training_flops(config, 1, rows * length, length) / seconds
    row = {"model": name, "rows x tokens": f"{rows} x {length}"}
    row |= {"ms a step": round(1e3 * seconds, 2)}
    row |= {"source + target tokens/s": round(2 * rows * length / seconds)}
    row |= {"TFLOP/s by formula": tera(rate)}
    emit(
        f"training, {system}",
        row | {"of the product": round(rate / product, 3)},
    )


def tera(rate):
    return round(rate / 1e12, 3)


if __name__ == "__main__":
    main()
