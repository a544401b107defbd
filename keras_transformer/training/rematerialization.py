"""Rematerialization under JAX: layers are computed again instead of stored.

The backward pass needs the activations of every layer. Here it keeps only the
inputs of each encoder and decoder layer and computes the rest again, with the
same dropout. Losses and gradients stay the same.

Keras' own (`keras.RematScope`) fails with these layers (Keras 3.15): the state
of their dropout leaves the recomputed function. Under TensorFlow 2.21
`tf.recompute_grad` has wrong gradients with dropout, and never ends in a loop.
"""

import typing

import jax
import keras


def rematerialize(model: typing.Any) -> None:
    """Makes the layers of a built `Transformer` recompute in training.

    Args:
        model: The model; its outputs do not change.
    """
    for block in [*model.encoder.blocks, *model.decoder.blocks]:
        block.call = _recomputed(block, block.call)


def _recomputed(block, call):
    """The call as a pure function: weights and seeds go in, seeds come out."""
    seeds = block.non_trainable_variables
    variables = block.trainable_variables + seeds

    @jax.checkpoint
    def compute(values, arguments):
        pairs = list(zip(variables, values, strict=True))
        with keras.StatelessScope(pairs) as scope:
            outputs = call(*arguments)
        return outputs, [scope.get_current_value(seed) for seed in seeds]

    def call_of_block(*arguments):
        values = [variable.value for variable in variables]
        outputs, after = compute(values, arguments)
        for seed, value in zip(seeds, after, strict=True):
            seed.assign(value)
        return outputs

    return call_of_block
