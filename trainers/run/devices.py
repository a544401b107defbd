"""The devices of the Keras backend: the only place that chooses a framework."""

import importlib
import types

import keras

ENGINES = {
    "jax": "trainers.run.jax_engine",
    "tensorflow": "trainers.run.tensorflow_engine",
}


def count_searches(device: str | None = None) -> int:
    """How many batches of sentences are best translated at the same time.

    The CPU cores of this process; 1 with an accelerator. If a kind of device
    is wanted, it must compute.
    """
    return engine_module().count_searches(device)


def engine_module() -> types.ModuleType:
    """The module of the backend, with `open_devices` and `count_searches`."""
    return importlib.import_module(ENGINES[keras.backend.backend()])
