"""The losses of a batch, token by token, without its logits."""

import contextlib
import typing

import keras
from keras import ops

from keras_transformer.backend import Tensor
from keras_transformer.kernels.projected_loss import (
    projected_cross_entropy,
    projected_r_drop,
)
from keras_transformer.layers.attention import (
    MultiHeadAttention,
    recorded_weights,
)
from keras_transformer.training.loss import alignment_loss


class GuidedHead(typing.NamedTuple):
    """The head that learns to align, and the weight of its loss."""

    attention: MultiHeadAttention  # to the source, of a decoder layer
    number: int  # the head of it, counted from 1
    weight: float  # factor of the loss


class TokenLosses(keras.layers.Layer):
    """`smoothed_cross_entropy` of a model's logits, which are never made.

    Less time and memory than `model(inputs)` and its loss, with the same values
    and gradients; see `projected_cross_entropy`. Both losses are `[B, T]`,
    float32 (float64 if that is the model's dtype).

    With R-Drop (Liang et al. 2021) every row is computed twice, with different
    dropout, and the loss includes the divergence of both distributions of a
    token, times `r_drop`; see `projected_r_drop`.

    With a guided head the loss of a position includes its `alignment_loss`
    (Chen et al. 2016), for the `links` among the inputs, bool `[B, T, S]`.
    Links are those of the token that the decoder reads there: one position
    after it is predicted, where an alignment is read, too.
    """

    def __init__(
        self,
        model: typing.Any,
        label_smoothing: float,
        r_drop: float = 0.0,
        guided_head: GuidedHead | None = None,
    ):
        super().__init__(dtype=model.dtype_policy)
        self.model = model
        self.label_smoothing = label_smoothing
        self.r_drop = r_drop
        self.guided_head = guided_head
        self.built = True

    def call(
        self, inputs: dict[str, Tensor], labels: Tensor
    ) -> tuple[Tensor, Tensor]:
        source_ids, target_ids = inputs["source_ids"], inputs["target_ids"]
        if self.r_drop:
            source_ids = ops.concatenate([source_ids, source_ids])
            target_ids = ops.concatenate([target_ids, target_ids])
        model = self.model
        with (
            recorded_weights() if self.guided_head else contextlib.nullcontext()
        ) as attention:
            states = model.decoder_states(target_ids, model.encode(source_ids))
        projection = (
            ops.cast(states, self.compute_dtype),
            model.softmax.softmax_matrix,
            model.softmax.logits_bias,
        )
        if self.r_drop:
            losses, nll = projected_r_drop(
                labels, *projection, self.label_smoothing, self.r_drop
            )
        else:
            losses, nll = projected_cross_entropy(
                labels, *projection, self.label_smoothing
            )
        if self.guided_head:
            losses += self._alignment_losses(attention, inputs["links"])
        return losses, nll

    def _alignment_losses(self, attention, links):
        """Weighted `alignment_loss`; with R-Drop, the mean of both passes."""
        layer, number, weight = self.guided_head
        of_head = attention[layer][:, number - 1]  # [N, T, S]
        passes = ops.split(of_head, 2 if self.r_drop else 1)
        terms = [alignment_loss(one, links) for one in passes]
        return weight / len(terms) * sum(terms)
