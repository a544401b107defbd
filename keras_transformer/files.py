"""Files that appear whole or not at all, and JSON with errors of one line."""

import contextlib
import json
import os
import pathlib
import typing
import uuid
from collections.abc import Iterator


@contextlib.contextmanager
def new_file(path: str | os.PathLike) -> Iterator[typing.BinaryIO]:
    """A binary file to write, which gets its name when the block ends well.

    Readers see all of it, or the file before. A link stays a link: its target
    is written. A path that is no regular file, such as /dev/stderr, is written
    in place.
    """
    path = pathlib.Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        with open(path, "wb") as file:
            yield file
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # A process id is not unique where machines share a directory.
    unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        with naming(path):
            with open(unfinished, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextlib.contextmanager
def naming(path: str | os.PathLike) -> Iterator[None]:
    """Names a file in errors of the system that name none, as of a disk."""
    try:
        yield
    except OSError as error:
        if error.errno and not error.filename:
            error.filename = str(path)
        raise


def write_atomically(path: str | os.PathLike, content: str | bytes) -> None:
    """Writes a `new_file`."""
    if isinstance(content, str):
        content = content.encode("utf-8")
    with new_file(path) as file:
        file.write(content)


def read_json(path: str | os.PathLike) -> dict:
    """The object in a file of JSON.

    Raises:
        FileNotFoundError, NotADirectoryError: There is no such file.
        ValueError: It is not a JSON object.
    """
    try:
        with naming(path):
            text = pathlib.Path(path).read_text(encoding="utf-8")
        value = json.loads(text)
    except RecursionError:
        raise ValueError(f"{path}: not JSON: nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{path}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(
            f"{path}: expected an object. Received: {type(value).__name__}"
        )
    return value
