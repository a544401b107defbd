"""The JAX engine: a mesh of devices and a compiled step."""

import collections
import concurrent.futures
import contextlib
import time
import typing
from collections.abc import Iterable, Iterator

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.experimental import multihost_utils

from keras_transformer.base.backend import Tensor
from keras_transformer.base.machine import count_cores
from keras_transformer.base.refusals import expect
from keras_transformer.commands.devices import (
    check_device,
    count_searches,
    describe,
)
from keras_transformer.data.batches import Shape
from keras_transformer.model import Transformer
from keras_transformer.storage.checkpoints import Groups, weight_name
from keras_transformer.text.vocabulary import PAD
from keras_transformer.training.jax_step import AXIS, JaxStep, State
from keras_transformer.training.rematerialization import REMATERIALIZE
from keras_transformer.training.token_losses import TokenLosses
from keras_transformer.training.update import StepOptions
from trainers.run.engine import (
    Batch,
    Devices,
    LossSums,
    OutOfMemoryError,
    Steps,
    Task,
)
from trainers.run.jax_workers import Workers, connect
from trainers.run.training_config import TrainingConfig

PREFETCH = 4  # batches placed on the devices in advance
Item = typing.TypeVar("Item")


def open_devices(training: TrainingConfig, device: str | None) -> Devices:
    """Opens the devices of a training run and connects its workers.

    `device` is the kind of device that must compute, or None. Raises ValueError
    if it is missing or an option needs TensorFlow.
    """
    _check_options(training)
    connect(training.strategy)
    devices = JaxDevices(training)
    check_device(device, devices.description)
    return devices


def _check_options(training: TrainingConfig) -> None:
    expect(
        training.precision != "mixed_float16",
        "mixed_bfloat16, or --backend=tensorflow, which scales the loss",
        "precision=mixed_float16 with --backend=jax",
    )
    expect(
        training.jit_compile is not False,
        "--backend=tensorflow with jit_compile=false: JAX compiles every step",
    )
    expect(
        training.cpu_threads is None,
        "--backend=tensorflow with cpu_threads",
        "--backend=jax",
    )


class JaxDevices:
    """The `Devices` of JAX: those of all hosts, or the first one."""

    framework = f"JAX {jax.__version__}"

    def __init__(self, training: TrainingConfig):
        platform = jax.default_backend()
        expect(
            training.strategy != "tpu" or platform == "tpu",
            "a TPU, with strategy=tpu",
            f"devices of {platform}",
        )
        devices = jax.devices()
        if training.strategy == "one_device":
            devices = devices[:1]
        self.mesh = jax.sharding.Mesh(np.array(devices), (AXIS,))
        self.num_replicas = len(devices)
        self.num_searches = count_searches()
        self.workers = Workers()
        self.description = describe(devices)
        self.num_gpus = len(jax.local_devices()) if platform == "gpu" else 0
        fast = platform == "tpu" or (
            platform == "gpu" and float(devices[0].compute_capability) >= 8
        )
        self.precision = "mixed_bfloat16" if fast else "float32"

    def make_engine(self, task: Task) -> "JaxEngine":
        return JaxEngine(task, self.mesh, self.workers)


class JaxEngine:
    """An `Engine` on a mesh of devices.

    The training state is a `State` on the devices. The Keras variables stay on
    the host, and only name the arrays.
    """

    can_validate = False  # the trained weights are in the state
    num_slices = 1

    def __init__(self, task: Task, mesh: jax.sharding.Mesh, workers: Workers):
        config = task.training
        self._task = task
        self._config = config
        self._workers = workers
        with _on_host():
            self.model = task.make_model()
            REMATERIALIZE[config.remat](self.model)
            self.optimizer = task.make_optimizer(self.model)
            self._step = JaxStep(
                self.model,
                self.optimizer,
                mesh,
                task.step_options(self.model),
                config.shard_parameters,
                self._clock,
            )
        self._state = self._step.initial_state()
        self._copy: State | None = None  # the whole state, in NumPy
        self._is_written = False  # whether the copy is newer than the state
        self._elapsed = 0.0
        self._are_compiled = False
        self.num_programs = len(task.train_batches.shapes)
        if config.steps_per_call > 1:
            self.num_programs *= 2  # of steps_per_call steps, and of one

    @property
    def _clock(self) -> keras.Variable | None:
        """Elapsed share of the time in the schedule; None without a clock."""
        return getattr(self._task.schedule, "elapsed", None)

    # Steps

    def begin(self) -> None:
        pass  # each device derives its own seeds in the step

    def try_batch(self, shape: Shape) -> float:
        self._compile_all()
        before = self._copied()
        batch = self._full_batch(shape)
        try:
            np.asarray(self._make_step(batch))  # compiles a shape of `_advice`
            started = time.monotonic()
            np.asarray(self._make_step(batch))
            return time.monotonic() - started
        except jax.errors.JaxRuntimeError as error:
            reason = str(error).splitlines()[0]
            if "RESOURCE_EXHAUSTED" not in reason:
                raise
            raise OutOfMemoryError(reason) from error
        finally:
            self._state = self._step.place(before)

    def _compile_all(self) -> None:
        """Compiles the step for every batch shape, unless that is done.

        With several hosts, each compiles the programs one by one in the same
        order, because compiling in threads was not tested there.
        """
        if self._are_compiled:
            return
        num_threads = count_cores() if self._workers.size == 1 else 1
        self._step.compile(self._state, self._full_batches(), num_threads)
        self._are_compiled = True

    def _full_batches(self) -> Iterator[Batch]:
        """Yields a full batch of every shape.

        With `steps_per_call` > 1, also yields the stacked batches of a call.
        """
        for shape in self._task.train_batches.shapes:
            yield self._full_batch(shape)
            if self._config.steps_per_call > 1:
                yield self._full_batch(shape, self._config.steps_per_call)

    def _full_batch(self, shape: Shape, num_steps: int | None = None) -> Batch:
        """Makes this host's rows of a full batch.

        With `num_steps`, stacks as many such batches along a new first axis.
        """
        rows = self._task.train_batches.largest_rows(
            shape, self._workers.index, self._workers.size
        )
        if num_steps is not None:
            rows = jax.tree.map(lambda x: np.stack([x] * num_steps), rows)
        return self._step.place_rows(*rows)

    def batches(
        self, start: int, start_epoch: int, end_step: int
    ) -> Iterator[Batch]:
        arrays = self._task.train_batches.arrays(
            start,
            start_epoch=start_epoch,
            end_step=end_step,
            replicas=(self._workers.index,),
            num_replicas=self._workers.size,
        )
        placed = (self._step.place_rows(*batch) for batch in arrays)
        return in_background(placed, PREFETCH)

    def make_steps(self, batch: Batch) -> Steps:
        labels = batch[1]
        num_steps = labels.shape[0] if labels.ndim == 3 else 1
        totals = self._make_step(batch)
        if not self._workers.is_chief:  # the totals are those of all workers
            totals = jnp.zeros_like(totals)
        return Steps(num_steps, totals)

    def _make_step(self, batch: Batch) -> jax.Array:
        """Updates the state. Returns totals, float32 `[4]`, on the device."""
        if self._copy is not None and self._is_written:
            self._state = self._step.place(self._copy)
        self._copy, self._is_written = None, False
        self._state, totals = self._step(self._state, *batch, self._elapsed)
        return totals

    # State

    def variables(self) -> Groups:
        variables = self._step.variables

        def views(field: str) -> list[_View]:
            group = getattr(variables, field)
            return [_View(self, field, index) for index in range(len(group))]

        def by_name(field: str) -> dict[str, _View]:
            names = map(weight_name, getattr(variables, field))
            return dict(zip(names, views(field), strict=True))

        weights = by_name("trained")
        if not self._config.lora_rank:
            weights |= by_name("frozen")
        groups: Groups = {
            "weights": weights,
            "optimizer": views("optimizer"),
            "seeds": views("seeds"),
        }
        if self._config.ema_decay:
            groups["trained"] = by_name("trained")
            weights.update(by_name("averages"))
        return groups

    def synchronize(self) -> None:
        """Gathers arrays that are divided among hosts on each host."""
        if self._copy is None and self._workers.size > 1:
            self._copy = self._copied()

    def _copied(self) -> State:
        """Copies the whole state to NumPy. Every worker must call it."""
        state = self._copy if self._is_written else self._state
        return jax.tree.map(complete, state)

    def read(self, field: str, index: int) -> np.ndarray:
        """Returns a copy of the variable `index` in a field of the state."""
        state = self._copy or self._state
        return np.array(self._step.value(state, field, index))

    def write(self, field: str, index: int, value: np.ndarray) -> None:
        """Sets the value of a variable, which the next step uses."""
        if self._copy is None or not self._is_written:
            self._copy, self._is_written = self._copied(), True
        self._step.value(self._copy, field, index)[...] = value

    def make_loss_sums(self, model: Transformer) -> LossSums:
        options = StepOptions(self._config.label_smoothing)
        token_losses = TokenLosses(model, options)
        variables = model.variables

        @jax.jit
        def loss_sums(
            values: list[jax.Array],
            inputs: dict[str, jax.Array],
            labels: jax.Array,
        ) -> jax.Array:
            with keras.StatelessScope(zip(variables, values, strict=True)):
                losses, nll = token_losses(inputs, labels, training=False)
            real = labels != PAD
            return jnp.stack(
                [jnp.sum(jnp.where(real, x, 0.0)) for x in (losses, nll, 1.0)]
            )

        def of_batch(
            inputs: dict[str, np.ndarray], labels: np.ndarray
        ) -> np.ndarray:
            values = [variable.value for variable in variables]
            return np.asarray(loss_sums(values, inputs, labels), np.float64)

        return of_batch

    def first_not_finite(self) -> str | None:
        for field in ("trained", "optimizer"):
            if np.asarray(_are_finite(getattr(self._state, field))):
                continue
            self.synchronize()
            for index, variable in enumerate(
                getattr(self._step.variables, field)
            ):
                if not np.isfinite(self.read(field, index)).all():
                    return variable.path
        return None

    def learning_rate(self) -> float:
        variables = self._step.variables.optimizer
        index = next(
            index
            for index, variable in enumerate(variables)
            if variable is self.optimizer.iterations
        )
        step = self.read("optimizer", index) - 1
        if self._clock is not None:
            self._clock.assign(self._elapsed)
        return float(self._task.schedule(step))

    def set_elapsed(self, share: float) -> None:
        self._elapsed = share


def complete(array: jax.Array | np.ndarray) -> np.ndarray:
    """Copies a whole array to NumPy.

    If the array is divided among hosts, all of them must call this.
    """
    if (
        isinstance(array, np.ndarray)
        or array.is_fully_addressable
        or array.is_fully_replicated
    ):
        return np.array(array)
    return np.array(multihost_utils.process_allgather(array, tiled=True))


class _View:
    """A variable of `Engine.variables`, stored in a `JaxEngine`'s state."""

    def __init__(self, engine: JaxEngine, field: str, index: int):
        self._engine, self._place = engine, (field, index)
        variable = getattr(engine._step.variables, field)[index]
        self.shape, self.dtype = tuple(variable.shape), variable.dtype

    def numpy(self) -> np.ndarray:
        return self._engine.read(*self._place)

    def assign(self, value: Tensor) -> None:
        self._engine.write(*self._place, np.asarray(value, self.dtype))


@jax.jit
def _are_finite(arrays: list[jax.Array]) -> jax.Array:
    leaves = jax.tree.leaves(arrays)
    return jnp.stack([jnp.isfinite(array).all() for array in leaves]).all()


def _on_host() -> contextlib.AbstractContextManager[object]:
    """Returns a context in which JAX creates arrays in host memory."""
    try:
        cpu = jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX_PLATFORMS names no CPU
        return contextlib.nullcontext()
    return jax.default_device(cpu)


def in_background(items: Iterable[Item], size: int) -> Iterator[Item]:
    """Yields items that a thread makes in advance, at most `size` of them.

    Raises the exceptions of the iterable.
    """
    iterator = iter(items)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = collections.deque(
            pool.submit(next, iterator) for _ in range(size)
        )
        try:
            while True:
                item = waiting.popleft().result()
                waiting.append(pool.submit(next, iterator))
                yield item
        except StopIteration:
            return
        finally:
            pool.shutdown(cancel_futures=True)
