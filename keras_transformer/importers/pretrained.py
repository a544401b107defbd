"""Published models: work directories, and models of other systems."""

import contextlib
import os
import pathlib
from collections.abc import Iterator

from keras_transformer.checkpoints import named_weights
from keras_transformer.data.languages import LANGUAGE_TOKENS
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


def with_languages(
    imported: Imported,
    source_language: str | None,
    target_language: str | None,
) -> Imported:
    """A model with the given languages, else its own.

    Raises ValueError for languages that it does not have.
    """
    family, own = imported.language_tokens, imported.target_language
    if family and own and target_language not in (None, own):
        if "target" not in LANGUAGE_TOKENS[family].places.values():
            raise ValueError(
                f"target_language must be {own}, which the decoder of the model"
                f" starts with. Received: {target_language=}"
            )
    if source_language is not None:
        imported = imported._replace(source_language=source_language)
    if target_language is not None:
        imported = imported._replace(target_language=target_language)
    _ = imported.languages
    return imported


def make_model(imported: Imported) -> Transformer:
    """The model with its weights."""
    model = Transformer(imported.config)
    assign(named_weights(model), imported.weights)
    return model


def _is_workdir(directory):
    """Whether a directory's config.json is one of this package."""
    path = directory / "config.json"
    return path.is_file() and "format_version" in read_json(path)
