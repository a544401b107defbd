"""The rules by which beam searches of several systems end, a class for each.

A rule decides which hypotheses may finish or live on after a position, when the
search of a sentence is over, and how live hypotheses rank at the length limit.
"""

import typing

import numpy as np
from keras import ops

from keras_transformer.backend import Tensor
from keras_transformer.decoding.results import LengthPenalty
from keras_transformer.decoding.selection import (
    count_tokens,
    gather_rows,
    int_range,
)
from keras_transformer.vocabulary import EOS


class Survivors(typing.NamedTuple):
    """The hypotheses that may have a place.

    Each is bool, of the shape named or of an axis less, where all sentences are
    alike.

    Attributes:
        stay: `[B, W]`, the finished that stay.
        finish: `[B, 2W]`, the candidates that may finish if they are EOS.
        live: `[B, 2W]`, the candidates that may live on if they are not.
    """

    stay: Tensor
    finish: Tensor
    live: Tensor


class Exact:
    """Ends when no live hypothesis can enter the `num_best` finished ones.

    All candidates compete for the finished places.

    Args:
        penalty: The `LengthPenalty`.
        num_best: Wanted hypotheses.
    """

    def __init__(self, penalty: LengthPenalty, num_best: int):
        self.penalty = penalty
        self.num_best = num_best

    def survivors(self, state, scores, ends) -> Survivors | None:
        """The `Survivors` after a position; None if every place is open to all.

        Args:
            state: The `BeamState`.
            scores: float32 `[B, 2W]`, of the candidates, whose best
                log-probability comes first.
            ends: bool `[B, 2W]`, whether a candidate is EOS.
        """
        return None

    def is_over(self, state, limit_penalties) -> Tensor:
        """Whether no later hypothesis counts: bool `[B]`.

        Args:
            state: The `BeamState`.
            limit_penalties: float32 `[B]`, the penalties of the length limits.
        """
        # A log-probability only falls, and is divided by most at the limit.
        best_possible = state.live_log_probs[:, 0] / limit_penalties
        return best_possible <= state.finished_scores[:, self.num_best - 1]

    def at_limit(self, state, sentences):
        """The `BeamState` of searches that have ended.

        Live hypotheses are truncated and follow the finished ones.
        """
        return state

    def scored_lengths(self, state) -> Tensor:
        """Lengths that scores were divided for: int32 `[B, 2W]`."""
        return count_tokens(state.ids)


class Transformers(Exact):
    """transformers 5 (`early_stopping=False`, `forced_eos_token_id`).

    Only those among the W best continuations compete for the finished places.
    The search ends when no live hypothesis has, at its present length, a better
    score than the worst of W finished ones.
    """

    def survivors(self, state, scores, ends):
        beam_size = state.finished_scores.shape[1]
        ranks = int_range(2 * beam_size)
        return Survivors(ranks[:beam_size] >= 0, ranks < beam_size, ranks >= 0)

    def is_over(self, state, limit_penalties):
        beam_size = state.live_log_probs.shape[1]
        lengths = count_tokens(state.ids[:, beam_size])  # of frozen ones, too
        best_now = state.live_log_probs[:, 0] / self.penalty.of(lengths)
        return best_now <= state.finished_scores[:, -1]

    def at_limit(self, state, sentences):
        """Live ones rank as if EOS, which costs nothing, were added to each."""
        return _finish_live(
            state, sentences, self.is_over(state, None), self.penalty, 1
        )

    def scored_lengths(self, state):
        beam_size = state.live_log_probs.shape[1]
        truncated = ~ops.any(state.ids == EOS, axis=2)  # [B, 2W]
        truncated = truncated & (int_range(2 * beam_size) < beam_size)
        return count_tokens(state.ids) + ops.cast(truncated, "int32")


class Fairseq(Transformers):
    """fairseq; and CTranslate2 4 with `patience=1` and a length penalty.

    Only those among the W best continuations compete for the finished places,
    which no later hypothesis takes from an earlier one. The search ends when W
    have finished. Differs from fairseq at the length limit, where fairseq
    forces EOS at its cost, and from CTranslate2 without a length penalty, where
    CTranslate2 ends when the most probable hypothesis has finished.
    """

    def survivors(self, state, scores, ends):
        beam_size = state.finished_scores.shape[1]
        ranks = int_range(2 * beam_size)
        ends = ops.cast(ends & (ranks < beam_size), "int32")
        earlier = ops.cumsum(ends, axis=1) - ends  # [B, 2W]
        free = earlier < beam_size - _count_finished(state)
        return Survivors(
            ranks[:beam_size] >= 0, free & (ranks < beam_size), ranks >= 0
        )

    def is_over(self, state, limit_penalties):
        return state.finished_scores[:, -1] > -np.inf  # W have finished

    at_limit = Exact.at_limit
    scored_lengths = Exact.scored_lengths


class Marian(Fairseq):
    """Marian: W - n continuations count once n hypotheses have finished.

    The search ends when W have finished. At the length limit live hypotheses
    rank with the finished ones.
    """

    def survivors(self, state, scores, ends):
        beam_size = state.finished_scores.shape[1]
        ranks = int_range(2 * beam_size)
        counts = ranks < beam_size - _count_finished(state)
        return Survivors(ranks[:beam_size] >= 0, counts, counts)

    def at_limit(self, state, sentences):
        return _finish_live(
            state, sentences, self.is_over(state, None), self.penalty, 0
        )


class OpenNMTTF(Exact):
    """OpenNMT-tf: the W best by score of finished ones and continuations stay.

    The search ends when all of these have finished.
    """

    def survivors(self, state, scores, ends):
        beam_size = state.finished_scores.shape[1]
        pool = ops.concatenate([state.finished_scores, scores], axis=1)
        _, best = ops.top_k(pool, beam_size)  # [B, 3W] -> [B, W]
        chosen = ops.any(
            best[:, :, None] == int_range(3 * beam_size), axis=1
        )  # [B, W] -> [B, 3W]
        stays, new = chosen[:, :beam_size], chosen[:, beam_size:]
        return Survivors(stays, new, new)

    def is_over(self, state, limit_penalties):
        return state.live_log_probs[:, 0] == -np.inf


RULES: dict[str, type[Exact]] = {
    "exact": Exact,
    "transformers": Transformers,
    "fairseq": Fairseq,
    "marian": Marian,
    "opennmt_tf": OpenNMTTF,
}


def _count_finished(state):
    """Finished hypotheses of each sentence: int32 [B, 1]."""
    finished = ops.cast(state.finished_scores > -np.inf, "int32")
    return ops.sum(finished, axis=1, keepdims=True)


def _finish_live(state, sentences, is_over, penalty, extra_length):
    """Ranks live hypotheses among the finished, unless the search was over.

    Args:
        state: The `BeamState`.
        sentences: `row_numbers` of the sentences.
        is_over: bool [B], whether live hypotheses count no more.
        penalty: The `LengthPenalty`.
        extra_length: Tokens that a live hypothesis is longer than it shows.
    """
    beam_size = state.live_log_probs.shape[1]
    lengths = count_tokens(state.ids[:, beam_size:]) + extra_length  # [B, W]
    scores = state.live_log_probs / penalty.of(lengths)
    scores = ops.where(is_over[:, None], -np.inf, scores)
    pool = ops.concatenate([state.finished_scores, scores], axis=1)
    scores, rows = ops.top_k(pool, beam_size)  # [B, 2W] -> [B, W]
    finished = gather_rows(state.ids, rows, sentences)
    ids = ops.concatenate([finished, state.ids[:, beam_size:]], axis=1)
    return state._replace(
        ids=ids,
        finished_scores=scores,
        # Each of them has a place now, or will not have one.
        live_log_probs=ops.full_like(state.live_log_probs, -np.inf),
    )
