"""Attention as one operation of JAX, which cuDNN has for GPUs."""

import contextlib
import contextvars
import typing
from collections.abc import Iterator

from keras import ops

from keras_transformer.base.backend import ON_TENSORFLOW, Tensor

if not ON_TENSORFLOW:
    import jax

# The `implementation` of `jax.nn.dot_product_attention`; None is our own code.
Implementation: typing.TypeAlias = typing.Literal["xla", "cudnn"] | None
_IMPLEMENTATION: contextvars.ContextVar[Implementation] = (
    contextvars.ContextVar("implementation", default=None)
)


@contextlib.contextmanager
def fused_attention(implementation: Implementation) -> Iterator[None]:
    """Lets attention layers use an implementation, "cudnn", in its body."""
    token = _IMPLEMENTATION.set(implementation)
    try:
        yield
    finally:
        _IMPLEMENTATION.reset(token)


def is_fused(query: Tensor, keys: Tensor, values: Tensor) -> bool:
    """Tells whether `attend` is wanted, and cuDNN has it and its gradient.

    cuDNN has half precision only, and with a mask even lengths only.
    """
    lengths = query.shape[2], keys.shape[2]
    return (
        _IMPLEMENTATION.get() is not None
        and query.dtype in ("bfloat16", "float16")
        and keys.shape == values.shape
        and keys.shape[3] % 8 == 0
        and keys.shape[3] <= 128
        and all(length and length % 2 == 0 for length in lengths)
    )


def attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Computes softmax(Q K^T / sqrt(d_k)) V of eq. 1, without stored weights.

    `[B, H, T, K]`, `[B, H, S, K]` twice and a mask `[B, H, T, S]`, whose
    axes may be 1 -> `[B, H, T, K]`. A query that may attend to nothing weighs
    all keys alike.
    """
    length, num_keys = query.shape[2], keys.shape[2]
    if mask is not None:
        mask = ops.broadcast_to(mask, (*mask.shape[:2], length, num_keys))
    # The projections have [B, T, H, K]: XLA finds both transpositions useless.
    heads = jax.nn.dot_product_attention(
        ops.swapaxes(query, 1, 2),
        ops.swapaxes(keys, 1, 2),
        ops.swapaxes(values, 1, 2),
        mask=mask,
        implementation=_IMPLEMENTATION.get(),
    )
    return ops.swapaxes(heads, 1, 2)
