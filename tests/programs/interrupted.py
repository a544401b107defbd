"""Runs trainers.translate, whose work is one call of C that takes minutes."""

import hashlib
import runpy
import sys
import types

from keras_transformer.commands import startup


def run(*_, **__):
    print("ready", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)


startup.load = lambda name: types.SimpleNamespace(run=run)
sys.argv[1:] = ["--workdir=somewhere"]
runpy.run_module("trainers.translate", run_name="__main__")
