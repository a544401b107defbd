"""YAML of other systems: their options, and vocabularies."""

import pathlib
import typing

from keras_transformer.commands import flags

# A vocabulary of a million subwords is smaller.
MOST_BYTES = 1 << 26


def read_options(path: pathlib.Path) -> dict[str, typing.Any]:
    """The options in a file: numbers and booleans are read as such.

    Raises:
        ValueError: It is no YAML, or something else than options by name.
        OSError: It cannot be read.
    """
    return parse_options(_read(path), path)


def parse_options(text: str, path: typing.Any) -> dict[str, typing.Any]:
    """`read_options` of a text, which messages say stands at `path`."""
    return _parse(text, path, "SafeLoader", "CSafeLoader")


def read_strings(path: pathlib.Path) -> dict[str, str]:
    """Strings by strings: what YAML would take for numbers are strings, too.

    Raises:
        ValueError, OSError: As `read_options`.
    """
    found = _parse(_read(path), path, "BaseLoader", "CBaseLoader")
    for key, value in found.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise ValueError(
                f"{path}: expected strings by strings. Received:"
                f" {key!r}: {value!r}"
            )
    return found


def _read(path):
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(
            f"{path}: expected at most {MOST_BYTES} bytes."
            f" Received: {path.stat().st_size}"
        )
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8: {error}") from None


def _parse(text, path, loader, fast_loader):
    """A mapping, by libyaml's loader if PyYAML was built with it."""
    try:
        import yaml
    except ImportError:
        raise ValueError(
            f"reading {path} needs PyYAML: {flags.how_to_install('import')}"
        ) from None
    loader = getattr(yaml, fast_loader, getattr(yaml, loader))
    try:
        found = yaml.load(text, Loader=loader)  # one of the safe ones
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path}: not YAML: {reason}") from None
    if not isinstance(found, dict):
        raise ValueError(
            f"{path}: expected options by name. Received:"
            f" {type(found).__name__}"
        )
    return found
