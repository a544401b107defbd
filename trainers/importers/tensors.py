"""The tensors of a file by name, of which each is taken once, in its shape."""

from collections.abc import Mapping, Sequence

import numpy as np


class Tensors:
    """What a file holds, until it is taken.

    Args:
        arrays: Arrays by the names that the file has.
        path: Of the file, for messages.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], path):
        self._arrays = dict(arrays)
        self.path = path

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, which stays.

        Raises:
            ValueError: There is no such tensor.
        """
        self._check(name)
        return tuple(self._arrays[name].shape)

    def take(self, name: str, shape: Sequence[int]) -> np.ndarray:
        """A tensor, which is then gone.

        Args:
            name: As in the file.
            shape: What it must be.

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
        if array.dtype.kind not in "fV":  # V: of ml_dtypes, such as bfloat16
            raise ValueError(
                f"{self.path}: expected floats in {name}."
                f" Received: {array.dtype}"
            )
        return np.asarray(array, np.float32)

    def drop(self, name: str) -> None:
        """Takes a tensor that says nothing new, if it is there."""
        self._arrays.pop(name, None)

    def close(self) -> None:
        """Ends the reading.

        Raises:
            ValueError: There are tensors that nobody took.
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
