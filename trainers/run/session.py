"""One session of a training, from a configuration to its end.

A run has one session or, if it is stopped and resumed, several.
"""

import dataclasses
import math
from collections.abc import Callable

from keras_transformer import metrics
from keras_transformer.commands import flags
from keras_transformer.commands.flags import CommandError
from keras_transformer.files import write_atomically
from keras_transformer.workdir import WorkDirectory
from trainers.run.budget import budget_lines, memory_of_replica
from trainers.run.checkpoints import average
from trainers.run.config import Configuration, TrainingConfig
from trainers.run.devices import open_devices
from trainers.run.experiment import open_experiment
from trainers.run.loop import Trainer
from trainers.run.progress import log
from trainers.run.validation import show_result

MakeMetric = Callable[[Configuration], metrics.DirectionalMetric]


def make_translation_metric(
    configuration: Configuration,
) -> metrics.DirectionalMetric:
    """The metric of a training for translation."""
    return metrics.make_metric(
        configuration.data.directions, configuration.training.bleu_tokenizer
    )


def run(
    configuration: Configuration,
    path: str,
    dry_run: bool,
    device: str | None = None,
    make_metric: MakeMetric = make_translation_metric,
) -> None:
    """Trains to the end, or until a signal; a dry run ends before its steps.

    Args:
        configuration: The `Configuration`.
        path: Path of the work directory.
        dry_run: Whether to write nothing, and to train nothing.
        device: Kind of device that must compute, or None.
        make_metric: Makes the `DirectionalMetric` of validation and test.

    Raises:
        CommandError: The flags, the data or the work directory are wrong.
        RunError: Training has diverged, or lost a worker, or cannot save.
    """
    trainer = open_trainer(
        configuration, path, not dry_run, device, make_metric
    )
    if dry_run:
        return
    ending = trainer.run()
    saved = trainer.workdir.latest.prefixes()
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
            averaged, _ = average(
                trainer.workdir, configuration.training.average_last
            )
        plural = "s" * (len(averaged) > 1)
        log(f"averaged {len(averaged)} checkpoint{plural}")
        show_result(trainer.experiment, trainer.workdir, log)


def open_trainer(
    configuration: Configuration,
    path: str,
    keep: bool,
    device: str | None = None,
    make_metric: MakeMetric = make_translation_metric,
) -> Trainer:
    """A `Trainer` in the state of the work directory.

    All errors in the data or the work directory are found here, and the largest
    batch is tried.

    Args:
        configuration: The `Configuration`.
        path: Path of the work directory.
        keep, make_metric: As in `open_experiment`.
        device: As in `run`.

    Raises:
        CommandError: Something is wrong with them.
    """
    workdir = WorkDirectory(path)
    with flags.user_errors():
        devices = open_devices(configuration.training, device)
        workers = devices.workers
        configuration, told = with_precision(configuration, workdir, devices)
    if workers.is_chief:
        log(devices.description)
        for line in told:
            log(line)
    with flags.user_errors(), workers.watch():
        experiment = open_in_turn(
            workdir, configuration, devices, make_metric, keep
        )
        engine = devices.make_engine(experiment)
        trainer = Trainer(experiment, workdir, engine, workers)
        restored = trainer.restore()
        seconds_per_step = trainer.try_batches()
        engine.begin()
        if workers.is_chief and keep:
            write_flags(workdir, configuration)
    if workers.is_chief:
        log_start(trainer, seconds_per_step, restored)
    return trainer


def with_precision(configuration, workdir, devices):
    """The configuration with a precision; log lines if a default was chosen.

    Without one, a run keeps the precision that it began with; a new run has the
    fastest one of its devices.
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


def open_in_turn(workdir, configuration, devices, make_metric, keep):
    """The `Experiment`: the chief opens it first, for the others to find."""
    arguments = workdir, configuration, devices, make_metric
    if devices.workers.is_chief:
        experiment = open_experiment(*arguments, keep, log)
    devices.workers.barrier()
    if not devices.workers.is_chief:
        experiment = open_experiment(*arguments, keep=False, log=_silent)
    return experiment


def _silent(line):
    """Logs nothing: the chief has logged it."""


def write_flags(workdir, configuration):
    """Writes the configuration as a flag file."""
    lines = []
    for section in configuration.sections().values():
        lines += flags.to_flags(section)
    write_atomically(workdir.flags_path, "\n".join(lines) + "\n")


def log_start(trainer, seconds_per_step, restored):
    """Logs the budget, and where the training resumes, if it does."""
    experiment, engine = trainer.experiment, trainer.engine
    model = engine.model
    for line in budget_lines(
        experiment,
        model.count_params(),
        memory_of_replica(
            experiment,
            model,
            engine.optimizer,
            engine.num_slices,
        ),
        engine.num_programs,
        seconds_per_step,
    ):
        log(line)
    if experiment.training.freeze:
        trained = sum(
            math.prod(weight.shape) for weight in model.trainable_variables
        )
        log(
            f"frozen: {', '.join(experiment.training.freeze)};"
            f" {trained:,} of {model.count_params():,} parameters are trained"
        )
    if trainer.initial_prefix:
        log(f"initial weights: {trainer.initial_prefix}")
    if restored:
        log(f"resuming at step {trainer.progress.step}: {restored}")
