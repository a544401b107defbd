"""Makes the work directory of a model of another system."""

import contextlib
import os
import pathlib
import shutil
import uuid
from collections.abc import Iterator

from keras_transformer.checkpoints import named_weights
from keras_transformer.importers.imported import Imported, assign
from keras_transformer.model import Transformer
from keras_transformer.workdir import WorkDirectory
from trainers.run.checkpoints import write
from trainers.run.config import TrainingConfig
from trainers.run.data_config import IMPORTED, DataConfig

STEP = 0  # of the checkpoint: it was trained elsewhere


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
