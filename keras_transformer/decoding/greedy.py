"""Greedy search and sampling, with one row for each sentence."""

import typing
from collections.abc import Callable

import numpy as np
from keras import ops

from keras_transformer.base.backend import Tensor
from keras_transformer.config import DecodingConfig
from keras_transformer.decoding.phrases import Reading, first_reading, read
from keras_transformer.decoding.rules import (
    MISSING_SCORE,
    Cache,
    Constraints,
    Rules,
    SearchResult,
    Step,
    allowed_candidates,
    is_banned,
    length_penalty,
    rules_at,
    steer,
)
from keras_transformer.decoding.selection import (
    count_tokens,
    first_position,
    int_range,
    is_failure,
    value_at,
    write_column,
)
from keras_transformer.text.vocabulary import BOS, EOS, PAD

# Logits [N, V] -> the token of each row, and its logit.
Choose = Callable[[Tensor, Rules], tuple[Tensor, Tensor]]


def choose_best(logits: Tensor, rules: Rules) -> tuple[Tensor, Tensor]:
    """Chooses the best token of each row: logits [N, V] -> ids, logits [N]."""
    values, ids = allowed_candidates(logits, 1, rules)
    best = ops.max(values, axis=-1, keepdims=True)
    rank = first_position(values == best)  # the lowest of equal ids
    return value_at(ids, rank), best[:, 0]


def choose_sample(logits: Tensor, rules: Rules) -> tuple[Tensor, Tensor]:
    """Samples a token for each row: logits [N, V] -> ids, logits [N]."""
    config = rules.config
    every_id = int_range(logits.shape[-1])[None]  # [1, V]
    banned = is_banned(every_id, rules)  # [N, V]
    allowed = ops.where(banned, -np.inf, logits)
    values, ids = _tokens_to_sample_from(allowed, config)
    kept = _kept_weights(values / config.temperature, config)
    # XLA sums in parallel, so rounding can change a sum where nothing is added.
    # The sums at dropped tokens are therefore ignored.
    mass = ops.where(kept > 0.0, ops.cumsum(kept, axis=-1), 0.0)
    total = ops.max(mass, axis=-1, keepdims=True)  # [N, 1]
    draw = ops.expand_dims(rules.draw, axis=1)  # [N] -> [N, 1]
    rank = first_position(mass > draw * total)
    return value_at(ids, rank), value_at(values, rank)


def _tokens_to_sample_from(
    logits: Tensor, config: DecodingConfig
) -> tuple[Tensor, Tensor]:
    """Selects values and ids [N, k], sorted only for `top_k` and `top_p`."""
    vocab_size = logits.shape[-1]
    if config.top_k or config.top_p < 1.0:
        return ops.top_k(logits, min(config.top_k or vocab_size, vocab_size))
    every_id = int_range(vocab_size)[None]  # [1, V]
    return logits, ops.broadcast_to(every_id, ops.shape(logits))


def _kept_weights(values: Tensor, config: DecodingConfig) -> Tensor:
    """Computes weights proportional to probabilities, 0 if dropped: [N, k]."""
    weights = ops.exp(values - ops.max(values, axis=-1, keepdims=True))
    if config.top_p == 1.0 and not config.epsilon:
        return weights
    mass = ops.cumsum(weights, axis=-1)
    total = ops.max(mass, axis=-1, keepdims=True)  # [N, 1]
    kept = weights > 0.0
    if config.top_p < 1.0:
        kept = kept & (mass - weights < config.top_p * total)
    if config.epsilon:  # the largest weight is 1
        kept = kept & (weights >= ops.minimum(config.epsilon * total, 1.0))
    return ops.where(kept, weights, 0.0)


class RowState(typing.NamedTuple):
    """One hypothesis for each sentence, between two positions."""

    index: Tensor  # int32 scalar, position of `last_ids`; tokens so far
    last_ids: Tensor  # int32 [B], the next input of `step`
    ids: Tensor  # int32 [B, T], tokens so far, then PAD
    log_probs: Tensor  # float32 [B]
    max_lengths: Tensor  # int32 [B], constant
    constraints: Constraints  # constant
    reading: Reading  # state of the automata in `constraints.phrases`
    done: Tensor  # bool [B], whether the row is frozen


def follow_rows(
    step: Step,
    cache: Cache,
    max_lengths: Tensor,
    config: DecodingConfig,
    constraints: Constraints,
    size: int,
    choose: Choose,
    run: Callable[..., RowState],
) -> tuple[SearchResult, Tensor]:
    """Extends one row for each sentence, token by token.

    Arguments and results are as in `search_beams`; `choose` chooses the tokens.
    """

    def extend(state: RowState, cache: Cache) -> tuple[RowState, Cache]:
        logits, cache = step(state.last_ids, cache, state.index)
        rules = rules_at(config, state)
        logits, normalizer = steer(logits, state.ids, rules)
        ids, id_logits = choose(logits, rules)
        ids = ops.where(state.done, PAD, ids)
        index = state.index + 1
        if constraints.phrases.exist:
            reading = read(
                state.constraints.phrases, state.reading, ids[:, None]
            )
            state = state._replace(reading=reading)
        state = state._replace(
            index=index,
            last_ids=ids,
            ids=write_column(state.ids, ids, state.index),
            log_probs=ops.where(
                state.done,
                state.log_probs,
                state.log_probs + (id_logits - normalizer),
            ),
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
        constraints=constraints,
        reading=first_reading(constraints.phrases, zeros[:, None]),
        done=max_lengths < 1,
    )
    state = run(lambda state: extend, state, cache)
    failed = is_failure(state.log_probs)  # [B]
    missing = state.log_probs < MISSING_SCORE  # no token was allowed
    log_probs = ops.where(failed, np.nan, state.log_probs)
    log_probs = ops.where(missing, MISSING_SCORE, log_probs)
    ids = ops.where((failed | missing)[:, None], PAD, state.ids)  # [B, T]
    lengths = count_tokens(ids)  # [B]
    scores = log_probs / length_penalty(config, lengths)
    scores = ops.where(missing, MISSING_SCORE, scores)
    result = SearchResult(  # [B, ...] -> [B, 1, ...]
        *(value[:, None] for value in (ids, scores, log_probs, lengths))
    )
    return result, state.done
