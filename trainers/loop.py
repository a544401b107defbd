"""The training loop: steps, reports, validation, checkpoints, the end.

Nothing in the loop waits for a step to end but the reports: what the steps add
up stays on the devices until then.
"""

import contextlib
import functools
import math
import signal
import time

import numpy as np
import tensorflow as tf
from absl import logging

from keras_transformer import vocabulary
from keras_transformer.flags import CommandError, RunError
from keras_transformer.training import (
    TrainStep,
    resolve_jit_compile,
    spread_seeds,
)
from trainers.budget import largest_shape
from trainers.checkpoints import TrainingCheckpoint
from trainers.evaluation import Validator
from trainers.progress import Clock, Progress, Reporter, perplexity, span
from trainers.strategies import distribute, is_tpu

MEETING_STEPS = 10  # updates after which workers ask each other whether to end


class Sums:
    """Sums over the tokens of steps, in float64; nobody waits until they are
    taken.

    Args:
        team: The `Team`, whose workers' sums are added up.
    """

    NAMES = ("loss", "nll", "target_tokens", "source_tokens")

    def __init__(self, team):
        self._team = team
        self._steps = []

    def add(self, values):
        """Adds the sums of this worker's steps, a float32 tensor `[4]`."""
        self._steps.append(values)

    def take(self):
        """The sums as floats by name; they begin again at zero."""
        steps = [values.numpy().astype(np.float64) for values in self._steps]
        self._steps = []
        return dict(
            zip(self.NAMES, self._team.sum(sum(steps).tolist()), strict=True)
        )


class StopSignals:
    """Notices Ctrl-C and SIGTERM, so that the step at hand can be finished.

    A second one ends the process at once.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self):
        self.received = None

    def __enter__(self):
        self._before = {s: signal.signal(s, self._note) for s in self.SIGNALS}
        return self

    def __exit__(self, *_):
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number, _):
        self.received = number
        signal.signal(number, self._before[number])


class Reason(str):
    """Why training ends, in words.

    Args:
        text: The words.
        signal: Name of the signal, if it was one.
    """

    def __new__(cls, text, signal=None):
        reason = super().__new__(cls, text)
        reason.signal = signal
        return reason


class Trainer:
    """One training, from where it stands to where it ends.

    Args:
        experiment: The `Experiment`.
        workdir: Its `WorkDirectory`, with the configuration written.
        team: The `Team` of the experiment's strategy.
    """

    def __init__(self, experiment, workdir, team):
        self.experiment = experiment
        self.config = experiment.training
        self.workdir = workdir
        self.team = team
        self.progress = Progress()
        self.strategy = experiment.strategy
        self.static_shapes = is_tpu(self.strategy)
        self.jit_compile = not self.static_shapes and resolve_jit_compile(
            "auto"
            if self.config.jit_compile is None
            else self.config.jit_compile
        )  # a TPU's steps are compiled as a whole
        with self.strategy.scope():
            self.model = experiment.make_model()
            self.optimizer = experiment.make_optimizer()
            self.train_step = TrainStep(
                self.model,
                self.optimizer,
                self.config.label_smoothing,
                self.jit_compile,
                self.config.accumulate_steps,
                self.config.clip_norm,
            )
        self._one_step, self._several_steps = (
            tf.function(
                steps,
                reduce_retracing=not self.static_shapes,
                autograph=False,
            )
            for steps in (self._one_step, self._several_steps)
        )
        self.sums = Sums(team)
        self.checkpoint = TrainingCheckpoint(
            workdir,
            self.model,
            self.optimizer,
            self.progress,
            self.config.keep_checkpoints,
        )
        self.validator = None
        if experiment.valid_pairs and team.is_chief:
            self.validator = Validator(self.model, experiment)

    def restore(self):
        """Takes up the newest whole checkpoint; returns its path, or None."""
        prefix = self.checkpoint.restore()
        steps = self.team.sum([float(self.progress.step)])[0]
        if steps != self.progress.step * self.team.size:
            raise ValueError(
                f"{self.workdir.path} is not the same for every worker:"
                f" {self.team.name} stands at step {self.progress.step}, the"
                f" average worker at {steps / self.team.size:g}"
            )
        self._find_place()
        with self.strategy.scope():
            spread_seeds(self.model)
        return prefix

    def _find_place(self):
        """Where the data stands; other batches than before begin an epoch."""
        progress, batches = self.progress, self.experiment.train_batches
        if progress.step and progress.plan_id != batches.order_id:
            epoch, used = divmod(progress.data_step, progress.epoch_steps)
            epoch += used > 0
            progress.data_step = epoch * batches.steps_per_epoch
            if self.team.is_chief and used:
                logging.warning(
                    "the batches are not those of before: %.0f%% of epoch %d"
                    " are left out, and epoch %d begins",
                    100 * (1 - used / progress.epoch_steps),
                    epoch,
                    epoch + 1,
                )
        progress.plan_id = batches.order_id
        progress.epoch_steps = batches.steps_per_epoch

    def try_largest(self):
        """Makes the step that needs the most memory, and takes it back.

        Returns:
            Seconds of such a step, compilation left out.

        Raises:
            CommandError: The memory of a device is too small for it.
        """
        shape = largest_shape(self.experiment)
        batches = self.experiment.train_batches
        variables = [v.value for v in self.model.variables]
        variables += [v.value for v in self.optimizer.variables]
        before = [variable.numpy() for variable in variables]
        (batch,) = distribute(
            self.strategy, functools.partial(batches.largest_batch, shape)
        )
        try:
            self._one_step(batch).numpy()
            started = time.monotonic()
            self._one_step(batch).numpy()
            seconds = time.monotonic() - started
        except tf.errors.ResourceExhaustedError as error:
            rows, length = shape
            raise CommandError(
                f"the largest batch, {rows} x {length} tokens, does not fit"
                " into memory: a greater accumulate_steps computes it in more"
                " parts, a smaller batch_tokens makes it smaller"
                f" ({str(error.message).splitlines()[0]})"
            ) from error
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)
        return seconds

    def run(self):
        """Trains to the end, or until a signal.

        Returns:
            The signal's name, or None when training has come to its end.

        Raises:
            LostWorkerError: Another worker is gone.
        """
        self.reporter = Reporter(
            self.workdir.logs, self.config.train_steps, self.team.is_chief
        )
        self.clock = Clock(self.progress)
        self.saved_step = self.progress.step
        self.told_step = self.progress.step
        self.told_seconds = self.progress.train_seconds
        with (
            contextlib.closing(self.reporter),
            StopSignals() as signals,
            self.team.watch(),
        ):
            reason = self._reason_to_end(signals)
            if reason is None:
                for batch in self._batches():
                    before = self.progress.step
                    self._step(batch)
                    self._after_step(before)
                    reason = self._reason_to_end(signals, before)
                    if reason:
                        break
            self._save()
            self.team.wait()  # a worker that is gone early would count as lost
            self.reporter.tell(f"{reason} | step {self.progress.step}")
        return reason.signal

    # The stages of a step

    def _batches(self):
        """Batches from where the data stands to the end of training."""

        start = self.progress.data_step
        end = start + self.config.train_steps - self.progress.step

        def make_dataset(slices, num_slices):
            return self.experiment.train_batches.dataset(
                start,
                end_step=end,
                slices=slices,
                num_slices=num_slices,
            )

        return distribute(self.strategy, make_dataset)

    def _one_step(self, batch):
        """A step; returns what `Sums` adds up."""
        return self._sum_over_replicas(
            self.strategy.run(self._in_replica, args=batch)
        )

    def _several_steps(self, batches):
        """The steps of batches of one shape, stacked: a loop on the devices."""
        inputs, labels = batches
        local_labels = self.strategy.experimental_local_results(labels)
        num_steps = tf.shape(local_labels[0])[0]

        def in_replica(index, inputs, labels):
            batch = tf.nest.map_structure(lambda x: x[index], (inputs, labels))
            return self._in_replica(*batch)

        def step(index, sums):
            of_step = self.strategy.run(in_replica, (index, inputs, labels))
            return index + 1, sums + self._sum_over_replicas(of_step)

        _, sums = tf.while_loop(
            lambda index, _: index < num_steps,
            step,
            (0, tf.zeros(len(Sums.NAMES))),
            parallel_iterations=1,
        )
        return sums

    def _in_replica(self, inputs, labels):
        result = self.train_step(inputs, labels)
        source_tokens = tf.math.count_nonzero(
            inputs["source_ids"] != vocabulary.PAD, dtype=tf.int32
        )
        return tf.stack(
            [
                result.loss_sum,
                result.nll_sum,
                result.num_tokens,
                tf.cast(source_tokens, tf.float32),
            ]
        )

    def _sum_over_replicas(self, values):
        """The sum over this worker's replicas."""
        return tf.add_n(self.strategy.experimental_local_results(values))

    def _step(self, batch):
        """Makes the steps of an element of the data."""
        if self.config.steps_per_call > 1:
            _, labels = batch
            local = self.strategy.experimental_local_results(labels)
            num_steps = local[0].shape[0]
            self.sums.add(self._several_steps(batch))
        else:
            num_steps = 1
            self.sums.add(self._one_step(batch))
        self.progress.step += num_steps
        self.progress.data_step += num_steps
        self.reporter.advance(self.progress.step)

    def _after_step(self, before):
        """Whatever became due since step `before`."""
        if self._is_due(self.config.log_steps, before):
            self._tell_steps()
        if self.validator and self._is_due(self.config.valid_steps, before):
            self._validate()
        if self._is_due(self.config.checkpoint_steps, before):
            self._save()

    def _is_due(self, every, before):
        """Whether a multiple of `every`, or the end, has been reached."""
        step = self.progress.step
        at_end = step == self.config.train_steps
        return at_end or step // every > before // every

    def _reason_to_end(self, signals, before=None):
        """Why training ends after this step; None: it goes on.

        Workers end at the same step: they ask each other now and then, and the
        chief's clock and BLEU count.
        """
        self.clock.tick()
        progress, config = self.progress, self.config
        if progress.step >= config.train_steps:
            return Reason("all steps made")
        if self.team.size > 1 and before is not None:
            if progress.step // MEETING_STEPS == before // MEETING_STEPS:
                return None
        is_chief = self.team.is_chief
        minutes = 0 < config.train_minutes * 60 <= progress.wall_seconds
        stale = 0 < config.patience <= progress.stale_validations
        minutes, stale, *stopped = self.team.sum(
            [
                float(minutes and is_chief),
                float(stale and is_chief),
                *(float(signals.received == s) for s in StopSignals.SIGNALS),
            ]
        )
        if any(stopped):
            name = StopSignals.SIGNALS[int(np.argmax(stopped))].name
            return Reason(f"stopped by {name}", name)
        if minutes:
            return Reason(f"{config.train_minutes:g} minutes are over")
        if stale:
            return Reason(f"no better BLEU in {config.patience} validations")
        return None

    # What is told

    def _tell_steps(self):
        """Reports the steps since the last report; waits for them to end."""
        sums = self.sums.take()
        self.clock.tick()
        progress = self.progress
        seconds = progress.train_seconds - self.told_seconds
        tokens = sums["target_tokens"]
        _check_finite(sums["loss"], progress.step)
        values = {
            "loss": sums["loss"] / tokens,
            "perplexity": perplexity(sums["nll"] / tokens),
            "learning_rate": self._learning_rate(),
            "tokens_per_second": (tokens + sums["source_tokens"]) / seconds,
            "target_tokens_per_second": tokens / seconds,
        }
        left = self._seconds_left(seconds / (progress.step - self.told_step))
        self.reporter.tell(
            f"step {progress.step}"
            f" | epoch {progress.data_step / progress.epoch_steps:.2f}"
            f" | loss {values['loss']:.4f}"
            f" | perplexity {values['perplexity']:.2f}"
            f" | rate {values['learning_rate']:.3e}"
            f" | {values['tokens_per_second']:.0f} source+target tokens/s"
            f" | {progress.wall_seconds:.0f} s"
            f" | left {span(left)}"
        )
        self.reporter.record(progress.step, "train", values)
        self.told_step = progress.step
        self.told_seconds = progress.train_seconds

    def _learning_rate(self):
        """The rate of the last update."""
        optimizer = getattr(self.optimizer, "inner_optimizer", self.optimizer)
        schedule = self.experiment.make_schedule()
        return float(schedule(optimizer.iterations.value.numpy() - 1))

    def _seconds_left(self, seconds_per_step):
        progress, config = self.progress, self.config
        left = (config.train_steps - progress.step) * seconds_per_step
        if config.train_minutes:
            limit = config.train_minutes * 60 - progress.wall_seconds
            left = min(left, max(limit, 0.0))
        return left

    # Validation and checkpoints

    def _validate(self):
        """Measures, tells, and keeps the best."""
        started = time.monotonic()
        with self.clock.pause():
            result = self.validator.run()
        progress = self.progress
        better = result.bleu > progress.best_bleu
        progress.best_bleu = max(progress.best_bleu, result.bleu)
        progress.stale_validations = (
            0 if better else progress.stale_validations + 1
        )
        values = {
            "loss": result.loss,
            "perplexity": perplexity(result.nll),
            "bleu": result.bleu,
        }
        self.reporter.tell(
            f"validation at step {progress.step}"
            f" | loss {values['loss']:.4f}"
            f" | perplexity {values['perplexity']:.2f}"
            f" | BLEU {values['bleu']:.2f}{' (best)' if better else ''}"
            f" | took {span(time.monotonic() - started)}"
            f" | {progress.wall_seconds:.0f} s,"
            f" {progress.train_seconds:.0f} s of them training"
        )
        self.reporter.record(
            progress.step,
            "validation",
            {**values, "wall_seconds": progress.wall_seconds},
        )
        if better:
            with self.clock.pause():
                self.checkpoint.save_best()

    def _save(self):
        """Writes a checkpoint, unless this step has one; the chief does."""
        if self.saved_step == self.progress.step or not self.team.is_chief:
            return
        for weight in self.model.weights:
            _check_finite(tf.reduce_sum(weight.value), self.progress.step)
        with self.clock.pause():
            self.checkpoint.save()
        self.saved_step = self.progress.step


def _check_finite(value, step):
    """Ends a training that has diverged, with the good checkpoints kept."""
    if not math.isfinite(float(value)):
        raise RunError(
            f"training has diverged at step {step}: the loss is not finite. The"
            " last checkpoint is from before; a smaller learning_rate_scale or"
            " more warmup_steps may help"
        )
