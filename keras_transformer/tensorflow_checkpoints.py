"""Reads TensorFlow's checkpoints: version 0.1's, and those of other systems.

A checkpoint is `ckpt-STEP.index` and its data.
"""

import typing

import numpy as np
import tensorflow as tf

SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"


class TensorFlowFile:
    """A `checkpoints.Checkpoint` that version 0.1 wrote.

    Args:
        prefix: Path, without ending.

    Raises:
        ValueError: It cannot be read.
    """

    def __init__(self, prefix: str):
        try:
            self._reader = tf.train.load_checkpoint(prefix)
        except (RuntimeError, tf.errors.OpError) as error:
            raise ValueError(str(error)) from error
        # TensorFlow spells the dots of a name twice.
        names = {
            name.removesuffix(SUFFIX).replace("..", "."): name
            for name in self._reader.get_variable_to_shape_map()
            if name.endswith(SUFFIX)
        }
        self._names = names
        shapes = self._reader.get_variable_to_shape_map()
        self.progress = {}
        self.shapes = {}
        for name, spelled in names.items():
            group, _, rest = name.partition("/")
            if group == "progress":
                self.progress[rest] = _plain(self.read(name))
            else:
                self.shapes[name] = tuple(shapes[spelled])

    def read(self, name: str) -> np.ndarray:
        """As `Checkpoint.read`."""
        return read_tensor(self._reader, self._names[name])


def read_tensor(reader: typing.Any, name: str) -> np.ndarray:
    """A tensor of a TensorFlow checkpoint, compared with its checksum.

    Raises:
        ValueError: It cannot be read.
    """
    try:
        return reader.get_tensor(name)
    except (RuntimeError, ValueError, tf.errors.OpError) as error:
        raise ValueError(str(error)) from error


def corruption(prefix: str) -> str | None:
    """Why a TensorFlow checkpoint cannot be read, in one line, or None."""
    try:
        reader = tf.train.load_checkpoint(prefix)
        for name in reader.get_variable_to_shape_map():
            read_tensor(reader, name)
    except (RuntimeError, ValueError, tf.errors.OpError) as error:
        return " ".join(str(error).split()) or type(error).__name__
    return None


def _plain(value):
    """A tensor of one value as a Python object."""
    return value.decode() if isinstance(value, bytes) else value.item()
