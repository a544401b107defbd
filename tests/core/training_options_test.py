"""R-Drop and the moving average of weights, against their definitions."""

import types

import keras
import numpy as np
import pytest
import references
import tensorflow as tf
from strategies_test import two_replicas

from keras_transformer.training.step import TrainStep
from keras_transformer.training.update import StepOptions

ALPHA = 3.0
DECAY = 0.4
RATE = 0.5
SMOOTHING = 0.1
SIZE = 7


class TwoFaces(keras.Model):
    """A model that scores half of a batch differently, as dropout would."""

    def __init__(self):
        super().__init__()
        random = np.random.default_rng(4)
        for name, shape in (("table", (SIZE, SIZE)), ("delta", (SIZE,))):
            values = random.normal(size=shape)
            weight = self.add_weight(
                shape=shape, initializer=lambda *_, v=values, **__: v, name=name
            )
            setattr(self, name, weight)
        self.built = True

    @property
    def softmax(self):
        """Returns the softmax's matrix, made from the weights, and no bias."""
        table = tf.convert_to_tensor(self.table)
        matrix = tf.concat([table, self.delta[None]], axis=0)  # [V + 1, V]
        return types.SimpleNamespace(
            softmax_matrix=tf.transpose(matrix), logits_bias=None
        )

    def encode(self, source_ids):
        return None

    def decoder_states(self, target_ids, memory):
        states = tf.one_hot(target_ids, SIZE)  # [2 * B, T, V]
        num_rows = tf.shape(target_ids)[0]
        second = tf.range(num_rows) >= num_rows // 2
        second = tf.cast(second, tf.float32)[:, None, None]
        return tf.concat([states, second + 0 * states[..., :1]], axis=-1)


def batches():
    """Makes three batches of four rows of unequal lengths."""
    random = np.random.default_rng(9)
    for _ in range(3):
        ids = random.integers(1, SIZE, (4, 5)).astype("int32")
        labels = random.integers(1, SIZE, (4, 5)).astype("int32")
        labels[0, 2:] = labels[3, 1:] = 0
        yield {"source_ids": ids, "target_ids": ids}, labels


def numpy_loss(table, delta, ids, labels):
    """Computes the sum of R-Drop's loss over tokens."""
    losses = references.r_drop(
        labels, table[ids], table[ids] + delta, SMOOTHING, ALPHA
    )
    return (losses * (labels != 0)).sum()


def numpy_training():
    """Computes SGD steps by central differences: weights, averages, losses."""
    model = TwoFaces()
    weights = [w.numpy().astype(float) for w in model.weights]
    averages = [w.copy() for w in weights]
    losses = []
    for step, (inputs, labels) in enumerate(batches(), start=1):
        ids, tokens = inputs["target_ids"], np.sum(labels != 0)
        losses.append(numpy_loss(*weights, ids, labels))
        gradients = [np.zeros_like(weight) for weight in weights]
        for weight, gradient in zip(weights, gradients, strict=True):
            for index in np.ndindex(weight.shape):
                ends = []
                for sign in (1, -1):
                    weight[index] += sign * 1e-5
                    ends.append(numpy_loss(*weights, ids, labels))
                    weight[index] -= sign * 1e-5
                gradient[index] = (ends[0] - ends[1]) / 2e-5 / tokens
        decay = min(DECAY, (1 + step) / (10 + step))
        for weight, gradient, average in zip(
            weights, gradients, averages, strict=True
        ):
            weight -= RATE * gradient
            average *= decay
            average += (1 - decay) * weight
    return weights, averages, losses


@pytest.fixture(scope="module")
def expected():
    return numpy_training()


@pytest.mark.parametrize(
    "replicas, micro_batches, jit_compile",
    [(1, 1, False), (2, 2, False), (1, 2, True)],
)
def test_r_drop_and_moving_average(
    replicas, micro_batches, jit_compile, expected
):
    strategy = tf.distribute.get_strategy()
    if replicas == 2:
        strategy = two_replicas()
    with strategy.scope():
        model = TwoFaces()
        step = TrainStep(
            model,
            keras.optimizers.SGD(RATE),
            StepOptions(
                SMOOTHING, micro_batches, r_drop=ALPHA, ema_decay=DECAY
            ),
            jit_compile,
        )

    @tf.function(autograph=False)
    def run(*batch):
        sums = strategy.run(lambda *rows: step(*rows), batch)
        return strategy.reduce("SUM", sums, axis=None)

    def divide(rows):
        if replicas == 1:
            return tf.constant(rows)
        shares = np.split(rows, replicas)
        return strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(
                shares[context.replica_id_in_sync_group]
            )
        )

    weights, averages, losses = expected
    for (inputs, labels), loss in zip(batches(), losses, strict=True):
        sums = run(*tf.nest.map_structure(divide, (inputs, labels)))
        np.testing.assert_allclose(sums.loss_sum, loss, rtol=1e-5)
        assert sums.num_tokens == np.sum(labels != 0)
    for variable, value in zip(model.weights, weights, strict=True):
        np.testing.assert_allclose(variable.numpy(), value, atol=2e-5)
    for variable, value in zip(
        step.moving_average.averages, averages, strict=True
    ):
        for copy in strategy.experimental_local_results(variable):
            np.testing.assert_allclose(copy.numpy(), value, atol=2e-5)
    assert np.abs(weights[0] - averages[0]).max() > 0.01
