"""Lock files, which the kernel releases when their process ends."""

import contextlib
import errno
import fcntl
import os
import pathlib
import time
from collections.abc import Callable, Iterator

ATTEMPTS = 100  # to lock a file that other processes remove meanwhile
WAIT = 0.1  # seconds between attempts to take a lock


@contextlib.contextmanager
def locked(path: pathlib.Path, busy: str = "") -> Iterator[int]:
    """Locks a file while the block runs, and yields its descriptor.

    If another process has the lock, raises ValueError with the message `busy`,
    or waits if `busy` is empty. At the end, removes the file and the empty
    directories that were made for it.
    """
    with without_empty_directories(path.parent):
        while (descriptor := lock_file(path)) is None:
            if busy:
                raise ValueError(busy)
            time.sleep(WAIT)
        try:
            yield descriptor
        finally:
            path.unlink(missing_ok=True)
            os.close(descriptor)


@contextlib.contextmanager
def without_empty_directories(path: pathlib.Path) -> Iterator[None]:
    """Removes the directories of a path that the block made and left empty."""
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

    Returns a descriptor, which releases the lock when it is closed. Returns
    None if another process or, with `fcntl.flock`, another descriptor has the
    lock. `fcntl.lockf` lets this process take the lock again.

    The owner may remove the file and the directory before it closes the
    descriptor: this function then starts again with new ones.
    """
    problem: OSError | None = None
    for _ in range(ATTEMPTS):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError as error:
            # The owner may just have removed the directory; but in some
            # directories, such as /proc, no file can be made at all.
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
        # If the previous owner removed the file after it was opened here, no
        # other process would find this lock.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(path.stat(), os.fstat(descriptor)):
                return descriptor
        os.close(descriptor)
    raise problem or FileNotFoundError(
        errno.ENOENT, "removed repeatedly by other processes", str(path)
    )
