"""The cost of a training, shown before it begins."""

import math

from trainers.run.progress import span

MIB = 2**20


def budget_lines(
    experiment, num_parameters, memory, num_programs, seconds_per_step
):
    """The budget of a training, as lines.

    Args:
        experiment: The `Experiment`.
        num_parameters: Parameters of the model.
        memory: `memory_of_replica`.
        num_programs: Number of programs that XLA compiles; 0 without XLA.
        seconds_per_step: Seconds of a step with one of the `largest_shapes`.

    Returns:
        List of `str`.
    """
    batches, config = experiment.train_batches, experiment.training
    steps = batches.steps_per_epoch
    source, target = (n / steps for n in batches.tokens_per_epoch)
    replicas = experiment.devices.num_replicas
    shapes = " and ".join(
        f"{rows} x {length}" for rows, length in largest_shapes(batches.shapes)
    )
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
        f"  a step: {source:,.0f} source and {target:,.0f} target tokens on"
        f" average, on {counted(replicas, 'replica')} in"
        f" {counted(config.accumulate_steps, 'micro-batch', 'micro-batches')}"
        " each",
        f"  {counted(len(batches.shapes), 'shape')} of a batch; XLA {xla}",
        f"  memory of a replica: {sizes}, and the activations",
        f"  the largest batches, {shapes} tokens, fit into memory:"
        f" {seconds_per_step:.2f} s a step, so about {time} for"
        f" {config.train_steps:,} steps without validation{limit}",
    ]


def counted(number, noun, plural=None):
    """A number with its noun: `1 shape`, `2 shapes`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def memory_of_replica(experiment, model, optimizer, num_slices):
    """Bytes on a replica by purpose, activations excluded.

    Each of the slices that a batch is divided into on a CPU has gradients of
    its own.
    """
    weights = sum(bytes_of(v) for v in model.weights)
    gradients = sum(bytes_of(v) for v in model.trainable_variables)
    if experiment.training.ema_decay:
        weights += gradients  # a moving average is as large
    if experiment.training.accumulate_steps > 1:
        gradients *= 2  # the sum so far, and a micro-batch's
    gradients *= num_slices
    return {
        "weights": weights,
        "gradients": gradients,
        "optimizer": sum(bytes_of(v) for v in optimizer.variables),
    }


def largest_shapes(shapes):
    """The shapes of a batch that can need the most memory, one or two.

    Projections need memory for each token, attention for each pair of tokens.

    >>> largest_shapes([(93, 11), (40, 25), (17, 59)])
    [(93, 11), (17, 59)]
    """
    most_tokens = max(shapes, key=lambda shape: shape[0] * shape[1])
    longest = max(shapes, key=lambda shape: shape[1])
    return list(dict.fromkeys([most_tokens, longest]))


def bytes_of(variable):
    """Bytes of a Keras variable of 4-byte numbers."""
    return 4 * math.prod(variable.shape)
