"""The stages of accelerator.py that JAX computes; it runs this script."""

import functools
import itertools
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

import jax
import keras
import numpy as np
from accelerator import (
    BATCH_TOKENS,
    LABEL_SMOOTHING,
    ROOT,
    begin,
    config_of,
    emit,
    emit_speed,
    measure_product,
    median_seconds,
    speed_cases,
)

import keras_transformer as kt
from keras_transformer.config import DecodingConfig
from keras_transformer.data.batches import make_batches, shift_right
from keras_transformer.data.corpus import Corpus, CorpusCounts, TokenRows
from keras_transformer.training.jax_step import AXIS, JaxStep
from keras_transformer.translation.inference import Inference
from keras_transformer.translation.programs import make_runner
from keras_transformer.vocabulary import EOS, PAD
from trainers.run.jax_engine import PREFETCH, describe, in_background

# Variant of a computation on the device -> its dtype, JAX's precision of
# products (by default a GPU rounds factors in float32), and the largest
# differences from float32 on the CPU: of logits, of the losses of the first ten
# steps, of the mean of the last twenty.
VARIANTS = {
    "float32": ("float32", "highest", 1e-5, 1e-4, 0.005),
    "bfloat16": ("mixed_bfloat16", None, 3e-2, 5e-3, 0.02),
    "float32, rounded factors": ("float32", None, 5e-3, 1e-3, 0.01),
}
STEPS = 200
RECIPE = "multi30k_ende"


def main():
    on_cpu = jax.default_backend() == "cpu"
    case = begin(describe(jax.devices()[:1]), is_accelerator=not on_cpu)
    stages = [correctness, training, pipeline, decoding, multi30k]
    {stage.__name__: stage for stage in stages}[case["stage"]](case)


# Correctness


def correctness(case):
    """Compares the device with the CPU; fails if a difference is too large."""
    small, device, cpu = case["small"], jax.devices()[0], jax.devices("cpu")[0]
    config = config_of("base", small)
    [(inputs, labels)] = copies(1, 8, 64, config.vocab_size)
    real = labels != PAD
    expected = logits(config, "float32", "highest", inputs, cpu)[real]
    failed = []
    for variant, (dtype, precision, limit, *_) in VARIANTS.items():
        found = logits(config, dtype, precision, inputs, device)[real]
        error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
        row = {"variant": variant, "relative error": f"{error:.1e}"}
        emit("logits: difference from the CPU's", row | {"limit": limit})
        if not error < limit:
            failed.append(f"logits, {variant}")
    expected = losses("float32", "highest", cpu, small)
    for variant, (dtype, precision, _, *limits) in VARIANTS.items():
        found = losses(dtype, precision, device, small)
        last, last_expected = found[-20:].mean(), expected[-20:].mean()
        first = np.abs(found / expected - 1)[:10].max()
        errors = first, abs(last / last_expected - 1)
        row = {"variant": variant, "loss 1": round(float(found[0]), 4)}
        row |= {"mean of the last 20": round(float(last), 4)}
        row |= {"the CPU's": round(float(last_expected), 4)}
        row |= {"difference in 1 to 10": f"{errors[0]:.1e} < {limits[0]}"}
        row |= {"of the means": f"{errors[1]:.1e} < {limits[1]}"}
        emit(f"losses of {STEPS} steps", row)
        if not np.all(np.less(errors, limits)):
            failed.append(f"losses, {variant}")
    if failed:
        raise SystemExit(f"differences are too large: {'; '.join(failed)}")


def logits(config, dtype, precision, inputs, device):
    """The logits on a device, float32 in NumPy; the weights are the same."""
    with jax.default_device(jax.devices("cpu")[0]):
        keras.utils.set_random_seed(1)
        model = kt.Transformer(config, dtype=dtype)
        values = [variable.value for variable in model.variables]

    def run(values, inputs):
        pairs = zip(model.variables, values, strict=True)
        with keras.StatelessScope(pairs):
            return model(inputs)

    with jax.default_matmul_precision(precision):
        found = jax.jit(run)(*jax.device_put((values, inputs), device))
    return np.asarray(found, np.float32)


def losses(dtype, precision, device, small):
    """The loss of every step of a training on a device."""
    config = config_of("tiny", small, vocab_size=64)
    step, state = make_step(config, dtype, device, warmup_steps=800)
    totals = []
    with jax.default_matmul_precision(precision):
        for batch in copies(STEPS, 64, 16, config.vocab_size):
            state, sums = step(state, *step.place_rows(*batch))
            totals.append(sums)
    totals = np.array(totals)
    return totals[:, 0] / totals[:, 2]


def copies(number, rows, length, vocab_size):
    """Batches of random ids whose targets are their sources."""
    generator = np.random.default_rng(1)
    for _ in range(number):
        ids = generator.integers(4, vocab_size, (rows, length), np.int32)
        ends = generator.integers(length // 2, length, (rows, 1))
        ids = np.where(np.arange(length) < ends, ids, PAD)
        np.put_along_axis(ids, ends, EOS, axis=1)
        yield {"source_ids": ids, "target_ids": shift_right(ids)}, ids


def make_step(config, dtype, device, warmup_steps=4000):
    """The `JaxStep` of a new model on a device, and its first state."""
    with jax.default_device(jax.devices("cpu")[0]):
        keras.utils.set_random_seed(1)
        model = kt.Transformer(config, dtype=dtype)
        optimizer = kt.paper_adam(config.d_model, warmup_steps=warmup_steps)
        mesh = jax.sharding.Mesh(np.array([device]), (AXIS,))
        step = JaxStep(model, optimizer, mesh, LABEL_SMOOTHING)
    values = jax.tree.map(lambda v: np.asarray(v.value), step.variables)
    return step, step.place(values)


# Speed


def training(case):
    """Steps with full rows: no token is padding."""
    small = case["small"]
    product = measure_product(
        "JAX",
        lambda n: jax.random.normal(jax.random.key(1), (2, n, n), "bfloat16"),
        jax.block_until_ready,
        small,
    )
    for name, config, rows, length in speed_cases(small):
        step, state = make_step(config, "mixed_bfloat16", jax.devices()[0])
        ids = np.random.default_rng(1).integers(
            4, config.vocab_size, (rows, length), np.int32
        )
        batch = step.place_rows({"source_ids": ids, "target_ids": ids}, ids)

        def run(number, step=step, batch=batch):
            nonlocal state
            for _ in range(number):
                state, totals = step(state, *batch)
            if not np.isfinite(np.asarray(totals)).all():
                raise SystemExit(f"the loss is not finite: {totals}")

        seconds = median_seconds(run, 1 if small else 20)
        emit_speed("JAX", name, config, rows, length, seconds, product)


def pipeline(case):
    """The batches of an epoch in random order, as an engine reads them."""
    small = case["small"]
    corpus = random_corpus(20_000 if small else 2_000_000)
    batches = make_batches(corpus, BATCH_TOKENS, seed=1)
    config = config_of("tiny", small=True)  # only the step places rows
    step, _ = make_step(config, "float32", jax.devices()[0])

    def arrays():
        return batches.arrays(end_step=10 if small else 300)

    def placed():
        return (step.place_rows(*batch) for batch in arrays())

    tokens = sum(
        np.count_nonzero(inputs["source_ids"]) + np.count_nonzero(labels)
        for inputs, labels in itertools.islice(arrays(), 1, None)
    )
    for name, make in {
        "arrays in NumPy": arrays,
        "on the device": placed,
        "on the device, by a thread": lambda: in_background(placed(), PREFETCH),
    }.items():
        elements = iter(make())
        next(elements)  # orders the epoch
        started = time.monotonic()
        *_, last = elements
        jax.block_until_ready(last)
        rate = tokens / (time.monotonic() - started)
        row = {"batches": name, "source + target tokens/s": round(rate)}
        row |= {"padding": round(batches.padding_share, 3)}
        emit(f"batches of {len(corpus):,} pairs, without a training", row)


def random_corpus(pairs):
    """A random `Corpus` with sentence lengths as in WMT, about 25 tokens."""
    generator = np.random.default_rng(1)

    def side():
        lengths = generator.lognormal(3.2, 0.6, pairs).astype(int).clip(2, 100)
        ids = generator.integers(4, 37_000, lengths.sum(), np.uint16)
        return TokenRows(ids, np.concatenate([[0], np.cumsum(lengths)]))

    counts = CorpusCounts(pairs, pairs, empty=0, too_long=0, max_length=100)
    return Corpus(side(), side(), counts)


def decoding(case):
    """A translator's search on ids. Weights are random: the length is given."""
    small = case["small"]
    config = config_of("base", small)
    keras.utils.set_random_seed(1)
    dtype = "float32" if jax.default_backend() == "cpu" else "bfloat16"
    model = kt.Transformer(config, dtype=dtype)
    length = 8 if small else 30
    for size, beam_size in itertools.product(
        (8,) if small else (64, 256, 512), (1, 4)
    ):
        config_of_search = DecodingConfig(
            beam_size=beam_size, min_length=length, max_output_length=length
        )
        inference = Inference(model, config_of_search, max_source_length=length)
        [(inputs, _)] = copies(1, size, length, config.vocab_size)

        search = functools.partial(
            make_runner(jit_compile=True),
            inference.translate_ids,
            inputs["source_ids"],
            num_best=1,
            shapes="static",
        )

        def repeat(number, search=search):
            for _ in range(number):
                found = search()
            if (found.lengths != length).any():
                raise SystemExit(
                    f"other lengths than {length}: {found.lengths}"
                )

        started = time.monotonic()
        repeat(1)
        compiling = time.monotonic() - started
        seconds = median_seconds(repeat, 1 if small else 4)
        row = {"beam": beam_size, "sentences": size}
        row |= {"sentences/s": round(size / seconds, 1)}
        row |= {"ms a batch": round(1e3 * seconds, 1)}
        row |= {"s of the first batch": round(compiling, 1)}
        emit(f"search, base, {dtype}, outputs of {length} tokens", row)


# A training


def multi30k(case):
    """Trains by the recipe for a quarter of the time, and reads its log.

    XLA needs most of the rest: it compiles searches of two lengths for every
    shape of a batch of sentences.
    """
    with tempfile.TemporaryDirectory() as folder:
        data = case.get("data") or toy_data(folder)
        flags = [
            f"--flagfile=trainers/configs/{RECIPE}.flags",
            f"--train_files={data}/train",
            f"--valid_files={data}/val",
            f"--test_files={data}/test_2016_flickr",
            f"--workdir={folder}/run",
            "--train_steps=1000000",
            f"--train_minutes={case['seconds'] / 240:g}",
            # Programs to compile, and searches of the validation set.
            "--num_buckets=4",
            "--valid_steps=1000000",
        ]
        if case["small"]:
            flags += ["--d_model=32", "--num_layers=1", "--vocab_size=30"]
            flags += ["--num_buckets=1", "--beam_size=1", "--train_minutes=0"]
            flags += ["--train_steps=20", "--warmup_steps=5", "--log_steps=10"]
        started = time.monotonic()
        process = subprocess.run(
            [sys.executable, "-m", "trainers.wmt", *flags],
            cwd=ROOT,
            env={
                **os.environ,
                # This process has taken three quarters of a GPU's memory.
                "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.2",
            },
            capture_output=True,
            text=True,
        )
        took = round(time.monotonic() - started)
    if process.returncode:
        raise SystemExit(process.stdout[-3000:] + process.stderr[-3000:])
    minutes = 0 if case["small"] else round(case["seconds"] / 240, 1)
    row = {"minutes of training": minutes, "s in all": took}
    row |= read_log(process.stdout)
    emit(f"trainers.wmt, {RECIPE}", row)


def read_log(log):
    """Steps, speed and BLEU of a training, from what it printed."""
    [steps] = re.findall(
        r"^(?:finished all steps|time limit .*) \| step (\d+)$",
        log,
        re.MULTILINE,
    )
    [bleu] = re.findall(r"^test BLEU \(13a\) (\S+)", log, re.MULTILINE)
    rate = np.median(rates_of(log))
    row = {"steps": int(steps), "source + target tokens/s": round(rate)}
    return row | {"BLEU, test_2016_flickr": float(bleu)}


def rates_of(text):
    """Source and target tokens per second of each report of the trainer.

    >>> rates_of("step 50 | loss 9.1 | 18700 source+target tokens/s | 9 s")
    [18700.0]
    """
    rates = re.findall(r"\| (\S+) source\+target tokens/s", text)
    return [float(rate) for rate in rates]


def toy_data(folder):
    """Files of sentences of five words, whose translations are the same."""
    words = "ab bc cd de ef fg gh hi".split()
    generator = random.Random(1)
    for name, number in ("train", 200), ("val", 8), ("test_2016_flickr", 8):
        lines = [" ".join(generator.choices(words, k=5)) for _ in range(number)]
        for language in ("en", "de"):
            path = pathlib.Path(folder, f"{name}.{language}")
            path.write_text("\n".join(lines) + "\n")
    return folder


if __name__ == "__main__":
    main()
