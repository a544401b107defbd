"""Computes for many minutes in one call of C, as TensorFlow does a batch."""

import hashlib
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from trainers.interrupts import ended_by_interrupt  # noqa: E402

# Whatever started this process may ignore SIGINT, which would be inherited.
signal.signal(signal.SIGINT, signal.default_int_handler)
with ended_by_interrupt("trainers.translate"):
    print("ready", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
