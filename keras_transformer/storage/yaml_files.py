"""YAML: options and vocabularies of other systems, plans of `synthesize`.

Aliases can turn a short file into a huge value, and nested lists can overflow
the loader's stack. So a file is first checked as a sequence of events, which
takes little memory.
"""

import collections
import pathlib
import re
import types
import typing
from collections.abc import Iterator

from keras_transformer.base.foreign_files import named_errors, read_text, shown
from keras_transformer.commands import flags

MAX_VALUES = 100_000  # of options, including the values that aliases repeat
MAX_NESTING = 32
MAX_SCALAR = 10_000  # characters


def read_options(path: pathlib.Path) -> dict[str, typing.Any]:
    """Reads the options in a file as strings, numbers, booleans and lists.

    YAML 1.1's numbers in base 60 and 8 are text: 1:30 is not 90, and 010 is
    not 8. Raises ValueError if a name is repeated, or if the file is not YAML
    or exceeds the limits of this module.
    """
    return parse_options(read_text(path), path)


def parse_options(text: str | bytes, path: typing.Any) -> dict[str, typing.Any]:
    """Reads options from text as `read_options` does. Messages name `path`."""
    yaml = _import_yaml(path)
    _check_events(yaml, text, path)
    # A tag such as !!bool before another scalar may raise nearly anything.
    with named_errors(path, "not YAML: "):
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        _check_node(yaml, node)
        found = loader.construct_document(node) if node else None
    if not isinstance(found, dict):
        raise ValueError(
            f"{path}: expected options by name. Received:"
            f" {type(found).__name__}"
        )
    return found


def read_strings(path: pathlib.Path) -> dict[str, str]:
    """Reads a mapping from strings to strings. Numbers are strings, too.

    Raises ValueError if the file is anything else, or if a key is repeated.
    """
    yaml = _import_yaml(path)
    events = _parse(yaml, read_text(path), path)
    found: dict[str, str] = {}
    if isinstance(next(events, None), yaml.MappingStartEvent):
        for key in events:
            value = next(events, None)
            if isinstance(key, yaml.MappingEndEvent) and value is None:
                return found
            if not isinstance(key, yaml.ScalarEvent) or not isinstance(
                value, yaml.ScalarEvent
            ):
                break
            if key.value in found:
                raise ValueError(f"{path}: {shown(key.value)} occurs twice")
            found[key.value] = value.value
    raise ValueError(f"{path}: expected strings by strings")


def _parse(
    yaml: types.ModuleType, text: str | bytes, path: typing.Any
) -> Iterator[typing.Any]:
    """Yields the events of a text, except the start and end of documents."""
    of_values = (yaml.NodeEvent, yaml.CollectionEndEvent)
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    with named_errors(path, "not YAML: "):
        for event in yaml.parse(text, Loader=loader):
            if isinstance(event, of_values):
                yield event


def _check_events(
    yaml: types.ModuleType, text: str | bytes, path: typing.Any
) -> None:
    """Raises ValueError for nesting, aliases or values beyond the limits."""
    num_values = 0
    open_values: list[tuple[typing.Any, int]] = []  # anchor, values before
    sizes: dict[typing.Any, int] = {}  # of complete values, by anchor
    for event in _parse(yaml, text, path):
        num_values += 1
        if isinstance(event, yaml.CollectionStartEvent):
            open_values.append((event.anchor, num_values))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_values.pop()
            sizes[anchor] = num_values - before
        elif isinstance(event, yaml.AliasEvent):
            # An alias of a value that contains it has no size yet.
            num_values += sizes.get(event.anchor, 0)
            if any(event.anchor == anchor for anchor, _ in open_values):
                raise ValueError(f"{path}: an alias contains itself")
        elif len(event.value) > MAX_SCALAR:
            raise ValueError(
                f"{path}: expected at most {MAX_SCALAR} characters in a value."
                f" Received: {shown(event.value)}"
            )
        if len(open_values) > MAX_NESTING:
            raise ValueError(f"{path}: expected at most {MAX_NESTING} levels")
        if num_values > MAX_VALUES:
            raise ValueError(f"{path}: expected at most {MAX_VALUES} values")


def _check_node(yaml: types.ModuleType, node: typing.Any) -> None:
    """Raises ValueError for repeated names; turns some numbers into text."""
    if isinstance(node, yaml.MappingNode):
        names = collections.Counter(str(key.value) for key, _ in node.value)
        for name, number in names.most_common(1):
            if number > 1:
                raise ValueError(f"{shown(name)} occurs twice")
    if isinstance(node, yaml.CollectionNode):
        for child in node.value:
            for part in child if isinstance(child, tuple) else [child]:
                _check_node(yaml, part)
    elif node and node.tag.endswith((":int", ":float")):
        if re.search(r":|^[-+]?0[0-7_]+$", node.value):
            node.tag = "tag:yaml.org,2002:str"


def _import_yaml(path: typing.Any) -> types.ModuleType:
    """Imports PyYAML. Raises ValueError if the extra `import` is missing."""
    try:
        import yaml
    except ImportError:
        raise ValueError(
            f"reading {path} needs yaml: {flags.how_to_install('import')}"
        ) from None
    return yaml
