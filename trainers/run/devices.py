"""The devices of the Keras backend: the only place that chooses a framework."""

import importlib
import types

import keras

from trainers.run.config import TrainingConfig
from trainers.run.engine import Devices

ENGINES = {
    "jax": "trainers.run.jax_engine",
    "tensorflow": "trainers.run.tensorflow_engine",
}


def open_devices(
    training: TrainingConfig, device: str | None = None
) -> Devices:
    """The `Devices` of a recipe, which must be of the wanted kind, if any."""
    return _engine().open_devices(training, device)


def count_searches(device: str | None = None) -> int:
    """How many batches of sentences are best translated at the same time.

    The CPU cores of this process; 1 with an accelerator. If a kind of device
    is wanted, it must compute.
    """
    return _engine().count_searches(device)


def _engine() -> types.ModuleType:
    """The module with the engine of the Keras backend."""
    return importlib.import_module(ENGINES[keras.backend.backend()])
