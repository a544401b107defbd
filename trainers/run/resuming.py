"""Helpers of commands that resume where they were stopped."""

import contextlib
import json
import os
import typing
from collections.abc import Iterator

from keras_transformer.base.files import write_atomically
from keras_transformer.base.refusals import LostProcessError
from keras_transformer.commands.flags import DISK_ERRORS, RunError


def describe_differences(
    before: dict[str, typing.Any], after: dict[str, typing.Any]
) -> str:
    """Describes the entries in which two dictionaries differ.

    >>> describe_differences({"a": 1, "b": 2}, {"a": 1, "b": 3})
    'b was 2 and is 3'
    """
    return "; ".join(
        f"{name} was {before.get(name)!r} and is {after.get(name)!r}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    )


def describe_file(path: str | os.PathLike) -> str:
    """Describes a file by path, size in bytes and time of change in ns."""
    status = os.stat(path)
    return f"{path} ({status.st_size} bytes, {status.st_mtime_ns})"


def write_json(path: str | os.PathLike, value: typing.Any) -> None:
    """Writes a JSON file under a temporary name, then renames it."""
    write_atomically(path, json.dumps(value, indent=1) + "\n")


@contextlib.contextmanager
def run_errors(path: str | os.PathLike) -> Iterator[None]:
    """Turns disk errors and `LostProcessError` of the body into a RunError.

    Disk errors are those in `DISK_ERRORS`; `path` is named in the message.
    Other errors are bugs, and pass unchanged.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_ERRORS:
            raise
        reason = f"cannot write to {path}: {error.strerror}"
    except LostProcessError as error:
        reason = str(error)
    else:
        return
    raise RunError(f"{reason}. Rerun the same command to resume")
