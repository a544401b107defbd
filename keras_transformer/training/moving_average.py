"""The exponential moving average of a model's weights during training."""

import typing

import tensorflow as tf

from keras_transformer.training.update import average_changes


class MovingAverage:
    """average = decay * average + (1 - decay) * weight, after each update.

    `averages` has a float32 variable for each trainable weight; other weights
    do not change. The decay begins small: see `average_changes`.

    Make it in the strategy's scope. Each replica keeps its own averages. All
    replicas have the same weights and so the same averages; nothing is sent.
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
        """Moves the averages towards the weights. Call it in a replica context.

        `updates` is the number of updates so far, an integer scalar.
        """
        weights = [weight.value for weight in self._weights]
        changes = average_changes(self.averages, weights, updates, self._decay)
        for average, change in zip(self.averages, changes, strict=True):
            average.assign_add(change)
