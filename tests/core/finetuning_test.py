"""Runs that begin with another run's weights, and the options for them."""

import contextlib
import dataclasses
import io
import os
import shutil
import signal

import commands
import numpy as np
import pytest
from commands import changed_config, fails, open_trainer, stopped_at

import keras_transformer as kt
from keras_transformer.config import DecodingConfig, TransformerConfig
from keras_transformer.storage.checkpoints import (
    Checkpoints,
    named_weights,
    weight_name,
)
from keras_transformer.storage.workdir import WorkDirectory
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.translation.metrics import Scores
from keras_transformer.translator import Translator
from trainers import wmt
from trainers.datasets.dataset import read_split
from trainers.run import session
from trainers.run.checkpoints import write
from trainers.run.data_config import DataConfig
from trainers.run.freezing import find_frozen
from trainers.run.training_config import Configuration, TrainingConfig
from trainers.run.validation import Validation, Validator

MODEL = (
    "--vocab_size=120",
    "--d_model=16",
    "--d_ff=16",
    "--num_heads=2",
    "--num_layers=1",
)
RECIPE = (
    "--batch_tokens=400",
    "--num_buckets=1",
    "--log_steps=1",
    "--checkpoint_steps=2",
    "--train_steps=4",
)


def configuration_of(argv):
    arguments, options = wmt.read_arguments(argv)
    return wmt.read_configuration(arguments, options.preset)


@pytest.fixture(scope="module")
def parent(train_files, tmp_path_factory):
    """A trained work directory whose weights begin other runs."""
    path = tmp_path_factory.mktemp("parent") / "run"
    configuration = configuration_of(
        [*train_files, *MODEL, "--beam_size=3", f"--workdir={path}"]
    )
    pairs = read_split(configuration.data, "train")
    workdir = WorkDirectory(path)
    path.mkdir()
    workdir.save_tokenizer(
        Tokenizer.train((line for pair in pairs for line in pair), 120)
    )
    workdir.write_config(**configuration.sections())
    weights = named_weights(kt.Transformer(configuration.model))
    write(workdir.averaged, {"weights": weights}, 4, keep=1)
    return path


@pytest.fixture(scope="module")
def command(train_files, parent):
    """Flags of a run that begins with it, except the work directory."""
    return [*train_files, *RECIPE, f"--init_from={parent}"]


def tensors(prefix, group):
    """Returns the arrays of a group of a checkpoint, by name."""
    return {
        name.removeprefix(f"{group}/"): array
        for name, array in commands.tensors(prefix, group).items()
    }


# Schedules

CONSTANT = {"schedule": "constant", "learning_rate": 0.1}
COSINE = {"schedule": "cosine", "learning_rate": 0.1, "warmup_steps": 9}


@pytest.mark.parametrize(
    "flags, message",
    [
        ({"learning_rate": 0.1}, "needs schedule=constant or linear or cosi"),
        ({"warmup_steps": 0}, "expected warmup_steps of at least 1"),
        ({"schedule": "linear"}, "expected learning_rate, its peak"),
        ({**CONSTANT, "learning_rate_scale": 2.0}, "needs schedule=noam"),
        ({**COSINE, "train_steps": 9}, "warmup_steps below train_steps"),
    ],
)
def test_options_of_another_schedule(flags, message):
    with pytest.raises(ValueError, match=message):
        TrainingConfig(**flags)


def test_r_drop_needs_dropout(small_config):
    with pytest.raises(ValueError, match="dropout with r_drop"):
        Configuration(
            small_config,
            DataConfig(),
            TrainingConfig(r_drop=1.0),
            DecodingConfig(),
        )


def test_no_warmup_unless_noam():
    fine = TrainingConfig(schedule="linear", learning_rate=0.1)
    assert (TrainingConfig().updates_to_peak, fine.updates_to_peak) == (4000, 0)
    assert dataclasses.replace(fine, warmup_steps=8).updates_to_peak == 8


@pytest.fixture(scope="module")
def opened(command, tmp_path_factory):
    """A run that begins with another run's weights, and its log."""
    path = tmp_path_factory.mktemp("opened") / "run"
    argv = [*command, f"--workdir={path}", "--dropout=0.3"]
    argv += ["--schedule=linear", "--learning_rate=0.01", "--train_steps=1000"]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        trainer = open_trainer([*argv, "--train_minutes=100"])
    return trainer, out.getvalue()


def test_a_run_begins_with_weights_and_vocabulary(opened, parent):
    trainer, out = opened
    initial = parent / "averaged/ckpt-4"
    assert f"initial weights: {initial}\n" in out
    expected = tensors(initial, "weights")
    found = named_weights(trainer.engine.model)
    assert found.keys() == expected.keys()
    for name, variable in found.items():
        np.testing.assert_array_equal(variable.numpy(), expected[name], name)
    assert trainer.progress.step == 0
    assert trainer.engine.optimizer.iterations.numpy() == 0
    vocabulary = trainer.workdir.tokenizer_path.read_bytes()
    assert vocabulary == (parent / "tokenizer.model").read_bytes()
    ours = trainer.experiment.configuration
    theirs = WorkDirectory(parent).read_section("model", TransformerConfig)
    assert ours.model == dataclasses.replace(theirs, dropout=0.3)
    assert ours.decoding.beam_size == 3


def test_the_rate_follows_the_clock(opened, capsys, monkeypatch):
    """Half of the minutes are over: half of the rate, whatever the step.

    The minutes of earlier sessions are a part of the progress in a checkpoint.
    """
    trainer, _ = opened
    trainer.progress.wall_seconds = 50 * 60.0
    after_step = trainer._after_step

    def stop_after_two(before):
        after_step(before)
        if trainer.progress.step == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(trainer, "_after_step", stop_after_two)
    trainer.run()
    rates = [
        float(line.split("lr ")[1].split()[0])
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("step ")
    ]
    np.testing.assert_allclose(rates, [0.005] * 2, rtol=0.02)


# Begun with the weights of another run


def test_languages_and_decoding_are_inherited(command, parent, tmp_path):
    argv = [*command, f"--workdir={tmp_path}/run", "--length_penalty=1.1"]
    given = configuration_of(argv)
    assert given.decoding == DecodingConfig(beam_size=3, length_penalty=1.1)
    assert (given.data.source_language, given.data.target_language) == (
        "en",
        "de",
    )


def test_what_an_imported_model_does_not_say_is_not_compared(
    command, parent, tmp_path
):
    """Its data are unknown, and perhaps its languages."""
    imported = shutil.copytree(parent, tmp_path / "imported")
    with changed_config(imported) as config:
        config["model"]["source_vocab_size"] = 90
        config["data"] |= {
            "dataset": "imported",
            "train_files": [],
            "source_language": "source",
            "target_language": "target",
            "share_vocabulary": False,
        }
    argv = [*command, f"--init_from={imported}", f"--workdir={tmp_path}/run"]
    given = configuration_of(
        [*argv, "--source_language=nl", "--target_language=fr"]
    )
    assert given.model.source_vocab_size == 90
    assert not given.data.share_vocabulary
    assert (given.data.source_language, given.data.dataset) == ("nl", "files")


@pytest.mark.parametrize(
    "flags, message",
    [
        ("--d_model=32 --num_layers=1", "Received: d_model=32, there 16\n"),
        ("--preset=tiny", "d_model=128, there 16"),
        ("--vocab_size=130", "vocab_size=130, there 120"),
        ("--target_language=fr", "target_language='fr', there 'de'"),
        ("--noshare_vocabulary", "share_vocabulary=False, there True"),
        ("--init_from= --init_checkpoint=best", "init_checkpoint needs init_"),
        ("--init_checkpoint=best", "no best checkpoint yet"),
        ("--init_checkpoint={strange}", "expected the weights of the model in"),
        ("--alignment_layer=2", "alignment_layer of at most 1"),
        ("--tokenizer={other}", "expected the vocabulary of init_from"),
        ("--freeze=encodr", "as decoder, embedding, encoder or encoder.layer"),
        ("--freeze=embeddings,encoder,decoder", "that are left to train"),
    ],
)
def test_what_contradicts_the_weights_is_refused(
    flags, message, command, parent, train_files, tmp_path, capsys
):
    if "{other}" in flags:
        other = tmp_path / "other.model"
        Tokenizer.train(["another text than theirs"], 22).save(other)
        flags = flags.format(other=other)
    if "{strange}" in flags:
        model = kt.Transformer(
            vocab_size=120, d_model=16, d_ff=8, num_heads=2, num_layers=1
        )
        groups = {"weights": named_weights(model)}
        flags = flags.format(
            strange=Checkpoints(tmp_path).save(groups, step=4, keep=1)
        )
    argv = [*command, f"--workdir={tmp_path}/run", *flags.split()]
    assert message in fails(wmt.main, argv, capsys)
    assert not (tmp_path / "run").exists()
    argv = [*command, f"--workdir={parent}"]
    if flags == "--preset=tiny":  # once is enough
        assert "another work directory than" in fails(wmt.main, argv, capsys)


def test_a_model_is_fitted_from_a_work_directory(parent, tmp_path):
    """As in README: `Translator.load`, `compile`, `fit`, weights."""
    model = Translator.load(parent).model
    model.encoder.trainable = False
    model.compile(
        kt.scheduled_adam(kt.ConstantSchedule(0.01, warmup_steps=0)),
        kt.SmoothedCrossEntropy(0.1),
        run_eagerly=True,
    )
    before = [weight.numpy() for weight in model.encoder.weights]
    ids = np.array([[5, 6, 7, 2], [8, 9, 2, 0]], "int32")
    inputs = {"source_ids": ids, "target_ids": ids}
    start = model.embedding.weights[0].numpy()
    model.fit(inputs, ids, verbose=0)
    for weight, value in zip(model.encoder.weights, before, strict=True):
        np.testing.assert_array_equal(weight.numpy(), value)
    assert np.abs(start - model.embedding.weights[0].numpy()).max() > 1e-3
    model.save_weights(tmp_path / "fitted.weights.h5")
    copy = Translator.load(parent).model
    copy.load_weights(tmp_path / "fitted.weights.h5")
    for ours, theirs in zip(copy.weights, model.weights, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


# The options together, in a run that is stopped


OPTIONS = (
    "--schedule=linear",
    "--learning_rate=0.01",
    "--weight_decay=0.1",
    "--freeze=embeddings,encoder.layer_0",
    "--dropout=0.2",
    "--r_drop=1",
    "--ema_decay=0.9",
)


@pytest.fixture(scope="module")
def unbroken(command, tmp_path_factory):
    """Runs with these options. Returns the weights that were validated."""
    path = tmp_path_factory.mktemp("unbroken") / "run"
    [train_files] = [a for a in command if a.startswith("--train_files=")]
    argv = [*command, *OPTIONS, f"--workdir={path}", "--valid_steps=4"]
    validated = {}

    def validate(self):
        for name, weight in named_weights(self.model).items():
            validated[name] = weight.numpy()
        return Validation(1.0, 1.0, Scores({"": 1.0}))

    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(io.StringIO()) as out,
    ):
        patch.setattr(Validator, "run", validate)
        patch.setattr(session, "show_result", lambda *_: None)
        wmt.main([*argv, train_files.replace("--train", "--valid")])
    return path, out.getvalue(), validated


def test_averages_are_what_is_validated_and_saved(unbroken):
    path, _, validated = unbroken
    for checkpoint in ("checkpoints/ckpt-4", "best/ckpt-4"):
        saved = tensors(path / checkpoint, "weights")
        assert saved.keys() == validated.keys()
        for name, value in saved.items():
            np.testing.assert_array_equal(value, validated[name], name)
    trained = tensors(path / "checkpoints/ckpt-4", "trained")
    assert trained.keys() < saved.keys()  # without the frozen ones
    for name, value in trained.items():
        assert np.abs(value - saved[name]).max() > 1e-5, name
    Translator.load(path, checkpoint="latest")  # as of any training


def test_embeddings_are_the_tables_alone():
    """Norms and the bias of the logits are no embeddings."""
    model = kt.Transformer(
        vocab_size=9, source_vocab_size=8, d_model=4, d_ff=4, num_heads=1,
        num_layers=1, positions="learned", max_positions=5,
        embedding_norm=True, logits_bias=True, share_embeddings="none",
    )  # fmt: skip
    names = [weight_name(weight) for weight in model.weights]
    assert {"source_embedding_norm.gamma", "softmax.logits_bias"} < set(names)
    assert sorted(find_frozen(names, ["embeddings"])) == [
        "embedding.embeddings",
        "source_embedding.embeddings",
        "source_positions.table",
        "target_positions.table",
    ]


def test_frozen_weights_do_not_change(unbroken, parent):
    path, out, _ = unbroken
    before = tensors(parent / "averaged/ckpt-4", "weights")
    after = tensors(path / "averaged/ckpt-4", "weights")
    frozen = find_frozen(before, ["embeddings", "encoder.layer_0"])
    assert {name.split(".")[0] for name in frozen} == {"embedding", "encoder"}
    for name, value in before.items():
        changed = np.abs(after[name] - value).max()
        assert (changed == 0) == (name in frozen), name
    trained = sum(v.size for n, v in before.items() if n not in frozen)
    total = sum(value.size for value in before.values())
    assert (
        "frozen: embeddings, encoder.layer_0;"
        f" {trained:,} of {total:,} parameters are trained"
    ) in out
    slots = tensors(path / "checkpoints/ckpt-4", "optimizer")
    moments = sum(slot.ndim > 0 for slot in slots.values())
    assert moments == 2 * (len(before) - len(frozen))


@pytest.mark.slow("run")
def test_a_stopped_fine_tuning_resumes_without_its_parent(
    train_files, parent, command, unbroken, tmp_path, monkeypatch, capsys
):
    initial = shutil.copytree(parent, tmp_path / "initial")
    argv = [*train_files, *RECIPE, *OPTIONS, f"--workdir={tmp_path}/run"]
    argv.append(f"--init_from={initial}")
    with monkeypatch.context() as patch:
        stopped_at(2, patch)
        wmt.main(argv)
    shutil.rmtree(initial)
    other = [*argv, f"--init_from={parent}"]
    assert "init_from was " in fails(wmt.main, other, capsys)
    other = [*argv, "--freeze=embeddings"]
    assert "freeze was " in fails(wmt.main, other, capsys)
    wmt.main(argv)
    out = capsys.readouterr().out
    assert "resuming at step 2" in out and "initial weights" not in out
    for group in ("weights", "optimizer", "trained"):
        one, two = (
            tensors(path / "checkpoints/ckpt-4", group)
            for path in (unbroken[0], tmp_path / "run")
        )
        assert one.keys() == two.keys()
        for name in one:
            np.testing.assert_allclose(
                one[name], two[name], rtol=1e-4, atol=1e-6, err_msg=name
            )


# XLA or not


@pytest.mark.parametrize(
    "flag, expected", [("", False), ("--jit_compile", True)]
)
def test_xla_compiles_a_step_on_a_cpu_only_on_request(
    flag, expected, command, tmp_path
):
    argv = [*command, f"--workdir={tmp_path}/run", *filter(None, [flag])]
    trainer = open_trainer(argv)
    gradients = trainer.engine._train_step._whole._compiled
    assert bool(getattr(gradients, "_jit_compile", False)) == expected
    assert bool(trainer.engine.num_programs) == expected
