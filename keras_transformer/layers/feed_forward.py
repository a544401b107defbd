"""Position-wise feed-forward networks (sec. 3.3)."""

import functools
from collections.abc import Callable

import keras
from keras import ops

from keras_transformer.backend import Tensor
from keras_transformer.config import TransformerConfig
from keras_transformer.fields import check_values
from keras_transformer.kernels.dropout import Dropout
from keras_transformer.kernels.linear import Linear

_ACTIVATION_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": ops.relu,
    "swish": ops.silu,
    "gelu": functools.partial(ops.gelu, approximate=False),
    "gelu_tanh": functools.partial(ops.gelu, approximate=True),
}


@keras.saving.register_keras_serializable("keras_transformer")
class FeedForward(keras.layers.Layer):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2: eq. 2, sec. 3.3.

    Differs from the paper: max(0, x) may be another `activation`, for models
    of other systems.

    Args:
        d_ff: Width F of the inner layer.
        dropout: Dropout rate after the activation, in [0, 1); the paper has
            none.
        activation: "relu"; "swish", x * sigmoid(x); "gelu", x * Phi(x), where
            Phi is the normal distribution's; "gelu_tanh", which approximates it
            (Hendrycks and Gimpel 2016).

    Call arguments:
        x: float `[B, T, D]`.
        training: Whether dropout is active.

    Returns:
        float `[B, T, D]` in the compute dtype.

    Raises:
        ValueError: `d_ff` is below 1, or the activation is not one of these.

    >>> FeedForward(d_ff=32)(ops.ones((2, 5, 8))).shape.as_list()
    [2, 5, 8]
    """

    def __init__(
        self,
        d_ff: int,
        dropout: float = 0.0,
        activation: str = "relu",
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_values(TransformerConfig, d_ff=d_ff, activation=activation)
        self.d_ff = d_ff
        self.inner = Linear(
            d_ff,
            activation=_ACTIVATION_FUNCTIONS[activation],
            dtype=self.dtype_policy,
            name="inner",
        )
        self.outer = None  # as wide as the input, see build
        self.activation_dropout = Dropout(
            dropout, dtype=self.dtype_policy, name="activation_dropout"
        )

    def build(self, x_shape):
        self.outer = Linear(x_shape[-1], dtype=self.dtype_policy, name="outer")
        self.inner.build(x_shape)
        self.outer.build((None, None, self.d_ff))
        self.activation_dropout.build((None, None, self.d_ff))

    def call(self, x):
        return self.outer(self.activation_dropout(self.inner(x)))

    def compute_output_shape(self, x_shape):
        return x_shape
