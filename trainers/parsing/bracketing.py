"""Counts labeled brackets as EVALB does with its COLLINS.prm.

A bracket is a label and the words that it spans. EVALB removes punctuation from
both trees, does not count the root, treats ADVP and PRT as one label, and sums
the counts of all sentences before it divides. (Sekine and Collins 1997,
https://nlp.cs.nyu.edu/evalb)
"""

import collections
from collections.abc import Iterable
from typing import NamedTuple

from keras_transformer.base.refusals import expect
from trainers.datasets.constituency import TOP, TRACE, Leaf, Node, leaves, walk
from trainers.datasets.linearization import PUNCTUATION

DELETED = frozenset((TOP, TRACE, *PUNCTUATION))
EQUIVALENT = {"PRT": "ADVP"}


class Counts(NamedTuple):
    """Numbers of brackets: in both trees, in the reference, in the output."""

    matched: int
    gold: int
    found: int

    @property
    def precision(self) -> float:
        """Percentage of the brackets found that are in the reference."""
        return 100 * self.matched / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        """Percentage of the reference's brackets that are found."""
        return 100 * self.matched / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall, in [0, 100]."""
        total = self.gold + self.found
        return 200 * self.matched / total if total else 0.0

    @property
    def is_complete(self) -> bool:
        """Whether the trees have the same brackets."""
        return self.matched == self.gold == self.found


def sum_counts(counts: Iterable[Counts]) -> Counts:
    """Sums the counts of sentences.

    >>> sum_counts([Counts(1, 2, 3), Counts(4, 5, 6)])
    Counts(matched=5, gold=7, found=9)
    """
    return Counts(*map(sum, zip(Counts(0, 0, 0), *counts, strict=True)))


def count_brackets(gold: Node, found: Node) -> Counts:
    """Counts the brackets of a tree that are in its reference.

    EVALB removes the words that each tree tags as punctuation, and skips a
    sentence if the two trees then differ in words. Here the reference's tags
    decide for both trees, and no sentence is skipped. If the trees tag the same
    words as punctuation, the counts are EVALB's.

    A bracket that occurs n times in one tree and m times in the other matches
    min(n, m) times.

    Raises ValueError if the trees have different numbers of words.
    """
    gold_leaves = leaves(gold)
    num_found = len(leaves(found))
    expected = f"a tree over {len(gold_leaves)} words"
    expect(len(gold_leaves) == num_found, expected, f"{num_found} words")
    counted = [leaf.tag not in DELETED for leaf in gold_leaves]
    gold_brackets = _brackets(gold, counted)
    found_brackets = _brackets(found, counted)
    return Counts(
        (gold_brackets & found_brackets).total(),
        gold_brackets.total(),
        found_brackets.total(),
    )


def _brackets(
    tree: Node, counted: list[bool]
) -> collections.Counter[tuple[str, int, int]]:
    """Counts the brackets of a tree by label, start and end.

    Words for which `counted` is False are ignored.
    """
    found: collections.Counter[tuple[str, int, int]] = collections.Counter()
    starts, position, words = [], 0, iter(counted)
    for event, part in walk(tree):
        if isinstance(part, Leaf):
            position += next(words)
        elif event == "open":
            starts.append(position)
        else:
            start = starts.pop()
            if start < position and part.label not in DELETED:
                label = EQUIVALENT.get(part.label, part.label)
                found[label, start, position] += 1
    return found
