"""The TensorFlow engine: updates in compiled graphs under a strategy."""

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf

from keras_transformer.base.backend import seed_variables
from keras_transformer.base.refusals import expect
from keras_transformer.commands.devices import (
    check_device,
    count_searches,
    describe,
    hide_gpus,
)
from keras_transformer.data.batches import Shape
from keras_transformer.model import Transformer
from keras_transformer.storage.checkpoints import (
    Groups,
    named_weights,
    weight_name,
)
from keras_transformer.text import vocabulary
from keras_transformer.training.gradients import add_losses, slice_sizes
from keras_transformer.training.rematerialization import REMATERIALIZE
from keras_transformer.training.step import (
    TrainStep,
    resolve_jit_compile,
    spread_seeds,
)
from keras_transformer.training.token_losses import TokenLosses
from keras_transformer.training.update import StepOptions, token_weights
from trainers.run.engine import (
    TOTALS,
    Batch,
    Devices,
    LossSums,
    OutOfMemoryError,
    Steps,
    Task,
)
from trainers.run.strategies import (
    MakeDataset,
    Workers,
    count_slices,
    distribute,
    has_bfloat16,
    make_strategy,
)
from trainers.run.training_config import TrainingConfig


def open_devices(training: TrainingConfig, device: str | None) -> Devices:
    """Opens the devices of a training run.

    `device` is the kind of device that must compute, or None. Raises ValueError
    if it is missing or an option needs JAX.
    """
    expect(
        not training.shard_parameters,
        "--backend=jax with shard_parameters",
        "--backend=tensorflow",
    )
    return TensorFlowDevices(training.strategy, device)


class TensorFlowDevices:
    """The `Devices` of the strategy that `make_strategy` makes for a name."""

    framework = f"TensorFlow {tf.__version__}"

    def __init__(self, name: str, device: str | None = None):
        hide_gpus(device)
        self._strategy = make_strategy(name)
        self.num_replicas = self._strategy.num_replicas_in_sync
        self.num_searches = 1 if self.num_replicas > 1 else count_searches()
        self.workers = Workers(self._strategy)
        self.description = describe()
        gpus = tf.config.get_visible_devices("GPU")
        self.num_gpus = len(gpus)
        check_device(device, self.description)
        self.precision = "float32"
        if gpus and all(map(has_bfloat16, gpus)):
            self.precision = "mixed_bfloat16"

    def make_engine(self, task: Task) -> "TensorFlowEngine":
        return TensorFlowEngine(task, self._strategy, self.workers.size)


class TensorFlowEngine:
    """An `Engine` under a `tf.distribute.Strategy`."""

    can_validate = True

    def __init__(
        self, task: Task, strategy: tf.distribute.Strategy, num_workers: int
    ):
        config = task.training
        self._task = task
        self._config = config
        self._strategy = strategy
        jit_compile = resolve_jit_compile(
            "auto" if config.jit_compile is None else config.jit_compile
        )
        self.num_slices = count_slices(
            self._strategy,
            num_workers,
            config.cpu_threads,
            task.data.batch_tokens // task.rows_multiple,
            jit_compile,
        )
        with self._strategy.scope():
            self.model = task.make_model()
            REMATERIALIZE[config.remat](self.model)
            self.optimizer = task.make_optimizer(self.model)
            self._train_step = TrainStep(
                self.model,
                self.optimizer,
                task.step_options(self.model),
                jit_compile,
                self.num_slices,
            )
        self._moving_average = self._train_step.moving_average
        self.num_programs = self._count_programs(jit_compile)
        batches = task.train_batches
        self._compiled_step = self._compiled(
            self._one_step,
            functools.partial(batches.largest_batch, batches.shapes[0]),
        )
        self._compiled_steps = self._compiled(
            self._several_steps,
            lambda replicas, num_replicas: batches.dataset(
                replicas=replicas, num_replicas=num_replicas
            ),
        )

    def _count_programs(self, jit_compile: bool) -> int:
        if not jit_compile:
            return 0
        programs = {
            (size, length)
            for rows, length in self._task.train_batches.shapes
            for size in slice_sizes(
                rows // self._task.rows_multiple, self.num_slices
            )
        }
        return len(programs)

    def _compiled(
        self, steps: Callable[[Batch], tf.Tensor], make_dataset: MakeDataset
    ) -> Callable[[Batch], tf.Tensor]:
        """Makes one graph of `steps` that takes batches of all shapes."""
        dataset = distribute(self._strategy, make_dataset)
        return tf.function(
            steps, input_signature=[dataset.element_spec], autograph=False
        )

    # Before the first step

    def begin(self) -> None:
        with self._strategy.scope():
            spread_seeds(self.model)

    def try_batch(self, shape: Shape) -> float:
        batches = self._task.train_batches
        (batch,) = distribute(
            self._strategy, functools.partial(batches.largest_batch, shape)
        )
        try:
            with self._taking_back():
                self._compiled_step(batch).numpy()
                started = time.monotonic()
                self._compiled_step(batch).numpy()
                return time.monotonic() - started
        except tf.errors.ResourceExhaustedError as error:
            reason = str(error.message).splitlines()[0]
            raise OutOfMemoryError(reason) from error

    @contextlib.contextmanager
    def _taking_back(self) -> Iterator[None]:
        """Undoes the steps that are made in the body."""
        variables = [v.value for v in self.model.variables]
        variables += [v.value for v in self.optimizer.variables]
        if self._moving_average:
            variables += self._moving_average.averages
        before = [variable.numpy() for variable in variables]
        yield
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)

    # Steps

    def batches(
        self, start: int, start_epoch: int, end_step: int
    ) -> Iterator[Batch]:
        def make_dataset(
            replicas: Sequence[int], num_replicas: int
        ) -> tf.data.Dataset:
            return self._task.train_batches.dataset(
                start,
                start_epoch=start_epoch,
                end_step=end_step,
                replicas=replicas,
                num_replicas=num_replicas,
            )

        return iter(distribute(self._strategy, make_dataset))

    def make_steps(self, batch: Batch) -> Steps:
        if self._config.steps_per_call == 1:
            return Steps(1, self._compiled_step(batch))
        _, labels = batch
        local_labels = self._strategy.experimental_local_results(labels)
        return Steps(local_labels[0].shape[0], self._compiled_steps(batch))

    def _one_step(self, batch: Batch) -> tf.Tensor:
        return self._sum_over_replicas(
            self._strategy.run(self._in_replica, args=batch)
        )

    def _several_steps(self, batches: Batch) -> tf.Tensor:
        """Makes the steps for stacked batches of one shape, in a graph loop."""
        inputs, labels = batches
        local_labels = self._strategy.experimental_local_results(labels)
        num_steps = tf.shape(local_labels[0])[0]

        def in_replica(
            index: tf.Tensor, inputs: dict[str, tf.Tensor], labels: tf.Tensor
        ) -> tf.Tensor:
            batch = tf.nest.map_structure(lambda x: x[index], (inputs, labels))
            return self._in_replica(*batch)

        def step(
            index: tf.Tensor, totals: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor]:
            of_step = self._strategy.run(in_replica, (index, inputs, labels))
            return index + 1, totals + self._sum_over_replicas(of_step)

        _, totals = tf.while_loop(
            lambda index, _: index < num_steps,
            step,
            (0, tf.zeros(len(TOTALS))),
            parallel_iterations=1,
        )
        return totals

    def _in_replica(
        self, inputs: dict[str, tf.Tensor], labels: tf.Tensor
    ) -> tf.Tensor:
        sums = self._train_step(inputs, labels)
        source_tokens = tf.math.count_nonzero(
            inputs["source_ids"] != vocabulary.PAD, dtype=tf.int32
        )
        return tf.stack([*sums, tf.cast(source_tokens, tf.float32)])

    def _sum_over_replicas(self, values: tf.Tensor) -> tf.Tensor:
        return tf.add_n(self._strategy.experimental_local_results(values))

    # State

    def variables(self) -> Groups:
        weights = named_weights(self.model)
        if self._config.lora_rank:
            weights = {n: w for n, w in weights.items() if w.trainable}
        groups: Groups = {
            "weights": weights,
            "optimizer": list(self.optimizer.variables),
            "seeds": seed_variables(self.model),
        }
        if self._moving_average:
            names = [weight_name(v) for v in self.model.trainable_variables]
            groups["trained"] = {name: weights[name] for name in names}
            averages = self._moving_average.averages
            weights.update(zip(names, averages, strict=True))
        return groups

    def synchronize(self) -> None:
        pass  # updates change the variables themselves

    def make_loss_sums(self, model: Transformer) -> LossSums:
        return make_loss_sums(model, self._config.label_smoothing)

    def first_not_finite(self) -> str | None:
        variables = [
            variable
            for variable in self.model.weights + self.optimizer.variables
            if variable.value.dtype.is_floating
        ]
        # One sync for all of them.
        finite = tf.stack(
            [tf.reduce_all(tf.math.is_finite(v.value)) for v in variables]
        ).numpy()
        return None if finite.all() else variables[int(finite.argmin())].path

    def learning_rate(self) -> float:
        optimizer = getattr(self.optimizer, "inner_optimizer", self.optimizer)
        step = optimizer.iterations.value.numpy() - 1
        return float(self._task.schedule(step))

    def set_elapsed(self, share: float) -> None:
        elapsed = getattr(self._task.schedule, "elapsed", None)
        if elapsed is not None:
            elapsed.assign(share)


def make_loss_sums(model: Transformer, label_smoothing: float) -> LossSums:
    """Makes the function that `Engine.make_loss_sums` describes."""
    token_losses = TokenLosses(model, StepOptions(label_smoothing))

    @tf.function(reduce_retracing=True, autograph=False)
    def loss_sums(inputs: dict[str, tf.Tensor], labels: tf.Tensor) -> tf.Tensor:
        losses, nll = token_losses(inputs, labels, training=False)
        sums = add_losses(losses, nll, token_weights(labels))
        return tf.cast(tf.stack(sums), tf.float64)

    return lambda inputs, labels: loss_sums(inputs, labels).numpy()
