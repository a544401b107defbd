"""The directory of a bulk translation: its plan and its shards.

    plan.json           shards and settings, written once
    00000/ ...          finished shards:
        translation.txt     the output lines
        notes.txt           warnings about lines, if there are any
        record.json         counts, and what the shard was made from
    00000.1f3b2c7d/     a shard that is being translated; if the process was
                        killed, a later process removes the directory
    plan.input          the decompressed input, if the input is .gz
    plan.lock           byte N is locked while a process translates shard N

Processes on one or several machines coordinate only through this directory:

- Processes that begin at the same time each make the plan. All make the same
  one, which appears by a rename.
- The locks are `fcntl` locks, which NFS passes to its server. The kernel
  releases them however a process ends. An NFS server releases the locks of a
  machine that no longer renews its lease. So a dead process blocks no shard.
  The lock file is never removed, because a machine that has cached its name
  would lock the removed file.
- A shard appears, with its record, by one rename of a directory. A rename never
  replaces a directory that has files, so the first process to finish a shard
  determines it, and others discard their work. Correctness does not depend on
  the locks: if locks do not reach other machines (NFS mounted with `nolock` or
  `local_lock`), machines only repeat each other's work.
"""

import contextlib
import dataclasses
import fcntl
import gzip
import hashlib
import itertools
import os
import pathlib
import re
import shutil
import typing
import zlib
from collections.abc import Iterator

from keras_transformer import __version__
from keras_transformer.base.files import (
    CHECKSUM,
    new_directory,
    new_file,
    read_checked_json,
    sha256_of,
    with_checksum,
)
from keras_transformer.base.locking import lock_file, without_empty_directories
from keras_transformer.base.refusals import expect
from keras_transformer.commands import flags
from keras_transformer.data.files.pairs import text_lines
from trainers.run.resuming import describe_differences, write_json

FORMAT_VERSION = 2  # of plan and records
# Other commands use none of these names in their directories.
PLAN, INPUT, LOCK = "plan.json", "plan.input", "plan.lock"
TRANSLATION, NOTES, RECORD = "translation.txt", "notes.txt", "record.json"
SHOWN = 10  # shards that a message lists


class Shard(typing.NamedTuple):
    """Some consecutive lines of the input."""

    number: int  # from 0
    first_line: int  # number of the first line in the input, from 1
    lines: int  # number of lines
    offset: int  # byte offset in the source
    bytes: int  # number of bytes
    sha256: str  # of these bytes

    @property
    def name(self) -> str:
        """Name of its directory when it is finished."""
        return f"{self.number:05}"


@dataclasses.dataclass(frozen=True)
class Plan:
    """A plan on disk."""

    path: pathlib.Path  # its directory
    source: pathlib.Path  # the input, or its decompressed copy if it is .gz
    input_stamp: list[int]  # size (bytes) and time of change (ns) of the input
    settings: dict[str, typing.Any]  # all that determines the output
    shards: list[Shard]  # in the order of the input
    checksum: str  # checksum of plan.json

    @property
    def lines(self) -> int:
        """Number of lines in the input."""
        return sum(shard.lines for shard in self.shards)

    @property
    def finished_lines(self) -> int:
        """Number of lines in finished shards."""
        return self.lines - sum(shard.lines for shard in self.unfinished())

    def is_input(self, path: pathlib.Path) -> bool:
        """Tells whether a non-empty file has the input's contents."""
        size = self.input_stamp[0]
        if not size or not path.is_file() or path.stat().st_size != size:
            return False
        return sha256_of(path) == self.settings["input_sha256"]

    def unfinished(self) -> list[Shard]:
        """Returns the shards that are not finished yet."""
        names = set(os.listdir(self.path))
        return [shard for shard in self.shards if shard.name not in names]

    def read(self, shard: Shard) -> bytes:
        """Reads the source lines of a shard, as bytes.

        Raises CommandError if they have changed since the plan was made.
        """
        with flags.user_errors(), open(self.source, "rb") as file:
            file.seek(shard.offset)
            data = file.read(shard.bytes)
        if hashlib.sha256(data).hexdigest() != shard.sha256:
            raise flags.CommandError(
                f"{self.source} has changed since {self.path / PLAN} was made:"
                f" lines {shard.first_line:,} to"
                f" {shard.first_line + shard.lines - 1:,} no longer match it"
            )
        return data

    @contextlib.contextmanager
    def claim(self, shard: Shard) -> Iterator[bool]:
        """Locks a shard, and yields whether this process may work on it.

        A process may claim only one shard at a time, because closing any
        descriptor of the lock file releases all of its locks.
        """
        with flags.user_errors():
            lock = lock_file(
                self.path / LOCK,
                lambda file, kind: fcntl.lockf(file, kind, 1, shard.number),
            )
        try:
            yield lock is not None and not (self.path / shard.name).exists()
        finally:
            if lock is not None:
                os.close(lock)

    @contextlib.contextmanager
    def publish(self, shard: Shard) -> Iterator[pathlib.Path]:
        """Makes a directory that becomes the shard if the body succeeds.

        If another process finishes the shard meanwhile, that shard is kept.
        """
        finished = self.path / shard.name
        try:
            with contextlib.ExitStack() as stack:
                new = new_directory(finished, parents=False)
                with flags.user_errors():
                    directory = stack.enter_context(new)
                yield directory
        except OSError:
            if not finished.exists():
                raise

    def remove_leftovers(self) -> None:
        """Removes killed processes' directories of shards that are finished."""
        left = {shard.name for shard in self.unfinished()}
        for leftover in self.path.glob("[0-9]*.????????"):
            if leftover.stem not in left:
                shutil.rmtree(leftover, ignore_errors=True)

    def read_record(self, shard: Shard) -> dict[str, typing.Any]:
        """Reads the record of a finished shard: counts and checksums.

        Raises CommandError if it is corrupt.
        """
        with flags.user_errors():
            return self._read_record(shard)

    def _read_record(self, shard):
        path = self.path / shard.name / RECORD
        return read_checked_json(path, FORMAT_VERSION)

    def write_record(
        self, shard: Shard, directory: pathlib.Path, **values: typing.Any
    ) -> None:
        """Writes a shard's record: `values`, and what it was made from."""
        values |= {
            "format_version": FORMAT_VERSION,
            "plan_checksum": self.checksum,
            "shard": shard.number,
            "source_sha256": shard.sha256,
        }
        write_json(directory / RECORD, with_checksum(values))

    def check_shards(self) -> list[pathlib.Path]:
        """Compares all shards with their records.

        Returns the paths of the translations in order. Raises ValueError, with
        the names of the shards, if some are missing or corrupt.
        """
        missing = self.unfinished()
        if missing:
            raise ValueError(
                f"{self.path}: {len(missing)} of {len(self.shards)} shards are"
                f" not finished: {listed([s.name for s in missing])}"
            )
        problems = [
            f"{shard.name} ({problem})"
            for shard in self.shards
            if (problem := self._find_problem(shard))
        ]
        if problems:
            raise ValueError(
                f"{self.path}: corrupt shards: {listed(problems)}. Remove"
                " their directories and translate again"
            )
        return [self.path / shard.name / TRANSLATION for shard in self.shards]

    def _find_problem(self, shard):
        """Describes why a finished shard is corrupt. Returns None if intact."""
        try:
            record = self._read_record(shard)
            found = sha256_of(self.path / shard.name / TRANSLATION)
        except (FileNotFoundError, NotADirectoryError, ValueError) as error:
            return " ".join(str(error).split())
        if record["plan_checksum"] != self.checksum:
            return "made by another plan"
        if record["shard"] != shard.number:
            return f"it is shard {record['shard']:05}"
        if record["source_sha256"] != shard.sha256:
            return "made from other lines"
        if record["sha256"] != found:
            return f"checksum mismatch in {TRANSLATION}"
        settings = self.settings
        is_bare = not settings["n_best"] and (
            settings["num_samples"] == 1 or settings["consensus"]
        )
        if is_bare and record["lines"] != shard.lines:
            return f"{record['lines']} lines instead of {shard.lines}"
        return None


def open_plan(
    directory: str | os.PathLike,
    input: str | os.PathLike,
    settings: dict[str, typing.Any],
) -> Plan:
    """Opens the plan of a directory, or makes one if there is none.

    A .gz is decompressed once to a copy, as it has no random access. Adds the
    hash of the input and the version of the package to the settings.

    Raises ValueError if the input is not a regular file or is a corrupt .gz, or
    if the directory has another plan or other files; OSError if a file cannot
    be read or written.
    """
    path, input = pathlib.Path(directory), pathlib.Path(input)
    check_paths(path, input)
    if not (path / PLAN).exists():
        with without_empty_directories(path):
            _make_plan(path, input, settings)
    plan = read_plan(path)
    if input.suffix != ".gz":
        plan = dataclasses.replace(plan, source=input)
    sha256 = plan.settings["input_sha256"]
    # If size and time are unchanged, the plan's hash is trusted: the hash of
    # each shard is checked when it is read.
    if plan.input_stamp != _stamp(input):
        sha256 = sha256_of(input)
    now = settings | {"input_sha256": sha256, "package_version": __version__}
    differences = describe_differences(plan.settings, now)
    if differences:
        raise ValueError(
            f"{path} has another plan: {differences}. Choose another directory"
        )
    return plan


def read_plan(directory: str | os.PathLike) -> Plan:
    """Reads the plan of a directory. Its source is the copy of the input.

    Raises ValueError if there is no plan, or if it is corrupt.
    """
    path = pathlib.Path(directory)
    try:
        values = read_checked_json(path / PLAN, FORMAT_VERSION)
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(
            "expected a directory that kt-translate-corpus made, with a"
            f" {PLAN}. Received: output={str(path)!r}"
        ) from None
    return Plan(
        path,
        path / INPUT,
        values["input_stamp"],
        values["settings"],
        [Shard(**shard) for shard in values["shards"]],
        values[CHECKSUM],
    )


def check_paths(path: pathlib.Path, input: pathlib.Path) -> None:
    """Raises ValueError if the directory or the input cannot be used.

    The input must be a regular file. A directory without a plan must not
    contain other files.
    """
    expect(input.is_file(), "a regular file", f"input={input}")
    known = re.compile(rf"({PLAN}|{INPUT})(\.\w+)?|{LOCK}")
    names = sorted(os.listdir(path)) if path.exists() else []
    if PLAN in names:
        return
    others = [name for name in names if not known.fullmatch(name)]
    if others and PLAN not in os.listdir(path):  # may have appeared meanwhile
        raise ValueError(f"{path} has other files: {others[0]}")


def _make_plan(path, input, settings):
    """Writes the plan. Decompresses a .gz input to its copy first."""
    stamp, source = _stamp(input), input
    identity = {
        "input_sha256": sha256_of(input),
        "package_version": __version__,
    }
    if input.suffix == ".gz":
        source = path / INPUT
        _decompress(input, source)
    shards: list[Shard] = []
    first_line, offset = 1, 0
    with open(source, "rb") as file:
        text = text_lines(file, input)
        while data := b"".join(itertools.islice(text, settings["shard_lines"])):
            lines = data.count(b"\n") + (not data.endswith(b"\n"))
            digest = hashlib.sha256(data).hexdigest()
            shard = Shard(
                len(shards), first_line, lines, offset, len(data), digest
            )
            shards.append(shard)
            first_line, offset = first_line + lines, offset + len(data)
    plan = {
        "format_version": FORMAT_VERSION,
        "lines": first_line - 1,
        "input_stamp": stamp,
        "settings": settings | identity,
        "shards": [shard._asdict() for shard in shards],
    }
    write_json(path / PLAN, with_checksum(plan))


def _decompress(path, target):
    try:
        with gzip.open(path) as zipped, new_file(target) as file:
            shutil.copyfileobj(zipped, file)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: corrupt gzip file ({error})") from error


def _stamp(path):
    """Returns the size of a file (bytes) and its time of change (ns)."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]


def listed(names: list[str]) -> str:
    """Joins names with commas. Lists at most `SHOWN`, and counts the others.

    >>> listed(["a", "b"]), listed(list("abcdefghijkl"))
    ('a, b', 'a, b, c, d, e, f, g, h, i, j and 2 more')
    """
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
