"""A dense layer over the rows of a batch of sequences."""

import keras
from keras import ops


class Linear(keras.layers.Dense):
    """x W + b for every position: `keras.layers.Dense` for sequences.

    It multiplies one matrix `[B * T, D]`. In a training step on TensorFlow, the
    product of rank 3 of Keras' `Dense` has nine more operations.

    Args:
        units: Width U of the output.

    Call arguments:
        x: float `[B, T, D]`, where T may be unknown; or rows `[N, D]`.

    Returns:
        float `[B, T, U]`, or `[N, U]`, in the compute dtype.

    >>> Linear(units=3)(ops.ones((2, 5, 4))).shape.as_list()
    [2, 5, 3]
    """

    def call(self, x, training=None):
        if len(x.shape) == 2:
            return super().call(x, training)
        rows = ops.reshape(x, (-1, x.shape[-1]))  # [B, T, D] -> [B * T, D]
        y = super().call(rows, training)
        # T as a number where it is known: other shapes follow from it.
        length = x.shape[1] or ops.shape(x)[1]
        return ops.reshape(y, (-1, length, self.units))  # [B, T, U]
