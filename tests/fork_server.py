"""Runs commands in processes of their own that share one startup.

TensorFlow is imported once. Every command is a fork of this process, and ends
as any Python process does. `commands.Processes` writes a line of JSON for each:

    {"module", "function", "arguments", "out", "err", "environment", "accident",
     "fresh"}

and reads the process id. The answer to {"wait": process id} is the exit status.
"""

import faulthandler
import importlib
import json
import math
import os
import pathlib
import resource
import signal
import sys
import time

from keras_transformer.storage import checkpoints
from trainers.run import session  # imported once, for every fork

# Accidents in a training. Each function patches the process that calls it.


def kill(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


def at_second_save(act):
    # No accident needs the trial, which takes as long as the steps.
    session.try_batches = lambda *_: 1e-3
    save = checkpoints.Checkpoints.save
    count = [0]

    def wrapped(self, groups, step, *more):
        count[0] += 1
        if count[0] == 2:
            act(self, step)
        return save(self, groups, step, *more)

    checkpoints.Checkpoints.save = wrapped


def before_writing():
    at_second_save(kill)


def half_written():
    def save_file(arrays, path, header):
        pathlib.Path(path).write_bytes(b"half of it")
        kill()

    at_second_save(lambda *_: setattr(checkpoints, "save_file", save_file))


def torn():
    """Leaves half of the data under the final name, as a power failure may."""

    replace = os.replace

    def torn_replace(source, target):
        os.truncate(source, os.path.getsize(source) // 2)
        replace(source, target)
        kill()

    at_second_save(lambda *_: setattr(os, "replace", torn_replace))


def written_and_nothing_dropped():
    at_second_save(lambda *_: setattr(pathlib.Path, "unlink", kill))


def half_dropped():
    unlink = pathlib.Path.unlink

    def once(path, missing_ok=False):
        unlink(path, missing_ok)
        kill()

    at_second_save(lambda *_: setattr(pathlib.Path, "unlink", once))


def fill_disk(*_):
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))


def full_disk():
    at_second_save(fill_disk)


def full_disk_at_once():
    save = checkpoints.Checkpoints.save

    def wrapped(self, groups, step, *more):
        fill_disk()
        return save(self, groups, step, *more)

    checkpoints.Checkpoints.save = wrapped


def interrupted_at_the_door():
    def run(*_, **__):
        os.kill(os.getpid(), signal.SIGINT)

    session.run = run


def none():
    pass


def start(request):
    """Runs a command in a fork. Returns when the process should exit."""
    # Processes inherit ignored signals from `nohup` and a shell's `&`.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, name in ((1, "out"), (2, "err")):
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        os.dup2(os.open(request[name], flags), number)
    faulthandler.enable(all_threads=True)  # for `commands.Process.wait`
    os.environ.update(request["environment"])
    if request["fresh"]:
        command = [sys.executable, "-m", request["module"]]
        command += request["arguments"]
        # Not this process' environment, which its imports have changed.
        os.execve(sys.executable, command, request["environment"])
    globals()[request["accident"]]()
    module = importlib.import_module(request["module"])
    getattr(module, request["function"])(request["arguments"])


def wait(pid, seconds=900):
    """Waits for a process, and returns its exit status.

    After `seconds` it is aborted, and writes its threads' stacks to standard
    error.
    """
    deadline = time.monotonic() + seconds
    while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGABRT)
            deadline = math.inf
        time.sleep(0.005)
    return os.waitstatus_to_exitcode(ended[1])


def serve():
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            answer = wait(request["wait"])
        else:
            answer = os.fork()
            if not answer:
                return start(request)
        print(answer, flush=True)


if __name__ == "__main__":
    serve()
