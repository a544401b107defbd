"""Results of a search, and the ranking of hypotheses."""

import typing

from keras import ops

from keras_transformer.backend import Tensor
from keras_transformer.config import DecodingConfig

MISSING_SCORE = -1e9  # replaces -inf in results: no such hypothesis
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
            `max_steps` ended the search of this sentence.
    """

    ids: Tensor
    scores: Tensor
    log_probs: Tensor
    lengths: Tensor


def length_penalty(config: DecodingConfig, lengths: Tensor) -> Tensor:
    """The divisors of log-probabilities that make hypotheses comparable.

    Args:
        config: The `DecodingConfig`.
        lengths: int32, in tokens, EOS included.

    Returns:
        float32, of the same shape.
    """
    lengths = ops.cast(lengths, "float32")
    match config.length_normalization:
        case "wu":
            return ops.power((lengths + 5.0) / 6.0, config.length_penalty)
        case "power":
            # A row that is not searched has no tokens.
            return ops.power(ops.maximum(lengths, 1.0), config.length_penalty)
        case other:
            raise ValueError(f"no such length_normalization: {other!r}")
