"""The exports of a work directory, which engines of search run.

    DIR/exports/NAME/

is what `savedmodel.export` made of a checkpoint, verified. NAME has the
checksum of all that determines it, so another checkpoint has another one. It is
made when it is first needed, in a process of its own: the one that translates
imports no framework. Processes that need the same export wait for the one that
makes it. It may be removed when nobody loads it.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import typing
from collections.abc import Iterator, Mapping

from absl import logging

import keras_transformer
from keras_transformer.checkpoints import ENDING
from keras_transformer.files import check_checksum, read_json, sha256_of
from keras_transformer.locking import lock_file, without_empty_directories
from keras_transformer.workdir import TOKENIZER_SUMS, WorkDirectory

DESCRIPTION = "export.json"  # in every export
WAIT = 0.1  # seconds between attempts to take the lock
DIGITS = 16  # of the checksum in a name


def exported(
    workdir: WorkDirectory,
    checkpoint: str,
    format: str,
    options: Mapping[str, typing.Any],
) -> pathlib.Path:
    """The directory of an intact export, which is made if there is none.

    Args:
        workdir: The work directory.
        checkpoint: Path of the checkpoint, without its ending.
        format: Name of the format, also of the beginning of the directory's.
        options: Other flags of `savedmodel.export` by name.

    Raises:
        ValueError: It cannot be made; the message is that of the command.
    """
    checksum = sha256_of(checkpoint + ENDING)
    contents = {
        "checkpoint": checksum,
        "version": keras_transformer.__version__,
        "config": {
            name: value
            for name, value in workdir.read_config().items()
            if name in ("model", *TOKENIZER_SUMS.values())
        },
        **options,
    }
    text = json.dumps(contents, sort_keys=True)
    name = hashlib.sha256(text.encode()).hexdigest()[:DIGITS]
    path = workdir.exports / f"{format}-{name}"
    if path.exists() and damage(path) is None:
        return path
    with without_empty_directories(path.parent), _locked(path) as lock:
        found = damage(path) if path.exists() else "missing"
        if found is None:  # another process has made it meanwhile
            return path
        if path.exists():
            logging.warning("%s is made again: %s", path, found)
            shutil.rmtree(path)
        else:
            logging.info("making %s, once for this checkpoint", path)
        flags = {
            "workdir": workdir.path,
            "checkpoint": checkpoint,
            "format": format,
            "output": path,
            **options,
        }
        _run([f"--{name}={value}" for name, value in flags.items()], lock)
        if sha256_of(checkpoint + ENDING) != checksum:
            shutil.rmtree(path)
            raise ValueError(f"{checkpoint} has changed during its export")
    return path


def damage(path: pathlib.Path) -> str | None:
    """Why an export cannot be used, in one line; None if it is intact."""
    try:
        description = read_json(path / DESCRIPTION)
        check_checksum(description)
        for name, expected in description["sha256"].items():
            if sha256_of(path / name) != expected:
                return f"{name} is corrupt"
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        return " ".join(str(error).split())
    return None


@contextlib.contextmanager
def _locked(path: pathlib.Path) -> Iterator[int]:
    """Waits for the lock of an export; yields its descriptor."""
    file = path.with_name(f".{path.name}.lock")
    while (lock := lock_file(file)) is None:
        time.sleep(WAIT)
    try:
        yield lock
    finally:
        file.unlink(missing_ok=True)
        os.close(lock)


def _run(arguments: list[str], lock: int) -> None:
    """Runs `savedmodel.export`, which holds the lock if this process dies."""
    folder = str(pathlib.Path(keras_transformer.__file__).parents[1])
    before = os.environ.get("PYTHONPATH")
    found = subprocess.run(
        [sys.executable, "-m", "savedmodel.export", *arguments],
        env={
            **os.environ,
            "KERAS_BACKEND": "tensorflow",
            "PYTHONPATH": os.pathsep.join(filter(None, [folder, before])),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        pass_fds=(lock,),
    )
    if found.returncode:
        lines = found.stderr.strip().splitlines() or ["no message"]
        raise ValueError(f"no export: {lines[-1]} (status {found.returncode})")
