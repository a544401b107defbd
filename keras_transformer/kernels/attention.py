"""Attention as one JAX operation, which runs cuDNN's kernel on GPUs."""

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
    """Lets attention layers in its block use "cudnn" or "xla" if possible."""
    token = _IMPLEMENTATION.set(implementation)
    try:
        yield
    finally:
        _IMPLEMENTATION.reset(token)


def is_fused(query: Tensor, keys: Tensor, values: Tensor) -> bool:
    """Tells whether `attend` is enabled and cuDNN supports these arguments.

    cuDNN and its gradient support only half precision, key sizes that are
    multiples of 8 up to 128 and, with a mask, even lengths.
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

    Query `[B, H, T, K]`, keys and values `[B, H, S, K]` and mask `[B, H, T, S]`
    -> `[B, H, T, K]`. The mask may be None, and its axes may have size 1. A
    query that may attend to nothing weights all keys equally.
    """
    length, num_keys = query.shape[2], keys.shape[2]
    if mask is not None:
        mask = ops.broadcast_to(mask, (*mask.shape[:2], length, num_keys))
    # The projections make [B, T, H, K]: XLA removes both transpositions.
    heads = jax.nn.dot_product_attention(
        ops.swapaxes(query, 1, 2),
        ops.swapaxes(keys, 1, 2),
        ops.swapaxes(values, 1, 2),
        mask=mask,
        implementation=_IMPLEMENTATION.get(),
    )
    return ops.swapaxes(heads, 1, 2)
