"""The options of a model of another system, with checks of their types."""

import typing
from collections.abc import Mapping, Sequence

from keras_transformer.base.fields import STORAGE_LIMITS, TYPE_NAMES, is_of_kind
from keras_transformer.base.foreign_files import shown

TYPE_NAMES = {**TYPE_NAMES, list: "a list", dict: "options by name"}


class Options:
    """The options of a model by name, as in its file.

    Errors name `path`, the file or section, and write the system's `prefix`,
    such as "--", before an option.
    """

    def __init__(
        self,
        values: Mapping[str, typing.Any],
        path: typing.Any,
        prefix: str = "",
    ):
        self.values = values
        self.path = path
        self._prefix = prefix

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def get(self, name: str, default: typing.Any) -> typing.Any:
        """Returns an option, or the default if it is missing or None.

        Raises ValueError unless it has the type of the default.
        """
        value = self.values.get(name)
        if value is None:
            return default
        kind = type(default)
        limit = STORAGE_LIMITS.get(kind)
        if not is_of_kind(value, kind):
            raise ValueError(
                f"{self._stated(name, value)} is not {TYPE_NAMES[kind]}"
            )
        if limit is not None and abs(value) > limit:
            raise ValueError(
                f"{self._stated(name, value)} is not within +-{limit}"
            )
        return float(value) if kind is float else value

    def need(self, name: str, kind: type) -> typing.Any:
        """Returns a required option of type `kind`, or raises ValueError."""
        if name not in self:
            option = f"{self._prefix}{name}"
            raise ValueError(f"{self.path}: missing option {option}")
        return self.get(name, kind())

    def without(self, name: str) -> "Options":
        """Returns all options but one."""
        values = {key: self.values[key] for key in self.values if key != name}
        return Options(values, self.path, self._prefix)

    def section(self, name: str) -> "Options":
        """Returns the options in a section. A missing section is empty."""
        return Options(self.get(name, {}), f"{self.path}: {name}")

    def check(self, known: Mapping[str, Sequence]) -> None:
        """Raises ValueError if an option has a value that is not supported.

        `known` has the supported values of each option that matters. The first
        is the default.
        """
        for name, values in known.items():
            value = self.values.get(name)
            if value is None:
                value = values[0]
            if not any(type(value) is type(v) and value == v for v in values):
                self.refuse(name, f"expected {' or '.join(map(repr, values))}")

    def refuse(self, name: str, reason: str) -> typing.NoReturn:
        """Raises ValueError for an option that cannot be imported."""
        value = self.values.get(name)
        raise ValueError(
            f"{self._stated(name, value)} cannot be imported: {reason}"
        )

    def _stated(self, name: str, value: typing.Any) -> str:
        return f"{self.path}: {self._prefix}{name}={shown(value)}"
