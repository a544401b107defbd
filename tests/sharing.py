"""What the processes of one test run make once, and share.

`make test` runs the tests in several processes. What takes long to make, and is
read only, is made by the process that needs it first; the other one waits.
"""

import fcntl
import pathlib
import shutil

directory: pathlib.Path | None = None  # of the run; `conftest.py` sets it


def make_once(name, make):
    """Returns the path of a file or directory that `make(path)` has made.

    Args:
        name: Its name in the directory of the run.
        make: Called in one process. If it fails, the next one tries again.

    Raises:
        RuntimeError: There is no test run, and so no directory that is removed.
    """
    if directory is None:
        raise RuntimeError("set sharing.directory to a directory first")
    path, done = directory / name, directory / f"{name}.done"
    with open(directory / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(path, ignore_errors=True)
            make(path)
            done.touch()
    return path


def engine_search(translator):
    """Returns the search of a translator's engine, without those around it."""
    search = translator._search
    while hasattr(search, "inner"):
        search = search.inner
    return search
