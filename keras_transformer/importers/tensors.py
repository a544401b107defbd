"""The tensors of a file by name: its readers, and what takes each once.

Sizes are checked before memory is taken: a corrupt or hostile file cannot be
larger in memory than on the disk.
"""

import os
import pathlib
import typing
import zipfile
from collections.abc import Mapping, Sequence

import ml_dtypes
import numpy as np
from safetensors.numpy import load_file

from keras_transformer.importers.files import check_file, named_errors

# Weights in an .npz do not get much smaller when they are compressed.
MAX_COMPRESSION = 100


class Tensors:
    """The tensors of a file that were not taken yet."""

    def __init__(
        self, arrays: Mapping[str, np.ndarray], path: str | os.PathLike
    ):
        self._arrays = dict(arrays)
        self.path = path

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def matrix_shape(self, name: str) -> tuple[int, int]:
        """Rows and columns of a matrix, which is not removed."""
        self._check(name)
        shape = tuple(self._arrays[name].shape)
        if len(shape) != 2 or not all(shape):
            raise ValueError(
                f"{self.path}: expected a matrix {name}."
                f" Received: the shape {shape}"
            )
        return shape

    def take(self, name: str, shape: Sequence[int]) -> np.ndarray:
        """Removes a tensor, floats of the expected shape, and returns it."""
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
        """Removes a redundant tensor, if it exists."""
        self._arrays.pop(name, None)

    def close(self) -> None:
        """Raises ValueError if some tensors were not taken."""
        if self._arrays:
            names = sorted(self._arrays)
            raise ValueError(
                f"{self.path}: {len(names)} unexpected tensors. Received:"
                f" {', '.join(names[:3])}" + (" ..." if len(names) > 3 else "")
            )

    def _check(self, name: str) -> None:
        if name not in self._arrays:
            raise ValueError(f"{self.path}: no tensor {name}")


def arrays_by_name(
    value: typing.Any, path: pathlib.Path
) -> dict[str, np.ndarray]:
    """The contents of a file, if it is arrays by name, or ValueError."""
    if not isinstance(value, dict) or not all(
        isinstance(name, str) and isinstance(array, np.ndarray)
        for name, array in value.items()
    ):
        raise ValueError(f"{path}: expected tensors by name")
    return value


def read_safetensors(path: pathlib.Path) -> dict[str, np.ndarray]:
    """The tensors of a `.safetensors` by name."""
    check_file(path)
    with named_errors(path, "truncated or corrupt: "):
        return load_file(path)


def read_npz(path: pathlib.Path) -> dict[str, np.ndarray]:
    """The arrays of a NumPy archive by name."""
    limit = MAX_COMPRESSION * check_file(path)
    with named_errors(path, "not an intact .npz: "):
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > limit:
            raise ValueError(
                f"expected at most {MAX_COMPRESSION} times the size of the"
                f" file. Received: {size} bytes"
            )
        with np.load(path, allow_pickle=False) as archive:
            arrays = dict(archive)
    return arrays_by_name(arrays, path)


def holds_array(path: pathlib.Path, name: str) -> bool:
    """Whether a file is an archive with an array of this name."""
    try:
        check_file(path)
        with zipfile.ZipFile(path) as archive:
            return not {name, f"{name}.npy"}.isdisjoint(archive.namelist())
    except (zipfile.BadZipFile, OSError, ValueError):
        return False
