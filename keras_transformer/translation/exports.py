"""The exports of a work directory, which search engines run.

    DIR/exports/FORMAT-CHECKSUM/

is an export of a checkpoint, made and checked by `conversion`. The checksum
covers everything that determines the export. A separate process makes an export
when it is first needed, so that the translating process imports no framework.
Other processes wait for it. Then exports whose checkpoint no longer exists are
removed. The exports of packed models, and of work directories that cannot be
written, are in the user's cache, $XDG_CACHE_HOME/keras_transformer.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import typing
from collections.abc import Mapping
from logging import getLogger

from absl import logging

from keras_transformer import __version__
from keras_transformer.base.files import (
    check_checksum,
    check_sums,
    read_json,
    sha256_of,
)
from keras_transformer.base.locking import locked
from keras_transformer.storage.checkpoints import ENDING
from keras_transformer.storage.workdir import TOKENIZER_SUMS, WorkDirectory

progress = getLogger(__name__)  # which commands show
DIGITS = 16  # number of digits of the checksum in a name


def exported(
    workdir: WorkDirectory,
    checkpoint: str,
    format: str,
    options: Mapping[str, typing.Any],
    module: str,
) -> pathlib.Path:
    """Returns the directory of an intact export, and makes it if necessary.

    `checkpoint` is a path without its ending. The `main` of `module` makes the
    export from `options`, as `conversion` does. Raises ValueError if the export
    cannot be made.
    """
    checksum, config = sha256_of(checkpoint + ENDING), workdir.read_config()
    names = ("model", "base", *TOKENIZER_SUMS.values())
    model = [config.get(name) for name in names]
    contents = json.dumps([__version__, checksum, model, options])
    name = hashlib.sha256(contents.encode()).hexdigest()[:DIGITS]
    for home in (homes := _find_homes(workdir)):
        path = home / f"{format}-{name}"
        if damage(path) is None:
            return path
    file = path.with_name(f".{path.name}.lock")
    with contextlib.ExitStack() as stack:
        try:
            lock = stack.enter_context(locked(file))
        except OSError as error:
            raise ValueError(
                f"expected {path}, or a work directory that can be written: as"
                " a user who may write there run once kt-translate"
                f" --workdir={workdir.path} --checkpoint={checkpoint}"
                f" --engine={format}; or set XDG_CACHE_HOME."
                f" Received: {error.strerror}"
            ) from error
        found = damage(path)  # another process may have made it meanwhile
        if found is not None:
            run = {"workdir": str(workdir.path), "checkpoint": checkpoint}
            _make(path, found, module, {**run, **options}, lock)
            if sha256_of(checkpoint + ENDING) != checksum:
                shutil.rmtree(path)
                raise ValueError(f"{checkpoint} changed in its export")
            if homes[-1] == workdir.exports:
                _remove_old(workdir, format, path)
    return path


def _find_homes(workdir):
    """Returns the directories of exports. New ones are made in the last."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    of_user = pathlib.Path(cache, "keras_transformer")
    if workdir.read_package():
        return [of_user]
    own = [workdir.exports]
    return own if os.access(workdir.path, os.W_OK) else [*own, of_user]


def damage(path: pathlib.Path) -> str | None:
    """Returns in one line why an export is damaged, or None if it is intact."""
    try:
        description = read_json(path / "export.json")
        check_checksum(description)
        check_sums(path, description["sha256"])
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        return " ".join(str(error).split())
    return None


def _remove_old(workdir, format, new):
    """Removes other exports whose checkpoint no longer exists."""
    for path in workdir.exports.glob(f"{format}-*"):
        try:
            name = read_json(path / "export.json")["checkpoint"]
        except (OSError, ValueError, KeyError):
            continue  # damaged: made again when it is needed
        file = os.path.normpath(workdir.path / (name + ENDING))
        if path != new and not os.path.exists(file):
            logging.info("removing %s: %s is gone", path, name)
            shutil.rmtree(path, ignore_errors=True)


def _make(path, reason, module, settings, lock):
    """Makes an export in a process, which keeps the lock if this one dies."""
    if path.exists():
        logging.warning("%s is made again: %s", path, reason)
        shutil.rmtree(path)
    else:
        progress.info("making %s, once for this checkpoint", path)
    _remove_unfinished(path)
    settings = json.dumps({**settings, "output": str(path)})
    only_cpus = {"KERAS_BACKEND": "tensorflow", "CUDA_VISIBLE_DEVICES": "-1"}
    found = subprocess.run(
        [sys.executable, "-m", module, settings],
        env=os.environ | only_cpus,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        pass_fds=(lock,),
    )
    if found.returncode:
        _remove_unfinished(path)
        lines = found.stderr.strip().splitlines() or ["no message"]
        raise ValueError(f"no export: {lines[-1]} (status {found.returncode})")


def _remove_unfinished(path):
    """Removes unfinished exports that killed processes left."""
    for unfinished in path.parent.glob(f"{path.name}.*"):
        shutil.rmtree(unfinished, ignore_errors=True)
