"""Cross-entropy with label smoothing, section 5.4, as a mean over tokens."""

import typing

import keras
from keras import ops

from keras_transformer.base.backend import global_mean, running
from keras_transformer.base.refusals import expect
from keras_transformer.data.labels import check_class_weight, token_labels
from keras_transformer.kernels.cross_entropy import smoothed_cross_entropy
from keras_transformer.training.update import (
    StepOptions,
    token_weights,
    weighted_sum,
)

if typing.TYPE_CHECKING:
    from keras_transformer.training.step import TrainStep


@keras.saving.register_keras_serializable("keras_transformer")
class SmoothedCrossEntropy(keras.losses.Loss):
    """Mean over the tokens of a batch of the smoothed cross-entropy (sec. 5.4).

    Padding is ignored. In any model's `fit`, the mean is over the tokens of the
    global batch, over all replicas: in a replica of `tf.distribute`, the loss
    is the replica's share of it.

    Args:
        label_smoothing: Probability e that is spread over the vocabulary, in
            [0, 1). The paper uses 0.1.
        reduction: Must be "sum_over_batch_size": the mean over tokens.

    Call arguments:
        y_true: int `[B, T]`, labels, padded with `PAD`. A label outside [0, V)
            makes the loss NaN.
        y_pred: float `[B, T, V]`, logits.
        sample_weight: None, or float weights of rows, `[B]`, or of tokens,
            `[B, T]`. Padding has weight 0 in any case.

    Returns:
        Scalar, nats per token, 0 if there are no tokens. It is float64 for
        float64 logits and float32 otherwise.

    Raises:
        ValueError: `label_smoothing` is outside [0, 1), `reduction` is another,
            labels are not as long as the logits, `fit` has a `class_weight`,
            or layers add losses on several replicas.

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
        expect(
            reduction == "sum_over_batch_size",
            "reduction='sum_over_batch_size', the mean over tokens",
            f"{reduction=}",
        )
        expect(0 <= label_smoothing < 1, "[0, 1)", f"{label_smoothing=}")
        self.label_smoothing = label_smoothing

    def call(self, y_true: typing.Any, y_pred: typing.Any) -> typing.Any:
        """Computes the loss of each position, including padding: `[B, T]`."""
        return smoothed_cross_entropy(y_true, y_pred, self.label_smoothing)[0]

    def __call__(
        self,
        y_true: typing.Any,
        y_pred: typing.Any,
        sample_weight: typing.Any = None,
    ) -> typing.Any:
        logits = ops.convert_to_tensor(y_pred)
        labels = token_labels(y_true, logits.shape[:-1])
        if sample_weight is not None:
            # Keras passes class_weight as a sample_weight [B], as well.
            fit = running("fit", "train_on_batch")
            check_class_weight(fit.get("class_weight"))
        losses = self.call(labels, logits)
        weights = token_weights(labels, sample_weight, losses.dtype)
        return global_mean(weighted_sum(losses, weights), ops.sum(weights))

    @property
    def has_step(self) -> bool:
        """Whether `make_step` computes this loss: a subclass may change it."""
        own = type(self)
        return (own.call, own.__call__) == (
            SmoothedCrossEntropy.call,
            SmoothedCrossEntropy.__call__,
        )

    def make_step(
        self, model: keras.Model, jit_compile: bool | str, num_slices: int
    ) -> "TrainStep":
        """Makes the training step of `model.fit` under TensorFlow.

        With XLA, `num_slices` is ignored: there is one slice.
        """
        from keras_transformer.training import step

        jit_compile = step.resolve_jit_compile(jit_compile)
        return step.TrainStep(
            model,
            model.optimizer,
            StepOptions(self.label_smoothing),
            jit_compile,
            1 if jit_compile else num_slices,
        )

    def get_config(self) -> dict[str, typing.Any]:
        return {**super().get_config(), "label_smoothing": self.label_smoothing}
