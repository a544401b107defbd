"""A test run ends when a process dies or a stage takes too long.

A row of `make test-cpus` leaves out what its CPU cannot compute.
"""

import os
import pathlib
import re
import subprocess
import sys

import cpus
import keras
import pytest
from commands import fails

from keras_transformer import Translator
from keras_transformer.base import machine
from trainers import wmt

TESTS = pathlib.Path(__file__).parents[1]


def test_a_stage_is_ended_and_named():
    stage = TESTS.parent / ".ci/stage"

    def run(*command):
        done = subprocess.run([stage, *command], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    assert run("1", "sleep", "99") == (
        124,
        "stage 'sleep 99': ended after 1 s\n",
    )
    assert run("99", "false") == (1, "stage 'false': failed with status 1\n")
    status, told = run("99", "true")
    assert status == 0
    assert told.startswith("stage 'true': ")


def test_actions_are_pinned_by_commit():
    used = [
        line.strip()
        for path in (TESTS.parent / ".github/workflows").iterdir()
        for line in path.read_text().splitlines()
        if "uses:" in line
    ]
    pinned = r"- uses: [\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+"
    assert len(used) >= 10
    assert [line for line in used if not re.fullmatch(pinned, line)] == []


@pytest.mark.slow("process")
def test_a_test_that_ends_its_process_ends_the_run(tmp_path):
    (tmp_path / "died_test.py").write_text("""
import os, pathlib, time
def test_that_dies():
    while not pathlib.Path("begun").exists():
        time.sleep(0.01)
    os.abort()
""")
    (tmp_path / "other_test.py").write_text("""
import pathlib, pytest, time
@pytest.mark.parametrize("number", range(200))
def test_of_another_process(number):
    pathlib.Path("begun").touch()
    pathlib.Path("last").write_text(str(number))
    time.sleep(0.5)
""")
    command = "-m pytest -p conftest -n 2 --dist loadfile -c".split()
    done = subprocess.run(
        [sys.executable, *command, TESTS.parent / "pyproject.toml", "."],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stdout
    assert "died_test.py::test_that_dies - worker" in done.stdout
    assert int((tmp_path / "last").read_text()) < 199


def test_a_policy_without_a_marker_fails():
    """The test builds its policy's name from parts, so that it names none."""
    for start in ("mixed_f", "mixed_bf"):
        with pytest.raises(pytest.fail.Exception, match="names no"):
            keras.DTypePolicy("".join([start, "loat16"]))
    assert keras.DTypePolicy("float32").compute_dtype == "float32"


@pytest.fixture
def crashing(tmp_path, monkeypatch):
    """A TensorFlow whose float16 products end a new process."""
    (tmp_path / "tensorflow.py").write_text("""
import contextlib, os, signal, types
device = contextlib.nullcontext
ones = lambda shape, dtype: dtype
linalg = types.SimpleNamespace(matrix_transpose=lambda x: x)
def matmul(a, b):
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX2" and a == b
    if a == "float16":
        os.kill(os.getpid(), signal.SIGSEGV)
""")
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def test_a_row_leaves_out_what_crashes(crashing, capsys):
    assert cpus.without(cpus.ROWS["avx2"]) == "--without=float16"
    assert capsys.readouterr().out == (
        "  left out: tests of float16, whose products end in SIGSEGV\n"
    )


def test_products_that_crash_are_refused(
    crashing, monkeypatch, tmp_path, capsys
):
    expected = (
        "expected precision=float32, or no ONEDNN_MAX_CPU_ISA, with which"
        " TensorFlow crashes in products of float16 on this CPU (SIGSEGV)."
        " Received: precision='mixed_float16', ONEDNN_MAX_CPU_ISA=AVX2"
    )
    argv = ["--recipe=quickstart", f"--workdir={tmp_path}/run"]
    argv += ["--precision=mixed_float16"]
    assert expected in fails(wmt.main, argv, capsys)
    assert not (tmp_path / "run").exists()
    machine.check_products("mixed_bfloat16")
    machine.check_products("float32")
    with monkeypatch.context() as patch:
        patch.setenv("KERAS_BACKEND", "jax")
        machine.check_products("float16")
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA")
    machine.check_products("float16")


def test_a_translator_tries_its_precision(monkeypatch, tmp_path):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    monkeypatch.setattr(machine, "ending_of_products", lambda dtype: "SIGSEGV")
    with pytest.raises(ValueError, match="TensorFlow crashes in products of"):
        Translator.load(tmp_path, precision="bfloat16")
