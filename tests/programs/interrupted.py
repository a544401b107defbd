"""Runs kt-translate with one call of C that takes minutes as its work."""

import hashlib
import runpy
import sys

from trainers.translating import lines


def run(*_, **__):
    print("ready", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)


lines.run = run
sys.argv[1:] = ["--workdir=somewhere"]
runpy.run_module("trainers.translate", run_name="__main__")
