"""What training saves and takes up again, and the average of what it saved."""

import numpy as np
import tensorflow as tf

from keras_transformer import workdir as workdirs
from keras_transformer.config import TransformerConfig
from keras_transformer.flags import RunError
from keras_transformer.model import Transformer
from keras_transformer.training import seeds_of


class TrainingCheckpoint:
    """Weights, seeds, optimizer and progress of a training, on disk.

    Args:
        workdir: A `WorkDirectory`.
        model: The built model.
        optimizer: The built optimizer.
        progress: The `Progress`.
        keep: Newest checkpoints kept.
    """

    def __init__(self, workdir, model, optimizer, progress, keep):
        self.workdir = workdir
        self.progress = progress
        self.keep = keep
        self._variables = progress.make_variables()
        weights = workdirs.named_weights(model)
        self._seeds = seeds_of(model)
        parts = {
            "weights": weights,
            "optimizer": [v.value for v in optimizer.variables],
            "progress": self._variables,
        }
        self._without_seeds = tf.train.Checkpoint(**parts)
        self._checkpoint = tf.train.Checkpoint(seeds=self._seeds, **parts)

    def save(self):
        """Writes a checkpoint of now among the latest.

        Raises:
            RunError: It cannot be written; those before are still there.
        """
        return self._save(self.workdir.latest, self.keep)

    def save_best(self):
        """Writes a checkpoint of now as the best."""
        return self._save(self.workdir.best, 1)

    def restore(self):
        """Takes up the newest checkpoint without damage.

        Returns:
            Its path, or None if there is none.

        Raises:
            ValueError: There are checkpoints, and all are damaged.
        """
        prefix = self.workdir.latest.find_intact()
        if prefix:
            # A dropout that was turned on or off since then has no seed there.
            names = tf.train.load_checkpoint(prefix).get_variable_to_shape_map()
            num_seeds = sum(name.startswith("seeds/") for name in names)
            same = num_seeds == len(self._seeds)
            checkpoint = self._checkpoint if same else self._without_seeds
            status = checkpoint.read(prefix)
            status.assert_existing_objects_matched().expect_partial()
            self.progress.load(self._variables)
        return prefix

    def _save(self, checkpoints, keep):
        self.progress.store(self._variables)
        return write(checkpoints, self._checkpoint, self.progress.step, keep)


def write(checkpoints, checkpoint, step, keep):
    """`Checkpoints.save`, whose failure ends the command with one line.

    Raises:
        RunError: It cannot be written; those before are still there.
    """
    try:
        return checkpoints.save(checkpoint, step, keep)
    except (tf.errors.OpError, OSError) as error:
        before = next(
            (p for p in checkpoints.prefixes() if not workdirs.corruption(p)),
            None,
        )
        raise RunError(
            f"cannot write the checkpoint of step {step} into"
            f" {checkpoints.directory}: {' '.join(str(error).split())}. "
            + (
                f"The one before is whole: {before}"
                if before
                else "There is none before it"
            )
        ) from error


def average(workdir, last):
    """Averages the weights of the last checkpoints (sec. 6.1).

    Weights that are not floats, if any, are those of the newest.

    Args:
        workdir: A `WorkDirectory`.
        last: How many checkpoints, at most.

    Returns:
        Paths of those averaged, newest first, and that of the result.

    Raises:
        ValueError: There is no checkpoint that can be read.
        RunError: The average cannot be written.
    """
    config = workdir.read_section("model", TransformerConfig)
    prefixes = workdir.latest.intact(last)
    if not prefixes:
        raise ValueError(f"no checkpoint in {workdir.latest.directory}")
    weights = workdirs.named_weights(Transformer(config))
    _assign_mean(weights, prefixes)
    checkpoint = tf.train.Checkpoint(weights=weights)
    step = workdirs.step_of(prefixes[0])
    return prefixes, write(workdir.averaged, checkpoint, step, keep=1)


def _assign_mean(weights, prefixes):
    """Sets variables to their mean over checkpoints, the newest last."""
    sums = dict.fromkeys(weights, 0.0)
    for prefix in reversed(prefixes):
        workdirs.restore_weights(weights, prefix)
        for name, variable in weights.items():
            sums[name] = sums[name] + variable.numpy().astype(np.float64)
    for name, variable in weights.items():
        if variable.dtype.is_floating:
            variable.assign(sums[name] / len(prefixes))
