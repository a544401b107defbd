"""Checks of what layers are constructed with: sizes and choices."""

import typing
from collections.abc import Iterable

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
