"""The commands, from files of sentence pairs to translations."""

import contextlib
import functools
import io
import json
import os
import re
import shutil
import signal
import sys
from unittest.mock import Mock

import numpy as np
import pytest
import tensorflow as tf
from commands import (
    ROOT,
    SMALL_MODEL,
    changed_config,
    fails,
    largest_batch_untried,
    open_trainer,
    stopped_at,
    tensors,
    write_pairs,
)
from later import later
from tensorboard.backend.event_processing.plugin_event_accumulator import (
    EventAccumulator,
)

from keras_transformer.commands.flags import CommandError
from keras_transformer.config import TransformerConfig
from keras_transformer.storage.workdir import WorkDirectory
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.translation.metrics import Scores
from keras_transformer.translator import Translator
from trainers import average, evaluate, translate, wmt
from trainers.datasets import phrasebook
from trainers.run import loop, session, validation
from trainers.run.checkpoints import average as average_checkpoints
from trainers.run.event_file import read_curves
from trainers.run.progress import Reporter, log
from trainers.run.strategies import Workers
from trainers.translating import lines as translating

VOCAB_SIZE = 120
RECIPE = (
    f"--vocab_size={VOCAB_SIZE}",
    "--batch_tokens=400",
    "--num_buckets=2",
    "--warmup_steps=10",
    "--log_steps=2",
    "--valid_steps=4",
    "--valid_sentences=5",
    "--checkpoint_steps=2",
    "--beam_size=1",
    "--extra_length=2",
    "--train_steps=8",
)
UNMEASURED = ("--valid_files=", "--test_files=")  # much faster


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """Flags that name a small corpus in files."""
    directory = tmp_path_factory.mktemp("corpus")
    return [
        "--dataset=files",
        *(
            f"--{name}_files="
            + write_pairs(directory / name, phrasebook.read_split(name, size))
            for name, size in (("train", 300), ("valid", 12), ("test", 8))
        ),
    ]


@pytest.fixture(autouse=True)
def untried():
    """Skips the trial of the largest batch, except for `trained`."""
    with largest_batch_untried():
        yield


@pytest.fixture(scope="session")
def command(corpus):
    """Flags of a small training, except its work directory."""
    return [*corpus, *SMALL_MODEL, *RECIPE]


@pytest.fixture(scope="session")
def trained(command, tmp_path_factory):
    """A work directory after a training."""
    path = tmp_path_factory.mktemp("trained") / "run"
    with contextlib.redirect_stdout(io.StringIO()):
        wmt.main([*command, f"--workdir={path}"])
    return path


@pytest.fixture
def changed(trained, tmp_path):
    """A copy of a work directory, for changes."""
    return shutil.copytree(trained, tmp_path / "run")


def assert_same_training(first, second):
    one, two = tensors(first), tensors(second)
    assert one.keys() == two.keys()
    for name in one:
        np.testing.assert_allclose(
            one[name], two[name], rtol=1e-4, atol=1e-6, err_msg=name
        )


# Training


def test_work_directory(trained):
    assert {path.name for path in trained.iterdir()} == {
        ".lock",
        "averaged",
        "best",
        "checkpoints",
        "config.json",
        "flags.txt",
        "logs",
        "tokenizer.model",
    }
    config = json.loads((trained / "config.json").read_text())
    assert config["format_version"] == 2
    assert config["model"]["d_model"] == 16
    assert config["data"]["target_language"] == "de"
    assert config["training"]["train_steps"] == 8
    assert config["decoding"]["beam_size"] == 1
    names = [p.name for p in (trained / "checkpoints").glob("*.safetensors")]
    assert sorted(names) == [f"ckpt-{s}.safetensors" for s in (2, 4, 6, 8)]
    assert len(list((trained / "best").glob("*.safetensors"))) == 1
    events = EventAccumulator(str(trained / "logs"))
    events.Reload()
    assert {"run/host", "run/versions"} < set(events.Tags()["tensors"])
    [fact] = events.Tensors("run/training data")
    assert b" pairs read" in tf.make_ndarray(fact.tensor_proto).item()


def test_written_flags_are_the_configuration(trained):
    argv = [f"--flagfile={trained}/flags.txt", f"--workdir={trained}"]
    trainer = open_trainer(argv)
    assert trainer.progress.step == 8
    assert trainer.experiment.configuration.model.d_model == 16


def test_stopped_and_resumed_is_as_never_stopped(
    command, trained, tmp_path, monkeypatch, capsys
):
    argv = [*command, *UNMEASURED, f"--workdir={tmp_path}"]
    with monkeypatch.context() as patch:
        stopped_at(3, patch)
        wmt.main(argv)  # and so ends with status 0
    out = capsys.readouterr().out
    assert "stopped by SIGTERM | step 3" in out
    assert f"saved in {tmp_path}; rerun the same command to resume" in out
    assert (tmp_path / "checkpoints/ckpt-3.safetensors").exists()
    wmt.main(argv)
    assert "resuming at step 3" in capsys.readouterr().out
    assert_same_training(
        trained / "checkpoints/ckpt-8", tmp_path / "checkpoints/ckpt-8"
    )


@pytest.mark.slow("backend")
def test_two_replicas_train_as_one(command, tmp_path):
    argv = [*command, *UNMEASURED, "--train_steps=1", "--dropout=0"]
    # Six rows with one replica and with two.
    argv += ["--num_buckets=1", "--max_length=40", "--batch_tokens=250"]
    found = []
    for strategy in ("one_device", "mirrored"):
        path = tmp_path / strategy
        wmt.main([*argv, f"--workdir={path}", f"--strategy={strategy}"])
        found.append(tensors(path / "checkpoints/ckpt-1"))
    one, two = found
    moments = [name for name in one if name.startswith("optimizer/")]
    assert moments
    # The optimizer's moments are the gradient; in the weights Adam magnifies
    # rounding errors of what should be zero.
    for name in moments:
        np.testing.assert_allclose(one[name], two[name], atol=1e-6)


def test_time_limit_ends_training(command, tmp_path, capsys):
    argv = [*command, *UNMEASURED, f"--workdir={tmp_path}"]
    wmt.main([*argv, "--train_minutes=0.0001"])
    out = capsys.readouterr().out
    assert "time limit of 0.0001 minutes reached | step 1" in out


def test_patience_ends_training(command, tmp_path, capsys, monkeypatch):
    found = iter([3.0, 2.0, 1.0])
    monkeypatch.setattr(
        validation.Validator,
        "run",
        lambda self: validation.Validation(1.0, 1.0, Scores({"": next(found)})),
    )
    argv = [*command, f"--workdir={tmp_path}", "--test_files="]
    monkeypatch.setattr(session, "show_result", lambda *_: None)
    wmt.main([*argv, "--valid_steps=1", "--patience=2"])
    out = capsys.readouterr().out
    assert "no better BLEU (13a) in 2 validations | step 3" in out
    assert re.search(r"note: 0\.\d epochs are few for [\d,]+ pairs\.", out)
    assert (tmp_path / "best/ckpt-1.safetensors").exists()


@pytest.mark.slow("run")
def test_a_signal_ends_a_validation(command, tmp_path, capsys, monkeypatch):
    """The steps are saved at once; the next session validates first."""
    steps, ends = [], iter([True, False, True, False])

    def run(validator):
        steps.append(len(list((tmp_path / "checkpoints").glob("*.safete*"))))
        if next(ends):
            signal.raise_signal(signal.SIGTERM)
            pytest.fail("the validation goes on")
        return validation.Validation(1.0, 1.0, Scores({"": 3.0}))

    monkeypatch.setattr(validation.Validator, "run", run)
    monkeypatch.setattr(session, "show_result", lambda *_: None)
    argv = [*command, f"--workdir={tmp_path}", "--test_files="]
    argv += ["--valid_steps=1", "--checkpoint_steps=9", "--train_steps=2"]
    for step in (1, 2):
        wmt.main(argv)
        out = capsys.readouterr().out
        assert f"validation of step {step}: made when training res" in out
        assert f"stopped by SIGTERM | step {step}" in out
        assert (tmp_path / f"checkpoints/ckpt-{step}.safetensors").exists()
    wmt.main(argv)
    out = capsys.readouterr().out
    assert "validation at step 2" in out and "finished all steps" in out
    wmt.main(argv)
    assert steps == [0, 1, 1, 2]  # checkpoints when a validation began


# Checkpoints


def test_averaged_weights_are_the_mean(trained, capsys):
    average.main([f"--workdir={trained}", "--last=3"])
    assert "is the mean of" in capsys.readouterr().out
    [prefix] = WorkDirectory(trained).averaged.prefixes()
    mean = tensors(prefix)
    assert mean and all(name.startswith("weights/") for name in mean)
    parts = [tensors(trained / f"checkpoints/ckpt-{s}") for s in (4, 6, 8)]
    for name, value in mean.items():
        expected = np.mean([part[name] for part in parts], axis=0)
        np.testing.assert_allclose(value, expected, atol=1e-6)


def truncate(path):
    """Truncates a file to half of its size."""
    os.truncate(path, path.stat().st_size // 2)


def test_corrupt_checkpoint_is_named_and_the_one_before_used(
    command, changed, capsys, caplog
):
    newest = changed / "checkpoints/ckpt-8.safetensors"
    truncate(newest)
    trainer = open_trainer([*command, *UNMEASURED, f"--workdir={changed}"])
    assert f"corrupt checkpoint {newest.with_suffix('')}: " in caplog.text
    assert "resuming at step 6" in capsys.readouterr().out
    trainer.checkpoint.save()
    assert not newest.exists()


def truncate_all(path):
    for file in path.glob("*/ckpt-*.safetensors"):
        truncate(file)


def put_file(path):
    shutil.rmtree(path)
    path.touch()


@pytest.mark.parametrize(
    "damage, message",
    [
        (truncate_all, "every checkpoint is corrupt: .*ckpt-8"),
        (put_file, "expected a directory"),
    ],
)
def test_every_command_refuses(damage, message, command, changed, capsys):
    damage(changed)
    for main in (wmt.main, average.main, translate.main):
        argv = [*(command if main is wmt.main else []), f"--workdir={changed}"]
        assert re.search(message, fails(main, argv, capsys))


# A training that goes wrong


@pytest.mark.parametrize("valid_steps", [4, *later("options", 1)])
def test_a_diverged_training_saves_nothing(
    valid_steps, command, tmp_path, capsys
):
    """Status 1, since the command was right. The next report is far away."""
    argv = [*command, f"--workdir={tmp_path}", "--learning_rate_scale=1e30"]
    argv += [f"--valid_steps={valid_steps}", "--log_steps=100"]
    message = fails(wmt.main, [*argv, "--checkpoint_steps=100"], capsys, 1)
    assert f"training has diverged: at step {valid_steps}, " in message
    assert " is not finite" in message
    assert ("(the loss since step 2)" in message) == (valid_steps == 4)
    assert "There is no checkpoint yet" in message
    for name in ("best", "checkpoints", "averaged"):
        assert not (tmp_path / name).exists()


@pytest.mark.parametrize(
    "due", ["--log_steps=2", *later("options", "--checkpoint_steps=2")]
)
def test_a_diverged_training_names_the_last_good_checkpoint(
    due, command, changed, capsys
):
    before = sorted(changed.glob("*/ckpt*"))
    argv = [*command, *UNMEASURED, f"--workdir={changed}", "--train_steps=20"]
    argv += ["--learning_rate_scale=1e30", "--log_steps=100"]
    message = fails(wmt.main, [*argv, "--checkpoint_steps=100", due], capsys, 1)
    assert "training has diverged: at step 10, " in message
    last_good = changed / "checkpoints/ckpt-8"
    assert f"The last good checkpoint is {last_good}. A smaller" in message
    assert sorted(changed.glob("*/ckpt*")) == before


def test_the_first_step_that_is_not_finite():
    totals = loop.TokenTotals(Workers(tf.distribute.get_strategy()))
    for step, loss in ((3, 2.0), (6, np.inf), (9, np.nan)):
        totals.add(step, tf.constant([loss, 1.0, 5.0, 7.0]))
    assert totals.first_not_finite() == 6
    assert totals.take()["target_tokens"] == 15.0
    assert totals.first_not_finite() is None


def test_training_outlives_its_reader(
    command, tmp_path, monkeypatch, caplog, capsys
):
    """Standard output was closed, as by `| head`, or its disk is full."""
    argv = [*command, *UNMEASURED, f"--workdir={tmp_path}", "--train_steps=2"]
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as closed, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", closed)
        wmt.main(argv)
    assert (tmp_path / "averaged/ckpt-2.safetensors").exists()
    assert caplog.text.count("standard output cannot be written") == 1
    with open("/dev/full", "w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        log("a line")
    assert "No space left on device" in caplog.text
    out = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", out)
    log("test BLEU 1.00 für \u201eMädchen\u201c")
    assert out.buffer.getvalue() == (
        b"test BLEU 1.00 f\\xfcr \\u201eM\\xe4dchen\\u201c\n"
    )


@pytest.mark.parametrize(
    "method, arguments", [("advance", [3]), ("log", ["a line"]), ("close", [])]
)
def test_training_outlives_its_terminal(method, arguments, tmp_path, capsys):
    gone = Mock(n=0)
    for of_bar in (gone.clear, gone.close, gone.update):
        of_bar.side_effect = OSError(5, "Input/output error")
    reporter = Reporter(tmp_path, 0, 10, is_chief=True)
    reporter._bar = gone
    getattr(reporter, method)(*arguments)
    assert reporter._bar is None
    reporter.log("another line")
    assert capsys.readouterr().out.endswith("another line\n")


@pytest.fixture
def noted():
    """The signals that reach earlier handlers, instead of their defaults."""
    noted = []
    before = {
        number: signal.signal(number, lambda number, _: noted.append(number))
        for number in loop.StopSignals.SIGNALS
    }
    yield noted
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_signal_ends_a_computation(noted):
    """Other code may turn it into another error. A second signal is raised."""

    def interrupted(error=None):
        try:
            signal.raise_signal(signal.SIGTERM)
        except BaseException as stopped:
            raise (error or stopped) from stopped

    for error in (None, ValueError()):
        with loop.StopSignals() as signals:
            assert signals.unless_stopped(lambda: 1, may_stop=True) == 1
            end = functools.partial(interrupted, error)
            assert signals.unless_stopped(end, may_stop=True) is None
            assert signals.received == signal.SIGTERM
            assert signals.unless_stopped(pytest.fail, may_stop=True) is None
            assert signals.unless_stopped(lambda: 1, may_stop=False) == 1
    with loop.StopSignals() as signals:
        end = functools.partial(interrupted, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            signals.unless_stopped(end, may_stop=True)
    with loop.StopSignals() as signals, pytest.raises(ZeroDivisionError):
        signals.unless_stopped(lambda: 1 / 0, may_stop=True)
    assert not noted


@pytest.mark.parametrize("number", loop.StopSignals.SIGNALS)
def test_the_second_signal_is_as_ever(number, noted):
    with loop.StopSignals() as signals:
        os.kill(os.getpid(), number)
        assert (signals.received, noted) == (number, [])
        os.kill(os.getpid(), number)
        assert noted == [number]
    os.kill(os.getpid(), number)
    assert noted == [number] * 2


def test_a_signal_that_was_ignored_stays_ignored(noted):
    """`nohup` ignores SIGHUP, for example."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with loop.StopSignals() as signals:
        os.kill(os.getpid(), signal.SIGHUP)
        assert signals.received is None
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


def test_no_time_for_a_step(command, tmp_path, capsys):
    argv = [*command, *UNMEASURED, f"--workdir={tmp_path}"]
    message = fails(wmt.main, [*argv, "--train_minutes=1e-9"], capsys)
    assert message == (
        "kt-train: train_minutes must leave time for a step."
        " Received: train_minutes=1e-09\n"
    )


def test_stopped_before_a_step(command, tmp_path, monkeypatch, capsys):
    ending = loop.Ending("stopped by SIGTERM", "SIGTERM")
    monkeypatch.setattr(loop.Trainer, "_find_ending", lambda *_: ending)
    wmt.main([*command, *UNMEASURED, f"--workdir={tmp_path}"])
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "stopped before the first step; nothing was saved"


def test_tensorboard_shows_each_step_once(tmp_path):
    """Records of a killed session past its checkpoint are purged."""

    def session(number, restored_step, *steps):
        earlier = set(tmp_path.iterdir())
        reporter = Reporter(tmp_path, restored_step, 10, is_chief=True)
        for step in steps:
            reporter.record(step, "train", {"loss": 100.0 * number})
        reporter.close()
        # TensorBoard reads the files in the order of the seconds in their
        # names; these sessions had the same second.
        for path in set(tmp_path.iterdir()) - earlier:
            name = re.sub(r"tfevents\.\d+", f"tfevents.{number}", path.name)
            path.rename(path.with_name(name))

    session(1, 0, 1, 2, 3, 4)
    session(2, 2, 3, 4, 5)
    session(3, 3, 4)
    assert_shown(tmp_path, {1: 100.0, 2: 100.0, 3: 200.0, 4: 300.0})


def assert_shown(logs, losses):
    """Checks that TensorBoard and we read each step's loss exactly once."""
    events = EventAccumulator(str(logs))
    events.Reload()
    assert [
        (event.step, float(tf.make_ndarray(event.tensor_proto)))
        for event in events.Tensors("train/loss")
    ] == list(losses.items())
    assert read_curves(logs) == {"train/loss": losses}


def test_records_without_a_start_are_purged_too(tmp_path):
    """TensorFlow's own writer leaves such records."""
    with tf.summary.create_file_writer(str(tmp_path)).as_default():
        for step in (1, 2, 3):
            tf.summary.scalar("train/loss", 100.0, step=step)
    (path,) = tmp_path.iterdir()
    path.rename(tmp_path / "events.out.tfevents.1")
    reporter = Reporter(tmp_path, 2, 10, is_chief=True)
    reporter.record(3, "train", {"loss": 200.0})
    reporter.close()
    assert_shown(tmp_path, {1: 100.0, 2: 100.0, 3: 200.0})


# A work directory that was changed


def test_the_lock_comes_before_the_vocabulary(
    command, tmp_path, monkeypatch, capsys
):
    """One of two commands in a fresh directory is refused at once."""
    for name, error in (
        ("keras_transformer.storage.workdir.fcntl.lockf", PermissionError),
        ("trainers.run.experiment.read_experiment", AssertionError),
    ):
        monkeypatch.setattr(name, Mock(side_effect=error))
    (tmp_path / "run").mkdir()
    message = fails(wmt.main, [*command, f"--workdir={tmp_path}/run"], capsys)
    assert "another process is training in" in message
    assert os.listdir(tmp_path / "run") == [".lock"]


def test_checkpoints_without_a_configuration(command, changed, capsys):
    (changed / "config.json").unlink()
    message = fails(wmt.main, [*command, f"--workdir={changed}"], capsys)
    assert "config.json is gone, but there are checkpoints" in message
    assert "ckpt-8: put it back" in message


def test_a_checkpoint_of_another_training(command, changed, capsys):
    weights = {
        name.removeprefix("weights/"): value
        for name, value in tensors(changed / "averaged/ckpt-8").items()
    }
    optimizer = {"optimizer": [np.ones(())]}
    for change, others, expected in (
        ({}, {}, "move this one elsewhere. Received: weights only"),
        ({}, optimizer, "/ckpt-9: expected a checkpoint of the training in"),
        (
            {"embedding.embeddings": np.ones(())},
            optimizer,
            f"in {changed}/config.json. Received: embedding.embeddings of ()",
        ),
    ):
        groups = {"weights": weights | change, **others}
        latest = WorkDirectory(changed).latest
        latest.save(groups, 9, keep=9, progress={"step": 9})
        message = fails(wmt.main, [*command, f"--workdir={changed}"], capsys)
        assert expected in message


def test_average_takes_as_many_as_the_training_did(changed, capsys):
    with changed_config(changed) as config:
        config["training"]["average_last"] = 3
    average.main([f"--workdir={changed}"])
    out = capsys.readouterr().out
    assert [step for step in (8, 6, 4, 2) if f"ckpt-{step}" in out] == [8, 6, 4]


# Bad input


# Others are in mistakes_test.py.
@pytest.mark.parametrize(
    "flag, message",
    [
        ("--d_model=15", "an even d_model"),
        ("--dataset=tfds:", "dataset must be phrasebook, files, prepared or "),
        ("--test_files=/no/such", "No such file: /no/such.en"),
        ("--tokenizer=/no/such.model", "/no/such.model"),
        ("--batch_tokens=5", "expected at least"),
        ("--average_last=9", "average_last of at most keep_checkpoints"),
        ("--strategy=pod", "strategy must be one of"),
        ("--positions=learned --max_positions=8", "at most max_positions=8"),
    ],
)
def test_bad_flag(flag, message, command, tmp_path, capsys):
    argv = [*command, f"--workdir={tmp_path}/run", *flag.split()]
    assert message in fails(wmt.main, argv, capsys)
    assert not (tmp_path / "run").exists()


def test_a_corpus_too_small_for_the_vocabulary(command, tmp_path, capsys):
    """The vocabulary has all subwords of the corpus, also in a resumed run."""
    path = tmp_path / "run"
    for size in (9000, 9000, 8000):
        argv = [*command, f"--workdir={path}", f"--vocab_size={size}"]
        experiment = open_trainer(argv).experiment
        found = experiment.tokenizer.vocab_size
        line = f"the corpus has {found:,} subwords, fewer than 9,000: the"
        is_new = not (path / "checkpoints").exists()
        assert (line in capsys.readouterr().out) == is_new
        assert experiment.configuration.model.vocab_size == found < 8000
        config = WorkDirectory(path).read_section("model", TransformerConfig)
        assert config.vocab_size == found
        # As if there were weights, whose shape decides.
        (path / "checkpoints").mkdir(exist_ok=True)
        (path / "checkpoints/ckpt-1.safetensors").touch()
        arguments, options = wmt.read_arguments(argv)
        configuration = wmt.read_configuration(arguments, options.preset)
        wmt.check_input(configuration, str(path))
        for file in (path / "checkpoints").iterdir():
            file.unlink()
    for size in (found - 1, 60):
        other = [*command, f"--workdir={path}", f"--vocab_size={size}"]
        (path / "checkpoints/ckpt-1.safetensors").touch()
        message = fails(wmt.main, other, capsys)
        assert f"vocab_size was {found} and is {size}" in message


@pytest.mark.parametrize(
    "flag, message",
    [
        ("--d_model=32", "d_model was 16 and is 32"),
        ("--pre_norm", "pre_norm was False and is True"),
        ("--source_language=de --target_language=en", "source_language was"),
    ],
)
def test_work_directory_of_another_configuration(
    flag, message, command, trained, capsys
):
    before = (trained / "config.json").read_bytes()
    argv = [*command, f"--workdir={trained}", *flag.split()]
    error = fails(wmt.main, argv, capsys)
    assert message in error and "Choose another workdir" in error
    assert (trained / "config.json").read_bytes() == before


def test_begun_without_a_checkpoint(command, changed, capsys):
    """The vocabulary is of these languages; the model may still change."""
    for name in ("checkpoints", "best", "averaged"):
        shutil.rmtree(changed / name)
    argv = [*command, f"--workdir={changed}"]
    turned = ["--source_language=de", "--target_language=en"]
    message = fails(wmt.main, [*argv, *turned], capsys)
    assert "target_language was 'de' and is 'en'" in message
    trainer = open_trainer([*argv, "--d_ff=24"])
    assert trainer.progress.step == 0


def test_training_goes_on_without_tensorboard(tmp_path, caplog, capsys):
    reporter = Reporter(tmp_path, 0, 10, is_chief=True)
    with pytest.MonkeyPatch.context() as patch:
        full = Mock(side_effect=OSError(27, "File too large"))
        patch.setattr(reporter._events._records, "write", full)
        reporter.record(0, "train", {"loss": 3.0})
    reporter.record(1, "train", {"loss": 2.0})
    reporter.record(2, "train", {"loss": 1.0})
    reporter.log("step 2")
    reporter.close()
    assert caplog.text.count("File too large") == 1
    assert capsys.readouterr().out == "step 2\n"


def test_harmless_changes_are_allowed(command, changed):
    argv = [*command, f"--workdir={changed}", "--dropout=0.3", "--log_steps=1"]
    # What leaving them out means.
    trainer = open_trainer([*argv, "--num_decoder_layers=1", "--d_key=8"])
    assert trainer.progress.step == 8


def test_given_vocabulary(command, trained, tmp_path):
    """Its size need not be given. The file is copied."""
    path = trained / "tokenizer.model"
    argv = [a for a in command if not a.startswith("--vocab_size")]
    trainer = open_trainer(
        [*argv, f"--workdir={tmp_path}/run", f"--tokenizer={path}"]
    )
    assert trainer.engine.model.config.vocab_size == VOCAB_SIZE
    copy = tmp_path / "run/tokenizer.model"
    assert copy.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("main", [translate.main, evaluate.main, average.main])
def test_no_work_directory(main, capsys):
    assert "expected --workdir=DIR" in fails(main, [], capsys)


# Translating and evaluating


def run_translate(argv, text, monkeypatch, capfdbinary):
    """Runs `kt-translate`. Returns its standard output."""
    stdin = io.TextIOWrapper(io.BytesIO(text))
    monkeypatch.setattr(sys, "stdin", stdin)
    capfdbinary.readouterr()
    translate.main(argv)
    sys.stdout.flush()
    return capfdbinary.readouterr().out


def test_one_line_out_for_each_line_in(
    trained, monkeypatch, capfdbinary, caplog
):
    text = (
        b"He sleeps.\n\n   \nThe boy is here.\r\n"
        + b"a very long line " * 60
        + b"\nnot \xff UTF-8\nNo end"
    )
    argv = [f"--workdir={trained}", "--max_source_length=20"]
    out = run_translate(argv, text, monkeypatch, capfdbinary)
    lines = out.decode().split("\n")
    assert len(lines) == 8 and lines[-1] == ""
    assert lines[1] == lines[2] == ""
    assert "line 5 has" in caplog.text and "truncated to 19" in caplog.text
    assert "line 6 is not UTF-8" in caplog.text
    translator = Translator.load(trained)
    alone = [translator.translate([s])[0] for s in ("He sleeps.", "No end")]
    assert [lines[0], lines[6]] == alone
    assert run_translate(argv, b"", monkeypatch, capfdbinary) == b""


def test_lines_are_numbered_through_all_chunks(trained, caplog):
    translator = Translator.load(trained, max_source_length=4)
    lines = ["a"] * 3 + ["much too long"] + ["b"]
    out = list(translating.translate_lines(translator, lines, chunk_size=2))
    assert len(out) == 5
    assert "line 4 has" in caplog.text


def test_averaging_nothing(command, tmp_path):
    open_trainer([*command, f"--workdir={tmp_path}"])
    with pytest.raises(ValueError, match="no checkpoint"):
        average_checkpoints(WorkDirectory(tmp_path), 5)


# Flag files


def test_the_warm_up_is_a_tenth_of_a_few_minutes(command, tmp_path, capsys):
    """300 steps of a millisecond. A run that has begun keeps its warm-up."""
    own = [flag for flag in command if not flag.startswith("--warmup_steps")]
    argv = ["--recipe=quickstart", *own, f"--workdir={tmp_path}"]

    def open_run(*limits):
        arguments, options = wmt.read_arguments([*argv, *limits])
        configuration = wmt.read_configuration(arguments, options.preset)
        trainer = session.open_trainer(
            configuration,
            tmp_path,
            keep=True,
            fits_warmup=wmt.fits_warmup(arguments, options.recipe),
        )
        saved = json.loads((tmp_path / "config.json").read_text())["training"]
        schedule = trainer.experiment.schedule.get_config()
        found = schedule["warmup_steps"], schedule["scale"]
        assert (saved["warmup_steps"], saved["learning_rate_scale"]) == found
        return found, capsys.readouterr().out

    few, many = "--train_minutes=0.005", "--train_minutes=0.5"
    steps = "--train_steps=9999"
    assert open_run(few, steps, "--warmup_steps=140")[0] == (140, 2.0)
    assert open_run("--train_minutes=0", steps)[0] == (400, 2.0)
    assert open_run(few, steps, "--learning_rate_scale=2")[0] == (400, 2.0)
    found, out = open_run(few, steps)
    assert found == (30, 0.548)
    assert (  # 2 * (30 / 400)**0.5: the same peak
        "\n--warmup_steps=30 --learning_rate_scale=0.548 instead of"
        " --warmup_steps=400: a tenth of the updates that 0.005 minutes allow,"
        " and the same peak learning rate\n" in out
    )
    found, out = open_run("--train_steps=700", "--train_minutes=0")
    assert found == (70, 0.837)
    assert out.startswith(
        "--warmup_steps=70 --learning_rate_scale=0.837 instead of"
        " --warmup_steps=400: a tenth of the updates, and the same peak"
    )
    wmt.main([*argv, "--train_steps=20", "--train_minutes=0"])
    capsys.readouterr()
    for limits in (few, steps), (many, steps), ("--train_steps=30",):
        found, out = open_run(*limits)  # its own, and no line of another
        assert found == (2, 0.141)
        assert out.startswith(
            "--warmup_steps=2 --learning_rate_scale=0.141, as"
        )
        assert out.count("warmup_steps") == 1


def test_what_is_a_recipe_s_is_not_one_s_own():
    argv = ["--workdir=run", "--recipe=multi30k_ende", "--train_steps=700"]
    arguments, _ = wmt.read_arguments(argv)
    assert arguments.given["warmup_steps"] == 70
    assert (
        "learning_rate_scale" not in arguments.given
    )  # its schedule is cosine
    assert {*arguments.own} == {"workdir", "recipe", "train_steps"}
    arguments, _ = wmt.read_arguments([*argv, "--warmup_steps=900"])
    assert arguments.given["warmup_steps"] == 900


def test_a_given_vocabulary_overrides_the_size_in_a_recipe(capsys):
    path = ROOT / "tests/fixtures/workdir_0_2/run/tokenizer.model"
    size = Tokenizer.load(path).vocab_size
    argv = ["--workdir=run", "--recipe=multi30k_ende", f"--tokenizer={path}"]
    arguments, _ = wmt.read_arguments(argv)
    assert arguments.given["vocab_size"] == size != 6000
    assert capsys.readouterr().out == f"vocab_size: {size}, that of {path}\n"
    arguments, _ = wmt.read_arguments([*argv, "--vocab_size=77"])
    assert arguments.given["vocab_size"] == 77
    with pytest.raises(CommandError, match="nowhere"):
        wmt.read_arguments([*argv, "--tokenizer=nowhere"])


def test_a_recipe_is_found_by_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    given = ["--workdir=run", "--train_files=a", "--batch_tokens=7"]
    flagfile = ROOT / "trainers/configs/multi30k_ende.flags"
    expected, _ = wmt.read_arguments([*given, f"--flagfile={flagfile}"])
    found, options = wmt.read_arguments([*given, "--recipe=multi30k_ende"])
    assert options.preset == "tiny"
    assert found.given == {**expected.given, "recipe": "multi30k_ende"}
    assert found.given["batch_tokens"] == 7  # the command line overrides it
    (tmp_path / "my.flags").write_text("--dropout=0.5\n")
    found, _ = wmt.read_arguments(
        [*given, "--flagfile=my.flags", "--recipe=multi30k_ende"]
    )
    assert found.given["dropout"] == 0.5  # a flag file does, too
    message = fails(wmt.main, ["--workdir=run", "--recipe=multi"], capsys)
    assert "recipe must be one of " in message
    assert "'multi30k_ende', 'pairs_300k', 'pairs_300k_cpu', " in message
    message = fails(wmt.main, ["--workdir=run", "--recipe=none"], capsys)
    assert "Received: recipe='none'" in message


def test_a_flag_file_may_hold_its_differences_from_a_recipe(tmp_path):
    (tmp_path / "my.flags").write_text("--recipe=table3_d4\n--dropout=0.25\n")
    arguments, options = wmt.read_arguments(
        [f"--flagfile={tmp_path}/my.flags", "--workdir=run", "--log_steps=7"]
    )
    given = arguments.given
    assert options.preset == "table3_d4"
    assert (given["dropout"], given["log_steps"]) == (0.25, 7)
    # Of the recipe, of the recipe that it begins with, and of that one's.
    assert given["label_smoothing"] == 0.2
    assert given["valid_beam_size"] == 4
    assert given["batch_tokens"] == 25000


@pytest.mark.parametrize("name", wmt.recipe_names())
def test_flag_files_are_valid(name):
    path = ROOT / f"trainers/configs/{name}.flags"
    text = path.read_text()
    assert text.startswith("# ") and "kt-train" in text
    argv = [f"--flagfile={path}", "--workdir=run"]
    arguments, options = wmt.read_arguments(argv)
    if arguments.given.get("dataset") == "files":
        argv.append("--train_files=a")
        arguments, options = wmt.read_arguments(argv)
    wmt.read_configuration(arguments, options.preset)
