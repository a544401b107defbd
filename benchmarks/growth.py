"""How time and memory grow with each size, and whether theory asks for it.

    python benchmarks/growth.py [--only=decode] [--results=FILE.jsonl]

One size is varied, the others are in `FIXED`; every point is a process of
its own with one thread. A process runs its task on one row first, so that the
graph is there, and is then measured with all rows: CPU seconds (the least of
four runs) and the peak memory above the memory before the first call.
The exponent is the slope of the last three points on logarithmic axes; an
exponent of more than `TOLERANCE` above the theoretical one is marked.

Decoding is beam search with random weights, source and output of one length;
training is a step with its update. Points in --results are not measured again.

shortlist is decoding with the lowest ids as the shortlist of the batch.

bulk is greedy `trainers.translate_corpus` with one layer and lines of three
words, measured once: within this process for lines, and for workers as seconds
of the clock, and the largest peak, of that many commands on one plan of
1,000,000 lines. Two workers need two idle cores.
"""

import argparse
import ctypes
import json
import math
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np
from processes import measure_once
from results import add_flag, parse_table, record

# Width 128, 4 heads, feed-forward 256: the preset `tiny`.
FIXED = {"length": 32, "batch": 8, "beam": 4, "vocabulary": 8000, "depth": 4}
FIXED_OF = {
    "shortlist": {"vocabulary": 64_000, "tokens": 1536},
    "bulk": {"depth": 1},
}
TOLERANCE = 0.15
NAMES = {
    "decode": "growth",
    "train": "growth",
    "shortlist": "growth_shortlist",
    "bulk": "growth_bulk",
}
TITLES = {
    "growth": "Growth of time and memory with each size",
    "growth_shortlist": "Growth of decoding with a shortlist",
    "growth_bulk": "Growth of bulk translation with lines and workers",
}
ONE_THREAD = {
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
}
FITTED = 3  # points, the largest sizes
# Maximum exponents in theory, of time and of memory: attention
# compares all pairs of positions, everything else is linear.
THEORY = {
    "length": (2, 2),
    "batch": (1, 1),
    "beam": (1, 1),
    "vocabulary": (1, 1),
    "tokens": (1, 1),
    "depth": (1, 1),
    "lines": (1, 0),
    "workers": (-1, 0),
}
SIZES = {
    "decode": {
        "length": (32, 64, 128, 256, 512),
        "batch": (4, 8, 16, 32, 64, 128),
        "beam": (2, 4, 8, 16, 32),
        "vocabulary": (4000, 8000, 16000, 32000, 64000),
        "depth": (2, 4, 8, 16),
    },
    "train": {
        "length": (32, 64, 128, 256, 512),
        "batch": (8, 16, 32, 64, 128, 256),
        "vocabulary": (4000, 8000, 16000, 32000, 64000),
        "depth": (2, 4, 8, 16),
    },
    "shortlist": {
        "vocabulary": (8000, 16000, 32000, 64000, 128_000),
        "tokens": (1024, 2048, 4096, 8192, 16384),
    },
    "bulk": {
        "lines": (10_000, 100_000, 1_000_000, 10_000_000),
        "workers": (1, 2),
    },
}


def main():
    arguments = parse_arguments()
    if arguments.child:
        print(json.dumps(measure(json.loads(arguments.child))))
        return
    rows = {}
    for task, variable in sweeps(arguments.only):
        sizes = SIZES[task][variable]
        points = [
            measure_once(
                __file__,
                point_of(task, variable, size),
                ONE_THREAD,
                arguments.results,
            )
            for size in sizes
        ]
        row = row_of(task, variable, sizes, points)
        rows.setdefault(NAMES[task], []).append(row)
        print(row, flush=True)
    for name, table in rows.items():
        text = "\n".join([*HEAD, *table])
        print(text)
        if arguments.record:
            record(name, TITLES[name], {"sizes": parse_table(text)})


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--only", default="", help="sweeps that begin so, such as train/length"
    )
    parser.add_argument(
        "--results", type=pathlib.Path, help="file of points, kept and read"
    )
    add_flag(parser)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser.parse_args()


def sweeps(beginning):
    """Yields (task, variable) whose name begins so.

    >>> list(sweeps("train/b"))
    [('train', 'batch')]
    """
    for task, variables in SIZES.items():
        for variable in variables:
            if f"{task}/{variable}".startswith(beginning):
                yield task, variable


def point_of(task, variable, size):
    return {"task": task, **FIXED, **FIXED_OF.get(task, {}), variable: size}


# In the process of a point


def measure(point):
    """Seconds and peak bytes of a point."""
    if "workers" in point:
        return measure_workers(point["workers"], point)
    makers = {
        "decode": make_search,
        "shortlist": make_search,
        "train": make_step,
        "bulk": make_bulk,
    }
    run = makers[point["task"]](point)
    rows = point.get("lines", point["batch"])
    run(1)
    ctypes.CDLL(None).malloc_trim(0)  # returns free memory
    before = reset_peak()
    seconds = []
    for _ in range(1 if "lines" in point else 4):
        started = time.process_time()
        run(rows)
        seconds.append(time.process_time() - started)
    peak = status_bytes("VmHWM")
    return {"seconds": min(seconds), "bytes": peak - before}


def reset_peak():
    """Bytes in memory now, which count as the peak so far."""
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    return status_bytes("VmRSS")


def status_bytes(name):
    """A size that Linux keeps for this process."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"Linux does not tell {name}")


def make_model(point):
    """A `tiny` model of the point's vocabulary and depth."""
    import keras

    import keras_transformer as kt

    keras.utils.set_random_seed(1)
    config = kt.preset(
        "tiny", vocab_size=point["vocabulary"], num_layers=point["depth"]
    )
    return kt.Transformer(config)


def random_ids(rows, point):
    """Ids `[rows, length]` that end with EOS."""
    from keras_transformer.vocabulary import EOS

    ids = np.random.default_rng(1).integers(
        4, point["vocabulary"], (rows, point["length"])
    )
    ids[:, -1] = EOS
    return ids.astype("int32")


def make_search(point):
    """A function that translates some rows, and waits."""
    from keras import ops

    from keras_transformer.config import DecodingConfig
    from keras_transformer.decoding import UNCONSTRAINED
    from keras_transformer.translation.batching import BatchedInference
    from keras_transformer.translation.inference import Inference

    class ForcedLengthInference(Inference):
        """Inference whose every output has the same length."""

        def output_limits(self, source_ids):
            length = self.decoding.min_length
            limits = ops.full((ops.shape(source_ids)[0],), length, "int32")
            return limits, length

    decoding = DecodingConfig(
        beam_size=point["beam"], min_length=point["length"]
    )
    inference = ForcedLengthInference(
        make_model(point), decoding, max_source_length=256
    )
    programs = BatchedInference(inference, 1, False, 1)

    def search(rows):
        arrays = [random_ids(rows, point), UNCONSTRAINED]
        if "tokens" in point:
            arrays.append(np.arange(point["tokens"], dtype=np.int32))
        programs.run(Inference.translate_ids, arrays)

    return search


def make_step(point):
    """A function that makes a training step on some rows, and waits."""
    import tensorflow as tf

    import keras_transformer as kt
    from keras_transformer.data.labels import shift_right
    from keras_transformer.training.step import TrainStep

    model = make_model(point)
    train_step = TrainStep(
        model,
        kt.paper_adam(model.config.d_model, warmup_steps=2000),
        label_smoothing=0.1,
        jit_compile=False,
        accumulate_steps=1,
        clip_norm=0.0,
    )
    ids = tf.TensorSpec([None, None], tf.int32)

    @tf.function(
        input_signature=[{"source_ids": ids, "target_ids": ids}, ids],
        autograph=False,
    )
    def step(inputs, labels):
        return train_step(inputs, labels).loss_sum

    def run(rows):
        labels = random_ids(rows, point)
        inputs = {"source_ids": labels, "target_ids": shift_right(labels)}
        step(inputs, labels).numpy()

    return run


def make_bulk(point):
    """A function that translates a file of some lines to shards."""
    import keras_transformer as kt
    from trainers.translating.shards import translate_file

    folder = tempfile.TemporaryDirectory()
    translator = kt.Translator.load(write_short_model(folder.name, point))

    def translate(rows):
        source = write_lines(folder.name, rows)
        output = f"{folder.name}/{rows}"
        translate_file(translator, source, output, shard_lines=5000)

    return translate


def measure_workers(workers, point, lines=1_000_000):
    """Seconds and peak bytes of several commands that share a plan."""
    with tempfile.TemporaryDirectory() as folder:
        workdir = write_short_model(folder, point)
        command = [sys.executable, "-m", "trainers.translate_corpus"]
        command += [f"--workdir={workdir}", f"--output={folder}/shards"]
        command += [f"--input={write_lines(folder, lines)}"]
        command += ["--shard_lines=5000", "--num_threads=1"]
        started = time.perf_counter()
        processes = [
            subprocess.Popen(command, stdout=subprocess.DEVNULL)
            for _ in range(workers)
        ]
        if any([process.wait() for process in processes]):
            raise SystemExit("a worker failed")
        seconds = time.perf_counter() - started
        collect = [*command[:3], f"--output={folder}/shards"]
        subprocess.run([*collect, f"--collect={folder}/all"], check=True)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return {"seconds": seconds, "bytes": peak * 1024}


def write_short_model(folder, point):
    """A work directory with a random model that translates words."""
    import keras_transformer as kt
    from keras_transformer.checkpoints import named_weights
    from keras_transformer.workdir import WorkDirectory
    from trainers.run.data_config import DataConfig

    workdir = WorkDirectory(f"{folder}/run")
    workdir.path.mkdir()
    tokenizer = kt.Tokenizer.train(short_lines(), vocab_size=400)
    workdir.save_tokenizer(tokenizer)
    model = make_model({**point, "vocabulary": tokenizer.vocab_size})
    search = kt.DecodingConfig(beam_size=1, extra_length=0)
    workdir.write_config(
        model=model.config, data=DataConfig(max_length=64), decoding=search
    )
    workdir.averaged.save({"weights": named_weights(model)}, step=1, keep=1)
    return workdir.path


def write_lines(folder, rows):
    """A file of that many lines."""
    lines = short_lines()
    path = pathlib.Path(folder) / f"{rows}.txt"
    with open(path, "w") as file:
        file.writelines(f"{lines[i % len(lines)]}\n" for i in range(rows))
    return path


def short_lines():
    """1,000 lines of three words."""
    words = [f"w{number}" for number in range(500)]
    return [
        " ".join(np.random.default_rng(i).choice(words, 3)) for i in range(1000)
    ]


# Showing

HEAD = (
    "| task | size | seconds | exponent of time | at most in theory | MB"
    " | exponent of memory | of memory, at most in theory | above theory |",
    "|---|---|---|---|---|---|---|---|---|",
)


def exponent(sizes, values):
    """The slope of the last points on logarithmic axes.

    >>> round(exponent([1, 2, 4, 8], [9, 4, 16, 64]), 3)
    2.0
    """
    logarithms = [
        list(map(math.log, numbers[-FITTED:])) for numbers in (sizes, values)
    ]
    return float(np.polyfit(*logarithms, 1)[0])


def row_of(task, variable, sizes, points):
    """A row of the table."""
    cells, steep = [task, f"{variable}: {spelled(sizes, 'd')}"], []
    for name, form, scale, theory in zip(
        ("seconds", "bytes"),
        (".3g", ".3g"),
        (1, 1e6),
        THEORY[variable],
        strict=True,
    ):
        values = [point[name] / scale for point in points]
        slope = exponent(sizes, values)
        cells += [spelled(values, form), f"{slope:.2f}", str(theory)]
        if slope > theory + TOLERANCE:
            steep.append("time" if name == "seconds" else "memory")
    cells.append(f"steeper: {', '.join(steep)}" if steep else "")
    return f"| {' | '.join(cells)} |"


def spelled(numbers, form):
    """Numbers with slashes between them.

    >>> spelled([1000, 20], ",d")
    '1,000 / 20'
    """
    return " / ".join(format(number, form) for number in numbers)


if __name__ == "__main__":
    main()
