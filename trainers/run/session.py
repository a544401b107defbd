"""A session of a training run, from its configuration to its end.

A run has one session, or several if it is stopped and resumed.
"""

import dataclasses
import importlib
import math
import typing
from collections.abc import Callable

import keras

from keras_transformer.base.files import write_atomically
from keras_transformer.base.machine import check_products
from keras_transformer.commands import flags
from keras_transformer.commands.flags import CommandError
from keras_transformer.storage.checkpoints import step_of
from keras_transformer.storage.workdir import WorkDirectory
from keras_transformer.text.writing import counted
from keras_transformer.translation import metrics
from trainers.datasets.dataset import find_dataset
from trainers.run.budget import budget_lines, try_batches
from trainers.run.checkpoints import average
from trainers.run.data_config import DataConfig
from trainers.run.engine import Devices
from trainers.run.experiment import Opening, open_experiment
from trainers.run.loop import Trainer
from trainers.run.progress import Log, log
from trainers.run.training_config import (
    Configuration,
    TrainingConfig,
    as_flags,
    shorter_warmup,
)
from trainers.run.validation import show_result

# The engine of each Keras backend.
ENGINES = {
    "jax": "trainers.run.jax_engine",
    "tensorflow": "trainers.run.tensorflow_engine",
}
# Fewer epochs are too few for a corpus of less than `SMALL_CORPUS` pairs.
FEW_EPOCHS = 2
SMALL_CORPUS = 300_000
MakeMetric = Callable[[Configuration], metrics.DirectionalMetric]


def make_translation_metric(
    configuration: Configuration,
) -> metrics.DirectionalMetric:
    """Makes the metric of a translation run."""
    data = typing.cast(DataConfig, configuration.data)
    valid_files = data.train_files if data.valid_share else data.valid_files
    return metrics.make_metric(
        data.directions_in(*valid_files, *data.test_files),
        configuration.training.bleu_tokenizer,
    )


def run(
    configuration: Configuration,
    path: str,
    dry_run: bool,
    device: str | None = None,
    make_metric: MakeMetric = make_translation_metric,
    fits_warmup: bool = False,
) -> None:
    """Trains to the end or until a signal, in the work directory at `path`.

    A dry run writes nothing, and ends before the first step. `device` is the
    kind of device that must compute, or None. `make_metric` makes the metric of
    validation and test. `fits_warmup` is as in `open_trainer`.

    Raises CommandError if flags, data or the work directory are bad; RunError
    if the training has diverged, has lost a worker, or cannot save.
    """
    if dry_run:
        data = configuration.data
        with flags.user_errors():
            find_dataset(data.dataset).check_downloaded(data)
    trainer = open_trainer(
        configuration, path, not dry_run, device, make_metric, fits_warmup
    )
    if dry_run:
        if trainer.workers.is_chief:
            flags.show("dry run: nothing was written")
        return
    ending = trainer.run()
    workdir = trainer.experiment.workdir
    saved = workdir.latest.prefixes()
    if not trainer.workers.is_chief:
        return
    if ending.signal and saved:
        log(f"saved in {path}; rerun the same command to resume")
    elif ending.signal:
        log("stopped before the first step; nothing was saved")
    elif not saved:
        raise CommandError(
            "train_minutes must leave time for a step. Received:"
            f" train_minutes={configuration.training.train_minutes:g}"
        )
    else:
        with flags.user_errors():
            averaged, _ = average(workdir, configuration.training.average_last)
        steps = ", ".join(str(step_of(prefix)) for prefix in averaged[::-1])
        log(f"averaged {counted(len(averaged), 'checkpoint')}: step {steps}")
        warn_of_few_epochs(trainer)
        show_result(trainer.experiment, log)


def warn_of_few_epochs(trainer: Trainer) -> None:
    """Logs a note if a small corpus was read for less than `FEW_EPOCHS`."""
    batches, number = trainer.experiment.train_batches, trainer.progress.step
    pairs, steps = len(batches.corpus), batches.steps_per_epoch
    if (
        number < FEW_EPOCHS * steps
        and pairs < SMALL_CORPUS
        and not trainer.config.init_from
    ):
        log(
            f"note: {number / steps:.1f} epochs are few for {pairs:,} pairs."
            " Corpora of this size need tens of epochs: ten are"
            f" --train_steps={10 * steps}"
        )


def open_trainer(
    configuration: Configuration,
    path: str,
    keep: bool,
    device: str | None = None,
    make_metric: MakeMetric = make_translation_metric,
    fits_warmup: bool = False,
) -> Trainer:
    """Makes a `Trainer` with the state in the work directory at `path`.

    With `keep`, writes configuration, vocabulary and flags there. Tries the
    largest batches. With `fits_warmup`, a new run whose `train_minutes` would
    be mostly warm-up has a shorter one.

    Raises CommandError if flags, data or the work directory are bad, or if a
    batch does not fit into memory.
    """
    workdir = WorkDirectory(path)
    with flags.user_errors():
        engine = importlib.import_module(ENGINES[keras.backend.backend()])
        devices = engine.open_devices(configuration.training, device)
        configuration, told = with_precision(configuration, workdir, devices)
        if not devices.num_gpus:
            check_products(configuration.training.precision or "float32")
    workers = devices.workers
    keep = keep and workers.is_chief
    tell: Log = log if workers.is_chief else lambda line: None
    for line in (devices.description, *told):
        tell(line)
    with flags.user_errors(), workers.watch():
        metric = make_metric(configuration)
        with workers.chief_first():  # the others read what the chief writes
            opening = Opening(workdir, configuration, devices, metric, tell)
            experiment = open_experiment(opening, keep)
        trainer = Trainer(experiment, devices.make_engine(experiment))
        restored = trainer.restore()
        seconds_per_step = try_batches(experiment, trainer.engine)
        if fits_warmup and not restored:
            changes = fitted_warmup(trainer, seconds_per_step)
            if changes:
                before = trainer.config
                tell(
                    f"{as_flags(changes)} instead of"
                    f" --warmup_steps={before.updates_to_peak}: a tenth of the"
                    f" updates that {before.train_minutes:g} minutes allow, and"
                    " the same peak learning rate"
                )
                shorter = dataclasses.replace(before, **changes)
                experiment = experiment.with_training(shorter)
                del trainer  # and the memory of its devices
                trainer = Trainer(experiment, devices.make_engine(experiment))
                trainer.restore()
                if keep:
                    workdir.replace_section("training", shorter)
        trainer.engine.begin()
        if keep:
            write_flags(workdir, experiment.configuration)
    for line in (
        *budget_lines(experiment, trainer.engine, seconds_per_step),
        *start_lines(trainer, restored),
    ):
        tell(line)
    return trainer


def with_precision(
    configuration: Configuration, workdir: WorkDirectory, devices: Devices
) -> tuple[Configuration, list[str]]:
    """Returns the configuration with a precision, and log lines about it.

    By default, a run keeps the precision that it began with, and a new run uses
    the fastest one of its devices.
    """
    if configuration.training.precision is not None:
        return configuration, []
    precision, told = devices.precision, []
    if workdir.latest.prefixes() and workdir.config_path.exists():
        before = workdir.read_section("training", TrainingConfig)
        precision = before.precision or "float32"
    elif precision != "float32":
        told = [f"precision: {precision}, the default on this device"]
    training = dataclasses.replace(configuration.training, precision=precision)
    return dataclasses.replace(configuration, training=training), told


def fitted_warmup(trainer: Trainer, seconds_per_step: float) -> dict:
    """Returns the fields of a shorter warm-up if time allows few updates.

    All workers use the chief's time of a step. Returns {} if less than half of
    the updates are warm-up, or its steps end the training earlier.
    """
    config, workers = trainer.config, trainer.workers
    steps = config.train_minutes * 60 / seconds_per_step
    (steps,) = workers.all_reduce_sum([steps if workers.is_chief else 0.0])
    if not 0 < steps < min(config.train_steps, 2 * config.updates_to_peak):
        return {}
    return shorter_warmup(
        vars(config) | {"warmup_steps": config.updates_to_peak}, steps
    )


def write_flags(workdir: WorkDirectory, configuration: Configuration) -> None:
    """Writes the configuration as a flag file."""
    lines = []
    for section in configuration.sections().values():
        lines += flags.to_flags(section)
    write_atomically(workdir.flags_path, "\n".join(lines) + "\n")


def start_lines(trainer: Trainer, restored: str | None) -> list[str]:
    """Returns lines about what is trained, and where training begins.

    `restored` is the path of the checkpoint that the run resumes from, or None.
    """
    config, model = trainer.config, trainer.engine.model
    lines = []
    if config.freeze or config.lora_rank:
        what = f"frozen: {', '.join(config.freeze)}"
        if not config.freeze:
            what = f"adapters: {', '.join(config.lora_targets)}"
        trained = sum(
            math.prod(weight.shape) for weight in model.trainable_variables
        )
        lines.append(
            f"{what}; {trained:,} of"
            f" {model.count_params():,} parameters are trained"
        )
    if trainer.initial_prefix:
        lines.append(f"initial weights: {trainer.initial_prefix}")
    if restored:
        lines.append(f"resuming at step {trainer.progress.step}: {restored}")
    return lines
