"""Standard error without the lines that TensorFlow writes at every start."""

import contextlib
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

from keras_transformer.commands.first_lines import FAILED, LOADED

PROGRAM = pathlib.Path(__file__).with_name("first_lines.py")


@contextlib.contextmanager
def first_lines_dropped() -> Iterator[None]:
    """Drops the known first lines from all that is written to descriptor 2.

    All else is written at once, as the lines of other threads are. If the
    block raises, or if the process dies in it, nothing is dropped.
    """
    try:
        stderr = os.dup(2)
    except OSError:  # closed
        yield
        return
    end, pipe = os.pipe()
    try:
        # `LOADED` ends it, not the end of its input: a process that is started
        # in the block may keep that open. Ctrl-C is not for it.
        reader = subprocess.Popen(
            [sys.executable, "-I", "-S", PROGRAM],
            stdin=end,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:  # there can be no more processes
        for descriptor in (end, pipe, stderr):
            os.close(descriptor)
        yield
        return
    os.close(end)
    os.dup2(pipe, 2)
    last = FAILED
    try:
        yield
        last = LOADED
    finally:
        os.dup2(stderr, 2)
        with contextlib.suppress(BrokenPipeError):  # nobody reads
            os.write(pipe, last)
        for descriptor in (pipe, stderr):
            os.close(descriptor)
        reader.wait()
