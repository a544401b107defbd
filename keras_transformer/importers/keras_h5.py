"""Reads the weights that Keras 2 wrote into an HDF5 file."""

import pathlib

import h5py
import numpy as np

from keras_transformer.importers.files import check_file, named_errors


def read_h5(path: pathlib.Path) -> dict[str, np.ndarray]:
    """The data sets of a file by their paths in it.

    Links, external data and compression, which Keras does not write, are
    ignored or refused: all data is in the file, and no larger than it.

    Raises:
        ValueError: It is missing, is not such a file, or is corrupt.
        OSError: It cannot be read.
    """
    size = check_file(path)
    arrays: dict[str, np.ndarray] = {}

    def visit(name, item):
        if isinstance(item, h5py.Dataset):
            if (
                item.shape is None  # h5py.Empty
                or item.dtype.kind != "f"
                or item.chunks
                or item.external
                or item.is_virtual
            ):
                raise ValueError(
                    "expected numbers as Keras stores them: floats, in this"
                    f" file, and not compressed. Received: {name}"
                )
            if sum(a.nbytes for a in arrays.values()) + item.nbytes > size:
                raise ValueError(f"{name} is larger than the file")
            arrays[name] = item[()]

    with named_errors(path), h5py.File(path, "r") as file:
        file.visititems(visit)
    return arrays
