"""Published models: work directories, and models of other systems."""

import contextlib
import os
import pathlib
from collections.abc import Iterator

from keras_transformer.checkpoints import named_weights
from keras_transformer.hub import find_model
from keras_transformer.importers import named_pointers, read_model
from keras_transformer.importers.files import read_json
from keras_transformer.importers.imported import Imported, assign
from keras_transformer.model import Transformer


@contextlib.contextmanager
def opened(
    name: str | os.PathLike,
) -> Iterator[tuple[pathlib.Path, Imported | None]]:
    """The directory of a model, and the model unless it is a work directory.

    Raises:
        ValueError: There is no such model, or it cannot be used. An error of
            the body that is due to a Git LFS pointer says so.
        OSError: It cannot be read or downloaded.
    """
    directory = find_model(name)
    with named_pointers(directory):
        imported = None
        if not _is_workdir(directory):
            _, imported = read_model(directory)
        yield directory, imported


def make_model(imported: Imported, dtype: str = "float32") -> Transformer:
    """The model with its weights."""
    model = Transformer(imported.config, dtype=dtype)
    assign(named_weights(model), imported.weights)
    return model


def _is_workdir(directory):
    """Whether a directory's config.json is one of this package."""
    path = directory / "config.json"
    return path.is_file() and "format_version" in read_json(path)
