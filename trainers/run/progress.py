"""The progress of a run, and its reports to the console and TensorBoard."""

import contextlib
import dataclasses
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping

import numpy as np
from absl import logging
from tensorboard.plugins.scalar.summary_v2 import scalar_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tqdm import tqdm

from keras_transformer.commands.flags import discard_output, print_at_once
from keras_transformer.storage.checkpoints import Checkpoint
from trainers.run.event_file import EventFile

Log = Callable[[str], None]  # prints a line


@dataclasses.dataclass
class Progress:
    """How far a training run has come. Every checkpoint contains it."""

    step: int = 0  # updates made
    data_step: int = 0  # batches used, over all epochs
    epoch: int = 0  # current epoch, counted from 0
    # Batches used before the current epoch. `epoch`, `data_step` and this are
    # the data position.
    epoch_start: int = 0
    order_id: int = 0  # `Batches.order_id` in the current epoch
    epoch_steps: int = 0  # batches in the current epoch
    # Time of all sessions, validation and saving included.
    wall_seconds: float = 0.0
    train_seconds: float = 0.0  # the same without validation and saving
    best_score: float = -1.0  # best validation score; below 0: none yet
    stale_validations: int = 0  # validations since the best score
    # `Metric.label` of the metric of `best_score`; "" before the first session.
    best_label: str = ""
    # Whether a signal ended the validation of this step.
    lacks_validation: bool = False

    @property
    def epoch_step(self) -> int:
        """Batches of the current epoch that were used."""
        return self.data_step - self.epoch_start

    def begin_epoch(self) -> None:
        """Begins the next epoch at the data position."""
        self.epoch += 1
        self.epoch_start = self.data_step

    def values(self) -> dict[str, int | float | str]:
        """Returns the attributes by name, as Python values for a checkpoint."""
        return {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in dataclasses.asdict(self).items()
        }

    def restore(self, checkpoint: Checkpoint) -> None:
        """Sets the attributes to those in a checkpoint.

        Attributes that are not in the checkpoint keep their values.
        """
        for field in dataclasses.fields(self):
            if field.name in checkpoint.progress:
                setattr(self, field.name, checkpoint.progress[field.name])

    @classmethod
    def read(cls, prefix: str) -> "Progress":
        """Reads the progress from the checkpoint at a path."""
        progress = cls()
        progress.restore(Checkpoint(prefix))
        return progress


class Clock:
    """A clock that adds this session's seconds to a `Progress`."""

    def __init__(self, progress: Progress):
        self.progress = progress
        self._last = time.monotonic()

    def tick(self, training: bool = True) -> None:
        """Adds the time since the last tick, as training or as other work."""
        now = time.monotonic()
        self.progress.wall_seconds += now - self._last
        if training:
            self.progress.train_seconds += now - self._last
        self._last = now

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Counts the time of the body as work other than training."""
        self.tick()
        try:
            yield
        finally:
            self.tick(training=False)


class Reporter:
    """Reports of the chief: a bar on a terminal, lines, and TensorBoard.

    `logs` is TensorBoard's directory. Its records of an earlier session after
    `step` are purged. Other workers than the chief report nothing.
    """

    def __init__(
        self, logs: os.PathLike, step: int, total_steps: int, is_chief: bool
    ):
        self._is_chief = is_chief
        self._events: EventFile | None = None
        if is_chief:
            with self._never_fatal():
                self._events = EventFile(logs, step)
        self._bar = None
        if is_chief and sys.stderr.isatty():
            self._bar = tqdm(total=total_steps, unit="step", dynamic_ncols=True)

    def log(self, line: str) -> None:
        """Prints one line, above the bar if there is one."""
        if not self._is_chief:
            return
        if self._bar is None:
            log(line)
        else:
            with self._without_terminal():
                self._bar.clear()
            log(line)

    def advance(self, step: int) -> None:
        """Moves the bar to a step."""
        if self._bar is not None:
            with self._without_terminal():
                self._bar.update(step - self._bar.n)

    def record(
        self, step: int, prefix: str, values: Mapping[str, float]
    ) -> None:
        """Writes numbers for TensorBoard at a step, named `prefix/name`."""
        self._write(step, scalar_pb, prefix, values)

    def describe(self, step: int, facts: Mapping[str, str]) -> None:
        """Writes texts for TensorBoard at a step, named `run/name`."""
        self._write(step, text_pb, "run", facts)

    def _write(
        self, step: int, summary_of: Callable, prefix: str, values: Mapping
    ) -> None:
        if self._events is None:
            return
        with self._never_fatal():
            for name, value in values.items():
                self._events.add(step, summary_of(f"{prefix}/{name}", value))

    def close(self) -> None:
        if self._bar is not None:
            with self._without_terminal():
                self._bar.close()
        if self._events is not None:
            with self._never_fatal():
                self._events.close()

    @contextlib.contextmanager
    def _without_terminal(self) -> Iterator[None]:
        """Removes the bar if writing to its terminal fails in the body."""
        try:
            yield
        except OSError:
            if self._bar is not None:
                self._bar.disable = True
            self._bar = None

    @contextlib.contextmanager
    def _never_fatal(self) -> Iterator[None]:
        """Warns and stops writing if TensorBoard's file cannot be written."""
        try:
            yield
        except OSError as error:
            if self._events is not None:
                with contextlib.suppress(OSError):
                    self._events.close()
            self._events = None
            logging.warning(
                "TensorBoard's file cannot be written any more: %s",
                " ".join(str(error).split()),
            )


def log(line: str) -> None:
    """Prints a line at once. Warns if standard output is closed."""
    try:
        print_at_once(line)
    except OSError as error:  # the reader has ended, as with `| head`
        discard_output()
        logging.warning(
            "standard output cannot be written any more (%s): further lines are"
            " not shown",
            error.strerror,
        )


def step_line(
    progress: Progress, values: Mapping[str, float], seconds_left: float
) -> str:
    """Formats the report of the steps since the last one, from their means."""
    epochs = progress.epoch + progress.epoch_step / progress.epoch_steps
    return (
        f"step {progress.step}"
        f" | epoch {epochs:.2f}"
        f" | loss {values['loss']:.4f}"
        f" | perplexity {values['perplexity']:.2f}"
        f" | lr {values['learning_rate']:.3e}"
        f" | {values['tokens_per_second']:.0f} source+target tokens/s"
        f" | {progress.wall_seconds:.0f} s"
        f" | left {span(seconds_left)}"
    )


def validation_line(
    progress: Progress,
    values: Mapping[str, float],
    score: str,
    is_best: bool,
    seconds: float,
) -> str:
    """Formats a validation's report. `score` includes the metric's name."""
    return (
        f"validation at step {progress.step}"
        f" | loss {values['loss']:.4f}"
        f" | perplexity {values['perplexity']:.2f}"
        f" | {score}{' (best)' if is_best else ''}"
        f" | took {span(seconds)}"
        f" | {progress.wall_seconds:.0f} s,"
        f" {progress.train_seconds:.0f} s of them training"
    )


def perplexity(nll: float) -> float:
    """Computes exp(nats per token). Returns infinity instead of overflowing."""
    return math.exp(nll) if nll < 700 else math.inf


def span(seconds: float) -> str:
    """Formats seconds as `3 h 20 min`, `12 min` or `45 s`."""
    seconds = int(seconds)
    if seconds < 120:
        return f"{seconds} s"
    hours, minutes = divmod(seconds // 60, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
