"""Setup of all tests: a quiet TensorFlow with two logical CPU devices."""

import gc
import os
import random

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
# No test needs LLVM's optimizations, a quarter of the time of a test of XLA.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

import half_precision
import later
import pytest
import sharing
from absl import logging

import keras_transformer as kt

# Graphs have many objects and little garbage. With the default thresholds,
# collections take a twentieth of the time.
gc.set_threshold(100_000, 50, 100)


# The longest files. They start first, since `make test` assigns whole files in
# order, and a long one must not still run when the other processes have ended.
LONGEST = (
    *("savedmodel_formats", "training", "translator", "multilingual", "model"),
    *("trainers", "importers_m2m100", "strategies", "decoding", "adapters"),
    *("layers", "ensembles", "terminology", "multilingual_exports", "serving"),
)


def pytest_configure(config):
    """Loads TensorFlow, except in the process that only starts others."""
    is_worker = hasattr(config, "workerinput")
    if config.getoption("numprocesses", None) and not is_worker:
        return
    import keras
    import tensorflow as tf

    if keras.backend.backend() == "tensorflow":
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0],
            [tf.config.LogicalDeviceConfiguration()] * 2,
        )


def pytest_sessionfinish():
    """Freezes all objects, so that pytest's five collections skip graphs."""
    gc.freeze()


def pytest_addoption(parser):
    parser.addoption("--order-seed", help="another order of files and tests")
    parser.addoption(
        "--without", default="", help="dtypes; see tests/half_precision.py"
    )


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report):
    """Ends the run if a test has ended its process.

    By default, pytest-xdist continues the tests of the other processes.
    """
    if report.when == "???":  # pytest-xdist's mark for such a test
        raise pytest.Session.Failed(report.longrepr)


def pytest_collection_modifyitems(config, items):
    later.check(items)
    half_precision.mark(items)
    without = set(config.getoption("--without").split(","))
    left_out = [item for item in items if half_precision.of(item) & without]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    first = {f"{name}_test.py": i for i, name in enumerate(LONGEST)}
    if seed := config.getoption("--order-seed"):
        random.Random(seed).shuffle(items)
        first = {item.path.name: i for i, item in enumerate(items)}
    items.sort(key=lambda item: first.get(item.path.name, len(first)))


@pytest.fixture(scope="session", autouse=True)
def shared(tmp_path_factory):
    """Sets the directory of `sharing`."""
    directory = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        directory = directory.parent  # shared by all processes
    sharing.directory = directory / "shared"
    sharing.directory.mkdir(exist_ok=True)


@pytest.fixture(scope="module", autouse=True)
def seeded_tensorflow():
    """Sets TensorFlow's own seed once per file.

    Our code does not use it, and setting it drops every kernel and every graph
    that is ready to run.
    """
    import tensorflow as tf

    tf.random.set_seed(7)


@pytest.fixture(autouse=True)
def seeded(monkeypatch):
    """Gives models the same initial weights in every run."""
    import keras
    import tensorflow as tf

    with monkeypatch.context() as patch:
        patch.setattr(tf.random, "set_seed", lambda seed: None)
        keras.utils.set_random_seed(7)


@pytest.fixture(autouse=True)
def announced(request, monkeypatch):
    """Fails a test that makes a half-precision policy without naming it."""
    import keras

    named, make = half_precision.of(request.node), keras.DTypePolicy.__init__

    def init(policy, *arguments, **options):
        make(policy, *arguments, **options)
        dtype = policy.compute_dtype
        if dtype in half_precision.DTYPES and dtype not in named:
            pytest.fail(f"names no {dtype}: see tests/half_precision.py")

    monkeypatch.setattr(keras.DTypePolicy, "__init__", init)


@pytest.fixture(autouse=True)
def audible():
    """Enables warnings, which a command in another test may have disabled."""
    logging.set_verbosity(logging.WARNING)


@pytest.fixture
def small_config():
    """A model configuration with different sizes, so that a mix-up shows."""
    return kt.TransformerConfig(
        vocab_size=19,
        d_model=8,
        d_ff=12,
        num_heads=2,
        num_layers=2,
        num_decoder_layers=3,
        d_key=3,
        d_value=5,
        dropout=0.0,
    )


@pytest.fixture(scope="session")
def processes(tmp_path_factory):
    """The `Processes`, which start commands."""
    from commands import Processes

    processes = Processes(tmp_path_factory.mktemp("processes"))
    yield processes
    processes.close()


@pytest.fixture(scope="session")
def train_files(tmp_path_factory):
    """Flags for 300 training pairs in files, without validation or test."""
    from commands import write_pairs

    from trainers.datasets import phrasebook

    prefix = tmp_path_factory.mktemp("corpus") / "train"
    write_pairs(prefix, phrasebook.read_split("train", 300))
    return ["--dataset=files", f"--train_files={prefix}"]
