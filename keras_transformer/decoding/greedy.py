"""Greedy search, and the loop that sampling shares: a row for each sentence."""

import typing

import numpy as np
from keras import ops

from keras_transformer.backend import Tensor
from keras_transformer.decoding.results import (
    MISSING_SCORE,
    SearchResult,
    length_penalty,
)
from keras_transformer.decoding.rules import (
    allowed_candidates,
    fail_at_wrong_prefix,
    forbid_repeats,
    force_prefix,
)
from keras_transformer.decoding.selection import (
    count_tokens,
    first_position,
    float32_logits,
    is_failure,
    log_normalizer,
    value_at,
    write_column,
)
from keras_transformer.vocabulary import BOS, EOS, PAD


def choose_best(logits, index, rules):
    """The most probable tokens and their logits: [N, V] -> [N], [N]."""
    values, ids = allowed_candidates(logits, 1, index, rules)
    best = ops.max(values, axis=-1, keepdims=True)
    rank = first_position(values == best)  # the lowest of equal ids
    return value_at(ids, rank), best[:, 0]


class RowState(typing.NamedTuple):
    """One hypothesis for each sentence, between two positions.

    Attributes:
        index: int32 scalar, position of `last_ids`; number of tokens so far.
        last_ids: int32 `[B]`, the next input of `step`.
        ids: int32 `[B, T]`, tokens so far, then PAD.
        log_probs: float32 `[B]`.
        max_lengths: int32 `[B]`, constant.
        done: bool `[B]`, whether the row is frozen.
    """

    index: Tensor
    last_ids: Tensor
    ids: Tensor
    log_probs: Tensor
    max_lengths: Tensor
    done: Tensor


def follow_rows(step, cache, max_lengths, rules, size, choose, run):
    """Extends one row for each sentence, a token at a time.

    Args:
        step, cache: As in `search`.
        max_lengths: int32 [B].
        rules: The `Rules`.
        size: Size of the token buffers.
        choose: A function of logits [N, V], position and rules that returns
            ids [N] and their logits [N].
        run: The loop, `row_loop.run` with its options.

    Returns:
        The `SearchResult`, and bool [B]: whether the search has ended.
    """

    def extend(state, cache):
        logits, cache = step(state.last_ids, cache, state.index)
        logits = float32_logits(logits)
        steered = force_prefix(logits, state.index, rules)
        if rules.config.no_repeat_ngram:
            steered = forbid_repeats(steered, state.ids, state.index, rules)
        ids, id_logits = choose(steered, state.index, rules)
        gains = id_logits - log_normalizer(logits)  # [N]
        gains = fail_at_wrong_prefix(gains, logits, state.index, rules)
        ids = ops.where(state.done, PAD, ids)
        index = state.index + 1
        state = RowState(
            index=index,
            last_ids=ids,
            ids=write_column(state.ids, ids, state.index),
            log_probs=ops.where(
                state.done, state.log_probs, state.log_probs + gains
            ),
            max_lengths=state.max_lengths,
            done=state.done | (ids == EOS) | (index >= state.max_lengths),
        )
        return state, cache

    zeros = ops.zeros_like(max_lengths)
    state = RowState(
        index=ops.zeros((), "int32"),
        last_ids=zeros + BOS,
        ids=zeros[:, None] + ops.zeros((size,), "int32"),  # [B, T]
        log_probs=ops.cast(zeros, "float32"),
        max_lengths=max_lengths,
        done=max_lengths < 1,
    )
    state = run(lambda state: extend, state, cache)
    failed = is_failure(state.log_probs)  # [B]
    missing = state.log_probs < MISSING_SCORE  # no token was allowed
    log_probs = ops.where(failed, np.nan, state.log_probs)
    log_probs = ops.where(missing, MISSING_SCORE, log_probs)
    ids = ops.where((failed | missing)[:, None], PAD, state.ids)  # [B, T]
    lengths = count_tokens(ids)  # [B]
    scores = log_probs / length_penalty(rules.config, lengths)
    scores = ops.where(missing, MISSING_SCORE, scores)
    result = SearchResult(  # [B, ...] -> [B, 1, ...]
        *(value[:, None] for value in (ids, scores, log_probs, lengths))
    )
    return result, state.done
