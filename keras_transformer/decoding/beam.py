"""Beam search (sec. 6.1): the state and the stages of one position."""

import typing

import keras
import numpy as np
from keras import ops

from keras_transformer import row_loop
from keras_transformer.backend import Tensor
from keras_transformer.config import DecodingConfig
from keras_transformer.decoding.arguments import (
    Cache,
    Reorder,
    Step,
    check_cache,
    checked_positions,
    clip_limits,
    float32_logits,
)
from keras_transformer.decoding.greedy import greedy_search
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
    is_banned,
    pad_prefix,
)
from keras_transformer.decoding.selection import (
    block_size,
    count_tokens,
    gather_rows,
    int_range,
    is_failure,
    log_normalizer,
    row_numbers,
    write_column,
)
from keras_transformer.decoding.stopping import RULES
from keras_transformer.fields import check_values, is_of_kind
from keras_transformer.vocabulary import BOS, EOS, PAD


def beam_search(
    step: Step,
    cache: Cache,
    max_lengths: Tensor,
    *,
    max_length: int,
    beam_size: int,
    length_penalty: float,
    min_length: int = DecodingConfig.min_length,
    no_repeat_ngram: int = DecodingConfig.no_repeat_ngram,
    prefix: Tensor | None = None,
    length_normalization: str = DecodingConfig.length_normalization,
    stopping: str = DecodingConfig.stopping,
    reorder: Reorder | None = None,
    num_best: int | None = None,
    max_positions: int | None = None,
    pick: row_loop.Pick | None = None,
) -> SearchResult:
    """Keeps the W most probable unfinished hypotheses, and the W best finished.

    At each position the 2W most probable continuations of the W live
    hypotheses are looked at. Those that are EOS compete, by score, for the W
    places among the finished; the W best of the others live on.

    A sentence's search ends at its length limit, or as soon as no live
    hypothesis can reach the score of the worst of `num_best` finished ones,
    even if all it still has to emit were certain and it had the greatest
    length: the result is exactly that of a search which goes on to the limit.
    If fewer than W have finished at the limit, live ones, by score, follow the
    finished ones.

    The other values of `stopping` end it as other systems do; see
    `stopping.py`.

    `beam_size=1` is `greedy_search`: it ends where EOS is most probable.

    Args:
        step: The function described above, N = B * beam_size.
        cache: Nest of tensors `[B * beam_size, ...]` for position 0.
        max_lengths: int32 `[B]`, the longest output of each sentence in tokens,
            EOS included; values above `max_length` count as `max_length`.
        max_length: T, the size of the token buffers, as an int.
        beam_size: W, the number of hypotheses, as an int.
        length_penalty: Exponent of the length penalty, as a float.
        min_length: Smallest length in tokens, EOS included.
        no_repeat_ngram: Tokens of an n-gram that may not occur twice, as an
            int; 0: all may.
        prefix: int32 `[B, P]`, the first tokens, `PAD` after them; or None.
        length_normalization: What the length penalty is a power of, as in
            `DecodingConfig`.
        stopping: When the search ends, as in `DecodingConfig`.
        reorder: A function of the cache and of parents, int32 `[B, W]` in
            [0, W), that returns the cache of hypotheses which continue these;
            None: the rows of every tensor are picked.
        num_best: How many hypotheses are returned; None: W. The fewer, the
            earlier the search ends.
        max_positions: Positions to search at most, as an int: the token buffers
            have no more. Sentences whose search goes on have the length
            `UNFINISHED`, and the others the same results. None: T.
        pick: A function of the cache and of sentences, int32 `[b]`, that
            returns the cache of these: sentences leave the batch as their
            searches end; see `row_loop.run`. None: they stay. With it there can
            be no prefix and no `max_positions`.

    Returns:
        A `SearchResult` of `num_best` hypotheses.

    Raises:
        ValueError: An argument is outside its range, or shapes do not fit.

    >>> logits = np.log([[[.1, .1, .2, .6]] * 2, [[.1, .1, .7, .1]] * 2])
    >>> beam_search(
    ...     lambda ids, cache, index: (ops.take(logits, index, axis=0), cache),
    ...     (), np.array([2]), max_length=2, beam_size=2, length_penalty=0.0,
    ... ).ids.numpy()
    array([[[3, 2],
            [2, 0]]], dtype=int32)
    """
    check_values(
        DecodingConfig,
        beam_size=beam_size,
        length_penalty=length_penalty,
        length_normalization=length_normalization,
        stopping=stopping,
        min_length=min_length,
        no_repeat_ngram=no_repeat_ngram,
    )
    num_best = beam_size if num_best is None else num_best
    if not is_of_kind(num_best, int) or not 1 <= num_best <= beam_size:
        raise ValueError(
            f"num_best must be an int in [1, beam_size]. Received: num_best="
            f"{num_best!r}, beam_size={beam_size}"
        )
    if beam_size == 1:
        return greedy_search(
            step,
            cache,
            max_lengths,
            max_length=max_length,
            length_penalty=length_penalty,
            min_length=min_length,
            no_repeat_ngram=no_repeat_ngram,
            prefix=prefix,
            length_normalization=length_normalization,
            max_positions=max_positions,
            pick=pick,
        )
    penalty = LengthPenalty(length_penalty, length_normalization)
    rule = RULES[stopping](penalty, num_best)
    max_lengths = clip_limits(max_lengths, max_length)
    rules = Rules(
        min_length,
        no_repeat_ngram,
        pad_prefix(prefix, max_length, beam_size),
    )
    max_positions = checked_positions(max_positions, max_length, pick, prefix)
    if reorder is None:
        check_cache(cache, max_lengths, beam_size)
        reorder = _gather_nest

    def make_grow(first):
        sentences = row_numbers(first.done)
        limit_penalties = penalty.of(first.max_lengths)

        def grow(state, cache):
            live_ids = ops.reshape(state.live_last_ids, (-1,))  # [B * W]
            logits, cache = step(live_ids, cache, state.index)
            logits = float32_logits(logits)  # [B * W, V]
            candidates = _best_candidates(logits, state, sentences, rules)
            choice = _choose_beams(candidates, state, sentences, penalty, rule)
            state = _next_beams(choice, state, sentences)
            cache = reorder(cache, choice.rows[:, beam_size:] - beam_size)
            state = state._replace(
                done=state.done
                | (state.index >= state.max_lengths)
                | rule.is_over(state, limit_penalties)
            )
            return state, cache

        return grow

    state = row_loop.run(
        make_grow,
        _first_beams(max_lengths, max_positions or max_length, beam_size),
        cache,
        max_steps=max_positions,
        pick=pick,
    )
    sentences = row_numbers(max_lengths)
    state = rule.at_limit(state, sentences)
    result = _ranked_result(state, sentences, penalty, rule)
    if max_positions is not None:
        result = without_unfinished(result, state.done)
    return SearchResult(*(values[:, :num_best] for values in result))


class BeamState(typing.NamedTuple):
    """The hypotheses of each sentence, between two positions.

    There are W finished hypotheses, best score first, and W live ones, most
    probable first. A free place has score or log-probability -inf.

    Attributes:
        index: int32 scalar, position of `live_last_ids`; tokens emitted so far.
        ids: int32 `[B, 2W, T]`, tokens so far, then PAD: of the finished, then
            of the live. They share a buffer so that one gather moves both.
        finished_scores: float32 `[B, W]`.
        live_log_probs: float32 `[B, W]`.
        live_last_ids: int32 `[B, W]`, what `step` is given next.
        max_lengths: int32 `[B]`, which do not change.
        done: bool `[B]`, whether the sentence is frozen.
    """

    index: Tensor
    ids: Tensor
    finished_scores: Tensor
    live_log_probs: Tensor
    live_last_ids: Tensor
    max_lengths: Tensor
    done: Tensor


class Candidates(typing.NamedTuple):
    """The most probable continuations of a sentence's live hypotheses.

    Attributes:
        parents: int32 `[B, 2W]`, the live hypothesis continued, in [0, W).
        ids: int32 `[B, 2W]`, the token that continues it.
        log_probs: float32 `[B, 2W]`, of the whole, most probable first.
    """

    parents: Tensor
    ids: Tensor
    log_probs: Tensor


class Choice(typing.NamedTuple):
    """The hypotheses that come next.

    Attributes:
        rows: int32 `[B, 2W]`, the row of `BeamState.ids` that each one of the
            finished, then each one of the live continues.
        ids: int32 `[B, 2W]`, the token that continues it; PAD: none.
        finished_scores: float32 `[B, W]`.
        live_log_probs: float32 `[B, W]`.
    """

    rows: Tensor
    ids: Tensor
    finished_scores: Tensor
    live_log_probs: Tensor


def _first_beams(max_lengths, max_length, beam_size):
    """One live hypothesis per sentence, BOS; all other places are free."""
    zeros = ops.zeros_like(max_lengths)[:, None]  # [B] -> [B, 1]
    places = zeros + ops.zeros((beam_size,), "int32")  # [B, 1] -> [B, W]
    no_ids = ops.zeros((2 * beam_size, max_length), "int32")
    return BeamState(
        index=ops.zeros((), "int32"),
        ids=zeros[:, :, None] + no_ids,  # [B, 1, 1] -> [B, 2W, T]
        finished_scores=ops.cast(places, "float32") - np.inf,
        live_log_probs=ops.where(
            int_range(beam_size) == 0, ops.cast(places, "float32"), -np.inf
        ),
        live_last_ids=places + BOS,
        max_lengths=max_lengths,
        done=max_lengths < 1,
    )


def _best_candidates(logits, state, sentences, rules):
    """The 2W best continuations of W hypotheses, of W * V: `Candidates`."""
    beam_size = state.live_log_probs.shape[1]
    steered = force_prefix(logits, state.index, rules)
    if rules.no_repeat_ngram:
        ids = _live_ids(state)
        steered = forbid_repeats(steered, ids, state.index, rules)
    normalizer = log_normalizer(logits)
    normalizer = fail_at_wrong_prefix(normalizer, logits, state.index, rules)
    # What turns logits into log-probabilities of whole hypotheses: [B * W]
    offsets = ops.reshape(state.live_log_probs, (-1,)) - normalizer

    def total(values, rows):
        """Log-probabilities of whole hypotheses: [..., k] of rows [...]."""
        values = values + ops.take(offsets, rows, axis=0)[..., None]
        # No comparison holds for NaN, so that each backend would sort it to
        # another place. Infinity comes first everywhere and stays what it is.
        return ops.where(values < np.inf, values, np.inf)

    hypotheses = sentences * beam_size + int_range(beam_size)  # [B, W]
    size = block_size(logits.shape[-1], 2 * beam_size)
    if size is None or rules.prefix is not None:
        values, ids = allowed_candidates(
            steered, 2 * beam_size, state.index, rules
        )  # [B * W, V] -> [B * W, k]
        shape = (-1, beam_size, ids.shape[-1])
        values, ids = (ops.reshape(x, shape) for x in (values, ids))
        rows = hypotheses
    else:
        values, ids, rows = _blocks_of_best(
            steered, size, total, hypotheses, state.index, rules
        )
    # [B, M, k], of which all k are of one hypothesis, rows [B, M]
    values = total(values, rows)
    width = values.shape[1] * values.shape[2]
    values = ops.reshape(values, (-1, width))
    log_probs, places = ops.top_k(values, 2 * beam_size)  # [B, 2W]
    blocks = places // ids.shape[2]
    return Candidates(
        parents=gather_rows(rows, blocks, sentences) - hypotheses[:, :1],
        ids=gather_rows(ops.reshape(ids, (-1, width)), places, sentences),
        log_probs=log_probs,
    )


def _blocks_of_best(logits, size, total, hypotheses, index, rules):
    """The blocks of the vocabulary that have the best continuations.

    Those 2W of a sentence are in the 2W blocks, of those of its W hypotheses,
    whose best are best; of equals in the first. The rest is not looked at.

    Args:
        logits: float32 [B * W, V].
        size: Tokens of a block.
        total: Function of logits [..., k] and of hypotheses int32 [...] that
            returns the log-probability of each hypothesis with each token.
        hypotheses: int32 [B, W], the rows of the hypotheses.
        index: The position.
        rules: The `Rules`, without a prefix.

    Returns:
        Logits float32 [B, 2W, size], -inf for those that may not be emitted;
        their ids, int32; and the rows of the hypotheses int32 [B, 2W].
    """
    beam_size, num_blocks = hypotheses.shape[1], logits.shape[-1] // size
    blocks = ops.reshape(logits, (-1, size))
    maxima = ops.reshape(ops.max(blocks, axis=-1), (-1, num_blocks))
    # Whatever the rules ban is in the first block.
    banned = is_banned(int_range(size)[None], index, rules)
    first = ops.where(banned, -np.inf, logits[:, :size])
    first = ops.max(first, axis=-1, keepdims=True)  # [B * W, 1]
    maxima = ops.concatenate([first, maxima[:, 1:]], axis=1)
    maxima = ops.reshape(maxima, (-1, beam_size, num_blocks))
    maxima = ops.reshape(
        total(maxima, hypotheses), (-1, beam_size * num_blocks)
    )
    _, best = ops.top_k(maxima, 2 * beam_size)  # [B, 2W]
    # In the order of their positions, so that ties go to the lower.
    best = ops.sort(best, axis=-1)
    best = best + hypotheses[:, :1] * num_blocks
    rows = best // num_blocks
    ids = (best % num_blocks * size)[:, :, None] + int_range(size)
    values = ops.take(blocks, best, axis=0)  # [B, 2W, size]
    banned = is_banned(ids, index, rules)
    return ops.where(banned, -np.inf, values), ids, rows


def _choose_beams(candidates, state, sentences, penalty, rule):
    """Who is finished and who lives after this position: `Choice`.

    The pool has 3W places: the W finished so far, then the 2W candidates. Ties
    go to the lower place. A frozen sentence keeps what it has.
    """
    beam_size = state.finished_scores.shape[1]
    done = state.done[:, None]  # [B, 1]
    ends = candidates.ids == EOS  # [B, 2W]
    scores = candidates.log_probs / penalty.of(state.index + 1)
    finishes, dies, old_scores = ends & ~done, ends, state.finished_scores
    survivors = rule.survivors(state, scores, ends)
    if survivors is not None:
        finishes, dies = finishes & survivors.finish, ends | ~survivors.live
        old_scores = ops.where(survivors.stay | done, old_scores, -np.inf)
    new_scores = ops.where(finishes, scores, -np.inf)
    pool = ops.concatenate([old_scores, new_scores], axis=1)
    scores, finished = ops.top_k(pool, beam_size)  # [B, 3W] -> [B, W]
    log_probs, live = ops.top_k(
        ops.where(dies, -np.inf, candidates.log_probs), beam_size
    )  # [B, 2W] -> [B, W]
    places = ops.concatenate([finished, beam_size + live], axis=1)  # [B, 2W]

    kept = ops.zeros_like(finished)  # [B, W]
    kept_rows = kept + int_range(beam_size)
    pool_rows = ops.concatenate(
        [kept_rows, beam_size + candidates.parents], axis=1
    )  # [B, 3W]
    pool_ids = ops.concatenate([kept + PAD, candidates.ids], axis=1)  # [B, 3W]
    rows = gather_rows(pool_rows, places, sentences)  # [B, 3W] -> [B, 2W]
    ids = gather_rows(pool_ids, places, sentences)
    return Choice(
        rows=ops.where(done, int_range(2 * beam_size), rows),
        ids=ops.where(done, PAD, ids),
        finished_scores=scores,
        live_log_probs=ops.where(done, state.live_log_probs, log_probs),
    )


def _next_beams(choice, state, sentences):
    """Moves the token buffers to where the choice wants them, and extends."""
    beam_size = state.finished_scores.shape[1]
    ids = gather_rows(state.ids, choice.rows, sentences)  # [B, 2W, T]
    return BeamState(
        index=state.index + 1,
        ids=write_column(ids, choice.ids, state.index),
        finished_scores=choice.finished_scores,
        live_log_probs=choice.live_log_probs,
        live_last_ids=choice.ids[:, beam_size:],
        max_lengths=state.max_lengths,
        done=state.done,
    )


def _ranked_result(state, sentences, penalty, rule):
    """The finished by score, then the live by score: `SearchResult`."""
    beam_size = state.finished_scores.shape[1]
    penalties = penalty.of(rule.scored_lengths(state))  # [B, 2W]
    live_scores = state.live_log_probs / penalties[:, beam_size:]
    scores = ops.concatenate([state.finished_scores, live_scores], axis=1)
    finished_log_probs = state.finished_scores * penalties[:, :beam_size]
    log_probs = ops.concatenate(
        [finished_log_probs, state.live_log_probs], axis=1
    )  # [B, 2W]
    # Rank r is finished hypothesis r, or the live one that follows the last.
    num_finished = ops.sum(
        ops.cast(state.finished_scores > -np.inf, "int32"),
        axis=1,
        keepdims=True,
    )
    ranks = int_range(beam_size)[None]  # [1, W]
    skipped = beam_size - num_finished
    rows = ops.where(ranks < num_finished, ranks, ranks + skipped)  # [B, W]

    # The failure of one hypothesis is the whole sentence's.
    failed = is_failure(ops.max(scores, axis=1, keepdims=True))  # [B, 1]
    scores = gather_rows(scores, rows, sentences)  # [B, 2W] -> [B, W]
    scores = ops.where(failed, np.nan, scores)
    log_probs = gather_rows(log_probs, rows, sentences)
    log_probs = ops.where(failed, np.nan, log_probs)
    ids = gather_rows(state.ids, rows, sentences)  # [B, 2W, T] -> [B, W, T]
    ids = ops.where((scores > -np.inf)[:, :, None], ids, PAD)
    return SearchResult(
        ids=ids,
        scores=ops.where(scores < MISSING_SCORE, MISSING_SCORE, scores),
        log_probs=ops.where(
            log_probs < MISSING_SCORE, MISSING_SCORE, log_probs
        ),
        lengths=count_tokens(ids),
    )


def _live_ids(state):
    """The tokens of live hypotheses: ids [B, 2W, T] -> [B * W, T]."""
    beam_size = state.live_log_probs.shape[1]
    return ops.reshape(state.ids[:, beam_size:], (-1, state.ids.shape[2]))


def _gather_nest(nest, parents):
    """Picks hypotheses in every tensor: parents [B, W] -> [B * W, ...]."""
    rows = row_numbers(parents) * parents.shape[1] + parents
    rows = ops.reshape(rows, (-1,))
    return keras.tree.map_structure(lambda x: ops.take(x, rows, axis=0), nest)
