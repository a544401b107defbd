"""Checks of the arguments of layers."""

import typing
from collections.abc import Iterable

from keras_transformer.backend import Tensor
from keras_transformer.fields import is_of_kind


def check_sizes(**sizes: typing.Any) -> None:
    """Raises ValueError if a size is not a positive integer."""
    for name, size in sizes.items():
        if not is_of_kind(size, int) or size < 1:
            raise ValueError(
                f"{name} must be a positive integer. Received: {name}={size!r}"
            )


def check_choice(choices: Iterable[typing.Any], **values: typing.Any) -> None:
    """Raises ValueError if a value is not one of the choices."""
    for name, value in values.items():
        if value not in choices:
            raise ValueError(
                f"{name} must be one of {', '.join(map(repr, choices))}."
                f" Received: {name}={value!r}"
            )


def check_self_attention(
    layer: typing.Any, query: Tensor, keys: Tensor
) -> None:
    """Raises ValueError if queries and keys cannot be of one sequence.

    Args:
        layer: The attention layer, for the message.
        query, keys: Projected, `[B, H, T, K]`.
    """
    lengths = query.shape[2], keys.shape[2]
    if None not in lengths and lengths[0] != lengths[1]:
        raise ValueError(
            f"{layer.name}: {type(layer).__name__} is self-attention: queries"
            " and keys must be of one sequence. Received:"
            f" {lengths[0]} queries, {lengths[1]} keys"
        )
