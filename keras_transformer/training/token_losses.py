"""The loss of each token of a batch, computed without returning logits."""

import contextlib
import typing

import keras
from keras import ops

from keras_transformer.base.backend import Tensor, precise_dtype
from keras_transformer.base.refusals import expect
from keras_transformer.kernels.projected_loss import (
    projected_cross_entropy,
    projected_r_drop,
)
from keras_transformer.layers.attention import recorded_weights
from keras_transformer.training.update import StepOptions

SMALLEST_ATTENTION = 1e-6  # keeps its logarithm finite in half precision


def alignment_loss(attention: Tensor, links: Tensor) -> Tensor:
    """Computes the cross-entropy of attention to each token's linked tokens.

    The loss is -sum_s G[t, s] log A[t, s], where G spreads each token's links
    evenly (Garg et al. 2019, sec. 3.2). It is `[B, T]`, in nats, 0 for a token
    without links, float64 for float64 attention and float32 otherwise. A and
    the links are `[B, T, S]`.

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


class TokenLosses(keras.layers.Layer):
    """The `smoothed_cross_entropy` of a model, without returning its logits.

    This takes less time and memory than `model(inputs)` and its loss, with the
    same values and gradients; see `projected_cross_entropy`. A call returns the
    loss and -log p(label), both `[B, T]`, float32 (float64 if that is the
    model's dtype).

    With R-Drop (Liang et al. 2021), every row is computed twice, with different
    dropout, and the loss includes the divergence of a token's two
    distributions, times `r_drop`; see `projected_r_drop`.

    With a guided head, the loss of a position includes its `alignment_loss`
    (Chen et al. 2016), for the input `links`, bool `[B, T, S]`. They are the
    links of the token that the decoder reads at this position, one position
    after predicting it. There, an alignment is read as well.

    A layer must not add another loss, by `add_loss` or a regularizer: it is
    unknown how many of the rows' tokens such a loss represents.
    """

    def __init__(self, model: typing.Any, options: StepOptions):
        super().__init__(dtype=model.dtype_policy)
        self.model = model
        self.options = options
        self.built = True

    def call(
        self, inputs: dict[str, Tensor], labels: Tensor
    ) -> tuple[Tensor, Tensor]:
        options = self.options
        source_ids, target_ids = inputs["source_ids"], inputs["target_ids"]
        if options.r_drop:
            source_ids = ops.concatenate([source_ids, source_ids])
            target_ids = ops.concatenate([target_ids, target_ids])
        model = self.model
        with (
            recorded_weights()
            if options.guided_head
            else contextlib.nullcontext()
        ) as attention:
            states = model.decoder_states(target_ids, model.encode(source_ids))
        refuse_added_losses(self)
        projection = (
            ops.cast(states, self.compute_dtype),
            model.softmax.softmax_matrix,
            model.softmax.logits_bias,
        )
        if options.r_drop:
            losses, nll = projected_r_drop(
                labels, *projection, options.label_smoothing, options.r_drop
            )
        else:
            losses, nll = projected_cross_entropy(
                labels, *projection, options.label_smoothing
            )
        if options.guided_head:
            losses += self._alignment_losses(attention, inputs["links"])
        return losses, nll

    def _alignment_losses(self, attention, links):
        """Computes the weighted `alignment_loss`, averaged over the passes."""
        layer, number, weight = self.options.guided_head
        of_head = attention[layer][:, number - 1]  # [N, T, S]
        passes = ops.split(of_head, 2 if self.options.r_drop else 1)
        terms = [alignment_loss(one, links) for one in passes]
        return weight / len(terms) * sum(terms)


def refuse_added_losses(layer: keras.Layer) -> None:
    """Raises ValueError if a call added losses, which a step would ignore."""
    expect(
        not layer.losses,
        "no add_loss or regularizer in a layer: the loss of a step is a mean"
        " over tokens",
        f"{len(layer.losses)} added loss(es)",
    )
