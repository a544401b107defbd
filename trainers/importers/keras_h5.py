"""Reads the weights that Keras 2 wrote into an HDF5 file."""

import os
import pathlib

import h5py
import numpy as np


def read_h5(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """The data sets of a file by their paths in it.

    Links, external data and compression, which Keras does not write, are left
    alone or refused: what is read is in the file, and no larger than it.

    Raises:
        ValueError: It is no such file, or it is corrupt.
        OSError: It cannot be read.
    """
    path = pathlib.Path(path)
    size = path.stat().st_size
    arrays: dict[str, np.ndarray] = {}

    def visit(name, item):
        if isinstance(item, h5py.Dataset):
            if item.chunks or item.external or item.is_virtual:
                raise ValueError(
                    "expected numbers as Keras stores them: not compressed, in"
                    f" this file. Received: {name}"
                )
            if sum(a.nbytes for a in arrays.values()) + item.nbytes > size:
                raise ValueError(f"{name} is larger than the file")
            arrays[name] = item[()]

    try:
        with h5py.File(path, "r") as file:
            file.visititems(visit)
    except (OSError, RuntimeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ValueError(f"{path}: {error}") from None
    return arrays
