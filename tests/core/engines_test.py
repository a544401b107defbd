"""TensorFlow's and JAX's engines give the same training, in turn or alone.

JAX runs in processes of its own, with KERAS_BACKEND=jax.
"""

import io
import json
import pathlib
import shutil
import sys

import numpy as np
import pytest
from commands import copy_of_run, losses_in, run_python, tensors

from keras_transformer.storage.checkpoints import Checkpoint
from trainers import translate, wmt

FIXTURE = pathlib.Path(__file__).parents[1] / "fixtures/workdir_0_2"
FLAGS = [
    "--vocab_size=150",
    "--d_model=16",
    "--d_ff=16",
    "--num_heads=2",
    "--num_layers=1",
    "--dropout=0",
    "--subword_sampling=0.1",
    "--batch_tokens=6000",
    "--num_buckets=1",
    "--warmup_steps=10",
    "--clip_norm=1",
    "--ema_decay=0.9",
    "--log_steps=1",
    "--checkpoint_steps=2",
    "--keep_checkpoints=9",
    "--strategy=one_device",
]
# Adam makes steps of gradients that are zero but for rounding.
TOLERANCE = dict(rtol=1e-3, atol=1e-4)


@pytest.fixture(scope="module")
def on_jax(tmp_path_factory):
    """Runs a command under JAX. Returns its standard output."""
    cache = tmp_path_factory.mktemp("compiled")

    def run(module, argv, text="", cwd=None):
        return run_python(
            *("-m", module, *argv),
            text=text,
            cwd=cwd,
            KERAS_BACKEND="jax",
            JAX_PLATFORMS="cpu",
            JAX_COMPILATION_CACHE_DIR=str(cache),
            JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0",
        )

    return run


def assert_same_checkpoints(path, other, step):
    """Checks that progress and arrays, except random states, are equal."""
    prefixes = [f"{where}/checkpoints/ckpt-{step}" for where in (path, other)]
    groups = ("weights", "trained", "optimizer")
    arrays, others = (tensors(prefix, *groups) for prefix in prefixes)
    assert arrays.keys() == others.keys()
    for name, array in arrays.items():
        np.testing.assert_allclose(
            others[name], array, err_msg=name, **TOLERANCE
        )
    progress, other_progress = (
        {
            name: value
            for name, value in Checkpoint(prefix).progress.items()
            if not name.endswith("_seconds")
        }
        for prefix in prefixes
    )
    assert progress == other_progress


@pytest.mark.slow("backend")
def test_a_run_changes_its_engine_and_back(
    train_files, on_jax, tmp_path, capsys
):
    """TensorFlow, JAX, TensorFlow: the losses and weights of one engine.

    The second epoch has other batches and other segmentations.
    """
    argv = [*train_files, *FLAGS]
    wmt.main([*argv, "--train_steps=8", f"--workdir={tmp_path}/one"])
    expected = losses_in(capsys.readouterr().out)
    assert sorted(expected) == list(range(1, 9))
    path = copy_of_run(tmp_path / "one", 2, tmp_path / "two")
    argv.append(f"--workdir={path}")
    out = on_jax("trainers.wmt", [*argv, "--train_steps=6"])
    assert "JAX" in out.splitlines()[0] and "resuming at step 2" in out
    losses = losses_in(out)
    assert_same_checkpoints(tmp_path / "one", path, 6)
    wmt.main([*argv, "--train_steps=8"])
    out = capsys.readouterr().out
    assert "JAX" not in out and "resuming at step 6" in out
    losses.update(losses_in(out))
    assert sorted(losses) == list(range(3, 9))
    for step, loss in losses.items():
        assert loss == pytest.approx(expected[step], rel=1e-4)
    assert_same_checkpoints(tmp_path / "one", path, 8)
    epochs = [
        Checkpoint(f"{path}/checkpoints/ckpt-{step}").progress["epoch"]
        for step in (2, 8)
    ]
    assert epochs[0] < epochs[1]


@pytest.fixture
def small_run(tmp_path, monkeypatch):
    """A work directory, and its expected values."""
    shutil.copytree(FIXTURE, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return json.loads((FIXTURE / "expected.json").read_text())


@pytest.mark.slow("backend")
def test_both_translate_alike(small_run, on_jax, monkeypatch, tmp_path, capsys):
    text = "".join(f"{source}\n" for source in [*small_run["sources"], ""])
    argv = ["--workdir=run", "--n_best=2"]
    out = on_jax("trainers.translate", argv, text, tmp_path).splitlines()
    monkeypatch.setattr(
        sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()))
    )
    translate.main(argv)
    expected = capsys.readouterr().out.splitlines()
    assert len(out) == len(expected) >= 9
    for line, its_line in zip(out, expected, strict=True):
        *texts, score = line.split(" ||| ")
        *its_texts, its_score = its_line.split(" ||| ")
        assert texts == its_texts
        if texts:
            assert float(score) == pytest.approx(float(its_score), rel=1e-3)
