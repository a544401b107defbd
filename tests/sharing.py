"""Files that one process of a test run makes, and all processes share.

`make test` runs the tests in several processes. A file that takes long to make
and is only read is made by the process that needs it first. Others wait.
"""

import fcntl
import pathlib
import shutil

directory: pathlib.Path | None = None  # `conftest.py` sets it for the run


def make_once(name, make):
    """Returns the path of a file or directory that `make(path)` has made.

    Args:
        name: Its name in the directory of the run.
        make: Called in one process. If it fails, the next process tries again.

    Raises:
        RuntimeError: No test run has set the directory.
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
    """Returns the innermost search of a translator, its engine's."""
    search = translator._search
    while hasattr(search, "inner"):
        search = search.inner
    return search
