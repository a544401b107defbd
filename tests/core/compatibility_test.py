"""A work directory of version 0.2.0 is used and resumed by this version.

`fixtures/make_workdir_0_2.py` made it, with that version's code.
"""

import json
import pathlib
import shutil

import numpy as np
import pytest
from commands import losses_in

from keras_transformer.translator import Translator
from trainers import average, wmt

FIXTURE = pathlib.Path(__file__).parents[1] / "fixtures/workdir_0_2"


@pytest.fixture(scope="module")
def expected():
    return json.loads((FIXTURE / "expected.json").read_text())


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A copy of the run with the right paths in `expected.json`."""
    shutil.copytree(FIXTURE, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return pathlib.Path("run")


def test_it_translates(run, expected):
    for ours, theirs in zip(
        Translator.load(run).n_best(expected["sources"]),
        expected["translations"],
        strict=True,
    ):
        assert [text for text, _ in ours] == [text for text, _ in theirs]
        np.testing.assert_allclose(
            [score for _, score in ours],
            [score for _, score in theirs],
            rtol=1e-3,
        )


def test_it_resumes_where_it_was(run, expected, capsys):
    # With a field that no dataclass has any more, here and in `config.json`.
    assert "--tpu=\n" in (run / "flags.txt").read_text()
    assert '"tpu": ""' in (run / "config.json").read_text()
    argv = [f"--flagfile={run}/flags.txt", f"--workdir={run}"]
    wmt.main([*argv, "--train_steps=8"])
    out = capsys.readouterr().out
    assert "resuming at step 6: run/checkpoints/ckpt-6" in out
    losses, theirs = losses_in(out), losses_in("\n".join(expected["told"]))
    assert sorted(theirs) == [7, 8]
    for step, loss in theirs.items():
        np.testing.assert_allclose(losses[step], loss, rtol=1e-3)
    assert '"tpu"' not in (run / "config.json").read_text()
    average.main([f"--workdir={run}"])
    assert "ckpt-8 is the mean of" in capsys.readouterr().out
