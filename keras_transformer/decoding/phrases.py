"""Phrases in outputs: terms that a sentence must have, words it must not.

An automaton of a sentence (Aho and Corasick 1975) reads each hypothesis token
by token. Its state is the longest beginning of a phrase that the hypothesis
ends with, so one number says how far every phrase is, also where phrases
overlap. The allocation of the beam is that of Post and Vilar (2018), "Fast
Lexically Constrained Decoding with Dynamic Beam Allocation".
"""

import collections
import typing
from collections.abc import Sequence

import numpy as np
from keras import ops

from keras_transformer.backend import Tensor
from keras_transformer.decoding.selection import row_numbers

NO_TOKEN = -1

Ids: typing.TypeAlias = Sequence[int]


class Phrases(typing.NamedTuple):
    """The automaton of each sentence, int32, a row for each.

    L is the number of different tokens of a sentence's phrases, N of states, K
    of terms. A part that no sentence has is ().

    Attributes:
        tokens: `[B, L]`, then `NO_TOKEN`.
        next: `[B, N, L + 1]`, the state after each of the tokens; the last is
            the state after any other token. State 0 is the beginning.
        bans: `[B, N, L]`, 1 for tokens that would complete a forbidden phrase.
        ends: `[B, N, K]`, 1 for terms that end in a state.
        parts: `[B, N, K]`, the tokens of a term that is not complete.
        sizes: `[B, K]`, the tokens of a whole term; 0 for no term.
    """

    tokens: Tensor = ()
    next: Tensor = ()
    bans: Tensor = ()
    ends: Tensor = ()
    parts: Tensor = ()
    sizes: Tensor = ()

    @property
    def exist(self) -> bool:
        """Whether any sentence has a phrase."""
        return not isinstance(self.tokens, tuple)

    @property
    def has_bans(self) -> bool:
        """Whether any sentence has a forbidden phrase."""
        return not isinstance(self.bans, tuple)

    @property
    def has_terms(self) -> bool:
        """Whether any sentence has a term."""
        return not isinstance(self.ends, tuple)


NO_PHRASES = Phrases()


class Reading(typing.NamedTuple):
    """What an automaton has read of M hypotheses of each sentence.

    Attributes:
        states: int32 `[B, M]`.
        met: bool `[B, M, K]`, terms that were complete; () without terms.
    """

    states: Tensor = ()
    met: Tensor = ()


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
    {7: 1, 8: 2, 9: 4}
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


def stack(
    automata: Sequence[Automaton | None], num_rows: int | None = None
) -> Phrases:
    """The `Phrases` of a batch. Few shapes: sizes are powers of two.

    Args:
        automata: Of each sentence; None for one without phrases.
        num_rows: B; sentences that are not given have no phrases.
    """
    given = [automaton for automaton in automata if automaton is not None]
    num_rows = num_rows or len(automata)
    num_tokens = _rounded(max(len(a.tokens) for a in given))
    num_states = _rounded(max(len(a.next) for a in given))
    num_terms = _rounded(max(len(a.sizes) for a in given))
    shape = num_rows, num_states
    tokens = np.full((num_rows, num_tokens), NO_TOKEN, np.int32)
    following = np.zeros((*shape, num_tokens + 1), np.int32)
    bans = np.zeros((*shape, num_tokens), np.int32)
    ends, parts = np.zeros((2, *shape, num_terms), np.int32)
    sizes = np.zeros((num_rows, num_terms), np.int32)
    for row, automaton in enumerate(automata):
        if automaton is None:
            continue
        tokens[row, : len(automaton.tokens)] = automaton.tokens
        sizes[row, : len(automaton.sizes)] = automaton.sizes
        place = {token: i for i, token in enumerate(automaton.tokens)}
        for state, by_token in enumerate(automaton.next):
            for token, to in by_token.items():
                following[row, state, place[token]] = to
            for token in automaton.bans[state]:
                bans[row, state, place[token]] = 1
            ends[row, state, list(automaton.ends[state])] = 1
            for term, size in automaton.parts[state].items():
                parts[row, state, term] = size
    has_terms = any(automaton.sizes for automaton in given)
    return Phrases(
        tokens,
        following,
        bans if bans.any() else (),
        *((ends, parts, sizes) if has_terms else ()),
    )


def _rounded(number):
    """The next power of two, at least 1."""
    return 1 << max(0, number - 1).bit_length()


# ---- In a search -------------------------------------------------------------


def first_reading(phrases: Phrases, hypotheses: Tensor) -> Reading:
    """Before the first token of hypotheses `[B, M]`; () without phrases."""
    if not phrases.exist:
        return Reading()
    states = ops.zeros_like(hypotheses)
    if not phrases.has_terms:
        return Reading(states, ())
    none = phrases.sizes[:, None] == 0  # [B, 1, K]
    return Reading(states, none | (states[:, :, None] > 0))


def read(phrases: Phrases, reading: Reading, ids: Tensor) -> Reading:
    """The `Reading` after one more token of each hypothesis, int32 `[B, M]`."""
    is_token = ids[:, :, None] == phrases.tokens[:, None]  # [B, M, L]
    num_tokens = ops.shape(phrases.tokens)[1]
    column = ops.where(is_token, ops.arange(num_tokens, dtype="int32"), 0)
    column = ops.sum(column, axis=2)
    column = ops.where(ops.any(is_token, axis=2), column, num_tokens)
    rows = _at_states(phrases.next, reading.states)  # [B, M, L + 1]
    states = ops.take_along_axis(rows, column[:, :, None], axis=2)[:, :, 0]
    if not phrases.has_terms:
        return Reading(states, ())
    ends = _at_states(phrases.ends, states) > 0
    return Reading(states, reading.met | ends)


def covered(phrases: Phrases, reading: Reading) -> Tensor:
    """Tokens of terms that hypotheses have: int32 `[B, M]`.

    Those of complete terms, and of one that is not: the longest.
    """
    parts = _at_states(phrases.parts, reading.states)  # [B, M, K]
    part = ops.max(ops.where(reading.met, 0, parts), axis=2)
    whole = ops.where(reading.met, phrases.sizes[:, None], 0)
    return ops.sum(whole, axis=2) + part


def banned_tokens(phrases: Phrases, states: Tensor) -> Tensor:
    """Which of the `tokens` may not come next: bool `[B, M, L]`."""
    return _at_states(phrases.bans, states) > 0


def allocate(
    values: Tensor, banks: Tensor, may_live: Tensor, number: int
) -> Tensor:
    """Chooses the candidates that live on: places, int32 `[B, number]`.

    The best of each bank come first, those of the bank that covers most tokens
    before the others; then the second best of each, and so on. So at least one
    hypothesis comes nearer to all terms at each position.

    Args:
        values: float32 `[B, P]`, log-probabilities of the candidates.
        banks: int32 `[B, P]`, the tokens of terms that each covers.
        may_live: bool `[B, P]`.
    """
    values = ops.where(may_live, values, -np.inf)
    order = ops.cast(ops.argsort(-values, axis=1), "int32")  # best first
    sorted_banks = ops.take_along_axis(banks, order, axis=1)
    same = sorted_banks[:, :, None] == sorted_banks[:, None]  # [B, P, P]
    places = ops.arange(ops.shape(values)[1], dtype="int32")
    before = places[None] < places[:, None]
    ranks = ops.sum(ops.cast(same & before, "int32"), axis=2)  # in its bank
    # Integers below 2^24, which float32 holds: banks are below 2^10.
    keys = ops.cast(sorted_banks - ranks * 1024, "float32")
    exists = ops.take_along_axis(values, order, axis=1) > -np.inf
    _, chosen = ops.top_k(ops.where(exists, keys, -np.inf), number)
    return ops.take_along_axis(order, chosen, axis=1)


def _at_states(table, states):
    """Rows of a table [B, N, k] at states [B, M] -> [B, M, k]."""
    flat = ops.reshape(table, (-1, ops.shape(table)[2]))
    rows = row_numbers(states) * ops.shape(table)[1] + states
    return ops.take(flat, rows, axis=0)
