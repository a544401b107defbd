"""The registry of data sets: every kind checks and reads, found by name."""

import signal

import pytest
from commands import ROOT, fails, run_python, write_pairs

from keras_transformer.data.files.pairs import MissingSplitError, Pairs
from keras_transformer.text.tokenization import Tokenizer
from trainers import prepare, wmt
from trainers.datasets import (
    DATASETS,
    OF_IDS,
    OF_TEXT_FILES,
    OPTIONS,
    dataset,
    find_kind,
    tfds,
)
from trainers.datasets.constituency import write_tree
from trainers.datasets.dataset import find_dataset, read_split
from trainers.datasets.trees import TreeFiles, make_pair, read_treebank
from trainers.run import session
from trainers.run.data_config import DataConfig

PAIRS = [("the dog", "der Hund"), ("the cat", "die Katze")]


@pytest.fixture
def prefix(tmp_path):
    return write_pairs(tmp_path / "corpus", PAIRS)


def test_each_row_is_a_data_set():
    """A module of the folder, with a class of the interface, and back."""
    folder = ROOT / "trainers/datasets"
    found = {
        path.stem
        for path in folder.glob("*.py")
        if "(Dataset[" in path.read_text() or "(Files)" in path.read_text()
    }
    rows = {kind.path.split(".")[2] for kind in DATASETS.values()}
    assert found == rows
    for name in DATASETS:
        assert isinstance(find_dataset(name), dataset.Dataset)


@pytest.mark.parametrize("name", ["", "csv", "tfds:", "files:x", "FILES"])
def test_an_unknown_name_is_refused_with_the_names(name):
    names = "phrasebook, files, prepared or tfds:NAME"
    message = f"dataset must be {names}. Received: dataset={name!r}"
    for find in (find_kind, lambda name: DataConfig(dataset=name)):
        with pytest.raises(ValueError) as error:
            find(name)
        assert str(error.value) == message


def test_options_follow_from_the_rows():
    """Only a row says which options a kind needs, has and excludes."""
    fields = DataConfig.__dataclass_fields__
    for name, kind in OPTIONS.items():
        assert f"{name}: {kind.help}" in fields["dataset"].metadata["help"]
    relations = {
        (name, relation.verb): relation.values
        for name, field in fields.items()
        for relation in field.metadata["relations"]
        if relation.other == "dataset"
    }
    files = OF_TEXT_FILES + OF_IDS
    assert (OF_TEXT_FILES, OF_IDS) == (("files",), ("prepared",))
    for split in dataset.SPLITS:
        assert relations[f"{split}_files", "needs"] == files
    assert relations["mixture", "needs"] == OF_TEXT_FILES
    assert relations["modifiers", "excludes"] == OF_IDS


def test_files(prefix, tmp_path):
    with pytest.raises(ValueError, match="^expected train_files"):
        DataConfig(dataset="files")
    other = write_pairs(tmp_path / "other", PAIRS[:1])
    data = DataConfig(
        dataset="files", train_files=(prefix, prefix), valid_files=(other,)
    )
    train = read_split(data, "train")
    assert (list(train), train.sizes) == (PAIRS * 2, [2, 2])
    assert list(read_split(data, "valid")) == PAIRS[:1]
    assert not read_split(data, "test")
    found = find_dataset("files").find_files(data, "train")
    names = [path.name for path in found]
    assert names == ["corpus.en", "corpus.de"] * 2


def test_prepared(prefix, tmp_path):
    """Ids of one vocabulary to train on, text to validate on."""
    for files in ((), ("a", "b")):
        with pytest.raises(ValueError, match="needs train_files=DIR, one dir"):
            DataConfig(dataset="prepared", train_files=files)
    output = tmp_path / "prepared"
    argv = ["--dataset=files", f"--train_files={prefix}", "--workers=1"]
    prepare.main([*argv, f"--output={output}", "--vocab_size=25"])
    data = DataConfig(
        dataset="prepared", train_files=(str(output),), valid_files=(prefix,)
    )
    assert not read_split(data, "train")
    assert list(read_split(data, "valid")) == PAIRS
    (path,) = data.given_tokenizers.values()
    tokenizer, kind = Tokenizer.load(path), find_dataset("prepared")
    assert wmt.given_vocab_sizes(data) == {"vocab_size": 25}
    corpus = kind.read_ids(data, tokenizer, 256)
    ids = tokenizer.to_ids([source for source, _ in PAIRS])
    assert corpus.source.lengths.tolist() == [len(row) for row in ids]
    with pytest.raises(ValueError, match="max_length must be at least 256"):
        kind.read_ids(data, tokenizer, 255)
    (output / "index.json").unlink()
    with pytest.raises((ValueError, OSError), match="index.json"):
        wmt.given_vocab_sizes(data)


def test_tfds(monkeypatch):
    """Only the training split must be there. Ctrl-C ends a download."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)

    def read(name, split, *languages, data_dir):
        assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL
        if split != "validation":
            raise MissingSplitError(f"no {split} in {name}")
        return Pairs.of([(split, *languages, data_dir)])

    monkeypatch.setattr(tfds, "read_tfds", read)
    data = DataConfig(dataset="tfds:x/y", data_dir="here")
    [valid] = read_split(data, "valid")
    assert valid == ("validation", "en", "de", "here")
    assert list(read_split(data, "test")) == []
    with pytest.raises(MissingSplitError, match="no train in x/y"):
        read_split(data, "train")
    after = signal.signal(signal.SIGINT, handler)
    assert after == signal.default_int_handler


def test_phrasebook():
    data = DataConfig(phrasebook_pairs=5)
    pairs = list(read_split(data, "train"))
    assert len(pairs) == 5 and len(read_split(data, "valid")) == 1000
    swapped = DataConfig(
        phrasebook_pairs=5, source_language="de", target_language="en"
    )
    assert list(read_split(swapped, "train")) == [p[::-1] for p in pairs]
    english, german = map("".join, zip(*pairs, strict=True))
    assert english.isascii() and not german.isascii()
    with pytest.raises(ValueError, match="English and German"):
        read_split(DataConfig(target_language="fr"), "train")
    assert find_dataset("phrasebook").limits()[0].startswith("The phrasebook")


def test_a_dry_run_downloads_nothing(monkeypatch, capsys):
    def check(name, data_dir):
        raise ValueError(f"{name} is not in {data_dir}")

    monkeypatch.setattr(tfds, "check_prepared", check)
    monkeypatch.setattr(session, "open_trainer", pytest.fail)
    argv = ["--workdir=new", "--dataset=tfds:x/y", "--data_dir=here"]
    error = fails(wmt.main, [*argv, "--dry_run"], capsys)
    assert error == "kt-train: x/y is not in here\n"


def test_imported():
    """Its sentence pairs are unknown, but it can be measured on others."""
    data = DataConfig(dataset="imported")
    with pytest.raises(ValueError, match="expected files of pairs, --test_f"):
        read_split(data, "test")
    assert data.with_files(("x",)).dataset == "files"


def test_trees(tmp_path):
    with pytest.raises(ValueError, match="is read by kt-parse"):
        DataConfig(dataset="trees")
    trees = list(read_treebank("train", 3))
    path = tmp_path / "trees.mrg"
    path.write_text("".join(write_tree(tree) + "\n" for tree in trees))
    data = TreeFiles(train_trees=(str(path),))
    pairs = read_split(data, "train")
    assert list(pairs) == [make_pair(tree) for tree in trees]
    assert not read_split(data, "valid")
    kind = find_dataset(data.dataset)
    assert kind.find_files(data, "train") == [path]
    symbols = {token for _, tree in pairs for token in tree.split()}
    assert kind.symbols(data, pairs) == tuple(sorted(symbols))
    assert kind.limits() == []


def test_other_files_have_the_kind_of_the_training_files(monkeypatch):
    """Only if these are text: ids and TensorFlow Datasets have no text."""
    for name, files in (("files", "a"), ("prepared", "a"), ("tfds:x", "")):
        data = DataConfig(dataset=name, train_files=tuple(files))
        other = data.with_files(("b", "c"))
        assert other.dataset == "files"
        for split in dataset.SPLITS:
            assert other.files_of(split) == ("b", "c")


def test_the_options_are_there_without_keras():
    """`DataConfig` checks itself before a backend is chosen."""
    program = (
        "import sys; from trainers.run.data_config import DataConfig;"
        "[DataConfig(dataset=d, train_files=f) for d, f in (('phrasebook', ()),"
        "('files', ('x',)), ('prepared', ('x',)), ('tfds:x', ()),"
        "('imported', ()))];"
        "print(*{'keras', 'tensorflow', 'jax'} & set(sys.modules))"
    )
    assert run_python("-c", program) == "\n"
