"""An automaton for the phrases of a sentence (Aho and Corasick 1975)."""

import typing
from collections.abc import Sequence

from keras_transformer.base.refusals import expect

Ids: typing.TypeAlias = Sequence[int]


class Automaton(typing.NamedTuple):
    """The automaton of one sentence, before it becomes a row of an array.

    A state is the sequence of tokens that leads to it from state 0. Lists are
    by state, except `tokens` and `sizes`. Transitions are computed, not stored,
    which keeps the automaton as small as the phrases.
    """

    tokens: list[int]  # different tokens of the phrases, in ascending order
    children: list[dict[int, int]]  # by token, the state one token longer
    suffix: list[int]  # the longest other state that this one ends with
    order: list[int]  # the states, shorter ones first
    bans: list[bool]  # whether a forbidden phrase ends here
    ends: list[set[int]]  # the terms that end here
    parts: list[dict[int, int]]  # by incomplete term, its tokens so far
    sizes: list[int]  # for each term, the tokens of its longest form

    def next(self, state: int, token: int) -> int:
        """Returns the state after a token."""
        while state and token not in self.children[state]:
            state = self.suffix[state]
        return self.children[state].get(token, 0)


def make_automaton(
    terms: Sequence[Sequence[Ids]], forbidden: Sequence[Ids]
) -> Automaton:
    """Makes the automaton of a sentence from sequences of tokens.

    The output must have one sequence of each term, and none of `forbidden`.
    Raises ValueError if a sequence is empty.

    >>> automaton = make_automaton([[(7, 8)], [(8,), (9, 9)]], [(7, 9)])
    >>> [automaton.next(1, token) for token in (7, 8, 9)]
    [1, 2, 6]
    >>> automaton.ends[2], automaton.bans[6]
    ({0, 1}, True)
    """
    phrases = [
        (tuple(ids), number)
        for number, term in enumerate(terms)
        for ids in term
    ] + [(tuple(ids), None) for ids in forbidden]
    expect(all(ids for ids, _ in phrases), "a token in each phrase", "()")
    sizes = [max(map(len, term)) for term in terms]
    found = Automaton(
        sorted({token for ids, _ in phrases for token in ids}),
        [{}],
        [0],
        [0],
        [False],
        [set()],
        [{}],
        sizes,
    )
    for ids, number in phrases:
        state = 0
        for depth, token in enumerate(ids, 1):
            if token not in found.children[state]:
                found.children[state][token] = len(found.children)
                found.children.append({})
                found.suffix.append(0)
                found.bans.append(False)
                found.ends.append(set())
                found.parts.append({})
            state = found.children[state][token]
            if number is not None and depth < len(ids):
                found.parts[state][number] = depth
        if number is None:
            found.bans[state] = True
        else:
            found.ends[state].add(number)
    for state in found.order:  # which grows
        for token, child in found.children[state].items():
            back = found.next(found.suffix[state], token) if state else 0
            found.suffix[child] = back
            found.ends[child].update(found.ends[back])
            found.parts[child] = found.parts[back] | found.parts[child]
            found.bans[child] |= found.bans[back]
            found.order.append(child)
    return found


def missing_terms(automaton: Automaton | None, ids: Ids) -> list[int]:
    """Lists the indices of terms that an output lacks, none if it is empty."""
    if automaton is None or not ids:
        return []
    state, missing = 0, set(range(len(automaton.sizes)))
    for token in ids:
        state = automaton.next(state, token)
        missing -= automaton.ends[state]
    return sorted(missing)
