"""One training step, exact in tokens, for `model.fit` and for the trainers.

The gradient is that of the summed token losses divided by the number of target
tokens of the whole global batch, whatever replica they are on: replicas whose
sentences are short do not weigh as much as those whose sentences are long. XLA
compiles what happens inside a replica; the collectives stay outside, since XLA
cannot cross devices. TensorFlow's side is here alone; on another backend
`model.fit` is Keras' own.
"""

import typing

import keras

from keras_transformer.loss import (
    SmoothedCrossEntropy,
    smoothed_cross_entropy,
    token_weights,
)

SEED_STRIDE = 1_000_003  # between the seeds of replicas


class StepResult(typing.NamedTuple):
    """What one replica saw in a step; sums, so that replicas add up.

    Attributes:
        loss_sum: Sum of the smoothed token losses, float32 scalar, nats.
        nll_sum: The same without smoothing.
        num_tokens: Target tokens (their weights, if any), float32 scalar.
        logits: float32 `[B, T, V]`; None if the step has several parts.
    """

    loss_sum: typing.Any
    nll_sum: typing.Any
    num_tokens: typing.Any
    logits: typing.Any


class TrainStep:
    """Forward, backward and update; call it in a replica context.

    The update is that of one big batch, whether its rows are spread over
    replicas, over workers, or over parts that are computed one after the other
    to save memory:

        gradient = sum of token losses' gradients / tokens of all of them
        gradient *= min(1, clip_norm / |gradient|)

    Args:
        model: A built `Transformer`, or any model with its inputs and outputs.
        optimizer: A Keras optimizer; built here for the model's variables. A
            `LossScaleOptimizer` sees the same gradients on every replica, so
            that all of them skip an update, or none.
        label_smoothing: As in `SmoothedCrossEntropy`.
        jit_compile: Whether XLA compiles forward and backward in the replica.
        accumulate_steps: Parts that a replica's rows are computed in; the rows
            must divide by it.
        clip_norm: Greatest norm of the gradient of all weights together; 0: no
            limit.

    Call arguments:
        inputs: Dictionary of `source_ids` `[B, S]` and `target_ids` `[B, T]`.
        labels: int32 `[B, T]`, `PAD` where a row has ended.
        sample_weight: Optional float weights of tokens, or None.

    Returns:
        The replica's `StepResult`.
    """

    def __init__(
        self,
        model,
        optimizer,
        label_smoothing,
        jit_compile,
        accumulate_steps,
        clip_norm,
    ):
        import tensorflow as tf

        self.model = model
        self.optimizer = optimizer
        self.label_smoothing = label_smoothing
        self.accumulate_steps = accumulate_steps
        self.clip_norm = clip_norm
        if not optimizer.built:
            optimizer.build(model.trainable_variables)
        if jit_compile:
            self._gradients = tf.function(
                self._gradients, jit_compile=True, reduce_retracing=True
            )

    def __call__(self, inputs, labels, sample_weight=None):
        result, gradients = self.gradients(inputs, labels, sample_weight)
        self.optimizer.apply_gradients(
            zip(
                self._same_on_every_replica(gradients),
                self.model.trainable_variables,
                strict=True,
            )
        )
        return result

    def gradients(self, inputs, labels, sample_weight=None):
        """The step without its update.

        Returns:
            The replica's `StepResult`, and its share of the gradient for each
            trainable variable: replicas add up. Scaled, if the optimizer scales
            the loss.
        """
        import tensorflow as tf

        weights = token_weights(labels)
        if sample_weight is not None:
            weights *= tf.cast(sample_weight, "float32")
        replica = tf.distribute.get_replica_context()
        num_tokens = tf.reduce_sum(weights)
        global_tokens = replica.all_reduce("SUM", num_tokens)
        (loss_sum, nll_sum), logits, gradients = self._gradients(
            inputs, labels, weights, global_tokens
        )
        return StepResult(loss_sum, nll_sum, num_tokens, logits), gradients

    def _gradients(self, inputs, labels, weights, global_tokens):
        """Sums of losses, logits, and gradients; what XLA compiles."""
        if self.accumulate_steps == 1:
            return self._part(inputs, labels, weights, global_tokens)
        return self._sum_of_parts(inputs, labels, weights, global_tokens)

    def _part(self, inputs, labels, weights, global_tokens):
        """The same for rows that are computed at once."""
        import tensorflow as tf

        with tf.GradientTape() as tape:
            logits = self.model(inputs, training=True)
            losses, nll = smoothed_cross_entropy(
                labels, logits, self.label_smoothing
            )
            loss_sum = tf.reduce_sum(losses * weights)
            loss = tf.math.divide_no_nan(loss_sum, global_tokens)
            loss = self.optimizer.scale_loss(loss)
        gradients = tape.gradient(
            loss, [v.value for v in self.model.trainable_variables]
        )
        nll_sum = tf.reduce_sum(nll * weights)
        dense = [tf.convert_to_tensor(g) for g in gradients]
        return (loss_sum, nll_sum), logits, dense

    def _sum_of_parts(self, inputs, labels, weights, global_tokens):
        """The same, part by part in a loop; there are no logits."""
        import tensorflow as tf

        def split(rows):  # [B, ...] -> [parts, B / parts, ...]
            shape = [self.accumulate_steps, -1, *tf.unstack(tf.shape(rows))[1:]]
            return tf.reshape(rows, shape)

        parts = tf.nest.map_structure(split, (inputs, labels, weights))

        def add_part(index, so_far):
            part = tf.nest.map_structure(lambda rows: rows[index], parts)
            sums, _, gradients = self._part(*part, global_tokens)
            added = tf.nest.map_structure(tf.add, so_far, (sums, gradients))
            return index + 1, added

        zeros = [tf.zeros(v.shape) for v in self.model.trainable_variables]
        _, (sums, gradients) = tf.while_loop(
            lambda index, _: index < self.accumulate_steps,
            add_part,
            (0, ((tf.zeros([]), tf.zeros([])), zeros)),
            parallel_iterations=1,
        )
        return sums, None, gradients

    def _same_on_every_replica(self, gradients):
        """Gradients as the optimizer is to sum them up over the replicas.

        Keras' optimizers sum up at the very end. What looks at the whole
        gradient (its norm, whether it is finite) needs the sum before; each
        replica then hands over its equal part of it.
        """
        import tensorflow as tf

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
            limit = self.optimizer.scale_loss(tf.constant(self.clip_norm))
            factor *= limit / tf.maximum(norm, limit)
        return [factor * gradient for gradient in gradients]


def seeds_of(model):
    """The states of a model's random generators, TensorFlow variables."""
    weights = {id(variable) for variable in model.weights}
    return [v.value for v in model.variables if id(v) not in weights]


def spread_seeds(model):
    """Gives the dropout of every replica its own seeds.

    Variables are copied to the replicas, those of random generators too, and
    all replicas would drop the same units. Replica 0 keeps its seeds: they are
    what a checkpoint has. Call it in the strategy's scope, once the model has
    its first weights or those of a checkpoint.
    """
    import tensorflow as tf

    seeds = seeds_of(model)
    strategy = tf.distribute.get_strategy()

    @tf.function(autograph=False)
    def spread():
        strategy.run(in_replica)

    def in_replica():
        replica = tf.distribute.get_replica_context()
        for seed in seeds:
            number = tf.cast(replica.replica_id_in_sync_group, seed.dtype)
            seed.assign(seed + tf.stack([number * SEED_STRIDE, 0 * number]))

    if strategy.num_replicas_in_sync > 1:
        spread()


class TokenExactTraining:
    """Gives a Keras model the `TrainStep` in `fit` and `evaluate`.

    It is used when the model is compiled with a `SmoothedCrossEntropy` on the
    TensorFlow backend; `jit_compile=True` then works under
    `MirroredStrategy`, too. Any other loss trains as Keras does it.
    """

    _train_step = None

    def compile(self, optimizer="rmsprop", loss=None, **kwargs):
        """`keras.Model.compile`; see the class for `jit_compile`."""
        self._train_step = None
        self._jit_compile = kwargs.get("jit_compile", "auto")
        token_exact = (
            isinstance(loss, SmoothedCrossEntropy)
            and keras.backend.backend() == "tensorflow"
        )
        if token_exact:
            kwargs["jit_compile"] = False  # XLA inside the replica instead
        super().compile(optimizer=optimizer, loss=loss, **kwargs)
        if token_exact:
            self._train_step = TrainStep(
                self,
                self.optimizer,
                loss.label_smoothing,
                jit_compile=resolve_jit_compile(self._jit_compile),
                accumulate_steps=1,
                clip_norm=0.0,
            )

    def get_compile_config(self):
        config = super().get_compile_config()
        return config and {**config, "jit_compile": self._jit_compile}

    def compile_from_config(self, config):
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def train_step(self, *args):
        if self._train_step is None:
            return super().train_step(*args)
        inputs, labels, weights = keras.utils.unpack_x_y_sample_weight(*args)
        result = self._train_step(inputs, labels, weights)
        return self._report(inputs, labels, weights, result)

    def test_step(self, *args):
        if self._train_step is None:
            return super().test_step(*args)
        inputs, labels, weights = keras.utils.unpack_x_y_sample_weight(*args)
        logits = self(inputs, training=False)
        num_tokens = keras.ops.sum(
            token_weights(labels) * (1.0 if weights is None else weights)
        )
        loss = self.loss(labels, logits, weights)
        result = StepResult(loss * num_tokens, None, num_tokens, logits)
        return self._report(inputs, labels, weights, result)

    def _report(self, inputs, labels, sample_weight, result):
        """Updates loss and metrics, each a mean over tokens."""
        self._loss_tracker.update_state(
            keras.ops.divide_no_nan(result.loss_sum, result.num_tokens),
            sample_weight=result.num_tokens,
        )
        return self.compute_metrics(
            inputs, labels, result.logits, sample_weight
        )

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        """Keras' dry run, which fails when replicas get unequal batches.

        Model and optimizer are built already; only metrics wait for it, and
        those build themselves at their first update.
        """
        if self._train_step is None:
            super()._maybe_symbolic_build(iterator, data_batch)


def resolve_jit_compile(jit_compile):
    """What `jit_compile="auto"` means: XLA where there is an accelerator."""
    if jit_compile != "auto":
        return bool(jit_compile)
    import tensorflow as tf

    return bool(tf.config.list_logical_devices("GPU"))
