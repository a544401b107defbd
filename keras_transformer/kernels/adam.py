"""Adam as one operation for each variable, or for all of them.

Keras' own Adam has some 25 operations per variable. For a small model, they
take 40 % of the time to trace a training step.
"""

import typing

import keras
from keras import ops

from keras_transformer.base.backend import ON_TENSORFLOW, Tensor

if ON_TENSORFLOW:
    import tensorflow as tf


@keras.saving.register_keras_serializable("keras_transformer")
class FusedAdam(keras.optimizers.Adam):
    """`keras.optimizers.Adam`, computed by TensorFlow's own kernel.

    Updates, variables and saved state equal those of Keras' Adam up to
    rounding. On other backends, with `amsgrad`, or for variables that are not
    float32, Keras' Adam is used.

    Call `apply` or `apply_gradients`, as with every Keras optimizer.
    """

    # beta_1^t and beta_2^t during a call of `apply`, float32 scalars.
    _powers: typing.Any = None

    def apply(
        self,
        grads: list[Tensor],
        trainable_variables: list[keras.Variable] | None = None,
    ) -> None:
        """Applies gradients as Keras does, but computes powers of beta once."""
        if not ON_TENSORFLOW:
            return super().apply(grads, trainable_variables)
        # If Keras accumulates gradients, this is a tensor, not a variable.
        updates = tf.convert_to_tensor(self.iterations)
        step = tf.cast(updates + 1, tf.float32)
        self._powers = tf.pow(self.beta_1, step), tf.pow(self.beta_2, step)
        try:
            return super().apply(grads, trainable_variables)
        finally:
            self._powers = None

    def update_step(
        self, gradient: Tensor, variable: keras.Variable, learning_rate: Tensor
    ) -> None:
        """Updates one variable and its two moments (Kingma and Ba, 2015)."""
        is_fused = (
            self._powers is not None
            and not self.amsgrad
            and keras.backend.standardize_dtype(variable.dtype) == "float32"
        )
        if not is_fused:
            super().update_step(gradient, variable, learning_rate)
            return
        index = self._get_variable_index(variable)
        beta_1_power, beta_2_power = self._powers
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=beta_1_power,
            beta2_power=beta_2_power,
            lr=tf.cast(learning_rate, tf.float32),
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=tf.cast(gradient, tf.float32),
        )

    def updated(
        self,
        weights: Tensor,
        momentum: Tensor,
        velocity: Tensor,
        gradient: Tensor,
        decaying: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Updates all weights at once. Returns weights, momentum and velocity.

        All are flat arrays, `[P]`. `decaying`, bool `[P]`, tells which weights
        decay; None means none. The results equal those of Keras' Adam. The
        optimizer's own moments are not used, but its `iterations` advance.
        """
        rate, beta_1, beta_2, decay = (
            ops.cast(x, weights.dtype)
            for x in (
                self.learning_rate,
                self.beta_1,
                self.beta_2,
                self.weight_decay or 0.0,
            )
        )
        if decaying is not None:
            decayed = weights - weights * decay * rate
            weights = ops.where(decaying, decayed, weights)
        step = ops.cast(self.iterations + 1, weights.dtype)
        scale = ops.sqrt(1 - ops.power(beta_2, step))
        alpha = rate * scale / (1 - ops.power(beta_1, step))
        momentum += (gradient - momentum) * (1 - self.beta_1)
        velocity += (ops.square(gradient) - velocity) * (1 - self.beta_2)
        weights -= momentum * alpha / (ops.sqrt(velocity) + self.epsilon)
        self.iterations.assign_add(1)
        return weights, momentum, velocity

    def decays(self, variable: keras.Variable) -> bool:
        """Tells whether `weight_decay` applies to a variable."""
        return self._use_weight_decay(variable)
