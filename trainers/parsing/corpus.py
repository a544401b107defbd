"""The trees of a run, as pairs of a sentence and its linear tree.

The built-in treebank has distinct trees of the grammar.
"""

import random
from collections.abc import Iterable, Iterator

from absl import logging

from keras_transformer.data.pairs import Pairs
from trainers.parsing.config import DATASET, TreesConfig
from trainers.parsing.grammar import TreeSampler
from trainers.parsing.linearization import linearize
from trainers.parsing.trees import Node, leaves, read_trees, strip
from trainers.phrasebook.drawing import draw_split

HELD_OUT = 1000  # trees of the built-in treebank's validation, and of its test
WORDS = range(4, 17)  # of its sentences


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
            f"{name}_trees must have trees. Received: {', '.join(files)},"
            " without any"
        )
    # Read anew each time: the paper's semi-supervised training has 17 million.
    return Pairs(
        lambda: map(make_pair, read_split_trees(data, name)), num_trees
    )


def read_split_trees(data: TreesConfig, name: str) -> Iterator[Node]:
    """The trees of one split; see `read_split`."""
    if not data.train_trees:
        number = data.treebank_trees if name == "train" else HELD_OUT
        return iter(make_trees(name, number))
    return read_tree_files(getattr(data, f"{name}_trees"))


def make_trees(name: str, num_trees: int) -> list[Node]:
    """The trees of the built-in treebank that `draw_split` draws for a split.

    >>> (tree,) = make_trees("test", 1)
    """
    return list(draw_split(name, num_trees, _draw_trees).values())


def _draw_trees(generator: random.Random) -> Iterator[tuple[str, Node]]:
    """Sentences and their trees without end; some repeat."""
    sampler = TreeSampler(generator)
    while True:
        tree = sampler.sentence()
        words = [leaf.word for leaf in leaves(tree)]
        if len(words) in WORDS:
            yield " ".join(words), tree


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
