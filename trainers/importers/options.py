"""Options of other systems: read as what they must be, or refused."""

import typing
from collections.abc import Mapping, Sequence

from keras_transformer.fields import TYPE_NAMES, is_of_kind


class Options:
    """The options of a model by name, as its file has them.

    Args:
        values: Values by name.
        path: Where they stand, for messages.
        prefix: What the system writes before a name: "--".
    """

    def __init__(
        self,
        values: Mapping[str, typing.Any],
        path: typing.Any,
        prefix: str = "",
    ):
        self._values = values
        self.path = path
        self._prefix = prefix

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) is not None

    def get(self, name: str, default: typing.Any) -> typing.Any:
        """An option of the type of its default, which one left out has.

        Raises:
            ValueError: It has another type.
        """
        value = self._values.get(name)
        if value is None:
            return default
        kind = type(default)
        if kind is list:
            fits = isinstance(value, list)
        else:
            fits = is_of_kind(value, kind)
        if not fits:
            expected = TYPE_NAMES.get(kind, "a list")
            raise ValueError(f"{self._stated(name, value)} is not {expected}")
        return value

    def need(self, name: str, kind: type) -> typing.Any:
        """An option that there must be, of a type.

        Raises:
            ValueError: There is none, or it has another type.
        """
        if name not in self:
            raise ValueError(
                f"{self.path}: no option {self._prefix}{name}, which such a"
                " model has"
            )
        return self.get(name, kind())

    def check(self, known: Mapping[str, Sequence]) -> None:
        """Refuses options that make a model which a `Transformer` cannot be.

        Args:
            known: Of each option that matters the values that can be; the first
                is that of an option which is left out.

        Raises:
            ValueError: An option has another value.
        """
        for name, values in known.items():
            value = self._values.get(name)
            if value is None:
                value = values[0]
            if not any(value == v and type(value) is type(v) for v in values):
                raise ValueError(
                    f"{self._stated(name, value)} cannot be imported: expected"
                    f" {' or '.join(map(repr, values))}"
                )

    def refuse(self, name: str, reason: str) -> typing.NoReturn:
        """Raises ValueError for an option that cannot be imported."""
        value = self._values.get(name)
        raise ValueError(
            f"{self._stated(name, value)} cannot be imported: {reason}"
        )

    def _stated(self, name, value):
        return f"{self.path}: {self._prefix}{name}={value!r}"
