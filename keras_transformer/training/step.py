"""One training step, exact in tokens, for `model.fit` and for the trainers.

The loss is the sum of the token losses divided by the number of target tokens
in the global batch, over all replicas. So a replica with short sentences has
less weight than one with long sentences. XLA compiles the computation inside a
replica. The collectives stay outside, since XLA cannot cross devices.

This module is for TensorFlow. `SmoothedCrossEntropy` imports it for `model.fit`
under the TensorFlow backend.
"""

import typing

import keras
import tensorflow as tf
from absl import logging

from keras_transformer.base.backend import precise_dtype, seed_variables
from keras_transformer.kernels.cross_entropy import smoothed_cross_entropy
from keras_transformer.training.gradients import (
    Gradients,
    MicroBatchGradients,
    Rows,
    SliceGradients,
    StepSums,
    WholeGradients,
    add_losses,
)
from keras_transformer.training.moving_average import MovingAverage
from keras_transformer.training.token_losses import TokenLosses
from keras_transformer.training.update import (
    SEED_STRIDE,
    StepOptions,
    clipped,
    shifted_seed,
    token_weights,
)


class TrainStep:
    """A training step: token weights -> gradients -> clip -> update.

    `update.py` defines the update. It is the same whether the rows of a batch
    are spread over replicas, workers, slices or micro-batches.

    Call it in a replica context. It returns the replica's `StepSums`. A
    `LossScaleOptimizer` sees the same gradients on every replica, so that all
    replicas skip an update or none does.

    The optimizer and the moving average are built here.

    Args:
        jit_compile: Whether XLA compiles both passes in the replica.
        num_slices: Slices of a micro-batch that are computed in parallel.

    Call arguments:
        batch: Inputs, labels, and optionally float weights of rows, `[B]`, or
            of tokens, `[B, T]`.
    """

    def __init__(
        self,
        model: typing.Any,
        optimizer: typing.Any,
        options: StepOptions,
        jit_compile: bool = False,
        num_slices: int = 1,
    ):
        self.model = model
        self.optimizer = optimizer
        self.options = options
        self.num_slices = num_slices
        self.moving_average = None
        if options.ema_decay:
            self.moving_average = MovingAverage(model, options.ema_decay)
        if not optimizer.built:
            optimizer.build(model.trainable_variables)
        losses = TokenLosses(model, options)
        self._whole = WholeGradients(losses, optimizer, jit_compile)
        self._gradients: Gradients = self._whole
        if num_slices > 1:
            self._gradients = SliceGradients(self._gradients, model, num_slices)
        if options.accumulate_steps > 1:
            self._gradients = MicroBatchGradients(
                self._gradients, model, options.accumulate_steps
            )

    def __call__(self, *batch: typing.Any) -> StepSums:
        sums, gradients = self.gradients(*batch)
        self._update(gradients)
        return sums

    def gradients(self, *batch: typing.Any) -> tuple[StepSums, list[tf.Tensor]]:
        """Computes the sums and the gradient share, but makes no update."""
        return self._gradients(*self._weighted(*batch))

    def with_logits(self, *batch: typing.Any) -> tuple[StepSums, tf.Tensor]:
        """Runs the step with the whole batch at once, for metrics.

        Returns the sums, and the logits `[B, T, V]` from before the update.
        """
        sums, gradients, logits = self._whole.with_logits(
            *self._weighted(*batch)
        )
        self._update(gradients)
        return sums, logits

    def measure(
        self,
        inputs: dict[str, tf.Tensor],
        labels: tf.Tensor,
        sample_weight: tf.Tensor | None = None,
    ) -> tuple[StepSums, tf.Tensor]:
        """Computes the sums and the logits, without dropout or an update."""
        logits = self.model(inputs, training=False)
        losses = smoothed_cross_entropy(
            labels, logits, self.options.label_smoothing
        )
        weights = token_weights(labels, sample_weight, logits.dtype)
        return add_losses(*losses, weights), logits

    def spread_seeds(self) -> None:
        """Calls the function `spread_seeds` for the model."""
        spread_seeds(self.model)

    def _weighted(self, inputs, labels, sample_weight=None):
        """Makes weighted `Rows`, and sums the weights over all replicas."""
        weights = token_weights(
            labels, sample_weight, precise_dtype(self.model.compute_dtype)
        )
        replica = tf.distribute.get_replica_context()
        global_tokens = replica.all_reduce("SUM", tf.reduce_sum(weights))
        return Rows(inputs, labels, weights), global_tokens

    def _update(self, gradients):
        if not gradients:
            logging.warning("the model has no trainable weights: no update")
            return
        self.optimizer.apply_gradients(
            zip(
                self._same_on_every_replica(gradients),
                self.model.trainable_variables,
                strict=True,
            )
        )
        if self.moving_average is not None:
            self.moving_average.update(self.optimizer.iterations)

    def _same_on_every_replica(self, gradients):
        """Returns the gradients that a replica passes to the optimizer.

        Keras' optimizers add up the replicas' gradients at the very end. The
        norm of the whole gradient, and whether it is finite, need the sum
        earlier. Each replica then passes an equal share of the sum.
        """
        scales_loss = isinstance(
            self.optimizer, keras.optimizers.LossScaleOptimizer
        )
        if not self.options.clip_norm and not scales_loss:
            return gradients
        replica = tf.distribute.get_replica_context()
        gradients = replica.all_reduce("SUM", gradients)
        if self.options.clip_norm:
            clip_norm = self.optimizer.scale_loss(self.options.clip_norm)
            gradients = clipped(gradients, clip_norm)
        share = 1.0 / replica.num_replicas_in_sync
        return [share * gradient for gradient in gradients]


def spread_seeds(model: typing.Any) -> None:
    """Gives the dropout of every replica its own seeds.

    Variables are copied to the replicas, including the states of random
    generators, so that all replicas would drop the same units. Replica 0 keeps
    its seeds, which a checkpoint saves. Call this in the strategy's scope,
    after the weights are initialized or restored.
    """
    seeds = [variable.value for variable in seed_variables(model)]
    strategy = tf.distribute.get_strategy()

    @tf.function(autograph=False)
    def spread():
        strategy.run(in_replica)

    def in_replica():
        replica = tf.distribute.get_replica_context()
        for seed in seeds:
            number = tf.cast(replica.replica_id_in_sync_group, seed.dtype)
            seed.assign(shifted_seed(seed, number * SEED_STRIDE))

    if strategy.num_replicas_in_sync > 1:
        spread()


def resolve_jit_compile(jit_compile: bool | str) -> bool:
    """Resolves `jit_compile="auto"` to whether there is a GPU."""
    if jit_compile != "auto":
        return bool(jit_compile)
    return bool(tf.config.list_logical_devices("GPU"))
