"""What a search returns, and how hypotheses are ranked."""

import typing

from keras import ops

from keras_transformer.backend import Tensor
from keras_transformer.fields import unhandled

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
        if self.normalization == "wu":
            return ops.power((lengths + 5.0) / 6.0, self.alpha)
        if self.normalization == "power":
            # A row that is not searched has no tokens.
            return ops.power(ops.maximum(lengths, 1.0), self.alpha)
        raise unhandled(length_normalization=self.normalization)


def without_unfinished(result, done):
    """The result with the length `UNFINISHED` where a search goes on."""
    lengths = ops.where(done[:, None], result.lengths, UNFINISHED)
    return result._replace(lengths=lengths)
