"""The arrays of a NumPy archive, `.npz`: sizes are checked before reading."""

import math
import pathlib
import zipfile

import numpy as np

# Weights do not get much smaller when they are compressed.
MOST_COMPRESSED = 100


def read_npz(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Arrays by their names.

    Raises:
        ValueError: It is no such archive, or a part of it is missing, or it
            would be much larger than the file, or has something else than
            arrays of numbers.
        OSError: It cannot be read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            size = sum(member.file_size for member in members)
            if size > MOST_COMPRESSED * path.stat().st_size:
                raise ValueError(
                    "expected at most"
                    f" {MOST_COMPRESSED} times the size of the file."
                    f" Received: {size} bytes"
                )
            return {
                member.filename.removesuffix(".npy"): _read(archive, member)
                for member in members
            }
    except zipfile.BadZipFile as error:
        raise ValueError(f"{path}: no intact .npz: {error}") from None
    except (ValueError, EOFError, NotImplementedError) as error:
        raise ValueError(f"{path}: {error}") from None


def holds_array(path: pathlib.Path, name: str) -> bool:
    """Whether a file is an archive with an array of this name."""
    try:
        with zipfile.ZipFile(path) as archive:
            return not {name, f"{name}.npy"}.isdisjoint(archive.namelist())
    except (zipfile.BadZipFile, OSError):
        return False


def _read(archive, member):
    """One array; its header must agree with the bytes that there are."""
    name = member.filename
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"{name}: unknown version {version} of .npy")
        read_header = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, is_fortran, dtype = read_header(file)
        if dtype.kind not in "fiu":
            raise ValueError(f"{name}: expected numbers. Received: {dtype}")
        expected = math.prod(shape) * dtype.itemsize
        if expected != member.file_size - file.tell():
            raise ValueError(
                f"{name}: expected {expected} bytes."
                f" Received: {member.file_size - file.tell()}"
            )
        array = np.frombuffer(file.read(), dtype)
    return array.reshape(shape, order="F" if is_fortran else "C")
