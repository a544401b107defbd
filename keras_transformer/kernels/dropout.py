"""Dropout (sec. 5.4) with cheap random numbers.

A step of a small model on a CPU would spend a tenth of its time on the random
numbers of TensorFlow's dropout. Here a hash numbers the units of a call, in
integer operations that processors do eight or sixteen at a time, from two keys
that the backend's own generator draws for the call. The same seeds give the
same units with and without XLA.
"""

import keras
import numpy as np
from keras import ops

from keras_transformer.backend import Tensor, with_gradient

HAS_UNSIGNED = keras.backend.backend() in ("tensorflow", "jax")
LEVELS = 2**16  # a unit's random number is one of these


class Dropout(keras.layers.Dropout):
    """`keras.layers.Dropout`, three times as fast on a CPU under TensorFlow.

    The rate is rounded to 1 / 65536. Kept units are scaled by the inverse of
    their exact probability. With the same seed, Keras' layer drops other units.
    With a `noise_shape`, a rate of 1, or a backend other than TensorFlow and
    JAX it is Keras' layer.

    Call arguments:
        inputs: float of any shape.
        training: Whether units are dropped.

    Returns:
        Shape and dtype of `inputs`.

    >>> x = Dropout(0.5, seed=1)(ops.ones((2, 50, 100)), training=True)
    >>> set(ops.convert_to_numpy(x).ravel().tolist())
    {0.0, 2.0}
    """

    def call(self, inputs, training=False):
        threshold = round(self.rate * LEVELS)
        if (
            not HAS_UNSIGNED
            or self.noise_shape is not None
            or not 0 < threshold < LEVELS
        ):
            return super().call(inputs, training)
        if not training:
            return inputs
        numbers = random_uint16(inputs, self.seed_generator)
        stays = numbers >= np.uint16(threshold)
        return _scaled_where(stays, inputs, LEVELS / (LEVELS - threshold))


def _scaled_where(stays, x, scale):
    """`scale * x` where it stays, else 0; stores one byte a unit, not four."""

    def scaled(x):
        return x * ops.cast(stays, x.dtype) * scale

    return with_gradient(lambda x: (scaled(x), scaled))(x)


def random_uint16(
    like: Tensor, seed: int | keras.random.SeedGenerator
) -> Tensor:
    """Independent uniform numbers in [0, 2^16), enough for dropout.

    Args:
        like: Its shape is the shape of the result.
        seed: A number, or a `keras.random.SeedGenerator`, which advances.

    Returns:
        uint16, of the shape of `like`.
    """
    keys = keras.random.randint((2,), 0, 2**31 - 1, dtype="int32", seed=seed)
    size = ops.size(like)
    is_even = not (like.shape[-1] or 1) % 2
    count = (size if is_even else size + 1) // 2  # two numbers in a word
    counters = ops.arange(count, dtype="int32")[:, None]
    numbers = ops.view(hashed(counters, keys), dtype="uint16")  # [N, 2]
    if not is_even:
        numbers = ops.reshape(numbers, (-1,))[:size]
    return ops.reshape(numbers, ops.shape(like))


def hashed(counters: Tensor, keys: Tensor) -> Tensor:
    """A hash of each counter: uint32 `[N, 1]`.

    Rounds of multiplying by an odd number and adding the upper bits to the
    lower ones without carry: bijections of 32 bits. The multipliers are the
    golden ratio's, which spreads neighbouring counters (without it, units 128
    apart were correlated by 0.001), and two of little bias from C. Wellons'
    "hash-prospector". The keys, which are drawn for each call, make it another
    function each time.

    Args:
        counters: int32 `[N, 1]`, not negative.
        keys: int32 `[2]`.
    """
    first, second = ops.unstack(ops.view(keys, dtype="uint32"))
    x = ops.view(counters, dtype="uint32") * np.uint32(0x9E3779B9) + first
    x = _fold(x, 16) * np.uint32(0x21F0AAAD) + second
    return _fold(x, 15) * np.uint32(0xD35A2D97)


def _fold(x, shift):
    """The upper bits onto the lower ones, without carry."""
    return ops.bitwise_xor(x, ops.right_shift(x, np.uint32(shift)))
