"""Reads `.safetensors`: one file, or the shards that an index names."""

import os
import pathlib

import numpy as np

from keras_transformer.commands import flags
from trainers.importers.files import check_file, read_json


def read_safetensors(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """The tensors of a file by name.

    Raises:
        ValueError: It is missing, is not such a file, is truncated, or its
            header does not fit its data; or the library is not installed.
        OSError: It cannot be read.
    """
    path = pathlib.Path(path)
    try:
        import safetensors
        from safetensors.numpy import load_file
    except ImportError:
        raise ValueError(
            f"reading {path} needs safetensors:"
            f" {flags.how_to_install('import')}"
        ) from None
    check_file(path)
    try:
        return load_file(path)
    # AttributeError: NumPy has no such dtype, for example of 8 bits.
    except (safetensors.SafetensorError, AttributeError) as error:
        raise ValueError(f"{path}: truncated or corrupt: {error}") from None


def read_shards(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """The tensors of the files that an index names: `weight_map`, by tensor.

    Raises:
        ValueError: It is not such an index, or a file is not a shard of it.
        OSError: A file cannot be read.
    """
    path = pathlib.Path(path)
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
