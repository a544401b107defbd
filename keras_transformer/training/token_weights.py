"""The weights of positions, and sums over them."""

from keras import ops

from keras_transformer.backend import Tensor
from keras_transformer.vocabulary import PAD


def token_weights(
    labels: Tensor, sample_weight: Tensor | None = None, dtype: str = "float32"
) -> Tensor:
    """The weight of each position: 0 for padding, else 1 or as given.

    Labels are `[B, T]`; a `sample_weight` `[B]` weighs rows, `[B, T]` tokens.

    >>> token_weights(ops.array([[5, 2, 0], [2, 0, 0]]), [0.5, 2.0]).numpy()
    array([[0.5, 0.5, 0. ],
           [2. , 0. , 0. ]], dtype=float32)
    """
    weights = ops.cast(ops.not_equal(labels, PAD), dtype)
    if sample_weight is None:
        return weights
    sample_weight = ops.cast(sample_weight, dtype)
    rank = len(sample_weight.shape)
    if rank not in (1, 2):
        raise ValueError(
            "sample_weight must be of shape [B], for rows, or [B, T], for"
            f" tokens. Received: sample_weight of shape {sample_weight.shape}"
        )
    if rank == 1:
        sample_weight = sample_weight[:, None]  # [B] -> [B, 1]
    return weights * sample_weight


def weighted_sum(values: Tensor, weights: Tensor) -> Tensor:
    """The sum of values times weights, in the dtype of the weights.

    A value of weight 0 does not count, even if it is infinite: -log p(PAD) of
    padding is infinite where the logits of `PAD` are -inf.

    >>> values = ops.array([2.0, float("inf")])
    >>> float(weighted_sum(values, ops.array([0.5, 0.0])))
    1.0
    """
    values = ops.cast(values, weights.dtype)
    return ops.sum(ops.where(weights == 0, 0.0, values) * weights)
