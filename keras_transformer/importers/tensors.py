"""The tensors of a file by name, of which each is taken once, in its shape."""

import typing
from collections.abc import Mapping, Sequence

import ml_dtypes
import numpy as np


class Tensors:
    """The tensors of a file that were not taken yet.

    Args:
        arrays: Arrays by the names that the file has.
        path: Path of the file, for messages.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], path):
        self._arrays = dict(arrays)
        self.path = path

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def matrix_shape(self, name: str) -> tuple[int, int]:
        """The numbers of rows and columns of a matrix, which stays.

        Raises:
            ValueError: There is no such tensor, or it is empty, or no matrix.
        """
        self._check(name)
        shape = tuple(self._arrays[name].shape)
        if len(shape) != 2 or not all(shape):
            raise ValueError(
                f"{self.path}: expected a matrix {name}."
                f" Received: the shape {shape}"
            )
        return shape

    def take(self, name: str, shape: Sequence[int]) -> np.ndarray:
        """A tensor, which is then gone.

        Args:
            name: As in the file.
            shape: The expected shape.

        Raises:
            ValueError: There is no such tensor, or it has another shape, or it
                is not of a float dtype.
        """
        self._check(name)
        array = self._arrays.pop(name)
        if tuple(array.shape) != tuple(shape):
            raise ValueError(
                f"{self.path}: expected {name} of shape {tuple(shape)}."
                f" Received: {tuple(array.shape)}"
            )
        if array.dtype.kind != "f" and array.dtype != ml_dtypes.bfloat16:
            raise ValueError(
                f"{self.path}: expected floats in {name}."
                f" Received: {array.dtype}"
            )
        return np.asarray(array, np.float32)

    def drop(self, name: str) -> None:
        """Takes a redundant tensor, if it is there."""
        self._arrays.pop(name, None)

    def close(self) -> None:
        """Ends the reading.

        Raises:
            ValueError: Some tensors were not taken.
        """
        if self._arrays:
            names = sorted(self._arrays)
            raise ValueError(
                f"{self.path}: {len(names)} tensors that such a model does not"
                f" have. Received: {', '.join(names[:3])}"
                + (" ..." if len(names) > 3 else "")
            )

    def _check(self, name):
        if name not in self._arrays:
            raise ValueError(f"{self.path}: no tensor {name}")


def arrays_by_name(value: typing.Any, path) -> dict[str, np.ndarray]:
    """The contents of a file, if it is arrays by name.

    Raises:
        ValueError: It is something else.
    """
    if not isinstance(value, dict) or not all(
        isinstance(name, str) and isinstance(array, np.ndarray)
        for name, array in value.items()
    ):
        raise ValueError(f"{path}: expected tensors by name")
    return value
