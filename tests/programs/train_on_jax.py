"""Trains under KERAS_BACKEND=jax without TensorFlow.

    KERAS_BACKEND=jax python train_on_jax.py DATA.npz MODEL.keras

The last line is a JSON object with the values that the parent compares.
"""

import json
import sys

BEFORE = set(sys.modules)
sys.modules["tensorflow"] = None  # as if it were not installed

import keras_transformer as kt  # noqa: E402

IMPORTED = sorted({"keras", "numpy", "jax"} & (set(sys.modules) - BEFORE))

import jax  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402

from keras_transformer.kernels.layers import random_uint16  # noqa: E402
from keras_transformer.kernels.projected_loss import (  # noqa: E402
    projected_cross_entropy,
    projected_r_drop,
)

STATES = np.linspace(-1.0, 1.0, 12, dtype="float32").reshape(1, 4, 3)
MATRIX = np.linspace(-2.0, 1.0, 21, dtype="float32").reshape(7, 3)


def projected_loss(states, matrix):
    """Sums losses that have a gradient written by hand."""
    losses, nll = projected_cross_entropy(
        np.array([[3, 6, 3, 0]]), states, matrix, None, 0.1
    )
    return (losses + 2 * nll).sum()


def projected_r_drop_loss(states, matrix):
    """Sums the R-Drop losses of two halves, with their divergence."""
    losses, nll = projected_r_drop(
        np.array([[3, 6]]), states.reshape(2, 2, 3), matrix, None, 0.1, 3.0
    )
    return (losses + 2 * nll).sum()


def main(data, path):
    loaded = kt.Transformer.__name__  # its import registers it with Keras
    model = keras.saving.load_model(path)
    assert type(model).__name__ == loaded
    with np.load(data) as file:
        inputs = {n: file[n] for n in ("source_ids", "target_ids")}
        labels = file["labels"]

    @jax.jit  # one program instead of one for each operation
    def run(inputs):
        logits = model(inputs)
        step, _ = model.decode_step(
            inputs["target_ids"][:, 0],
            model.encode(inputs["source_ids"]),
            model.make_cache(len(labels), labels.shape[1]),
            0,
        )
        loss = kt.SmoothedCrossEntropy(0.1)(np.array([[99]]), logits[:1, :1])
        return logits, step, loss

    logits, step, out_of_range = run(inputs)
    slopes = [
        slope
        for function in (projected_loss, projected_r_drop_loss)
        for slope in jax.jit(jax.grad(function, argnums=(0, 1)))(STATES, MATRIX)
    ]
    numbers = random_uint16(np.ones((3, 5)), keras.random.SeedGenerator(1))
    model.compile(
        keras.optimizers.SGD(0.5),
        kt.SmoothedCrossEntropy(0.1),
        metrics=[kt.Perplexity()],
    )
    losses = [
        model.fit(inputs, labels, verbose=0).history["loss"][0]
        for _ in range(3)
    ]
    print(
        json.dumps(
            {
                "backend": keras.backend.backend(),
                "imported": IMPORTED,
                "loaded": loaded,
                "losses": losses,
                "logits": np.asarray(logits).tolist(),
                "step": np.asarray(step).tolist(),
                "slopes": [np.asarray(slope).tolist() for slope in slopes],
                "numbers": np.asarray(numbers).tolist(),
                "out_of_range": str(float(out_of_range)),
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
