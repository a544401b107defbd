"""A program that passes lines on, except those of every start of TensorFlow.

`quiet` runs it as a process of its own, which outlives an abort of the process
whose standard error it reads, and writes to its own standard error:

    python -I -S first_lines.py < what the other process writes

Lines that a machine without a GPU always has are held back. They are dropped
when the input ends with `LOADED`; if it ends otherwise, they are written, too.
"""

import os
import sys

LOADED, FAILED = b"\0loaded\n", b"\0failed\n"  # last lines of the input
NOTICE = (
    b"WARNING: All log messages before absl::InitializeLog() is called are"
    b" written to STDERR\n"
)
CU_INIT = b"failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit:"
# What follows the time, the thread and the place in the code.
MESSAGES = (
    b"oneDNN custom operations are on. You may see slightly different numerical"
    b" results due to floating-point round-off errors from different"
    b" computation orders. To turn them off, set the environment variable"
    b" `TF_ENABLE_ONEDNN_OPTS=0`.\n",
    b"Could not find cuda drivers on your machine, GPU will not be used.\n",
    CU_INIT + b" UNKNOWN ERROR (303)\n",  # no driver
    CU_INIT + b" CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected\n",
)


def is_known(line: bytes) -> bool:
    """Whether TensorFlow writes a line at every start without a GPU.

    >>> is_known(NOTICE), is_known(b"I0000 port.cc:153] oneDNN is off\\n")
    (True, False)
    """
    place, _, message = line.partition(b"] ")
    if place[:5] in (b"I0000", b"E0000"):
        return message in MESSAGES
    return line == NOTICE


def main() -> None:
    """Passes standard input on to standard error, line by line, at once."""
    held = b""
    for line in sys.stdin.buffer:
        text = line.removesuffix(LOADED).removesuffix(FAILED)
        if is_known(text):
            held += text
        else:
            sys.stderr.buffer.write(text)
            sys.stderr.buffer.flush()
        if line.endswith(LOADED):
            return
        if line.endswith(FAILED):
            break
    sys.stderr.buffer.write(held)
    sys.stderr.buffer.flush()


if __name__ == "__main__":
    try:
        main()
    except OSError:  # nobody reads standard error
        pass
    os._exit(0)
