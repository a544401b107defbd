"""Tests of the JAX engine, with eight simulated devices and no TensorFlow.

`make test-jax` runs them in an environment of their own.
"""

import os
import sys
import tempfile

# Programs that several tests need are compiled once, which saves most of the
# time.
COMPILED = tempfile.TemporaryDirectory()
os.environ["JAX_COMPILATION_CACHE_DIR"] = COMPILED.name
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "0"
os.environ["KERAS_BACKEND"] = "jax"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = (
    "--xla_force_host_platform_device_count=8"
    " --xla_backend_optimization_level=0"
)
# For the processes that tests start.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [os.getcwd(), os.environ.get("PYTHONPATH", "")]
)

import pytest

from trainers import phrasebook

MODEL = [
    "--vocab_size=150",
    "--d_model=16",
    "--d_ff=16",
    "--num_heads=2",
    "--num_layers=1",
]
RECIPE = [
    "--batch_tokens=1300",
    "--num_buckets=2",
    "--warmup_steps=10",
    "--log_steps=1",
    "--checkpoint_steps=2",
    "--keep_checkpoints=3",
    "--average_last=2",
    "--train_steps=6",
    "--beam_size=2",
]


def pytest_configure(config):
    installed = {"tensorflow", "tensorflow_text"} & set(sys.modules)
    assert not installed, f"{installed} must not be imported"


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """Flags that name a small corpus in files."""
    directory = tmp_path_factory.mktemp("corpus")
    argv = ["--dataset=files"]
    for name, size in (("train", 300), ("valid", 12), ("test", 8)):
        for side, language in enumerate(("en", "de")):
            lines = [
                pair[side] + "\n" for pair in phrasebook.make_split(name, size)
            ]
            path = directory / f"{name}.{language}"
            path.write_text("".join(lines), encoding="utf-8")
        argv.append(f"--{name}_files={directory / name}")
    return argv


@pytest.fixture(scope="session")
def command(corpus):
    """Flags of a small training, but for its work directory."""
    return [*corpus, *MODEL, *RECIPE]
