"""The training loop: steps, reports, validation, checkpoints and its end.

The host syncs with the devices only at reports, validations and checkpoints:
the totals of the steps stay on the devices until then.
"""

import contextlib
import dataclasses
import math
import signal
import time
import types
import typing
from collections.abc import Callable, Iterator

import numpy as np
from absl import logging

from keras_transformer.base.backend import Tensor
from keras_transformer.base.refusals import expect
from keras_transformer.commands.flags import RunError
from trainers.run.checkpoints import TrainingCheckpoint, last_good
from trainers.run.engine import TOTALS, Batch, Engine, Workers
from trainers.run.experiment import Experiment
from trainers.run.progress import (
    Clock,
    Progress,
    Reporter,
    perplexity,
    step_line,
    validation_line,
)
from trainers.run.validation import Validation, Validator

Result = typing.TypeVar("Result")
MEETING_STEPS = 10  # updates between two agreements of the workers on the end


class TokenTotals:
    """Totals over the tokens of steps of all workers, in float64.

    The host syncs with the devices only when the totals are read.
    """

    def __init__(self, workers: Workers):
        self._workers = workers
        # The last step and the totals, float32 [4], of each call since `take`.
        self._calls: list[tuple[int, Tensor]] = []

    def add(self, step: int, totals: Tensor) -> None:
        """Adds the totals, float32 `[4]`, of a call that ended with `step`."""
        self._calls.append((step, totals))

    def take(self) -> dict[str, float]:
        """Returns the totals of all workers by name, and resets them."""
        local = np.stack([totals for _, totals in self._calls])
        self._calls = []
        totals = self._workers.all_reduce_sum(local.sum(0, np.float64).tolist())
        return dict(zip(TOTALS, totals, strict=True))

    def first_not_finite(self) -> int | None:
        """Finds the first call since `take` whose loss is not finite.

        Returns its last step, or None. Reads this worker's totals only.
        """
        for step, totals in self._calls:
            if not np.isfinite(np.asarray(totals)[0]):
                return step
        return None


class _Stopped(BaseException):
    """Raised by a signal to end a computation."""


class StopSignals:
    """A context that notes Ctrl-C, SIGTERM and SIGHUP; the step can finish.

    If the same signal comes again, its earlier handler gets it, and by default
    ends the process. A signal that was ignored before, such as SIGHUP under
    `nohup`, stays ignored.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.received: int | None = None
        self._raises = False

    def __enter__(self) -> "StopSignals":
        self._before = {
            number: signal.signal(number, self._note)
            for number in self.SIGNALS
            if signal.getsignal(number) != signal.SIG_IGN
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: types.FrameType | None) -> None:
        self.received = number
        signal.signal(number, self._before[signal.Signals(number)])
        if self._raises:
            raise _Stopped

    def unless_stopped(
        self, compute: Callable[[], Result], may_stop: bool
    ) -> Result | None:
        """Calls a function and returns its result.

        With `may_stop`, a signal ends the call, or prevents it if it came
        before; the result is then None.
        """
        self._raises = may_stop
        try:
            return None if may_stop and self.received else compute()
        except BaseException as error:  # or what libraries turn `_Stopped` into
            is_stopped = may_stop and self.received is not None
            if not is_stopped or isinstance(error, KeyboardInterrupt):
                raise
            return None
        finally:
            self._raises = False


@dataclasses.dataclass(frozen=True)
class Ending:
    """Why training ends."""

    reason: str  # text for the log
    signal: str | None = None  # name of the signal that ended training, if any


class Trainer:
    """The training of an experiment, from its current step to its end.

    The work directory must already contain the configuration.

    Attributes:
        initial_prefix: Checkpoint whose weights the run began with, if any.
        validator: None without validation pairs, and on all workers but the
            chief.
        saved_step: Step of the newest checkpoint.
    """

    def __init__(self, experiment: Experiment, engine: Engine):
        self.experiment = experiment
        self.config = experiment.training
        self.workdir = experiment.workdir
        self.workers = experiment.devices.workers
        self.engine = engine
        self.progress = Progress()
        self.totals = TokenTotals(self.workers)
        self.checkpoint = TrainingCheckpoint(
            self.workdir, engine, self.progress, self.config.keep_checkpoints
        )
        self.initial_prefix: str | None = None
        self.validator: Validator | None = None
        if experiment.valid_batches and self.workers.is_chief:
            model = engine.model
            if self.config.ema_decay or not engine.can_validate:
                model = experiment.make_model()
            self.validator = Validator(
                model,
                experiment,
                experiment.valid_batches,
                engine.make_loss_sums(model),
            )

    # Before the first step

    def restore(self) -> str | None:
        """Restores the newest intact checkpoint and returns its path.

        Returns None if there is no checkpoint. The weights are then those of
        `init_from`, if given. Raises the errors of `TrainingCheckpoint.restore`
        and ValueError if the workers have different files.
        """
        prefix = self.checkpoint.restore()
        base = self.experiment.base
        if prefix is None and base is not None:
            self.initial_prefix = base.checkpoint
        elif prefix is None and self.config.init_from:
            self.initial_prefix = self.checkpoint.begin_with(
                self.config.init_from, self.config.init_checkpoint
            )
        step, size = self.progress.step, self.workers.size
        (steps,) = self.workers.all_reduce_sum([float(step)])
        expect(
            steps == step * size,
            "the same files for every worker",
            f"step {step} for {self.workers.name}, {steps / size:g} on average",
            where=self.workdir.path,
        )
        self._find_data_position()
        self._compare_metric()
        return prefix

    def _find_data_position(self) -> None:
        """Sets the data position. A new batch order begins a new epoch."""
        progress, batches = self.progress, self.experiment.train_batches
        if progress.step and progress.epoch_step == progress.epoch_steps:
            progress.begin_epoch()
        elif progress.epoch_step and progress.order_id != batches.order_id:
            self._skip_epoch()
        progress.order_id = batches.order_id
        progress.epoch_steps = batches.steps_of(progress.epoch)

    def _skip_epoch(self) -> None:
        """Skips the rest of the epoch. The chief warns how much that is."""
        progress = self.progress
        skipped = 1 - progress.epoch_step / progress.epoch_steps
        progress.begin_epoch()
        if self.workers.is_chief:
            logging.warning(
                "the batches differ from the last session's: %.0f%% of epoch"
                " %d are skipped, and epoch %d begins",
                100 * skipped,
                progress.epoch,
                progress.epoch + 1,
            )

    def _compare_metric(self) -> None:
        """Resets the best score if the metric has changed."""
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

    # The training

    def run(self) -> Ending:
        """Trains to the end or until a signal, saves, and returns the reason.

        Raises RunError if the training has diverged, has lost a worker, or
        cannot write a checkpoint.
        """
        progress = self.progress
        self.reporter = Reporter(
            self.workdir.logs,
            progress.step,
            self.config.train_steps,
            self.workers.is_chief,
        )
        self.reporter.describe(progress.step, self.experiment.facts())
        self.clock = Clock(progress)
        self.saved_step = self.logged_step = progress.step
        self.logged_seconds = progress.train_seconds
        with (
            contextlib.closing(self.reporter),
            StopSignals() as self.signals,
            self.workers.watch(),
        ):
            if progress.lacks_validation:
                progress.lacks_validation, self.saved_step = False, -1
                self._validate()
            ending = self._make_steps()
            self._save()
            self.workers.part()
            self.reporter.log(f"{ending.reason} | step {progress.step}")
        return ending

    def _make_steps(self) -> Ending:
        ending, batches = self._find_ending(), self._batches()
        while ending is None:
            before = self.progress.step
            self._step(next(batches))
            self._after_step(before)
            ending = self._find_ending(before)
        return ending

    def _batches(self) -> Iterator[Batch]:
        """Yields the batches from the data position to the end of training."""
        progress = self.progress
        start = progress.epoch_step
        end = start + self.config.train_steps - progress.step
        return self.engine.batches(start, progress.epoch, end)

    def _step(self, batch: Batch) -> None:
        num_steps, totals = self.engine.make_steps(batch)
        self._advance(num_steps)
        self.totals.add(self.progress.step, totals)
        self.reporter.advance(self.progress.step)

    def _advance(self, num_steps: int) -> None:
        """Adds steps to the progress, with the batches and epochs they used."""
        progress, batches = self.progress, self.experiment.train_batches
        progress.step += num_steps
        progress.data_step += num_steps
        while progress.epoch_step > progress.epoch_steps:
            progress.epoch += 1
            progress.epoch_start += progress.epoch_steps
            progress.epoch_steps = batches.steps_of(progress.epoch)
            if text := batches.describe(progress.epoch):
                self.reporter.log(f"epoch {progress.epoch + 1}: {text}")

    def _after_step(self, before: int) -> None:
        """Reports, validates and saves if due since the step `before`."""
        if self._is_due(self.config.log_steps, before):
            self._log_steps()
        if self.experiment.valid_pairs and self._is_due(
            self.config.valid_steps, before
        ):
            self._validate()
        if self._is_due(self.config.checkpoint_steps, before):
            self._save()

    def _is_due(self, every: int, before: int) -> bool:
        """Tells whether a multiple of `every` or the last step was reached."""
        step = self.progress.step
        at_end = step == self.config.train_steps
        return at_end or step // every > before // every

    # The end

    def _find_ending(self, before: int | None = None) -> Ending | None:
        """Finds out why training ends at this step. Returns None to continue.

        `before` is the step before the last updates, None at the beginning.
        Workers agree every `MEETING_STEPS` steps, so all end at the same step.
        """
        self.clock.tick()
        progress = self.progress
        step = progress.step
        if step >= self.config.train_steps and not progress.lacks_validation:
            return Ending("finished all steps")
        if self.workers.size > 1 and before is not None:
            if step // MEETING_STEPS == before // MEETING_STEPS:
                return None
        self._tell_time()
        endings = self._endings()
        are_due = self.workers.any_of(list(endings.values()))
        for ending, is_due in zip(endings, are_due, strict=True):
            if is_due:
                return ending
        return None

    def _endings(self) -> dict[Ending, bool]:
        """Returns the endings before the last step, and whether each is due.

        Only the chief checks the time limit and the patience.
        """
        config, progress = self.config, self.progress
        is_chief, minutes = self.workers.is_chief, config.train_minutes
        endings = {
            Ending(f"stopped by {number.name}", number.name): (
                self.signals.received == number
            )
            for number in StopSignals.SIGNALS
        }
        over = Ending(f"time limit of {minutes:g} minutes reached")
        endings[over] = is_chief and 0 < minutes * 60 <= progress.wall_seconds
        stale = Ending(
            f"no better {self.experiment.metric.label} in {config.patience}"
            " validations"
        )
        endings[stale] = (
            is_chief and 0 < config.patience <= progress.stale_validations
        )
        return endings

    def _tell_time(self) -> None:
        """Sets the share of `train_minutes` that has passed in the schedule.

        All workers use the chief's share.
        """
        limit = self.config.train_minutes * 60
        if limit:
            share = self.progress.wall_seconds / limit
            (share,) = self.workers.all_reduce_sum(
                [share if self.workers.is_chief else 0.0]
            )
            self.engine.set_elapsed(share)

    # Reports, validations and checkpoints

    def _log_steps(self) -> None:
        """Waits for the steps since the last report, and reports them."""
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

    def _seconds_left(self, seconds_per_step: float) -> float:
        """Estimates the seconds to the last step, or to the time limit."""
        progress, config = self.progress, self.config
        left = (config.train_steps - progress.step) * seconds_per_step
        if config.train_minutes:
            limit = config.train_minutes * 60 - progress.wall_seconds
            left = min(left, max(limit, 0.0))
        return left

    def _validate(self) -> None:
        """Validates on the chief, reports the result, saves the best weights.

        A signal ends the validation, so that the weights are saved at once; the
        next session then begins with it. With several workers, the validation
        of the last step is completed despite a signal.
        """
        self._check_finite()
        self.engine.synchronize()
        if self.validator is None:
            return
        started = time.monotonic()
        progress, validator = self.progress, self.validator
        with self.clock.pause():
            result = self.signals.unless_stopped(
                lambda: self._measure(validator),
                may_stop=self.workers.size == 1
                or progress.step < self.config.train_steps,
            )
        progress.lacks_validation = result is None
        if result is None:
            self.reporter.log(
                f"validation of step {progress.step}: made when training"
                " resumes"
            )
            return
        metric, score = self.experiment.metric, result.scores.mean
        is_best = score > progress.best_score
        if is_best:
            progress.best_score = score
            progress.stale_validations = 0
        else:
            progress.stale_validations += 1
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

    def _measure(self, validator: Validator) -> Validation:
        """Measures the weights that a checkpoint would contain."""
        if validator.model is not self.engine.model:
            self.checkpoint.copy_weights(validator.model)
        try:
            result = validator.run()
        except FloatingPointError as error:  # the translator's
            raise self._diverged("the output of the model") from error
        if not math.isfinite(result.loss):
            raise self._diverged("the validation loss")
        return result

    def _save(self) -> None:
        """Writes a checkpoint on the chief, unless this step has one."""
        if self.saved_step == self.progress.step:
            return
        self._check_finite()
        self.engine.synchronize()
        if self.workers.is_chief:
            with self.clock.pause():
                self.checkpoint.save()
        self.saved_step = self.progress.step

    def _check_finite(self) -> None:
        """Raises RunError if a weight or optimizer value is not finite.

        Every worker calls it at the same step, with the same result.
        """
        name = self.engine.first_not_finite()
        if name is not None:
            raise self._diverged(name, self.totals.first_not_finite())

    def _diverged(self, what: str, bad_step: int | None = None) -> RunError:
        """Makes the error for a value that is not finite.

        `what` names the value. `bad_step` is from `first_not_finite`.
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
