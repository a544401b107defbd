"""A lock file: the kernel releases it when its process ends."""

import contextlib
import fcntl
import os
import pathlib


def lock_file(path: pathlib.Path) -> int | None:
    """Locks a file, which is made with its directory if it is not there.

    The owner may remove the file, and the directory, before it closes the
    descriptor: whoever waits for it starts again with new ones.

    Args:
        path: The file.

    Returns:
        A descriptor, whose closing releases the lock; None if another process,
        or another descriptor of this one, has locked the file.
    """
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except FileNotFoundError:
            continue  # its owner has just removed the directory
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        # The owner before may have removed the file after it was opened here:
        # then this lock is on a file that nobody else would find.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(path.stat(), os.fstat(descriptor)):
                return descriptor
        os.close(descriptor)
