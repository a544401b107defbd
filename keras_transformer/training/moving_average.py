"""The exponential moving average of a model's weights during training."""

import typing

import tensorflow as tf


class MovingAverage:
    """average = decay * average + (1 - decay) * weight, after each update.

    It covers the trainable weights; others do not change. As in
    TensorFlow's `ExponentialMovingAverage` with `num_updates`, the decay begins
    small, so that the first weights are soon forgotten:

        min(decay, (1 + updates) / (10 + updates))

    Make it in the strategy's scope. Each replica keeps an average of its own:
    all have the same weights, so all averages are the same, and nothing has to
    be sent.

    Args:
        model: The built model; frozen weights are frozen already.
        decay: In (0, 1).

    Attributes:
        averages: A float32 variable for each of `model.trainable_variables`.
    """

    def __init__(self, model: typing.Any, decay: float):
        self._weights = model.trainable_variables
        self._decay = decay
        self.averages = [
            tf.Variable(
                weight.numpy(),
                trainable=False,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )
            for weight in self._weights
        ]

    def update(self, updates: tf.Tensor) -> None:
        """Moves the averages towards the weights; in a replica context.

        Args:
            updates: Updates that the weights have had, integer scalar.
        """
        updates = tf.cast(updates, tf.float32)
        decay = tf.minimum(self._decay, (1.0 + updates) / (10.0 + updates))
        for average, weight in zip(self.averages, self._weights, strict=True):
            change = weight.value - average
            average.assign_add((1.0 - decay) * change)
