"""Where training stands, and how it is told: console, log file, TensorBoard."""

import contextlib
import dataclasses
import math
import sys
import time

import tensorflow as tf
from absl import logging
from tqdm import tqdm


@dataclasses.dataclass
class Progress:
    """Where training stands; a part of every checkpoint.

    Attributes:
        step: Updates made.
        data_step: Batches used, over all epochs: where the data stands.
        plan_id: `Batches.order_id` of the batches that `data_step` counts.
        epoch_steps: Batches of an epoch of theirs.
        wall_seconds: Time of all sessions, validation and saving included.
        train_seconds: The same without validation and saving.
        best_bleu: Best validation BLEU; below 0: none yet.
        stale_validations: Validations since.
    """

    step: int = 0
    data_step: int = 0
    plan_id: int = 0
    epoch_steps: int = 0
    wall_seconds: float = 0.0
    train_seconds: float = 0.0
    best_bleu: float = -1.0
    stale_validations: int = 0

    def make_variables(self):
        """A variable for each attribute, for a checkpoint."""
        kinds = {int: tf.int64, float: tf.float64}
        return {
            field.name: tf.Variable(field.default, dtype=kinds[field.type])
            for field in dataclasses.fields(self)
        }

    def store(self, variables):
        """Writes the attributes into `make_variables`' variables."""
        for name, variable in variables.items():
            variable.assign(getattr(self, name))

    def load(self, variables):
        """Reads the attributes from `make_variables`' variables."""
        for name, variable in variables.items():
            setattr(self, name, variable.numpy().item())


class Clock:
    """Adds this session's seconds to a `Progress`."""

    def __init__(self, progress):
        self.progress = progress
        self._last = time.monotonic()

    def tick(self, training=True):
        """Brings the progress up to now; the time since was of training."""
        now = time.monotonic()
        self.progress.wall_seconds += now - self._last
        if training:
            self.progress.train_seconds += now - self._last
        self._last = now

    @contextlib.contextmanager
    def pause(self):
        """Time that is not of training."""
        self.tick()
        try:
            yield
        finally:
            self.tick(training=False)


class Reporter:
    """Tells the progress: a bar on a terminal, plain lines elsewhere.

    Args:
        logs: Directory of TensorBoard's files.
        total_steps: Updates when training ends.
        is_chief: Whether this worker is the one that tells; others are silent.
    """

    def __init__(self, logs, total_steps, is_chief):
        self._is_chief = is_chief
        self._writer = tf.summary.create_noop_writer()
        if is_chief:
            self._writer = tf.summary.create_file_writer(str(logs))
        self._bar = None
        if is_chief and sys.stderr.isatty():
            self._bar = tqdm(total=total_steps, unit="step", dynamic_ncols=True)

    def tell(self, line):
        """Prints one line, above the bar if there is one."""
        if not self._is_chief:
            return
        if self._bar is None:
            print(line, flush=True)
        else:
            self._bar.write(line, file=sys.stdout)

    def advance(self, step):
        """Moves the bar."""
        if self._bar is not None:
            self._bar.update(step - self._bar.n)

    def record(self, step, prefix, values):
        """Writes numbers for TensorBoard: `prefix/name`, at a step."""
        with self._never_fatal(), self._writer.as_default(step=step):
            for name, value in values.items():
                tf.summary.scalar(f"{prefix}/{name}", value)
            self._writer.flush()

    def close(self):
        if self._bar is not None:
            self._bar.close()
        with self._never_fatal():
            self._writer.close()

    @contextlib.contextmanager
    def _never_fatal(self):
        """Goes on without TensorBoard's file if it cannot be written."""
        try:
            yield
        except tf.errors.OpError as error:
            self._writer = tf.summary.create_noop_writer()
            logging.warning(
                "TensorBoard's file cannot be written any more: %s",
                " ".join(str(error.message).split()),
            )


def perplexity(nll):
    """exp of nats per token; infinite rather than an overflow."""
    return math.exp(nll) if nll < 700 else math.inf


def span(seconds):
    """A time for people: `3 h 20 min`, `12 min`, `45 s`."""
    seconds = int(seconds)
    if seconds < 120:
        return f"{seconds} s"
    hours, minutes = divmod(seconds // 60, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
