"""Reserves a directory, says so, and waits until standard input ends."""

import pathlib
import sys

from savedmodel import publishing

with publishing.reserved(pathlib.Path(sys.argv[1])) as reservation:
    (reservation.directory / "half").touch()
    print("reserved", flush=True)
    sys.stdin.read()
