"""Random trees, with what makes counting brackets hard."""

from trainers.datasets.constituency import TOP, Leaf, Node

LABELS = ("NP", "VP", "S", "ADVP", "PRT", "PP")
TAGS = ("NN", "VBD", "DT", ",", ".", "``", "''", ":", "PRP$", "-LRB-")


def random_tree(generator, words):
    """A tree over words: unary chains, equal labels, punctuation anywhere.

    Args:
        generator: A `random.Random`.
        words: At least one `str`.
    """
    leaves = [Leaf(generator.choice(TAGS), word) for word in words]
    return Node(TOP, _constituents(generator, leaves, depth=0))


def _constituents(generator, leaves, depth):
    """Random constituents over leaves, some of them leaves."""
    children = []
    while leaves:
        size = generator.randint(1, len(leaves))
        first, leaves = leaves[:size], leaves[size:]
        if depth < 6 and (size > 1 or generator.random() < 0.5):
            inner = _constituents(generator, first, depth + 1)
            children.append(Node(generator.choice(LABELS), inner))
        else:
            children += first
    return tuple(children)
