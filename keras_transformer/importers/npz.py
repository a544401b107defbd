"""The arrays of a NumPy archive, `.npz`: sizes are checked before reading."""

import pathlib
import zipfile

import numpy as np

from keras_transformer.importers.files import check_file, named_errors
from keras_transformer.importers.tensors import arrays_by_name

# Weights do not get much smaller when they are compressed.
MAX_COMPRESSION = 100


def read_npz(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Arrays by their names.

    Raises:
        ValueError: It is not such an archive, is truncated, would be much
            larger than the file, or has something else than arrays.
        OSError: It cannot be read.
    """
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
