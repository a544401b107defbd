"""The definition of an update, the same on every engine.

    gradient = sum of token losses' gradients / tokens of the global batch
    gradient = clipped(gradient)
    weights -= the optimizer's step
    averages += average_changes(averages, weights)

The update equals that of one big batch, however many devices, hosts and
micro-batches its rows are spread over. `step.py` and `jax_step.py` add up the
gradients over the devices and call these functions. What changes a gradient
before the optimizer, such as clipping, belongs here.
"""

import typing

import keras
from keras import ops

from keras_transformer.base.backend import Tensor, global_norm
from keras_transformer.base.refusals import expect
from keras_transformer.text.vocabulary import PAD

SEED_STRIDE = 1_000_003  # between the seeds of devices
SLICE_STRIDE = 7_368_787  # between the seeds of slices of a device's rows


class GuidedHead(typing.NamedTuple):
    """The head that learns to align, and the weight of its loss."""

    attention: keras.Layer  # cross-attention of a decoder layer
    number: int  # of the head, counted from 1
    weight: float  # factor of the loss


class StepOptions(typing.NamedTuple):
    """The options of an update on every engine."""

    label_smoothing: float
    # Number of micro-batches of a device's rows, computed one after the other.
    # It must divide the number of rows.
    accumulate_steps: int = 1
    # Maximum norm of the gradient over all weights; 0 means no limit.
    clip_norm: float = 0.0
    r_drop: float = 0.0  # alpha of R-Drop; see `TokenLosses`
    ema_decay: float = 0.0  # as in `average_changes`; 0 keeps no average
    guided_head: GuidedHead | None = None


def token_weights(
    labels: Tensor, sample_weight: Tensor | None = None, dtype: str = "float32"
) -> Tensor:
    """Returns the weight of each position, `[B, T]`, 0 for padding.

    Other positions have weight 1, or their `sample_weight`, `[B]` for rows or
    `[B, T]` for tokens. Raises ValueError if it has another rank. Labels are
    `[B, T]`.

    >>> token_weights(ops.array([[5, 2, 0], [2, 0, 0]]), [0.5, 2.0]).numpy()
    array([[0.5, 0.5, 0. ],
           [2. , 0. , 0. ]], dtype=float32)
    """
    weights = ops.cast(ops.not_equal(labels, PAD), dtype)
    if sample_weight is None:
        return weights
    sample_weight = ops.cast(sample_weight, dtype)
    rank = len(sample_weight.shape)
    expect(
        rank in (1, 2),
        "sample_weight [B], for rows, or [B, T], for tokens",
        f"shape {sample_weight.shape}",
    )
    if rank == 1:
        sample_weight = sample_weight[:, None]  # [B] -> [B, 1]
    return weights * sample_weight


def weighted_sum(values: Tensor, weights: Tensor) -> Tensor:
    """Sums values times weights, in the dtype of the weights.

    A value with weight 0 is ignored, even if it is infinite, as -log p(PAD) is
    where the logit of `PAD` is -inf.

    >>> values = ops.array([2.0, float("inf")])
    >>> float(weighted_sum(values, ops.array([0.5, 0.0])))
    1.0
    """
    values = ops.cast(values, weights.dtype)
    return ops.sum(ops.where(weights == 0, 0.0, values) * weights)


def shifted_seed(seed: Tensor, offset: int | Tensor) -> Tensor:
    """Returns the state `[2]` of a random generator, with its seed shifted.

    >>> shifted_seed(ops.array([7, 1], "uint32"), 2 * SEED_STRIDE).numpy()
    array([2000013,       1], dtype=uint32)
    """
    offset = ops.cast(offset, seed.dtype)
    return seed + ops.stack([offset, ops.zeros_like(offset)])


def micro_batches(rows: typing.Any, number: int) -> typing.Any:
    """Reshapes nested rows `[B, ...]` to `[number, B / number, ...]`."""
    return keras.tree.map_structure(
        lambda x: ops.reshape(x, (number, -1, *ops.shape(x)[1:])), rows
    )


def clipped(gradients: list[Tensor], clip_norm: float | Tensor) -> list[Tensor]:
    """Scales the gradient of all weights to a norm of at most `clip_norm`.

    Gradients are the sums over all devices. If the loss is scaled, so must be
    `clip_norm`.

    >>> [float(g) for g in clipped([ops.array(3.0), ops.array(4.0)], 2.5)]
    [1.5, 2.0]
    """
    norm = global_norm(gradients)
    factor = clip_norm / ops.maximum(norm, clip_norm)
    return [factor * gradient for gradient in gradients]


def average_changes(
    averages: list[Tensor],
    weights: list[Tensor],
    updates: Tensor,
    ema_decay: float,
) -> list[Tensor]:
    """Computes what an update adds to the moving averages of the weights.

    This is (1 - decay) * (weight - average). As in TensorFlow's
    `ExponentialMovingAverage` with `num_updates`, the decay begins small, so
    that the first weights are soon forgotten:

        min(ema_decay, (1 + updates) / (10 + updates))

    `updates` is the number of updates so far, an integer scalar.
    """
    updates = ops.cast(updates, "float32")
    decay = ops.minimum(ema_decay, (1.0 + updates) / (10.0 + updates))
    return [
        (1.0 - decay) * (weight - average)
        for average, weight in zip(averages, weights, strict=True)
    ]
