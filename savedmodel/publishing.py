"""A directory that appears under its name only when it is complete.

It is made in a hidden directory beside its target, `.NAME.unfinished`, and then
renamed. The hidden name is no version number, so TensorFlow Serving ignores it.
The hidden directory has a lock file. While a process holds the lock, a second
export to the same target is refused. The kernel releases the lock when the
process ends; the next export removes hidden directories whose lock is free.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import pathlib
import shutil
import typing

from keras_transformer.locking import lock_file

LOCK = "export.lock"
DESCRIPTION = "export.json"  # what every export has
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux' renameat2


class Reservation:
    """A target directory that this process alone may publish.

    Args:
        target: The directory that is to appear.
        directory: An empty directory, for its content.
        overwrite: Whether an export at the target may be replaced.
    """

    def __init__(
        self, target: pathlib.Path, directory: pathlib.Path, overwrite: bool
    ):
        self.target = target
        self.directory = directory
        self._overwrite = overwrite

    def publish(self) -> None:
        """Gives the directory its name, at once.

        Raises:
            OSError: Something appeared there that must not be lost.
        """
        if self._overwrite and self.target.exists():
            _exchange(self.directory, self.target)
        else:
            # Replaces an empty directory, and nothing else.
            os.rename(self.directory, self.target)


@contextlib.contextmanager
def reserved(
    target: pathlib.Path, overwrite: bool = False
) -> typing.Iterator[Reservation]:
    """Reserves a directory for this process, and makes room for its content.

    Whatever is not published when the block ends is removed, with the parents
    that were made for it. So is what killed exports left beside the target.

    Args:
        target: The directory that is to appear; a link: where it leads.
        overwrite: Whether an export that is there may be replaced.

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
    workshop = target.with_name(f".{target.name}.unfinished")
    try:
        lock = lock_file(workshop / LOCK)
        if lock is None:
            raise ValueError(f"another process is exporting to {target}")
        try:
            check_target(target, overwrite)
            for path in workshop.iterdir():
                if path.name != LOCK:
                    shutil.rmtree(path)
            _remove_leftovers(target.parent)
            directory = workshop / target.name
            directory.mkdir()
            yield Reservation(target, directory, overwrite)
        finally:
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
    """Removes what killed exports left in a directory."""
    for path in parent.glob(f".*.unfinished/{LOCK}"):
        try:
            with open(path, "rb+") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path.parent)
        except BlockingIOError:
            continue  # not killed: an export that runs, this one among them
        except FileNotFoundError:
            continue  # its owner has just removed it
        except PermissionError:
            continue  # of another user


def _exchange(first, second):
    """Exchanges two directories: at no moment is either name without one."""
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "renameat2"):
        arguments = AT_FDCWD, os.fsencode(first), AT_FDCWD, os.fsencode(second)
        if not libc.renameat2(*arguments, RENAME_EXCHANGE):
            return
        number = ctypes.get_errno()
        if number not in (errno.EINVAL, errno.ENOSYS):
            raise OSError(number, os.strerror(number), str(second))
    # No such call in this system or file system: two steps, quickly.
    aside = first.with_name("replaced")
    os.rename(second, aside)
    os.rename(first, second)
