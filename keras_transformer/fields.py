"""The machinery of configurations: dataclass fields that check themselves.

A field made with `hp` is the one home of its number: its default, its help and
its valid values. Command-line flags (`flags.py`), layer configurations and
`config.json` are generated from these dataclasses.
"""

import dataclasses
import functools
import inspect
import math
import numbers
import textwrap
import types
import typing

TYPE_NAMES = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    tuple: "a list of texts",
}
# Below what numbers must stay that have no limit of their own: TensorFlow keeps
# them as int64 and float32.
STORAGE_LIMITS = {int: 2**63, float: 3.4e38}


def hp(
    default: typing.Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: typing.Sequence | None = None,
) -> typing.Any:
    """A dataclass field that knows its help text and its valid values.

    Args:
        default: The default value.
        help: One line for `--help`: role, unit, and the paper's section.
        low: Smallest valid value, or None.
        high: Values must be below this bound; None: that of `STORAGE_LIMITS`.
        choices: The valid values, or None.

    Returns:
        A `dataclasses.Field` with the above in its metadata.
    """
    metadata = {"help": help, "low": low, "high": high, "choices": choices}
    return dataclasses.field(default=default, metadata=metadata)


@functools.cache
def kinds_of(section: typing.Any) -> dict[str, tuple[type, bool]]:
    """The type of each field of a dataclass, and whether it may be None.

    >>> from keras_transformer.config import TransformerConfig
    >>> kinds_of(TransformerConfig)["d_key"]
    (<class 'int'>, True)
    """
    kinds = {}
    for name, annotation in typing.get_type_hints(section).items():
        may_be_none = isinstance(annotation, types.UnionType)
        if may_be_none:
            (annotation,) = set(typing.get_args(annotation)) - {types.NoneType}
        kinds[name] = typing.get_origin(annotation) or annotation, may_be_none
    return kinds


def check_values(section: typing.Any, **values: typing.Any) -> None:
    """Checks single values against the fields of a dataclass made of `hp`.

    Args:
        section: The dataclass.
        **values: Values by field name.

    Raises:
        ValueError: A value has another type than its field, or is outside its
            range or choices.

    >>> from keras_transformer.config import DecodingConfig
    >>> check_values(DecodingConfig, beam_size=0)
    Traceback (most recent call last):
    ValueError: beam_size must be at least 1. Received: beam_size=0
    """
    kinds = kinds_of(section)
    fields = section.__dataclass_fields__
    for name, value in values.items():
        kind, may_be_none = kinds[name]
        metadata = fields[name].metadata
        low, high, choices = (metadata[n] for n in ("low", "high", "choices"))
        if high is None:
            high = STORAGE_LIMITS.get(kind)
        if value is None and may_be_none:
            continue
        if not is_of_kind(value, kind):
            expected = TYPE_NAMES[kind] + (", or None" if may_be_none else "")
        elif choices is not None and value not in choices:
            expected = "one of " + ", ".join(map(repr, choices))
        elif low is not None and value < low:
            expected = f"at least {low}"
        elif high is not None and value >= high:
            expected = f"below {high}"
        else:
            continue
        raise ValueError(
            f"{name} must be {expected}. Received: {name}={value!r}"
        )


def is_of_kind(value: typing.Any, kind: type) -> bool:
    """Whether a value is of a type, a key of `TYPE_NAMES`.

    A whole number is a number, NumPy's are both; true and false are neither.
    What is infinite or not a number is none.

    >>> is_of_kind(1, float), is_of_kind(True, float), is_of_kind("1", float)
    (True, False, False)
    >>> is_of_kind(10**400, float), is_of_kind(-math.inf, float)
    (True, False)
    """
    if isinstance(value, bool):
        return kind is bool
    if kind is int:
        return isinstance(value, numbers.Integral)
    if kind is float:
        is_real = isinstance(value, numbers.Real)
        return is_real and value < math.inf and not value <= -math.inf
    if kind is tuple and isinstance(value, tuple):
        return all(isinstance(item, str) for item in value)
    return isinstance(value, kind)


class Fields:
    """Base class of every configuration: a dataclass made of `hp` fields.

    It checks its values when it is made, and its docstring, which `help`
    shows, lists the fields. A subclass that checks more than its single fields
    extends `__post_init__` and calls this one first.
    """

    def __init_subclass__(cls, **kwargs: typing.Any) -> None:
        super().__init_subclass__(**kwargs)
        fields = dict(getattr(cls, "__dataclass_fields__", {}))  # inherited
        fields |= {n: vars(cls)[n] for n in inspect.get_annotations(cls)}
        lines = ["", "", "Attributes:"]
        for name, field in fields.items():
            lines += textwrap.wrap(
                f"{name}: {field.metadata['help']} {_values_of(field)}",
                76,
                break_long_words=False,
                break_on_hyphens=False,
                initial_indent=" " * 4,
                subsequent_indent=" " * 8,
            )
        doc = inspect.cleandoc(cls.__doc__ or cls.__name__)
        cls.__doc__ = doc + "\n".join(lines)

    def __post_init__(self) -> None:
        check_values(type(self), **vars(self))


def _values_of(field: dataclasses.Field) -> str:
    """A field's default and valid values, as sentences."""
    sentences = [f"Default: {field.default!r}."]
    low, high, choices = (
        field.metadata[name] for name in ("low", "high", "choices")
    )
    if low is not None:
        sentences.append(f"At least {low}.")
    if high is not None:
        sentences.append(f"Below {high}.")
    if choices is not None:
        sentences.append(f"One of {', '.join(map(repr, choices))}.")
    return " ".join(sentences)
