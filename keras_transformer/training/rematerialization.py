"""Rematerialization: activations are recomputed instead of stored.

The backward pass needs the activations of every layer. Here only the inputs of
each encoder and decoder layer are stored, and the rest is recomputed with the
same dropout. Losses and gradients stay the same.

A layer becomes a pure function of its weights, its seeds and its arguments,
which the backend recomputes: by `jax.checkpoint`, or by a custom gradient in
TensorFlow.

`keras.RematScope` fails with these layers (Keras 3.15): the state of their
dropout leaves the recomputed function. `tf.recompute_grad` (2.21) has wrong
gradients with dropout, since `training` is unknown during recomputation, and
does not terminate in a loop.
"""

import typing
from collections.abc import Callable, Iterable

import keras

from keras_transformer.base.backend import ON_TENSORFLOW, Tensor, seed_variables

if ON_TENSORFLOW:
    import tensorflow as tf
else:
    import jax


def rematerialize(model: typing.Any) -> None:
    """Makes the layers of a built `Transformer` recompute their activations."""
    for block in [*model.encoder.blocks, *model.decoder.blocks]:
        block.call = _recomputed(block)


Arguments = tuple[tuple, dict[str, typing.Any]]  # positional, by name
REMATERIALIZE = {"none": lambda model: None, "layers": rematerialize}


class WithTraining(keras.layers.Layer):
    """A layer that passes `training` to a function. Only layers receive it."""

    def __init__(self, function: Callable, dtype: keras.DTypePolicy):
        super().__init__(dtype=dtype)
        self._function = function
        self.built = True

    def call(
        self, arguments: Arguments, training: bool | None = None
    ) -> Tensor:
        return self._function(arguments, training)


def _recomputed(block):
    """Makes the call of a block, with a gradient that recomputes it."""
    call, policy = block.call, block.dtype_policy
    variables, seeds = block.variables, seed_variables(block)
    # In it, the layers of the block know `training` even in the gradient.
    as_before = WithTraining(
        lambda arguments, training: call(*arguments[0], **arguments[1]), policy
    )

    def compute(arguments: Arguments, training: bool | None) -> Tensor:
        def of_values(
            values: list[Tensor], arguments: Arguments
        ) -> tuple[Tensor, list[Tensor]]:
            pairs = zip(variables, values, strict=True)
            with keras.StatelessScope(pairs) as scope:
                output = as_before(arguments, training=training)
            return output, [scope.get_current_value(seed) for seed in seeds]

        values = [variable.value for variable in variables]
        output, after = _checkpoint(of_values)(values, arguments)
        for seed, value in zip(seeds, after, strict=True):
            seed.assign(value)
        return output

    recomputed = WithTraining(compute, policy)
    return lambda *arguments, **named: recomputed((arguments, named))


def _checkpoint(function: Callable) -> Callable:
    """Applies `jax.checkpoint`, or its equivalent in TensorFlow.

    The function must be pure. It takes nested tensors and None, and returns a
    float tensor and a list of integer tensors.
    """
    if not ON_TENSORFLOW:
        return jax.checkpoint(function)

    def checkpoint(*arguments):
        def compute(tensors: Iterable[Tensor]) -> tuple[Tensor, list[Tensor]]:
            left = iter(tensors)
            return function(
                *tf.nest.map_structure(
                    lambda leaf: None if leaf is None else next(left), arguments
                )
            )

        @tf.custom_gradient
        def recomputed(*tensors):
            def gradient(upstream: Tensor, *_: Tensor) -> list[Tensor | None]:
                again = _after(upstream, tensors)
                floats = [x for x in again if x.dtype.is_floating]
                with tf.GradientTape() as tape:
                    tape.watch(floats)
                    output = compute(again)[0]
                gradients = iter(tape.gradient(output, floats, upstream))
                return [
                    next(gradients) if x.dtype.is_floating else None
                    for x in again
                ]

            return compute(tensors), gradient

        leaves = [x for x in tf.nest.flatten(arguments) if x is not None]
        return recomputed(*map(tf.convert_to_tensor, leaves))

    return checkpoint


def _after(upstream, tensors):
    """Returns the tensors, made to depend on the gradient `upstream`.

    Otherwise Grappler and XLA would find that the same is computed twice,
    compute it once and store the results. XLA ignores control dependencies, and
    on CPUs it computes what follows an optimization barrier too early. So a
    value computed from the gradient is added. It is 0 or NaN, but compilers
    cannot know that.
    """
    first = tf.reduce_sum(tf.reshape(upstream, [-1])[:1])
    zero = tf.where(tf.math.is_nan(first), first, tf.zeros_like(first))
    return [
        x & (zero == 0) if x.dtype == tf.bool else x + tf.cast(zero, x.dtype)
        for x in tensors
    ]
