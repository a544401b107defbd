"""Gradients of a batch: at once, in micro-batches, or in parallel slices.

Instances are functions `gradients(rows, global_tokens)` of a replica's rows and
of the number of target tokens in the global batch. They return the `StepSums`
of the rows, and their share of the gradient of each trainable variable:

    gradient = sum of the rows' token losses' gradients / global_tokens

So the shares of all rows add up to the gradient, wherever they are computed.
They are scaled if the optimizer scales the loss.
"""

import typing
from collections.abc import Callable

import keras
import tensorflow as tf

from keras_transformer.base.backend import seed_variables
from keras_transformer.kernels.cross_entropy import smoothed_cross_entropy
from keras_transformer.training.token_losses import (
    TokenLosses,
    refuse_added_losses,
)
from keras_transformer.training.update import (
    SLICE_STRIDE,
    micro_batches,
    shifted_seed,
    weighted_sum,
)


class StepSums(typing.NamedTuple):
    """Sums over the target tokens of one replica in a step, scalars."""

    loss_sum: tf.Tensor  # of the smoothed token losses, nats
    nll_sum: tf.Tensor  # the same without smoothing
    num_tokens: tf.Tensor  # number of tokens, or the sum of their weights


class Rows(typing.NamedTuple):
    """Rows of a batch: sentence pairs."""

    inputs: dict[str, tf.Tensor]  # as for `TokenLosses`
    labels: tf.Tensor  # int [B, T], padded with PAD
    weights: tf.Tensor  # float [B, T], of each position; 0 for padding


Share = tuple[StepSums, list[tf.Tensor]]  # of one replica
Gradients = Callable[[Rows, tf.Tensor], Share]


def add_losses(
    losses: tf.Tensor, nll: tf.Tensor, weights: tf.Tensor
) -> StepSums:
    """Sums losses `[B, T]` with weights `[B, T]`, in the weights' dtype."""
    return StepSums(
        weighted_sum(losses, weights),
        weighted_sum(nll, weights),
        tf.reduce_sum(weights),
    )


class WholeGradients:
    """Gradients of all rows at once.

    The optimizer may scale the loss. With `jit_compile`, XLA compiles the
    forward and the backward pass.
    """

    def __init__(
        self, losses: TokenLosses, optimizer: typing.Any, jit_compile: bool
    ):
        self._losses = losses
        self._optimizer = optimizer
        self._compiled = self._gradients
        self._compiled_with_logits = self._gradients_and_logits
        if jit_compile:
            self._compiled = compiled(self._gradients, jit_compile=True)
            self._compiled_with_logits = compiled(
                self._gradients_and_logits, jit_compile=True
            )

    def __call__(self, rows: Rows, global_tokens: tf.Tensor) -> Share:
        return self._compiled(rows, global_tokens)

    def with_logits(
        self, rows: Rows, global_tokens: tf.Tensor
    ) -> tuple[StepSums, list[tf.Tensor], tf.Tensor]:
        """Returns sums, gradients, and logits `[B, T, V]` before the update.

        It is for `fit`, which has neither R-Drop nor a guided head.
        """
        return self._compiled_with_logits(rows, global_tokens)

    def _gradients(self, rows, global_tokens):
        with tf.GradientTape() as tape:
            losses = self._losses(rows.inputs, rows.labels, training=True)
            sums = add_losses(*losses, rows.weights)
            loss = self._mean(sums, global_tokens)
        return sums, self._of_weights(tape, loss)

    def _gradients_and_logits(self, rows, global_tokens):
        with tf.GradientTape() as tape:
            model, options = self._losses.model, self._losses.options
            logits = model(rows.inputs, training=True)
            refuse_added_losses(model)
            losses = smoothed_cross_entropy(
                rows.labels, logits, options.label_smoothing
            )
            sums = add_losses(*losses, rows.weights)
            loss = self._mean(sums, global_tokens)
        return sums, self._of_weights(tape, loss), logits

    def _mean(self, sums, global_tokens):
        loss = tf.math.divide_no_nan(sums.loss_sum, global_tokens)
        return self._optimizer.scale_loss(loss)

    def _of_weights(self, tape, loss):
        weights = [v.value for v in self._losses.model.trainable_variables]
        return [tf.convert_to_tensor(g) for g in tape.gradient(loss, weights)]


class MicroBatchGradients:
    """Gradients computed in micro-batches, one after the other.

    This saves memory. `num_micro_batches` must divide the number of rows.
    """

    def __init__(
        self, inner: Gradients, model: typing.Any, num_micro_batches: int
    ):
        self._inner = inner
        self._model = model
        self._num_micro_batches = num_micro_batches

    def __call__(self, rows: Rows, global_tokens: tf.Tensor) -> Share:
        parts = micro_batches(rows, self._num_micro_batches)

        def add_micro_batch(index: tf.Tensor, so_far: tuple) -> tuple:
            micro_batch = tf.nest.map_structure(lambda x: x[index], parts)
            terms = self._inner(micro_batch, global_tokens)
            return index + 1, tf.nest.map_structure(tf.add, so_far, terms)

        zero = tf.zeros([], rows.weights.dtype)
        zeros = [
            tf.zeros(v.shape, v.dtype) for v in self._model.trainable_variables
        ]
        _, totals = tf.while_loop(
            lambda index, _: index < self._num_micro_batches,
            add_micro_batch,
            (0, (StepSums(zero, zero, zero), zeros)),
            parallel_iterations=1,
        )
        return totals


class SliceGradients:
    """Gradients computed in parallel slices of the rows, each on a CPU core.

    On CPUs this is faster than dividing every operation among the cores. The
    slices must not wait for each other, so a slice has no side effects: the
    dropout seeds, which all slices would change, are arguments and results.
    Each slice has its own seeds. The model's only state is its weights and
    these seeds.
    """

    def __init__(self, inner: Gradients, model: typing.Any, num_slices: int):
        self._inner = inner
        self._model = model
        self._num_slices = num_slices
        self._of_slice = compiled(self._with_seeds)  # traced once for all

    def __call__(self, rows: Rows, global_tokens: tf.Tensor) -> Share:
        seeds = [variable.value for variable in seed_variables(self._model)]
        before = [tf.convert_to_tensor(seed) for seed in seeds]
        results = []
        for index, of_slice in enumerate(self._slices(rows)):
            own = [shifted_seed(seed, index * SLICE_STRIDE) for seed in before]
            results.append(self._of_slice(of_slice, global_tokens, own))
        terms, after = zip(*results, strict=True)
        for seed, value in zip(seeds, after[0], strict=True):
            seed.assign(value)
        return tf.nest.map_structure(lambda *each: tf.add_n(each), *terms)

    def _slices(self, rows: Rows) -> list[Rows]:
        sizes = slice_sizes(tf.shape(rows.labels)[0], self._num_slices)
        parts = [
            tf.split(x, sizes, num=self._num_slices)
            for x in tf.nest.flatten(rows)
        ]
        return [
            tf.nest.pack_sequence_as(rows, of_slice)
            for of_slice in zip(*parts, strict=True)
        ]

    def _with_seeds(self, rows, global_tokens, seeds):
        """Computes gradients with given seeds, and the next seeds."""
        variables = seed_variables(self._model)
        pairs = zip(variables, seeds, strict=True)
        with keras.StatelessScope(pairs, collect_losses=True) as scope:
            terms = self._inner(rows, global_tokens)
        return terms, [scope.get_current_value(v) for v in variables]


def slice_sizes(num_rows: int | tf.Tensor, num_slices: int) -> list:
    """Returns the sizes of slices of rows, as equal as possible.

    >>> slice_sizes(14, num_slices=3)
    [4, 5, 5]
    """
    return [(num_rows + index) // num_slices for index in range(num_slices)]


def compiled(function: Callable, jit_compile: bool = False) -> Callable:
    """Makes a function a separate graph, which XLA compiles if requested."""
    return tf.function(
        function,
        jit_compile=jit_compile or None,
        reduce_retracing=True,
        autograph=False,
    )
