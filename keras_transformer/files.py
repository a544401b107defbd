"""Files that appear whole or not at all, and JSON with errors of one line.

JSON that only programs write has a checksum of its other values.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import typing
import uuid
from collections.abc import Iterator

CHECKSUM = "checksum"


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


def sha256_of(path: str | os.PathLike) -> str:
    """The SHA-256 of a file."""
    with naming(path), open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def checksum_of(values: dict[str, typing.Any]) -> str:
    """The SHA-256 of JSON values by name, without their checksum."""
    others = {n: value for n, value in values.items() if n != CHECKSUM}
    text = json.dumps(others, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def with_checksum(values: dict[str, typing.Any]) -> dict[str, typing.Any]:
    """JSON values by name, with their checksum."""
    return values | {CHECKSUM: checksum_of(values)}


def check_checksum(values: dict[str, typing.Any]) -> None:
    """Raises ValueError if values do not have their checksum."""
    if values.get(CHECKSUM) != checksum_of(values):
        raise ValueError(
            f"expected the checksum {checksum_of(values)}."
            f" Received: {CHECKSUM}={values.get(CHECKSUM)!r}"
        )


def unique_names(pairs: list[tuple[str, typing.Any]]) -> dict:
    """A JSON object of its names and values; ValueError if a name is twice."""
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a name occurs twice in an object")
    return values


def read_json(path: str | os.PathLike) -> dict:
    """The object in a file of JSON, each name once.

    Raises FileNotFoundError, NotADirectoryError: there is no such file;
    ValueError: it is not a JSON object.
    """
    try:
        with naming(path):
            text = pathlib.Path(path).read_text(encoding="utf-8")
        value = json.loads(text, object_pairs_hook=unique_names)
    except RecursionError:
        raise ValueError(f"{path}: not JSON: nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{path}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(
            f"{path}: expected an object. Received: {type(value).__name__}"
        )
    return value


def read_checked_json(path: str | os.PathLike, version: int) -> dict:
    """The object in a file that `with_checksum` and a version are in.

    Raises FileNotFoundError, NotADirectoryError, ValueError: as `read_json`, or
    another version wrote it, or it has changed since.
    """
    values = read_json(path)
    if values.get("format_version") != version:
        raise ValueError(
            f"{path}: expected format_version {version}."
            f" Received: format_version={values.get('format_version')!r}"
        )
    try:
        check_checksum(values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return values
