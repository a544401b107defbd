"""The second way to accelerators: Keras' JAX backend and its DataParallel.

    KERAS_BACKEND=jax python benchmarks/jax_data_parallel.py --preset=tiny

Trains the package's model and loss with `model.fit`, on one device and then on
all of them, on batches of one shape whose rows have unequal lengths. Prints a
JSON line for each, and fails if the losses are not the same. TensorFlow is not
needed. On a CPU, XLA_FLAGS=--xla_force_host_platform_device_count=2 makes two
devices of it.
"""

import argparse
import importlib.metadata
import json
import os
import time

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np

import keras_transformer as kt

TOLERANCE = 2e-3  # of the losses, relative; in half precision ten times that


def main():
    arguments = parse_arguments()
    if keras.backend.backend() != "jax":
        raise SystemExit("expected the environment variable KERAS_BACKEND=jax")
    keras.config.set_dtype_policy(arguments.precision)
    devices = keras.distribution.list_devices()
    rows = arguments.rows // len(devices) * len(devices)
    batches = make_batches(arguments, rows)
    losses = {}
    for used in sorted({1, len(devices)}):
        losses[used], seconds = train(arguments, batches, devices[:used])
        tokens = sum(int((labels != 0).sum()) for _, labels in batches)
        print(
            json.dumps(
                {
                    "what": "training, KERAS_BACKEND=jax, DataParallel",
                    "preset": arguments.preset,
                    "precision": arguments.precision,
                    "devices": used,
                    "device": kind_of(devices[0]),
                    "rows_x_tokens": [rows, arguments.length],
                    "target_tokens_per_second": round(tokens / seconds),
                    "ms_per_step": round(1000 * seconds / arguments.steps, 2),
                    "losses": [round(float(x), 5) for x in losses[used]],
                    "keras": keras.__version__,
                    "jax": importlib.metadata.version("jax"),
                }
            ),
            flush=True,
        )
    one, every = losses[1], losses[len(devices)]
    half = arguments.precision != "float32"
    np.testing.assert_allclose(one, every, rtol=TOLERANCE * (10 if half else 1))


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--preset", default="tiny", choices=sorted(kt.PRESETS))
    parser.add_argument("--vocab_size", type=int, default=8000)
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--length", type=int, default=16)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument(
        "--precision",
        default="float32",
        choices=["float32", "mixed_bfloat16"],
    )
    return parser.parse_args()


def make_batches(arguments, rows):
    """Random ids; rows end where they like, padded to one length."""
    random = np.random.default_rng(0)
    shape = (rows, arguments.length)

    def ids():
        ends = random.integers(2, arguments.length + 1, rows)
        values = random.integers(4, arguments.vocab_size, shape)
        return np.where(np.arange(arguments.length) < ends[:, None], values, 0)

    batches = []
    for _ in range(arguments.steps):
        source_ids, labels = ids().astype("int32"), ids().astype("int32")
        target_ids = np.roll(labels, 1, axis=1) * (labels != 0)
        target_ids[:, 0] = 1
        inputs = {"source_ids": source_ids, "target_ids": target_ids}
        batches.append((inputs, labels))
    return batches


def train(arguments, batches, devices):
    """Loss of every step, and the seconds of a second round of them."""
    keras.utils.set_random_seed(1)
    keras.distribution.set_distribution(
        keras.distribution.DataParallel(devices=devices)
    )
    config = kt.preset(
        arguments.preset, vocab_size=arguments.vocab_size, dropout=0.0
    )
    model = kt.Transformer(config)
    model.compile(
        optimizer=kt.paper_adam(config.d_model, warmup_steps=400),
        loss=kt.SmoothedCrossEntropy(0.1),
    )

    # The mean over an epoch of one step is the loss of that step.
    losses = [
        model.fit(*batch, batch_size=len(batch[1]), verbose=0).history["loss"][
            0
        ]
        for batch in batches
    ]
    inputs = {
        name: np.concatenate([inputs[name] for inputs, _ in batches])
        for name in batches[0][0]
    }
    labels = np.concatenate([labels for _, labels in batches])
    started = time.monotonic()
    model.fit(
        inputs, labels, batch_size=len(batches[0][1]), shuffle=False, verbose=0
    )
    seconds = time.monotonic() - started
    keras.distribution.set_distribution(None)
    return losses, seconds


def kind_of(device):
    """A device's kind, as in "NVIDIA H200" or "cpu"."""
    import jax

    kind, index = device.split(":")
    return jax.devices({"gpu": "gpu"}.get(kind, kind))[int(index)].device_kind


if __name__ == "__main__":
    main()
