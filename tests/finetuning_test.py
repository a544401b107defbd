"""A run that begins with another's weights, and the options for it."""

import contextlib
import dataclasses
import io
import os
import signal

import numpy as np
import pytest
import tensorflow as tf
from commands import open_trainer

from trainers import wmt
from trainers.config import TrainingConfig
from trainers.formulas import peak_learning_rate

MODEL = (
    "--vocab_size=120",
    "--d_model=16",
    "--d_ff=16",
    "--num_heads=2",
    "--num_layers=2",
)
RECIPE = (
    "--batch_tokens=400",
    "--num_buckets=1",
    "--log_steps=1",
    "--checkpoint_steps=2",
    "--train_steps=4",
)


@pytest.fixture(scope="module")
def parent(train_files, tmp_path_factory):
    """A work directory to begin with."""
    path = tmp_path_factory.mktemp("parent") / "run"
    argv = [*train_files, *MODEL, *RECIPE, "--beam_size=3"]
    with contextlib.redirect_stdout(io.StringIO()):
        wmt.main([*argv, f"--workdir={path}"])
    return path


@pytest.fixture(scope="module")
def command(train_files, parent):
    """Flags of a run that begins with it, but for its work directory."""
    return [*train_files, *RECIPE, f"--init_from={parent}"]


def tensors(prefix, group):
    """The tensors of a group of a checkpoint, by name."""
    reader = tf.train.load_checkpoint(str(prefix))
    return {
        name.split("/")[1]: reader.get_tensor(name)
        for name in reader.get_variable_to_shape_map()
        if name.split("/")[0] == group
    }


# Schedules


@pytest.mark.parametrize(
    "flags, message",
    [
        ({"learning_rate": 0.1}, "needs schedule=constant, linear or cosine"),
        ({"warmup_steps": 0}, "at least 1 with schedule=noam"),
        ({"schedule": "linear"}, "needs learning_rate, its peak"),
        (
            {
                "schedule": "constant",
                "learning_rate": 0.1,
                "learning_rate_scale": 2.0,
            },
            "learning_rate_scale needs schedule=noam",
        ),
        (
            {
                "schedule": "cosine",
                "learning_rate": 0.1,
                "warmup_steps": 9,
                "train_steps": 9,
            },
            "warmup_steps must be below train_steps=9",
        ),
    ],
)
def test_options_of_another_schedule(flags, message):
    with pytest.raises(ValueError, match=message):
        TrainingConfig(**flags)


def test_no_warmup_unless_noam(small_config):
    fine = TrainingConfig(schedule="linear", learning_rate=0.1)
    assert (TrainingConfig().updates_to_peak, fine.updates_to_peak) == (4000, 0)
    assert peak_learning_rate(small_config, fine) == (0.1, 1)
    warm = dataclasses.replace(fine, warmup_steps=8)
    assert peak_learning_rate(small_config, warm) == (0.1, 8)


def test_the_rate_follows_the_clock(train_files, tmp_path, capsys, monkeypatch):
    """Half of the minutes are over: half of the rate, whatever the step.

    The minutes of earlier sessions are a part of the progress in a checkpoint.
    """
    argv = [*train_files, *MODEL, *RECIPE, f"--workdir={tmp_path}"]
    argv += ["--schedule=linear", "--learning_rate=0.01", "--train_steps=1000"]
    trainer = open_trainer([*argv, "--train_minutes=100"])
    trainer.progress.wall_seconds = 50 * 60.0
    after_step = trainer._after_step

    def stop_after_two(before):
        after_step(before)
        if trainer.progress.step == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(trainer, "_after_step", stop_after_two)
    trainer.run()
    rates = [
        float(line.split("lr ")[1].split()[0])
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("step ")
    ]
    np.testing.assert_allclose(rates, [0.005] * 2, rtol=0.02)
