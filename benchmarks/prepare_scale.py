"""Speed and memory of `trainers.prepare`, and of reading its output.

    python benchmarks/prepare_scale.py --corpus=PREFIX --folder=DIR

Corpora of any size are made by recombining a real one. A pair is two pairs of
`PREFIX.en[.gz]` and `PREFIX.de[.gz]`, drawn at random and joined side by side.
One in twenty is a copy of an earlier pair. The script prints a JSON line for
each size:

    pairs_per_second   of the whole command, its startup included
    cpu_seconds        of the command and its processes, the better measure on a
                       busy machine
    own_peak_mib       peak resident memory of the command
    all_peak_mib       peak of the summed resident memory of the command and its
                       processes (shared pages count in each), sampled every
                       0.2 s

and one for the time to assemble all batches of an epoch, from shards and from
text encoded for it.
"""

import argparse
import json
import os
import pathlib
import random
import resource
import shutil
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

from results import add_flag, record

import keras_transformer as kt
from keras_transformer.data.shards import read_prepared

COPIES = 0.05
LANGUAGES = ("en", "de")


def main():
    arguments = parse_arguments()
    folder = pathlib.Path(arguments.folder)
    folder.mkdir(parents=True, exist_ok=True)
    base = list(kt.read_parallel_files([arguments.corpus], *LANGUAGES))
    tokenizer = folder / "tokenizer.model"
    if not tokenizer.exists():
        lines = (line for pair in base for line in pair)
        kt.Tokenizer.train(lines, arguments.vocab_size).save(tokenizer)
    tables = {"preparing": [], "reading": []}
    for number, num_pairs in enumerate(arguments.sizes):
        prefix = folder / f"generated-{num_pairs}"
        write_corpus(base, num_pairs, prefix)
        output = folder / f"prepared-{num_pairs}"
        found = measure_prepare(prefix, output, tokenizer)
        tables["preparing"].append(report(pairs=num_pairs, **found))
        if number == 0:
            found = measure_reading(prefix, output)
            tables["reading"].append(report(pairs=num_pairs, **found))
        shutil.rmtree(output)
        for language in LANGUAGES:
            pathlib.Path(f"{prefix}.{language}").unlink()
    if arguments.record:
        title = "Preparing corpora, and reading them"
        record("prepare_scale", title, tables)


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--corpus", required=True, help="prefix of real pairs")
    parser.add_argument("--folder", required=True, help="for the output")
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=[100_000, 1_000_000, 4_000_000],
        help="pairs to generate; reading is measured with the first",
    )
    parser.add_argument("--vocab_size", type=int, default=8000)
    add_flag(parser)
    return parser.parse_args()


def report(**values):
    """Prints a JSON line, and returns it."""
    print(json.dumps(values), flush=True)
    return values


def write_corpus(base, num_pairs, prefix):
    """Writes `num_pairs` recombined pairs, the same in every call."""
    rng = random.Random(1)
    earlier = [base[0]] * 1000
    paths = [f"{prefix}.{language}" for language in LANGUAGES]
    with open(paths[0], "w") as sources, open(paths[1], "w") as targets:
        for number in range(num_pairs):
            if rng.random() < COPIES:
                pair = rng.choice(earlier)
            else:
                first, second = rng.choice(base), rng.choice(base)
                pair = [
                    " ".join(two) for two in zip(first, second, strict=True)
                ]
            earlier[number % len(earlier)] = pair
            sources.write(pair[0] + "\n")
            targets.write(pair[1] + "\n")


def measure_prepare(prefix, output, tokenizer):
    """Runs the command. Returns a dictionary of its time and memory."""
    shutil.rmtree(output, ignore_errors=True)
    before = _cpu_seconds_of_children()
    start = time.monotonic()
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "trainers.prepare",
            "--dataset=files",
            f"--train_files={prefix}",
            f"--output={output}",
            f"--tokenizer={tokenizer}",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=pathlib.Path(__file__).parents[1],
    )
    own_peak = all_peak = 0
    while process.poll() is None:
        own, everyone = resident_mib(process.pid)
        own_peak, all_peak = max(own_peak, own), max(all_peak, everyone)
        time.sleep(0.2)
    seconds = time.monotonic() - start
    out, err = process.communicate()
    if process.returncode:
        raise SystemExit(f"trainers.prepare failed: {err}")
    index = json.loads((output / "index.json").read_text())
    print(out, file=sys.stderr)
    return {
        "kept": index["kept"],
        "seconds": round(seconds, 1),
        "pairs_per_second": round(index["read"] / seconds),
        "cpu_seconds": round(_cpu_seconds_of_children() - before, 1),
        "own_peak_mib": round(own_peak),
        "all_peak_mib": round(all_peak),
        "shards_mib": round(sum(s["bytes"] for s in index["shards"]) / 2**20),
    }


def resident_mib(pid):
    """Returns the resident MiB of a process, without and with its children."""
    own = everyone = 0.0
    try:
        own = everyone = _resident_mib(pid)
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            children = (task / "children").read_text().split()
            everyone += sum(map(_resident_mib, children))
    except (FileNotFoundError, ProcessLookupError):  # it has just ended
        pass
    return own, everyone


def _resident_mib(pid):
    pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _cpu_seconds_of_children():
    """Returns the CPU seconds of child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure_reading(prefix, output):
    """Measures the seconds for an epoch's batches, from shards and text."""
    tokenizer = kt.Tokenizer.load(output / "tokenizer.model")

    def assemble(corpus):
        batches = kt.make_batches(corpus, batch_tokens=25000, seed=1)
        for indices, shape in batches.epoch_order(0):
            batches.assemble(indices, shape)

    start = time.monotonic()
    prepared = read_prepared(output)
    opened = time.monotonic()
    assemble(prepared)
    read = time.monotonic()
    pairs = kt.read_parallel_files([prefix], *LANGUAGES)
    assemble(kt.encode_corpus(pairs, tokenizer, max_length=256))
    encoded = time.monotonic()
    return {
        "open_and_check_seconds": round(opened - start, 2),
        "read_seconds": round(read - opened, 2),
        "from_text_seconds": round(encoded - read, 2),
        "ratio_with_opening": round((encoded - read) / (read - start), 1),
    }


if __name__ == "__main__":
    main()
