"""A directory that appears under its name only when it is complete.

It is made in a hidden directory beside its target, `.NAME.unfinished`, and then
renamed. The hidden name is no version number, so TensorFlow Serving ignores it.
The hidden directory has a lock file. While a process holds the lock, a second
export to the same target is refused. The kernel releases the lock when the
process ends; the next export removes hidden directories whose lock is free.

Replacing an export takes two renames: the old one goes into the hidden
directory, then the new one takes its name. Between the two, for less than a
millisecond, the name does not exist. If the process is killed at that moment,
both exports are in the hidden directory, and the next export restores the old.
"""

import contextlib
import fcntl
import os
import pathlib
import shutil
import typing

from keras_transformer.locking import lock_file

LOCK = "export.lock"
DESCRIPTION = "export.json"  # in every export
UNFINISHED = ".unfinished"
REPLACED = ".replaced"


class Reservation:
    """A target directory that only this process may publish.

    Args:
        target: The directory to publish.
        directory: An empty directory for its content.
        overwrite: Whether an export at the target may be replaced.
    """

    def __init__(
        self, target: pathlib.Path, directory: pathlib.Path, overwrite: bool
    ):
        self.target = target
        self.directory = directory
        self._overwrite = overwrite

    def publish(self) -> None:
        """Gives the directory its name.

        Raises:
            OSError: Something appeared there that must not be lost.
        """
        if self._overwrite and self.target.exists():
            os.rename(self.target, f"{self.directory}{REPLACED}")
        # Replaces an empty directory, and nothing else.
        os.rename(self.directory, self.target)


@contextlib.contextmanager
def reserved(
    target: pathlib.Path, overwrite: bool = False
) -> typing.Iterator[Reservation]:
    """Reserves a directory for this process, and makes room for its content.

    Anything that is not published when the block ends is removed, with the
    parents that were made for it, and so are the remains of killed exports
    beside the target.

    Args:
        target: The directory to publish; a link is followed.
        overwrite: Whether an existing export may be replaced.

    Raises:
        ValueError: Something is there that must not be lost, or another process
            is exporting to the same place.
        OSError: Nothing can be written there.
    """
    try:
        target = target.resolve()
    except RuntimeError as error:  # of links that lead to each other
        raise ValueError(f"{target}: {error}") from error
    parents = [p for p in target.parents if not p.exists()]
    workshop = target.with_name(f".{target.name}{UNFINISHED}")
    try:
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
            yield Reservation(target, directory, overwrite)
        finally:
            _restore(workshop)
            shutil.rmtree(workshop)
            os.close(lock)
    finally:
        if not target.exists():
            for parent in parents:  # the innermost first
                with contextlib.suppress(OSError):  # it has files of others
                    parent.rmdir()


def check_target(target: pathlib.Path, overwrite: bool) -> None:
    """Checks that a directory may be made, or replaced.

    Raises:
        ValueError: Something is there that must not be lost.
    """
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not (target / DESCRIPTION).is_file():
        raise ValueError(f"{target} exists and is not an export")
    if not overwrite:
        raise ValueError(f"{target} exists; --overwrite replaces it")


def _remove_leftovers(parent):
    """Removes the remains of killed exports from a directory."""
    for path in parent.glob(f".*{UNFINISHED}/{LOCK}"):
        try:
            with open(path, "rb+") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _restore(path.parent)
                shutil.rmtree(path.parent)
        except BlockingIOError:
            continue  # an export that is still running, maybe this one
        except FileNotFoundError:
            continue  # its owner has just removed it
        except PermissionError:
            continue  # it belongs to another user


def _restore(workshop):
    """Gives an old export its name back if the new one did not get it."""
    name = workshop.name.removeprefix(".").removesuffix(UNFINISHED)
    target, new = workshop.with_name(name), workshop / name
    replaced = workshop / f"{name}{REPLACED}"
    if replaced.exists() and new.exists() and not target.exists():
        os.rename(replaced, target)
