"""Reads `.safetensors`: a JSON header, then the bytes of the tensors.

8 bytes   length of the header, little-endian
header    {"name": {"dtype": "F32", "shape": [2, 3],
                    "data_offsets": [0, 24]}, ...}
data      the tensors, one after another, without gaps
"""

import json
import math
import os
import pathlib

import ml_dtypes
import numpy as np

DTYPES = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
LENGTH = 8  # bytes of the header's length
MOST_HEADER = 100_000_000  # bytes; the limit that the format itself has
METADATA = "__metadata__"
MOST_INDEX = 64 << 20  # bytes


def read_safetensors(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """The tensors of a file by name, mapped from the disk, read-only.

    Raises:
        ValueError: It is no such file, or it is truncated, or its header does
            not fit its data.
        OSError: It cannot be read.
    """
    path = pathlib.Path(path)
    header, start = _read_header(path)
    size = path.stat().st_size - start
    data = np.memmap(path, np.uint8, "r", start, (size,)) if size else b""
    header.pop(METADATA, None)
    arrays, end = {}, 0
    for name, entry in sorted(header.items(), key=_begin):
        dtype, shape, (begin, stop) = _checked_entry(path, name, entry)
        if begin != end or stop > size:
            raise ValueError(
                f"{path}: truncated or corrupt: expected {name} at byte {end}"
                f" of {size} bytes of data. Received: {begin} to {stop}"
            )
        end = stop
        arrays[name] = np.frombuffer(data[begin:stop], dtype).reshape(shape)
    if end != size:
        raise ValueError(
            f"{path}: corrupt: expected {end} bytes of data. Received: {size}"
        )
    return arrays


def read_shards(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """The tensors of the files that an index names: `weight_map`, by tensor.

    Raises:
        ValueError: It is no such index, or a file is no shard of it.
        OSError: A file cannot be read.
    """
    path = pathlib.Path(path)
    if path.stat().st_size > MOST_INDEX:
        raise ValueError(f"{path}: expected at most {MOST_INDEX} bytes")
    try:
        index = json.loads(
            path.read_bytes(), object_pairs_hook=_without_doubles
        )
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON: {error}") from None
    names = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(names, dict) or not all(
        isinstance(name, str) and pathlib.PurePath(name).name == name
        for name in names.values()
    ):
        raise ValueError(
            f"{path}: expected a weight_map from tensors to files beside it"
        )
    arrays: dict[str, np.ndarray] = {}
    for name in sorted(set(names.values())):
        shard = path.with_name(name)
        if not shard.is_file():
            raise ValueError(f"{path} names {name}. Received: no such file")
        found = read_safetensors(shard)
        expected = {tensor for tensor in names if names[tensor] == name}
        if set(found) != expected:
            raise ValueError(
                f"{shard}: expected the tensors that {path.name} names."
                " Received: others, such as"
                f" {min(set(found) ^ expected)}"
            )
        arrays |= found
    return arrays


def _read_header(path):
    """The header as a dictionary, and where it ends."""
    with path.open("rb") as file:
        start = file.read(LENGTH)
        length = int.from_bytes(start, "little")
        limit = min(MOST_HEADER, path.stat().st_size - LENGTH)
        if len(start) < LENGTH or not 2 <= length <= limit:
            raise ValueError(
                f"{path}: no .safetensors file, or a truncated one: expected"
                f" at most {max(limit, 0)} bytes of header."
                f" Received: {length}"
            )
        text = file.read(length)
    try:
        header = json.loads(text, object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: its header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise ValueError(f"{path}: its header is no JSON object")
    return header, LENGTH + length


def _without_doubles(pairs):
    """A JSON object whose names differ."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice in an object")
    return found


def _begin(item):
    """Where the data of a header's entry begins; 0 if it does not say."""
    entry = item[1]
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    is_pair = isinstance(offsets, list) and len(offsets) == 2
    if is_pair and all(type(offset) is int for offset in offsets):
        return tuple(offsets)
    return (0, 0)


def _checked_entry(path, name, entry):
    """Dtype, shape and offsets of a header's entry, if they fit together."""
    fields = entry if isinstance(entry, dict) else {}
    dtype = DTYPES.get(str(fields.get("dtype")))
    shape, offsets = fields.get("shape"), fields.get("data_offsets")
    lists = isinstance(shape, list) and isinstance(offsets, list)
    if (
        dtype is None
        or not lists
        or len(offsets) != 2
        or not all(type(n) is int and n >= 0 for n in [*shape, *offsets])
        or offsets[1] - offsets[0] != dtype.itemsize * math.prod(shape)
    ):
        raise ValueError(
            f"{path}: expected for {name} a dtype among {', '.join(DTYPES)}, a"
            " shape, and offsets as far apart as the bytes of both."
            f" Received: {str(entry)[:200]}"
        )
    return dtype, tuple(shape), offsets
