"""Two processes under JAX: equal to one, and what they owe each other."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
from conftest import arrays_of, losses_in

from trainers import wmt

SECONDS = 240  # for anything that a test waits for
LEVEL = "--xla_backend_optimization_level=0"


class Worker:
    """A worker of a training, in a process of its own.

    Args:
        argv: Arguments of trainers.wmt.
        index, hosts: The worker's place in the cluster.
        num_devices: Its simulated devices.
        directory: For what it prints.
    """

    def __init__(self, argv, index, hosts, num_devices, directory):
        task = {"type": "worker", "index": index}
        cluster = {"cluster": {"worker": hosts}, "task": task}
        devices = f"--xla_force_host_platform_device_count={num_devices}"
        name = f"{hosts[0].split(':')[1]}.{index}"
        self._paths = [directory / f"{name}.{end}" for end in ("out", "err")]
        with open(self._paths[0], "w") as out, open(self._paths[1], "w") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "trainers.wmt", *argv],
                env={
                    **os.environ,
                    "TF_CONFIG": json.dumps(cluster),
                    "XLA_FLAGS": f"{devices} {LEVEL}",
                },
                stdout=out,
                stderr=err,
            )

    @property
    def out(self):
        return self._paths[0].read_text()

    @property
    def err(self):
        return self._paths[1].read_text()

    def read_until(self, text):
        deadline = time.monotonic() + SECONDS
        while text not in self.out:
            assert time.monotonic() < deadline, (self.out, self.err)
            assert self.process.poll() is None, (self.out, self.err)
            time.sleep(0.05)

    def ends(self, status=0):
        """Waits for the end, which must have a status; the standard output."""
        found = self.process.wait(SECONDS)
        assert found == status, (self.out, self.err)
        return self.out


@pytest.fixture
def start(tmp_path):
    """Starts two workers; those that a failed test leaves are killed."""
    started = []

    def start(argv, num_devices=1):
        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(socket.socket()) for _ in range(2)]
            for each in sockets:
                each.bind(("localhost", 0))
            ports = [each.getsockname()[1] for each in sockets]
        hosts = [f"localhost:{port}" for port in ports]
        workers = [
            Worker(argv, index, hosts, num_devices, tmp_path)
            for index in range(2)
        ]
        started.extend(workers)
        return workers

    yield start
    for worker in started:
        if worker.process.poll() is None:
            worker.process.kill()
            worker.process.wait()


def assert_same(path, losses, expected):
    """The losses of a training, and its first gradients, by their moments."""
    expected_path, expected_losses = expected
    assert losses == pytest.approx(expected_losses, rel=2e-5)
    first = "checkpoints/ckpt-1"
    moments = arrays_of(path / first, "optimizer")
    for name, value in arrays_of(expected_path / first, "optimizer").items():
        np.testing.assert_allclose(
            moments[name], value, rtol=1e-4, atol=1e-7, err_msg=name
        )


def test_two_workers_are_one_device(exact, one_device, start, tmp_path):
    """With four devices each."""
    path = tmp_path / "run"
    argv = [*exact, "--strategy=multi_worker", f"--workdir={path}"]
    chief, other = start(argv, num_devices=4)
    out = chief.ends()
    assert "as 8 devices" in out
    assert "step" not in other.ends()
    assert_same(path, losses_in(out), one_device)


def test_parameters_in_parts_on_two_workers(
    exact, corpus, one_device, start, tmp_path, capsys
):
    """Validated and saved by one of them; one process resumes from it."""
    path = tmp_path / "run"
    valid = next(flag for flag in corpus if flag.startswith("--valid"))
    argv = [flag for flag in exact if not flag.startswith("--test")]
    argv += [f"--workdir={path}", "--shard_parameters"]
    argv += [valid, "--valid_steps=2", "--train_steps=2"]
    chief, other = start([*argv, "--strategy=multi_worker"])
    out = chief.ends()
    other.ends()
    assert "validation" in out
    two = {step: loss for step, loss in one_device[1].items() if step < 3}
    assert_same(path, losses_in(out), (one_device[0], two))
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
    chief, other = start(argv)
    chief.read_until("step 12 ")
    other.process.kill()
    lost_at = time.monotonic()
    before = losses_in(chief.ends(1).rpartition("\n")[0])
    assert time.monotonic() - lost_at < 20
    [line] = chief.err.splitlines()
    assert line.startswith("trainers.wmt: worker 0 of 2 has lost another work")
    chief, other = start(argv)
    chief.read_until(f"step {max(before) + 1} ")
    other.process.send_signal(signal.SIGTERM)
    out = chief.ends()
    other.ends()
    assert "stopped by SIGTERM | step " in out
    resumed = int(out.split("resuming at step ")[1].split(":")[0])
    assert resumed % 7 == 0 and resumed >= 7
    after = losses_in(out)
    again = before.keys() & after.keys()
    assert len(again) >= 1
    assert {s: after[s] for s in again} == {s: before[s] for s in again}
    stopped = int(out.split("SIGTERM | step ")[1].split()[0])
    assert (path / f"checkpoints/ckpt-{stopped}.safetensors").exists()
    # Without its chief a worker does not wait, either.
    chief, other = start(argv)
    chief.read_until(f"step {stopped + 3} ")
    chief.process.kill()
    lost_at = time.monotonic()
    assert other.process.wait(SECONDS) != 0
    assert time.monotonic() - lost_at < 20


def test_workers_have_rows_of_their_own(exact, tmp_path, opened, monkeypatch):
    """Together they have those of one process."""
    engine = opened([*exact, f"--workdir={tmp_path}"]).engine
    monkeypatch.setattr(engine._step, "place_rows", lambda *batch: batch)

    def rows(index, size):
        engine._workers.index, engine._workers.size = index, size
        return [labels for _, labels in engine.batches(1, 0, 4)]

    for whole, *parts in zip(rows(0, 1), rows(0, 2), rows(1, 2), strict=True):
        assert {len(part) for part in parts} == {len(whole) // 2}
        np.testing.assert_array_equal(
            sorted(map(tuple, np.concatenate(parts))), sorted(map(tuple, whole))
        )
