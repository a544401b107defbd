"""The stopping rules of beam search in several systems, one class for each.

A rule decides which hypotheses may finish or stay live after a position, when
the search of a sentence ends, and how live hypotheses rank at the length limit.
"""

import typing

import numpy as np
from keras import ops

from keras_transformer.base.backend import Tensor
from keras_transformer.config import DecodingConfig
from keras_transformer.decoding.phrases import Reading
from keras_transformer.decoding.rules import Constraints, length_penalty
from keras_transformer.decoding.selection import (
    count_tokens,
    gather_rows,
    int_range,
)
from keras_transformer.text.vocabulary import EOS


class BeamState(typing.NamedTuple):
    """The hypotheses of each sentence, between two positions.

    There are places for W finished hypotheses, best score first, and W live
    ones, most probable first. A free place has score or log-probability -inf.
    Both kinds share the buffer `ids`, so that one gather moves them all.
    """

    index: Tensor  # int32 scalar, position of `live_last_ids`; tokens so far
    ids: Tensor  # int32 [B, 2W, T], tokens so far, then PAD
    finished_scores: Tensor  # float32 [B, W]
    live_log_probs: Tensor  # float32 [B, W]
    live_last_ids: Tensor  # int32 [B, W], the next input of `step`
    max_lengths: Tensor  # int32 [B], constant
    constraints: Constraints  # constant
    reading: Reading  # [B, W], of the live hypotheses, by the constraints
    done: Tensor  # bool [B], whether the sentence is frozen


class Survivors(typing.NamedTuple):
    """Masks of the hypotheses that may take a place, all bool.

    None allows all. A mask that is the same for all sentences has no axis B.
    """

    finish: Tensor | None = None  # [B, 2W], candidates that end with EOS
    live: Tensor | None = None  # [B, 2W], candidates that do not
    stay: Tensor | None = None  # [B, W], hypotheses finished earlier


class Exact:
    """Ends when no live hypothesis can get among the `num_best` finished ones.

    All candidates that end with EOS compete for the finished places.
    """

    def __init__(self, config: DecodingConfig, num_best: int):
        self.config = config
        self.num_best = num_best

    def survivors(
        self, state: BeamState, scores: Tensor, ends: Tensor
    ) -> Survivors:
        """Selects the `Survivors` after a position.

        `scores`, float32, and `ends`, whether the last token is EOS, are those
        of the candidates, `[B, 2W]`, most probable first.
        """
        return Survivors()

    def is_over(self, state: BeamState, limit_penalties: Tensor) -> Tensor:
        """Tells which sentences need no further search: bool `[B]`.

        `limit_penalties`, float32 `[B]`, are the length penalties at the length
        limits.
        """
        # A log-probability only falls; its divisor is largest at the limit.
        best_possible = state.live_log_probs[:, 0] / limit_penalties
        return best_possible <= state.finished_scores[:, self.num_best - 1]

    def at_limit(self, state: BeamState, sentences: Tensor) -> BeamState:
        """Ranks the hypotheses of searches that have ended.

        Here the live, truncated hypotheses follow the finished ones.
        """
        return state

    def scored_lengths(self, state: BeamState) -> Tensor:
        """Returns the lengths that the scores used: int32 `[B, 2W]`."""
        return count_tokens(state.ids)


class Transformers(Exact):
    """transformers 5 (`early_stopping=False`, `forced_eos_token_id`).

    Only the W best continuations, if they end with EOS, compete for the
    finished places. The search ends when no live hypothesis has, at its present
    length, a better score than the worst of W finished ones.
    """

    # At the limit live hypotheses rank as if an EOS of probability 1 followed.
    extra_length = 1

    def survivors(
        self, state: BeamState, scores: Tensor, ends: Tensor
    ) -> Survivors:
        beam_size = state.finished_scores.shape[1]
        return Survivors(finish=int_range(2 * beam_size) < beam_size)

    def is_over(self, state: BeamState, limit_penalties: Tensor) -> Tensor:
        return self._is_over_at(state, state.index)

    def _is_over_at(self, state: BeamState, lengths: Tensor) -> Tensor:
        """Does the work of `is_over` for live hypotheses of these lengths."""
        penalties = length_penalty(self.config, lengths)
        best_now = state.live_log_probs[:, 0] / penalties
        return best_now <= state.finished_scores[:, -1]

    def at_limit(self, state: BeamState, sentences: Tensor) -> BeamState:
        """Ranks live hypotheses with finished ones if the limit was reached."""
        beam_size = state.live_log_probs.shape[1]
        lengths = count_tokens(state.ids[:, beam_size:])
        # Not at `state.index`: some sentences were frozen before.
        is_over = self._is_over_at(state, lengths[:, 0])
        lengths = lengths + self.extra_length
        scores = state.live_log_probs / length_penalty(self.config, lengths)
        scores = ops.where(is_over[:, None], -np.inf, scores)
        pool = ops.concatenate([state.finished_scores, scores], axis=1)
        scores, rows = ops.top_k(pool, beam_size)  # [B, 2W] -> [B, W]
        finished = gather_rows(state.ids, rows, sentences)
        ids = ops.concatenate([finished, state.ids[:, beam_size:]], axis=1)
        return state._replace(
            ids=ids,
            finished_scores=scores,
            # The ranking above was their last chance of a place.
            live_log_probs=ops.full_like(state.live_log_probs, -np.inf),
        )

    def scored_lengths(self, state: BeamState) -> Tensor:
        beam_size = state.live_log_probs.shape[1]
        truncated = ~ops.any(state.ids == EOS, axis=2)  # [B, 2W]
        truncated = truncated & (int_range(2 * beam_size) < beam_size)
        return count_tokens(state.ids) + ops.cast(truncated, "int32")


class Fairseq(Transformers):
    """fairseq; and CTranslate2 4 with `patience=1` and a length penalty.

    Only the W best continuations, if they end with EOS, get finished places,
    and a hypothesis keeps its place. The search ends when W have finished.
    Differs from fairseq at the length limit, where fairseq forces EOS and adds
    its log-probability. Differs from CTranslate2 without a length penalty,
    which ends when the most probable hypothesis has finished.
    """

    def survivors(
        self, state: BeamState, scores: Tensor, ends: Tensor
    ) -> Survivors:
        beam_size = state.finished_scores.shape[1]
        ranks = int_range(2 * beam_size)
        ends = ops.cast(ends & (ranks < beam_size), "int32")
        earlier = ops.cumsum(ends, axis=1) - ends  # [B, 2W]
        free = earlier < beam_size - count_finished(state)
        return Survivors(finish=free & (ranks < beam_size))

    def _is_over_at(self, state: BeamState, lengths: Tensor) -> Tensor:
        return state.finished_scores[:, -1] > -np.inf  # W have finished

    at_limit = Exact.at_limit
    scored_lengths = Exact.scored_lengths


class Marian(Fairseq):
    """Marian: once n hypotheses have finished, only W - n continuations remain.

    The search ends when W have finished. At the length limit live hypotheses
    rank with the finished ones.
    """

    extra_length = 0

    def survivors(
        self, state: BeamState, scores: Tensor, ends: Tensor
    ) -> Survivors:
        beam_size = state.finished_scores.shape[1]
        ranks = int_range(2 * beam_size)
        counts = ranks < beam_size - count_finished(state)
        return Survivors(finish=counts, live=counts)

    at_limit = Transformers.at_limit


class OpenNMTTF(Exact):
    """OpenNMT-tf: keeps the W best, finished or not, by score.

    The search ends when all W have finished.
    """

    def survivors(
        self, state: BeamState, scores: Tensor, ends: Tensor
    ) -> Survivors:
        beam_size = state.finished_scores.shape[1]
        pool = ops.concatenate([state.finished_scores, scores], axis=1)
        _, best = ops.top_k(pool, beam_size)  # [B, 3W] -> [B, W]
        chosen = ops.any(
            best[:, :, None] == int_range(3 * beam_size), axis=1
        )  # [B, W] -> [B, 3W]
        new = chosen[:, beam_size:]
        return Survivors(finish=new, live=new, stay=chosen[:, :beam_size])

    def is_over(self, state: BeamState, limit_penalties: Tensor) -> Tensor:
        return state.live_log_probs[:, 0] == -np.inf


STOPPING_RULES: dict[str, type[Exact]] = {
    "exact": Exact,
    "transformers": Transformers,
    "fairseq": Fairseq,
    "marian": Marian,
    "opennmt_tf": OpenNMTTF,
}


def count_finished(state: BeamState) -> Tensor:
    """Counts the finished hypotheses of each sentence: int32 [B, 1]."""
    finished = ops.cast(state.finished_scores > -np.inf, "int32")
    return ops.sum(finished, axis=1, keepdims=True)
