"""One session of a training, from a configuration to its end.

A run has one session or, if it is stopped and resumed, several.
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
from trainers.run.training_config import Configuration, TrainingConfig
from trainers.run.validation import show_result

# The engine of each Keras backend.
ENGINES = {
    "jax": "trainers.run.jax_engine",
    "tensorflow": "trainers.run.tensorflow_engine",
}
FEW_EPOCHS = 2  # of a corpus below `SMALL_CORPUS` pairs
SMALL_CORPUS = 300_000
MakeMetric = Callable[[Configuration], metrics.DirectionalMetric]


def make_translation_metric(
    configuration: Configuration,
) -> metrics.DirectionalMetric:
    """Makes the metric of a training for translation."""
    data = typing.cast(DataConfig, configuration.data)
    return metrics.make_metric(
        data.directions_in(*data.valid_files, *data.test_files),
        configuration.training.bleu_tokenizer,
    )


def run(
    configuration: Configuration,
    path: str,
    dry_run: bool,
    device: str | None = None,
    make_metric: MakeMetric = make_translation_metric,
) -> None:
    """Trains to the end, or until a signal, in the work directory of a path.

    A dry run writes nothing, and ends before its steps. `device` is the kind
    that must compute, or None; the metric serves validation and test.

    Raises CommandError: flags, data or the work directory are bad; RunError:
    the training has diverged, or lost a worker, or cannot save.
    """
    if dry_run:
        data = configuration.data
        with flags.user_errors():
            find_dataset(data.dataset).check_downloaded(data)
    trainer = open_trainer(
        configuration, path, not dry_run, device, make_metric
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
    """Logs a note if a small corpus was read too few times to be learned."""
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
) -> Trainer:
    """Makes a `Trainer` of the work directory's state; `keep` writes there.

    All errors in the data or the work directory are found here, and the largest
    batch is tried.
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
        with workers.chief_first():  # the others find what it has written
            opening = Opening(workdir, configuration, devices, metric, tell)
            experiment = open_experiment(opening, keep)
        trainer = Trainer(experiment, devices.make_engine(experiment))
        restored = trainer.restore()
        seconds_per_step = try_batches(experiment, trainer.engine)
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
    """Adds a precision to the configuration; returns log lines, too.

    By default, a run keeps the precision that it began with, and a new run has
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


def write_flags(workdir: WorkDirectory, configuration: Configuration) -> None:
    """Writes the configuration as a flag file."""
    lines = []
    for section in configuration.sections().values():
        lines += flags.to_flags(section)
    write_atomically(workdir.flags_path, "\n".join(lines) + "\n")


def start_lines(trainer: Trainer, restored: str | None) -> list[str]:
    """Returns lines about what is trained, and where training begins.

    `restored` is the path of the checkpoint that the run resumes from.
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
