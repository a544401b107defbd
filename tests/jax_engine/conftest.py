"""Tests of the JAX engine, with eight simulated devices and no TensorFlow.

`make test-jax` runs them in an environment of their own.
"""

import contextlib
import io
import os
import shutil
import sys
import tempfile

# Programs that several tests need are compiled once, which saves most of the
# time.
os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp()
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "0"
os.environ["KERAS_BACKEND"] = "jax"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "")
    + " --xla_force_host_platform_device_count=8"
    " --xla_backend_optimization_level=0"
)
# For the processes that tests start.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [os.getcwd(), os.environ.get("PYTHONPATH", "")]
)

sys.path.insert(0, os.path.join(os.getcwd(), "tests"))  # commands.py

import pytest
from commands import losses_in, write_pairs

from trainers import wmt
from trainers.datasets import phrasebook

MODEL = """
    --vocab_size=150 --d_model=16 --d_ff=16 --num_heads=2 --num_layers=1
""".split()
RECIPE = """
    --batch_tokens=1300 --num_buckets=2 --warmup_steps=10 --log_steps=1
    --checkpoint_steps=2 --keep_checkpoints=3 --average_last=2 --train_steps=6
    --beam_size=2
""".split()


def pytest_configure(config):
    installed = {"tensorflow", "tensorflow_text"} & set(sys.modules)
    assert not installed, f"{installed} must not be imported"


def pytest_unconfigure(config):
    shutil.rmtree(os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """Flags that name a small corpus in files."""
    directory = tmp_path_factory.mktemp("corpus")
    argv = ["--dataset=files"]
    for name, size in (("train", 300), ("valid", 12), ("test", 8)):
        pairs = phrasebook.read_split(name, size)
        prefix = write_pairs(directory / name, pairs)
        argv.append(f"--{name}_files={prefix}")
    return argv


@pytest.fixture(scope="session")
def command(corpus):
    """Flags of a small training, except its work directory."""
    return [*corpus, *MODEL, *RECIPE]


@pytest.fixture(scope="session")
def exact(command):
    """Flags of a training whose batches have the same rows on 8 devices."""
    argv = [flag for flag in command if "valid" not in flag]
    argv += ["--dropout=0", "--num_buckets=1", "--max_length=40"]
    # 16 rows, which 1, 2, 8 and 16 divide.
    argv += ["--batch_tokens=660", "--train_steps=3"]
    return [*argv, "--checkpoint_steps=1", "--keep_checkpoints=9"]


@pytest.fixture(scope="session")
def one_device(exact, tmp_path_factory):
    """The work directory and the losses of the exact training on one device."""
    path = tmp_path_factory.mktemp("one")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        wmt.main([*exact, "--strategy=one_device", f"--workdir={path}"])
    return path, losses_in(out.getvalue())
