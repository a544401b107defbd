"""Reserves a directory, reports it, and waits until standard input ends."""

import pathlib
import sys

from savedmodel import publishing

with publishing.published(pathlib.Path(sys.argv[1])) as directory:
    (directory / "half").touch()
    print("reserved", flush=True)
    sys.stdin.read()
