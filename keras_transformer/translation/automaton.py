"""An automaton for the phrases of a sentence (Aho and Corasick 1975)."""

import collections
import typing
from collections.abc import Sequence

Ids: typing.TypeAlias = Sequence[int]


class Automaton(typing.NamedTuple):
    """The automaton of one sentence, before it is a row of an array.

    Attributes:
        tokens: Different tokens of the phrases, in ascending order.
        next: For each state the next state by token; other tokens lead to 0.
        bans: For each state the tokens that complete a forbidden phrase.
        ends: For each state the terms that end there.
        parts: For each state the number of tokens by term, of those begun.
        sizes: The tokens of each term.
    """

    tokens: list[int]
    next: list[dict[int, int]]
    bans: list[set[int]]
    ends: list[set[int]]
    parts: list[dict[int, int]]
    sizes: list[int]


def make_automaton(
    terms: Sequence[Sequence[Ids]], forbidden: Sequence[Ids]
) -> Automaton:
    """The automaton of a sentence.

    Args:
        terms: For each term the sequences of tokens that express it; one of
            them must be in the output.
        forbidden: Sequences that may not be in it.

    >>> automaton = make_automaton([[(7, 8)], [(8,), (9, 9)]], [(7, 9)])
    >>> automaton.next[automaton.next[0][7]]
    {7: 1, 8: 2, 9: 6}
    >>> automaton.ends[2], automaton.bans[1]
    ({0, 1}, {9})
    """
    phrases = [
        (tuple(ids), number)
        for number, term in enumerate(terms)
        for ids in term
    ] + [(tuple(ids), None) for ids in forbidden]
    if any(not ids for ids, _ in phrases):
        raise ValueError("a phrase must have a token. Received: ()")
    children: list[dict[int, int]] = [{}]  # the trie of all phrases
    ends: list[set[int]] = [set()]
    parts: list[dict[int, int]] = [{}]
    completed = {0: False}  # whether a forbidden phrase ends there
    for ids, number in phrases:
        state = 0
        for depth, token in enumerate(ids, 1):
            if token not in children[state]:
                children[state][token] = len(children)
                children.append({})
                ends.append(set())
                parts.append({})
                completed[len(children) - 1] = False
            state = children[state][token]
            if number is not None and depth < len(ids):
                parts[state][number] = depth
        if number is None:
            completed[state] = True
        else:
            ends[state].add(number)
    tokens = sorted({token for ids, _ in phrases for token in ids})
    # The state of the longest suffix that begins a phrase, breadth first.
    suffix = [0] * len(children)
    following: list[dict[int, int]] = [{} for _ in children]
    queue = collections.deque([0])
    while queue:
        state = queue.popleft()
        for token in tokens:
            back = following[suffix[state]].get(token, 0) if state else 0
            child = children[state].get(token)
            if child is None:
                if back:
                    following[state][token] = back
                continue
            following[state][token] = child
            suffix[child] = back
            ends[child] |= ends[back]
            parts[child] = parts[back] | parts[child]
            completed[child] |= completed[back]
            queue.append(child)
    bans = [
        {token for token, state in by_token.items() if completed[state]}
        for by_token in following
    ]
    sizes = [max(map(len, term)) for term in terms]
    return Automaton(tokens, following, bans, ends, parts, sizes)


def missing_terms(automaton: Automaton, ids: Ids) -> list[int]:
    """The numbers of the terms that an output lacks."""
    state, missing = 0, set(range(len(automaton.sizes)))
    for token in ids:
        state = automaton.next[state].get(token, 0)
        missing -= automaton.ends[state]
    return sorted(missing)
