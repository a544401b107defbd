"""The training loop: steps, reports, validation, checkpoints, the end.

The host syncs with the devices only at reports, validations and checkpoints:
the totals of the steps stay on the devices until then.
"""

import contextlib
import dataclasses
import math
import signal
import time

import numpy as np
from absl import logging

from keras_transformer.commands.flags import CommandError, RunError
from trainers.run.budget import largest_shapes
from trainers.run.checkpoints import TrainingCheckpoint, last_good
from trainers.run.engine import TOTALS, OutOfMemoryError
from trainers.run.progress import (
    Clock,
    Progress,
    Reporter,
    perplexity,
    step_line,
    validation_line,
)
from trainers.run.validation import Validator

MEETING_STEPS = 10  # updates after which workers ask each other whether to end


class TokenTotals:
    """Totals over the tokens of steps, in float64.

    The host syncs only when they are read.

    Args:
        workers: The `Workers`, whose totals are added up.
    """

    def __init__(self, workers):
        self._workers = workers
        self._calls = []  # (last step, float32 [4]) of calls since `take`

    def add(self, step, totals):
        """Adds the totals of a call that ended with a step, float32 `[4]`."""
        self._calls.append((step, totals))

    def take(self) -> dict[str, float]:
        """The totals of all workers by name; they begin again at zero."""
        local = np.sum(
            [np.asarray(totals) for _, totals in self._calls], 0, np.float64
        )
        self._calls = []
        totals = self._workers.all_reduce_sum(local.tolist())
        return dict(zip(TOTALS, totals, strict=True))

    def first_not_finite(self) -> int | None:
        """The first step since `take` whose loss is not finite, or None."""
        for step, totals in self._calls:
            if not np.isfinite(np.asarray(totals)[0]):
                return step
        return None


class StopSignals:
    """Notices Ctrl-C, SIGTERM and SIGHUP, and lets the current step finish.

    A second signal ends the process at once. A signal that the process was
    started to ignore, as `nohup` does with SIGHUP, stays ignored.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self):
        self.received = None

    def __enter__(self):
        self._before = {
            number: signal.signal(number, self._note)
            for number in self.SIGNALS
            if signal.getsignal(number) != signal.SIG_IGN
        }
        return self

    def __exit__(self, *_):
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number, _):
        self.received = number
        signal.signal(number, self._before[number])


@dataclasses.dataclass(frozen=True)
class Ending:
    """Why training ends.

    Attributes:
        reason: In words.
        signal: Name of the signal, if it was one.
    """

    reason: str
    signal: str | None = None


class Trainer:
    """One training, from its current step to its end.

    Args:
        experiment: The `Experiment`.
        workdir: Its `WorkDirectory`, with the configuration written.
        engine: The `Engine` of the experiment.
        workers: The `Workers` of the experiment's devices.
    """

    def __init__(self, experiment, workdir, engine, workers):
        self.experiment = experiment
        self.config = experiment.training
        self.workdir = workdir
        self.workers = workers
        self.progress = Progress()
        self.engine = engine
        self.totals = TokenTotals(workers)
        self.checkpoint = TrainingCheckpoint(
            workdir, engine, self.progress, self.config.keep_checkpoints
        )
        self.initial_prefix = None  # of weights that were trained before
        self.validator = None  # workers but the chief have none
        if experiment.valid_pairs and workers.is_chief:
            model = engine.model
            if self.config.ema_decay or not engine.can_validate:
                model = experiment.make_model()
            self.validator = Validator(
                model, experiment, engine.make_loss_sums(model)
            )

    def restore(self) -> str | None:
        """Restores the newest intact checkpoint; returns its path, or None."""
        prefix = self.checkpoint.restore()
        if prefix is None and self.config.init_from:
            self.initial_prefix = self.checkpoint.begin_with(
                self.config.init_from, self.config.init_checkpoint
            )
        step, size = self.progress.step, self.workers.size
        (steps,) = self.workers.all_reduce_sum([float(step)])
        if steps != step * size:
            raise ValueError(
                f"{self.workdir.path} is not the same for every worker:"
                f" {self.workers.name} is at step {step}, the average worker at"
                f" {steps / size:g}"
            )
        self._find_data_position()
        self._compare_metric()
        return prefix

    def _compare_metric(self):
        """Forgets the best score of another metric."""
        progress, label = self.progress, self.experiment.metric.label
        if progress.best_label not in ("", label):
            if self.workers.is_chief:
                logging.warning(
                    "the metric changed from %s to %s; best score reset (it was"
                    " %.2f)",
                    progress.best_label,
                    label,
                    progress.best_score,
                )
            progress.best_score = Progress.best_score
            progress.stale_validations = 0
        progress.best_label = label

    def _find_data_position(self):
        """Sets the data position; another batch order begins a new epoch."""
        progress, batches = self.progress, self.experiment.train_batches
        if progress.step and progress.epoch_step == progress.epoch_steps:
            progress.epoch += 1
            progress.epoch_start = progress.data_step
        elif progress.epoch_step and progress.order_id != batches.order_id:
            self._skip_epoch()
        progress.order_id = batches.order_id
        progress.epoch_steps = batches.steps_of(progress.epoch)

    def _skip_epoch(self):
        """Begins the next epoch; the chief says how much is skipped."""
        progress = self.progress
        skipped = 1 - progress.epoch_step / progress.epoch_steps
        progress.epoch += 1
        progress.epoch_start = progress.data_step
        if self.workers.is_chief:
            logging.warning(
                "the batches differ from the last session's: %.0f%% of epoch"
                " %d are skipped, and epoch %d begins",
                100 * skipped,
                progress.epoch,
                progress.epoch + 1,
            )

    def try_batches(self) -> float:
        """Makes the steps that need the most memory, and undoes them.

        If XLA compiles a program for each shape, it makes a step of each: the
        clock of `train_minutes` then does not run while XLA compiles.

        Returns:
            Seconds of the slowest of these steps, without compilation.

        Raises:
            CommandError: The memory of a device is too small for one.
        """
        shapes = self.experiment.train_batches.shapes
        tried = largest_shapes(shapes)
        if self.engine.num_programs:
            tried += [shape for shape in shapes if shape not in tried]
        return max(map(self._try_batch, tried))

    def _try_batch(self, shape):
        """Seconds of a step with a full batch of that shape."""
        try:
            return self.engine.try_batch(shape)
        except OutOfMemoryError as error:
            rows, length = shape
            raise CommandError(
                f"the largest batch, {rows} x {length} tokens, does not fit"
                f" into memory: {self._advice(shape)} ({error})"
            ) from error

    def _advice(self, shape):
        """Options with which a batch fits that did not, as text.

        A part of its rows needs as much memory as a micro-batch of them.
        """
        (rows, length), config = shape, self.config
        multiple = self.experiment.rows_multiple
        parts = 2
        while rows // parts >= multiple:
            fitting = rows // parts // multiple * multiple
            try:
                self.engine.try_batch((fitting, length))
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

    def run(self) -> Ending:
        """Trains to the end, or until a signal.

        Returns:
            The `Ending`.

        Raises:
            RunError: Training has diverged, or a checkpoint cannot be written.
            LostWorkerError: Another worker is gone.
        """
        self.reporter = Reporter(
            self.workdir.logs,
            self.progress.step,
            self.config.train_steps,
            self.workers.is_chief,
        )
        self.reporter.describe(self.progress.step, self.experiment.facts())
        self.clock = Clock(self.progress)
        self.saved_step = self.progress.step
        self.logged_step = self.progress.step
        self.logged_seconds = self.progress.train_seconds
        with (
            contextlib.closing(self.reporter),
            StopSignals() as signals,
            self.workers.watch(),
        ):
            ending = self._find_ending(signals)
            if ending is None:
                for batch in self._batches():
                    before = self.progress.step
                    self._step(batch)
                    self._after_step(before)
                    ending = self._find_ending(signals, before)
                    if ending:
                        break
            self._save()
            self.workers.part()
            self.reporter.log(f"{ending.reason} | step {self.progress.step}")
        return ending

    # The stages of a step

    def _batches(self):
        """Batches from the data position to the end of training."""
        progress = self.progress
        start = progress.epoch_step
        end = start + self.config.train_steps - progress.step

        return self.engine.batches(start, progress.epoch, end)

    def _step(self, batch):
        """Makes the steps of an element of the data."""
        num_steps, totals = self.engine.make_steps(batch)
        self._advance(num_steps)
        self.totals.add(self.progress.step, totals)
        self.reporter.advance(self.progress.step)

    def _advance(self, num_steps):
        """Counts steps, and the batches and epochs that they used."""
        progress, batches = self.progress, self.experiment.train_batches
        progress.step += num_steps
        progress.data_step += num_steps
        while progress.epoch_step > progress.epoch_steps:
            progress.epoch += 1
            progress.epoch_start += progress.epoch_steps
            progress.epoch_steps = batches.steps_of(progress.epoch)
            if text := batches.describe(progress.epoch):
                self.reporter.log(f"epoch {progress.epoch + 1}: {text}")

    def _after_step(self, before):
        """Whatever became due since step `before`."""
        if self._is_due(self.config.log_steps, before):
            self._log_steps()
        if self.experiment.valid_pairs and self._is_due(
            self.config.valid_steps, before
        ):
            self._validate()
        if self._is_due(self.config.checkpoint_steps, before):
            self._save()

    def _is_due(self, every, before):
        """Whether a multiple of `every`, or the end, has been reached."""
        step = self.progress.step
        at_end = step == self.config.train_steps
        return at_end or step // every > before // every

    def _find_ending(self, signals, before=None):
        """The `Ending` after the steps since `before`; None to continue.

        Workers end at the same step: they ask each other now and then, and the
        chief's clock and score count.
        """
        self.clock.tick()
        progress, config = self.progress, self.config
        if progress.step >= config.train_steps:
            return Ending("finished all steps")
        if self.workers.size > 1 and before is not None:
            if progress.step // MEETING_STEPS == before // MEETING_STEPS:
                return None
        self._tell_time()
        is_chief = self.workers.is_chief
        is_over = 0 < config.train_minutes * 60 <= progress.wall_seconds
        is_stale = 0 < config.patience <= progress.stale_validations
        is_over, is_stale, *stopped = self.workers.any_of(
            [
                is_over and is_chief,
                is_stale and is_chief,
                *(signals.received == s for s in StopSignals.SIGNALS),
            ]
        )
        for number, received in zip(StopSignals.SIGNALS, stopped, strict=True):
            if received:
                return Ending(f"stopped by {number.name}", number.name)
        if is_over:
            limit = f"{config.train_minutes:g} minutes"
            return Ending(f"time limit of {limit} reached")
        if is_stale:
            label = self.experiment.metric.label
            return Ending(f"no better {label} in {config.patience} validations")
        return None

    def _tell_time(self):
        """Tells a schedule with a clock which share of the time is over.

        All workers must know the same: it is the chief's.
        """
        limit = self.config.train_minutes * 60
        if limit:
            share = self.progress.wall_seconds / limit
            (share,) = self.workers.all_reduce_sum(
                [share if self.workers.is_chief else 0.0]
            )
            self.engine.set_elapsed(share)

    def _log_steps(self):
        """Reports the steps since the last report; waits for them to end."""
        bad_step = self.totals.first_not_finite()
        totals = self.totals.take()
        if not math.isfinite(totals["loss"]):
            raise self._diverged("the loss", bad_step)
        self.clock.tick()
        progress = self.progress
        seconds = progress.train_seconds - self.logged_seconds
        tokens = totals["target_tokens"]
        values = {
            "loss": totals["loss"] / tokens,
            "perplexity": perplexity(totals["nll"] / tokens),
            "learning_rate": self.engine.learning_rate(),
            "tokens_per_second": (tokens + totals["source_tokens"]) / seconds,
            "target_tokens_per_second": tokens / seconds,
        }
        per_step = seconds / (progress.step - self.logged_step)
        left = self._seconds_left(per_step)
        self.reporter.log(step_line(progress, values, left))
        self.reporter.record(progress.step, "train", values)
        self.logged_step = progress.step
        self.logged_seconds = progress.train_seconds

    def _seconds_left(self, seconds_per_step):
        """Seconds to the last step, or to the end of `train_minutes`."""
        progress, config = self.progress, self.config
        left = (config.train_steps - progress.step) * seconds_per_step
        if config.train_minutes:
            limit = config.train_minutes * 60 - progress.wall_seconds
            left = min(left, max(limit, 0.0))
        return left

    # Validation and checkpoints

    def _validate(self):
        """Measures, reports, and keeps the best; the chief does."""
        self._check_finite()
        self.engine.synchronize()
        if not self.validator:
            return
        started = time.monotonic()
        with self.clock.pause():
            if self.validator.model is not self.engine.model:
                self.checkpoint.copy_weights(self.validator.model)
            try:
                result = self.validator.run()
            except FloatingPointError as error:  # the translator's
                what = "the output of the model"
                raise self._diverged(what, None) from error
        if not math.isfinite(result.loss):
            raise self._diverged("the validation loss", None)
        progress = self.progress
        metric, score = self.experiment.metric, result.scores.mean
        is_best = score > progress.best_score
        progress.best_score = max(progress.best_score, score)
        progress.stale_validations += 1
        if is_best:
            progress.stale_validations = 0
        values = {
            "loss": result.loss,
            "perplexity": perplexity(result.nll),
            metric.key: score,
        }
        seconds = time.monotonic() - started
        told = f"{metric.label} {result.scores}"
        self.reporter.log(
            validation_line(progress, values, told, is_best, seconds)
        )
        self.reporter.record(
            progress.step,
            "validation",
            {**values, "wall_seconds": progress.wall_seconds},
        )
        if is_best:
            with self.clock.pause():
                self.checkpoint.save_best()

    def _save(self):
        """Writes a checkpoint, unless this step has one; the chief does."""
        if self.saved_step == self.progress.step:
            return
        self._check_finite()
        self.engine.synchronize()
        if self.workers.is_chief:
            with self.clock.pause():
                self.checkpoint.save()
        self.saved_step = self.progress.step

    def _check_finite(self):
        """Ends a training that has diverged before anything of it is saved.

        Every worker calls it at the same step, and finds the same.

        Raises:
            RunError: A weight, or a value of the optimizer, is not finite.
        """
        name = self.engine.first_not_finite()
        if name is not None:
            raise self._diverged(name, self.totals.first_not_finite())

    def _diverged(self, what, bad_step):
        """The error of a training that has diverged.

        Args:
            what: Name of the value that is not finite.
            bad_step: The first step whose loss is not finite, or None.
        """
        step = self.progress.step
        since = ""
        if bad_step is not None and bad_step < step:
            since = f" (the loss since step {bad_step})"
        rate = "learning_rate"
        if self.config.schedule == "noam":
            rate = "learning_rate_scale"
        return RunError(
            f"training has diverged: at step {step}, {what} is not"
            f" finite{since}. {last_good(self.workdir.latest)}. A smaller"
            f" {rate} or more warmup_steps may help"
        )
