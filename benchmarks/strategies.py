"""Training speed by strategy, XLA and precision, through the trainer itself.

    python benchmarks/strategies.py --data=DATA/train --rounds=2

Each variant is `python -m trainers.wmt` in processes of its own, on the same
batches of the same pairs; the variants take turns, round by round. Prints a
JSON line for each run and a table of medians: real source + target tokens a
second after the first --skip reports, and the ratio to the first variant.
Replicas on a CPU share its cores: this measures the cost of a strategy.
"""

import argparse
import json
import os
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile

from results import add_flag, parse_table, record

ROOT = pathlib.Path(__file__).parents[1]
VARIANTS = {
    "one_device": ["--strategy=one_device"],
    "one_device, 2 parts": ["--strategy=one_device", "--accumulate_steps=2"],
    "one_device, 5 steps a call": [
        "--strategy=one_device",
        "--steps_per_call=5",
    ],
    "one_device, XLA": ["--strategy=one_device", "--jit_compile"],
    "one_device, bfloat16": [
        "--strategy=one_device",
        "--precision=mixed_bfloat16",
    ],
    "one_device, bfloat16, XLA": [
        "--strategy=one_device",
        "--precision=mixed_bfloat16",
        "--jit_compile",
    ],
    "mirrored, 2 replicas": ["--strategy=mirrored"],
    "mirrored, 2 replicas, XLA": ["--strategy=mirrored", "--jit_compile"],
    "multi_worker, 2 processes": ["--strategy=multi_worker"],
    "multi_worker, 2 processes, XLA": [
        "--strategy=multi_worker",
        "--jit_compile",
    ],
}
COMMAND = """
import sys
from trainers import wmt
replicas = int(sys.argv.pop(1))
if replicas > 1:
    from keras_transformer.commands.startup import prepare_cpu
    # As the trainer would, which cannot once TensorFlow is imported.
    prepare_cpu(None, 1 if "--jit_compile" in sys.argv else None)
    import tensorflow as tf
    if not tf.config.list_physical_devices("GPU"):
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0],
            [tf.config.LogicalDeviceConfiguration()] * replicas)
wmt.main()
"""


def main():
    arguments = parse_arguments()
    chosen = [name for name in VARIANTS if arguments.only in name]
    speeds = {name: [] for name in chosen}
    for _ in range(arguments.rounds):
        for name in chosen:
            speed = measure(name, arguments)
            speeds[name].append(speed)
            line = {"variant": name, "tokens_per_second": round(speed)}
            print(json.dumps(line), flush=True)
    print(table(speeds))
    if arguments.record:
        title = "Training speed by strategy, XLA and precision"
        record("strategies", title, {"variants": parse_table(table(speeds))})


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", required=True, help="prefix of the pairs")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", default="", help="variants with this in them")
    add_flag(parser)
    parser.add_argument("--reports", type=int, default=6, help="of 10 steps")
    parser.add_argument("--skip", type=int, default=3, help="reports to skip")
    parser.add_argument(
        "flags", nargs="*", help="more flags of trainers.wmt, after --"
    )
    return parser.parse_args()


def table(speeds):
    """Medians as Markdown; the ratio is to the first variant."""
    lines = ["| variant | source + target tokens/s | ratio |", "|---|---|---|"]
    medians = {n: statistics.median(values) for n, values in speeds.items()}
    first = next(iter(medians.values()))
    for name, speed in medians.items():
        lines.append(f"| {name} | {speed:,.0f} | {speed / first:.2f} |")
    return "\n".join(lines)


def measure(name, arguments):
    """Tokens per second of a variant."""
    flags = [
        "--flagfile=trainers/configs/multi30k_ende.flags",
        f"--train_files={arguments.data}",
        "--num_buckets=3",
        "--log_steps=10",
        f"--train_steps={10 * arguments.reports}",
        "--warmup_steps=1",  # fewer than steps
        "--valid_steps=1000000",
        *VARIANTS[name],
        *arguments.flags,
    ]
    workers = 2 if "multi_worker" in name else 1
    replicas = 2 if "mirrored" in name else 1
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-c", COMMAND, str(replicas), *flags]
        command += [f"--workdir={directory}/run"]
        processes = start(command, workers)
        outputs = [process.communicate() for process in processes]
    for process, (_, err) in zip(processes, outputs, strict=True):
        if process.returncode:
            raise SystemExit(f"{name}: {err[-2000:]}")
    return statistics.median(rates_of(outputs[0][0])[arguments.skip :])


def rates_of(text):
    """Source and target tokens per second of each report of the trainer.

    >>> rates_of("step 50 | loss 9.1 | 18700 source+target tokens/s | 9 s")
    [18700.0]
    """
    rates = re.findall(r"\| (\S+) source\+target tokens/s", text)
    return [float(rate) for rate in rates]


def start(command, workers):
    """Processes of a command; they find each other if there are several."""
    sockets = [socket.socket() for _ in range(workers)]
    for each in sockets:
        each.bind(("localhost", 0))
    hosts = [f"localhost:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    processes = []
    for index in range(workers):
        cluster = {"worker": hosts}
        task = {"type": "worker", "index": index}
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        if workers > 1:
            environment["TF_CONFIG"] = json.dumps(
                {"cluster": cluster, "task": task}
            )
        processes.append(
            subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    return processes


if __name__ == "__main__":
    main()
