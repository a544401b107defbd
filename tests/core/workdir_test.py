"""Work directories that were changed by hand, killed, or partly copied."""

import dataclasses
import fcntl
import pathlib
import re
import subprocess
import sys
import types

import keras
import numpy as np
import pytest
from absl import logging
from commands import changed_config

import keras_transformer as kt
from keras_transformer.base.backend import seed_variables
from keras_transformer.base.locking import lock_file
from keras_transformer.storage import checkpoints as checkpoints_module
from keras_transformer.storage import workdir as workdirs
from keras_transformer.storage.checkpoints import Checkpoints, named_weights
from trainers.run import checkpoints as run_checkpoints
from trainers.run.checkpoints import TrainingCheckpoint, average
from trainers.run.data_config import DataConfig
from trainers.run.progress import Progress
from trainers.run.training_config import TrainingConfig


def save_weights(model, folder, step):
    groups = {"weights": named_weights(model)}
    return Checkpoints(folder).save(groups, step, keep=2)


@pytest.mark.parametrize(
    "change, received",
    [
        ({"num_layers": 1}, "{} weights instead of {}"),
        ({"num_layers": 4}, "{} weights instead of {}"),
        ({"pre_norm": True}, "{} weights instead of {}"),
        ({"d_ff": 10}, "decoder.layer_0.feed_forward.inner.bias of (12,) inst"),
    ],
)
def test_weights_of_another_model_are_refused(
    small_config, tmp_path, change, received
):
    workdir = workdirs.WorkDirectory(tmp_path)
    model = kt.Transformer(small_config)
    prefix = save_weights(model, tmp_path / "best", 1)
    other = kt.Transformer(dataclasses.replace(small_config, **change))
    message = (
        f"{prefix}: expected the weights of the model in"
        f" {workdir.config_path}. Received: "
        + received.format(len(model.weights), len(other.weights))
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        workdir.restore_weights(named_weights(other), prefix)


def test_saving_leaves_the_users_files_alone(small_config, tmp_path):
    model = kt.Transformer(small_config)
    names = ("notes.txt", "ckpt-0006.safetensors", "ckpt-best-so-far/a")
    (tmp_path / "ckpt-best-so-far").mkdir()
    for name in names:
        (tmp_path / name).write_text("mine")
    for step in range(1, 5):
        save_weights(model, tmp_path, step)
    newest = [str(tmp_path / f"ckpt-{step}") for step in (4, 3)]
    assert Checkpoints(tmp_path).prefixes() == newest
    assert all((tmp_path / name).read_text() == "mine" for name in names)


def test_what_only_looks_like_a_checkpoint_is_none(tmp_path):
    """Otherwise it would be looked for repeatedly, as if just removed."""
    checkpoints = Checkpoints(tmp_path)
    (tmp_path / "ckpt-0006.safetensors").write_text("")
    (tmp_path / "ckpt-7.safetensors").symlink_to("nowhere")
    assert checkpoints.prefixes() == []
    assert checkpoints.find_intact() is None
    (tmp_path / "ckpt-0.safetensors").write_text("")
    assert checkpoints.prefixes() == [str(tmp_path / "ckpt-0")]


def test_training_resumes_with_a_dropout_turned_on(small_config, tmp_path):
    workdir = workdirs.WorkDirectory(tmp_path)

    def checkpoint_of(dropout):
        model = kt.Transformer(
            dataclasses.replace(small_config, dropout=dropout)
        )
        optimizer = keras.optimizers.Adam(0.1)
        optimizer.build(model.trainable_variables)
        groups = {
            "weights": named_weights(model),
            "optimizer": list(optimizer.variables),
            "seeds": seed_variables(model),
        }
        engine = types.SimpleNamespace(variables=lambda: groups)
        progress = Progress()
        checkpoint = TrainingCheckpoint(workdir, engine, progress, keep=1)
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
    """Makes a work directory with other values in its `config.json`."""
    workdir = workdirs.WorkDirectory(folder)
    workdir.write_config(**{name: make() for name, make in SECTIONS.items()})
    with changed_config(folder) as config:
        config[section].update(fields)
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
    "section, field, values",
    [
        ("model", "d_model", ["128", 128.5, None, 9]),
        ("model", "num_layers", [True, -1]),
        ("model", "d_key", [[]]),
        ("model", "pre_norm", [1, "true"]),
        ("model", "dropout", ["0.1", float("nan"), 1]),
        ("data", "dataset", [{}]),
        ("data", "train_files", ["a"]),
        ("training", "precision", ["half"]),
        ("training", "jit_compile", [0]),
        ("decoding", "beam_size", [None, 0]),
        ("decoding", "length_penalty", [float("inf")]),
    ],
)
def test_wrong_field_is_named(tmp_path, section, field, values):
    for value in values:
        workdir = edited(tmp_path, section, **{field: value})
        with pytest.raises(ValueError) as error:
            workdir.read_section(section, SECTIONS[section])
        message = str(error.value)
        assert message.startswith(f"{workdir.config_path}: in {section!r}: ")
        assert f" Received: {field}={value!r}" in message


@pytest.mark.parametrize("value", [None, 1])
def test_wrong_max_length_is_named(tmp_path, value):
    workdir = edited(tmp_path, "data", max_length=value)
    with pytest.raises(ValueError, match=f"Received: max_length={value}"):
        workdir.read_max_length()


def test_unknown_fields_are_named(tmp_path):
    workdir = edited(tmp_path, "decoding", width=4, beam=2)
    with pytest.raises(ValueError, match="beam, width"):
        workdir.read_section("decoding", kt.DecodingConfig)


@pytest.mark.parametrize(
    "text, received",
    [
        ("", "line 1 column 1"),
        ("[" * 100_000, "not JSON"),
        ("[1, 2]", "list"),
        ("null", "NoneType"),
        ("{}", "format_version=None"),
        ('{"format_version": 1}', "format_version=1"),
        ('{"format_version": 2}', "no such section"),
        ('{"format_version": 2, "model": [8]}', "[8]"),
    ],
)
def test_another_file_than_a_configuration(tmp_path, text, received):
    workdir = workdirs.WorkDirectory(tmp_path)
    workdir.config_path.write_text(text)
    expected = (
        f"^{re.escape(str(workdir.config_path))}: .*{re.escape(received)}"
    )
    with pytest.raises(ValueError, match=expected):
        workdir.read_section("model", kt.TransformerConfig)


# Locks, vocabularies, checkpoints


def second_process_is_locked_out(folder):
    """Tells whether another process finds the lock taken."""
    program = (
        "import fcntl, sys\n"
        "with open(sys.argv[1], 'r+') as file:\n"
        "    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
    )
    command = [sys.executable, "-S", "-c", program, str(folder / ".lock")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert not done.returncode or "BlockingIOError" in done.stderr
    return done.returncode != 0


def claim(folder, error=None):
    """Claims a directory, and may then fail."""
    with workdirs.WorkDirectory(folder).claimed():
        if error:
            raise error


def test_a_claimed_directory_is_locked_until_the_process_ends(tmp_path):
    folder = tmp_path / "new/run"
    with workdirs.WorkDirectory(folder).claimed():
        assert second_process_is_locked_out(folder)
    assert second_process_is_locked_out(folder)
    claim(folder)  # the same process may claim it again


def test_a_claim_that_fails_leaves_nothing_new(tmp_path):
    def fail(folder):
        with pytest.raises(KeyboardInterrupt):
            claim(folder, KeyboardInterrupt())

    fail(tmp_path / "new/run")
    assert not (tmp_path / "new").exists()
    (tmp_path / "old").mkdir()
    (tmp_path / "old/notes.txt").write_text("mine")
    fail(tmp_path / "old")
    assert (tmp_path / "old/notes.txt").exists()
    with workdirs.WorkDirectory(tmp_path / "old").claimed():
        fail(tmp_path / "old")  # by the process that trains here
        assert second_process_is_locked_out(tmp_path / "old")


def test_what_a_killed_training_left_is_removed(tmp_path):
    for name in ("tokenizer.model", "tokenizer.model.0a1b2c3d", "notes.model"):
        (tmp_path / name).touch()
    with workdirs.WorkDirectory(tmp_path).claimed():
        pass
    names = {path.name for path in tmp_path.iterdir()}
    assert names - {workdirs.LOCK} == {"tokenizer.model", "notes.model"}


def test_a_directory_that_cannot_be_made(tmp_path):
    with pytest.raises(FileNotFoundError, match="/proc/x"):
        claim("/proc/x")
    with pytest.raises(OSError, match="File name too long"):
        claim(tmp_path / "new" / ("x" * 300))
    assert not (tmp_path / "new").exists()


def test_a_lock_where_no_file_can_be_made():
    with pytest.raises(FileNotFoundError, match="/proc/.lock"):
        lock_file(pathlib.Path("/proc/.lock"))


def test_the_lock_of_a_removed_directory_is_none(tmp_path, monkeypatch):
    """Whoever removes a directory holds its lock, which is then nobody's."""
    lockf, calls = fcntl.lockf, []

    def remove_and_lock(file, operation):
        lockf(file, operation)
        calls.append(file)
        if len(calls) == 1:
            (tmp_path / "run/.lock").unlink()
            (tmp_path / "run").rmdir()

    monkeypatch.setattr(fcntl, "lockf", remove_and_lock)
    with workdirs.WorkDirectory(tmp_path / "run").claimed():
        assert len(calls) == 2
        assert second_process_is_locked_out(tmp_path / "run")


@pytest.mark.parametrize("path", ["file", "file/run"])
def test_a_file_is_no_work_directory(tmp_path, path):
    (tmp_path / "file").write_text("")
    workdir = workdirs.WorkDirectory(tmp_path / path)
    for use in (workdir.read_config, lambda: claim(tmp_path / path)):
        with pytest.raises(ValueError, match="expected a directory.* is a fi"):
            use()


def test_another_vocabulary_is_refused(tmp_path):
    workdir = workdirs.WorkDirectory(tmp_path)
    ours, other = (
        kt.Tokenizer.train([line], vocab_size=17)
        for line in ("a rose is a rose", "o rise us o rise")
    )
    assert ours.vocab_size == other.vocab_size
    ours.save(workdir.tokenizer_path)
    workdir.write_config()
    assert workdir.load_tokenizer().model_bytes == ours.model_bytes
    other.save(workdir.tokenizer_path)
    with pytest.raises(ValueError, match="not the vocabulary that training"):
        workdir.load_tokenizer()
    # Before 0.2 there was no checksum.
    with changed_config(tmp_path) as config:
        del config["tokenizer_sha256"]
    assert workdir.load_tokenizer().model_bytes == other.model_bytes


def test_weights_that_are_not_finite_are_passed_over(
    small_config, tmp_path, caplog
):
    model = kt.Transformer(small_config)
    save_weights(model, tmp_path, 1)
    first = model.weights[0]
    first.assign(np.full(first.shape, np.nan))
    save_weights(model, tmp_path, 2)
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.find_intact() == str(tmp_path / "ckpt-1")
    assert f"corrupt checkpoint {tmp_path}/ckpt-2: " in caplog.text
    assert "is not finite" in caplog.text


def three_kinds(model, folder):
    """Makes a work directory with averaged, best and latest checkpoints."""
    workdir = workdirs.WorkDirectory(folder)
    for step, name in ((3, "averaged"), (2, "best"), (3, "checkpoints")):
        save_weights(model, folder / name, step)
    return workdir


def test_the_chosen_checkpoint_is_reported(small_config, tmp_path, caplog):
    workdir = three_kinds(kt.Transformer(small_config), tmp_path)
    logging.set_verbosity(logging.INFO)
    averaged, best = (str(tmp_path / n) for n in ("averaged/ckpt-3", "best"))
    assert workdir.choose_checkpoint() == averaged
    message = f"using the averaged checkpoint {averaged}"
    told = [(r.levelname, r.getMessage()) for r in caplog.records]
    assert told == [("INFO", message)]
    caplog.clear()
    (tmp_path / "averaged/ckpt-3.safetensors").write_bytes(b"cut")
    assert workdir.choose_checkpoint() == f"{best}/ckpt-2"
    skipped, used = caplog.records
    assert f"corrupt checkpoint {averaged}: " in skipped.getMessage()
    assert (used.levelname, used.getMessage()) == (
        "WARNING",
        f"using the best checkpoint {best}/ckpt-2 instead of {averaged}",
    )


def test_a_newer_corrupt_checkpoint_is_reported(small_config, tmp_path, caplog):
    model = kt.Transformer(small_config)
    old, new = (save_weights(model, tmp_path / "best", step) for step in (1, 2))
    pathlib.Path(f"{new}.safetensors").write_bytes(b"")
    assert workdirs.WorkDirectory(tmp_path).choose_checkpoint("best") == old
    message = f"using the best checkpoint {old} instead of {new}"
    assert message in caplog.text


def test_an_unknown_checkpoint_is_none(small_config, tmp_path):
    workdir = three_kinds(kt.Transformer(small_config), tmp_path)
    with pytest.raises(
        ValueError,
        match="no such checkpoint: expected averaged, best, latest, or .*"
        "Received: checkpoint='latst'",
    ):
        workdir.choose_checkpoint("latst")
    (tmp_path / "best/ckpt-2.safetensors").write_bytes(b"cut")
    with pytest.raises(ValueError, match="^corrupt checkpoint .*best/ckpt-2: "):
        workdir.choose_checkpoint(str(tmp_path / "best/ckpt-2"))


def training_beside(monkeypatch, module, name, model, folder):
    """Lets a training save step 4 and drop step 3 when a function is called."""
    function = getattr(module, name)

    def call(*args):
        monkeypatch.setattr(module, name, function)
        groups = {"weights": named_weights(model)}
        Checkpoints(folder).save(groups, step=4, keep=1)
        return function(*args)

    monkeypatch.setattr(module, name, call)


@pytest.mark.parametrize("name", ["corruption", "check_weights"])
def test_a_checkpoint_removed_while_it_is_chosen(
    name, small_config, tmp_path, monkeypatch, caplog
):
    model = kt.Transformer(small_config)
    workdir = three_kinds(model, tmp_path)
    module = checkpoints_module if name == "corruption" else workdirs
    training_beside(monkeypatch, module, name, model, tmp_path / "checkpoints")
    weights = named_weights(kt.Transformer(small_config))
    newest = str(tmp_path / "checkpoints/ckpt-4")
    assert workdir.restore_weights(weights, "latest") == newest
    assert "corrupt" not in caplog.text
    for name, weight in named_weights(model).items():
        np.testing.assert_array_equal(weights[name], weight)


@pytest.mark.parametrize("name", ["corruption", "Checkpoint"])
def test_a_checkpoint_removed_while_it_is_averaged(
    name, small_config, tmp_path, monkeypatch
):
    model = kt.Transformer(small_config)
    workdir = three_kinds(model, tmp_path)
    workdir.write_config(model=small_config)
    kt.Tokenizer.train(["a rose is a rose"], 17).save(workdir.tokenizer_path)
    module = checkpoints_module if name == "corruption" else run_checkpoints
    training_beside(monkeypatch, module, name, model, tmp_path / "checkpoints")
    averaged, result = average(workdir, last=2)
    assert averaged == [str(tmp_path / "checkpoints/ckpt-4")]
    assert result == str(tmp_path / "averaged/ckpt-4")
