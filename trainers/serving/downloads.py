"""Translated files that can be downloaded for a limited time."""

import asyncio
import contextlib
import math
import os
import pathlib
import secrets
import shutil
import stat
import tempfile

from starlette.exceptions import HTTPException

from keras_transformer.base.locking import lock_file

MAX_BYTES = 2**30  # of all files
PREFIX, LOCK = "translated-", "lock"


class Downloads:
    """Files in a temporary directory, found by keys that nobody can guess.

    Each is removed after `seconds`. The paths do not contain the files' names.
    """

    def __init__(self, seconds: float):
        self._seconds = seconds
        self._files: dict[str, tuple[pathlib.Path, str]] = {}
        self._folder: tempfile.TemporaryDirectory | None = None
        _remove_abandoned()
        self._size = 0  # bytes of all files

    async def add(self, name: str, data: bytes) -> str:
        """Writes a file. Returns its key, which ends with its name.

        Raises HTTPException with status 429 if the files would be too large.
        """
        if self._size + len(data) > MAX_BYTES:
            raise HTTPException(
                429,
                "too many translated files wait to be downloaded",
                {"Retry-After": str(math.ceil(self._seconds))},
            )
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix=PREFIX)
            self._lock = lock_file(pathlib.Path(self._folder.name, LOCK))
        secret = secrets.token_urlsafe()
        key, path = f"{secret}.{name}", pathlib.Path(self._folder.name, secret)
        self._files[key] = path, name
        self._size += len(data)
        loop = asyncio.get_running_loop()
        loop.call_later(self._seconds, self._remove, key, len(data))
        await loop.run_in_executor(None, path.write_bytes, data)
        return key

    def find(self, key: str) -> tuple[pathlib.Path, str]:
        """Returns the path and the name of a file.

        Raises HTTPException with status 404 if no file has this key.
        """
        if key not in self._files:
            raise HTTPException(404, "there is no such file, or no longer")
        return self._files[key]

    def close(self) -> None:
        """Removes all files."""
        if self._folder is not None and self._lock is not None:
            self._folder.cleanup()
            os.close(self._lock)

    def _remove(self, key, size):
        path, _ = self._files.pop(key)
        path.unlink(missing_ok=True)
        self._size -= size


def _remove_abandoned():
    """Removes the directories of killed servers, whose locks are free."""
    for path in pathlib.Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{LOCK}"):
        with contextlib.suppress(OSError):  # a directory of another user
            found = path.parent.lstat()
            if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
                continue  # or a link of one
            lock = lock_file(path)
            if lock is not None:
                shutil.rmtree(path.parent)
                os.close(lock)
