"""Reads files of tensors, and checks that each tensor is used once.

Sizes are checked before memory is allocated. So a corrupt or hostile file is
not larger in memory than on disk, an .npz at most `MAX_COMPRESSION` times.
"""

import json
import math
import os
import pathlib
import typing
import zipfile
from collections.abc import Callable, Mapping, Sequence

import ml_dtypes
import numpy as np
from safetensors import safe_open

from keras_transformer.base.foreign_files import check_file, named_errors
from keras_transformer.base.refusals import expect

DTYPES = {  # of tensors in a .safetensors file
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U8": np.uint8,
    "BOOL": np.bool_,
}
# The most that an .npz may be compressed. Weights hardly compress at all.
MAX_COMPRESSION = 100


class Tensors:
    """The tensors of a file that have not been taken yet."""

    def __init__(
        self, arrays: Mapping[str, np.ndarray], path: str | os.PathLike
    ):
        self._arrays = dict(arrays)
        self.path = path

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def matrix_shape(self, name: str) -> tuple[int, int]:
        """Returns the rows and columns of a matrix, without removing it.

        Raises ValueError if there is no such tensor, or it is not a matrix.
        """
        self._check(name)
        shape = tuple(self._arrays[name].shape)
        is_matrix = len(shape) == 2 and all(shape)
        found = f"the shape {shape}"
        expect(is_matrix, f"a matrix {name}", found, where=self.path)
        return shape

    def take(self, name: str, shape: Sequence[int]) -> np.ndarray:
        """Removes a tensor and returns it as float32.

        Raises ValueError if it is missing, or not floats of the given shape.
        """
        self._check(name)
        array = self._arrays.pop(name)
        found, wanted, dtype = tuple(array.shape), tuple(shape), array.dtype
        expected = f"{name} of shape {wanted}"
        expect(found == wanted, expected, found, where=self.path)
        is_float = dtype.kind == "f" or dtype == ml_dtypes.bfloat16
        expect(is_float, f"floats in {name}", dtype, where=self.path)
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


class Later:
    """An array of known shape, made by `make` when NumPy converts it."""

    def __init__(self, shape: tuple[int, ...], make: Callable[[], np.ndarray]):
        self.shape, self.size = shape, math.prod(shape)
        self._make = make

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return np.asarray(self._make(), dtype)


def arrays_by_name(
    value: typing.Any, path: pathlib.Path
) -> dict[str, np.ndarray]:
    """Returns `value` if it is a dict of arrays, or raises ValueError."""
    if not isinstance(value, dict) or not all(
        isinstance(name, str) and isinstance(array, np.ndarray)
        for name, array in value.items()
    ):
        raise ValueError(f"{path}: expected tensors by name")
    return value


def read_safetensors(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Memory-maps the tensors of a `.safetensors` file, by name."""
    check_file(path)
    with named_errors(path, "truncated or corrupt: "):
        with safe_open(path, framework="numpy"):
            pass  # the library checks the header
        data = np.memmap(path, np.uint8, "r")
        start = 8 + int.from_bytes(data[:8].tobytes(), "little")
        header = json.loads(data[8:start].tobytes())
        header.pop("__metadata__", None)
        unknown = {entry["dtype"] for entry in header.values()} - set(DTYPES)
        expect(not unknown, f"dtypes {', '.join(DTYPES)}", *sorted(unknown))
        return {
            name: data[slice(*(start + n for n in entry["data_offsets"]))]
            .view(DTYPES[entry["dtype"]])
            .reshape(entry["shape"])
            for name, entry in header.items()
        }


def read_npz(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Reads the arrays of a NumPy archive by name."""
    limit = MAX_COMPRESSION * check_file(path)
    with named_errors(path, "not an intact .npz: "):
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        times = f"at most {MAX_COMPRESSION} times the size of the file"
        expect(size <= limit, times, f"{size} bytes")
        with np.load(path, allow_pickle=False) as archive:
            arrays = dict(archive)
    return arrays_by_name(arrays, path)


def holds_array(path: pathlib.Path, name: str) -> bool:
    """Returns whether a file is a zip archive with an array of this name."""
    try:
        check_file(path)
        with zipfile.ZipFile(path) as archive:
            return not {name, f"{name}.npy"}.isdisjoint(archive.namelist())
    except (zipfile.BadZipFile, OSError, ValueError):
        return False
