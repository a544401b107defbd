"""What a training will cost, shown before it begins."""

import math

from keras_transformer.chunks import centered_neighborhood, divide
from trainers.progress import span

MIB = 2**20
# Numbers kept for the backward pass, for each position, as multiples of the
# width they have: inputs, projections, dropped outputs, sums, normalized sums.
ATTENTION_WIDTHS = 12
FEED_FORWARD_WIDTHS = 6
EMBEDDING_WIDTHS = 3
HIDDEN_WIDTHS = 2  # of d_ff: after the activation, and the gradient of it
WEIGHT_COPIES = 2  # of each head's weights: before and after the softmax
LOGIT_COPIES = 3  # float32: logits, softmax, gradient


def budget_lines(
    experiment, num_parameters, memory, num_programs, seconds_per_step
):
    """The budget of a training, as lines.

    Args:
        experiment: The `Experiment`.
        num_parameters: Parameters of the model.
        memory: `memory_of_replica`.
        num_programs: How many programs XLA compiles; 0: it is not used.
        seconds_per_step: What a batch of `largest_shape` took.

    Returns:
        List of `str`.
    """
    batches, config = experiment.train_batches, experiment.training
    corpus, steps = batches.corpus, batches.steps_per_epoch
    replicas = experiment.strategy.num_replicas_in_sync
    rows, length = largest_shape(experiment)
    epochs = config.train_steps / steps
    sizes = ", ".join(f"{k} {n / MIB:,.0f} MiB" for k, n in memory.items())
    time = span(seconds_per_step * config.train_steps)
    limit = ""
    if config.train_minutes:
        limit = f"; it ends after {config.train_minutes:g} min at the latest"
    xla = "is not used"
    if num_programs:
        xla = f"compiles {counted(num_programs, 'program')}"
    return [
        f"budget: {num_parameters:,} parameters;"
        f" {config.train_steps:,} steps are {epochs:.1f} epochs of {steps:,}",
        f"  a step: {len(corpus.source.ids) / steps:,.0f} source and"
        f" {len(corpus.target.ids) / steps:,.0f} target tokens on average, on"
        f" {counted(replicas, 'replica')} in"
        f" {counted(config.accumulate_steps, 'micro-batch', 'micro-batches')}"
        " each",
        f"  {counted(len(batches.shapes), 'shape')} of a batch; XLA {xla}",
        f"  memory of a replica, about: {sizes};"
        f" {sum(memory.values()) / MIB:,.0f} MiB in all",
        f"  the largest batch, {rows} x {length}, fits:"
        f" {seconds_per_step:.2f} s a step, so about {time} for"
        f" {config.train_steps:,} steps without validation{limit}",
    ]


def counted(number, noun, plural=None):
    """A number with its noun: `1 shape`, `2 shapes`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def memory_of_replica(experiment, model, optimizer, num_slices):
    """Bytes on a replica by what they are for; estimates.

    Activations are those that the backward pass of the largest batch needs,
    without the library's own work space. Each of the slices that a batch is
    divided into on a CPU has gradients of its own.
    """
    weights = sum(bytes_of(v) for v in model.weights)
    gradients = sum(bytes_of(v) for v in model.trainable_variables)
    if experiment.training.ema_decay:
        weights += gradients  # a moving average is as large
    if experiment.training.accumulate_steps > 1:
        gradients *= 2  # the sum so far, and those of a micro-batch
    gradients *= num_slices
    return {
        "weights": weights,
        "gradients": gradients,
        "optimizer": sum(bytes_of(v) for v in optimizer.variables),
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
    passes = 2 if experiment.training.r_drop else 1
    return activations(
        experiment.configuration.model,
        passes * rows // experiment.rows_multiple,
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

    def attention(keys):  # that each query is compared with
        weights = WEIGHT_COPIES * config.num_heads * keys
        return ATTENTION_WIDTHS * config.d_model + weights

    width = length
    if config.attention_window is not None:
        neighborhood = centered_neighborhood(config.attention_window)
        width = divide(length, neighborhood).width
    feed_forward = FEED_FORWARD_WIDTHS * config.d_model
    # The gradient of ReLU needs its output alone, others need their input.
    kept_inputs = 0 if config.activation == "relu" else 1
    feed_forward += (HIDDEN_WIDTHS + kept_inputs) * config.d_ff
    numbers = 2 * EMBEDDING_WIDTHS * config.d_model
    numbers += config.num_layers * (attention(width) + feed_forward)
    numbers += config.decoder_depth * (
        attention(width) + attention(length) + feed_forward
    )
    logits = LOGIT_COPIES * 4 * config.vocab_size
    return rows * length * (numbers * number_bytes + logits)
