"""The stages of accelerator.py in JAX. That script runs this one."""

import collections
import functools
import itertools
import pathlib
import re
import tempfile
import time

import jax
import keras
import numpy as np
from accelerator import (
    LABEL_SMOOTHING,
    begin,
    config_of,
    emit,
    emit_speed,
    measure_product,
    median_seconds,
    speed_cases,
)

import keras_transformer as kt
from keras_transformer.commands.devices import describe
from keras_transformer.config import DecodingConfig
from keras_transformer.data.labels import shift_right
from keras_transformer.text.vocabulary import EOS, PAD
from keras_transformer.training.jax_step import AXIS, JaxStep
from keras_transformer.training.update import StepOptions
from keras_transformer.translation.batched import BatchedSearch
from keras_transformer.translation.inference import Inference

# Variant of a computation on the device -> its dtype, JAX's precision of
# products (by default a GPU rounds the factors of float32), and the largest
# differences from float32 on the CPU: of logits, of the losses of the first ten
# steps, and of the mean of the last twenty.
VARIANTS = {
    "float32": ("float32", "highest", 1e-5, 1e-4, 0.005),
    "bfloat16": ("mixed_bfloat16", None, 3e-2, 5e-3, 0.02),
    "float32, rounded factors": ("float32", None, 5e-3, 1e-3, 0.01),
}
STEPS = 200
PROFILED = 4  # steps


def main():
    on_cpu = jax.default_backend() == "cpu"
    case = begin(describe(jax.devices()[:1]), is_accelerator=not on_cpu)
    stages = [correctness, training, profile, decoding]
    {stage.__name__: stage for stage in stages}[case["stage"]](case)


# Correctness


def correctness(case):
    """Compares the device with the CPU. Fails if they differ too much."""
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
    """Computes logits on a device, with the same weights. Returns NumPy."""
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
    """Returns the loss of every step of a training on a device."""
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
    """Yields batches of random ids whose targets are their sources."""
    generator = np.random.default_rng(1)
    for _ in range(number):
        ids = generator.integers(4, vocab_size, (rows, length), np.int32)
        ends = generator.integers(length // 2, length, (rows, 1))
        ids = np.where(np.arange(length) < ends, ids, PAD)
        np.put_along_axis(ids, ends, EOS, axis=1)
        yield {"source_ids": ids, "target_ids": shift_right(ids)}, ids


def make_step(config, dtype, device, warmup_steps=4000):
    """Returns the `JaxStep` of a new model on a device, and its first state."""
    mesh = jax.sharding.Mesh(np.array([device]), (AXIS,))
    step = jax_step_of(config, dtype, mesh, warmup_steps)
    return step, step.initial_state()


def jax_step_of(config, dtype, mesh, warmup_steps=4000):
    """Makes the `JaxStep` of a new model."""
    with jax.default_device(jax.devices("cpu")[0]):
        keras.utils.set_random_seed(1)
        model = kt.Transformer(config, dtype=dtype)
        optimizer = kt.paper_adam(config.d_model, warmup_steps=warmup_steps)
        return JaxStep(model, optimizer, mesh, StepOptions(LABEL_SMOOTHING))


# Speed


def training(case):
    """Measures training steps on full rows, without padding."""
    small = case["small"]
    product = measure_product(
        "JAX",
        lambda n: jax.random.normal(jax.random.key(1), (2, n, n), "bfloat16"),
        jax.block_until_ready,
        small,
    )
    for name, config, rows, length in speed_cases(case):
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


def profile(case):
    """Prints the kernels of a step, by part of the model."""
    for name, config, rows, length in itertools.islice(speed_cases(case), 2):
        step, state = make_step(config, "mixed_bfloat16", jax.devices()[0])
        ids = np.random.default_rng(1).integers(
            4, config.vocab_size, (rows, length), np.int32
        )
        batch = step.place_rows({"source_ids": ids, "target_ids": ids}, ids)
        arguments = *batch, np.float32(0)
        program = step.lower(state, *arguments).compile()
        state, totals = program(state, *arguments)
        totals.block_until_ready()
        with tempfile.TemporaryDirectory() as folder:
            with jax.profiler.trace(folder):
                for _ in range(PROFILED):
                    state, totals = program(state, *arguments)
                totals.block_until_ready()
            kernels = [*kernels_in(pathlib.Path(folder))]
        parts = parts_of(program.as_text())
        seconds, launches = collections.Counter(), collections.Counter()
        for operation, nanoseconds in kernels:
            part = parts.get(operation, "copies and others")
            seconds[part] += nanoseconds / 1e9 / PROFILED
            launches[part] += 1 / PROFILED
        sizes = program.memory_analysis()
        row = {"model": name, "ms": round(1e3 * seconds.total(), 2)}
        row |= {"launches": round(launches.total())}
        row |= {"GiB of arrays": round(sizes.temp_size_in_bytes / 2**30, 2)}
        emit("kernels of a step", row)
        for part, duration in seconds.most_common(40):
            row = {"model": name, "part": part}
            row |= {"ms": round(1e3 * duration, 3)}
            emit("parts", row | {"launches": round(launches[part])})


def kernels_in(folder):
    """Yields the HLO operation and the nanoseconds of a trace's kernels."""
    [path] = folder.rglob("*.xplane.pb")
    for plane in jax.profiler.ProfileData.from_file(str(path)).planes:
        for line in plane.lines:
            on_gpu = "gpu" in plane.name.lower()
            if on_gpu and "stream" not in line.name.lower():
                continue  # a summary of the same kernels
            for event in line.events:
                operation = dict(event.stats).get("hlo_op")
                if operation is not None or on_gpu:
                    yield str(operation or event.name), event.duration_ns


def parts_of(program):
    """Maps each HLO operation to the layers and primitive it comes from."""
    found = re.findall(
        r"%?([\w.\-]+) = [^\n]*metadata={op_name=\"([^\"]*)\"", program
    )
    return {
        operation: re.sub(r"jit\(\w+\)/|\w+\(|\)|_\d+(?=/)", "", name)
        for operation, name in found
    }


def decoding(case):
    """Measures a translator's search on ids. Random weights fix the length."""
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
            BatchedSearch(inference, 1, True, 1).run,
            Inference.translate_ids,
            [inputs["source_ids"]],
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


if __name__ == "__main__":
    main()
