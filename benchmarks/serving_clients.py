"""Throughput and latency of a served SavedModel under concurrent clients.

    python benchmarks/serving_clients.py --export=DIR --text=FILE
        [--clients 1 4 16] [--seconds=20] [--rounds=3]

A gRPC server in a process of its own stands in for TensorFlow Serving: it runs
the signature `serving_default`, without batching and with TensorFlow Serving's
batching (`prediction_server.py`). Clients are threads of another process; each
sends one line, waits for its translation and sends the next. Prints a JSON line
for each measurement and a table of medians: lines a second, milliseconds that a
request took (50th and 99th percentile), and the server's CPU milliseconds for
a line, which other processes do not change.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import threading
import time

import numpy as np
from results import add_flag, parse_table, record

ROOT = pathlib.Path(__file__).parents[1]
CORES = len(os.sched_getaffinity(0))
# Name -> fields of `BatchingParameters`, or None for no batching.
SERVERS = {
    "no batching": None,
    "batching": {"num_batch_threads": CORES},
    "batching, sizes 1, 8, 32": {
        "num_batch_threads": CORES,
        "allowed_batch_sizes": (1, 8, 32),
    },
}
SIGNATURE = "serving_default"
WARM_UP = 64  # requests, before those that are measured


def main():
    arguments = parse_arguments()
    if arguments.serve:
        serve(arguments.export, SERVERS[arguments.serve])
        return
    lines = arguments.text.read_text(encoding="utf-8").splitlines()
    found = {}
    for _ in range(arguments.rounds):
        for name in SERVERS:
            with server(name, arguments.export) as (process, address):
                load(address, lines, max(arguments.clients), WARM_UP, None)
                for number in arguments.clients:
                    result = measure(
                        process, address, lines, number, arguments.seconds
                    )
                    found.setdefault((name, number), []).append(result)
                    line = {"server": name, "clients": number, **result}
                    print(json.dumps(line), flush=True)
    print(table(found))
    if arguments.record:
        title = "Concurrent clients of a served SavedModel"
        record("serving_clients", title, {"clients": parse_table(table(found))})


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--export", type=pathlib.Path, required=True, help="a SavedModel's"
    )
    parser.add_argument("--text", type=pathlib.Path)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    add_flag(parser)
    parser.add_argument("--serve", choices=SERVERS, help=argparse.SUPPRESS)
    return parser.parse_args()


# The server's process


def serve(export, fields):
    """Serves an export until standard input ends."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  registers its operations
    from prediction_server import Batcher, BatchingParameters, serving

    from savedmodel import reload

    model = tf.saved_model.load(str(reload.find_export(export)))
    signature = model.signatures[SIGNATURE]

    def run(inputs):
        found = signature(**{k: tf.constant(v) for k, v in inputs.items()})
        return {name: value.numpy() for name, value in found.items()}

    if fields is not None:
        run = Batcher(run, BatchingParameters(**fields))
    with serving(
        lambda model, name, inputs: run(inputs), threads=64
    ) as address:
        print(address, flush=True)
        sys.stdin.read()


@contextlib.contextmanager
def server(name, export):
    """The process of a server, and its address."""
    with subprocess.Popen(
        [sys.executable, __file__, f"--export={export}", f"--serve={name}"],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "CUDA_VISIBLE_DEVICES": "",
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process, process.stdout.readline().strip()
        process.stdin.close()


# The clients


def measure(process, address, lines, clients, seconds):
    """Lines a second, latency, and batches of the server."""
    before = cpu_seconds(process.pid)
    started = time.perf_counter()
    latencies = load(address, lines, clients, None, seconds)
    elapsed = time.perf_counter() - started
    cpu = cpu_seconds(process.pid) - before
    p50, p99 = np.percentile(latencies, (50, 99)) * 1000
    return {
        "lines_per_second": round(len(latencies) / elapsed, 2),
        "p50_ms": round(float(p50), 1),
        "p99_ms": round(float(p99), 1),
        "cpu_ms_per_line": round(1000 * cpu / len(latencies), 2),
    }


def load(address, lines, clients, requests, seconds):
    """Seconds that each request took.

    Args:
        address: The server's.
        lines: List of `str`; each client begins at another one.
        clients: How many send requests at the same time.
        requests: Total number of requests, or None to stop after `seconds`.
        seconds: Seconds to send requests for, or None to stop after `requests`.
    """
    from savedmodel.client import Client, ClientOptions

    latencies = []
    end = None if seconds is None else time.perf_counter() + seconds

    def is_over():
        if end is None:
            return len(latencies) >= requests
        return time.perf_counter() >= end

    def send(number):
        client = Client(ClientOptions(server=address))
        position = number * len(lines) // clients
        while not is_over():
            started = time.perf_counter()
            client.predict(SIGNATURE, text=[lines[position % len(lines)]])
            latencies.append(time.perf_counter() - started)
            position += 1

    threads = [
        threading.Thread(target=send, args=(number,))
        for number in range(clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return latencies


def cpu_seconds(pid):
    """CPU seconds of a process, Linux."""
    text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    fields = text.rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def table(found):
    """Medians of the rounds as Markdown."""
    lines = [
        "| server | clients | lines/s | p50, ms | p99, ms | CPU ms a line |",
        "|---|---|---|---|---|---|",
    ]
    for (name, clients), results in found.items():
        cells = [
            f"{statistics.median(result[key] for result in results):.1f}"
            for key in (
                "lines_per_second",
                "p50_ms",
                "p99_ms",
                "cpu_ms_per_line",
            )
        ]
        lines.append(f"| {name} | {clients} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
