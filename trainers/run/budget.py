"""The cost of a training run, measured and shown before it begins."""

import math
from collections.abc import Sequence

import keras

from keras_transformer.base.machine import free_memory
from keras_transformer.commands.flags import CommandError
from keras_transformer.data.batches import Shape, make_batches
from keras_transformer.text.writing import counted
from trainers.run.engine import Engine, OutOfMemoryError, Task
from trainers.run.progress import span
from trainers.run.training_config import as_flags, shorter_warmup

MIB, GIB = 2**20, 2**30
# A smaller `batch_tokens` is proposed if more than this share of a batch is
# padding, and an epoch has at most this many batches.
FEW_PAIRS = 1000
MOST_PADDING, FEW_BATCHES = 0.5, 100


def largest_shapes(shapes: Sequence[Shape]) -> list[Shape]:
    """Returns the one or two shapes of a batch that need the most memory.

    Projections need memory for each token, attention for each pair of tokens.

    >>> largest_shapes([(93, 11), (40, 25), (17, 59)])
    [(93, 11), (17, 59)]
    """
    most_tokens = max(shapes, key=lambda shape: shape[0] * shape[1])
    longest = max(shapes, key=lambda shape: shape[1])
    return list(dict.fromkeys([most_tokens, longest]))


def try_batches(task: Task, engine: Engine) -> float:
    """Makes the steps that need the most memory, and undoes them.

    If XLA compiles a program for each shape, tries all shapes, so that
    compilation takes no time from `train_minutes`.

    Returns the seconds of the slowest step, without compilation. Raises
    `CommandError` if a batch does not fit into the memory of a device.
    """
    shapes = task.train_batches.shapes
    tried = largest_shapes(shapes)
    check_memory(task, engine, *tried[0])
    if engine.num_programs:
        tried += [shape for shape in shapes if shape not in tried]
    seconds = []
    for rows, length in tried:
        try:
            seconds.append(engine.try_batch((rows, length)))
        except OutOfMemoryError as error:
            raise CommandError(
                f"the largest batch, {rows} x {length} tokens, does not fit"
                f" into memory: {_advice(task, engine, rows, length)} ({error})"
            ) from error
    return max(seconds)


def check_memory(task: Task, engine: Engine, rows: int, length: int) -> None:
    """Raises CommandError if a batch surely needs more memory than is free.

    On CPUs, the kernel would kill the process. The estimate is about a third of
    what the trial takes: a batch that it lets pass may still be too large.
    """
    model, training = engine.model.config, task.training
    layers = model.num_layers + (model.num_decoder_layers or model.num_layers)
    stored = layers * (6 * model.d_model + model.d_ff)
    if training.remat == "layers":
        stored = layers * model.d_model
    size = 4 if training.precision in (None, "float32") else 2
    tokens = rows * length // task.rows_multiple
    needed, free = tokens * stored * size, free_memory()
    if needed > free and not task.devices.num_gpus:
        fitting = min(task.data.batch_tokens, rows * length)
        fitting = fitting * free // needed // 3
        raise CommandError(
            f"the largest batch, {rows:,} x {length} tokens, needs more than"
            f" {needed / GIB:,.1f} GiB, and {free / GIB:,.1f} GiB of memory are"
            f" free: choose a smaller --batch_tokens, such as {fitting}"
        )


def _advice(task: Task, engine: Engine, rows: int, length: int) -> str:
    """Suggests, as text, options that make a too large batch fit into memory.

    A batch with a part of the rows needs as much memory as a micro-batch.
    """
    multiple, config = task.rows_multiple, task.training
    parts = 2
    while rows // parts >= multiple:
        fitting = rows // parts // multiple * multiple
        try:
            engine.try_batch((fitting, length))
        except OutOfMemoryError:
            parts *= 2
            continue
        return (
            f"--accumulate_steps={parts * config.accumulate_steps} fits"
            " (the same updates, in more micro-batches), and so does"
            f" --batch_tokens={fitting * length} (smaller batches)"
        )
    advice = "a smaller --max_length may fit"
    if config.remat == "none":
        advice = "--remat=layers may fit"
    return f"not even one row on each device fits; {advice}"


def budget_lines(
    task: Task, engine: Engine, seconds_per_step: float
) -> list[str]:
    """Describes the budget of a training run in lines.

    `seconds_per_step` is the time of a step with the largest batch.
    """
    batches, config = task.train_batches, task.training
    steps = batches.steps_per_epoch
    source, target = (n / steps for n in batches.tokens_per_epoch)
    shapes = " and ".join(
        f"{rows} x {length}" for rows, length in largest_shapes(batches.shapes)
    )
    epochs = config.train_steps / steps
    memory = memory_of_replica(task, engine)
    sizes = ", ".join(f"{k} {n / MIB:,.0f} MiB" for k, n in memory.items())
    seconds = seconds_per_step * config.train_steps
    time = f"about {span(seconds)} for {config.train_steps:,} steps"
    affordable = float(config.train_steps)
    if 0 < config.train_minutes * 60 < seconds:
        affordable = config.train_minutes * 60 / seconds_per_step
        time = f"about {affordable:,.0f} in {span(config.train_minutes * 60)}"
    few = []
    if len(batches.corpus) < FEW_PAIRS and not config.init_from:
        few = [
            f"  note: {counted(len(batches.corpus), 'pair')} can be learned by"
            " heart, but no language: for new sentences, take thousands, or"
            " begin with a trained model (--init_from)"
        ]
    xla = "is not used"
    if engine.num_programs:
        xla = f"compiles {counted(engine.num_programs, 'program')}"
    return [
        f"budget: {engine.model.count_params():,} parameters;"
        f" {config.train_steps:,} steps are {epochs:,.1f} epochs of"
        f" {counted(steps, 'batch', 'batches')}",
        f"  a step: {source:,.0f} source and {target:,.0f} target tokens on"
        f" average, on {counted(task.devices.num_replicas, 'replica')} in"
        f" {counted(config.accumulate_steps, 'micro-batch', 'micro-batches')}"
        " each",
        f"  {counted(len(batches.shapes), 'shape')} of a batch; XLA {xla}",
        f"  memory of a replica: {sizes}, and the activations",
        f"  the largest batches, {shapes} tokens, fit into memory:"
        f" {seconds_per_step:.2f} s a step, so {time} without validation",
        *few,
        *notes_on(task, affordable),
    ]


def notes_on(task: Task, steps: float) -> list[str]:
    """Returns notes on padding, and on warm-up and validation in `steps`.

    `steps` is the number of updates that the time limit allows.
    """
    notes, config, batches = [], task.training, task.train_batches
    if fewer_tokens := _fewer_tokens(task):
        notes.append(
            f"  note: {batches.padding_share:.0%} of a batch is padding:"
            f" {counted(len(batches.corpus), 'pair')} for --batch_tokens="
            f"{task.data.batch_tokens}; --batch_tokens={fewer_tokens} halves it"
        )
    if steps < config.train_steps and config.updates_to_peak > steps / 2:
        shorter = shorter_warmup(
            vars(config) | {"warmup_steps": config.updates_to_peak}, steps
        )
        notes.append(
            "  note: at least half of the steps are warm-up;"
            f" {as_flags(shorter)} makes it a tenth"
        )
    if config.valid_steps > steps:
        notes.append(
            f"  note: no validation: --valid_steps={config.valid_steps} is more"
            " than the steps"
        )
    return notes


def _fewer_tokens(task: Task) -> int:
    """Finds a value of `batch_tokens` that halves the padding.

    Returns 0 if there is none, if padding is at most `MOST_PADDING`, or if an
    epoch has more than `FEW_BATCHES` batches. Batches of a small corpus are
    padded because too few of its pairs have the same length.
    """
    batches, multiple = task.train_batches, task.rows_multiple
    if (
        batches.padding_share <= MOST_PADDING
        or batches.steps_per_epoch > FEW_BATCHES
    ):
        return 0
    tokens, longest = task.data.batch_tokens // 2, batches.shapes[-1][1]
    while tokens >= multiple * longest:
        smaller = make_batches(
            batches.corpus,
            tokens,
            num_buckets=task.data.num_buckets,
            rows_multiple=multiple,
        )
        if smaller.padding_share <= batches.padding_share / 2:
            return tokens
        tokens //= 2
    return 0


def memory_of_replica(task: Task, engine: Engine) -> dict[str, int]:
    """Counts the bytes on a replica by purpose, without activations.

    Each slice of a replica's rows has its own gradients.
    """
    weights = bytes_of(engine.model.weights)
    gradients = bytes_of(engine.model.trainable_variables)
    if task.training.ema_decay:
        weights += gradients  # a moving average is as large
    if task.training.accumulate_steps > 1:
        gradients *= 2  # the sum so far, and a micro-batch's
    return {
        "weights": weights,
        "gradients": gradients * engine.num_slices,
        "optimizer": bytes_of(engine.optimizer.variables),
    }


def bytes_of(variables: Sequence[keras.Variable]) -> int:
    """Counts the bytes of Keras variables, 4 for each number."""
    return sum(4 * math.prod(variable.shape) for variable in variables)
