"""Phrases in outputs: terms that must be there, words that must not.

Each sentence has an automaton (Aho and Corasick 1975) that reads its hypotheses
token by token. The state is the longest prefix of a phrase that the hypothesis
ends with. So one number tells how much of every phrase has been emitted, even
if phrases overlap. The beam is allocated as in Post and Vilar (2018), "Fast
Lexically Constrained Decoding with Dynamic Beam Allocation".
"""

import typing

import numpy as np
from keras import ops

from keras_transformer.base.backend import Tensor
from keras_transformer.decoding.selection import row_numbers

NO_TOKEN = -1


class Phrases(typing.NamedTuple):
    """The automata of the sentences as int32 tensors, one row per sentence.

    A sentence has up to L different tokens in its phrases, N states and K
    terms. A field that no sentence needs is ().
    """

    tokens: Tensor = ()  # `[B, L]`, ascending, padded with `NO_TOKEN`
    # `[B, N, L + 1]`, the state after each of the tokens; the last is the state
    # after any other token. State 0 is the initial state.
    next: Tensor = ()
    # `[B, N, L]`, 1 for tokens that would complete a forbidden phrase.
    bans: Tensor = ()
    ends: Tensor = ()  # `[B, N, K]`, 1 for terms that end in a state
    parts: Tensor = ()  # `[B, N, K]`, tokens of an incomplete term so far
    sizes: Tensor = ()  # `[B, K]`, tokens of a complete term; 0 for no term

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
    """The states of the automata after M hypotheses of each sentence."""

    states: Tensor = ()  # int32 `[B, M]`
    # bool `[B, M, K]`, whether each term has been completed; () without terms.
    met: Tensor = ()


# ---- In a search -------------------------------------------------------------


def first_reading(phrases: Phrases, hypotheses: Tensor) -> Reading:
    """Makes the `Reading` before the first token, for a shape `[B, M]`."""
    if not phrases.exist:
        return Reading()
    states = ops.zeros_like(hypotheses)
    if not phrases.has_terms:
        return Reading(states, ())
    none = phrases.sizes[:, None] == 0  # [B, 1, K]
    return Reading(states, none | (states[:, :, None] > 0))


def read(phrases: Phrases, reading: Reading, ids: Tensor) -> Reading:
    """Reads the next token of each hypothesis: `ids`, int32 `[B, M]`."""
    tokens = phrases.tokens
    # One search in the tokens of all rows: each row is shifted above the last.
    base = ops.max(tokens) + 2
    above = row_numbers(tokens) * base
    found = ops.searchsorted(
        ops.reshape(ops.where(tokens < 0, base - 1, tokens) + above, (-1,)),
        ops.reshape(ops.minimum(ids, base - 1) + above, (-1,)),
    )
    num_tokens = ops.shape(tokens)[1]
    column = ops.cast(ops.reshape(found, ops.shape(ids)), "int32")
    column = ops.clip(column - row_numbers(tokens) * num_tokens, 0, num_tokens)
    there = ops.take_along_axis(
        tokens, ops.minimum(column, num_tokens - 1), axis=1
    )
    column = ops.where(there == ids, column, num_tokens)
    states = row_numbers(tokens) * ops.shape(phrases.next)[1] + reading.states
    states = states * (num_tokens + 1) + column
    states = ops.take(ops.reshape(phrases.next, (-1,)), states)
    if not phrases.has_terms:
        return Reading(states, ())
    ends = _at_states(phrases.ends, states) > 0
    return Reading(states, reading.met | ends)


def covered(phrases: Phrases, reading: Reading) -> Tensor:
    """Counts the tokens of terms in each hypothesis: int32 `[B, M]`.

    It adds up all complete terms and the longest incomplete one.
    """
    parts = _at_states(phrases.parts, reading.states)  # [B, M, K]
    part = ops.max(ops.where(reading.met, 0, parts), axis=2)
    whole = ops.where(reading.met, phrases.sizes[:, None], 0)
    return ops.sum(whole, axis=2) + part


def banned_tokens(phrases: Phrases, states: Tensor) -> Tensor:
    """Tells which of `phrases.tokens` may not come next: bool `[B, M, L]`."""
    return _at_states(phrases.bans, states) > 0


def allocate(
    values: Tensor, banks: Tensor, may_live: Tensor, number: int
) -> Tensor:
    """Chooses the candidates that stay live: indices, int32 `[B, number]`.

    Candidates that cover equally many tokens of terms form a bank. The best of
    each bank come first, in descending order of covered tokens; then the second
    best of each, and so on. So at each position at least one hypothesis gets
    closer to all terms. Arguments are `[B, P]`: `values`, log-probabilities of
    the candidates; `banks`, int32, the tokens that each covers; `may_live`,
    bool.
    """
    values = ops.where(may_live, values, -np.inf)
    size = ops.shape(values)[1]
    places = ops.arange(size, dtype="int32")[None]

    def sort(keys: Tensor, *arrays: Tensor) -> list[Tensor]:
        order = ops.cast(ops.argsort(keys, axis=1), "int32")
        return [ops.take_along_axis(x, order, axis=1) for x in arrays]

    places = ops.broadcast_to(places, ops.shape(values))
    banks, order, values = sort(-values, banks, places, values)
    # Sorted by bank, and the best first in each bank.
    banks, order, values = sort(places - banks * size, banks, order, values)
    before = ops.concatenate([banks[:, :1] + 1, banks[:, :-1]], axis=1)
    is_first = banks != before
    first = ops.sort(ops.where(is_first, places, size), axis=1)
    bank = ops.cumsum(ops.cast(is_first, "int32"), axis=1) - 1
    ranks = places - ops.take_along_axis(first, bank, axis=1)
    last = size * size
    keys = ops.where(values > -np.inf, ranks * size + places, last)
    return sort(keys, order)[0][:, :number]


def _at_states(table, states):
    """Takes rows of a table [B, N, k] at states [B, M] -> [B, M, k]."""
    flat = ops.reshape(table, (-1, ops.shape(table)[2]))
    rows = row_numbers(states) * ops.shape(table)[1] + states
    return ops.take(flat, rows, axis=0)
