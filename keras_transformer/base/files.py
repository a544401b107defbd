"""Files and directories that appear only when complete, and checked JSON.

JSON files that only programs write contain a checksum of their other values.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import typing
import uuid
from collections.abc import Iterator

from keras_transformer.base.refusals import expect

CHECKSUM = "checksum"


@contextlib.contextmanager
def new_file(path: str | os.PathLike) -> Iterator[typing.BinaryIO]:
    """Opens a binary file, which gets its name when the block succeeds.

    Until then readers see the old file, if there is one. A link stays a link:
    its target is replaced. A path that is not a regular file, such as
    /dev/stderr, is written in place.
    """
    path = pathlib.Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        with open(path, "wb") as file:
            yield file
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = _unfinished(path)
    try:
        with naming(path):
            with open(unfinished, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def check_new(path: str | os.PathLike, option: str = "workdir") -> pathlib.Path:
    """Returns the absolute path of a directory to be made.

    Raises ValueError if the path exists and is not an empty directory. The
    message names `option`.
    """
    path = pathlib.Path(path).absolute()
    is_free = not path.exists() or (path.is_dir() and not any(path.iterdir()))
    new = "a directory that does not exist yet"
    expect(is_free, new, f"{option}={str(path)!r}")
    return path


@contextlib.contextmanager
def new_directory(
    path: str | os.PathLike, parents: bool = True
) -> Iterator[pathlib.Path]:
    """Makes a directory, which gets its name when the block succeeds.

    Until then its name is like NAME.1f3b2c7d. An error in the block removes it.
    An empty directory at the path is replaced. Raises OSError if there is
    anything else, or if a parent is missing and `parents` is False.
    """
    unfinished = _unfinished(pathlib.Path(path))
    unfinished.mkdir(parents=parents)
    try:
        yield unfinished
        os.rename(unfinished, path)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _unfinished(path: pathlib.Path) -> pathlib.Path:
    # A process id is not unique where machines share a directory.
    return path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}")


@contextlib.contextmanager
def naming(path: str | os.PathLike) -> Iterator[None]:
    """Adds the name of a file to system errors that lack a file name."""
    try:
        yield
    except OSError as error:
        if error.errno and not error.filename:
            error.filename = str(path)
        raise


def write_atomically(path: str | os.PathLike, content: str | bytes) -> None:
    """Writes a file as `new_file` does; text is encoded as UTF-8."""
    if isinstance(content, str):
        content = content.encode("utf-8")
    with new_file(path) as file:
        file.write(content)


def sha256_of(path: str | os.PathLike) -> str:
    """Returns the SHA-256 of a file, in hexadecimal."""
    with naming(path), open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sums_of(directory: pathlib.Path) -> dict[str, str]:
    """Maps the relative path of each file below a directory to its SHA-256."""
    paths = sorted(filter(pathlib.Path.is_file, directory.rglob("*")))
    return {p.relative_to(directory).as_posix(): sha256_of(p) for p in paths}


def check_sums(directory: pathlib.Path, sums: dict[str, str]) -> None:
    """Raises ValueError if a file is missing or its SHA-256 differs."""
    for name, wanted in sums.items():
        path = directory / name
        found = sha256_of(path) if path.is_file() else None
        if found != wanted:
            state = "corrupt" if found else "missing"
            raise ValueError(
                f"{directory}: {name} is {state}. Expected SHA-256 {wanted}."
                f" Received: {found}"
            )


def checksum_of(values: dict[str, typing.Any]) -> str:
    """Returns the SHA-256 of JSON values by name, without their checksum."""
    others = {n: value for n, value in values.items() if n != CHECKSUM}
    text = json.dumps(others, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def with_checksum(values: dict[str, typing.Any]) -> dict[str, typing.Any]:
    """Returns JSON values by name with their checksum added."""
    return values | {CHECKSUM: checksum_of(values)}


def check_checksum(values: dict[str, typing.Any]) -> None:
    """Raises ValueError if the checksum among the values is not theirs."""
    computed, stated = checksum_of(values), values.get(CHECKSUM)
    expect(stated == computed, f"the checksum {computed}", checksum=stated)


def unique_names(pairs: list[tuple[str, typing.Any]]) -> dict:
    """Makes a dictionary of pairs. Raises ValueError if a name is repeated."""
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a name occurs twice in an object")
    return values


def read_json(path: str | os.PathLike) -> dict:
    """Reads the object in a JSON file.

    Raises FileNotFoundError or NotADirectoryError if there is no such file, and
    ValueError if it is not a JSON object or repeats a name in an object.
    """
    try:
        with naming(path):
            text = pathlib.Path(path).read_text(encoding="utf-8")
        value = json.loads(text, object_pairs_hook=unique_names)
    except RecursionError:
        raise ValueError(f"{path}: not JSON: nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{path}: not JSON: {error}") from None
    kind = type(value).__name__
    expect(isinstance(value, dict), "an object", kind, where=path)
    return value


def read_checked_json(path: str | os.PathLike, version: int) -> dict:
    """Reads the object in a JSON file with a version and a checksum.

    Raises the errors of `read_json`, and ValueError if the file has another
    `format_version` or has changed since it was written.
    """
    values = read_json(path)
    found = values.get("format_version")
    expect(
        found == version,
        f"format_version {version}",
        format_version=found,
        where=path,
    )
    try:
        check_checksum(values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return values
