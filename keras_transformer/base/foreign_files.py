"""Opens the files of other systems, which may hold anything.

Every importer opens its files here. A file must be regular (a device or a pipe
might never end) and of limited size. `shown` quotes values in messages.
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

# Values may be nested or shared so often that `repr` would not end.
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 60
_SHORT.maxlevel = 3


@contextlib.contextmanager
def named_errors(path: typing.Any, problem: str = "") -> Iterator[None]:
    """Turns errors in the block into a ValueError: path, problem and reason.

    The message is one line. A reader may raise nearly any exception for a
    corrupt file. System errors, such as a full disk, are not changed.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{path}: {problem}{reason[:300]}") from None


def check_file(path: pathlib.Path, limit: int = MAX_WEIGHTS) -> int:
    """Returns the size of a file in bytes.

    Raises ValueError if it is not a regular file of at most `limit` bytes.
    """
    expect(path.is_file(), f"a file {path}", "none")
    size = path.stat().st_size
    expect(size <= limit, f"at most {limit} bytes", size, where=path)
    return size


def only(paths: Sequence[pathlib.Path], expected: str) -> pathlib.Path:
    """Returns the only path. Raises ValueError unless there is exactly one."""
    if len(paths) != 1:
        found = ", ".join(path.name for path in paths) or "none"
        raise ValueError(f"expected {expected}. Received: {found}")
    return paths[0]


def read_file(path: pathlib.Path, limit: int = MAX_TEXT) -> bytes:
    """Reads the bytes of a file that passes `check_file`."""
    check_file(path, limit)
    return path.read_bytes()


def read_text(path: pathlib.Path, limit: int = MAX_TEXT) -> str:
    """Reads a text file. Raises ValueError if it is not UTF-8."""
    content = read_file(path, limit)
    with named_errors(path, "not UTF-8: "):
        return content.decode("utf-8")


def read_json(
    path: pathlib.Path, limit: int = MAX_TEXT
) -> dict[str, typing.Any]:
    """Reads the object in a JSON file that passes `check_file`."""
    check_file(path, limit)
    return files.read_json(path)


def read_json_if_any(
    path: pathlib.Path, limit: int = MAX_TEXT
) -> dict[str, typing.Any]:
    """Reads the object in a JSON file, or returns {} if there is no file."""
    return read_json(path, limit) if path.exists() else {}


def shown(value: typing.Any) -> str:
    """Formats a value for a message, shortened if it is large.

    >>> shown({"a": [1, 2]}), shown(10**5000)
    ("{'a': [1, 2]}", 'a number of 16610 bits')
    """
    if type(value) is int and value.bit_length() > 1024:
        return f"a number of {value.bit_length()} bits"
    try:
        return " ".join(_SHORT.repr(value).split())
    except ValueError:  # the value contains such a number
        return f"a {type(value).__name__}"
