"""Imports models of other systems.

Each format has one module, listed in `IMPORTERS`, with two functions:

    recognizes(directory) -> bool      whether a directory holds such a model
    read(directory) -> Imported        the model; raises ValueError or OSError
                                       if its files cannot be used

`imported` defines `Imported`. `base.foreign_files` opens the files. No code in
them is run: `tensors` (which also checks names and shapes), `torch_pickle`,
`storage.yaml_files` and `model_description` read them as data. `options` checks
the options, `stacks` lists the weights of a Transformer, and `vocabularies`
makes tokenizers for a given table of ids.
"""

import contextlib
import importlib
import os
import pathlib
import re
import types
import typing
from collections.abc import Iterator

from keras_transformer.base.foreign_files import read_json
from keras_transformer.storage.hub import find_model

IMPORTERS = {  # the module of each format, in the order they are tried
    "huggingface": "keras_transformer.importers.marian_huggingface",
    "m2m100": "keras_transformer.importers.m2m100",
    "marian": "keras_transformer.importers.marian",
    "opennmt_tf": "keras_transformer.importers.opennmt_tf",
    "fairseq": "keras_transformer.importers.fairseq",
}
# Hugging Face models that cannot be imported, by `model_type`.
OTHER_TYPES = {
    "bart": "BART",
    "fsmt": "FSMT, fairseq's models of WMT",
    "mt5": "mT5",
    "nllb-moe": "NLLB's mixture of experts",
    "t5": "T5",
}
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
MAX_POINTER = 1024  # bytes, by the specification of Git LFS
HEAD = 1 << 20  # bytes of a file that are searched for its system


def read_model(directory: pathlib.Path, name: str | None = None):
    """Reads the model in a directory. Returns its format's name and `Imported`.

    Without a name, the first format that recognizes the directory is used.
    Raises ValueError if none does, or if the model cannot be used.
    """
    with named_pointers(directory):
        found = find_format(directory, name)
        return found, _load(found).read(directory)


@contextlib.contextmanager
def opened(
    name: str | os.PathLike,
) -> Iterator[tuple[pathlib.Path, typing.Any]]:
    """Yields the directory of a model and its `Imported`.

    `name` is as in `find_model`. The second value is None for a work directory
    of this package. Raises ValueError if there is no such model, or it cannot
    be used. Errors in the block that come from a Git LFS pointer say so.
    """
    directory = find_model(name)
    config = directory / "config.json"
    with named_pointers(directory):
        is_ours = config.is_file() and "format_version" in read_json(config)
        yield directory, None if is_ours else read_model(directory)[1]


@contextlib.contextmanager
def named_pointers(directory: pathlib.Path) -> Iterator[None]:
    """Adds instructions to ValueErrors about Git LFS pointers."""
    try:
        yield
    except ValueError as error:
        for path in _find_pointers(directory):
            # Errors name a checkpoint without the suffixes of its files.
            name = re.sub(r"\.(index|data-[\w-]*|safetensors)$", "", str(path))
            if name in str(error):
                raise ValueError(
                    f"{path} is a Git LFS pointer, not the file itself:"
                    f" {directory} was cloned without Git LFS. To get the"
                    f" files: git lfs install && cd {directory} && git lfs pull"
                ) from None
        raise


def find_format(directory: pathlib.Path, name: str | None = None) -> str:
    """Returns the name of the format of the model in a directory.

    Raises ValueError if no format recognizes it, or the format is not `name`.
    """
    if not directory.is_dir():
        raise ValueError(
            "expected a directory that holds a model."
            f" Received: source={str(directory)!r}"
        )
    candidates = IMPORTERS if name is None else (name, *IMPORTERS)
    recognized = (n for n in candidates if _load(n).recognizes(directory))
    found = next(recognized, None)
    if found is not None and name in (None, found):
        return found
    other = f"the format {found}" if found else _find_other_system(directory)
    if name is not None and other is None:
        return name  # its `read` says which file is missing
    formats = ", ".join(IMPORTERS) if name is None else name
    raise ValueError(
        f"expected a model of {'the format' if name else 'one of the formats'}"
        f" {formats}; see docs/pretrained.md. Received:"
        f" source={str(directory)!r}" + (f", {other}" if other else "")
    )


def _load(name: str) -> types.ModuleType:
    return importlib.import_module(IMPORTERS[name])


def _find_pointers(directory: pathlib.Path) -> list[pathlib.Path]:
    """Finds the Git LFS pointers in a directory."""
    return [
        path
        for path in sorted([*directory.glob("*"), *directory.glob("*/ckpt-*")])
        if path.is_file()
        and path.stat().st_size <= MAX_POINTER
        and _head(path, MAX_POINTER).startswith(LFS_POINTER)
    ]


def _head(path: pathlib.Path, size: int) -> bytes:
    with path.open("rb") as file:
        return file.read(size)


def _find_other_system(directory: pathlib.Path) -> str | None:
    """Describes a model that cannot be imported, or returns None."""
    pointers = _find_pointers(directory)
    if pointers:
        names = ", ".join(path.name for path in pointers)
        return f"with Git LFS pointers, not the files (git lfs pull): {names}"
    if (directory / "adapter_config.json").is_file():
        return "an adapter of PEFT: merge it into its model first"
    kind = None
    with contextlib.suppress(ValueError):
        kind = read_json(directory / "config.json").get("model_type")
    if isinstance(kind, str) and kind != "marian":
        known = OTHER_TYPES.get(kind, "another model")
        return f"of Hugging Face, model_type={kind!r}: {known}"
    binary = directory / "model.bin"
    # It begins with the name of its specification or, in version 1, of its
    # first variable.
    if binary.is_file() and b"transformer" in _head(binary, 64).lower():
        return "a model of CTranslate2: import the original model"
    for path in sorted(directory.glob("*.pt")):
        # A key of OpenNMT-py's checkpoints, as pickle writes it.
        if path.is_file() and b"\t\0\0\0generator" in _head(path, HEAD):
            return f"a model of OpenNMT-py: {path.name}"
        return (
            f"with {path.name}, but without the dictionaries of fairseq:"
            " expected dict.SOURCE.txt and dict.TARGET.txt there or in"
            " data-bin/"
        )
    if (directory / "decoder.yml").is_file() and not any(
        directory.glob("*.npz")
    ):
        return "a model of Marian, such as OPUS-MT's releases, without its .npz"
    return None
