"""The phrasebook: its pairs, its splits, and the list of its words."""

import hashlib
import re

import pytest
from commands import fails
from later import later

from keras_transformer.text.tokenization import Tokenizer
from trainers import parse, wmt
from trainers import phrasebook as command
from trainers.datasets import phrasebook
from trainers.datasets.built_in import FOLDER, PHRASEBOOK, TREEBANK
from trainers.datasets.dataset import find_dataset
from trainers.datasets.dataset import read_split as read_split_of_run
from trainers.datasets.phrasebook import read_split
from trainers.parsing.parser_config import TreesConfig
from trainers.run.data_config import DataConfig

# Number of pairs of a split, and the SHA-256 of their lines. The scores of the
# recipe `quickstart` were measured on these.
SPLITS = {
    "train": (
        60_000,
        "ed25dcfc1c644a877c900783fa7595cbd26a853b21ef71c58e8c3cc64a8582f6",
    ),
    "valid": (
        1000,
        "7430e7af8efacff8d5fae35634dc80af8cc5f9ed71aee1de9300b770784a90a6",
    ),
    "test": (
        1000,
        "bae3942392548753f9822bc6493c97fd7011bdde0ad4aaa366bc84be0dec8f73",
    ),
}


@pytest.fixture(scope="module")
def splits():
    """All pairs, by split."""
    return {name: read_split(name, size) for name, (size, _) in SPLITS.items()}


def test_pairs_never_change(splits):
    for name, (size, sha256) in SPLITS.items():
        lines = "".join(f"{en}\t{de}\n" for en, de in splits[name])
        assert len(splits[name]) == size
        assert hashlib.sha256(lines.encode()).hexdigest() == sha256


def test_no_sentence_is_there_twice(splits):
    pairs = [pair for split in splits.values() for pair in split]
    assert len({english for english, _ in pairs}) == 62_000


def test_fewer_pairs_are_the_first(splits):
    for name in SPLITS:
        assert read_split(name, 20) == splits[name][:20]


@pytest.mark.parametrize(
    "main, recipe, corpus, data",
    [
        (wmt.main, "quickstart", PHRASEBOOK, ["--dataset=phrasebook"]),
        (parse.main, "parse", TREEBANK, []),
    ],
)
def test_a_vocabulary_that_a_built_in_corpus_cannot_have(
    main, recipe, corpus, data, tmp_path, monkeypatch, capsys
):
    """It is refused before anything is loaded: defaults are the paper's."""
    monkeypatch.setattr(wmt, "load", None)
    monkeypatch.setattr(parse, "load", None)
    message = fails(main, [f"--workdir={tmp_path}/run", *data], capsys)
    assert f"at most {corpus.max_vocab_size} with" in message
    assert f"--recipe={recipe}" in message
    assert message.endswith(" Received: vocab_size=37000\n")
    argv = [f"--workdir={tmp_path}/run", f"--recipe={recipe}"]
    with pytest.raises(TypeError, match="'NoneType' object is not callable"):
        main(argv)


@pytest.mark.parametrize(
    "data",
    [DataConfig(phrasebook_pairs=60_000), *later("format", TreesConfig())],
)
def test_the_largest_vocabulary_of_a_built_in_corpus(data):
    pairs = read_split_of_run(data, "train")
    dataset = find_dataset(data.dataset)
    symbols = dataset.symbols(data, pairs)
    limit = dataset.built_in(data).max_vocab_size
    with pytest.raises(ValueError, match=f"must be at most {limit}, "):
        lines = (line for pair in pairs for line in pair)
        Tokenizer.train(lines, 37_000, symbols=symbols)


@pytest.mark.parametrize(
    "name, size, message",
    [
        ("train", 0, "from 1 to 60000, .* Received: phrasebook_pairs=0"),
        ("train", 60_001, "Received: phrasebook_pairs=60001"),
        ("valid", -1, "Received: size=-1"),
        ("test", 1001, "from 1 to 1000, .* Received: size=1001"),
        ("dev", 10, "Received: split='dev'"),
    ],
)
def test_other_sizes_and_splits_are_refused(name, size, message):
    with pytest.raises(ValueError, match=message):
        read_split(name, size)


def test_a_run_can_read_all_pairs_and_no_more(splits):
    everything = DataConfig(phrasebook_pairs=60_000)
    for name in SPLITS:
        assert list(read_split_of_run(everything, name)) == splits[name]
    with pytest.raises(ValueError, match="phrasebook_pairs must be from 1 to"):
        read_split_of_run(DataConfig(phrasebook_pairs=60_001), "train")


def words_in(text):
    """Returns the lower-case words of a text."""
    return set(re.findall(r"[a-zäöüß'-]+", text.lower()))


def test_the_command_lists_words_and_constructions(splits, capsys):
    command.main([])
    out = capsys.readouterr().out
    assert out == (FOLDER / "phrasebook.txt").read_text("utf-8")
    assert phrasebook.Phrasebook().limits()[:2] == out.splitlines()[:2]
    of_corpus = words_in(" ".join(map(" ".join, splits["train"])))
    kinds = re.findall(r"^([a-z ]+) \((\d+)\): (.+?)\n\n", out, re.M | re.S)
    assert len(kinds) == 11
    for kind, number, listed in kinds:
        words = " ".join(listed.split()).split(", ")
        assert len(words) == int(number), kind
        if "verbs" not in kind:  # some infinitives, as of "be", are not there
            assert words_in(listed) <= of_corpus, kind
    examples = re.findall(r"^    (.+[.?])\n    (.+[.?])\n", out, re.M)
    assert len(examples) == 2 * 12
    assert words_in(" ".join(map(" ".join, examples))) <= of_corpus
