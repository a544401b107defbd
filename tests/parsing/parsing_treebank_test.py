"""The built-in treebank: its trees, its splits and its sizes."""

import hashlib

import pytest

from trainers.datasets.built_in import TREEBANK
from trainers.datasets.constituency import TOP, leaves, write_tree
from trainers.datasets.linearization import linearize
from trainers.datasets.trees import (
    Trees,
    make_pair,
    read_tree_files,
    read_treebank,
)
from trainers.parsing.parser_config import TreesConfig

# Number of trees of a split, and the SHA-256 of their lines. F1 in docs was
# measured on these.
SPLITS = {
    "train": (
        20_000,
        "82cc7d8a608460981f79c81ff98e234b649094beda5d8f39e14fa0c440f33cc0",
    ),
    "valid": (
        1000,
        "136f024c3a8001279909923d10fda9527f9c069dfb793f4686149b7ef0600699",
    ),
    "test": (
        1000,
        "d564360e7818a883f790a6bc921f1f1eda7e89d8334bac6b18a32a0d0f42d050",
    ),
}


@pytest.fixture(scope="module")
def lines():
    """All lines, by split."""
    return {
        name: TREEBANK.read(name, size) for name, (size, _) in SPLITS.items()
    }


@pytest.fixture(scope="module")
def trees():
    """1,500 training trees."""
    return list(read_treebank("train", 1500))


def test_trees_without_words_are_counted(tmp_path, caplog):
    path = tmp_path / "trees"
    path.write_text("(S (-NONE- *))\n(S (NN a))\n(S (-NONE- *T*-1))\n")
    assert [write_tree(t) for t in read_tree_files([path])] == [
        "(TOP (S (NN a)))"
    ]
    assert f"{path}: 2 trees have no words" in caplog.text


def test_trees_never_change(lines, trees):
    for name, (size, sha256) in SPLITS.items():
        text = "".join(line + "\n" for line in lines[name])
        assert len(lines[name]) == size
        assert hashlib.sha256(text.encode()).hexdigest() == sha256
    assert [write_tree(tree) for tree in trees] == lines["train"][:1500]
    assert {tree.label for tree in trees} == {TOP}


@pytest.mark.parametrize(
    "name, number, message",
    [
        ("train", 0, "from 1 to 20000, .* Received: treebank_trees=0"),
        ("train", 20_001, "Received: treebank_trees=20001"),
        ("test", 1001, "from 1 to 1000, .* Received: size=1001"),
        ("dev", 1, "Received: split='dev'"),
    ],
)
def test_other_sizes_and_splits_are_refused(name, number, message):
    with pytest.raises(ValueError, match=message):
        read_treebank(name, number)


def test_the_splits_of_a_run(trees):
    """The built-in treebank as pairs; every token of a tree is a symbol."""
    data = TreesConfig(treebank_trees=40)
    pairs = list(Trees().read(data, "train"))
    assert len(pairs) == 40
    words = " ".join(leaf.word for leaf in leaves(trees[3]))
    assert pairs[3] == (words, linearize(trees[3]))
    symbols = Trees().symbols(data, map(make_pair, trees))
    assert {"(NP", ")NP", "(SBARQ", "XX", ".", "``"} <= set(symbols)
