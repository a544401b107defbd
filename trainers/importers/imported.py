"""The result of every importer, and its work directory."""

import contextlib
import os
import pathlib
import shutil
import typing
import uuid
from collections.abc import Iterator, Sequence

import keras
import numpy as np

from keras_transformer.checkpoints import is_finite, named_weights
from keras_transformer.config import DecodingConfig, TransformerConfig
from keras_transformer.model import Transformer
from keras_transformer.tokenization import Tokenizer, TokenizerPair
from keras_transformer.workdir import WorkDirectory
from trainers.importers.vocabularies import share_in_table
from trainers.run.checkpoints import write
from trainers.run.config import IMPORTED, DataConfig, TrainingConfig

STEP = 0  # of the checkpoint: it was trained elsewhere


class Imported(typing.NamedTuple):
    """A model of another system, in the terms of this package.

    Attributes:
        config: The `TransformerConfig`.
        weights: Arrays by path, as in `permutation.reorder`:
            `"encoder/layer_0/self_attention/query/kernel"`. Rows of embeddings
            stand in the order of the tokenizer's ids.
        tokenizer: A `Tokenizer`, or one for each side.
        decoding: The original's defaults.
        max_length: The longest source in tokens, EOS included.
        source_language, target_language: Such as "en"; "" if it is not known.
        notes: Notes on this import for the user, a line each.
    """

    config: TransformerConfig
    weights: dict[str, np.ndarray]
    tokenizer: Tokenizer | TokenizerPair
    decoding: DecodingConfig
    max_length: int
    source_language: str = ""
    target_language: str = ""
    notes: Sequence[str] = ()


def write_workdir(imported: Imported, path: str | os.PathLike) -> None:
    """Makes the work directory of an imported model, whole or not at all.

    Args:
        imported: The `Imported`.
        path: A directory that does not exist, or is empty.

    Raises:
        ValueError: The weights do not fit the model that `config` makes,
            or the path is in use.
        OSError: It cannot be written.
    """
    with new_directory(path) as directory:
        workdir = WorkDirectory(directory)
        workdir.save_tokenizer(imported.tokenizer)
        data = DataConfig(
            dataset=IMPORTED,
            source_language=imported.source_language or "source",
            target_language=imported.target_language or "target",
            max_length=imported.max_length,
            share_vocabulary=imported.config.source_vocab_size is None,
        )
        workdir.write_config(
            model=imported.config,
            decoding=imported.decoding,
            data=data,
            training=TrainingConfig(),
        )
        weights = named_weights(Transformer(imported.config))
        assign(weights, imported.weights)
        write(workdir.averaged, {"weights": weights}, STEP, keep=1)


def describe_tables(tokenizer: Tokenizer | TokenizerPair) -> list[str]:
    """A line for each vocabulary: which share of its pieces has an id.

    With the SentencePiece model of another vocabulary it is small, and text
    becomes UNK.
    """
    sides = {"source ": tokenizer.source, "target ": tokenizer.target}
    if isinstance(tokenizer, Tokenizer):
        sides = {"": tokenizer}
    lines = []
    for name, side in sides.items():
        found, total = share_in_table(side)
        lines.append(
            f"{name}vocabulary: {found:,} of the {total:,} pieces of its"
            f" SentencePiece model have an id ({found / max(total, 1):.1%})"
        )
    return lines


def assign(
    weights: dict[str, keras.Variable], arrays: dict[str, np.ndarray]
) -> None:
    """Sets the weights of a model.

    Args:
        weights: The result of `named_weights`.
        arrays: An array for each of them by path, of any float dtype.

    Raises:
        ValueError: There is another set of names, or another shape, or a number
            is not finite.
    """
    arrays = {path.replace("/", "."): arrays[path] for path in arrays}
    if different := weights.keys() ^ arrays.keys():
        raise ValueError(
            f"the imported weights are not the model's: {min(different)}"
        )
    for name, variable in weights.items():
        array = np.asarray(arrays[name], np.float32)
        if not is_finite(array):
            raise ValueError(f"{name} is not finite")
        variable.assign(array)


@contextlib.contextmanager
def new_directory(path: str | os.PathLike) -> Iterator[pathlib.Path]:
    """A directory to fill, which gets its name when the body ends.

    If the body fails, nothing is left of it.

    Raises:
        ValueError: There is something at the path.
    """
    path = check_new(path)
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    unfinished.mkdir(parents=True)
    try:
        yield unfinished
        os.rename(unfinished, path)
    except BaseException:
        shutil.rmtree(unfinished)
        raise


def check_new(path: str | os.PathLike) -> pathlib.Path:
    """The absolute path of a directory that is yet to be made.

    Raises:
        ValueError: There is something at the path.
    """
    path = pathlib.Path(path).absolute()
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise ValueError(
            "expected a directory that does not exist yet."
            f" Received: workdir={str(path)!r}"
        )
    return path
