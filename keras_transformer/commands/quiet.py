"""Keeps the lines that TensorFlow writes at every start off standard error.

Run as a program, this file reads what another process writes to descriptor 2.
It passes lines on at once, but holds back those that TensorFlow always writes
on a machine without a GPU. They are dropped if the last line is `LOADED`.
Otherwise, as after an abort of the other process, they are written at the end.
"""

import contextlib
import os
import sys
import typing
from collections.abc import Callable, Iterator

LOADED, FAILED = b"\0loaded\n", b"\0failed\n"  # possible last lines
NOTICE = (
    b"WARNING: All log messages before absl::InitializeLog() is called are"
    b" written to STDERR\n"
)
# The lines to drop, after the time, the thread and the place in the code.
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
    """Drops `NOTICE` and `MESSAGES` from what is written to descriptor 2.

    If the block raises an error or the process dies in it, nothing is dropped.
    """
    import subprocess  # here, since the reader must start quickly

    with contextlib.ExitStack() as stack:
        try:
            stderr = os.dup(2)
            stack.callback(os.close, stderr)
            end, pipe = os.pipe()
            stack.callback(os.close, pipe)
            with open(end, "rb") as file:
                # In a new session, the reader gets no Ctrl-C.
                reader = subprocess.Popen(
                    [sys.executable or "", "-I", "-S", __file__],
                    stdin=file,
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,
                )
        except OSError:  # descriptor 2 is closed, or no process can start
            yield
            return
        last = FAILED
        os.dup2(pipe, 2)
        try:
            yield
            last = LOADED
        except KeyboardInterrupt:
            last = LOADED
            raise
        finally:
            os.dup2(stderr, 2)
            # Closing the pipe would not end the reader: a process started in
            # the block may have inherited it.
            with contextlib.suppress(BrokenPipeError):
                os.write(pipe, last)
            reader.wait()


class FirstImport:
    """An import finder that lets a function execute a module.

    Args:
        name: The name of the module.
        execute: Called with the loader's own `exec_module` and the module.
    """

    def __init__(self, name: str, execute: Callable) -> None:
        self.name, self.execute = name, execute

    def find_spec(self, name: str, *others: typing.Any) -> typing.Any:
        """Returns the module's specification, or None for any other module."""
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
    """An import finder that drops lines that TensorFlow writes when imported.

    On a machine with a GPU, TensorFlow logs everything, so that the reason is
    visible if it cannot use the GPU. Elsewhere it logs warnings and errors, and
    the lines that it writes before it reads the log level are dropped. A level
    set in the environment is kept; with level 0, nothing is dropped.
    """

    def __init__(self) -> None:
        super().__init__("tensorflow", _execute)


def hide_interrupt(kind: type[BaseException], *others: typing.Any) -> None:
    """An `excepthook`: Ctrl-C before a command has begun needs no traceback."""
    if kind is not KeyboardInterrupt:
        sys.__excepthook__(kind, *others)


def _execute(execute, module):
    """Executes TensorFlow's module; lists the devices if lines are dropped."""
    if not choose_log_level():
        execute(module)
        return
    with first_lines_dropped():
        execute(module)
        if config := getattr(sys.modules["tensorflow"], "config", None):
            config.list_physical_devices()


def choose_log_level() -> bool:
    """Sets TensorFlow's log level. Returns whether to drop its first lines."""
    from keras_transformer.base import machine

    has_gpu = bool(machine.find_gpus()) or os.path.exists("/dev/dxg")  # in WSL
    default = "0" if has_gpu else "2"
    level = os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", default)
    return not has_gpu and level != "0"


def pass_on() -> None:
    """Copies standard input to standard error, as the module describes."""
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
