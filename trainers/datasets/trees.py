"""Trees and their sentences, the data of parsers.

A pair is a sentence, with spaces between its words, and its linearized tree.
"""

import pathlib
from collections.abc import Iterable, Iterator

from absl import logging

from keras_transformer.base.fields import GIVEN, Fields, hp
from keras_transformer.data.files.pairs import Pairs
from trainers.datasets.built_in import HELD_OUT, TREEBANK, BuiltIn
from trainers.datasets.constituency import (
    Node,
    leaves,
    parse_trees,
    read_trees,
    strip,
)
from trainers.datasets.dataset import Dataset
from trainers.datasets.linearization import linearize


class TreeFiles(Fields, changeable=True):
    """The trees."""

    train_trees: tuple[str, ...] = hp(
        (),
        "Files of trees in the format of the Penn Treebank, or their .gz,"
        " separated by commas. Default: the built-in treebank, also for"
        " validation and test.",
        common=True,
    )
    valid_trees: tuple[str, ...] = hp(
        (),
        "Files of validation trees. Default: no validation.",
        needs={"train_trees": GIVEN},
        common=True,
    )
    test_trees: tuple[str, ...] = hp(
        (),
        "Files of test trees, parsed when training ends.",
        needs={"train_trees": GIVEN},
        common=True,
    )
    treebank_trees: int = hp(
        20000,
        "Training trees of the built-in treebank to read, at most"
        f" {TREEBANK.train_size:,}.",
        low=1,
    )

    dataset = "trees"

    def files_of(self, split: str) -> tuple[str, ...]:
        """Returns the value of the option that names the files of a split."""
        return getattr(self, f"{split}_trees")


class Trees(Dataset[TreeFiles]):
    """Trees from files, or from the built-in treebank."""

    def check(self, data: TreeFiles) -> None:
        if not isinstance(data, TreeFiles):
            raise ValueError(
                "dataset=trees is read by kt-parse, and has no languages."
                " Received: dataset='trees'"
            )

    def read(self, data: TreeFiles, split: str) -> Pairs:
        if not data.train_trees:
            return Pairs.of(list(map(make_pair, read_split_trees(data, split))))
        files = data.files_of(split)
        num_trees = sum(1 for _ in read_split_trees(data, split))
        if files and not num_trees:
            raise ValueError(
                f"{split}_trees must have trees. Received: no tree in"
                f" {', '.join(files)}"
            )
        # Not kept in memory: the paper's semi-supervised training has 17
        # million trees.
        return Pairs(
            lambda: map(make_pair, read_split_trees(data, split)), num_trees
        )

    def built_in(self, data: TreeFiles) -> BuiltIn | None:
        return None if data.train_trees else TREEBANK

    def find_files(self, data: TreeFiles, split: str) -> list[pathlib.Path]:
        return [pathlib.Path(path) for path in data.files_of(split)]

    def check_file(
        self, data: TreeFiles, path: pathlib.Path, split: str
    ) -> None:
        next(read_tree_files([str(path)]), None)

    def symbols(self, data: TreeFiles, pairs: Pairs) -> tuple[str, ...]:
        return tuple(
            sorted({token for _, tree in pairs for token in tree.split()})
        )


def read_split_trees(data: TreeFiles, split: str) -> Iterator[Node]:
    """Reads the trees of a split. Yields none if the split has no files."""
    if not data.train_trees:
        number = data.treebank_trees if split == "train" else HELD_OUT
        return read_treebank(split, number)
    return read_tree_files(data.files_of(split))


def read_treebank(name: str, num_trees: int) -> Iterator[Node]:
    """Reads the first trees of a split of the built-in treebank.

    >>> (tree,) = read_treebank("test", 1)
    """
    return parse_trees(TREEBANK.read(name, num_trees), TREEBANK.file)


def make_pair(tree: Node) -> tuple[str, str]:
    """Returns a tree's sentence and its linearization.

    >>> from trainers.datasets.constituency import TOP, Leaf
    >>> make_pair(Node(TOP, (Node("INTJ", (Leaf("UH", "yes"),)),)))
    ('yes', '(INTJ XX )INTJ')
    """
    return " ".join(leaf.word for leaf in leaves(tree)), linearize(tree)


def read_tree_files(paths: Iterable[str]) -> Iterator[Node]:
    """Yields the trees of files, stripped by `constituency.strip`.

    Trees that have only traces are skipped, with a warning.

    Raises ValueError if a file is not UTF-8 or is not in the Penn Treebank's
    format, OSError if it cannot be read.
    """
    for path in paths:
        num_empty = 0
        for tree in read_trees(path):
            stripped = strip(tree)
            if stripped.children:
                yield stripped
            else:
                num_empty += 1
        if num_empty:
            logging.warning(
                "%s: %d trees have no words and are skipped", path, num_empty
            )
