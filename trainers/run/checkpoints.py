"""Checkpoints of a training run: saving, restoring, averaging, merging."""

import pathlib
import shutil
import typing

import numpy as np

from keras_transformer.base.refusals import expect
from keras_transformer.commands.flags import RunError
from keras_transformer.config import TransformerConfig
from keras_transformer.storage.checkpoints import (
    Checkpoint,
    Checkpoints,
    Groups,
    assign,
    check_weights,
    corruption,
    is_there,
    named_weights,
    step_of,
)
from keras_transformer.storage.workdir import WorkDirectory
from trainers.run.training_config import TrainingConfig

if typing.TYPE_CHECKING:
    from keras_transformer.model import Transformer


class TrainingCheckpoint:
    """The checkpoints of an `Engine` and a `Progress` in a work directory."""

    def __init__(self, workdir, engine, progress, keep):
        self.workdir = workdir
        self.engine = engine
        self.progress = progress
        self.keep = keep

    def save(self) -> str:
        """Saves the state among the latest checkpoints. Returns its path."""
        return self._save(self.workdir.latest, self.keep)

    def save_best(self) -> str:
        """Saves the state as the best checkpoint. Returns its path."""
        return self._save(self.workdir.best, 1)

    def copy_weights(self, model: "Transformer") -> None:
        """Copies the weights that `save` would save into another model."""
        weights = named_weights(model)
        for name, saved in self.engine.variables()["weights"].items():
            weights[name].assign(saved.numpy())

    def begin_with(self, path: str, choice: str | None) -> str:
        """Loads weights from another work directory. Returns their path."""
        groups = self.engine.variables()
        weights = groups["weights"]
        prefix = WorkDirectory(path).restore_weights(weights, choice)
        self.engine.synchronize()
        for name, variable in groups.get("trained", {}).items():
            variable.assign(weights[name].numpy())
        return prefix

    def restore(self) -> str | None:
        """Restores the newest intact checkpoint and returns its path.

        Returns None if there is no checkpoint. Raises ValueError or OSError as
        `Checkpoints.intact` does, and ValueError if the checkpoint belongs to
        another training run.
        """
        prefix = self.workdir.latest.find_intact()
        if prefix:
            groups = self.engine.variables()
            checkpoint = check_weights(
                groups["weights"], prefix, self.workdir.config_path
            )
            for group in _groups_in(checkpoint, groups, prefix):
                assign(checkpoint, group, groups[group])
            self.progress.restore(checkpoint)
        return prefix

    def _save(self, checkpoints, keep):
        return write(
            checkpoints,
            self.engine.variables(),
            self.progress.step,
            keep,
            self.progress.values(),
        )


def _groups_in(checkpoint: Checkpoint, groups, prefix):
    """Checks a checkpoint's variables. Names the groups to restore from it."""
    found = checkpoint.shapes
    expect(
        checkpoint.progress and "optimizer/0" in found,
        "a checkpoint of a training, to resume from; move this one elsewhere",
        "weights only, as an averaged checkpoint has",
        where=prefix,
    )
    wanted = dict(groups)
    # The number of seeds changes if a dropout was turned on or off since then.
    num_seeds = sum(name.startswith("seeds/") for name in found)
    if num_seeds != len(groups["seeds"]):
        del wanted["seeds"]
    for group, variables in wanted.items():
        names = variables
        if isinstance(variables, list):
            names = dict(enumerate(variables))
        for name, variable in names.items():
            expect(
                found.get(f"{group}/{name}") == tuple(variable.shape),
                "a checkpoint of the training in config.json",
                f"one without its variable {group}/{name}",
                where=prefix,
            )
    return list(wanted)


def write(
    checkpoints: Checkpoints,
    groups: Groups,
    step: int,
    keep: int,
    progress: dict[str, typing.Any] | None = None,
) -> str:
    """Calls `Checkpoints.save`. Raises a one-line RunError if that fails."""
    try:
        return checkpoints.save(groups, step, keep, progress)
    except OSError as error:
        reason = " ".join(str(error).split())
        raise RunError(
            f"cannot write the checkpoint of step {step} into"
            f" {checkpoints.directory}: {reason}. {last_good(checkpoints)}"
        ) from error


def last_good(checkpoints: Checkpoints) -> str:
    """Returns a sentence that names the newest intact checkpoint, if any."""
    try:
        for prefix in checkpoints.prefixes():
            if corruption(prefix) is None:
                return f"The last good checkpoint is {prefix}"
    except OSError as error:
        return f"Earlier ones cannot be read: {error}"
    return "There is no checkpoint yet"


def average(workdir: WorkDirectory, last: int) -> tuple[list[str], str]:
    """Averages the weights of up to `last` checkpoints (sec. 6.1).

    Weights that are not floats are copied from the newest checkpoint. Returns
    the paths of the averaged checkpoints, newest first, and of the result.

    Raises ValueError or OSError if no checkpoint can be read, RunError if the
    average cannot be written.
    """
    # Both raise an error if a translator could not be opened here.
    workdir.read_section("model", TransformerConfig)
    workdir.load_tokenizer()
    while True:
        prefixes = workdir.latest.intact(last)
        if not prefixes:
            raise ValueError(f"no checkpoint in {workdir.latest.directory}")
        try:
            weights = _mean_weights(prefixes)
            break
        except (OSError, ValueError):
            # A training run may have removed a checkpoint meanwhile. Then it
            # has written newer ones, so try again.
            if all(map(is_there, prefixes)):
                raise
    step, groups = step_of(prefixes[0]), {"weights": weights}
    return prefixes, write(workdir.averaged, groups, step, keep=1)


def merge(workdir: WorkDirectory, path: pathlib.Path) -> None:
    """Fills the new work directory `path` with sums of weights and adapters.

    `workdir` has the adapters. Raises ValueError or OSError if the adapters or
    the weights that they belong to cannot be read.
    """
    base, prefix = workdir.need_base("merged"), workdir.choose_checkpoint()
    merged = WorkDirectory(path)
    shutil.copy(workdir.config_path, path)
    merged.save_tokenizer(workdir.load_tokenizer())
    # As in the work directory of an imported model.
    merged.replace_section("training", TrainingConfig())
    merged.replace_section("base", None)
    groups: Groups = {"weights": dict(base.weights(prefix))}
    write(merged.averaged, groups, step_of(prefix), keep=1)


def _mean_weights(prefixes):
    """Averages the weights of checkpoints, given newest first, by name."""
    newest, *others = map(Checkpoint, prefixes)
    mean = {}
    for name in newest.shapes:
        group, _, weight = name.partition("/")
        if group == "weights":
            value = newest.read(name)
            if np.issubdtype(value.dtype, np.floating):
                total = value.astype(np.float64)
                for other in others:
                    total += other.read(name)
                value = (total / len(prefixes)).astype(value.dtype)
            mean[weight] = value
    return mean
