"""The machinery of configurations: dataclass fields that check themselves.

A field made with `hp` is the one home of its number: its default, its help and
its valid values. Command-line flags (`flags.py`), layer configurations and
`config.json` are generated from these dataclasses.
"""

import dataclasses
import difflib
import fractions
import functools
import inspect
import math
import numbers
import re
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
# Upper bounds of fields without one: TensorFlow stores int64 and float32.
STORAGE_LIMITS = {int: 2**63 - 1, float: 3.4e38}
# Fields of `config.json` and `flags.txt` in version 0.2.0 that no dataclass has
# any more, and the only value that each had.
REMOVED_FIELDS = {"tpu": ""}
GIVEN = ()  # in `needs` and `excludes`: any value but the default


class Relation(typing.NamedTuple):
    """A condition on another field, void if this field has its default."""

    verb: str  # "needs" or "excludes"
    other: str  # the other field
    values: tuple  # of the other field; `GIVEN`: any but its default

    def __str__(self) -> str:
        condition = "=" * bool(self.values) + " or ".join(map(str, self.values))
        return f"{self.verb} {self.other}{condition}"


def hp(
    default: typing.Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    below: float | None = None,
    choices: typing.Sequence | None = None,
    needs: dict[str, typing.Any] | None = None,
    excludes: dict[str, typing.Any] | None = None,
    resolved_by: str | None = None,
    changeable: bool | None = None,
    inherited: bool = False,
    required: str | None = None,
    common: bool = False,
    group: str | None = None,
) -> typing.Any:
    """Makes a dataclass field with its help text and its valid values.

    Args:
        default: The default value.
        help: One line for `--help`: role, unit, and the paper's section.
        low: Smallest valid value, or None.
        high: Largest valid value; `STORAGE_LIMITS` applies if it is None.
        below: Exclusive upper bound, or None.
        choices: The valid values, or None.
        needs: Other fields, each with the value, the tuple of values, or
            `GIVEN`, that it must have unless this field has its default.
        excludes: Likewise, with the values that they must not have.
        resolved_by: The property that resolves None to the effective value.
        changeable: Whether the value may change between the sessions of a
            training; None if the class decides, see `Fields`.
        inherited: Whether a run that begins with the weights of another run
            takes the value from there.
        required: The kind of text that must be given, such as DIR; or None.
        common: Whether `--help` shows the flag, not only `--helpfull`.
        group: The title of this field and the next ones in `--help`, if it is
            not the first line of the class's docstring.

    Returns a `dataclasses.Field` with the above in its metadata.
    """
    relations = [
        Relation(verb, other, value if isinstance(value, tuple) else (value,))
        for verb, others in (("needs", needs), ("excludes", excludes))
        for other, value in (others or {}).items()
    ]
    metadata = {
        "help": help,
        "low": low,
        "high": high,
        "below": below,
        "choices": choices,
        "relations": relations,
        "resolved_by": resolved_by,
        "changeable": changeable,
        "inherited": inherited,
        "required": required,
        "common": common,
        "group": group,
    }
    return dataclasses.field(default=default, metadata=metadata)


def required(kind: str, help: str) -> typing.Any:
    """Makes the field of a text flag that must be given.

    `kind`, such as "DIR", stands for the value in messages.
    """
    return hp("", f"{help} Required.", required=kind, common=True)


def same_field(section: type, name: str, *default: typing.Any) -> typing.Any:
    """Copies a field of another dataclass, optionally with another default."""
    field = next(f for f in dataclasses.fields(section) if f.name == name)
    (default,) = default or (field.default,)
    return dataclasses.field(default=default, metadata=field.metadata)


def unhandled(**choice: typing.Any) -> NotImplementedError:
    """Makes the error for a choice of a field that the code does not handle.

    The error is a bug: a new choice needs code in every place that raises it.

    >>> raise unhandled(positions="rotary")
    Traceback (most recent call last):
    NotImplementedError: no code for positions='rotary'
    """
    ((name, value),) = choice.items()
    return NotImplementedError(f"no code for {name}={value!r}")


def names_of(section: typing.Any, **metadata: typing.Any) -> list[str]:
    """Lists the names of a dataclass's fields with certain metadata.

    >>> from keras_transformer.config import TransformerConfig
    >>> names_of(TransformerConfig, changeable=True)
    ['dropout', 'attention_dropout', 'activation_dropout']
    """
    return [
        field.name
        for field in dataclasses.fields(section)
        if metadata.items() <= dict(field.metadata).items()
    ]


def resolved(config: typing.Any, name: str) -> typing.Any:
    """Returns the value of a field, with None resolved by `resolved_by`.

    >>> from keras_transformer.config import TransformerConfig
    >>> resolved(TransformerConfig(d_model=128, num_heads=4), "d_key")
    32
    """
    field = config.__dataclass_fields__[name]
    return getattr(config, field.metadata["resolved_by"] or name)


@functools.cache
def kinds_of(section: typing.Any) -> dict[str, tuple[type, bool]]:
    """Maps the name of each field to its type and whether it may be None.

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
    """Raises ValueError if a value is not valid for its `hp` field.

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
        low, high, below, choices = (
            metadata[key] for key in ("low", "high", "below", "choices")
        )
        hint = ""
        if high is None:
            high = STORAGE_LIMITS.get(kind)
        if value is None and may_be_none:
            continue
        if not is_of_kind(value, kind):
            expected = TYPE_NAMES[kind] + (", or None" if may_be_none else "")
        elif choices is not None and value not in choices:
            expected = "one of " + ", ".join(map(repr, choices))
            near = difflib.get_close_matches(str(value).lower(), choices, 1)
            hint = f". Did you mean: {near[0]} ?" if near else ""
        elif low is not None and value < low:
            expected = f"at least {low}"
        elif high is not None and value > high:
            expected = f"at most {high}"
        elif below is not None and value >= below:
            expected = f"below {below}"
        else:
            continue
        raise ValueError(
            f"{name} must be {expected}. Received: {name}={value!r}{hint}"
        )


def check_options(*sections: typing.Any) -> None:
    """Raises ValueError if a field's `needs` or `excludes` is violated.

    Relations to a field that none of the dataclasses has are not checked.

    >>> from keras_transformer.config import TransformerConfig
    >>> TransformerConfig(max_positions=64)
    Traceback (most recent call last):
    ValueError: max_positions needs positions=learned. Received:\
 max_positions=64, positions='sinusoidal'
    """
    fields = {f.name: f for s in sections for f in dataclasses.fields(s)}
    values = {name: getattr(s, name) for s in sections for name in names_of(s)}
    for name, field in fields.items():
        value = values[name]
        for relation in field.metadata["relations"]:
            verb, other, expected = relation
            if value == field.default or other not in fields:
                continue
            is_given = values[other] != fields[other].default
            is_met = values[other] in expected if expected else is_given
            if is_met != (verb == "needs"):
                option = f"{name}={value}" if isinstance(value, bool) else name
                raise ValueError(
                    f"{option} {relation}. Received: {name}={value!r},"
                    f" {other}={values[other]!r}"
                )


def rules_of(field: dataclasses.Field) -> str:
    """Describes the bounds of a field, and what it needs and excludes.

    >>> from keras_transformer.config import TransformerConfig
    >>> rules_of(TransformerConfig.__dataclass_fields__["max_positions"])
    'At least 2. At most 1000000. Needs positions=learned.'
    """
    bounds = {"low": "At least", "high": "At most", "below": "Below"}
    rules = [
        f"{words} {field.metadata[bound]}."
        for bound, words in bounds.items()
        if field.metadata[bound] is not None
    ]
    for relation in map(str, field.metadata["relations"]):
        if isinstance(field.default, bool):
            rules.append(f"{not field.default} {relation}.")
        else:
            rules.append(f"{relation[0].upper()}{relation[1:]}.")
    return " ".join(rules)


def check_positive(**numbers: typing.Any) -> None:
    """Raises ValueError if a number is not a whole number of at least 1."""
    for name, number in numbers.items():
        if not is_of_kind(number, int) or number < 1:
            raise ValueError(
                f"{name} must be a whole number of at least 1."
                f" Received: {name}={number!r}"
            )


def is_of_kind(value: typing.Any, kind: type) -> bool:
    """Tells whether a value has a type, a key of `TYPE_NAMES`.

    Whole numbers are also numbers, and NumPy's types are accepted. True and
    false are neither. Infinities and NaN are not numbers.

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


def read_amounts(name: str, text: str) -> dict[str, fractions.Fraction]:
    """Reads numbers by name from a field of text such as `"a 0.5, b 2"`.

    `name` is the field's, for messages; `text` may be a part of its value.
    Raises ValueError if an entry is malformed, or 0, or if a name is repeated.

    >>> read_amounts("modifiers", "UpperCase 0.5, Merge 0.25")
    {'UpperCase': Fraction(1, 2), 'Merge': Fraction(1, 4)}
    """
    amounts = {}
    for entry in text.split(","):
        match = re.fullmatch(
            r"\s*(\S+)\s+(\d+(?:\.\d+)?|\.\d+)\s*", entry, re.ASCII
        )
        number = fractions.Fraction(match[2] if match else 0)
        if not match or not number or match[1] in amounts:
            raise ValueError(
                f"{name} must be NAME NUMBER[, NAME NUMBER ...], each name"
                " once, each number above 0."
                f" Received: {entry.strip()!r} in {name}={text.strip()!r}"
            )
        amounts[match[1]] = number
    return amounts


@typing.dataclass_transform(frozen_default=True)
class Fields:
    """Base class of every configuration: a dataclass made of `hp` fields.

    Subclasses become frozen dataclasses without a decorator. An instance checks
    its values when it is made. The docstring, which `help` shows, lists the
    fields. A subclass that checks more than its single fields extends
    `__post_init__` and calls this one first.

    A field may change between the sessions of a training if its `changeable`
    is True. The class sets it for fields where it is None:
    `class Config(Fields, changeable=True)`.
    """

    def __init_subclass__(cls, changeable: bool = False) -> None:
        super().__init_subclass__()
        doc = inspect.cleandoc(cls.__doc__ or cls.__name__)
        dataclasses.dataclass(frozen=True)(cls)
        lines = ["", "", "Attributes:"]
        for field in dataclasses.fields(cls):  # type: ignore[arg-type]
            if field.metadata["changeable"] is None:
                changed = {**field.metadata, "changeable": changeable}
                field.metadata = types.MappingProxyType(changed)
            text = f"{field.name}: {field.metadata['help']}"
            text += f" Default: {field.default!r}."
            if choices := field.metadata["choices"]:
                text += f" One of {', '.join(map(repr, choices))}."
            lines += textwrap.wrap(
                f"{text} {rules_of(field)}",
                76,
                break_long_words=False,
                break_on_hyphens=False,
                initial_indent=" " * 4,
                subsequent_indent=" " * 8,
            )
        cls.__doc__ = doc + "\n".join(lines)

    def __post_init__(self) -> None:
        check_values(type(self), **vars(self))
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            kind = field.metadata["required"]
            if kind and not getattr(self, field.name):
                raise ValueError(
                    f"expected --{field.name}={kind}. Received: no {field.name}"
                )
        check_options(self)


def from_values(section: type, values: dict[str, typing.Any]) -> typing.Any:
    """Makes a dataclass of `hp` fields from values by name, as read from JSON.

    A field of type tuple also takes a list. Raises ValueError if a name is
    unknown or a value is invalid.

    >>> from keras_transformer.config import DecodingConfig
    >>> from_values(DecodingConfig, {"beam": 4})
    Traceback (most recent call last):
    ValueError: unknown fields: beam
    """
    kinds = kinds_of(section)
    if unknown := sorted(str(name) for name in values if name not in kinds):
        raise ValueError(f"unknown fields: {', '.join(unknown)}")
    for name, value in values.items():
        if kinds[name][0] is tuple and isinstance(value, list):
            values = {**values, name: tuple(value)}
    return section(**values)
