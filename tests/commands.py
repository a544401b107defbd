"""Helpers of the tests of commands: runs, failures, logs, processes."""

import contextlib
import dataclasses
import importlib.util
import io
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
import unittest.mock

import pytest

from keras_transformer.storage.checkpoints import Checkpoint
from trainers import wmt
from trainers.run import loop, session

ROOT = pathlib.Path(__file__).parents[1]
# Console script, as documented -> its module.
SCRIPTS = {
    name: entry.partition(":")[0]
    for name, entry in tomllib.loads((ROOT / "pyproject.toml").read_text())[
        "project"
    ]["scripts"].items()
}

NAMES = {module: name for name, module in SCRIPTS.items()}
# Flags of a model that trains in seconds.
SMALL_MODEL = "--d_model=16 --d_ff=16 --num_heads=2 --num_layers=1".split()


# Flags of a training of the smallest model on files, with a checkpoint and a
# line of the log for each step.
TINY = """
    --dataset=files --vocab_size=150 --d_model=8 --d_ff=8 --num_heads=1
    --num_layers=1 --batch_tokens=2500 --num_buckets=1 --warmup_steps=10
    --log_steps=1 --checkpoint_steps=1 --keep_checkpoints=9 --average_last=1
    --strategy=one_device
""".split()


def module_of(words):
    """Returns the module that a command line runs, and the other words.

    The module is None if the command is not ours.
    """
    name = words[0].removeprefix(".venv/bin/")
    if name in SCRIPTS:
        return SCRIPTS[name], words[1:]
    assert not name.startswith("kt-"), f"no such command: {name}"
    if name in ("python", "python3") and words[1:2] == ["-m"]:
        return words[2], words[3:]
    return None, words


def tensors(prefix, *groups):
    """Returns arrays of a checkpoint by GROUP/NAME, of all or some groups."""
    checkpoint = Checkpoint(str(prefix))
    return {
        name: checkpoint.read(name)
        for name in checkpoint.shapes
        if not groups or name.split("/")[0] in groups
    }


def fails(main, argv, capsys, code=2):
    """Checks a command's exit status, and returns its only error line."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as status:
        main(argv)
    assert status.value.code == code
    err = capsys.readouterr().err
    assert err.count("\n") == 1, err
    return err


def run_python(*arguments, text="", cwd=None, **environment):
    """Runs Python in a new process that must succeed. Returns its output."""
    run = subprocess.run(
        [sys.executable, *map(str, arguments)],
        input=text,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        cwd=cwd,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return run.stdout


def run_bad_commands(given, cwd=ROOT):
    """Runs commands, lists of module and arguments, in a new process.

    Returns a dictionary for each: its `status`, its standard error as `err`,
    and the `slow` packages that were imported.
    """
    text = "".join(json.dumps(one) + "\n" for one in given)
    out = run_python(ROOT / "tests/programs/bad_flags.py", text=text, cwd=cwd)
    return list(map(json.loads, out.splitlines()))


def fails_without_room(main, argv, monkeypatch, capsys):
    """Checks that a command ends with one line if its output is full."""
    with open("/dev/full", "w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        message = fails(main, argv, capsys, code=1)
    assert message.endswith(": standard output: No space left on device\n")


def load_script(name, folder=ROOT / "examples"):
    """Loads a script that is in no package, and returns its module."""
    spec = importlib.util.spec_from_file_location(
        f"script_{name}", folder / f"{name}.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_pairs(prefix, pairs):
    """Writes PREFIX.en and PREFIX.de. Returns PREFIX as a string."""
    english, german = zip(*pairs, strict=True) if pairs else ((), ())
    return write_sides(prefix, en=english, de=german)


def write_sides(prefix, **sides):
    """Writes lines into PREFIX.LANGUAGE for each language. Returns PREFIX."""
    for language, lines in sides.items():
        text = "".join(f"{line}\n" for line in lines)
        pathlib.Path(f"{prefix}.{language}").write_text(text, encoding="utf-8")
    return str(prefix)


@contextlib.contextmanager
def changed_config(workdir):
    """Yields the configuration of a work directory, then writes it back."""
    path = pathlib.Path(workdir) / "config.json"
    config = json.loads(path.read_text())
    yield config
    path.write_text(json.dumps(config))


def copy_of_run(path, step, target):
    """Copies a work directory as it was after a step."""
    ignore = shutil.ignore_patterns("logs", "averaged")
    shutil.copytree(path, target, ignore=ignore)
    for file in (target / "checkpoints").iterdir():
        if file.stem != f"ckpt-{step}":
            file.unlink()
    return target


def stopped_at(step, patch, number=signal.SIGTERM):
    """Sends a signal to this process when a trainer has made a step."""
    make_step = loop.Trainer._step

    def then_signal(trainer, batch):
        make_step(trainer, batch)
        if trainer.progress.step == step:
            signal.raise_signal(number)

    patch.setattr(loop.Trainer, "_step", then_signal)


def free_ports(number):
    """Returns unused ports of this machine."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("localhost", 0))
        return [each.getsockname()[1] for each in sockets]


def cluster_of(hosts, index, kind="worker", **others):
    """Returns the value of TF_CONFIG for a worker."""
    cluster = {"worker": hosts, **others}
    return {"cluster": cluster, "task": {"type": kind, "index": index}}


def losses_in(text):
    """Reads {step: loss} from a training log, whose last line may be cut."""
    losses = {}
    for line in text.splitlines():
        if line.startswith("step ") and line.count(" | ") >= 6:
            step, _, loss = line.split(" | ")[:3]
            losses[int(step.split()[1])] = float(loss.split()[1])
    return losses


def train(argv):
    """Trains without trying the largest batch. Returns the log."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), largest_batch_untried():
        wmt.main(argv)
    return out.getvalue()


def check_resumed(argv, path, step, expected):
    """Resumes a training after a step, and compares its losses with a log."""
    again = copy_of_run(path, step, path.with_name("resumed"))
    log = train([*argv, f"--workdir={again}"])
    assert f"resuming at step {step}" in log and "skipped" not in log
    found, losses = losses_in(log), losses_in(expected)
    assert list(found) == [s for s in losses if s > step] != []
    assert found == pytest.approx({s: losses[s] for s in found}, rel=1e-3)


def open_trainer(argv, try_largest=False):
    """Opens the `Trainer` of a kt-train command line, without running it.

    Args:
        argv: The arguments.
        try_largest: Whether to try the largest batch, as the command does. This
            takes seconds, most of them to trace a step.
    """
    arguments, options = wmt.read_arguments(argv)
    configuration = wmt.read_configuration(arguments, options.preset)
    with contextlib.ExitStack() as stack:
        if not try_largest:
            stack.enter_context(largest_batch_untried())
        return session.open_trainer(configuration, options.workdir, keep=True)


def largest_batch_untried():
    """Returns a context in which trainers do not try the largest batch."""
    return unittest.mock.patch.object(session, "try_batches", lambda *_: 1e-3)


@dataclasses.dataclass
class Process:
    """A command in its own process, started by `Processes`."""

    pid: int
    out_path: pathlib.Path
    err_path: pathlib.Path
    processes: "Processes"

    @property
    def out(self):
        return self.out_path.read_text(errors="replace")

    @property
    def err(self):
        return self.err_path.read_text(errors="replace")

    def wait(self):
        """Waits for the end, and returns the exit status."""
        return self.processes.wait(self.pid)

    def ends(self, status=0):
        """Waits for the end, checks the status, and returns standard output."""
        found = self.wait()
        assert found == status, (found, self.out[-500:], self.err[-3000:])
        return self.out

    def read_until(self, text, seconds=900):
        """Waits for a text in the standard output, and returns the output."""
        deadline = time.monotonic() + seconds
        while text not in self.out:
            assert time.monotonic() < deadline, (self.out, self.err[-3000:])
            time.sleep(0.01)
        return self.out

    def send_signal(self, number):
        os.kill(self.pid, number)


class Processes:
    """Starts commands through `fork_server.py`.

    Args:
        directory: The directory for their output.
    """

    def __init__(self, directory):
        self._directory = directory
        self._count = 0
        self._running = set()
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        }
        # A user's command is not silenced like the tests.
        self._environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
        self._server = subprocess.Popen(
            [sys.executable, ROOT / "tests/fork_server.py"],
            cwd=ROOT,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(
        self,
        arguments,
        accident="none",
        module="trainers.wmt",
        function="main",
        out=None,
        fresh=False,
        **environment,
    ):
        """Starts a command, and returns its `Process`.

        With `fresh`, it imports TensorFlow again, as a user's command does:
        TensorFlow reads some variables only when it is imported.
        """
        self._count += 1
        paths = [
            self._directory / f"{self._count}.{name}" for name in ("out", "err")
        ]
        if out is not None:
            paths[0] = pathlib.Path(out)
        for path in paths:
            path.touch()
        if fresh:
            environment = {**self._environment, **environment}
        request = {
            "module": module,
            "function": function,
            "arguments": [str(argument) for argument in arguments],
            "out": str(paths[0]),
            "err": str(paths[1]),
            "environment": environment,
            "accident": accident,
            "fresh": fresh,
        }
        process = Process(self._ask(request), *paths, self)
        self._running.add(process.pid)
        return process

    def wait(self, pid):
        """Waits for the end of a process, and returns its exit status."""
        status = self._ask({"wait": pid})
        self._running.discard(pid)
        return status

    def close(self):
        """Ends the server, and processes that failed tests left running."""
        for pid in list(self._running):
            os.kill(pid, signal.SIGKILL)
            self.wait(pid)
        self._server.stdin.close()
        self._server.wait()

    def _ask(self, request):
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline())
