"""Training that is killed at any moment continues as if never killed.

Its pairs are those of a mixture whose second stage begins in the middle. They
are segmented anew in every epoch, and have other batches in each, and other
tokens are linked.

`KILLS=20 pytest tests/core/resume_test.py` kills more often than the suite.
"""

import os
import random
import re
import signal
import time

import numpy as np
import pytest
from commands import SMALL_MODEL, losses_in, tensors, write_pairs

from keras_transformer.storage.checkpoints import corruption
from keras_transformer.storage.workdir import WorkDirectory
from trainers.datasets import phrasebook

KILLS = int(os.environ.get("KILLS", "2"))
STEPS = 12 * KILLS
FLAGS = [
    *SMALL_MODEL,
    "--vocab_size=150",
    "--dropout=0.1",
    "--attention_dropout=0.1",
    "--subword_sampling=0.1",
    "--batch_tokens=1300",
    "--num_buckets=2",
    "--warmup_steps=10",
    "--log_steps=1",
    "--checkpoint_steps=2",
    "--keep_checkpoints=3",
    "--average_last=3",
    f"--train_steps={STEPS}",
]
# What goes wrong at the second checkpoint of a session; see fork_server.py.
ACCIDENTS = (
    "before_writing",
    "half_written",
    "torn",
    "written_and_nothing_dropped",
    "half_dropped",
    "full_disk",
)


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    directory = tmp_path_factory.mktemp("corpora")
    links = directory / "links.txt"
    links.write_text("0-0 1-1\n" * 150)
    pairs = phrasebook.read_split("train", 300)
    prefixes = [
        write_pairs(directory / name, half)
        for name, half in (("original", pairs[:150]), ("back", pairs[150:]))
    ]
    return [
        "--dataset=files",
        f"--train_files={','.join(prefixes)}",
        "--mixture=original 1, back 1.1, until 1; back 1, original 0.7",
        f"--guided_alignment={links},{links}",
        *FLAGS,
    ]


def last_weights(path):
    """Returns the tensors of the newest checkpoint, by name."""
    return tensors(WorkDirectory(path).latest.prefixes()[0])


@pytest.fixture(scope="module")
def unbroken(flags, processes, tmp_path_factory):
    """The losses by step and last weights of an unbroken training."""
    path = tmp_path_factory.mktemp("unbroken")
    out = processes.start([*flags, f"--workdir={path}"]).ends()
    losses = losses_in(out)
    epochs = re.findall(r"epoch 2: (\d+) of original, (\d+) of back; ", out)
    assert epochs[-1] == ("105", "150")
    assert sorted(losses) == list(range(1, STEPS + 1))
    return losses, last_weights(path)


def assert_same_curve(losses, unbroken):
    assert sorted(losses) == sorted(unbroken)
    np.testing.assert_allclose(
        [losses[step] for step in unbroken], list(unbroken.values()), rtol=1e-3
    )


def assert_same_end(path, unbroken):
    ours = last_weights(path)
    assert ours.keys() == unbroken.keys()
    for name, expected in unbroken.items():
        np.testing.assert_allclose(
            ours[name], expected, rtol=1e-3, atol=1e-4, err_msg=name
        )


@pytest.mark.slow("run")
def test_killed_at_random_moments(flags, processes, unbroken, tmp_path):
    """SIGKILL after a random number of lines and a random while."""
    choose = random.Random(11)
    argv = [*flags, f"--workdir={tmp_path}"]
    losses = {}
    for _ in range(KILLS):
        process = processes.start(argv)
        lines = choose.randrange(14)  # of which the first few are the start
        while process.out.count("\n") < lines:
            time.sleep(0.01)
        time.sleep(choose.random() * 0.3)
        process.send_signal(signal.SIGKILL)
        losses.update(losses_in(process.ends(-signal.SIGKILL)))
    losses.update(losses_in(processes.start(argv).ends()))
    assert_same_curve(losses, unbroken[0])
    assert_same_end(tmp_path, unbroken[1])


@pytest.mark.slow("process")
def test_killed_while_it_writes_a_checkpoint(
    flags, processes, unbroken, tmp_path
):
    """Accidents follow each other, and each session resumes after the last."""
    argv = [*flags, f"--workdir={tmp_path}", "--keep_checkpoints=1"]
    argv += ["--average_last=1"]
    checkpoints = WorkDirectory(tmp_path).latest
    losses = {}
    for number, accident in enumerate(ACCIDENTS):
        process = processes.start(argv, accident)
        if accident == "full_disk":
            out = process.ends(1)
            last = process.err.splitlines()[-1]
            assert "cannot write the checkpoint of step " in last
            assert "{{" not in last  # no node of a graph
            [good] = checkpoints.prefixes()
            assert last.endswith(f"The last good checkpoint is {good}")
        else:
            out = process.ends(-signal.SIGKILL)
        assert ("resuming at step " in out) == (number > 0), accident
        losses.update(losses_in(out))
        intact = [p for p in checkpoints.prefixes() if not corruption(p)]
        assert intact, accident
    assert max(losses) < STEPS
    out = processes.start(argv).ends()
    assert_same_curve({**losses, **losses_in(out)}, unbroken[0])
    assert_same_end(tmp_path, unbroken[1])
    # What the accidents left is gone.
    names = {
        path.name.split(".")[0] for path in checkpoints.directory.iterdir()
    }
    assert names == {f"ckpt-{STEPS}"}


@pytest.mark.parametrize(
    "accident, status, message",
    [
        ("full_disk_at_once", 1, "There is no checkpoint yet"),
        ("interrupted_at_the_door", 130, "kt-train: interrupted"),
    ],
)
def test_ends_with_one_line(
    accident, status, message, flags, processes, tmp_path
):
    process = processes.start([*flags, f"--workdir={tmp_path}"], accident)
    process.ends(status)
    assert process.err.splitlines()[-1].endswith(message)
    assert "Traceback" not in process.err


@pytest.mark.slow("process")
def test_two_trainings_in_one_place(flags, processes, tmp_path):
    """The second is refused; SIGHUP ends the first, with a checkpoint."""
    argv = [*flags, f"--workdir={tmp_path}"]
    endless = ["--train_steps=100000", "--nojit_compile"]  # without a trial
    first = processes.start([*argv, *endless])
    first.read_until("step 3 ")
    second = processes.start(argv)
    second.ends(2)
    last = second.err.splitlines()[-1]
    assert f"another process is training in {tmp_path}" in last
    first.send_signal(signal.SIGHUP)
    out = first.ends()
    assert "stopped by SIGHUP | step " in out
    step = out.split("stopped by SIGHUP | step ")[1].split()[0]
    assert WorkDirectory(tmp_path).latest.find_intact().endswith(f"-{step}")
