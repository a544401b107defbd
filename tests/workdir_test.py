"""A work directory that was changed by hand, killed, or copied in part."""

import dataclasses
import json
import re

import keras
import pytest
import tensorflow as tf

import keras_transformer as kt
from keras_transformer import workdir as workdirs
from trainers.checkpoints import TrainingCheckpoint
from trainers.config import DataConfig, TrainingConfig
from trainers.progress import Progress


def save_weights(model, folder, step):
    checkpoint = tf.train.Checkpoint(weights=workdirs.named_weights(model))
    return workdirs.Checkpoints(folder).save(checkpoint, step, keep=2)


@pytest.mark.parametrize(
    "change", [{"num_layers": 1}, {"num_layers": 4}, {"pre_norm": True}]
)
def test_weights_of_another_model_are_refused(small_config, tmp_path, change):
    prefix = save_weights(kt.Transformer(small_config), tmp_path, 1)
    other = kt.Transformer(dataclasses.replace(small_config, **change))
    with pytest.raises(ValueError, match="weights"):
        workdirs.restore_weights(workdirs.named_weights(other), prefix)


def test_saving_leaves_the_users_files_alone(small_config, tmp_path):
    model = kt.Transformer(small_config)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "ckpt-best-so-far").mkdir()
    for step in range(1, 5):
        save_weights(model, tmp_path, step)
    assert workdirs.Checkpoints(tmp_path).prefixes() == [
        str(tmp_path / "ckpt-4"),
        str(tmp_path / "ckpt-3"),
    ]
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / "ckpt-best-so-far").is_dir()


def test_training_resumes_with_a_dropout_turned_on(small_config, tmp_path):
    workdir = workdirs.WorkDirectory(tmp_path)

    def checkpoint_of(dropout):
        model = kt.Transformer(
            dataclasses.replace(small_config, dropout=dropout)
        )
        optimizer = keras.optimizers.Adam(0.1)
        optimizer.build(model.trainable_variables)
        progress = Progress()
        checkpoint = TrainingCheckpoint(
            workdir, model, optimizer, progress, keep=1
        )
        return model, progress, checkpoint

    model, progress, checkpoint = checkpoint_of(0.0)
    progress.step = 3
    checkpoint.save()
    other, restored, checkpoint = checkpoint_of(0.2)
    checkpoint.restore()
    assert restored.step == 3
    for one, two in zip(model.weights, other.weights, strict=True):
        assert (one.numpy() == two.numpy()).all()


SECTIONS = {
    "model": kt.TransformerConfig,
    "data": DataConfig,
    "training": TrainingConfig,
    "decoding": kt.DecodingConfig,
}


def edited(folder, section, **fields):
    """A work directory whose `config.json` has other values."""
    workdir = workdirs.WorkDirectory(folder)
    workdir.write_config(**{name: make() for name, make in SECTIONS.items()})
    config = json.loads(workdir.config_path.read_text())
    config[section].update(fields)
    workdir.config_path.write_text(json.dumps(config))
    return workdir


def test_configuration_is_read_as_it_was_written(tmp_path):
    fields = {"dataset": "files", "train_files": ["a", "b"], "max_length": 9}
    workdir = edited(tmp_path, "data", **fields)
    fields["train_files"] = ("a", "b")
    assert workdir.read_section("data", DataConfig) == DataConfig(**fields)
    assert workdir.read_max_length() == 9
    for name in ("model", "training", "decoding"):
        assert workdir.read_section(name, SECTIONS[name]) == SECTIONS[name]()


@pytest.mark.parametrize(
    "section, field, value, expected",
    [
        ("model", "d_model", "128", "a whole number. Received: d_model='128'"),
        ("model", "d_model", 128.5, "a whole number. Received: d_model=128.5"),
        ("model", "num_layers", True, "a whole number. Received: num_layers=T"),
        ("model", "d_key", [], "a whole number, or None. Received: d_key=[]"),
        ("model", "pre_norm", 1, "true or false. Received: pre_norm=1"),
        ("model", "dropout", "0.1", "a number. Received: dropout='0.1'"),
        ("model", "dropout", float("nan"), "a number. Received: dropout=nan"),
        ("model", "dropout", 1, "below 1.0. Received: dropout=1"),
        ("model", "d_model", 9, "even: sinusoids come in pairs. Received: d_m"),
        ("data", "dataset", {}, "text. Received: dataset={}"),
        ("data", "train_files", "a", "a list of texts. Received: train_files="),
        ("data", "test_files", [1], "a list of texts. Received: test_files=(1"),
        ("training", "precision", "half", "one of 'float32', 'mixed_bfloat16'"),
        ("training", "jit_compile", 0, "true or false, or None. Received: jit"),
        ("decoding", "beam_size", None, "a whole number. Received: beam_size="),
        ("decoding", "beam_size", 0, "at least 1. Received: beam_size=0"),
        ("decoding", "top_p", float("inf"), "a number. Received: top_p=inf"),
    ],
)
def test_wrong_field_is_named(tmp_path, section, field, value, expected):
    workdir = edited(tmp_path, section, **{field: value})
    message = f"{workdir.config_path}: in {section!r}: {field} must be "
    with pytest.raises(ValueError, match=re.escape(message + expected)):
        workdir.read_section(section, SECTIONS[section])


@pytest.mark.parametrize(
    "value, expected",
    [
        ("256", "a whole number"),
        (None, "a whole number"),
        (2.5, "a whole number"),
        (1, "at least 2"),
    ],
)
def test_wrong_max_length_is_named(tmp_path, value, expected):
    workdir = edited(tmp_path, "data", max_length=value)
    expected = (
        f"{workdir.config_path}: in 'data': max_length must be {expected}."
        f" Received: max_length={value!r}"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(expected)}$"):
        workdir.read_max_length()


def test_unknown_fields_are_named(tmp_path):
    workdir = edited(tmp_path, "decoding", width=4, beam=2)
    expected = f"{workdir.config_path}: unknown fields in 'decoding': beam, wid"
    with pytest.raises(ValueError, match=re.escape(expected)):
        workdir.read_section("decoding", kt.DecodingConfig)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("", "not JSON: Expecting value: line 1 column 1 (char 0)"),
        ("[1, 2]", "expected sections, an object. Received: [1, 2]"),
        ("null", "expected sections, an object. Received: null"),
        (
            json.dumps("a" * 90),
            f'expected sections, an object. Received: "{"a" * 59} ...',
        ),
        (
            "{}",
            "expected format_version 1. Received: format_version=None",
        ),
        (
            '{"format_version": 1}',
            "expected fields of 'model', an object. Received: no such section",
        ),
        (
            '{"format_version": 1, "model": ["d_model", 8]}',
            "expected fields of 'model', an object. Received: [\"d_model\", 8]",
        ),
    ],
)
def test_another_file_than_a_configuration(tmp_path, text, expected):
    workdir = workdirs.WorkDirectory(tmp_path)
    workdir.config_path.write_text(text)
    expected = f"{workdir.config_path}: {expected}"
    with pytest.raises(ValueError, match=f"^{re.escape(expected)}$"):
        workdir.read_section("model", kt.TransformerConfig)


def test_files_without_dataset_files_are_refused():
    with pytest.raises(ValueError, match="dataset=files"):
        DataConfig(train_files=("corpus/train",))
