"""Keras' layers in fewer operations: linear, normalization, dropout."""

import contextlib
import contextvars
import typing
from collections.abc import Callable, Iterator

import keras
import numpy as np
from keras import ops

from keras_transformer.base.backend import (
    ON_TENSORFLOW,
    Tensor,
    num_rows,
    precise_dtype,
    with_gradient,
)
from keras_transformer.kernels.base import KeptWeights, check_axes

HAS_UNSIGNED = keras.backend.backend() in ("tensorflow", "jax")
NOT_QUANTIZED = (
    "A Transformer and its layers cannot be quantized in place, since Keras"
    " could not load them again. Export the model quantized:"
    " kt-export --precision=int8"
)
LEVELS = 2**16  # number of values of a unit's random number in dropout
_READ = contextvars.ContextVar("read", default=False)


@contextlib.contextmanager
def weights_to_be_read() -> Iterator[None]:
    """Makes new weights zeros in its block, for values read from a checkpoint.

    Drawing weights takes longer than reading them, and JAX compiles a program
    for each shape.
    """
    token = _READ.set(True)
    try:
        yield
    finally:
        _READ.reset(token)


def unless_read(initializer: Callable | str | None) -> Callable | str | None:
    """Returns the initializer, or one for zeros inside `weights_to_be_read`."""
    return _zeros if _READ.get() else initializer


def _zeros(shape, dtype):
    # From NumPy, so that JAX compiles no program.
    return ops.convert_to_tensor(np.zeros(shape, dtype), dtype)


class Linear(KeptWeights, keras.layers.Dense):
    """x W + b for every position: `keras.layers.Dense` for sequences.

    The layer multiplies a matrix `[B * T, D]`. Keras' `Dense` has a product of
    rank 3, nine more operations in a training step on TensorFlow. The input may
    also be rows, `[N, D]`.

    With `enable_lora` the layer computes x W + (x A) B + b. Keras' layer
    computes W + A B, whose gradient would be as large as W.

    >>> Linear(units=3)(ops.ones((2, 5, 4))).shape.as_list()
    [2, 5, 3]
    """

    def add_weight(
        self, *args: typing.Any, initializer: typing.Any = None, **kwargs
    ):
        initializer = unless_read(initializer)
        return super().add_weight(*args, initializer=initializer, **kwargs)

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        check_axes(self, x, "[N, D]", "[B, T, D]")
        if len(x.shape) == 2:
            return self._of_rows(x, training)
        rows = ops.reshape(x, (-1, x.shape[-1]))  # [B, T, D] -> [B * T, D]
        y = self._of_rows(rows, training)
        # T is a number where it is known, so that later shapes are known, too.
        length = ops.shape(x)[1] if x.shape[1] is None else x.shape[1]
        return ops.reshape(y, (num_rows(x), length, self.units))  # [B, T, U]

    def _of_rows(self, x, training):
        """Multiplies rows, `[N, D]` -> `[N, U]`."""
        if not self.lora_enabled:
            return super().call(x, training)
        # Keras keeps A and B in float32 even if the layer has bfloat16.
        a = ops.cast(self.lora_kernel_a, x.dtype)  # [D, R]
        b = ops.cast(self.lora_kernel_b, x.dtype)  # [R, U]
        low = ops.matmul(x, a) * (self.lora_alpha / self.lora_rank)
        # `kernel` would be W + A B, which a model's `save` writes.
        y = ops.matmul(x, self._kernel) + ops.matmul(low, b)
        return self.activation(y if self.bias is None else y + self.bias)

    def get_config(self) -> dict[str, typing.Any]:
        """Raises NotImplementedError: the layer that owns this one makes it.

        Keras calls this if a functional model contains a method such as
        `encode` instead of its layer.
        """
        raise NotImplementedError(
            "expected a functional model of calls of layers, to save it."
            f" Received: {self.name}, which a method of its layer has called"
        )

    def quantize(self, *args: typing.Any, **kwargs: typing.Any) -> None:
        raise NotImplementedError(NOT_QUANTIZED)


class LayerNorm(KeptWeights, keras.layers.LayerNormalization):
    """gamma * (x - mean) / sqrt(variance + epsilon) + beta (Ba et al. 2016).

    Values and weights equal those of `keras.layers.LayerNormalization` over the
    last axis. Only the gradient is computed differently: TensorFlow's gradient
    of Keras' layer has some seventy more operations. Statistics are float32, or
    float64 if that is the dtype.

    >>> LayerNorm()(ops.array([[[1.0, 2.0, 3.0]]])).numpy().round(2)
    array([[[-1.22,  0.  ,  1.22]]], dtype=float32)
    """

    def call(self, x: Tensor, training: bool | None = False) -> Tensor:
        # Only training has a custom gradient: it leaves a mark in the graph
        # that every export would have to understand.
        gamma, beta = ops.copy(self.gamma), ops.copy(self.beta)
        if training:
            return _norm_with_gradient(self.epsilon)(x, gamma, beta)
        normal, _ = _normalized(x, self.epsilon)
        return _affine(normal, gamma, beta, x.dtype)


def _norm_with_gradient(epsilon: float) -> Callable:
    """Makes the function of x, gamma and beta, with an explicit gradient."""

    @with_gradient
    def forward(
        x: Tensor, gamma: Tensor, beta: Tensor
    ) -> tuple[Tensor, Callable]:
        normal, scale = _normalized(x, epsilon)

        def backward(gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            gradient = ops.cast(gradient, normal.dtype)
            rows = tuple(range(len(x.shape) - 1))
            of_normal = gradient * ops.cast(gamma, normal.dtype)
            of_x = scale * (
                of_normal
                - ops.mean(of_normal, axis=-1, keepdims=True)
                - normal * ops.mean(of_normal * normal, axis=-1, keepdims=True)
            )
            return (
                ops.cast(of_x, x.dtype),
                ops.cast(ops.sum(gradient * normal, axis=rows), gamma.dtype),
                ops.cast(ops.sum(gradient, axis=rows), beta.dtype),
            )

        return _affine(normal, gamma, beta, x.dtype), backward

    return forward


def _normalized(x: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Normalizes x over its last axis.

    Also returns the factor 1 / sqrt(variance + epsilon), `[B, T, 1]`.
    """
    x = ops.cast(x, precise_dtype(x.dtype))
    centered = x - ops.mean(x, axis=-1, keepdims=True)
    variance = ops.mean(ops.square(centered), axis=-1, keepdims=True)
    scale = ops.rsqrt(variance + epsilon)
    return centered * scale, scale


def _affine(normal, gamma, beta, dtype):
    """Computes normal * gamma + beta, and casts it to `dtype`."""
    gamma, beta = (ops.cast(weight, normal.dtype) for weight in (gamma, beta))
    return ops.cast(normal * gamma + beta, dtype)


class Dropout(keras.layers.Dropout):
    """Dropout (sec. 5.4): `keras.layers.Dropout`, three times as fast on a CPU.

    A training step of a small model on a CPU would spend a tenth of its time on
    the random numbers of TensorFlow's dropout. Here a hash of a unit's index is
    its random number. It uses integer operations, which processors do eight or
    sixteen at a time, and two keys, which the backend's own generator draws for
    each call. The same seeds drop the same units with and without XLA.

    The rate is rounded to a multiple of 1 / 65536. Kept units are scaled by the
    inverse of their exact probability. With the same seed, Keras' layer drops
    other units. Keras' layer is used with a `noise_shape`, with a rate of 1,
    and on backends other than TensorFlow and JAX.

    >>> x = Dropout(0.5, seed=1)(ops.ones((2, 50, 100)), training=True)
    >>> set(ops.convert_to_numpy(x).ravel().tolist())
    {0.0, 2.0}
    """

    def call(self, inputs: Tensor, training: bool | None = False) -> Tensor:
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


def _scaled_where(stays: Tensor, x: Tensor, scale: float) -> Tensor:
    """Returns `scale * x` where `stays` is true, and 0 elsewhere.

    For the gradient, one byte per unit is stored.
    """
    if not ON_TENSORFLOW:
        # JAX stores only that byte anyway. It cannot recompute (by
        # `jax.checkpoint`) a function whose explicit gradient uses `stays`.
        return ops.where(stays, x * scale, 0)

    def scaled(x: Tensor) -> Tensor:
        return x * ops.cast(stays, x.dtype) * scale

    return with_gradient(lambda x: (scaled(x), scaled))(x)


def random_uint16(
    like: Tensor, seed: int | keras.random.SeedGenerator
) -> Tensor:
    """Draws independent uniform uint16 numbers in the shape of `like`.

    Their quality suffices for dropout. A `SeedGenerator` advances.
    """
    keys = (_DRAWN.get() or {}).pop(id(getattr(seed, "state", None)), None)
    if keys is None:
        keys = _draw_keys(seed)
    elif not isinstance(seed, int):
        seed.next()
    size = ops.size(like)
    is_even = not (like.shape[-1] or 1) % 2
    count = (size if is_even else size + 1) // 2  # two numbers per word
    counters = ops.arange(count, dtype="int32")[:, None]
    numbers = ops.view(hashed(counters, keys), dtype="uint16")  # [N, 2]
    if not is_even:
        numbers = ops.reshape(numbers, (-1,))[:size]
    return ops.reshape(numbers, ops.shape(like))


def _draw_keys(seed):
    return keras.random.randint((2,), 0, 2**31 - 1, dtype="int32", seed=seed)


_DRAWN: contextvars.ContextVar[dict[int, Tensor] | None] = (
    contextvars.ContextVar("drawn", default=None)
)


@contextlib.contextmanager
def drawn_keys(states: list[keras.Variable], values: Tensor) -> Iterator[None]:
    """Draws the next keys of many `SeedGenerator`s at once, under JAX.

    In the block, each generator gives the keys that it would otherwise draw.
    `states` are the generators' `state` variables; `values`, `[N, 2]`, has the
    value of each in a row.
    """
    keys = ops.vectorized_map(_draw_keys, values)
    token = _DRAWN.set({id(s): keys[i] for i, s in enumerate(states)})
    try:
        yield
    finally:
        _DRAWN.reset(token)


def hashed(counters: Tensor, keys: Tensor) -> Tensor:
    """Hashes each counter: nonnegative int32 `[N, 1]` -> uint32 `[N, 1]`.

    Each round multiplies by an odd number and XORs the upper bits into the
    lower ones, a bijection of 32 bits. The multipliers are the golden ratio's,
    which spreads neighbouring counters (without it, units 128 apart had a
    correlation of 0.001), and two of low bias from C. Wellons'
    "hash-prospector". The keys, int32 `[2]`, are drawn for each call, so that
    each call has another hash function.
    """
    first, second = ops.unstack(ops.view(keys, dtype="uint32"))
    x = ops.view(counters, dtype="uint32") * np.uint32(0x9E3779B9) + first
    x = _fold(x, 16) * np.uint32(0x21F0AAAD) + second
    return _fold(x, 15) * np.uint32(0xD35A2D97)


def _fold(x: Tensor, shift: int) -> Tensor:
    """XORs the upper bits into the lower ones."""
    return ops.bitwise_xor(x, ops.right_shift(x, np.uint32(shift)))
