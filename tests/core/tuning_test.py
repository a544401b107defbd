"""Search options chosen on validation pairs."""

import dataclasses
import json

import pytest
from commands import fails, write_pairs

import keras_transformer as kt
from keras_transformer.commands import flags
from keras_transformer.config import DecodingConfig
from keras_transformer.storage.checkpoints import named_weights
from keras_transformer.storage.workdir import WorkDirectory
from keras_transformer.translator import Translator
from trainers import tune
from trainers.datasets import phrasebook
from trainers.run.checkpoints import write
from trainers.run.data_config import DataConfig
from trainers.run.session import write_flags
from trainers.run.training_config import Configuration, TrainingConfig
from trainers.scoring import tuning

PAIRS = phrasebook.read_split("valid", 6)
# Which of the translations are right, by the options of the search.
RIGHT = {(3, 0.6): 2, (1, 0.0): 2, (1, 1.0): 4, (2, 0.0): 5, (2, 1.0): 5}


@pytest.fixture
def run(tmp_path):
    """A work directory whose validation pairs are `PAIRS`."""
    workdir = WorkDirectory(tmp_path / "run")
    workdir.path.mkdir()
    tokenizer = kt.Tokenizer.train((t for pair in PAIRS for t in pair), 60)
    workdir.save_tokenizer(tokenizer)
    prefix = write_pairs(tmp_path / "valid", PAIRS)
    model = kt.TransformerConfig(
        vocab_size=60, d_model=8, d_ff=8, num_heads=2, num_layers=1
    )
    files = {"train_files": (prefix,), "valid_files": (prefix,)}
    configuration = Configuration(
        model,
        DataConfig(dataset="files", **files),
        TrainingConfig(),
        DecodingConfig(beam_size=3, extra_length=9),
    )
    workdir.write_config(**configuration.sections())
    write_flags(workdir, configuration)
    weights = named_weights(kt.Transformer(model))
    write(workdir.averaged, {"weights": weights}, 4, keep=1)
    return workdir


def translate(self, sources):
    """Replaces the search: as many right translations as `RIGHT` says."""
    decoding = self.decoding
    count = RIGHT[decoding.beam_size, decoding.length_penalty]
    right = [target for _, target in PAIRS]
    assert list(sources) == [source for source, _ in PAIRS]
    return right[:count] + ["?"] * (len(right) - count)


GRID = ("--beam_sizes=2,1", "--length_penalties=0,1")


def test_the_best_options_are_shown_and_saved(run, monkeypatch, capsys):
    monkeypatch.setattr(Translator, "translate", translate)
    argv = [f"--workdir={run.path}", *GRID]
    before = run.config_path.read_bytes(), run.flags_path.read_bytes()
    tune.main(argv)
    *lines, last = capsys.readouterr().out.splitlines()
    after = run.config_path.read_bytes(), run.flags_path.read_bytes()
    assert before == after
    assert lines[0] == "BLEU (13a) by length penalty and beam size"
    assert lines[1].split() == ["1", "2", "3"]
    assert [line.split()[0] for line in lines[2:]] == ["0", "0.6", "1"]
    assert lines[3].split()[1:3] == ["-", "-"]  # not in the grid
    starred = [cell for line in lines for cell in line.split() if "*" in cell]
    assert lines[2].split()[2] == starred[0] and len(starred) == 1
    found = json.loads(last)
    assert (found["beam_size"], found["length_penalty"]) == (2, 0.0)
    assert found["before"]["beam_size"] == 3
    assert found["bleu"] > found["before"]["bleu"]
    assert (found["saved"], found["sentences"]) == (False, 6)

    tune.main([*argv, "--save"])
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["saved"]
    assert run.read_section("decoding", DecodingConfig) == DecodingConfig(
        beam_size=2, length_penalty=0.0, extra_length=9
    )
    flags = run.flags_path.read_text().splitlines()
    assert "--beam_size=2" in flags and "--length_penalty=0.0" in flags
    assert "--extra_length=9" in flags
    run.load_tokenizer()  # its SHA-256 is still there, and right
    assert "tokenizer_sha256" in run.read_config()


def test_saving_keeps_the_other_flags(run):
    """A path may contain a character at which `splitlines` ends a line."""
    names = {"data": DataConfig, "training": TrainingConfig}
    names |= {"model": kt.TransformerConfig, "decoding": DecodingConfig}
    sections = {n: run.read_section(n, kind) for n, kind in names.items()}
    prefix = "corpus\u2028a\x85--beam_size=9"
    sections["data"] = dataclasses.replace(
        sections["data"], train_files=(prefix,)
    )
    write_flags(run, Configuration(**sections))
    before = run.flags_path.read_bytes()
    tuning.save_trial(run, tuning.Trial(77, 1.5, 0.0))
    expected = before
    for old, new in (
        (b"\n--beam_size=3\n", b"\n--beam_size=77\n"),
        (b"\n--length_penalty=0.6\n", b"\n--length_penalty=1.5\n"),
    ):
        expected = expected.replace(old, new)
    assert before != expected == run.flags_path.read_bytes()
    arguments = flags.parse(
        [f"--flagfile={run.flags_path}"], "", *names.values()
    )
    assert arguments.build(DataConfig) == sections["data"]
    assert arguments.build(DecodingConfig).beam_size == 77


def test_of_equal_scores_the_cheapest():
    trials = [
        tuning.Trial(*options)
        for options in ((4, 0.6, 30.0), (2, 1.0, 30.0), (2, 0.8, 30.0))
    ]
    assert tuning.best_of(trials) == trials[2]


@pytest.mark.parametrize(
    "flag, message",
    [
        ("--beam_sizes=0", "beam_size must be at least 1"),
        ("--length_penalties=a", "length_penalties must be numb"),
    ],
)
def test_wrong_flags(flag, message, run, capsys):
    argv = [f"--workdir={run.path}", flag]
    assert message in fails(tune.main, argv, capsys)
