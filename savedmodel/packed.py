"""Exports a packed model: a work directory to give to others.

Every command takes it as `--workdir`. Its weights are 8-bit integers, which
become float32 when they are read: so each engine, and each export of it, has
the same weights. Of the configuration it has what a translator needs, but no
names of files.
"""

import dataclasses
import pathlib
import shutil

from absl import logging

from keras_transformer.base.fields import names_of
from keras_transformer.base.refusals import expect
from keras_transformer.commands.flags import CommandError
from keras_transformer.confidence.assessment import FILE, Assessor
from keras_transformer.data.languages import Languages
from keras_transformer.storage.card import FACTS
from keras_transformer.storage.checkpoints import named_weights, quantized
from keras_transformer.storage.workdir import WorkDirectory
from savedmodel.formats import Export

KEPT = (*names_of(Languages), "share_vocabulary", "case_marks")
STEP = 0  # of the checkpoint: it was trained elsewhere


def write(export: Export) -> None:
    """Writes the work directory; see `formats`."""
    translator = export.translator
    source = WorkDirectory(export.options.workdir)
    packed = WorkDirectory(export.directory)
    data = source.read_config()["data"]
    expect(
        translator.languages.source_language,
        "a model of translation with format=packed",
        workdir=export.options.workdir,
        error=CommandError,
    )
    packed.save_tokenizer(translator.tokenizer)
    packed.write_config(
        model=translator.model.config,
        decoding=translator.decoding,
        data={name: data[name] for name in KEPT if name in data}
        | {"dataset": "imported", "max_length": translator.max_source_length},
        training={},
    )
    weights = quantized(named_weights(translator.model))
    packed.averaged.save(weights, STEP, keep=1)
    for path in (source.path / FACTS, source.shortlist_path):
        if path.is_file():
            shutil.copy(path, packed.path)
    if (source.path / FILE).exists():
        try:
            calibration = Assessor.of(translator).calibration
        except ValueError as error:
            logging.warning("confidence.json is left out: %s", error)
        else:
            name = pathlib.Path(packed.averaged.prefixes()[0]).name
            calibration = dataclasses.replace(calibration, checkpoint=name)
            calibration.write(packed.path / FILE)
