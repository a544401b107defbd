"""EVALB's counting: rules of its README by hand, and its own numbers."""

import random

import pytest
from random_trees import random_tree

from trainers.datasets.constituency import Leaf, Node, leaves, read_trees, retag
from trainers.parsing.bracketing import Counts, count_brackets, sum_counts
from trainers.parsing.metric import ParsingMetric

# gold, found, matched, brackets of gold, brackets of found.
CASES = {
    "equal": (
        "(TOP (S (NP (NN a)) (VP (VB b)) (. .)))",
        "(TOP (S (NP (NN a)) (VP (VB b)) (. .)))",
        (3, 3, 3),
    ),
    "label": (
        "(TOP (S (NP (NN a)) (VP (VB b))))",
        "(TOP (S (NP (NN a)) (PP (VB b))))",
        (2, 3, 3),
    ),
    "span": (
        "(TOP (S (NP (NN a)) (VP (VB b) (NP (NN c)))))",
        "(TOP (S (NP (NN a) (VB b)) (NP (NN c))))",
        (2, 4, 3),
    ),
    "the root counts for nothing": (
        "(TOP (NN a))",
        "(TOP (TOP (NN a)))",
        (0, 0, 0),
    ),
    # The span of S is that of its words but the stop, wherever that is.
    "punctuation is taken out": (
        "(TOP (S (NP (NN a) (, ,)) (VP (VB b)) (. .)))",
        "(TOP (S (NP (NN a)) (, ,) (VP (VB b) (. .))))",
        (3, 3, 3),
    ),
    "a bracket of punctuation alone vanishes": (
        "(TOP (S (NN a) (PRN (`` x) ('' y) (: z))))",
        "(TOP (S (NN a) (`` x) ('' y) (: z)))",
        (1, 1, 1),
    ),
    "other tags of punctuation stay": (
        "(TOP (S (NP (NN a)) (-LRB- x)))",
        "(TOP (S (NP (NN a) (-LRB- x))))",
        (1, 2, 2),
    ),
    "ADVP and PRT are equal": (
        "(TOP (VP (VB a) (PRT (RP b))))",
        "(TOP (VP (VB a) (ADVP (RP b))))",
        (2, 2, 2),
    ),
    # README, 7.5: n of the reference, m found: precision n/m, recall 100 %.
    "more of the same bracket found": (
        "(TOP (NP (NP (NN a))))",
        "(TOP (NP (NP (NP (NN a)))))",
        (2, 2, 3),
    ),
    "fewer of the same bracket found": (
        "(TOP (ADVP (PRT (ADVP (RB a)))))",
        "(TOP (PRT (RB a)))",
        (1, 3, 1),
    ),
}


@pytest.fixture
def read(tmp_path):
    """Reads one tree from text."""

    def read_text(text):
        path = tmp_path / "tree"
        path.write_text(text)
        (tree,) = read_trees(path)
        return tree

    return read_text


@pytest.mark.parametrize("name", CASES)
def test_counts_by_hand(read, name):
    gold, found, counts = CASES[name]
    assert count_brackets(read(gold), read(found)) == Counts(*counts)


def test_percentages_are_of_the_sums():
    """They are not means of the sentences' percentages."""
    total = sum_counts([Counts(1, 1, 1), Counts(1, 4, 9)])
    assert total == (2, 5, 10)
    assert (total.recall, total.precision) == (40, 20)
    assert total.f1 == pytest.approx(2 * 40 * 20 / (40 + 20))
    assert Counts(0, 0, 0).f1 == 0.0
    assert Counts(2, 2, 2).is_complete and not Counts(2, 2, 3).is_complete


def pairs_of_trees(number):
    """Returns random trees over the same tagged words."""
    generator = random.Random(3)
    for _ in range(number):
        words = [f"w{i}" for i in range(generator.randint(1, 14))]
        gold = random_tree(generator, words)
        found = random_tree(generator, words)
        yield gold, retag(found, [leaf.tag for leaf in leaves(gold)])


EVALB_TOTALS = (489, 2542, 2544)


def test_counts_are_those_of_evalb():
    """EVALB (evalb.c of 2006, COLLINS.prm) printed these totals."""
    counts = [count_brackets(*pair) for pair in pairs_of_trees(300)]
    assert sum_counts(counts) == EVALB_TOTALS


def test_the_tags_of_the_reference_decide():
    gold = Node("TOP", (Node("S", (Leaf("NN", "a"), Leaf(".", "b"))),))
    found = Node("TOP", (Node("S", (Leaf(".", "a"), Leaf("XX", "b"))),))
    assert count_brackets(gold, found) == (1, 1, 1)
    with pytest.raises(ValueError, match="over 2 words. Received: 1 words"):
        count_brackets(gold, Node("TOP", (Leaf("NN", "a"),)))


def test_the_metric_repairs_and_says_so():
    references = ["(S (NP XX )NP (VP XX )VP . )S", "(S (VP XX )VP )S", "."]
    outputs = ["(S (NP XX )NP (VP XX )VP . )S", "(S (NP XX )VP", "(X . )X"]
    metric = ParsingMetric()
    # The second becomes (S (NP XX)): S is right. The third is of punctuation
    # alone, which EVALB leaves out.
    assert metric.score(outputs, references) == pytest.approx(80.0)
    assert metric.measure(outputs, references) == {
        "f1": pytest.approx(80.0),
        "precision": pytest.approx(80.0),
        "recall": pytest.approx(80.0),
        "complete_match": 50.0,
        "well_formed": pytest.approx(200 / 3),
        "sentences": 3,
    }
