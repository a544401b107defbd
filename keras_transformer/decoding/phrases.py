"""Phrases in outputs: terms that a sentence must have, words it must not.

An automaton of a sentence (Aho and Corasick 1975) reads each hypothesis token
by token. Its state is the longest beginning of a phrase that the hypothesis
ends with, so one number says how far every phrase is, also where phrases
overlap. The allocation of the beam is that of Post and Vilar (2018), "Fast
Lexically Constrained Decoding with Dynamic Beam Allocation".
"""

import typing

import numpy as np
from keras import ops

from keras_transformer.backend import Tensor
from keras_transformer.decoding.selection import row_numbers

NO_TOKEN = -1


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
