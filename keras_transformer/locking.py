"""A lock file: the kernel releases it when its process ends; its directory."""

import contextlib
import errno
import fcntl
import os
import pathlib
from collections.abc import Callable, Iterator

ATTEMPTS = 100  # to lock a file that other processes remove meanwhile


@contextlib.contextmanager
def without_empty_directories(path: pathlib.Path) -> Iterator[None]:
    """Removes directories that its body has made for a path, and left empty."""
    missing = [p for p in (path, *path.parents) if not p.exists()]
    try:
        yield
    finally:
        for directory in missing:  # the innermost first
            with contextlib.suppress(OSError):  # it is not there, or not empty
                directory.rmdir()


def lock_file(
    path: pathlib.Path, lock: Callable[[int, int], None] = fcntl.flock
) -> int | None:
    """Locks a file, and makes it with its directory if it does not exist.

    Returns a descriptor, which releases the lock when it is closed; None if the
    lock is taken: by another process or, with `fcntl.flock`, by another
    descriptor. `fcntl.lockf` lets this process take it again.

    The owner may remove the file and the directory before it closes the
    descriptor: this function then starts again with new ones.
    """
    problem: OSError | None = None
    for _ in range(ATTEMPTS):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError as error:
            # Its owner may just have removed the directory; but there are also
            # directories, as in /proc, where no file can be made.
            problem = error
            continue
        try:
            lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            os.close(descriptor)
            return None
        except BaseException:  # a file system may have no locks
            os.close(descriptor)
            raise
        # The previous owner may have removed the file after it was opened here:
        # no other process would find this lock.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(path.stat(), os.fstat(descriptor)):
                return descriptor
        os.close(descriptor)
    raise problem or FileNotFoundError(
        errno.ENOENT, "removed repeatedly by other processes", str(path)
    )
