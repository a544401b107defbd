"""Keeps the lines that TensorFlow writes at every start off standard error.

Run as a program, this file is the process that reads what another one writes to
descriptor 2. It passes all on at once, but holds back the lines that a machine
without a GPU always has. They are dropped if the last line is `LOADED`; if not,
as after an abort, which this process outlives, they are written, too.
"""

import contextlib
import os
import sys
import typing
from collections.abc import Callable, Iterator

LOADED, FAILED = b"\0loaded\n", b"\0failed\n"  # the last line
NOTICE = (
    b"WARNING: All log messages before absl::InitializeLog() is called are"
    b" written to STDERR\n"
)
# What follows the time, the thread and the place in the code.
MESSAGES = (
    b"oneDNN custom operations are on. You may see slightly different numerical"
    b" results due to floating-point round-off errors from different"
    b" computation orders. To turn them off, set the environment variable"
    b" `TF_ENABLE_ONEDNN_OPTS=0`.\n",
    b"Could not find cuda drivers on your machine, GPU will not be used.\n",
    b"failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit:"
    b" UNKNOWN ERROR (303)\n",  # no driver
)


@contextlib.contextmanager
def first_lines_dropped() -> Iterator[None]:
    """Drops the known lines from all that is written to descriptor 2.

    If the block raises, or if the process dies in it, nothing is dropped.
    """
    import subprocess  # not for the reader, which is to start at once

    with contextlib.ExitStack() as stack:
        try:
            stderr = os.dup(2)
            stack.callback(os.close, stderr)
            end, pipe = os.pipe()
            stack.callback(os.close, pipe)
            with open(end, "rb") as file:
                # Ctrl-C is for this process alone.
                reader = subprocess.Popen(
                    [sys.executable or "", "-I", "-S", __file__],
                    stdin=file,
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,
                )
        except OSError:  # it is closed; or there can be no other process
            yield
            return
        last = FAILED
        os.dup2(pipe, 2)
        try:
            yield
            last = LOADED
        finally:
            os.dup2(stderr, 2)
            # Not by the end of its input, which a process that was started in
            # the block may have inherited.
            with contextlib.suppress(BrokenPipeError):
                os.write(pipe, last)
            reader.wait()


class FirstImport:
    """Finds a module for its first import, which a function executes.

    Args:
        name: The module.
        execute: A function of the loader's own function and of the module.
    """

    def __init__(self, name: str, execute: Callable) -> None:
        self.name, self.execute = name, execute

    def find_spec(self, name: str, *others: typing.Any) -> typing.Any:
        """Returns the specification of the module; None for every other one."""
        if name != self.name:
            return None
        finders = [f for f in sys.meta_path if f is not self]
        found = (finder.find_spec(name, *others) for finder in finders)
        spec: typing.Any = next(filter(None, found), None)
        if spec is not None and spec.loader is not None:
            usual = spec.loader.exec_module
            spec.loader.exec_module = lambda module: self.execute(usual, module)
        return spec


class QuietTensorFlow(FirstImport):
    """Drops lines of TensorFlow's first import, in any program.

    On a machine with a GPU TensorFlow logs everything, so that the reason is
    visible if it cannot use the GPU. Elsewhere it logs warnings and errors, and
    the lines are dropped that it writes before it reads the level. A level that
    the environment sets stays; with 0 nothing is dropped.
    """

    def __init__(self) -> None:
        super().__init__("tensorflow", _execute)


def _execute(execute, module):
    """Executes TensorFlow's code, and looks for its devices."""
    if not choose_log_level():
        execute(module)
        return
    with first_lines_dropped():
        execute(module)
        if config := getattr(sys.modules["tensorflow"], "config", None):
            config.list_physical_devices()


def choose_log_level() -> bool:
    """Sets the level of TensorFlow's log; whether its first lines are noise."""
    from keras_transformer.base import machine

    has_gpu = bool(machine.find_gpus()) or os.path.exists("/dev/dxg")  # of WSL
    default = "0" if has_gpu else "2"
    level = os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", default)
    return not has_gpu and level != "0"


def pass_on() -> None:
    """Writes the lines of standard input to standard error."""
    held, line = b"", b"\n"
    while line and not line.endswith((LOADED, FAILED)):
        line = sys.stdin.buffer.readline()
        text = line.removesuffix(LOADED).removesuffix(FAILED)
        place, _, message = text.partition(b"] ")
        is_logged = place[:5] in (b"I0000", b"E0000")
        if text == NOTICE or (is_logged and message in MESSAGES):
            held += text
        else:
            sys.stderr.buffer.write(text)
            sys.stderr.buffer.flush()
    if not line.endswith(LOADED):
        sys.stderr.buffer.write(held)
        sys.stderr.buffer.flush()


if __name__ == "__main__":
    with contextlib.suppress(OSError):  # nobody reads standard error
        pass_on()
    os._exit(0)
