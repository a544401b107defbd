"""The trees of a run, as pairs of a sentence and its linear tree."""

from collections.abc import Iterable, Iterator

from absl import logging

from keras_transformer.data.pairs import Pairs
from trainers.parsing.config import DATASET, TreesConfig
from trainers.parsing.linearization import linearize
from trainers.parsing.trees import (
    Node,
    leaves,
    parse_trees,
    read_trees,
    strip,
)
from trainers.run.built_in import HELD_OUT, TREEBANK


def read_split(data: TreesConfig, name: str) -> Iterable[tuple[str, str]]:
    """The pairs of one split.

    Args:
        data: The `TreesConfig`.
        name: "train", "valid" or "test".

    Returns:
        An iterable of (sentence, linear tree), with a length; empty if there
        are no files. The sentence is the words, separated by spaces.
    """
    if not data.train_trees:
        return [make_pair(tree) for tree in read_split_trees(data, name)]
    files = getattr(data, f"{name}_trees")
    num_trees = sum(1 for _ in read_split_trees(data, name))
    if files and not num_trees:
        raise ValueError(
            f"{name}_trees must have trees. Received: no tree in"
            f" {', '.join(files)}"
        )
    # Read anew each time: the paper's semi-supervised training has 17 million.
    return Pairs(
        lambda: map(make_pair, read_split_trees(data, name)), num_trees
    )


def read_split_trees(data: TreesConfig, name: str) -> Iterator[Node]:
    """The trees of one split; see `read_split`."""
    if not data.train_trees:
        number = data.treebank_trees if name == "train" else HELD_OUT
        return read_treebank(name, number)
    return read_tree_files(getattr(data, f"{name}_trees"))


def read_treebank(name: str, num_trees: int) -> Iterator[Node]:
    """The first trees of a split of the built-in treebank.

    >>> (tree,) = read_treebank("test", 1)
    """
    return parse_trees(TREEBANK.read(name, num_trees), TREEBANK.file)


def make_pair(tree: Node) -> tuple[str, str]:
    """A sentence and its linear tree.

    >>> from trainers.parsing.trees import TOP, Leaf
    >>> make_pair(Node(TOP, (Node("INTJ", (Leaf("UH", "yes"),)),)))
    ('yes', '(INTJ XX )INTJ')
    """
    return " ".join(leaf.word for leaf in leaves(tree)), linearize(tree)


def read_tree_files(paths: Iterable[str]) -> Iterator[Node]:
    """The trees of files, stripped: see `trees.strip`.

    Trees of nothing but traces are skipped, with a warning.

    Raises:
        ValueError: A file is not UTF-8, or no such trees.
        OSError: It cannot be read.
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


def find_symbols(
    data: object, pairs: Iterable[tuple[str, str]]
) -> tuple[str, ...]:
    """Symbols that a vocabulary must not split: the tokens of linear trees.

    Args:
        data: A `TreesConfig`, or the data of another task, which has none.
        pairs: The training pairs.
    """
    if getattr(data, "dataset", "") != DATASET:
        return ()
    return tuple(sorted({token for _, tree in pairs for token in tree.split()}))
