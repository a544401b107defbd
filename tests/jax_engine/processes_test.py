"""Trainings in processes: two equal one, and a killed one resumes."""

import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time

import numpy as np
import pytest
from commands import Process, cluster_of, free_ports, losses_in, open_trainer
from engine_test import assert_same_arrays, assert_same_training

from trainers import wmt

SECONDS = 240  # for anything that a test waits for
LEVEL = "--xla_backend_optimization_level=0"


class Training(Process):
    """A training, or a worker of one, in a process of its own.

    Args:
        argv: Arguments of kt-train.
        directory: For what it prints.
        num_devices: Its simulated devices.
        environment: Variables that name the workers, or none.
    """

    def __init__(self, argv, directory, num_devices=1, environment=None):
        devices = f"--xla_force_host_platform_device_count={num_devices}"
        name = tempfile.mktemp(dir=directory)
        paths = [pathlib.Path(f"{name}.{end}") for end in ("out", "err")]
        with open(paths[0], "w") as out, open(paths[1], "w") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "trainers.wmt", *argv],
                env={
                    **os.environ,
                    **(environment or {}),
                    "XLA_FLAGS": f"{devices} {LEVEL}",
                },
                stdout=out,
                stderr=err,
            )
        super().__init__(self.process.pid, *paths, processes=None)

    def wait(self):
        return self.process.wait(SECONDS)

    def read_until(self, text):
        return super().read_until(text, SECONDS)


def in_tf_config():
    """Returns the environments of two workers on this machine."""
    hosts = [f"localhost:{port}" for port in free_ports(2)]
    return [
        {"TF_CONFIG": json.dumps(cluster_of(hosts, index))}
        for index in range(2)
    ]


def under_slurm():
    """Returns the environments that Slurm sets. Its job id gives JAX's port."""

    job = 0
    while not is_free(65536 - 4096 + job):
        job += 1
    return [
        {
            "SLURM_JOB_ID": str(4096 + job),
            "SLURM_STEP_NODELIST": "localhost",
            "SLURM_STEP_NUM_NODES": "1",
            "SLURM_NTASKS": "2",
            "SLURM_PROCID": str(index),
            "SLURM_LOCALID": str(index),
        }
        for index in range(2)
    ]


def is_free(port):
    with socket.socket() as each:
        return each.connect_ex(("localhost", port)) != 0


@pytest.fixture
def start(tmp_path):
    """Starts two workers, and kills those that a failed test leaves."""
    started = []

    def start(argv, num_devices=1, environments=in_tf_config):
        workers = [
            Training(argv, tmp_path, num_devices, environment)
            for environment in environments()
        ]
        started.extend(workers)
        return workers

    yield start
    for worker in started:
        if worker.process.poll() is None:
            worker.process.kill()
            worker.process.wait()


def test_two_workers_are_one_device(exact, one_device, start, tmp_path):
    """Each worker has four devices."""
    path = tmp_path / "run"
    argv = [*exact, "--strategy=multi_worker", f"--workdir={path}"]
    chief, other = start(argv, num_devices=4)
    out = chief.ends()
    assert "as 8 devices" in out
    assert "step" not in other.ends()
    assert_same_training(path, losses_in(out), one_device, 2e-5)


def test_parameters_in_parts_on_two_workers(
    exact, corpus, one_device, start, tmp_path, capsys
):
    """Validated and saved by one of them; one process resumes from it.

    The workers are named by Slurm.
    """
    path = tmp_path / "run"
    valid = next(flag for flag in corpus if flag.startswith("--valid"))
    argv = [flag for flag in exact if not flag.startswith("--test")]
    argv += [f"--workdir={path}", "--shard_parameters"]
    argv += [valid, "--valid_steps=2", "--train_steps=2"]
    argv_of_two = [*argv, "--strategy=multi_worker"]
    chief, other = start(argv_of_two, environments=under_slurm)
    out = chief.ends()
    other.ends()
    assert "validation" in out
    two = {step: loss for step, loss in one_device[1].items() if step < 3}
    assert_same_training(path, losses_in(out), (one_device[0], two), 2e-5)
    rates = [line.split(" | lr ")[1].split()[0] for line in steps_in(out)]
    assert float(rates[1]) == pytest.approx(2 * float(rates[0]), rel=1e-3)
    capsys.readouterr()
    argv += ["--strategy=one_device", "--train_steps=3", "--valid_steps=9"]
    wmt.main(argv)
    out = capsys.readouterr().out
    assert "resuming at step 2" in out
    assert losses_in(out)[3] == pytest.approx(one_device[1][3], rel=1e-4)


def steps_in(out):
    return [line for line in out.splitlines() if line.startswith("step ")]


def test_a_lost_worker_ends_the_other_and_both_resume(exact, start, tmp_path):
    """Steps that are made again have the losses that they had."""
    path = tmp_path / "run"
    argv = [*exact, "--strategy=multi_worker", f"--workdir={path}"]
    argv += ["--dropout=0.1", "--checkpoint_steps=7", "--train_steps=100000"]
    argv += ["--keep_checkpoints=100"]
    chief, other = start(argv)
    chief.read_until("step 12 ")
    other.process.kill()
    status = chief.process.wait(SECONDS)
    before = losses_in(chief.out.rpartition("\n")[0])
    waiting, line, *_ = chief.err.splitlines()
    assert waiting == "worker 0: waiting for the other workers"
    # It says so and ends at once; a process that waited would be aborted by
    # JAX. Seldom, a thread of JAX aborts it before it can say so.
    is_told = line.startswith("kt-train: worker 0 of 2 has lost another")
    assert status == (1 if is_told else -signal.SIGABRT), chief.err
    # The loss may follow a later checkpoint at once; steps follow the first.
    for file in (path / "checkpoints").glob("ckpt-*"):
        if file.name != "ckpt-7.safetensors":
            file.unlink()
    chief, other = start(argv)
    chief.read_until(f"step {max(before) + 1} ")
    other.process.send_signal(signal.SIGTERM)
    out = chief.ends()
    other.ends()
    assert "stopped by SIGTERM | step " in out
    assert "resuming at step 7:" in out
    after = losses_in(out)
    again = before.keys() & after.keys()
    assert again >= set(range(8, 13))
    assert {s: after[s] for s in again} == {s: before[s] for s in again}
    stopped = int(out.split("SIGTERM | step ")[1].split()[0])
    assert (path / f"checkpoints/ckpt-{stopped}.safetensors").exists()
    # Without its chief a worker ends, too.
    chief, other = start(argv)
    chief.read_until(f"step {stopped + 3} ")
    chief.process.kill()
    assert other.process.wait(SECONDS) != 0


def test_workers_have_rows_of_their_own(exact, tmp_path, monkeypatch):
    """Together they have those of one process."""
    engine = open_trainer([*exact, f"--workdir={tmp_path}"]).engine
    monkeypatch.setattr(engine._step, "place_rows", lambda *batch: batch)

    def rows(index, size):
        engine._workers.index, engine._workers.size = index, size
        return [labels for _, labels in engine.batches(1, 0, 4)]

    for whole, *parts in zip(rows(0, 1), rows(0, 2), rows(1, 2), strict=True):
        assert {len(part) for part in parts} == {len(whole) // 2}
        np.testing.assert_array_equal(
            sorted(map(tuple, np.concatenate(parts))), sorted(map(tuple, whole))
        )


def test_a_killed_run_resumes_exactly(command, tmp_path):
    """Killed at random moments, it ends with the same arrays, bit for bit.

    Its pairs are segmented anew in every epoch; units are dropped.
    """
    unused = ("--valid_files", "--test_files")
    argv = [flag for flag in command if not flag.startswith(unused)]
    argv += ["--num_buckets=1", "--train_steps=60", "--checkpoint_steps=4"]
    argv += ["--dropout=0.1", "--subword_sampling=0.1", "--ema_decay=0.9"]
    out = Training([*argv, f"--workdir={tmp_path}/one"], tmp_path).ends()
    expected = losses_in(out)
    argv.append(f"--workdir={tmp_path}/two")
    losses = {}
    seed = random.randrange(1000)
    print(f"seed {seed}")
    moments = random.Random(seed)
    for first in (5, 25):
        training = Training(argv, tmp_path)
        training.read_until(f"step {first} ")
        time.sleep(moments.uniform(0, 0.3))
        training.process.kill()
        training.process.wait()
        losses.update(losses_in(training.out.rpartition("\n")[0]))
    out = Training(argv, tmp_path).ends()
    assert "resuming at step " in out
    losses.update(losses_in(out))
    assert losses == expected and len(losses) == 60
    last = "checkpoints/ckpt-60"
    assert_same_arrays(tmp_path / "one" / last, tmp_path / "two" / last)
