"""Random trees with features that make counting brackets hard."""

from trainers.datasets.constituency import TOP, Leaf, Node

LABELS = ("NP", "VP", "S", "ADVP", "PRT", "PP")
TAGS = ("NN", "VBD", "DT", ",", ".", "``", "''", ":", "PRP$", "-LRB-")


def random_tree(generator, words):
    """Makes a tree with unary chains, equal labels, punctuation anywhere.

    Args:
        generator: A `random.Random`.
        words: At least one `str`.
    """
    leaves = [Leaf(generator.choice(TAGS), word) for word in words]
    return Node(TOP, _constituents(generator, leaves, depth=0))


def _constituents(generator, leaves, depth):
    """Returns random constituents over leaves. Some are leaves."""
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
