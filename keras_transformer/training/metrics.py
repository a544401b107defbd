"""Token accuracy and perplexity: means over all tokens except padding."""

import math
import typing

import keras
from keras import ops

from keras_transformer.base.backend import Tensor
from keras_transformer.data.labels import token_labels
from keras_transformer.kernels.cross_entropy import (
    is_in_vocabulary,
    smoothed_cross_entropy,
)
from keras_transformer.training.update import token_weights, weighted_sum


class _TokenMean(keras.metrics.Metric):
    """The mean of a value over the tokens of all batches and replicas."""

    def __init__(self, name, **kwargs):
        super().__init__(name=name, **kwargs)
        self.total = self.add_variable(
            (), "zeros", dtype=self.dtype, name="total"
        )
        self.count = self.add_variable(
            (), "zeros", dtype=self.dtype, name="count"
        )

    def update_state(
        self,
        y_true: typing.Any,
        y_pred: typing.Any,
        sample_weight: typing.Any = None,
    ) -> None:
        """Adds a batch: labels int `[B, T]`, logits float `[B, T, V]`.

        `sample_weight` has weights of rows, `[B]`, or of tokens, `[B, T]`.
        Padding has weight 0. A label outside [0, V) makes the result NaN.
        """
        logits = ops.convert_to_tensor(y_pred)
        labels = token_labels(y_true, logits.shape[:-1])
        values = self.token_values(labels, logits)
        weights = token_weights(labels, sample_weight, self.dtype)
        self.total.assign_add(weighted_sum(values, weights))
        self.count.assign_add(ops.sum(weights))

    def result(self) -> typing.Any:
        return ops.divide_no_nan(self.total, self.count)


@keras.saving.register_keras_serializable("keras_transformer")
class TokenAccuracy(_TokenMean):
    """Share of tokens for which the most probable one is the label, in [0, 1].

    The previous tokens come from the reference (teacher forcing).

    >>> accuracy = TokenAccuracy()
    >>> accuracy.update_state([[1, 2, 0]], ops.one_hot([[1, 1, 0]], 3))
    >>> float(accuracy.result())
    0.5
    """

    def __init__(self, name: str = "token_accuracy", **kwargs: typing.Any):
        super().__init__(name=name, **kwargs)

    def token_values(self, labels: Tensor, logits: Tensor) -> Tensor:
        best = ops.cast(ops.argmax(logits, axis=-1), labels.dtype)
        hits = ops.cast(ops.equal(best, labels), self.dtype)
        valid = is_in_vocabulary(labels, logits.shape[-1])
        return ops.where(valid, hits, math.nan)


@keras.saving.register_keras_serializable("keras_transformer")
class Perplexity(_TokenMean):
    """exp of the mean of -log p(label), without label smoothing (sec. 5.4).

    It is per token, not per word, as in Table 3 of the paper.

    >>> perplexity = Perplexity()
    >>> perplexity.update_state([[3, 2, 0]], ops.zeros((1, 3, 8)))
    >>> round(float(perplexity.result()), 4)
    8.0
    """

    def __init__(self, name: str = "perplexity", **kwargs: typing.Any):
        super().__init__(name=name, **kwargs)

    def token_values(self, labels: Tensor, logits: Tensor) -> Tensor:
        return smoothed_cross_entropy(labels, logits, label_smoothing=0.0)[1]

    def result(self) -> typing.Any:
        return ops.exp(super().result())
