"""Beam search (sec. 6.1): the state and the stages of one position."""

import typing
from collections.abc import Callable

import keras
import numpy as np
from keras import ops

from keras_transformer.base.backend import Tensor
from keras_transformer.config import DecodingConfig
from keras_transformer.decoding.phrases import (
    Reading,
    allocate,
    covered,
    first_reading,
    read,
)
from keras_transformer.decoding.row_loop import Body
from keras_transformer.decoding.rules import (
    MISSING_SCORE,
    Cache,
    Constraints,
    Reorder,
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
    block_size,
    count_tokens,
    gather_rows,
    int_range,
    is_failure,
    row_numbers,
    write_column,
)
from keras_transformer.decoding.stopping import (
    STOPPING_RULES,
    BeamState,
    Exact,
    count_finished,
)
from keras_transformer.text.vocabulary import BOS, EOS, PAD


def search_beams(
    step: Step,
    cache: Cache,
    max_lengths: Tensor,
    config: DecodingConfig,
    constraints: Constraints,
    size: int,
    reorder: Reorder,
    num_best: int,
    run: Callable[..., BeamState],
) -> tuple[SearchResult, Tensor]:
    """Searches with token buffers of length `size`; see `beam_search`.

    `run` is the loop, `row_loop.run` with its options. Also returns whether the
    search of each sentence has ended, bool [B].
    """
    beam_size = config.beam_size
    stopping = STOPPING_RULES[config.stopping](config, num_best)

    def make_grow(first: BeamState) -> Body:
        sentences = row_numbers(first.done)
        limit_penalties = length_penalty(config, first.max_lengths)
        bonus = _largest_bonus(first.constraints, config)

        def grow(state: BeamState, cache: Cache) -> tuple[BeamState, Cache]:
            live_ids = ops.reshape(state.live_last_ids, (-1,))  # [B * W]
            logits, cache = step(live_ids, cache, state.index)
            candidates = _best_candidates(logits, state, sentences, config)
            state, parents = _next_beams(
                candidates, state, sentences, config, stopping
            )
            cache = reorder(cache, parents)
            state = state._replace(
                done=state.done
                | (state.index >= state.max_lengths)
                | stopping.is_over(
                    _with_bonus(state, bonus, limit_penalties), limit_penalties
                )
            )
            return state, cache

        return grow

    first = _first_beams(max_lengths, constraints, size, beam_size)
    state = run(make_grow, first, cache)
    sentences = row_numbers(max_lengths)
    state = stopping.at_limit(state, sentences)
    result = _ranked_result(state, sentences, config, stopping)
    best = SearchResult(*(values[:, :num_best] for values in result))
    return best, state.done


class Candidates(typing.NamedTuple):
    """The most probable continuations of a sentence's live hypotheses."""

    parents: Tensor  # int32 [B, 2W], index of the live hypothesis, in [0, W)
    ids: Tensor  # int32 [B, 2W], the token that continues it
    log_probs: Tensor  # float32 [B, 2W], of whole hypotheses, best first

    def best(self, places: Tensor) -> "Candidates":
        """Picks the candidates at indices `places` [B, k]."""
        return Candidates(
            *(ops.take_along_axis(x, places, axis=1) for x in self)
        )


def _first_beams(
    max_lengths: Tensor, constraints: Constraints, size: int, beam_size: int
) -> BeamState:
    """Makes one live hypothesis, BOS, for each sentence."""
    zeros = ops.zeros_like(max_lengths)[:, None]  # [B] -> [B, 1]
    places = zeros + ops.zeros((beam_size,), "int32")  # [B, 1] -> [B, W]
    no_ids = ops.zeros((2 * beam_size, size), "int32")
    return BeamState(
        index=ops.zeros((), "int32"),
        ids=zeros[:, :, None] + no_ids,  # [B, 1, 1] -> [B, 2W, T]
        finished_scores=ops.cast(places, "float32") - np.inf,
        live_log_probs=ops.where(
            int_range(beam_size) == 0, ops.cast(places, "float32"), -np.inf
        ),
        live_last_ids=places + BOS,
        max_lengths=max_lengths,
        constraints=constraints,
        reading=first_reading(constraints.phrases, places),
        done=max_lengths < 1,
    )


def _best_candidates(
    logits: Tensor, state: BeamState, sentences: Tensor, config: DecodingConfig
) -> Candidates:
    """Finds the 2W best of the W * V continuations of W hypotheses."""
    beam_size = state.live_log_probs.shape[1]
    rules = rules_at(config, state, beam_size)
    # ids [B, 2W, T] -> [B * W, T] of the live hypotheses
    ids = ops.reshape(state.ids[:, beam_size:], (-1, state.ids.shape[2]))
    logits, normalizer = steer(logits, ids, rules)
    # Added to logits, they give log-probabilities of whole hypotheses: [B * W]
    offsets = ops.reshape(state.live_log_probs, (-1,)) - normalizer

    def total(values: Tensor, rows: Tensor) -> Tensor:
        """Computes log-probabilities of hypotheses from logits [..., k]."""
        values = values + ops.take(offsets, rows, axis=0)[..., None]
        # Backends sort NaN differently, since no comparison with it is true.
        # All sort infinity first, and sums leave it infinite.
        return ops.where(values < np.inf, values, np.inf)

    hypotheses = sentences * beam_size + int_range(beam_size)  # [B, W]
    # The W rows of a sentence share 2W blocks, two per row.
    size = block_size(logits.shape[-1], 2)
    if size is None or rules.forced is not None or state.constraints.has_terms:
        values, ids = allowed_candidates(
            logits, 2 * beam_size, rules
        )  # [B * W, V] -> [B * W, k]
        width = ids.shape[-1]
        if state.constraints.has_terms:
            values, ids = _add_terms(values, ids, logits, state, rules)
            width = ops.shape(ids)[-1]
        shape = (-1, beam_size, width)
        values, ids = (ops.reshape(x, shape) for x in (values, ids))
        rows = hypotheses
    else:
        values, ids, rows = _blocks_of_best(
            logits, size, total, hypotheses, rules
        )
    # [B, M, k], where all k continue one hypothesis, rows [B, M]
    values = total(values, rows)
    if state.constraints.has_terms:
        return _candidates_by_terms(values, ids, state, config)
    width = values.shape[1] * values.shape[2]
    values = ops.reshape(values, (-1, width))
    log_probs, places = ops.top_k(values, 2 * beam_size)  # [B, 2W]
    blocks = places // ids.shape[2]
    return Candidates(
        parents=gather_rows(rows, blocks, sentences) - hypotheses[:, :1],
        ids=gather_rows(ops.reshape(ids, (-1, width)), places, sentences),
        log_probs=log_probs,
    )


def _add_terms(
    values: Tensor, ids: Tensor, logits: Tensor, state: BeamState, rules: Rules
) -> tuple[Tensor, Tensor]:
    """Adds the allowed tokens of terms to candidates: [N, k] -> [N, k + L]."""
    tokens = state.constraints.phrases.tokens  # [B, L]
    tokens = ops.repeat(tokens, state.live_log_probs.shape[1], axis=0)
    there = ops.any(tokens[:, :, None] == ids[:, None], axis=2)  # [N, L]
    tokens = ops.where(there | (tokens < 0), PAD, tokens)
    of_terms = ops.take_along_axis(logits, tokens, axis=1)
    of_terms = ops.where(is_banned(tokens, rules), -np.inf, of_terms)
    of_terms = ops.where(tokens == PAD, -np.inf, of_terms)
    return (
        ops.concatenate([values, of_terms], axis=1),
        ops.concatenate([ids, tokens], axis=1),
    )


def _candidates_by_terms(
    values: Tensor, ids: Tensor, state: BeamState, config: DecodingConfig
) -> Candidates:
    """Ranks candidates [B, W, k] by terms and by log-probability.

    If terms are forced, `allocate` chooses W candidates that stay live, and the
    W best that end with EOS may finish.
    """
    phrases, beam_size = state.constraints.phrases, values.shape[1]
    pool = Candidates(
        *(
            ops.reshape(x, (ops.shape(x)[0], -1))  # [B, W, k] -> [B, P]
            for x in (
                ops.zeros_like(ids) + int_range(beam_size)[:, None],
                ids,
                values,
            )
        )
    )
    reading = read(phrases, _of_parents(state.reading, pool.parents), pool.ids)
    banks = covered(phrases, reading)
    if config.glossary_mode == "prefer":
        before = ops.take_along_axis(
            covered(phrases, state.reading), pool.parents, axis=1
        )
        bonus = config.glossary_bonus * ops.cast(banks - before, "float32")
        log_probs = pool.log_probs + bonus
        log_probs, places = ops.top_k(log_probs, 2 * beam_size)
        return pool.best(places)._replace(log_probs=log_probs)
    ends = pool.ids == EOS
    live = ops.where(ends, -np.inf, pool.log_probs)
    finish = ops.where(ends, pool.log_probs, -np.inf)
    parts = [
        pool._replace(log_probs=live).best(
            allocate(live, banks, ~ends, beam_size)
        ),
        pool._replace(log_probs=finish).best(ops.top_k(finish, beam_size)[1]),
    ]
    both = Candidates(
        *(ops.concatenate(x, axis=1) for x in zip(*parts, strict=True))
    )
    both = both.best(ops.top_k(both.log_probs, 2 * beam_size)[1])
    best = pool.best(ops.top_k(pool.log_probs, 2 * beam_size)[1])
    has_terms = ops.any(phrases.sizes > 0, axis=1, keepdims=True)  # [B, 1]
    return Candidates(
        *(ops.where(has_terms, x, y) for x, y in zip(both, best, strict=True))
    )


def _of_parents(reading: Reading, parents: Tensor) -> Reading:
    """Gives each hypothesis [B, M] the `Reading` of its live parent [B, W]."""
    met = reading.met
    if not isinstance(met, tuple):
        met = ops.take_along_axis(met, parents[:, :, None], axis=1)
    return Reading(ops.take_along_axis(reading.states, parents, axis=1), met)


def _largest_bonus(
    constraints: Constraints, config: DecodingConfig
) -> Tensor | None:
    """Computes the bonus [B] of all preferred terms; None without any."""
    if not constraints.has_terms or config.glossary_mode != "prefer":
        return None
    sizes = ops.sum(constraints.phrases.sizes, axis=1)
    return config.glossary_bonus * ops.cast(sizes, "float32")


def _with_bonus(
    state: BeamState, bonus: Tensor | None, limit_penalties: Tensor
) -> BeamState:
    """Adds the largest possible bonus to each live log-probability."""
    if bonus is None:
        return state
    # A stopping rule divides by the penalty at the limit. That would make a
    # positive number smaller, so it is first multiplied by the penalty.
    reach = state.live_log_probs + bonus[:, None]
    return state._replace(
        live_log_probs=ops.maximum(reach, reach * limit_penalties[:, None])
    )


def _blocks_of_best(
    logits: Tensor,
    size: int,
    total: Callable[[Tensor, Tensor], Tensor],
    hypotheses: Tensor,
    rules: Rules,
) -> tuple[Tensor, Tensor, Tensor]:
    """Finds the blocks of the vocabulary that have the best continuations.

    The 2W best continuations of a sentence are in the 2W blocks with the
    largest maxima among the blocks of its W hypotheses (on a tie, the first
    blocks). The other blocks are not searched.

    `hypotheses`, int32 [B, W], are row indices in the logits [B * W, V].
    `total` makes log-probabilities from the logits [..., k] of rows [...].
    Returns logits [B, 2W, size], -inf for tokens that may not be emitted; their
    ids; and the row indices of their hypotheses, int32 [B, 2W].
    """
    beam_size, num_blocks = hypotheses.shape[1], logits.shape[-1] // size
    blocks = ops.reshape(logits, (-1, size))
    maxima = ops.reshape(ops.max(blocks, axis=-1), (-1, num_blocks))
    # All tokens that these rules can ban are in the first block.
    banned = is_banned(int_range(size)[None], rules)
    first = ops.where(banned, -np.inf, logits[:, :size])
    first = ops.max(first, axis=-1, keepdims=True)  # [B * W, 1]
    maxima = ops.concatenate([first, maxima[:, 1:]], axis=1)
    maxima = ops.reshape(maxima, (-1, beam_size, num_blocks))
    maxima = ops.reshape(
        total(maxima, hypotheses), (-1, beam_size * num_blocks)
    )
    _, best = ops.top_k(maxima, 2 * beam_size)  # [B, 2W]
    # In order of position, so that the lower position wins a tie.
    best = ops.sort(best, axis=-1)
    best = best + hypotheses[:, :1] * num_blocks
    rows = best // num_blocks
    ids = (best % num_blocks * size)[:, :, None] + int_range(size)
    values = ops.take(blocks, best, axis=0)  # [B, 2W, size]
    banned = is_banned(ids, rules)
    return ops.where(banned, -np.inf, values), ids, rows


def _next_beams(
    candidates: Candidates,
    state: BeamState,
    sentences: Tensor,
    config: DecodingConfig,
    stopping: Exact,
) -> tuple[BeamState, Tensor]:
    """Computes the next `BeamState` and the parents [B, W] of live hypotheses.

    The pool has 3W places: the W finished so far, then the 2W candidates. The
    lower place wins a tie. A frozen sentence does not change.
    """
    beam_size = state.finished_scores.shape[1]
    done = state.done[:, None]  # [B, 1]
    ends = candidates.ids == EOS  # [B, 2W]
    scores = candidates.log_probs / length_penalty(config, state.index + 1)
    finishes, dies, old_scores = ends & ~done, ends, state.finished_scores
    survivors = stopping.survivors(state, scores, ends)
    if survivors.finish is not None:
        finishes = finishes & survivors.finish
    if survivors.live is not None:
        dies = dies | ~survivors.live
    if survivors.stay is not None:
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
    rows = ops.where(done, int_range(2 * beam_size), rows)
    last_ids = gather_rows(pool_ids, places, sentences)
    last_ids = ops.where(done, PAD, last_ids)
    ids = gather_rows(state.ids, rows, sentences)  # [B, 2W, T]
    state = state._replace(
        index=state.index + 1,
        ids=write_column(ids, last_ids, state.index),
        finished_scores=scores,
        live_log_probs=ops.where(done, state.live_log_probs, log_probs),
        live_last_ids=last_ids[:, beam_size:],
    )
    parents = rows[:, beam_size:] - beam_size
    if state.constraints.phrases.exist:
        reading = read(
            state.constraints.phrases,
            _of_parents(state.reading, parents),
            state.live_last_ids,
        )
        state = state._replace(reading=reading)
    return state, parents


def _ranked_result(
    state: BeamState, sentences: Tensor, config: DecodingConfig, stopping: Exact
) -> SearchResult:
    """Ranks the finished hypotheses by score, then the live ones."""
    beam_size = state.finished_scores.shape[1]
    num_finished = count_finished(state)  # [B, 1]
    if state.constraints.has_terms and config.glossary_mode == "force":
        state = _without_incomplete(state, num_finished, sentences)
    penalties = length_penalty(
        config, stopping.scored_lengths(state)
    )  # [B, 2W]
    live_scores = state.live_log_probs / penalties[:, beam_size:]
    scores = ops.concatenate([state.finished_scores, live_scores], axis=1)
    finished_log_probs = state.finished_scores * penalties[:, :beam_size]
    log_probs = ops.concatenate(
        [finished_log_probs, state.live_log_probs], axis=1
    )  # [B, 2W]
    # Rank r is finished hypothesis r; after the last one, live ones follow.
    ranks = int_range(beam_size)[None]  # [1, W]
    skipped = beam_size - num_finished
    rows = ops.where(ranks < num_finished, ranks, ranks + skipped)  # [B, W]

    # If one hypothesis fails, the whole sentence fails.
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


def _without_incomplete(
    state: BeamState, num_finished: Tensor, sentences: Tensor
) -> BeamState:
    """Drops live hypotheses that lack a term, unless no hypothesis has all."""
    beam_size = state.live_log_probs.shape[1]
    complete = ops.all(state.reading.met, axis=2)  # [B, W]
    complete = complete & (state.live_log_probs > -np.inf)
    found = ops.any(complete, axis=1, keepdims=True) | (num_finished > 0)
    log_probs, order = ops.top_k(
        ops.where(complete | ~found, state.live_log_probs, -np.inf), beam_size
    )
    finished = ops.zeros_like(order) + int_range(beam_size)
    rows = ops.concatenate([finished, beam_size + order], axis=1)  # [B, 2W]
    return state._replace(
        ids=gather_rows(state.ids, rows, sentences), live_log_probs=log_probs
    )


def gather_nest(nest: Cache, parents: Tensor) -> Cache:
    """Picks the rows of `parents` [B, W] from every tensor [B * W, ...]."""
    rows = row_numbers(parents) * parents.shape[1] + parents
    rows = ops.reshape(rows, (-1,))
    return keras.tree.map_structure(lambda x: ops.take(x, rows, axis=0), nest)
