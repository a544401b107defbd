"""Trees as sequences of tokens, and back (Vinyals et al. 2015).

    (S (NP XX )NP (VP XX (NP XX XX )NP )VP . )S

A constituent is written as an opening and a closing token with its label, a
word as `XX`. The words themselves are the input. The root is omitted.

Unlike in Vinyals et al., punctuation keeps its tag. Labeled brackets are scored
without the words that have such a tag, so a sequence contains all that scoring
needs, and a tree made from it can be written for EVALB.
"""

import re
from collections.abc import Sequence

from trainers.datasets.constituency import Leaf, Node, TreeBuilder, walk

WORD = "XX"
# Tags of the words that EVALB ignores, from its COLLINS.prm.
PUNCTUATION = (",", ":", "``", "''", ".")
LEAF_TOKENS = (WORD, *PUNCTUATION)
_BRACKET = re.compile(r"([()])([^\s()]+)")


def linearize(tree: Node) -> str:
    """Writes the tokens of a tree, separated by spaces.

    >>> noun_phrase = Node("NP", (Leaf("DT", "the"), Leaf("NN", "cat")))
    >>> linearize(Node("TOP", (noun_phrase, Leaf(".", "!"))))
    '(NP XX XX )NP .'
    """
    tokens = []
    for event, part in list(walk(tree))[1:-1]:
        if isinstance(part, Leaf):
            tokens.append(part.tag if part.tag in PUNCTUATION else WORD)
        else:
            tokens.append(f"{'(' if event == 'open' else ')'}{part.label}")
    return " ".join(tokens)


def repair(sequence: str, words: Sequence[str]) -> Node:
    """Makes a tree over exactly these words from any sequence.

    A valid sequence gives its tree. In any other sequence:

    - a closing token also closes the constituents that are open inside its own;
      it is ignored if no constituent with its label is open;
    - constituents that are open at the end are closed, and empty ones removed;
    - leaves beyond the last word, and strings that are not tokens, are ignored;
    - words beyond the last leaf are added to the constituent that is open at
      the end, or else to the last one below the root.

    >>> from trainers.datasets.constituency import write_tree
    >>> write_tree(repair("(S (NP XX )VP XX", ["Anna", "slept", "well"]))
    '(TOP (S (NP (XX Anna) (XX slept) (XX well))))'
    """
    builder, remaining = TreeBuilder(), list(reversed(words))
    for token in sequence.split():
        bracket = _BRACKET.fullmatch(token)
        if token in LEAF_TOKENS:
            if remaining:
                builder.add(Leaf(token, remaining.pop()))
        elif bracket and bracket[1] == "(":
            builder.open(bracket[2])
        elif bracket and bracket[2] in builder.open_labels[1:]:
            while builder.open_labels[-1] != bracket[2]:
                builder.close()
            builder.close()
    if remaining and len(builder.open_labels) == 1:
        builder.reopen()
    while remaining:
        builder.add(Leaf(WORD, remaining.pop()))
    return builder.finish()


def is_tree(sequence: str, num_words: int) -> bool:
    """Tells whether a sequence is a valid tree over `num_words` words.

    >>> is_tree("(NP XX XX )NP", 2), is_tree("(NP XX XX", 2)
    (True, False)
    """
    tree = repair(sequence, [""] * num_words)
    return linearize(tree) == " ".join(sequence.split())


def read_reference(sequence: str) -> Node:
    """Makes the tree of a valid sequence, with empty words."""
    num_words = sum(token in LEAF_TOKENS for token in sequence.split())
    return repair(sequence, [""] * num_words)
