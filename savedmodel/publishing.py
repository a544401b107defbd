"""Publishes a directory under its name only when it is complete.

It is made in a hidden directory beside its target, `.NAME.unfinished`, and then
renamed. The hidden name is not a version number, so TensorFlow Serving ignores
it. The hidden directory has a lock file. While a process holds the lock, a
second export to the same target is refused. The kernel releases the lock when
the process ends, and the next export removes hidden directories without a held
lock.

Replacing an export takes two renames: the old export moves into the hidden
directory, then the new one gets its name. Between the two, for less than a
millisecond, the name does not exist. If the process is killed at that moment,
both exports are in the hidden directory, and the next export restores the old.
"""

import contextlib
import fcntl
import os
import pathlib
import shutil
import typing

from keras_transformer.base.locking import lock_file, without_empty_directories

LOCK = "export.lock"
DESCRIPTION = "export.json"  # in every export
UNFINISHED = ".unfinished"
REPLACED = ".replaced"


@contextlib.contextmanager
def published(
    target: pathlib.Path, overwrite: bool = False
) -> typing.Iterator[pathlib.Path]:
    """Yields a new directory, which becomes the target if the block succeeds.

    An error removes it, and the parents that were made for it. The remains of
    killed exports beside the target are removed, too. Links are followed.
    Raises ValueError if the target must not be replaced, or another process is
    exporting to it.
    """
    try:
        target = target.resolve()
    except RuntimeError as error:  # links that lead to each other
        raise ValueError(f"{target}: {error}") from error
    workshop = target.with_name(f".{target.name}{UNFINISHED}")
    with without_empty_directories(target.parent):
        lock = lock_file(workshop / LOCK)
        if lock is None:
            raise ValueError(f"another process is exporting to {target}")
        try:
            _restore(workshop)
            check_target(target, overwrite)
            for path in workshop.iterdir():
                if path.name != LOCK:
                    shutil.rmtree(path)
            _remove_leftovers(target.parent)
            directory = workshop / target.name
            directory.mkdir()
            yield directory
            for path in filter(pathlib.Path.is_dir, directory.rglob("*")):
                path.chmod(directory.stat().st_mode)  # TensorFlow's are 0755
            if overwrite and target.exists():
                os.rename(target, f"{directory}{REPLACED}")
            # Replaces an empty directory, and nothing else.
            os.rename(directory, target)
        finally:
            _restore(workshop)
            shutil.rmtree(workshop)
            os.close(lock)


def check_target(target: pathlib.Path, overwrite: bool) -> None:
    """Raises ValueError if the target exists and must not be replaced.

    Only an empty directory or, with `overwrite`, an export may be replaced.
    """
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not (target / DESCRIPTION).is_file():
        raise ValueError(f"{target} exists and is not an export")
    if not overwrite:
        raise ValueError(f"{target} exists; --overwrite replaces it")


def _remove_leftovers(parent: pathlib.Path) -> None:
    for path in parent.glob(f".*{UNFINISHED}/{LOCK}"):
        try:
            with open(path, "rb+") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _restore(path.parent)
                shutil.rmtree(path.parent)
        # The export is still running (it may be this one), its owner has just
        # removed it, or it belongs to another user.
        except (BlockingIOError, FileNotFoundError, PermissionError):
            continue


def _restore(workshop: pathlib.Path) -> None:
    """Moves a replaced export back if the new one did not get its name."""
    name = workshop.name.removeprefix(".").removesuffix(UNFINISHED)
    target, new = workshop.with_name(name), workshop / name
    replaced = workshop / f"{name}{REPLACED}"
    if replaced.exists() and new.exists() and not target.exists():
        os.rename(replaced, target)
