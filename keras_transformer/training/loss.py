"""Cross-entropy with label smoothing, section 5.4, as a mean over tokens."""

import typing

import keras
from keras import ops

from keras_transformer.backend import Tensor, precise_dtype
from keras_transformer.kernels.cross_entropy import smoothed_cross_entropy
from keras_transformer.vocabulary import PAD

SMALLEST_ATTENTION = 1e-6  # keeps its logarithm finite in half precision


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


def negative_log_likelihood(labels: Tensor, logits: Tensor) -> Tensor:
    """-log p(label) of each position, without smoothing: `[B, T]`.

    NaN for a label outside [0, V).
    """
    return smoothed_cross_entropy(labels, logits, label_smoothing=0.0)[1]


def alignment_loss(attention: Tensor, links: Tensor) -> Tensor:
    """Cross-entropy of attention to the tokens that each token is linked to.

    -sum_s G[t, s] log A[t, s], where G spreads each token's links evenly (Garg
    et al. 2019, sec. 3.2), in nats, 0 for a token without links: `[B, T]`,
    float64 for float64, else float32. A and the links are `[B, T, S]`.

    >>> attention = ops.array([[[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]]])
    >>> links = ops.array([[[False, True, True], [False, False, False]]])
    >>> alignment_loss(attention, links).numpy().round(3)
    array([[1.386, 0.   ]], dtype=float32)
    """
    dtype = precise_dtype(attention.dtype)
    links = ops.cast(links, dtype)
    log_attention = ops.log(ops.cast(attention, dtype) + SMALLEST_ATTENTION)
    total = -ops.sum(links * log_attention, axis=-1)
    return ops.divide_no_nan(total, ops.sum(links, axis=-1))


@keras.saving.register_keras_serializable("keras_transformer")
class SmoothedCrossEntropy(keras.losses.Loss):
    """Mean over the tokens of a batch of the smoothed cross-entropy (sec. 5.4).

    Padding does not count, however much of the batch it is. In `model.fit` and
    in the trainers a `Transformer` weighs by the tokens of the whole global
    batch, over all replicas; see `fit.py`.

    Args:
        label_smoothing: Share e of probability spread over the vocabulary, in
            [0, 1); the paper's is 0.1.
        reduction: Must be "sum_over_batch_size": the mean over tokens.

    Call arguments:
        y_true: int `[B, T]`, labels; `PAD` where a row has ended. A label
            outside [0, V) makes the loss NaN.
        y_pred: float `[B, T, V]`, logits.
        sample_weight: Optional float: `[B]` weighs rows, `[B, T]` tokens, on
            top of the padding.

    Returns:
        Scalar, nats per token, float64 for float64 logits, else float32; 0 if
        there is no token.

    Raises:
        ValueError: `label_smoothing` is outside [0, 1), or there is another
            `reduction`.

    >>> loss = SmoothedCrossEntropy(0.1)
    >>> float(loss([[3, 2, 0]], ops.zeros((1, 3, 5)))) # ln 5
    1.6094379425048828
    """

    def __init__(
        self,
        label_smoothing: float,
        name: str = "smoothed_cross_entropy",
        reduction: str = "sum_over_batch_size",
        **kwargs: typing.Any,
    ):
        super().__init__(name=name, reduction=reduction, **kwargs)
        if reduction != "sum_over_batch_size":
            raise ValueError(
                "reduction must be 'sum_over_batch_size', the mean over the"
                f" tokens of a batch. Received: reduction={reduction!r}"
            )
        if not 0 <= label_smoothing < 1:
            raise ValueError(
                "label_smoothing must be in [0, 1). Received:"
                f" label_smoothing={label_smoothing}"
            )
        self.label_smoothing = label_smoothing

    def call(self, y_true: typing.Any, y_pred: typing.Any) -> typing.Any:
        """The loss of each position, padding included: `[B, T]`."""
        return smoothed_cross_entropy(y_true, y_pred, self.label_smoothing)[0]

    def __call__(
        self,
        y_true: typing.Any,
        y_pred: typing.Any,
        sample_weight: typing.Any = None,
    ) -> typing.Any:
        labels = ops.convert_to_tensor(y_true)
        losses = self.call(labels, ops.convert_to_tensor(y_pred))
        weights = token_weights(labels, sample_weight, losses.dtype)
        total = weighted_sum(losses, weights)
        return ops.divide_no_nan(total, ops.sum(weights))

    def get_config(self) -> dict[str, typing.Any]:
        return {**super().get_config(), "label_smoothing": self.label_smoothing}
