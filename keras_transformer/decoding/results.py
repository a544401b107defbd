"""What a search returns, and how hypotheses are ranked."""

import typing

from keras import ops

from keras_transformer.backend import Tensor
from keras_transformer.decoding.selection import (
    gather_rows,
    int_range,
    row_numbers,
)
from keras_transformer.vocabulary import EOS

MISSING_SCORE = -1e9  # stands for -inf in results: no such hypothesis
UNFINISHED = -1  # the length of hypotheses whose search has not ended


class SearchResult(typing.NamedTuple):
    """The hypotheses of each sentence, best first.

    Where fewer than W hypotheses exist, the rest are empty: ids `PAD`, length
    0, score and log-probability `MISSING_SCORE`.

    Attributes:
        ids: int32 `[B, W, T]`, without BOS; EOS, then PAD. No EOS where the
            length limit truncated the hypothesis.
        scores: float32 `[B, W]`, log-probabilities after length penalty; NaN if
            the search of this sentence failed.
        log_probs: float32 `[B, W]`, natural logarithm; NaN likewise.
        lengths: int32 `[B, W]`, in tokens, EOS included; `UNFINISHED` if
            `max_positions` ended the search of this sentence.
    """

    ids: Tensor
    scores: Tensor
    log_probs: Tensor
    lengths: Tensor


class LengthPenalty(typing.NamedTuple):
    """What log-probabilities are divided by, for hypotheses to compare.

    Attributes:
        alpha: The exponent, as a float.
        normalization: What it is the exponent of: a value of
            `DecodingConfig.length_normalization`.
    """

    alpha: float
    normalization: str

    def of(self, lengths: Tensor) -> Tensor:
        """The penalty of lengths in tokens, EOS included: float32."""
        lengths = ops.cast(lengths, "float32")
        if self.normalization == "power":
            # A row that is not searched has no tokens.
            return ops.power(ops.maximum(lengths, 1.0), self.alpha)
        return ops.power((lengths + 5.0) / 6.0, self.alpha)


def rerank(result: SearchResult, rewards: Tensor) -> SearchResult:
    """Adds a reward to each score and ranks the hypotheses by the sums.

    Those that end with EOS still stand before those that the length limit
    truncated; of equal scores the first stays first. Missing hypotheses stay
    missing, and failed searches failed.

    Args:
        result: A `SearchResult`.
        rewards: float32 `[B, W]`, or what broadcasts to it; negative ones are
            penalties.

    Returns:
        A `SearchResult`; the log-probabilities stay those of the model.

    >>> result = SearchResult(
    ...     *map(ops.array, ([[[5, 2], [6, 2]]], [[-1.0, -2.0]],
    ...                     [[-1.0, -2.0]], [[2, 2]])))
    >>> rerank(result, ops.array([[-3.0, -1.0]])).ids.numpy()
    array([[[6, 2],
            [5, 2]]], dtype=int32)
    """
    missing = result.scores <= MISSING_SCORE
    scores = ops.where(missing, MISSING_SCORE, result.scores + rewards)
    finished = ops.any(result.ids == EOS, axis=-1)  # [B, W]
    # How many hypotheses stand before each one: two by two, [B, W, W].
    first, second = finished[:, :, None], finished[:, None, :]
    theirs, own = scores[:, :, None], scores[:, None, :]
    ranks = int_range(scores.shape[1])
    earlier = ranks[:, None] < ranks[None]  # [W, W]
    better = (theirs > own) | ((theirs == own) & earlier)
    before = (first & ~second) | ((first == second) & better)
    places = ops.sum(ops.cast(before, "int32"), axis=1)  # [B, W]
    _, rows = ops.top_k(-places, scores.shape[1])  # those of a failure stay
    sentences = row_numbers(scores)
    return SearchResult(
        *(
            gather_rows(values, rows, sentences)
            for values in (result.ids, scores, result.log_probs, result.lengths)
        )
    )


def without_unfinished(result, done):
    """The result with the length `UNFINISHED` where a search goes on."""
    lengths = ops.where(done[:, None], result.lengths, UNFINISHED)
    return result._replace(lengths=lengths)
