"""A small trained translator, exported once for all tests of exports.

It translates between two made-up languages, badly, but its translations differ
and end.
"""

import contextlib
import functools
import io
import logging
import random
import shutil
import unittest.mock
import warnings

import keras
import numpy as np
import onnx as onnx_proto
import sharing
import tensorflow as tf

import keras_transformer as kt
from keras_transformer.confidence.calibration import Calibration
from keras_transformer.confidence.features import FEATURES
from keras_transformer.confidence.regression import Regression
from keras_transformer.storage.checkpoints import named_weights
from keras_transformer.storage.workdir import WorkDirectory
from savedmodel import export, onnx, tflite
from trainers.run.data_config import DataConfig

WORDS = {
    "one": "eins",
    "two": "zwei",
    "three": "drei",
    "red": "rot",
    "green": "grün",
    "dog": "Hund",
    "house": "Haus",
    "tree": "Baum",
}
MAX_SOURCE_LENGTH = 16
DECODING = kt.DecodingConfig(beam_size=3, length_penalty=0.6, extra_length=6)
SENTENCES = (
    "one dog",
    "",
    "the house is green",
    "two red dogs and three green trees",
    "tree",
    "one two three one two three one two three one two three red",
    "a ☃ dog",
    "   ",
    "\x85green\u3000green\u2028 \x1f",  # Python's white space
)


@functools.cache
def workdir():
    """Returns the path of a work directory with an averaged checkpoint."""
    return sharing.make_once("run", make_workdir)


def make_workdir(path):
    directory = WorkDirectory(path)
    pairs = make_pairs(400)
    tokenizer = kt.Tokenizer.train(
        [line for pair in pairs for line in pair], vocab_size=60
    )
    directory.path.mkdir()
    tokenizer.save(directory.tokenizer_path)
    model = train(tokenizer, pairs)
    directory.write_config(
        model=model.config,
        data=DataConfig(max_length=MAX_SOURCE_LENGTH, target_language="de"),
        decoding=DECODING,
    )
    directory.averaged.save({"weights": named_weights(model)}, step=3, keep=1)


def calibrated(path):
    """Copies the work directory to a path, with a made-up calibration."""
    shutil.copytree(workdir(), path)
    regressions = (
        Regression(np.zeros(n), np.ones(n), np.linspace(-1.0, 0.3, n + 1))
        for n in (len(FEATURES), 3)
    )
    calibration = Calibration(*regressions, {"": 0.1}, {}, "ckpt-3")
    calibration.write(path / "confidence.json")
    return calibration


@functools.cache
def translator():
    """Returns the translator of the work directory."""
    return kt.Translator.load(workdir())


def best_ids(lines):
    """Returns the ids of the translator's best translations."""
    found = translator().n_best_ids(list(lines))
    return [hypotheses[0][0] for hypotheses in found]


@functools.cache
def exported(format_name):
    """Returns a verified export of the work directory, and printed lines."""

    def make(output):
        printed = io.StringIO()
        with (
            shared_conversions(),
            contextlib.redirect_stdout(printed),
            recorded_warnings() as warned,
        ):
            export.main(
                [
                    f"--workdir={workdir()}",
                    f"--format={format_name}",
                    f"--output={output}",
                ]
            )
        output.with_suffix(".printed").write_text(printed.getvalue())
        output.with_suffix(".warned").write_text("\n".join(warned))

    output = sharing.make_once(format_name, make)
    return output, output.with_suffix(".printed").read_text()


@contextlib.contextmanager
def recorded_warnings():
    """Yields a list of the process's warnings, TensorFlow's included."""
    lines, recorder = [], logging.Handler(logging.WARNING)
    recorder.emit = lambda record: lines.append(record.getMessage())
    loggers = [logging.getLogger(name) for name in ("", "absl", "tensorflow")]
    for logger in loggers:
        logger.addHandler(recorder)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", DeprecationWarning)
            yield lines
    finally:
        for logger in loggers:
            logger.removeHandler(recorder)
        lines += [str(warning.message) for warning in caught]


@functools.cache
def quantized(format_name, precision):
    """Returns an export with quantized weights, which is not verified."""

    def make(directory):
        directory.mkdir()
        with shared_conversions():
            export.write(
                source(),
                export.ExportOptions(
                    workdir=str(workdir()),
                    format=format_name,
                    output=str(directory),
                    precision=precision,
                ),
                directory,
            )

    return sharing.make_once(f"{format_name}-{precision}", make)


def source():
    """Returns the `Source` of the exports."""
    return export.Source(translator(), [], ("en", "de"))


@contextlib.contextmanager
def shared_conversions():
    """Makes conversions once, since they are the same in all precisions."""
    with (
        unittest.mock.patch.object(onnx, "make_model", converted_to_onnx),
        unittest.mock.patch.object(tflite, "save_searches", saved_searches),
    ):
        yield


make_model, save_searches = onnx.make_model, tflite.save_searches


def converted_to_onnx(_):
    def make(path):
        path.write_bytes(make_model(translator()).SerializeToString())

    path = sharing.make_once("converted.onnx", make)
    return onnx_proto.ModelProto.FromString(path.read_bytes())


def saved_searches(_, directory):
    def make(path):
        save_searches(translator(), str(path))

    searches = sharing.make_once("searches", make)
    shutil.copytree(searches, directory, dirs_exist_ok=True)


def make_pairs(number):
    """Returns pairs of a sentence and its word-for-word translation."""
    rng = random.Random(5)
    pairs = []
    for _ in range(number):
        words = rng.choices(list(WORDS), k=rng.randint(1, 5))
        pairs.append((" ".join(words), " ".join(WORDS[w] for w in words)))
    return pairs


def train(tokenizer, pairs):
    """Trains a model for some hundred steps."""
    keras.utils.set_random_seed(2)
    model = kt.Transformer(
        vocab_size=tokenizer.vocab_size,
        d_model=32,
        d_ff=64,
        num_heads=2,
        num_layers=1,
        num_decoder_layers=2,
        dropout=0.0,
        pre_norm=True,
    )
    source_ids, labels = (
        tokenizer.encode([pair[side] for pair in pairs]).to_tensor()
        for side in (0, 1)
    )
    target_ids = tf.pad(labels[:, :-1], [[0, 0], [1, 0]], constant_values=1)
    model.compile(
        optimizer=keras.optimizers.Adam(8e-3, beta_2=0.98),
        loss=kt.SmoothedCrossEntropy(0.1),
    )
    model.fit(
        {"source_ids": source_ids, "target_ids": target_ids},
        labels,
        batch_size=80,
        epochs=25,
        verbose=0,
    )
    return model
