"""Residual connection, normalization and dropout (sec. 3.1 and 5.4)."""

import typing
from collections.abc import Callable

import keras

from keras_transformer.backend import Tensor
from keras_transformer.kernels.dropout import Dropout
from keras_transformer.kernels.normalization import LayerNorm


@keras.saving.register_keras_serializable("keras_transformer")
class Residual(keras.layers.Layer):
    """LayerNorm(x + Dropout(Sublayer(x))): the frame of every sub-layer.

    See sec. 3.1 and 5.4.

    Differs from the paper: with `pre_norm` it is x + Dropout(Sublayer(
    LayerNorm(x))), which trains deep stacks without a careful warm-up; the
    stack then ends with a norm of its own.

    Args:
        dropout: Dropout rate of the sub-layer's output, in [0, 1).
        pre_norm: Whether to normalize the input instead of the output.
        layer_norm_epsilon: Epsilon that LayerNorm adds to the variance; the
            paper gives none.

    Call arguments:
        x: float `[B, T, D]`, the residual stream.
        sublayer: Function of one such tensor that returns another; by name.
        training: Whether dropout is active.

    Returns:
        float `[B, T, D]` in the compute dtype.

    >>> frame = Residual(dropout=0.0, pre_norm=True, layer_norm_epsilon=1e-6)
    >>> frame(keras.ops.ones((1, 1, 4)), sublayer=lambda x: x + 2.0).numpy()
    array([[[3., 3., 3., 3.]]], dtype=float32)
    """

    def __init__(
        self,
        dropout: float,
        pre_norm: bool,
        layer_norm_epsilon: float,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.pre_norm = pre_norm
        self.norm = LayerNorm(
            epsilon=layer_norm_epsilon, dtype=self.dtype_policy, name="norm"
        )
        self.output_dropout = Dropout(
            dropout, dtype=self.dtype_policy, name="output_dropout"
        )

    def build(self, x_shape):
        self.norm.build(x_shape)
        self.output_dropout.build(x_shape)

    def call(self, x, sublayer):
        return self._leave(x, sublayer(self._enter(x)))

    def step(
        self, x: Tensor, sublayer: Callable[[Tensor], tuple[Tensor, typing.Any]]
    ) -> tuple[Tensor, typing.Any]:
        """`call` for a sub-layer that returns its output and its cache."""
        y, cache = sublayer(self._enter(x))
        return self._leave(x, y), cache

    def _enter(self, x):
        return self.norm(x) if self.pre_norm else x

    def _leave(self, x, y):
        x = x + self.output_dropout(y)
        return x if self.pre_norm else self.norm(x)

    def compute_output_shape(self, x_shape):
        return x_shape
