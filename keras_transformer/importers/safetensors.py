"""Reads `.safetensors`: one file, or the shards that an index names."""

import pathlib

import numpy as np
from safetensors.numpy import load_file

from keras_transformer.importers.files import (
    check_file,
    named_errors,
    read_json,
)


def read_safetensors(path: pathlib.Path) -> dict[str, np.ndarray]:
    """The tensors of a file by name.

    Raises:
        ValueError: It is missing, is not such a file, is truncated, or its
            header does not fit its data.
        OSError: It cannot be read.
    """
    check_file(path)
    with named_errors(path, "truncated or corrupt: "):
        return load_file(path)


def read_shards(path: pathlib.Path) -> dict[str, np.ndarray]:
    """The tensors of the files that an index names: `weight_map`, by tensor.

    Raises:
        ValueError: It is not such an index, or a file is not a shard of it.
        OSError: A file cannot be read.
    """
    names = read_json(path).get("weight_map")
    if not isinstance(names, dict) or not all(
        isinstance(name, str) and pathlib.PurePath(name).name == name
        for name in names.values()
    ):
        raise ValueError(
            f"{path}: expected a weight_map from tensors to files beside it"
        )
    arrays: dict[str, np.ndarray] = {}
    for name in sorted(set(names.values())):
        arrays |= read_safetensors(path.with_name(name))
    if different := arrays.keys() ^ names.keys():
        raise ValueError(
            f"{path}: expected the names of all tensors in its files."
            f" Received: others, such as {min(different)}"
        )
    return arrays
