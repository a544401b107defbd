"""Ctrl-C that ends a command at once, whatever it is doing."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def ended_by_interrupt(command: str) -> Iterator[None]:
    """Ends the process with one line on SIGINT, also while TensorFlow computes.

    Python runs a signal's handler between two of its own instructions, and a
    batch of sentences is one instruction that may take minutes. So a thread of
    its own waits for the signal. What was written before must have been
    flushed; nothing else is lost.

    Where SIGINT is ignored or handled by somebody else, it stays so.

    Args:
        command: The command's name, which begins the line.
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)

    def end_process():
        while number := os.read(read_end, 1):
            if number[0] == signal.SIGINT:
                # Not by sys.stderr, whose lock the main thread may hold.
                os.write(2, f"{command}: interrupted\n".encode())
                os._exit(128 + signal.SIGINT)

    thread = threading.Thread(target=end_process, daemon=True)
    thread.start()
    wakeup_fd = signal.set_wakeup_fd(write_end)
    signal.signal(signal.SIGINT, lambda *_: None)  # no KeyboardInterrupt
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.set_wakeup_fd(wakeup_fd)
        os.close(write_end)  # the thread reads its end
        thread.join()
        os.close(read_end)
