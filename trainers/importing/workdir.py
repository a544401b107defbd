"""The work of `kt-import`: makes a work directory from a model."""

import glob
import itertools
import os
import pathlib
from collections.abc import Sequence

from keras_transformer.base.files import check_new, new_directory
from keras_transformer.base.refusals import expect
from keras_transformer.commands import flags
from keras_transformer.data.files.pairs import read_lines
from keras_transformer.importers import read_model
from keras_transformer.importers.imported import (
    Imported,
    describe_tables,
    take_arrays,
    with_languages,
)
from keras_transformer.importers.pruning import prune
from keras_transformer.storage.hub import find_model
from keras_transformer.storage.workdir import WorkDirectory
from trainers.datasets.imported import IMPORTED
from trainers.run.checkpoints import write
from trainers.run.data_config import DataConfig
from trainers.run.training_config import TrainingConfig

STEP = 0  # of the checkpoint: it was trained elsewhere


def run(
    source: str,
    workdir: str,
    format: str | None,
    source_language: str | None,
    target_language: str | None,
    keep_languages: str | None,
    vocabulary_from: tuple[str, ...],
) -> None:
    """Imports a model, and shows its size. Parameters: `ImportModelOptions`.

    Raises CommandError if the source cannot be imported, the work directory
    exists, or a file cannot be read or written.
    """
    with flags.user_errors():
        check_new(workdir)
        files = find_files(vocabulary_from)
        format_name, model = read_model(find_model(source), format)
        if keep_languages is not None:
            expect(
                model.language_tokens,
                "a multilingual model with keep_languages",
                keep_languages=keep_languages,
            )
            source_language = target_language = keep_languages
        model = choose_languages(model, source_language, target_language)
        if files:
            lines = itertools.chain.from_iterable(map(read_lines, files))
            model = prune(model, lines)
        size = sum(array.size for array in model.weights.values())
        write_workdir(model, workdir)
    config = model.config
    flags.show(
        f"{workdir}: {size:,} parameters, {config.num_layers} +"
        f" {config.decoder_depth} layers, vocabulary {config.vocab_size:,},"
        f" from {source} ({format_name})",
        *describe_tables(model.tokenizer),
        *model.notes,
    )


def find_files(patterns: Sequence[str]) -> list[pathlib.Path]:
    """Finds the files that match. Raises ValueError if a pattern has none."""
    found = {pattern: sorted(glob.glob(pattern)) for pattern in patterns}
    for pattern, files in found.items():
        expect(files, "files in vocabulary_from", repr(pattern))
    return list(map(pathlib.Path, itertools.chain(*found.values())))


def choose_languages(
    model: Imported, source_language: str | None, target_language: str | None
) -> Imported:
    """Sets the given languages of a model. Its files name the others.

    If the files name the same language twice, the model gets none, and a note.
    """
    model = with_languages(model, source_language, target_language)
    given = source_language is not None or target_language is not None
    language = model.source_language
    if given or not language or language != model.target_language:
        return model
    # Both files of test data would be PREFIX.gem.
    note = (
        f"both languages are {language}: here they are named source and target,"
        " unless --source_language and --target_language say otherwise"
    )
    notes = [*model.notes, note]
    return model._replace(source_language="", target_language="", notes=notes)


def write_workdir(imported: Imported, path: str | os.PathLike) -> None:
    """Makes the work directory of an imported model, whole or not at all.

    Raises ValueError if the weights do not fit the model of `config`, or
    something is at the path. Raises OSError if a file cannot be written.
    """

    with new_directory(check_new(path)) as directory:
        workdir = WorkDirectory(directory)
        workdir.save_tokenizer(imported.tokenizer)
        languages = imported.languages
        data = DataConfig(
            dataset=IMPORTED,
            source_language=languages.source_language or "source",
            target_language=languages.target_language or "target",
            language_tokens=imported.language_tokens,
            max_length=imported.max_length,
            share_vocabulary=imported.config.source_vocab_size is None,
        )
        workdir.write_config(
            model=imported.config,
            decoding=imported.decoding,
            data=data,
            training=TrainingConfig(),
        )
        weights = dict(take_arrays(imported))
        write(workdir.averaged, {"weights": weights}, STEP, keep=1)
