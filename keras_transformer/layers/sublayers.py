"""Feed-forward networks (sec. 3.3), and the residual around each sub-layer."""

import functools
import typing
from collections.abc import Callable

import keras
from keras import ops

from keras_transformer.base.backend import Shape, Tensor
from keras_transformer.base.fields import check_values
from keras_transformer.config import TransformerConfig
from keras_transformer.kernels.base import TracedLayer
from keras_transformer.kernels.layers import Dropout, LayerNorm, Linear

_ACTIVATION_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": ops.relu,
    "swish": ops.silu,
    "gelu": functools.partial(ops.gelu, approximate=False),
    "gelu_tanh": functools.partial(ops.gelu, approximate=True),
}


def activation_name(activation: typing.Any) -> typing.Any:
    """Converts a Keras activation, a name or a function, to our name.

    Any other value is returned unchanged.

    >>> activation_name("silu"), activation_name(keras.activations.gelu)
    ('swish', 'gelu')
    """
    for name, other in (
        ("relu", keras.activations.relu),
        ("gelu", keras.activations.gelu),
        ("swish", keras.activations.silu),
        ("swish", "silu"),
    ):
        if activation == other:
            return name
    return activation


@keras.saving.register_keras_serializable("keras_transformer")
class FeedForward(TracedLayer):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2: eq. 2, sec. 3.3.

    Differs from the paper: max(0, x) may be another `activation`, for models
    from other systems.

    Args:
        d_ff: Width F of the inner layer.
        dropout: Dropout rate after the activation, in [0, 1); the paper has
            none.
        activation: "relu"; "swish", x * sigmoid(x); "gelu", x * Phi(x), where
            Phi is the normal distribution function; or "gelu_tanh", its
            approximation (Hendrycks and Gimpel 2016). "silu" is "swish". Keras'
            functions relu, gelu and silu are accepted, too.

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
        activation = activation_name(activation)
        check_values(TransformerConfig, d_ff=d_ff, activation=activation)
        self.d_ff = d_ff
        self.activation = activation
        self.inner = Linear(
            d_ff,
            activation=_ACTIVATION_FUNCTIONS[activation],
            dtype=self.dtype_policy,
            name="inner",
        )
        # Made in `build`: it is as wide as the input.
        self.outer: typing.Any = None
        self.activation_dropout = Dropout(
            dropout, dtype=self.dtype_policy, name="activation_dropout"
        )

    def get_config(self) -> dict[str, typing.Any]:
        return {
            **super().get_config(),
            "d_ff": self.d_ff,
            "dropout": self.activation_dropout.rate,
            "activation": self.activation,
        }

    def build(self, x_shape: Shape) -> None:
        self.outer = Linear(x_shape[-1], dtype=self.dtype_policy, name="outer")
        self.inner.build(x_shape)
        self.outer.build((None, None, self.d_ff))
        self.activation_dropout.build((None, None, self.d_ff))

    def call(self, x: Tensor) -> Tensor:
        return self.outer(self.activation_dropout(self.inner(x)))

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        return x_shape


@keras.saving.register_keras_serializable("keras_transformer")
class Residual(TracedLayer):
    """LayerNorm(x + Dropout(Sublayer(x))), which surrounds every sub-layer.

    See sec. 3.1 and 5.4.

    Differs from the paper: with `pre_norm` it is x + Dropout(Sublayer(
    LayerNorm(x))), which trains deep stacks without a careful warm-up. The
    stack then ends with a separate norm.

    Args:
        dropout: Dropout rate of the sub-layer's output, in [0, 1).
        pre_norm: Whether to normalize the input instead of the output.
        layer_norm_epsilon: Added to the variance by LayerNorm. The paper gives
            no value.

    Call arguments:
        x: float `[B, T, D]`, the residual stream.
        sublayer: A function from `[B, T, D]` to `[B, T, D]`, passed by keyword.
        training: Whether dropout is active.

    Returns float `[B, T, D]` in the compute dtype.

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

    def get_config(self) -> dict[str, typing.Any]:
        return {
            **super().get_config(),
            "dropout": self.output_dropout.rate,
            "pre_norm": self.pre_norm,
            "layer_norm_epsilon": self.norm.epsilon,
        }

    def build(self, x_shape: Shape) -> None:
        self.norm.build(x_shape)
        self.output_dropout.build(x_shape)

    def call(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return self._leave(x, sublayer(self._enter(x)))

    def step(
        self, x: Tensor, sublayer: Callable[[Tensor], tuple[Tensor, typing.Any]]
    ) -> tuple[Tensor, typing.Any]:
        """Runs `call` for a sub-layer that returns its output and a cache."""
        y, cache = sublayer(self._enter(x))
        return self._leave(x, y), cache

    def _enter(self, x: Tensor) -> Tensor:
        return self.norm(x) if self.pre_norm else x

    def _leave(self, x: Tensor, y: Tensor) -> Tensor:
        x = x + self.output_dropout(y)
        return x if self.pre_norm else self.norm(x)

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        return x_shape
