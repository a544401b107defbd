"""The commands, from files of sentence pairs to translations."""

import contextlib
import io
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf
from commands import fails

from keras_transformer import flags
from keras_transformer.translator import Translator
from keras_transformer.workdir import WorkDirectory
from trainers import (
    average,
    evaluate,
    evaluation,
    loop,
    phrasebook,
    translate,
    wmt,
)
from trainers.checkpoints import average as average_checkpoints
from trainers.progress import Reporter

ROOT = pathlib.Path(__file__).parent.parent
VOCAB_SIZE = 120
MODEL = (
    f"--vocab_size={VOCAB_SIZE}",
    "--d_model=16",
    "--d_ff=16",
    "--num_heads=2",
    "--num_layers=1",
)
RECIPE = (
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


def write_pairs(prefix, pairs):
    for language, side in (("en", 0), ("de", 1)):
        lines = "".join(pair[side] + "\n" for pair in pairs)
        path = pathlib.Path(f"{prefix}.{language}")
        path.write_text(lines, encoding="utf-8")
    return str(prefix)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """Flags that name a small corpus in files."""
    directory = tmp_path_factory.mktemp("corpus")
    return [
        "--dataset=files",
        *(
            f"--{name}_files="
            + write_pairs(directory / name, phrasebook.make_split(name, size))
            for name, size in (("train", 300), ("valid", 12), ("test", 8))
        ),
    ]


@pytest.fixture(scope="session")
def command(corpus):
    """Flags of a small training, but for its work directory."""
    return [*corpus, *MODEL, *RECIPE]


@pytest.fixture(scope="session")
def trained(command, tmp_path_factory):
    """A work directory after a training."""
    path = tmp_path_factory.mktemp("trained") / "run"
    wmt.main([*command, f"--workdir={path}"])
    return path


def tensors(prefix, *but):
    """The tensors of a checkpoint by name, those in a group `but` left out."""
    reader = tf.train.load_checkpoint(str(prefix))
    return {
        name: reader.get_tensor(name)
        for name in reader.get_variable_to_shape_map()
        if name.split("/")[0] not in ("_CHECKPOINTABLE_OBJECT_GRAPH", *but)
    }


def assert_same_training(first, second):
    one, two = tensors(first, "progress"), tensors(second, "progress")
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
    assert config["format_version"] == 1
    assert config["model"]["d_model"] == 16
    assert config["data"]["target_language"] == "de"
    assert config["training"]["train_steps"] == 8
    assert config["decoding"]["beam_size"] == 1
    names = [p.name for p in (trained / "checkpoints").glob("*.index")]
    assert sorted(names) == [f"ckpt-{s}.index" for s in (2, 4, 6, 8)]
    assert len(list((trained / "best").glob("*.index"))) == 1
    assert list((trained / "logs").glob("events*"))


def test_written_flags_are_the_configuration(trained):
    argv = [f"--flagfile={trained}/flags.txt", f"--workdir={trained}"]
    trainer, _ = wmt.prepare(argv)
    assert trainer.progress.step == 8
    assert trainer.experiment.configuration.model.d_model == 16


def test_what_training_tells(command, tmp_path, capsys):
    wmt.main([*command, f"--workdir={tmp_path}", "--train_steps=4"])
    out = capsys.readouterr().out
    assert "300 pairs read, 300 kept; dropped: 0 with an empty side" in out
    assert "padding" in out and "rows x tokens" in out
    for word in ("loss", "perplexity", "rate", "tokens/s", "epoch", "left"):
        assert word in out.split("step 2 |")[1].splitlines()[0]
    assert "validation at step 4" in out
    assert "averaged 2 checkpoints" in out
    assert "reference: " in out
    assert "test BLEU" in out.splitlines()[-1]


def stop_at(monkeypatch, step, number=signal.SIGTERM):
    """Sends a signal while a step is made."""
    make_step = loop.Trainer._step

    def step_and_signal(self, batch):
        make_step(self, batch)
        if self.progress.step == step:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(loop.Trainer, "_step", step_and_signal)


def test_stopped_and_resumed_is_as_never_stopped(
    command, trained, tmp_path, monkeypatch, capsys
):
    argv = [*command, *UNMEASURED, f"--workdir={tmp_path}"]
    for step, number in ((3, signal.SIGTERM), (5, signal.SIGINT)):
        with monkeypatch.context() as patch:
            stop_at(patch, step, number)
            wmt.main(argv)  # and so ends with status 0
        out = capsys.readouterr().out
        assert f"stopped by {number.name} | step {step}" in out
        assert "the same command again goes on from here" in out
        assert (tmp_path / f"checkpoints/ckpt-{step}.index").exists()
    wmt.main(argv)
    assert "resuming at step 5" in capsys.readouterr().out
    assert_same_training(
        trained / "checkpoints/ckpt-8", tmp_path / "checkpoints/ckpt-8"
    )


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
    assert "0.0001 minutes are over | step 1" in capsys.readouterr().out


def test_patience_ends_training(command, tmp_path, capsys, monkeypatch):
    found = iter([3.0, 2.0, 1.0])
    monkeypatch.setattr(
        evaluation.Validator,
        "run",
        lambda self: loop.Validation(loss=1.0, nll=1.0, bleu=next(found)),
    )
    argv = [*command, f"--workdir={tmp_path}", "--test_files="]
    monkeypatch.setattr(wmt, "finish", lambda *_: None)
    wmt.main([*argv, "--valid_steps=1", "--patience=2"])
    out = capsys.readouterr().out
    assert "no better BLEU in 2 validations | step 3" in out
    assert (tmp_path / "best/ckpt-1.index").exists()


def test_mixed_float16_trains(command, tmp_path):
    argv = [*command, *UNMEASURED, f"--workdir={tmp_path}"]
    wmt.main([*argv, "--precision=mixed_float16", "--train_steps=2"])
    weights = tensors(tmp_path / "checkpoints/ckpt-2", "optimizer")
    assert all(
        np.isfinite(value).all() and value.dtype == np.float32
        for name, value in weights.items()
        if name.startswith("weights/")
    )


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


def cut(prefix, ending):
    """Shortens a file of a checkpoint to its half."""
    [path] = prefix.parent.glob(f"{prefix.name}.{ending}*")
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("ending", ["data", "index"])
def test_damaged_checkpoint_is_named_and_the_one_before_used(
    ending, command, tmp_path, capsys, caplog
):
    argv = [*command, *UNMEASURED, "--train_steps=4", f"--workdir={tmp_path}"]
    wmt.main(argv)
    newest = tmp_path / "checkpoints/ckpt-4"
    cut(newest, ending)
    trainer, _ = wmt.prepare(argv)
    assert f"damaged checkpoint {newest}: " in caplog.text
    assert "resuming at step 2" in capsys.readouterr().out
    trainer.checkpoint.save()
    assert not newest.with_suffix(".index").exists()


def test_all_checkpoints_damaged(command, tmp_path, capsys):
    argv = [*command, *UNMEASURED, "--train_steps=2", f"--workdir={tmp_path}"]
    wmt.main(argv)
    cut(tmp_path / "checkpoints/ckpt-2", "data")
    cut(tmp_path / "averaged/ckpt-2", "index")
    for main in (wmt.main, average.main, translate.main):
        message = fails(main, argv if main is wmt.main else argv[-1:], capsys)
        assert "every checkpoint is damaged: " in message
        assert "ckpt-2" in message


def test_killed_training_goes_on_from_its_last_checkpoint(
    command, tmp_path, capsys
):
    argv = [*command, *UNMEASURED, f"--workdir={tmp_path}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "trainers.wmt", *argv, "--train_steps=100000"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 120
        while not (tmp_path / "checkpoints/ckpt-6.index").exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
    trainer, _ = wmt.prepare(argv)
    assert trainer.progress.step >= 4
    assert "resuming at step" in capsys.readouterr().out


# Bad input


def test_misspelled_flag_in_a_process(tmp_path):
    result = subprocess.run(
        [sys.executable, "-m", "trainers.wmt", "--warmup_step=3"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr == (
        "trainers.wmt: Unknown command line flag 'warmup_step'."
        " Did you mean: warmup_steps ?\n"
    )


@pytest.mark.parametrize(
    "flag, message",
    [
        ("--preset=bigg", "preset must be one of 'base', 'big', 'tiny'"),
        ("--d_model=15", "d_model must be even"),
        (
            "--dataset=book",
            "dataset must be phrasebook, files, prepared or tfds:NAME",
        ),
        (
            "--dataset=tfds:",
            "dataset must be phrasebook, files, prepared or tfds:NAME",
        ),
        ("--train_files=", "dataset=files needs train_files"),
        ("--target_language=en", "source_language and target_language must"),
        ("--target_language=fr", "train.fr"),
        ("--train_files=/no/such", "No such file: /no/such.en"),
        ("--valid_files=/no/such", "No such file: /no/such.en"),
        ("--test_files=/no/such", "No such file: /no/such.en"),
        ("--vocab_size=90000", "vocab_size must be at most"),
        ("--tokenizer=/no/such.model", "/no/such.model"),
        ("--batch_tokens=5", "batch_tokens must be at least"),
        ("--average_last=9", "average_last must be at most keep_checkpoints"),
        ("--workdir=", "expected --workdir=DIR"),
        ("--strategy=pod", "strategy must be one of"),
    ],
)
def test_bad_flag(flag, message, command, tmp_path, capsys):
    argv = [*command, f"--workdir={tmp_path}/run", flag]
    assert message in fails(wmt.main, argv, capsys)
    assert not (tmp_path / "run").exists()


def test_bad_files(command, tmp_path, capsys):
    def failure():
        argv = [*command, f"--workdir={tmp_path}/run", f"--train_files={bad}"]
        message = fails(wmt.main, argv, capsys)
        assert not (tmp_path / "run").exists()
        return message

    bad = write_pairs(tmp_path / "bad", [("a b", "c d")] * 3)
    english, german = (pathlib.Path(f"{bad}.{e}") for e in ("en", "de"))
    english.write_text("a\nb\n")
    message = failure()
    assert f"{english} with 2 lines" in message
    assert f"{german} with 3 lines" in message
    english.write_bytes(b"a\nb\n\xff\n")
    assert f"{english}, line 3: not UTF-8" in failure()
    english.write_text("")
    german.write_text("")
    assert "no lines" in failure()


@pytest.mark.parametrize(
    "flag, message",
    [
        ("--d_model=32", "d_model was 16 and is 32"),
        ("--vocab_size=130", f"vocab_size was {VOCAB_SIZE} and is 130"),
        ("--pre_norm", "pre_norm was False and is True"),
        ("--source_language=de --target_language=en", "source_language was"),
    ],
)
def test_work_directory_of_another_configuration(
    flag, message, command, trained, capsys
):
    before = (trained / "config.json").read_bytes()
    argv = [*command, f"--workdir={trained}", *flag.split()]
    assert message in fails(wmt.main, argv, capsys)
    assert (trained / "config.json").read_bytes() == before


def test_begun_without_a_checkpoint(command, trained, tmp_path, capsys):
    """The vocabulary is of these languages; the model may still change."""
    run = shutil.copytree(trained, tmp_path / "run")
    for name in ("checkpoints", "best", "averaged"):
        shutil.rmtree(run / name)
    argv = [*command, f"--workdir={run}"]
    turned = ["--source_language=de", "--target_language=en"]
    message = fails(wmt.main, [*argv, *turned], capsys)
    assert "target_language was 'de' and is 'en'" in message
    trainer, _ = wmt.prepare([*argv, "--d_ff=24"])
    assert trainer.progress.step == 0


def test_training_goes_on_without_tensorboard(tmp_path, caplog, capsys):
    class FullDisk:
        def as_default(self, step):
            return contextlib.nullcontext()

        def flush(self):
            raise tf.errors.OutOfRangeError(None, None, "File too large")

        close = flush

    reporter = Reporter(tmp_path, 10, True)
    reporter._writer = FullDisk()
    reporter.record(1, "train", {"loss": 2.0})
    reporter.record(2, "train", {"loss": 1.0})
    reporter.tell("step 2")
    reporter.close()
    assert caplog.text.count("File too large") == 1
    assert capsys.readouterr().out == "step 2\n"


def test_diverged_training_is_no_bad_input():
    """Status 1: the command was right."""
    with pytest.raises(flags.RunError, match="diverged at step 3"):
        loop._check_finite(float("nan"), 3)
    loop._check_finite(1.0, 3)


def test_harmless_changes_are_allowed(command, trained):
    trainer, _ = wmt.prepare(
        [*command, f"--workdir={trained}", "--dropout=0.3", "--log_steps=1"]
    )
    assert trainer.progress.step == 8


def test_given_vocabulary(command, trained, tmp_path):
    """Its size need not be told, and it is copied."""
    path = trained / "tokenizer.model"
    argv = [a for a in command if not a.startswith("--vocab_size")]
    trainer, _ = wmt.prepare(
        [*argv, f"--workdir={tmp_path}/run", f"--tokenizer={path}"]
    )
    assert trainer.model.config.vocab_size == VOCAB_SIZE
    copy = tmp_path / "run/tokenizer.model"
    assert copy.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("main", [translate.main, evaluate.main, average.main])
def test_no_work_directory(main, tmp_path, capsys):
    argv = [f"--workdir={tmp_path}"]
    message = fails(main, argv, capsys)
    assert "expected a work directory made by trainers.wmt" in message
    assert "expected --workdir=DIR" in fails(main, [], capsys)


@pytest.mark.parametrize(
    "name, section, field, value, expected",
    [
        ("wmt", "model", "d_model", "16", "a whole number"),
        ("translate", "decoding", "beam_size", None, "a whole number"),
        ("translate", "model", "dropout", "none", "a number"),
        ("translate", "data", "max_length", 40.5, "a whole number, at least 2"),
        ("evaluate", "data", "test_files", "test", "a list of texts"),
        ("average", "model", "pre_norm", 0, "true or false"),
    ],
)
def test_wrong_field_in_the_configuration_of_a_work_directory(
    name, section, field, value, expected, command, trained, tmp_path, capsys
):
    workdir = tmp_path / "run"
    shutil.copytree(trained, workdir)
    path = workdir / "config.json"
    config = json.loads(path.read_text())
    config[section][field] = value
    path.write_text(json.dumps(config))
    mains = {"wmt": wmt, "translate": translate}
    mains |= {"evaluate": evaluate, "average": average}
    argv = [*(command if name == "wmt" else []), f"--workdir={workdir}"]
    assert fails(mains[name].main, argv, capsys) == (
        f"trainers.{name}: {path}: in {section!r}: {field} must be {expected}."
        f" Received: {field}={value!r}\n"
    )


# Translating and evaluating


def run_translate(argv, text, monkeypatch, capfdbinary):
    """Standard output of `trainers.translate`."""
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


def test_empty_input(trained, monkeypatch, capfdbinary):
    argv = [f"--workdir={trained}"]
    out = run_translate(argv, b"", monkeypatch, capfdbinary)
    assert out == b""


def test_n_best(trained, monkeypatch, capfdbinary):
    argv = [f"--workdir={trained}", "--n_best=2", "--beam_size=3"]
    out = run_translate(argv, b"He sleeps.\n\n", monkeypatch, capfdbinary)
    first, second, blank = out.decode().splitlines()
    assert first.startswith("1 ||| ") and second.startswith("1 ||| ")
    scores = [float(line.split(" ||| ")[2]) for line in (first, second)]
    assert scores[0] >= scores[1]
    assert blank == "2 |||  ||| 0.000000"
    with pytest.raises(SystemExit) as status:
        translate.main([*argv, "--beam_size=1"])
    assert status.value.code == 2


def test_lines_are_numbered_through_all_chunks(trained, caplog):
    translator = Translator.load(trained, max_source_length=4)
    lines = ["a"] * 3 + ["much too long"] + ["b"]
    out = list(translate.translate_lines(translator, lines, chunk_size=2))
    assert len(out) == 5
    assert "line 4 has" in caplog.text


def test_evaluate(trained, corpus, tmp_path, capsys):
    [test_files] = [flag for flag in corpus if flag.startswith("--test_files")]
    output = tmp_path / "out.de"
    argv = [f"--workdir={trained}", "--beam_size=1", f"--output={output}"]
    evaluate.main([*argv, test_files])
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["sentences"] == 8
    assert 0 <= result["bleu"] <= result["bleu_lowercase"] <= 100
    assert 0 <= result["chrf"] <= 100
    assert "case:mixed" in result["signature"]
    assert "tok:13a" in result["signature"]
    assert len(output.read_text().splitlines()) == 8
    evaluate.main(argv)  # the test pairs that training knew
    again = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert again["bleu"] == result["bleu"]
    message = fails(evaluate.main, [*argv, "--test_files=/no"], capsys)
    assert "No such file: /no.en" in message


def test_averaging_nothing(command, tmp_path):
    wmt.prepare([*command, f"--workdir={tmp_path}"])
    with pytest.raises(ValueError, match="no checkpoint"):
        average_checkpoints(WorkDirectory(tmp_path), 5)


# Flag files


@pytest.mark.parametrize(
    "path", sorted((ROOT / "trainers/configs").glob("*.flags")), ids=str
)
def test_flag_files_are_valid(path):
    text = path.read_text()
    assert text.startswith("# ") and "python -m trainers.wmt" in text
    files = ["--train_files=a"] if "--dataset=files" in text else []
    arguments, options = wmt.read_arguments(
        [f"--flagfile={path}", "--workdir=run", *files]
    )
    wmt.read_configuration(arguments, options.preset)
