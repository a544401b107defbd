"""Reads the checkpoints of version 0.1: `ckpt-STEP.index` and its data."""

import contextlib
import typing
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"


class TensorFlowFile:
    """A `checkpoints.Checkpoint` that TensorFlow wrote.

    Args:
        prefix: Path, without ending.

    Raises:
        ValueError: It cannot be read.
    """

    def __init__(self, prefix: str):
        with _one_kind_of_error():
            self._reader = tf.train.load_checkpoint(prefix)
            shapes = self._reader.get_variable_to_shape_map()
        # TensorFlow spells the dots of a name twice.
        self._keys = {
            key.removesuffix(SUFFIX).replace("..", "."): key
            for key in shapes
            if key.endswith(SUFFIX)
        }
        self.progress: dict[str, typing.Any] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        for name, key in self._keys.items():
            group, _, rest = name.partition("/")
            if group != "progress":
                self.shapes[name] = tuple(shapes[key])
                continue
            value: typing.Any = self.read(name)
            is_text = isinstance(value, bytes)
            self.progress[rest] = value.decode() if is_text else value.item()

    def read(self, name: str) -> np.ndarray:
        """As `Checkpoint.read`."""
        with _one_kind_of_error():
            return self._reader.get_tensor(self._keys[name])


@contextlib.contextmanager
def _one_kind_of_error() -> Iterator[None]:
    """Turns the half a dozen kinds that TensorFlow's reader raises into one."""
    try:
        yield
    except Exception as error:
        raise ValueError(str(error)) from error
