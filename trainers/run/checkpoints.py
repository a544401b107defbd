"""Checkpoints of a training: saved, restored, averaged."""

import collections

import keras
import numpy as np

from keras_transformer.commands.flags import RunError
from keras_transformer.config import TransformerConfig
from keras_transformer.model import Transformer
from keras_transformer.training.seeds import seed_variables
from keras_transformer.workdir import (
    Checkpoints,
    WorkDirectory,
    as_checkpoint,
    check_weights,
    corruption,
    is_there,
    load_reader,
    named_weights,
    restore_weights,
    step_of,
    weight_name,
)


class TrainingCheckpoint:
    """Weights, seeds, optimizer and progress of a training, on disk.

    Args:
        workdir: A `WorkDirectory`.
        model: The built model.
        optimizer: The built optimizer.
        progress: The `Progress`.
        keep: Number of newest checkpoints to keep.
        moving_average: A `MovingAverage` of the weights, or None. Its averages
            are then saved as the weights, for all other commands; the weights
            with which training continues have a group of their own.
    """

    def __init__(
        self, workdir, model, optimizer, progress, keep, moving_average=None
    ):
        self.workdir = workdir
        self.progress = progress
        self.keep = keep
        self._groups = {
            "weights": named_weights(model),
            "optimizer": list(optimizer.variables),
            "seeds": seed_variables(model),
        }
        if moving_average is not None:
            weights = self._groups["weights"]
            names = [weight_name(v) for v in model.trainable_variables]
            self._groups["trained"] = {name: weights[name] for name in names}
            weights.update(zip(names, moving_average.averages, strict=True))

    def save(self) -> str:
        """Writes a checkpoint of now among the latest.

        Raises:
            RunError: It cannot be written; earlier ones are still there.
        """
        return self._save(self.workdir.latest, self.keep)

    def save_best(self) -> str:
        """Writes a checkpoint of now as the best."""
        return self._save(self.workdir.best, 1)

    def copy_weights(self, model: Transformer) -> None:
        """Sets the weights of another model to those that are saved."""
        saved = self._groups["weights"]
        for name, variable in named_weights(model).items():
            variable.assign(saved[name].numpy())

    def restore(self) -> str | None:
        """Restores the newest intact checkpoint.

        Returns:
            Its path, or None if there is none.

        Raises:
            ValueError: There are checkpoints, and all are corrupt, or the
                newest is not one of this training.
        """
        prefix = self.workdir.latest.find_intact()
        if prefix:
            check_weights(
                self._groups["weights"], prefix, self.workdir.config_path
            )
            groups = self._groups_in(prefix)
            status = as_checkpoint(groups).read(prefix)
            try:
                status.assert_existing_objects_matched().expect_partial()
            except AssertionError:
                raise ValueError(
                    f"{prefix} is not a checkpoint of the training in"
                    " config.json: it lacks some of its variables"
                ) from None
            self.progress.restore(prefix)
        return prefix

    def _groups_in(self, prefix):
        """The variables that a checkpoint of this training holds."""
        names = load_reader(prefix).get_variable_to_shape_map()
        found = collections.Counter(name.split("/")[0] for name in names)
        if not found["progress"] or not found["optimizer"]:
            raise ValueError(
                f"{prefix} holds weights only, as averaged checkpoints do:"
                " training cannot resume from it. Move it elsewhere"
            )
        groups = dict(self._groups)
        # A dropout that was turned on or off since then has no seed there.
        if found["seeds"] != len(groups["seeds"]):
            del groups["seeds"]
        return groups

    def _save(self, checkpoints, keep):
        groups = {**self._groups, "progress": self.progress.values()}
        return write(checkpoints, groups, self.progress.step, keep)


def write(checkpoints, groups, step, keep):
    """`Checkpoints.save`, whose failure ends the command with one line.

    Raises:
        RunError: It cannot be written; earlier ones are still there.
    """
    try:
        return checkpoints.save(groups, step, keep)
    except OSError as error:
        reason = " ".join(str(error).split())
        raise RunError(
            f"cannot write the checkpoint of step {step} into"
            f" {checkpoints.directory}: {reason}."
            f" {last_good(checkpoints)}"
        ) from error


def last_good(checkpoints: Checkpoints) -> str:
    """A sentence that names the newest intact checkpoint, if there is one."""
    for prefix in checkpoints.prefixes():
        if corruption(prefix) is None:
            return f"The last good checkpoint is {prefix}"
    return "There is no checkpoint yet"


def average(workdir: WorkDirectory, last: int) -> tuple[list[str], str]:
    """Averages the weights of the last checkpoints (sec. 6.1).

    Weights that are not floats, if any, are taken from the newest.

    Args:
        workdir: A `WorkDirectory`.
        last: Maximum number of checkpoints.

    Returns:
        Paths of the averaged checkpoints, newest first, and path of the result.

    Raises:
        ValueError: There is no checkpoint that can be read.
        RunError: The average cannot be written.
    """
    config = workdir.read_section("model", TransformerConfig)
    workdir.load_tokenizer()  # the vocabulary of the weights is still there
    weights = named_weights(Transformer(config))
    while True:
        prefixes = workdir.latest.intact(last)
        if not prefixes:
            raise ValueError(f"no checkpoint in {workdir.latest.directory}")
        try:
            _assign_mean(weights, prefixes, workdir.config_path)
            break
        except Exception:  # of half a dozen kinds, if files are gone
            # A training that runs beside may have removed one meanwhile: its
            # newer ones are there to be averaged.
            if all(map(is_there, prefixes)):
                raise
    step, groups = step_of(prefixes[0]), {"weights": weights}
    return prefixes, write(workdir.averaged, groups, step, keep=1)


def _assign_mean(weights, prefixes, config_path):
    """Sets variables to their mean over checkpoints, the newest last."""
    sums = dict.fromkeys(weights, 0.0)
    for prefix in reversed(prefixes):
        restore_weights(weights, prefix, config_path)
        for name, variable in weights.items():
            sums[name] = sums[name] + variable.numpy().astype(np.float64)
    for name, variable in weights.items():
        if keras.backend.is_float_dtype(variable.dtype):
            variable.assign(sums[name] / len(prefixes))
