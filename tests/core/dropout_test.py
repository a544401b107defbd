"""Dropout: how many and which units it drops, and how it scales the others."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.kernels.layers import Dropout, hashed, random_uint16


def masks(rate, calls, shape=(64, 1024), seed=7):
    """Returns which units stay in several calls: bool [calls, *shape]."""
    layer = Dropout(rate, seed=seed)
    run = tf.function(lambda x: layer(x, training=True) != 0, autograph=False)
    return np.stack([run(tf.ones(shape)) for _ in range(calls)])


def assert_standard_normal(z):
    """Checks that the largest of many standard normal values is plausible."""
    limit = np.sqrt(2 * np.log(2 * np.size(z))) + 2
    assert np.abs(z).max() < limit


@pytest.mark.parametrize("rate", [0.003, 0.1, 0.3, 0.9])
def test_the_rate_is_the_share_of_units_dropped(rate):
    dropped = (~masks(rate, calls=20)).mean()
    deviation = (rate * (1 - rate) / (20 * 64 * 1024)) ** 0.5
    assert dropped == pytest.approx(rate, abs=4 * deviation + 2**-17)


def test_units_are_dropped_independently():
    """They are independent of neighbors, other rows, and later calls."""
    stays = masks(0.2, calls=100, shape=(2**16,))
    z = (stays - 0.8) / 0.4
    for lag in [*range(1, 9), *(2**k for k in range(4, 15)), 127, 129]:
        products = z[:, :-lag] * z[:, lag:]
        assert_standard_normal(products.sum() / products.size**0.5)
    between = z @ z.T / z.shape[1] ** 0.5
    assert_standard_normal(between[np.triu_indices(100, 1)])
    # Each call drops its own number of units, each unit is dropped as often.
    assert z.sum(1).var() / z.shape[1] == pytest.approx(1, abs=0.6)
    assert z.sum(0).var() / 100 == pytest.approx(1, abs=0.05)


def test_numbers_are_uniform():
    layer = keras.random.SeedGenerator(3)
    like = tf.ones((64, 1024))
    numbers = np.stack([random_uint16(like, layer) for _ in range(20)])
    for part in (numbers >> 8, numbers & 255):  # 256 values of each byte
        counts = np.bincount(part.ravel(), minlength=256)
        expected = numbers.size / 256
        chi_square = ((counts - expected) ** 2 / expected).sum()
        assert 255 - 5 * 510**0.5 < chi_square < 255 + 5 * 510**0.5


def test_the_hash_is_that_of_numpy():
    """uint32 wraps around, whatever the backend."""
    counters = np.arange(1000, dtype="uint32")
    keys = np.array([2**31 - 2, 123456789], "int32")
    x = counters * np.uint32(0x9E3779B9) + np.uint32(keys[0])
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x21F0AAAD)
    x = x + np.uint32(keys[1])
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0xD35A2D97)
    result = hashed(tf.range(1000)[:, None], tf.constant(keys))[:, 0]
    np.testing.assert_array_equal(result, x)
    assert len(set(x.tolist())) == 1000  # a bijection


@pytest.mark.parametrize("shape", [(3, 5, 7), (4, 6), (1,), (2, 0, 4)])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_seed_drops_the_same_units_in_every_way(shape, jit_compile):
    """Eager, in a graph of any shape, and with XLA."""
    x = np.random.normal(size=shape).astype("float32")
    eager = Dropout(0.5, seed=3)(x, training=True)
    layer = Dropout(0.5, seed=3)
    run = tf.function(
        lambda x: layer(x, training=True),
        input_signature=[tf.TensorSpec([None] * len(shape))],
        jit_compile=jit_compile,
        autograph=False,
    )
    np.testing.assert_array_equal(run(x), eager)
    assert eager.shape == x.shape


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_units_that_stay_are_scaled_up_and_so_is_their_gradient(dtype):
    layer = Dropout(0.25, seed=1, dtype=dtype)
    x = tf.cast(tf.fill((100, 10), 3.0), dtype)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x, training=True)
        loss = tf.reduce_sum(y * tf.cast(tf.fill(y.shape, 2.0), dtype))
    gradient = np.array(tape.gradient(loss, x), "float64")
    y = np.array(y, "float64")
    assert set(np.unique(np.round(y, 1))) == {0.0, 4.0}
    np.testing.assert_allclose(gradient, y * 2 / 3, rtol=1e-2)


def test_the_rate_is_rounded_and_the_scale_fits_it():
    layer = Dropout(0.1, seed=1)
    y = layer(tf.ones((100, 100)), training=True).numpy()
    # 6,554 of 65,536 numbers drop a unit.
    np.testing.assert_allclose(y[y > 0], 65536 / (65536 - 6554), rtol=1e-6)


def test_without_training_nothing_is_dropped():
    x = np.random.normal(size=(5, 5)).astype("float32")
    for rate in (0.0, 1e-9, 0.5):
        np.testing.assert_array_equal(Dropout(rate)(x, training=False), x)
    for rate in (0.0, 1e-9):
        np.testing.assert_array_equal(Dropout(rate)(x, training=True), x)


def test_what_keras_does_otherwise_is_kept():
    x = tf.ones((4, 100))
    rows = Dropout(0.5, noise_shape=(4, 1), seed=1)(x, training=True).numpy()
    assert (rows == rows[:, :1]).all()
    assert not Dropout(1.0)(x, training=True).numpy().any()
    layer = Dropout(0.3, seed=5, name="some")
    copy = Dropout.from_config(layer.get_config())
    assert copy.rate == 0.3 and copy.name == "some"
    np.testing.assert_array_equal(
        copy(x, training=True), layer(x, training=True)
    )
