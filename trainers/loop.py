"""The training loop: steps, reports, validation, checkpoints, the end.

The host syncs with the devices only at reports, validations and checkpoints:
the totals of the steps stay on the devices until then.
"""

import collections
import contextlib
import dataclasses
import functools
import math
import signal
import time

import numpy as np
import tensorflow as tf
from absl import logging

from keras_transformer import vocabulary
from keras_transformer.flags import CommandError, RunError
from keras_transformer.moving_average import MovingAverage
from keras_transformer.training import (
    TrainStep,
    resolve_jit_compile,
    slice_sizes,
    spread_seeds,
)
from keras_transformer.workdir import WorkDirectory, named_weights
from trainers import xla
from trainers.budget import largest_shape
from trainers.checkpoints import TrainingCheckpoint, last_good
from trainers.evaluation import Validator
from trainers.progress import (
    Clock,
    Progress,
    Reporter,
    perplexity,
    step_line,
    validation_line,
)
from trainers.strategies import count_slices, distribute, is_tpu

MEETING_STEPS = 10  # updates after which workers ask each other whether to end


class TokenTotals:
    """Totals over the tokens of steps, in float64.

    The host syncs only when they are read.

    Args:
        workers: The `Workers`, whose totals are added up.
    """

    NAMES = ("loss", "nll", "target_tokens", "source_tokens")

    def __init__(self, workers):
        self._workers = workers
        self._calls = []  # (last step, float32 [4]) of calls since `take`

    def add(self, step, totals):
        """Adds the totals of a call that ended with a step, float32 `[4]`."""
        self._calls.append((step, totals))

    def take(self) -> dict[str, float]:
        """The totals of all workers by name; they begin again at zero."""
        local = sum(
            totals.numpy().astype(np.float64) for _, totals in self._calls
        )
        self._calls = []
        totals = self._workers.all_reduce_sum(local.tolist())
        return dict(zip(self.NAMES, totals, strict=True))

    def first_not_finite(self) -> int | None:
        """The first step since `take` whose loss is not finite, or None."""
        for step, totals in self._calls:
            if not np.isfinite(totals.numpy()[0]):
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
    """One training, from where it stands to where it ends.

    Args:
        experiment: The `Experiment`.
        workdir: Its `WorkDirectory`, with the configuration written.
        workers: The `Workers` of the experiment's strategy.
    """

    def __init__(self, experiment, workdir, workers):
        self.experiment = experiment
        self.config = experiment.training
        self.workdir = workdir
        self.workers = workers
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
            self.optimizer = experiment.make_optimizer(self.model)
            self.moving_average = None
            if self.config.ema_decay:
                self.moving_average = MovingAverage(
                    self.model, self.config.ema_decay
                )
            self.train_step = TrainStep(
                self.model,
                self.optimizer,
                self.config.label_smoothing,
                self.jit_compile,
                self.config.accumulate_steps,
                self.config.clip_norm,
                r_drop=self.config.r_drop,
                moving_average=self.moving_average,
                num_slices=count_slices(
                    self.strategy,
                    workers.size,
                    self.config.cpu_threads,
                    experiment.data.batch_tokens // experiment.rows_multiple,
                    self.jit_compile,
                ),
            )
        self._make_programs()
        self.totals = TokenTotals(workers)
        self.checkpoint = TrainingCheckpoint(
            workdir,
            self.model,
            self.optimizer,
            self.progress,
            self.config.keep_checkpoints,
            self.moving_average,
        )
        self.initial_prefix = None  # of weights that were trained before
        self.validator = None  # workers but the chief have none
        if experiment.valid_pairs and workers.is_chief:
            # A model of its own for the averages, outside the strategy.
            self.validator = Validator(
                experiment.make_model() if self.moving_average else self.model,
                experiment,
            )

    def _make_programs(self):
        """The functions that make one step, and several; not traced yet."""
        batches = self.experiment.train_batches
        self._compiled_step = self._compiled(
            self._one_step,
            functools.partial(batches.largest_batch, batches.shapes[0]),
        )
        self._compiled_steps = self._compiled(
            self._several_steps,
            lambda slices, num_slices: batches.dataset(
                slices=slices, num_slices=num_slices
            ),
        )

    def _compiled(self, steps, make_dataset):
        """Steps as one graph for all shapes; on a TPU, one for each shape."""
        if self.static_shapes:
            return tf.function(steps, autograph=False)
        dataset = distribute(self.strategy, make_dataset)
        return tf.function(
            steps, input_signature=[dataset.element_spec], autograph=False
        )

    def restore(self) -> str | None:
        """Restores the newest intact checkpoint; returns its path, or None."""
        prefix = self.checkpoint.restore()
        if prefix is None and self.config.init_from:
            self.initial_prefix = self._begin_with_weights()
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
        chosen = bool(self.progress.xla)
        if (
            self._may_choose_xla()
            and self.progress.xla >= 0
            and chosen != self.jit_compile
        ):
            if self.workers.is_chief:
                logging.info(
                    "XLA is %s, as in the sessions before",
                    "used" if chosen else "not used",
                )
            self._use_xla(chosen)
        return prefix

    def spread_seeds(self):
        """Gives each replica its dropout, when all else is ready to begin."""
        with self.strategy.scope():
            spread_seeds(self.model)

    def _may_choose_xla(self):
        """Whether no flag says that XLA compiles, or does not."""
        return self.config.jit_compile is None and not self.static_shapes

    def _use_xla(self, use_xla):
        """Makes the programs anew, with XLA or without."""
        self.jit_compile = use_xla
        self.train_step.use_xla(use_xla)
        self._make_programs()

    def choose_xla(self, seconds_per_step: float) -> str | None:
        """Decides whether XLA compiles, unless that is decided.

        The chief decides for all workers. A run of an older version stays
        without, and one on a GPU has XLA. Where slices of a batch are computed
        side by side there is no trial: XLA, which would need other threads,
        was slower in every measurement.

        Args:
            seconds_per_step: What `probe_memory` returned.

        Returns:
            What was chosen and why, if there was a trial.
        """
        progress, line = self.progress, None
        steps = self.config.train_steps - progress.step
        if self.config.train_minutes:
            minutes = self.config.train_minutes
            steps = min(steps, 60 * minutes / seconds_per_step)
        is_open = (
            self._may_choose_xla()
            and not self.jit_compile
            and self.train_step.num_slices == 1
            and progress.xla < 0
            and progress.step == 0
        )
        is_long = steps * seconds_per_step >= xla.WORTH_SECONDS
        (has_trial,) = self.workers.any_of(
            [is_open and is_long and self.workers.is_chief]
        )
        if has_trial:
            line = self._try_xla(steps)
        if not self.static_shapes:
            progress.xla = int(self.jit_compile)
        return line

    def _try_xla(self, steps):
        """Times steps of the most frequent shape; chooses; says what and why.

        Args:
            steps: Updates that the run has yet to make.
        """
        batches = self.experiment.train_batches
        shapes = collections.Counter(
            shape for _, shape in batches.epoch_order(self.progress.epoch)
        )
        [(shape, _)] = shapes.most_common(1)
        (batch,) = distribute(
            self.strategy, functools.partial(batches.largest_batch, shape)
        )
        plain = self._compiled_step, self._compiled_steps
        with self._taking_back():
            make_plain_step = functools.partial(plain[0], batch)
            self._use_xla(True)
            trial = xla.measure(
                lambda: make_plain_step().numpy(),
                lambda: self._compiled_step(batch).numpy(),
            )
        use_xla = xla.is_worth_it(trial, self.count_programs(), steps)
        (use_xla,) = self.workers.any_of([use_xla and self.workers.is_chief])
        if not use_xla:
            self._use_xla(False)
            self._compiled_step, self._compiled_steps = plain
        return xla.choice_line(use_xla, trial, shape)

    @contextlib.contextmanager
    def _taking_back(self):
        """Undoes the steps that its body makes."""
        variables = [v.value for v in self.model.variables]
        variables += [v.value for v in self.optimizer.variables]
        if self.moving_average:
            variables += self.moving_average.averages
        before = [variable.numpy() for variable in variables]
        yield
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)

    def _begin_with_weights(self):
        """Sets the weights to those of `init_from`; returns where they were."""
        prefix = WorkDirectory(self.config.init_from).restore_weights(
            named_weights(self.model), self.config.init_checkpoint
        )
        if self.moving_average:
            self.moving_average.begin()
        return prefix

    def _compare_metric(self):
        """Forgets the best score if it is of another metric."""
        progress, label = self.progress, self.experiment.metric.label
        if progress.best_label not in ("", label):
            if self.workers.is_chief:
                logging.warning(
                    "the best score so far, %.2f, is %s; validation now"
                    " measures %s: the next score is the first, and the best",
                    progress.best_score,
                    progress.best_label,
                    label,
                )
            progress.best_score = Progress.best_score
            progress.stale_validations = 0
        progress.best_label = label

    def _find_data_position(self):
        """Sets the data position; another batch order begins a new epoch."""
        progress, batches = self.progress, self.experiment.train_batches
        if progress.step:
            # Version 0.1 did not write the epoch; all had as many batches.
            epochs, used = divmod(progress.epoch_step, progress.epoch_steps)
            progress.epoch += epochs
            progress.epoch_start = progress.data_step - used
            if used and progress.order_id != batches.order_id:
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
                "the batches are not those of the last session: %.0f%% of epoch"
                " %d are skipped, and epoch %d begins",
                100 * skipped,
                progress.epoch,
                progress.epoch + 1,
            )

    def probe_memory(self) -> float:
        """Makes the step that needs the most memory, and takes it back.

        Returns:
            Seconds of such a step, without compilation.

        Raises:
            CommandError: The memory of a device is too small for it.
        """
        shape = largest_shape(self.experiment)
        batches = self.experiment.train_batches
        (batch,) = distribute(
            self.strategy, functools.partial(batches.largest_batch, shape)
        )
        try:
            with self._taking_back():
                self._compiled_step(batch).numpy()
                started = time.monotonic()
                self._compiled_step(batch).numpy()
                return time.monotonic() - started
        except tf.errors.ResourceExhaustedError as error:
            rows, length = shape
            raise CommandError(
                f"the largest batch, {rows} x {length} tokens, does not fit"
                " into memory: a greater accumulate_steps computes it in more"
                " micro-batches, a smaller batch_tokens makes it smaller"
                f" ({str(error.message).splitlines()[0]})"
            ) from error

    def count_programs(self) -> int:
        """How many programs XLA compiles; 0: it is not used."""
        if not (self.static_shapes or self.jit_compile):
            return 0
        step, replicas = self.train_step, self.strategy.num_replicas_in_sync
        programs = {
            (size, length)
            for rows, length in self.experiment.train_batches.shapes
            for size in slice_sizes(
                rows // replicas, step.num_slices, step.accumulate_steps
            )
        }
        count = len(programs)
        if self.static_shapes and self.config.steps_per_call > 1:
            count *= 2  # of steps_per_call steps, and of a single one
        return count

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
            # A worker that leaves early would count as lost.
            self.workers.barrier()
            self.reporter.log(f"{ending.reason} | step {self.progress.step}")
        return ending

    # The stages of a step

    def _batches(self):
        """Batches from the data position to the end of training."""

        progress = self.progress
        start = progress.epoch_step
        end = start + self.config.train_steps - progress.step

        def make_dataset(slices, num_slices):
            return self.experiment.train_batches.dataset(
                start,
                start_epoch=progress.epoch,
                end_step=end,
                slices=slices,
                num_slices=num_slices,
            )

        return distribute(self.strategy, make_dataset)

    def _one_step(self, batch):
        """A step; returns what `TokenTotals` adds up."""
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

        def step(index, totals):
            of_step = self.strategy.run(in_replica, (index, inputs, labels))
            return index + 1, totals + self._sum_over_replicas(of_step)

        _, totals = tf.while_loop(
            lambda index, _: index < num_steps,
            step,
            (0, tf.zeros(len(TokenTotals.NAMES))),
            parallel_iterations=1,
        )
        return totals

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
        num_steps = 1
        if self.config.steps_per_call > 1:
            _, labels = batch
            local_labels = self.strategy.experimental_local_results(labels)
            num_steps = local_labels[0].shape[0]
            totals = self._compiled_steps(batch)
        else:
            totals = self._compiled_step(batch)
        self._advance(num_steps)
        self.totals.add(self.progress.step, totals)
        self.reporter.advance(self.progress.step)

    def _advance(self, num_steps):
        """Counts steps, and the batches and epochs that they used."""
        progress = self.progress
        progress.step += num_steps
        progress.data_step += num_steps
        while progress.epoch_step > progress.epoch_steps:
            progress.epoch += 1
            progress.epoch_start += progress.epoch_steps
            progress.epoch_steps = self.experiment.train_batches.steps_of(
                progress.epoch
            )

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
        """The `Ending` after the steps since `before`; None: continue.

        Workers end at the same step: they ask each other now and then, and the
        chief's clock and score count.
        """
        self.clock.tick()
        progress, config = self.progress, self.config
        if progress.step >= config.train_steps:
            return Ending("all steps made")
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
            return Ending(f"{config.train_minutes:g} minutes are over")
        if is_stale:
            label = self.experiment.metric.label
            return Ending(f"no better {label} in {config.patience} validations")
        return None

    def _tell_time(self):
        """Tells a schedule with a clock which share of the time is over.

        All workers must know the same: it is the chief's.
        """
        elapsed = getattr(self.experiment.schedule, "elapsed", None)
        if elapsed is not None:
            limit = self.config.train_minutes * 60
            share = self.progress.wall_seconds / limit
            (share,) = self.workers.all_reduce_sum(
                [share if self.workers.is_chief else 0.0]
            )
            elapsed.assign(share)

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
            "learning_rate": self._learning_rate(),
            "tokens_per_second": (tokens + totals["source_tokens"]) / seconds,
            "target_tokens_per_second": tokens / seconds,
        }
        per_step = seconds / (progress.step - self.logged_step)
        left = self._seconds_left(per_step)
        self.reporter.log(step_line(progress, values, left))
        self.reporter.record(progress.step, "train", values)
        self.logged_step = progress.step
        self.logged_seconds = progress.train_seconds

    def _learning_rate(self):
        """The learning rate of the last update."""
        optimizer = getattr(self.optimizer, "inner_optimizer", self.optimizer)
        step = optimizer.iterations.value.numpy() - 1
        return float(self.experiment.schedule(step))

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
        if not self.validator:
            return
        started = time.monotonic()
        with self.clock.pause():
            if self.moving_average:
                self.checkpoint.copy_weights(self.validator.model)
            try:
                result = self.validator.run()
            except FloatingPointError as error:  # the translator's
                what = "the output of the model"
                raise self._diverged(what, None) from error
        if not math.isfinite(result.loss):
            raise self._diverged("the validation loss", None)
        progress = self.progress
        metric = self.experiment.metric
        is_best = result.score > progress.best_score
        progress.best_score = max(progress.best_score, result.score)
        progress.stale_validations += 1
        if is_best:
            progress.stale_validations = 0
        values = {
            "loss": result.loss,
            "perplexity": perplexity(result.nll),
            metric.key: result.score,
        }
        seconds = time.monotonic() - started
        score = f"{metric.label} {result.score:.2f}"
        self.reporter.log(
            validation_line(progress, values, score, is_best, seconds)
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
        if self.workers.is_chief:
            with self.clock.pause():
                self.checkpoint.save()
        self.saved_step = self.progress.step

    def _check_finite(self):
        """Ends a training that has diverged before anything of it is saved.

        Every worker calls it at the same step, and finds the same.

        Raises:
            RunError: A weight, or what the optimizer keeps, is not finite.
        """
        variables = [
            variable
            for variable in self.model.weights + self.optimizer.variables
            if variable.value.dtype.is_floating
        ]
        # One sync for all of them.
        finite = tf.stack(
            [tf.reduce_all(tf.math.is_finite(v.value)) for v in variables]
        ).numpy()
        if not finite.all():
            name = variables[int(np.argmin(finite))].path
            raise self._diverged(name, self.totals.first_not_finite())

    def _diverged(self, what, bad_step):
        """The error of a training that has diverged.

        Args:
            what: What is not finite.
            bad_step: The first step with a loss that is not; None: not known.
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
