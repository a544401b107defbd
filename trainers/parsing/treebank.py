"""The built-in treebank: trees of the grammar, in splits that share none."""

import random
from collections.abc import Iterator

from trainers.parsing.grammar import TreeSampler
from trainers.parsing.trees import Node, leaves
from trainers.phrasebook.drawing import draw_split

WORDS = range(4, 17)  # of a sentence


def make_trees(name: str, num_trees: int) -> list[Node]:
    """The trees of a split that `draw_split` draws, without repetition.

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
