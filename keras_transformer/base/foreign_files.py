"""Opens the files of other systems, which may hold anything.

Every importer opens its files here: a file must be a regular one (a device or a
pipe would never end) of limited size. `shown` quotes their values in messages.
"""

import contextlib
import pathlib
import reprlib
import typing
from collections.abc import Iterator, Sequence

from keras_transformer.base import files
from keras_transformer.base.refusals import expect

MAX_TEXT = 16 << 20  # bytes of a vocabulary or of a file of options
MAX_WEIGHTS = 16 << 30  # bytes

# Values may be nested, and shared, so often that `repr` would not end.
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 60
_SHORT.maxlevel = 3


@contextlib.contextmanager
def named_errors(path: typing.Any, problem: str = "") -> Iterator[None]:
    """Makes one line of every error in the block: path, problem and reason.

    A reader may raise nearly anything for a corrupt file. Errors of the system,
    such as a full disk, stay as they are.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{path}: {problem}{reason[:300]}") from None


def check_file(path: pathlib.Path, limit: int = MAX_WEIGHTS) -> int:
    """Returns the size of a regular file in bytes, or raises ValueError."""
    expect(path.is_file(), f"a file {path}", "none")
    size = path.stat().st_size
    expect(size <= limit, f"at most {limit} bytes", size, where=path)
    return size


def only(paths: Sequence[pathlib.Path], expected: str) -> pathlib.Path:
    """Returns the only one of several candidates, or raises ValueError."""
    if len(paths) != 1:
        found = ", ".join(path.name for path in paths) or "none"
        raise ValueError(f"expected {expected}. Received: {found}")
    return paths[0]


def read_file(path: pathlib.Path, limit: int = MAX_TEXT) -> bytes:
    """Reads a regular file, or raises ValueError."""
    check_file(path, limit)
    return path.read_bytes()


def read_text(path: pathlib.Path, limit: int = MAX_TEXT) -> str:
    """Reads the text of a file, which must be UTF-8."""
    content = read_file(path, limit)
    with named_errors(path, "not UTF-8: "):
        return content.decode("utf-8")


def read_json(
    path: pathlib.Path, limit: int = MAX_TEXT
) -> dict[str, typing.Any]:
    """Reads the object in a JSON file."""
    check_file(path, limit)
    return files.read_json(path)


def read_json_if_any(
    path: pathlib.Path, limit: int = MAX_TEXT
) -> dict[str, typing.Any]:
    """Reads the object in a JSON file; it is empty if there is no file."""
    return read_json(path, limit) if path.exists() else {}


def shown(value: typing.Any) -> str:
    """Shortens a value for a message, however large it is.

    >>> shown({"a": [1, 2]}), shown(10**5000)
    ("{'a': [1, 2]}", 'a number of 16610 bits')
    """
    if type(value) is int and value.bit_length() > 1024:
        return f"a number of {value.bit_length()} bits"
    try:
        return " ".join(_SHORT.repr(value).split())
    except ValueError:  # such a number inside of it
        return f"a {type(value).__name__}"
