"""Killed at any moment, training follows the curve of one never killed.

`KILLS=20 pytest tests/resume_test.py` kills more often than the suite does.
"""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf
from commands import losses_in

from keras_transformer.workdir import WorkDirectory, damage

ROOT = pathlib.Path(__file__).parents[1]
KILLS = int(os.environ.get("KILLS", "3"))
STEPS = 12 * KILLS
FLAGS = [
    "--phrasebook_pairs=300",
    "--vocab_size=150",
    "--d_model=16",
    "--d_ff=16",
    "--num_heads=2",
    "--num_layers=1",
    "--dropout=0.1",
    "--attention_dropout=0.1",
    "--batch_tokens=500",
    "--num_buckets=2",
    "--warmup_steps=10",
    "--log_steps=1",
    "--valid_steps=1000000",
    "--valid_sentences=1",
    "--checkpoint_steps=2",
    "--keep_checkpoints=3",
    "--average_last=3",
    f"--train_steps={STEPS}",
]

# TensorFlow is imported once; every training is a fork of this process.
SERVER = """
import json, os, resource, signal, sys
import tensorflow as tf
from keras_transformer import workdir
from trainers import wmt
from trainers.loop import Trainer

def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def at_second_save(act):
    save = workdir.Checkpoints.save
    count = [0]
    def wrapped(self, checkpoint, step, keep):
        count[0] += 1
        if count[0] == 2:
            act(self, step)
        return save(self, checkpoint, step, keep)
    workdir.Checkpoints.save = wrapped

def before_writing():
    at_second_save(lambda *_: kill())

def data_without_index():
    def act(checkpoints, step):
        checkpoints._prefix(step)
        open(f"{checkpoints._prefix(step)}.data-00000-of-00001", "wb").write(
            b"half of it")
        kill()
    at_second_save(act)

def torn(ending):
    def act(checkpoints, step):
        write = tf.train.Checkpoint.write
        def torn_write(self, prefix):
            write(self, prefix)
            os.truncate(prefix + ending, os.path.getsize(prefix + ending) // 2)
            kill()
        tf.train.Checkpoint.write = torn_write
    at_second_save(act)

def torn_data():
    torn(".data-00000-of-00001")

def torn_index():
    torn(".index")

def written_and_nothing_dropped():
    at_second_save(lambda *_: setattr(workdir, "_remove", kill))

def half_dropped():
    remove = workdir._remove
    def once(path):
        remove(path)
        kill()
    at_second_save(lambda *_: setattr(workdir, "_remove", once))

def fill_disk(*_):
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

def full_disk():
    at_second_save(fill_disk)

def full_disk_at_once():
    save = workdir.Checkpoints.save
    def wrapped(self, checkpoint, step, keep):
        fill_disk()
        return save(self, checkpoint, step, keep)
    workdir.Checkpoints.save = wrapped

def interrupted_at_the_door():
    def prepare(argv):
        os.kill(os.getpid(), signal.SIGINT)
    wmt.prepare = prepare

def nothing():
    pass

for line in sys.stdin:
    argv, log, accident = json.loads(line)
    child = os.fork()
    if not child:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        globals()[accident]()
        status = 70
        try:
            wmt.main(argv)
            status = 0
        except SystemExit as end:
            status = end.code
        except BaseException as error:
            print(repr(error))
        sys.stdout.flush()
        os._exit(status)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Server:
    """Starts trainings, one at a time."""

    def __init__(self, directory):
        self.directory = directory
        self.runs = 0
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, argv, accident="nothing"):
        """Process id and log of a training."""
        self.runs += 1
        log = self.directory / f"{self.runs}.log"
        log.touch()
        message = json.dumps([argv, str(log), accident])
        self._process.stdin.write(message + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline()), log

    def status(self):
        """How it ended; waits for that."""
        return int(self._process.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("logs")) as server:
        yield server


def last_weights(path):
    """The tensors of the newest checkpoint, by name."""
    reader = tf.train.load_checkpoint(WorkDirectory(path).latest.prefixes()[0])
    return {
        name: reader.get_tensor(name)
        for name in reader.get_variable_to_shape_map()
        if name.split("/")[0] in ("weights", "seeds", "optimizer")
    }


@pytest.fixture(scope="module")
def unbroken(server, tmp_path_factory):
    """Losses by step and last weights of a training never stopped."""
    path = tmp_path_factory.mktemp("unbroken")
    _, log = server.start([*FLAGS, f"--workdir={path}"])
    assert server.status() == 0, log.read_text()[-2000:]
    losses = losses_in(log.read_text())
    assert sorted(losses) == list(range(1, STEPS + 1))
    return losses, last_weights(path)


def assert_same_curve(losses, unbroken):
    expected = {step: unbroken[step] for step in losses}
    assert losses.keys() == expected.keys()
    np.testing.assert_allclose(
        list(losses.values()), list(expected.values()), rtol=1e-3
    )


def assert_same_end(path, unbroken):
    ours = last_weights(path)
    assert ours.keys() == unbroken.keys()
    for name, expected in unbroken.items():
        np.testing.assert_allclose(
            ours[name], expected, rtol=1e-3, atol=1e-4, err_msg=name
        )


def test_killed_at_random_moments(server, unbroken, tmp_path):
    """SIGKILL after a random number of lines and a random while."""
    choose = random.Random(11)
    argv = [*FLAGS, f"--workdir={tmp_path}"]
    losses, killed = {}, 0
    while killed < KILLS:
        process, log = server.start(argv)
        lines = choose.randrange(14)  # of which the first few are the start
        while log.read_text().count("\n") < lines:
            time.sleep(0.01)
        time.sleep(choose.random() * 0.3)
        os.kill(process, signal.SIGKILL)
        assert server.status() == -signal.SIGKILL, log.read_text()[-2000:]
        killed += 1
        losses.update(losses_in(log.read_text()))
    _, log = server.start(argv)
    assert server.status() == 0, log.read_text()[-2000:]
    losses.update(losses_in(log.read_text()))
    assert sorted(losses) == list(range(1, STEPS + 1))
    assert_same_curve(losses, unbroken[0])
    assert_same_end(tmp_path, unbroken[1])


@pytest.mark.parametrize(
    "accident, status, message",
    [
        ("full_disk_at_once", 1, "There is none before it"),
        ("interrupted_at_the_door", 130, "trainers.wmt: interrupted"),
    ],
)
def test_ends_with_one_line(accident, status, message, server, tmp_path):
    _, log = server.start([*FLAGS, f"--workdir={tmp_path}"], accident)
    assert server.status() == status, log.read_text()[-2000:]
    assert log.read_text().splitlines()[-1].endswith(message)
    assert "Traceback" not in log.read_text()


def test_two_trainings_in_one_place(server, tmp_path):
    """The second is refused; the first has its checkpoints."""
    argv = [*FLAGS, f"--workdir={tmp_path}"]
    with Server(tmp_path) as other:
        process, log = other.start([*argv, "--train_steps=100000"])
        while "step 3 " not in log.read_text():
            time.sleep(0.01)
        _, refused = server.start(argv)
        assert server.status() == 2
        last = refused.read_text().splitlines()[-1]
        assert f"another process is training in {tmp_path}" in last
        os.kill(process, signal.SIGTERM)
        assert other.status() == 0, log.read_text()[-2000:]
    assert WorkDirectory(tmp_path).latest.find_whole()


@pytest.mark.parametrize(
    "accident",
    [
        "before_writing",
        "data_without_index",
        "torn_data",
        "torn_index",
        "written_and_nothing_dropped",
        "half_dropped",
        "full_disk",
    ],
)
def test_killed_while_it_writes_a_checkpoint(
    accident, server, unbroken, tmp_path
):
    argv = [*FLAGS, f"--workdir={tmp_path}", "--keep_checkpoints=1"]
    argv += ["--average_last=1"]
    _, log = server.start(argv, accident)
    if accident == "full_disk":
        assert server.status() == 1, log.read_text()[-2000:]
        last = log.read_text().splitlines()[-1]
        assert "cannot write the checkpoint of step 4" in last
        assert last.endswith("ckpt-2")  # the one before, whole
    else:
        assert server.status() == -signal.SIGKILL
    losses = losses_in(log.read_text())
    checkpoints = WorkDirectory(tmp_path).latest
    assert any(damage(prefix) is None for prefix in checkpoints.prefixes())
    _, log = server.start([*argv, f"--train_steps={STEPS // 2}"])
    assert server.status() == 0, log.read_text()[-2000:]
    assert "resuming at step " in log.read_text()
    assert_same_curve({**losses, **losses_in(log.read_text())}, unbroken[0])
    # What the accident left is gone.
    names = {
        path.name.split(".")[0] for path in checkpoints.directory.iterdir()
    }
    assert names == {f"ckpt-{STEPS // 2}"}
