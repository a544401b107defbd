"""The stages of accelerator.py that JAX computes; it runs this script."""

import itertools
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

import jax
import jax.numpy as jnp
import keras
import numpy as np
from accelerator import (
    BATCH_TOKENS,
    LABEL_SMOOTHING,
    ROOT,
    config_of,
    emit,
    emit_product,
    emit_speed,
    median_seconds,
    product_size,
    speed_cases,
)
from recipe_throughput import rates_of

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
# products (by default float32 factors are rounded on GPUs), and the largest
# differences from float32 on the CPU: of logits, of the mean of the last losses.
VARIANTS = {
    "float32": ("float32", "highest", 1e-5, 0.02),
    "float32, fast products": ("float32", None, 5e-3, 0.03),
    "bfloat16": ("mixed_bfloat16", None, 3e-2, 0.05),
}
STEPS = 200
RECIPE = "multi30k_ende"


def main():
    case = json.loads(sys.argv[1])
    print(describe(jax.devices()[:1]), file=sys.stderr)
    stages = [correctness, training, pipeline, decoding, multi30k]
    {stage.__name__: stage for stage in stages}[case["stage"]](case)


# Correctness


def correctness(case):
    """Compares the device with the CPU; fails if a difference is too large."""
    device, cpu = jax.devices()[0], jax.devices("cpu")[0]
    config = config_of("base", case["small"])
    [(inputs, labels)] = copies(1, 8, 64, config.vocab_size)
    real = labels != PAD
    expected = logits(config, "float32", "highest", inputs, cpu)[real]
    failed = []
    for variant, (dtype, precision, limit, _) in VARIANTS.items():
        found = logits(config, dtype, precision, inputs, device)[real]
        error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
        if not error < limit:
            failed.append(f"logits, {variant}")
        emit(
            "logits: difference from the CPU's",
            variant=variant,
            **{"||x - y|| / ||y||": f"{error:.1e}", "limit": f"{limit:.0e}"},
        )
    expected = losses("float32", "highest", cpu, case["small"])
    for variant, (dtype, precision, _, limit) in VARIANTS.items():
        found = losses(dtype, precision, device, case["small"])
        errors = np.abs(found / expected - 1)
        error = abs(found[-20:].mean() / expected[-20:].mean() - 1)
        if not error < limit:
            failed.append(f"losses, {variant}")
        emit(
            f"losses of {STEPS} steps: difference from the CPU's",
            variant=variant,
            **{
                "first loss": round(float(found[0]), 4),
                "mean of the last 20": round(float(found[-20:].mean()), 4),
                "steps 1 to 10": f"{errors[:10].max():.1e}",
                "last 20, mean": f"{error:.1e}",
                "limit": f"{limit:.0e}",
            },
        )
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
    config = config_of("tiny", small, vocab_size=1000)
    step, state = make_step(config, dtype, device, warmup_steps=100)
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
    product = measure_product(product_size(small))
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
        del state, batch


def measure_product(size):
    """FLOP/s of products of square bfloat16 matrices, one after the other."""
    keys = jax.random.split(jax.random.key(1), 2)
    x, matrix = (jax.random.normal(k, (size, size), "bfloat16") for k in keys)
    matrix = matrix / size**0.5  # keeps the numbers in range
    multiply = jax.jit(jnp.matmul)

    def run(number):
        product = x
        for _ in range(number):
            product = multiply(product, matrix)
        product.block_until_ready()

    return emit_product("JAX", size, median_seconds(run, 20))


def pipeline(case):
    """The batches of an epoch in random order, as an engine reads them."""
    small = case["small"]
    pairs = 20_000 if small else 2_000_000
    corpus = random_corpus(pairs)
    started = time.monotonic()
    batches = make_batches(corpus, BATCH_TOKENS, seed=1)
    seconds = time.monotonic() - started
    step, _ = make_step(
        config_of("tiny", True), "float32", jax.devices()[0]
    )  # which places rows
    number = 10 if small else 300

    def placed():
        for batch in batches.arrays(end_step=number):
            yield step.place_rows(*batch)

    sources = {
        "NumPy": lambda: batches.arrays(end_step=number),
        "NumPy, on the device": placed,
        "the same in a thread": lambda: in_background(placed(), PREFETCH),
    }
    for source, make in sources.items():
        arrays = iter(make())
        next(arrays)  # the order of the epoch
        started = time.monotonic()
        tokens = sum(
            np.count_nonzero(inputs["source_ids"]) + np.count_nonzero(labels)
            for inputs, labels in arrays
        )
        emit(
            f"batches of {pairs:,} pairs, alone",
            source=source,
            **{
                "source + target tokens/s": round(
                    tokens / (time.monotonic() - started)
                ),
                "padding": round(batches.padding_share, 3),
                "s before the first epoch": round(seconds, 2),
            },
        )


def random_corpus(pairs):
    """A `Corpus` whose lengths are about those of WMT."""
    generator = np.random.default_rng(1)

    def side():
        lengths = generator.lognormal(3.2, 0.6, pairs).astype(int).clip(2, 100)
        ids = generator.integers(4, 37_000, lengths.sum(), np.uint16)
        return TokenRows(ids, np.concatenate([[0], np.cumsum(lengths)]))

    counts = CorpusCounts(pairs, pairs, empty=0, too_long=0, max_length=100)
    return Corpus(side(), side(), counts)


def decoding(case):
    """A translator's search on ids; the weights are random, so the length is
    given.
    """
    small = case["small"]
    config = config_of("base", small)
    keras.utils.set_random_seed(1)
    dtype = "float32" if jax.default_backend() == "cpu" else "bfloat16"
    model = kt.Transformer(config, dtype=dtype)
    length = 8 if small else 30
    for size, beam_size in itertools.product(
        (8,) if small else (64, 256, 512), (1, 4)
    ):
        search = DecodingConfig(
            beam_size=beam_size, min_length=length, max_output_length=length
        )
        inference = Inference(model, search, max_source_length=length)
        run = make_runner(jit_compile=True)
        [(inputs, _)] = copies(1, size, length, config.vocab_size)

        def repeat(
            number,
            run=run,
            translate=inference.translate_ids,
            ids=inputs["source_ids"],
        ):
            for _ in range(number):
                found = run(translate, ids, num_best=1, shapes="static")
            if (found.lengths != length).any():
                raise SystemExit(f"other lengths than {length}: {found.lengths}")

        started = time.monotonic()
        repeat(1)
        compiling = time.monotonic() - started
        seconds = median_seconds(repeat, 1 if small else 4)
        emit(
            f"search, base, {dtype}, {length} tokens",
            beam=beam_size,
            sentences=size,
            **{
                "sentences/s": round(size / seconds, 1),
                "ms a batch": round(1e3 * seconds, 1),
                "s of the first": round(compiling, 1),
            },
        )


# A training


def multi30k(case):
    """Trains by the recipe for half of the time, and reads its log."""
    with tempfile.TemporaryDirectory() as folder:
        data = case.get("data") or toy_data(folder)
        flags = [
            f"--flagfile=trainers/configs/{RECIPE}.flags",
            f"--train_files={data}/train",
            f"--valid_files={data}/val",
            f"--test_files={data}/test_2016_flickr",
            f"--workdir={folder}/run",
            f"--train_minutes={case['seconds'] / 120:g}",
            # Programs to compile, and searches of the validation set.
            "--num_buckets=4",
            "--valid_steps=1000000",
        ]
        if case["small"]:
            flags += ["--preset=tiny", "--d_model=32", "--num_layers=1"]
            flags += ["--vocab_size=50", "--num_buckets=1", "--beam_size=1"]
            flags += ["--train_steps=20", "--warmup_steps=5", "--log_steps=10"]
            flags += ["--train_minutes=0", "--schedule=noam"]
            flags += ["--learning_rate_scale=1"]
        started = time.monotonic()
        process = subprocess.run(
            [sys.executable, "-m", "trainers.wmt", *flags],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        seconds = time.monotonic() - started
    print(process.stdout, file=sys.stderr)
    if process.returncode:
        raise SystemExit(process.stderr[-3000:])
    emit_run(process.stdout, seconds)


def emit_run(log, seconds):
    """Prints the row of a training from its log."""
    validations = re.findall(
        r"validation at step (\d+) .* perplexity (\S+) .* BLEU \(13a\) (\S+)"
        r".* (\d+) s of them training",
        log,
    )
    steps, perplexity, bleu, of_training = map(float, validations[-1])
    rates = rates_of(log)
    emit(
        f"trainers.wmt, {RECIPE}",
        steps=int(steps),
        **{
            "source + target tokens/s": round(np.median(rates)),
            "s of training": int(of_training),
            "s in all": round(seconds),
            "perplexity": perplexity,
            "BLEU, validation": bleu,
            "BLEU, test": float(re.search(r"test BLEU .*?(\d+\.\d+)", log)[1]),
        },
    )


def toy_data(folder):
    """Files of sentences of five words, whose translations are the same."""
    words = "ab bc cd de ef fg gh hi".split()
    generator = random.Random(1)
    for name, number in ("train", 200), ("val", 8), ("test_2016_flickr", 8):
        lines = [
            " ".join(generator.choices(words, k=5)) for _ in range(number)
        ]
        for language in ("en", "de"):
            path = pathlib.Path(folder, f"{name}.{language}")
            path.write_text("\n".join(lines) + "\n")
    return folder


if __name__ == "__main__":
    main()
