import random

import pytest
from random_trees import random_tree

from trainers.datasets.constituency import TOP, leaves, retag, write_tree
from trainers.datasets.linearization import (
    LEAF_TOKENS,
    PUNCTUATION,
    is_tree,
    linearize,
    read_reference,
    repair,
)


def tree_of(generator, size):
    """Makes a random tree over "w0", "w1", ..."""
    return random_tree(generator, [f"w{i}" for i in range(size)])


def test_the_figure_of_the_paper():
    """Vinyals et al. 2015, figure 2, with its words tagged XX."""
    sequence = "(S (NP XX )NP (VP XX (NP XX XX )NP )VP . )S"
    tree = repair(sequence, "John has a dog .".split())
    assert write_tree(tree) == (
        "(TOP (S (NP (XX John)) (VP (XX has) (NP (XX a) (XX dog))) (. .)))"
    )
    assert linearize(tree) == sequence


def test_repair_undoes_linearizing():
    generator = random.Random(1)
    for size in (1, 2, 3, 5, 8, 13) * 30:
        tree = tree_of(generator, size)
        words = [leaf.word for leaf in leaves(tree)]
        tags = [
            leaf.tag if leaf.tag in PUNCTUATION else "XX"
            for leaf in leaves(tree)
        ]
        sequence = linearize(tree)
        assert read_reference(sequence) == repair(sequence, [""] * size)
        assert repair(sequence, words) == retag(tree, tags)
        assert is_tree(sequence, size) and not is_tree(sequence, size + 1)


@pytest.mark.parametrize(
    "sequence",
    [
        "(NP XX )VP XX",
        "XX )NP XX",
        "XX XX )TOP",
        "(NP XX XX",
        "(NP XX (PP )PP XX )NP",
        "(NP XX the XX )NP",
        "XX XX XX",
        "XX",
        "",
    ],
)
def test_what_is_no_tree_over_two_words(sequence):
    assert not is_tree(sequence, 2)


@pytest.mark.parametrize(
    "sequence, tree",
    [
        ("", "(TOP (XX a) (XX b) (XX c))"),
        ("(S XX XX XX", "(TOP (S (XX a) (XX b) (XX c)))"),
        ("(S (NP XX (VP XX )S XX", "(TOP (S (NP (XX a) (VP (XX b)))) (XX c))"),
        ("(S XX )NP XX )S", "(TOP (S (XX a) (XX b) (XX c)))"),
        ("(S (NP XX )NP (VP", "(TOP (S (NP (XX a)) (VP (XX b) (XX c))))"),
        ("(S XX XX (PP )PP XX XX . )S", "(TOP (S (XX a) (XX b) (XX c)))"),
        ("(S the XX (NP( XX ) XX )S", "(TOP (S (XX a) (XX b) (XX c)))"),
        ("(S XX . )S (X XX )X", "(TOP (S (XX a) (. b)) (X (XX c)))"),
    ],
)
def test_repair(sequence, tree):
    assert write_tree(repair(sequence, ["a", "b", "c"])) == tree


def test_any_sequence_becomes_a_tree_over_the_words():
    generator = random.Random(2)
    tokens = [*LEAF_TOKENS, "(NP", ")NP", "(VP", ")VP", "(S", ")S", "(TOP"]
    tokens += [")TOP", "(", ")", "word", " \u2047 ", "(NP)", "", "))", "XXX"]
    for _ in range(600):
        sequence = " ".join(
            generator.choices(tokens, k=generator.randrange(40))
        )
        words = [f"w{i}" for i in range(generator.randint(1, 9))]
        tree = repair(sequence, words)
        assert tree.label == TOP
        assert [leaf.word for leaf in leaves(tree)] == words
        # Well-formed: what is written is a tree as it stands, and this one.
        assert is_tree(linearize(tree), len(words))
        assert repair(linearize(tree), words) == tree


def test_repair_has_no_limit_of_depth():
    tree = repair("(NP " * 3_000, ["a", "b"])
    assert linearize(tree).count("(NP") == 3_000
