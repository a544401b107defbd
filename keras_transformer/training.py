"""One training step, exact in tokens, for `model.fit` and for the trainers.

The gradient is that of the summed token losses divided by the number of target
tokens of the whole global batch, whatever replica they are on: replicas whose
sentences are short do not weigh as much as those whose sentences are long. XLA
compiles what happens inside a replica; the collectives stay outside, since XLA
cannot cross devices.

This is TensorFlow's side of training; `fit.py` loads it under the TensorFlow
backend only.
"""

import typing

import keras
import tensorflow as tf

from keras_transformer.backend import precise_dtype
from keras_transformer.loss import (
    smoothed_cross_entropy,
    token_weights,
)
from keras_transformer.moving_average import MovingAverage
from keras_transformer.seeds import seed_variables

SEED_STRIDE = 1_000_003  # between the seeds of replicas
SLICE_STRIDE = 7_368_787  # between the seeds of slices


class StepSums(typing.NamedTuple):
    """What one replica saw in a step; sums, so that replicas add up.

    Attributes:
        loss_sum: Sum of the smoothed token losses, scalar, nats.
        nll_sum: The same without smoothing.
        num_tokens: Target tokens (their weights, if any), scalar.
    """

    loss_sum: tf.Tensor
    nll_sum: tf.Tensor
    num_tokens: tf.Tensor


def add_losses(losses, nll, weights):
    """The sums of a batch, in the dtype of the weights; all are `[B, T]`."""
    return StepSums(
        tf.reduce_sum(tf.cast(losses, weights.dtype) * weights),
        tf.reduce_sum(tf.cast(nll, weights.dtype) * weights),
        tf.reduce_sum(weights),
    )


class TrainStep:
    """Forward, backward and update; call it in a replica context.

    The update is that of one big batch, whether its rows are spread over
    replicas, over workers, or over micro-batches that are computed one after
    the other to save memory:

        gradient = sum of token losses' gradients / tokens of all of them
        gradient *= min(1, clip_norm / |gradient|)

    Args:
        model: A built `Transformer`.
        optimizer: A Keras optimizer; built here for the model's variables. A
            `LossScaleOptimizer` sees the same gradients on every replica, so
            that all of them skip an update, or none.
        label_smoothing: As in `SmoothedCrossEntropy`.
        jit_compile: Whether XLA compiles forward and backward in the replica.
        accumulate_steps: Micro-batches that a replica's rows are computed in;
            the rows must divide by it.
        clip_norm: Greatest norm of the gradient of all weights together; 0: no
            limit.
        r_drop: Alpha of R-Drop (Liang et al. 2021), 0: none. Every row is
            computed twice, with different dropout; see `projected_r_drop`.
        moving_average: A `MovingAverage` of the weights to keep, or None.
        num_slices: Parts that a replica's rows are divided into, which are
            computed at the same time. Above 1, the model must have no state but
            its weights and the seeds of its dropout; each slice has seeds of
            its own. On CPUs that is faster than to divide every operation.

    Call arguments:
        inputs: Dictionary of `source_ids` `[B, S]` and `target_ids` `[B, T]`.
        labels: int `[B, T]`, `PAD` where a row has ended.
        sample_weight: Optional float weights of rows, `[B]`, or of tokens,
            `[B, T]`.

    Returns:
        The replica's `StepSums`.
    """

    def __init__(
        self,
        model: typing.Any,
        optimizer: typing.Any,
        label_smoothing: float,
        jit_compile: bool,
        accumulate_steps: int,
        clip_norm: float,
        r_drop: float = 0.0,
        moving_average: MovingAverage | None = None,
        num_slices: int = 1,
    ):
        self.model = model
        self.optimizer = optimizer
        self.label_smoothing = label_smoothing
        self.accumulate_steps = accumulate_steps
        self.clip_norm = clip_norm
        self.r_drop = r_drop
        self.moving_average = moving_average
        self.num_slices = num_slices
        if not optimizer.built:
            optimizer.build(model.trainable_variables)
        self.use_xla(jit_compile)

    def use_xla(self, jit_compile: bool) -> None:
        """Chooses anew whether XLA compiles; what is traced already stays."""
        self._compiled_whole = self._whole
        self._compiled_gradients = self._sums_and_gradients
        if jit_compile:
            self._compiled_whole = _function(self._whole, jit_compile=True)
        if jit_compile or self.num_slices > 1:  # slices are traced once
            self._compiled_gradients = _function(
                self._sums_and_gradients, jit_compile
            )

    def __call__(
        self,
        inputs: dict[str, tf.Tensor],
        labels: tf.Tensor,
        sample_weight: tf.Tensor | None = None,
    ) -> StepSums:
        sums, gradients = self.gradients(inputs, labels, sample_weight)
        self._update(gradients)
        return sums

    def with_logits(self, inputs, labels, sample_weight=None):
        """The same step, with the whole batch at once, for metrics of it.

        Returns:
            The replica's `StepSums`, and logits `[B, T, V]` from before the
            update.

        Raises:
            ValueError: The step has R-Drop, which computes no logits of all.
        """
        if self.r_drop:
            raise ValueError(
                "a step with R-Drop returns no logits. Received:"
                f" r_drop={self.r_drop:g}"
            )
        weights, global_tokens = self._weights(labels, sample_weight)
        sums, logits, gradients = self._compiled_whole(
            (inputs, labels, weights), global_tokens
        )
        self._update(gradients)
        return sums, logits

    def gradients(self, inputs, labels, sample_weight=None):
        """The step without its update.

        Returns:
            The replica's `StepSums`, and its share of the gradient for each
            trainable variable: replicas add up. Scaled, if the optimizer scales
            the loss.
        """
        weights, global_tokens = self._weights(labels, sample_weight)
        rows = (inputs, labels, weights)
        if self.num_slices > 1:
            return self._add_slices(rows, global_tokens)
        sums, gradients, _ = self._compiled_gradients(rows, global_tokens, [])
        return sums, gradients

    def _add_slices(self, rows, global_tokens):
        """`gradients` of slices, none of which waits for another.

        Nothing that a slice does has a side effect: the seeds, which all would
        change, go in and come out.
        """
        seeds = seeds_of(self.model)
        before = [tf.convert_to_tensor(seed) for seed in seeds]
        results = []
        for index, of_slice in enumerate(self._slices(rows)):
            offset = [index * SLICE_STRIDE, 0]
            own = [seed + tf.constant(offset, seed.dtype) for seed in before]
            results.append(
                self._compiled_gradients(of_slice, global_tokens, own)
            )
        sums, gradients, after = zip(*results, strict=True)
        for seed, value in zip(seeds, after[0], strict=True):
            seed.assign(value)
        return tf.nest.map_structure(
            lambda *terms: tf.add_n(terms), *zip(sums, gradients, strict=True)
        )

    def _slices(self, rows):
        """The rows of each slice, which are as equal as micro-batches allow."""
        _, labels, _ = rows
        sizes = slice_sizes(
            tf.shape(labels)[0], self.num_slices, self.accumulate_steps
        )
        parts = [
            tf.split(x, sizes, num=self.num_slices)
            for x in tf.nest.flatten(rows)
        ]
        return [
            tf.nest.pack_sequence_as(rows, of_slice)
            for of_slice in zip(*parts, strict=True)
        ]

    def _weights(self, labels, sample_weight):
        """Weights of the positions `[B, T]`, and their sum over replicas."""
        weights = token_weights(
            labels, sample_weight, precise_dtype(self.model.compute_dtype)
        )
        replica = tf.distribute.get_replica_context()
        return weights, replica.all_reduce("SUM", tf.reduce_sum(weights))

    def _whole(self, rows, global_tokens, needs_logits=True):
        """Sums, logits and gradients of rows that are computed at once.

        Logits are None if they are not needed, which is faster.
        """
        with tf.GradientTape() as tape:
            sums, logits = self._forward(*rows, needs_logits)
            loss = tf.math.divide_no_nan(sums.loss_sum, global_tokens)
            loss = self.optimizer.scale_loss(loss)
        gradients = tape.gradient(
            loss, [v.value for v in self.model.trainable_variables]
        )
        return sums, logits, [tf.convert_to_tensor(g) for g in gradients]

    def _forward(self, inputs, labels, weights, needs_logits):
        """`StepSums` of rows, and their logits or None."""
        if needs_logits:
            logits = self.model(inputs, training=True)
            losses = smoothed_cross_entropy(
                labels, logits, self.label_smoothing
            )
        else:
            if self.r_drop:
                inputs = {
                    name: tf.concat([ids, ids], axis=0)
                    for name, ids in inputs.items()
                }
            logits = None
            losses = self.model(
                inputs,
                training=True,
                labels=labels,
                label_smoothing=self.label_smoothing,
                r_drop=self.r_drop,
            )
        return add_losses(*losses, weights), logits

    def _gradients_with_seeds(self, rows, global_tokens, seeds):
        """Sums and gradients, as a function of seeds that it returns anew.

        Args:
            seeds: Values of the `seed_variables`; empty: these are used, and
                changed.
        """
        if not seeds:
            sums, _, gradients = self._whole(
                rows, global_tokens, needs_logits=False
            )
            return sums, gradients, seeds
        variables = seed_variables(self.model)
        with keras.StatelessScope(zip(variables, seeds, strict=True)) as scope:
            sums, _, gradients = self._whole(
                rows, global_tokens, needs_logits=False
            )
        after = [scope.get_current_value(variable) for variable in variables]
        return sums, gradients, after

    def _sums_and_gradients(self, rows, global_tokens, seeds):
        """Sums and gradients, micro-batch by micro-batch in a loop.

        Args:
            rows: Inputs, labels and weights of the micro-batches together.
            global_tokens: Scalar, the weights of the global batch.
            seeds: As in `_gradients_with_seeds`.
        """
        if self.accumulate_steps == 1:
            return self._gradients_with_seeds(rows, global_tokens, seeds)
        _, _, weights = rows

        def split(rows):  # [B, ...] -> [micro-batches, B / them, ...]
            shape = [self.accumulate_steps, -1, *tf.unstack(tf.shape(rows))[1:]]
            return tf.reshape(rows, shape)

        micro_batches = tf.nest.map_structure(split, rows)

        def add_micro_batch(index, so_far, seeds):
            micro_batch = tf.nest.map_structure(
                lambda rows: rows[index], micro_batches
            )
            *terms, seeds = self._gradients_with_seeds(
                micro_batch, global_tokens, seeds
            )
            added = tf.nest.map_structure(tf.add, so_far, tuple(terms))
            return index + 1, added, seeds

        zero = tf.zeros([], weights.dtype)
        zeros = [
            tf.zeros(v.shape, v.dtype) for v in self.model.trainable_variables
        ]
        _, (sums, gradients), seeds = tf.while_loop(
            lambda index, *_: index < self.accumulate_steps,
            add_micro_batch,
            (0, (StepSums(zero, zero, zero), zeros), seeds),
            parallel_iterations=1,
        )
        return sums, gradients, seeds

    def _update(self, gradients):
        """Applies each replica's share of the gradient."""
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
        """Gradients as the optimizer is to sum them up over the replicas.

        Keras' optimizers sum up at the very end. What looks at the whole
        gradient (its norm, whether it is finite) needs the sum before; each
        replica then hands over its equal part of it.
        """
        scales_loss = isinstance(
            self.optimizer, keras.optimizers.LossScaleOptimizer
        )
        if not self.clip_norm and not scales_loss:
            return gradients
        replica = tf.distribute.get_replica_context()
        gradients = replica.all_reduce("SUM", gradients)
        factor = 1.0 / replica.num_replicas_in_sync
        if self.clip_norm:
            norm = tf.linalg.global_norm(gradients)
            limit = self.optimizer.scale_loss(
                tf.constant(self.clip_norm, norm.dtype)
            )
            factor *= limit / tf.maximum(norm, limit)
        return [factor * gradient for gradient in gradients]


def _function(function, jit_compile):
    """The function as a graph of its own, compiled by XLA if that is wanted."""
    return tf.function(
        function,
        jit_compile=jit_compile or None,
        reduce_retracing=True,
        autograph=False,
    )


def slice_sizes(rows, num_slices, accumulate_steps):
    """The rows of each slice, a list: as equal as micro-batches allow.

    >>> slice_sizes(14, num_slices=3, accumulate_steps=2)
    [4, 4, 6]
    """
    units = rows // accumulate_steps
    return [
        (units + index) // num_slices * accumulate_steps
        for index in range(num_slices)
    ]


def seeds_of(model: typing.Any) -> list[tf.Variable]:
    """The states of a model's random generators, TensorFlow variables."""
    return [variable.value for variable in seed_variables(model)]


def spread_seeds(model: typing.Any) -> None:
    """Gives the dropout of every replica its own seeds.

    Variables are copied to the replicas, those of random generators too, and
    all replicas would drop the same units. Replica 0 keeps its seeds: they are
    what a checkpoint has. Call it in the strategy's scope, once the model has
    its first weights or those of a checkpoint.
    """
    seeds = seeds_of(model)
    strategy = tf.distribute.get_strategy()

    @tf.function(autograph=False)
    def spread():
        strategy.run(in_replica)

    def in_replica():
        replica = tf.distribute.get_replica_context()
        for seed in seeds:
            number = tf.cast(replica.replica_id_in_sync_group, seed.dtype)
            offset = tf.stack([number * SEED_STRIDE, tf.zeros_like(number)])
            seed.assign_add(offset)

    if strategy.num_replicas_in_sync > 1:
        spread()


def resolve_jit_compile(jit_compile: bool | str) -> bool:
    """What `jit_compile="auto"` means: XLA where there is an accelerator."""
    if jit_compile != "auto":
        return bool(jit_compile)
    return bool(tf.config.list_logical_devices("GPU"))
