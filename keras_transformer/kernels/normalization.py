"""Layer normalization with an explicit gradient."""

import keras
from keras import ops

from keras_transformer.backend import precise_dtype, with_gradient


class LayerNorm(keras.layers.LayerNormalization):
    """gamma * (x - mean) / sqrt(variance + epsilon) + beta (Ba et al. 2016).

    Values and weights equal `keras.layers.LayerNormalization` over the
    last axis. Only the gradient differs: TensorFlow's own gradient of Keras'
    layer has some seventy more operations.

    Call arguments:
        x: float `[B, T, D]`.
        training: Whether there may be a gradient.

    Returns:
        float `[B, T, D]` in the compute dtype; statistics are float32, or
        float64 with that dtype.

    >>> LayerNorm()(ops.array([[[1.0, 2.0, 3.0]]])).numpy().round(2)
    array([[[-1.22,  0.  ,  1.22]]], dtype=float32)
    """

    def call(self, x, training=False):
        # A custom gradient is a mark in the graph that every export would
        # have to understand.
        gamma, beta = ops.copy(self.gamma), ops.copy(self.beta)
        if training:
            return _with_gradient(self.epsilon)(x, gamma, beta)
        normal, _ = _normal(x, self.epsilon)
        return _scaled(normal, gamma, beta, x.dtype)


def _with_gradient(epsilon):
    """The formula as a function of x, gamma and beta, with its gradient."""

    @with_gradient
    def forward(x, gamma, beta):
        normal, scale = _normal(x, epsilon)

        def backward(gradient):
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

        return _scaled(normal, gamma, beta, x.dtype), backward

    return forward


def _normal(x, epsilon):
    """(x - mean) / sqrt(variance + epsilon), and 1 / sqrt(...): `[B, T, 1]`."""
    x = ops.cast(x, precise_dtype(x.dtype))
    centered = x - ops.mean(x, axis=-1, keepdims=True)
    variance = ops.mean(ops.square(centered), axis=-1, keepdims=True)
    scale = ops.rsqrt(variance + epsilon)
    return centered * scale, scale


def _scaled(normal, gamma, beta, dtype):
    """normal * gamma + beta."""
    gamma, beta = (ops.cast(weight, normal.dtype) for weight in (gamma, beta))
    return ops.cast(normal * gamma + beta, dtype)
