"""A lock file: the kernel releases it when its process ends."""

import contextlib
import errno
import fcntl
import os
import pathlib
from collections.abc import Callable

ATTEMPTS = 100  # to lock a file that others remove meanwhile


def lock_file(
    path: pathlib.Path, lock: Callable[[int, int], None] = fcntl.flock
) -> int | None:
    """Locks a file, which is made with its directory if it is not there.

    The owner may remove the file, and the directory, before it closes the
    descriptor: whoever waits for it starts again with new ones.

    Args:
        path: The file.
        lock: `fcntl.flock`, whose lock is of a descriptor, or `fcntl.lockf`,
            whose lock is of the process, which may take it again.

    Returns:
        A descriptor, whose closing releases the lock; None if another process
        has locked the file; with `flock`, also if another descriptor of this
        one has.

    Raises:
        OSError: The file cannot be made.
    """
    problem: OSError | None = None
    for _ in range(ATTEMPTS):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
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
        # The owner before may have removed the file after it was opened here:
        # then this lock is on a file that nobody else would find.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(path.stat(), os.fstat(descriptor)):
                return descriptor
        os.close(descriptor)
    raise problem or FileNotFoundError(
        errno.ENOENT, "removed again and again by other processes", str(path)
    )
