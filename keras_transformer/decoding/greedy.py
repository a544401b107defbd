"""Greedy search, and what it shares with sampling: one row per sentence."""

import typing

import numpy as np
from keras import ops

from keras_transformer import row_loop
from keras_transformer.backend import Tensor
from keras_transformer.config import DecodingConfig
from keras_transformer.decoding.arguments import (
    Cache,
    Step,
    check_cache,
    checked_positions,
    clip_limits,
    float32_logits,
)
from keras_transformer.decoding.results import (
    MISSING_SCORE,
    LengthPenalty,
    SearchResult,
    without_unfinished,
)
from keras_transformer.decoding.rules import (
    Rules,
    allowed_candidates,
    fail_at_wrong_prefix,
    forbid_repeats,
    force_prefix,
    pad_prefix,
)
from keras_transformer.decoding.selection import (
    count_tokens,
    first_position,
    is_failure,
    log_normalizer,
    value_at,
    write_column,
)
from keras_transformer.fields import check_values
from keras_transformer.vocabulary import BOS, EOS, PAD


def greedy_search(
    step: Step,
    cache: Cache,
    max_lengths: Tensor,
    *,
    max_length: int,
    length_penalty: float,
    min_length: int = DecodingConfig.min_length,
    no_repeat_ngram: int = DecodingConfig.no_repeat_ngram,
    prefix: Tensor | None = None,
    length_normalization: str = DecodingConfig.length_normalization,
    max_positions: int | None = None,
    pick: row_loop.Pick | None = None,
) -> SearchResult:
    """Takes the most probable token at each position.

    Of equally probable tokens the one with the lowest id is taken.

    Args:
        step: The function described above, N = B.
        cache: Nest of tensors `[B, ...]` for position 0.
        max_lengths: int32 `[B]`, the longest output of each sentence in tokens,
            EOS included; values above `max_length` count as `max_length`.
        max_length: T, the size of the token buffers, as an int.
        length_penalty: Exponent of the length penalty, as a float.
        min_length: Smallest length in tokens, EOS included.
        no_repeat_ngram: Tokens of an n-gram that may not occur twice, as an
            int; 0: all may.
        prefix: int32 `[B, P]`, the first tokens, `PAD` after them; or None.
        length_normalization: What the length penalty is a power of, as in
            `DecodingConfig`.
        max_positions, pick: As in `beam_search`.

    Returns:
        A `SearchResult` with W = 1.

    Raises:
        ValueError: An argument is outside its range, or shapes do not fit.

    >>> logits = np.log([[.1, .1, .2, .6], [.1, .1, .7, .1]])[:, None]
    >>> greedy_search(
    ...     lambda ids, cache, index: (ops.take(logits, index, axis=0), cache),
    ...     (), np.array([2]), max_length=2, length_penalty=0.0,
    ... ).ids.numpy()
    array([[[3, 2]]], dtype=int32)
    """
    check_values(
        DecodingConfig,
        length_penalty=length_penalty,
        length_normalization=length_normalization,
        min_length=min_length,
        no_repeat_ngram=no_repeat_ngram,
    )

    rules = Rules(
        min_length, no_repeat_ngram, pad_prefix(prefix, max_length, 1)
    )
    penalty = LengthPenalty(length_penalty, length_normalization)

    def choose(logits, index):
        values, ids = allowed_candidates(logits, 1, index, rules)
        best = ops.max(values, axis=-1, keepdims=True)
        rank = first_position(values == best)  # of equals the lowest id
        return value_at(ids, rank), best[:, 0]

    return follow_one(
        step,
        cache,
        max_lengths,
        choose,
        max_length,
        penalty,
        rules,
        max_positions=max_positions,
        pick=pick,
    )


class RowState(typing.NamedTuple):
    """One hypothesis for each sentence, between two positions.

    Attributes:
        index: int32 scalar, position of `last_ids`; tokens emitted so far.
        last_ids: int32 `[B]`, what `step` is given next.
        ids: int32 `[B, T]`, tokens so far, then PAD.
        log_probs: float32 `[B]`.
        max_lengths: int32 `[B]`, which do not change.
        done: bool `[B]`, whether the row is frozen.
    """

    index: Tensor
    last_ids: Tensor
    ids: Tensor
    log_probs: Tensor
    max_lengths: Tensor
    done: Tensor


def follow_one(
    step,
    cache,
    max_lengths,
    choose,
    max_length,
    penalty,
    rules,
    max_positions=None,
    pick=None,
):
    """Extends one row per sentence by choose(logits, index) -> ids, logits."""
    max_lengths = clip_limits(max_lengths, max_length)
    check_cache(cache, max_lengths, 1)
    max_positions = checked_positions(
        max_positions, max_length, pick, rules.prefix
    )

    def extend(state, cache):
        logits, cache = step(state.last_ids, cache, state.index)
        logits = float32_logits(logits)
        steered = force_prefix(logits, state.index, rules)
        if rules.no_repeat_ngram:
            steered = forbid_repeats(steered, state.ids, state.index, rules)
        ids, id_logits = choose(steered, state.index)  # [N, V] -> [N], [N]
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
        ids=zeros[:, None]
        + ops.zeros((max_positions or max_length,), "int32"),  # [B, T]
        log_probs=ops.cast(zeros, "float32"),
        max_lengths=max_lengths,
        done=max_lengths < 1,
    )
    state = row_loop.run(
        lambda state: extend, state, cache, max_steps=max_positions, pick=pick
    )
    failed = is_failure(state.log_probs)  # [B]
    missing = state.log_probs < MISSING_SCORE  # no token was allowed
    log_probs = ops.where(failed, np.nan, state.log_probs)
    log_probs = ops.where(missing, MISSING_SCORE, log_probs)
    ids = ops.where((failed | missing)[:, None], PAD, state.ids)  # [B, T]
    lengths = count_tokens(ids)  # [B]
    scores = log_probs / penalty.of(lengths)
    scores = ops.where(missing, MISSING_SCORE, scores)
    result = SearchResult(  # [B, ...] -> [B, 1, ...]
        *(value[:, None] for value in (ids, scores, log_probs, lengths))
    )
    if max_positions is None:
        return result
    return without_unfinished(result, state.done)
