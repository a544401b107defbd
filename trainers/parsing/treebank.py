"""The built-in treebank: trees of the grammar, in splits that share none."""

import random
import zlib
from collections.abc import Iterator

from trainers.parsing.grammar import TreeSampler
from trainers.parsing.trees import Node, leaves

# A tree belongs to a split by the hash of its sentence: in percent.
SPLITS = {"train": range(0, 80), "valid": range(80, 90), "test": range(90, 100)}
MAX_TREES = 1_000_000  # of all splits
WORDS = range(4, 17)  # of a sentence


def make_trees(name: str, num_trees: int) -> list[Node]:
    """Distinct trees of a split; the splits share no sentence.

    Args:
        name: A key of `SPLITS`.
        num_trees: How many, from 1 to the split's share of `MAX_TREES`.

    Returns:
        A list of trees, the same for the same arguments; a larger request
        starts with the trees of a smaller one. No sentence is in it twice.

    Raises:
        ValueError: The name is unknown or `num_trees` is out of range.

    >>> from trainers.parsing.trees import write_tree
    >>> (tree,) = make_trees("test", 1)
    """
    if name not in SPLITS:
        raise ValueError(
            f"name must be one of {', '.join(SPLITS)}. Received: name={name!r}"
        )
    percentiles = SPLITS[name]
    limit = MAX_TREES * len(percentiles) // 100
    if not 1 <= num_trees <= limit:
        raise ValueError(
            f"num_trees must be from 1 to {limit}."
            f" Received: num_trees={num_trees!r}"
        )
    found: dict[str, Node] = {}
    for tree in _draw_trees(random.Random(percentiles.start)):
        words = [leaf.word for leaf in leaves(tree)]
        sentence = " ".join(words)
        if (
            len(words) in WORDS
            and zlib.crc32(sentence.encode()) % 100 in percentiles
        ):
            found.setdefault(sentence, tree)
            if len(found) == num_trees:
                break
    return list(found.values())


def _draw_trees(generator: random.Random) -> Iterator[Node]:
    """Trees without end; some repeat."""
    sampler = TreeSampler(generator)
    while True:
        yield sampler.sentence()
