"""What a training will cost, told before it begins."""

import math

from trainers.progress import span

MIB = 2**20
# Numbers kept for the backward pass, for each position, as multiples of the
# width they have: inputs, projections, dropped outputs, sums, normalized sums.
ATTENTION_WIDTHS = 12
FEED_FORWARD_WIDTHS = 6
EMBEDDING_WIDTHS = 3
HIDDEN_WIDTHS = 2  # of d_ff: after the ReLU, and the gradient of it
WEIGHT_COPIES = 2  # of each head's weights: before and after the softmax
LOGIT_COPIES = 3  # float32: logits, softmax, gradient


def describe(trainer, seconds_per_step):
    """The budget of a training, as lines.

    Args:
        trainer: The `Trainer`.
        seconds_per_step: What a batch of `largest_shape` took.

    Returns:
        List of `str`.
    """
    experiment = trainer.experiment
    batches, config = experiment.train_batches, experiment.training
    corpus, steps = batches.corpus, batches.steps_per_epoch
    replicas = experiment.strategy.num_replicas_in_sync
    rows, length = largest_shape(experiment)
    sizes = memory(trainer)
    epochs = config.train_steps / steps
    parts = ", ".join(f"{k} {size / MIB:,.0f} MiB" for k, size in sizes.items())
    time = span(seconds_per_step * config.train_steps)
    return [
        f"budget: {trainer.model.count_params():,} parameters;"
        f" {config.train_steps:,} steps are {epochs:.1f} epochs of {steps:,}",
        f"  a step: {len(corpus.source.ids) / steps:,.0f} source and"
        f" {len(corpus.target.ids) / steps:,.0f} target tokens on average, on"
        f" {counted(replicas, 'replica')} in"
        f" {counted(config.accumulate_steps, 'part')} each",
        f"  {counted(len(batches.shapes), 'shape')} of a batch; XLA"
        f" {programs(trainer)}",
        f"  memory of a replica, about: {parts};"
        f" {sum(sizes.values()) / MIB:,.0f} MiB in all",
        f"  the largest batch, {rows} x {length}, fits:"
        f" {seconds_per_step:.2f} s a step, so about {time} for"
        f" {config.train_steps:,} steps without validation",
    ]


def programs(trainer):
    """How often XLA compiles."""
    count = len(trainer.experiment.train_batches.shapes)
    if trainer.static_shapes and trainer.config.steps_per_call > 1:
        count *= 2  # runs of steps, and single ones
    if trainer.static_shapes or trainer.jit_compile:
        return f"compiles {counted(count, 'program')}"
    return "is not used"


def counted(number, noun):
    """A number with its noun: `1 part`, `2 parts`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def memory(trainer):
    """Bytes on a replica by what they are for; estimates.

    Activations are those that the backward pass of the largest batch needs,
    without the library's own work space.
    """
    weights = sum(bytes_of(v) for v in trainer.model.trainable_variables)
    experiment = trainer.experiment
    parts = experiment.training.accumulate_steps
    return {
        "weights": weights,
        "gradients": weights * (1 if parts == 1 else 2),
        "optimizer": sum(bytes_of(v) for v in trainer.optimizer.variables),
        "activations": activations_of(experiment, largest_shape(experiment)),
    }


def largest_shape(experiment):
    """The shape of a training batch whose step needs the most memory."""
    return max(
        experiment.train_batches.shapes,
        key=lambda shape: activations_of(experiment, shape),
    )


def activations_of(experiment, shape):
    """`activations` of what a replica computes at once of a batch."""
    rows, length = shape
    return activations(
        experiment.configuration.model,
        rows // experiment.rows_multiple,
        length,
        4 if experiment.training.precision == "float32" else 2,
    )


def bytes_of(variable):
    """Bytes of a Keras variable of 4-byte numbers."""
    return 4 * math.prod(variable.shape)


def activations(config, rows, length, number_bytes):
    """Bytes that the backward pass needs of the forward pass.

    Args:
        config: The `TransformerConfig`.
        rows: Rows that are computed at once.
        length: Tokens of a row, on both sides.
        number_bytes: Of a number in a layer: 4, or 2 in half precision.
    """
    attention = ATTENTION_WIDTHS * config.d_model
    attention += WEIGHT_COPIES * config.num_heads * length
    feed_forward = FEED_FORWARD_WIDTHS * config.d_model
    feed_forward += HIDDEN_WIDTHS * config.d_ff
    numbers = 2 * EMBEDDING_WIDTHS * config.d_model
    numbers += config.num_layers * (attention + feed_forward)
    numbers += config.decoder_depth * (2 * attention + feed_forward)
    logits = LOGIT_COPIES * 4 * config.vocab_size
    return rows * length * (numbers * number_bytes + logits)
