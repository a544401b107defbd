"""Splits of a configuration: reading, counts, and errors that name them."""

import dataclasses

import numpy as np
import pytest
from commands import write_pairs
from random_pairs import make_pairs

from keras_transformer.config import DecodingConfig, TransformerConfig
from keras_transformer.data.files.pairs import Pairs
from keras_transformer.storage.workdir import WorkDirectory
from keras_transformer.text.tokenization import Tokenizer
from trainers.datasets import dataset
from trainers.datasets.dataset import read_split
from trainers.run import corpora, experiment, session
from trainers.run.data_config import DataConfig
from trainers.run.tensorflow_engine import TensorFlowDevices
from trainers.run.training_config import Configuration, TrainingConfig
from trainers.scoring import test_sets


@pytest.fixture
def configure(tmp_path):
    """Makes a configuration with 60 training and 10 validation pairs."""
    short = [pair for pair in make_pairs(200) if len(pair[1].split()) < 12]

    def configure(valid=tuple(short[60:70]), **data):
        return Configuration(
            TransformerConfig(vocab_size=90),
            DataConfig(
                dataset="files",
                **{
                    "train_files": (
                        write_pairs(tmp_path / "train", short[:60]),
                    ),
                    "valid_files": (write_pairs(tmp_path / "valid", valid),),
                    "batch_tokens": 400,
                    "max_length": 60,
                    **data,
                },
            ),
            TrainingConfig(),
            DecodingConfig(),
        )

    return configure


@pytest.fixture
def read(tmp_path):
    """Reads an experiment. Returns it and its log lines."""

    def read(configuration, make_metric=session.make_translation_metric):
        lines = []
        made = experiment.read_experiment(
            experiment.Opening(
                WorkDirectory(tmp_path / "run"),
                configuration,
                TensorFlowDevices("one_device"),
                make_metric(configuration),
                lines.append,
            )
        )
        return made, lines

    return read


def test_the_metric_is_a_parameter(configure, read):
    class Accuracy:
        key, label = "accuracy", "exact matches"

    made, _ = read(configure(), lambda configuration: Accuracy())
    assert isinstance(made.metric, Accuracy)
    made, _ = read(configure())
    assert made.metric.label == "BLEU (13a)"


def test_long_validation_pairs_are_counted(configure, read):
    valid = [*make_pairs(4), ("the " * 99, "der"), ("", "der")]
    made, lines = read(configure(valid))
    assert (
        "validation: 6 pairs read, 4 kept; dropped: 1 with an empty side, 1"
        " with more than 60 tokens; test: 0 pairs" in lines
    )
    assert len(made.valid_pairs) == 6


def test_a_share_is_drawn_by_sources(tmp_path):
    """A copy, or another target of a source, stays with the first."""
    pairs = [(f"dog {n % 500}", f"Hund {n}") for n in range(2000)]
    files = write_pairs(tmp_path / "a", pairs[:900])
    others = write_pairs(tmp_path / "b", pairs[900:])
    data = DataConfig(
        dataset="files", train_files=(files, others), valid_share=0.2
    )
    valid, train = (read_split(data, name) for name in ("valid", "train"))
    assert sorted([*valid, *train]) == sorted(pairs)
    assert {s for s, _ in valid}.isdisjoint(s for s, _ in train)
    assert len(valid) == len(list(valid)) == sum(valid.sizes)
    assert 300 < len(valid) < 500 and len(train) == sum(train.sizes)
    assert [a + b for a, b in zip(valid.sizes, train.sizes, strict=True)] == [
        900,
        1100,
    ]
    assert not read_split(data, "test")
    few = dataclasses.replace(data, valid_share=0.03)
    assert not read_split(few, "valid")
    assert len(read_split(few, "train")) == 2000
    [(source, _), *_] = valid
    assert (source, "x") not in read_split(few, "train")


@pytest.mark.parametrize(
    "share, told",
    [
        (0.5, "valid_share=0.5: 108 of 200 pairs"),
        (0.1, "valid_share=0.1: fewer than 100 of 200 pairs, so no validation"),
    ],
)
def test_a_drawn_share_is_told(configure, read, tmp_path, share, told):
    write_pairs(tmp_path / "own", make_pairs(200))
    _, lines = read(
        configure(
            train_files=(str(tmp_path / "own"),),
            valid_files=(),
            valid_share=share,
        )
    )
    assert told in lines


def test_pairs_on_both_sides_are_counted(configure, read):
    """A copy counts, too; a pair with another target does not."""
    new = [("a new dog", "ein neuer Hund")] * 2
    train = [p for p in make_pairs(200) if len(p[1].split()) < 12][:2]
    other = [(train[0][0], "ein anderer Hund")]
    valid = [*train, train[0], *new, *other]
    _, lines = read(configure(valid))
    notes = [line for line in lines if line.startswith("note:")]
    assert notes == [
        "note: 3 of 6 validation pairs are training pairs, too: their scores"
        " say little about new text"
    ]


def test_no_pair_is_an_error_that_names_the_split(configure, read):
    with pytest.raises(ValueError, match=r"the validation pairs: no .* 0 kept"):
        read(configure([("the " * 99, "der")]))
    made, _ = read(configure())
    with pytest.raises(ValueError, match="^the training pairs: no sentence pa"):
        corpora.open_train_corpus(
            made.data, Pairs.of([("a", "")]), made.tokenizer, 1
        )


def test_pairs_are_merged_within_their_files(tmp_path):
    halves = [("dog", "Hund")] * 9, [("cat", "Katze")] * 9
    prefixes = [
        write_pairs(tmp_path / "dogs", halves[0]),
        write_pairs(tmp_path / "cats", halves[1]),
    ]
    data = DataConfig(
        dataset="files", train_files=tuple(prefixes), modifiers="Merge 1"
    )
    lines = ["dog dog Hund cat cat Katze"]
    tokenizer = Tokenizer.train(lines, vocab_size=30)
    pairs = dataset.read_split(data, "train")
    corpus = corpora.open_train_corpus(data, pairs, tokenizer, seed=1)
    rows = np.split(corpus.source.ids, corpus.source.offsets[1:-1])
    texts = tokenizer.to_strings([row.tolist() for row in rows])
    assert texts == ["dog dog"] * 9 + ["cat cat"] * 9


def test_a_mixture_is_not_of_the_files_to_measure_on(tmp_path):
    files = (write_pairs(tmp_path / "test", [("dog", "Hund")]),)
    data = DataConfig(
        dataset="files", train_files=("a", "b"), mixture="a 1, b 1"
    )
    assert list(test_sets.read_pairs(data, "test", files)) == [("dog", "Hund")]
