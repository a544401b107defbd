"""Models of other systems, as work directories of this package.

One file for each format, named like the format, with two functions:

    recognizes(directory) -> bool      whether a directory holds such a model
    read(directory) -> Imported        the model; ValueError or OSError: what
                                       about its files cannot be used

`imported.py` says what an `Imported` is and writes it as a work directory.
The files of others are read by code that runs nothing of what they contain:
`safetensors`, `torch_pickle`, `keras_h5`, `npz`, `yaml_files`. `tensors` checks
names and shapes, `options` the options; `stacks` lists the weights of encoder
and decoder; `vocabularies` makes tokenizers over a given table of ids.
"""

import importlib
import pathlib

# The modules of the formats, in the order in which they are asked.
IMPORTERS = ("huggingface", "marian", "opennmt_tf", "fairseq")


def find_importer(directory: pathlib.Path, name: str | None = None):
    """The module of the format that a directory holds.

    Args:
        directory: The directory.
        name: Of the format; None: the first that recognizes the directory.

    Raises:
        ValueError: It is no directory, or of no format.
    """
    if not directory.is_dir():
        raise ValueError(
            "expected a directory that holds a model."
            f" Received: source={str(directory)!r}"
        )
    for candidate in IMPORTERS if name is None else (name,):
        module = importlib.import_module(f"{__name__}.{candidate}")
        if name is not None or module.recognizes(directory):
            return module
    raise ValueError(
        f"expected a model of one of the formats {', '.join(IMPORTERS)}; see"
        f" docs/pretrained.md. Received: source={str(directory)!r}"
    )
