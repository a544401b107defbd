"""The interface between the training loop and the devices that compute.

The loop counts steps, reports, validates, saves and ends. `Devices` describes
the devices of a run and connects its workers. An `Engine` holds the model and
the optimizer on these devices and makes the updates. The loop imports no
framework; `tensorflow_engine.py` and `jax_engine.py` implement `Devices` and
`Engine`.

There are three levels of parallelism. A worker is a process, usually on a
machine of its own. It has a replica of the model for each of its devices. On
CPUs, a replica divides its rows into slices, each computed on a thread.
"""

import abc
import contextlib
import typing
from collections.abc import Callable, Iterator

import keras
import numpy as np

from keras_transformer.base.backend import Tensor
from keras_transformer.commands.flags import RunError
from keras_transformer.data.batches import Batches, Shape
from keras_transformer.model import Transformer
from keras_transformer.storage.checkpoints import Groups
from keras_transformer.training.update import StepOptions
from trainers.run.data_config import RunData
from trainers.run.training_config import TrainingConfig

# The order of the totals of steps.
TOTALS = ("loss", "nll", "target_tokens", "source_tokens")

# Inputs and labels on the devices; several batches if `steps_per_call` > 1.
Batch: typing.TypeAlias = tuple[dict[str, Tensor], Tensor]
# A function of inputs and labels; see `Engine.make_loss_sums`.
LossSums: typing.TypeAlias = Callable[
    [dict[str, np.ndarray], np.ndarray], np.ndarray
]


class OutOfMemoryError(Exception):
    """Raised if the memory of a device is too small for a batch."""


class LostWorkerError(RunError):
    """Raised if another worker is lost, so that the run cannot continue."""


class Steps(typing.NamedTuple):
    """Updates that an engine has begun to compute."""

    num_steps: int  # number of updates
    # float32 `[4]`, this worker's sums of `TOTALS` over the tokens of these
    # updates, on the device: `numpy.asarray` waits for them.
    totals: Tensor


class Workers(abc.ABC):
    """The workers of a run, as one of them sees them."""

    size: int  # number of workers
    is_chief: bool  # whether this worker logs and writes
    name: str  # as in "worker 1 of 2"

    @abc.abstractmethod
    def all_reduce_sum(self, values: list[float]) -> list[float]:
        """Sums each number over the workers. All workers must call it."""

    def any_of(self, flags: list[bool]) -> list[bool]:
        """Tells which flags are true on any worker. All must call it."""
        return [
            count > 0 for count in self.all_reduce_sum([*map(float, flags)])
        ]

    def barrier(self) -> None:
        """Waits until every worker has called it."""
        self.all_reduce_sum([0.0])

    @contextlib.contextmanager
    def chief_first(self) -> Iterator[None]:
        """Makes the other workers wait until the chief has left the body."""
        if not self.is_chief:
            self.barrier()
        yield
        if self.is_chief:
            self.barrier()

    def part(self) -> None:
        """Disconnects from the other workers. Every worker must call it."""
        self.barrier()  # a worker that leaves early would count as lost

    def lost_another(self, reason: str) -> LostWorkerError:
        """Makes the error for a lost connection to another worker."""
        return LostWorkerError(
            f"{self.name} has lost another worker ({reason}). Rerun the same"
            " command on every worker to resume from the last checkpoint"
        )

    @abc.abstractmethod
    def watch(self) -> contextlib.AbstractContextManager[None]:
        """Turns network errors in the body into a `LostWorkerError`."""


class Devices(typing.Protocol):
    """The devices of a run."""

    num_replicas: int  # replicas of the model, over all workers
    # Batches of sentences that this worker should translate in parallel.
    num_searches: int
    description: str  # the devices in one line, or why a GPU cannot be used
    num_gpus: int  # GPUs of this worker
    precision: str  # the fastest precision that trains as well as float32
    framework: str  # name and version of the framework

    @property
    def workers(self) -> Workers: ...

    def make_engine(self, task: "Task") -> "Engine":
        """Makes an `Engine` that trains a task's model on these devices."""


class Task(typing.Protocol):
    """The part of an `Experiment` that an engine uses."""

    devices: Devices  # the devices to train on
    train_batches: Batches  # batches of the training pairs

    @property
    def data(self) -> RunData: ...

    @property
    def training(self) -> TrainingConfig: ...

    @property
    def rows_multiple(self) -> int:
        """Number of micro-batches in a batch, over all replicas."""

    @property
    def schedule(self) -> keras.optimizers.schedules.LearningRateSchedule:
        """The learning-rate schedule, made when the engine first uses it."""

    def make_model(self) -> Transformer:
        """Makes a model whose initial weights are drawn with the seed."""

    def make_optimizer(
        self, model: Transformer
    ) -> keras.optimizers.Optimizer: ...

    def step_options(self, model: Transformer) -> StepOptions:
        """Returns the options for a model's updates."""


class Engine(typing.Protocol):
    """A model and its optimizer on devices."""

    model: Transformer  # the model that is trained
    # Whether `model` itself can be validated; otherwise a copy is needed.
    can_validate: bool
    optimizer: keras.optimizers.Optimizer
    # Slices that a replica divides its rows into and computes in parallel.
    num_slices: int
    # Programs that XLA compiles for the batches; 0 without XLA.
    num_programs: int

    def try_batch(self, shape: Shape) -> float:
        """Makes a step with a full batch of a shape, and undoes it.

        Returns the seconds that the step takes, without compilation. Raises
        `OutOfMemoryError` if the batch does not fit.
        """

    def batches(
        self, start: int, start_epoch: int, end_step: int
    ) -> Iterator[Batch]:
        """Yields this worker's batches on its devices, for `make_steps`.

        Yields the batches from `start` up to, but not including, `end_step`.
        Both are counted from the beginning of `start_epoch`, epochs from 0.
        """

    def make_steps(self, batch: Batch) -> Steps:
        """Begins the updates for an element of `batches`, without waiting."""

    def begin(self) -> None:
        """Prepares the first step. Called once, after weights are restored."""

    def variables(self) -> Groups:
        """Returns the groups of variables that a checkpoint saves.

        `weights` maps names to variables: only the adapters with `lora_rank`.
        With a moving average, `weights` has the averages, and `trained` the
        weights that are trained. `optimizer` and `seeds` (of dropout) are
        lists. A variable has `numpy()` and `assign(array)`.
        """

    def synchronize(self) -> None:
        """Brings `variables` up to date. Every worker must call it."""

    def make_loss_sums(self, model: Transformer) -> LossSums:
        """Makes a function that measures a model on a batch, without dropout.

        The function returns the sums of smoothed loss, loss and target tokens,
        float64 `[3]`.
        """

    def first_not_finite(self) -> str | None:
        """Returns the path of a variable that is not finite, or None."""

    def learning_rate(self) -> float:
        """Returns the learning rate of the last update."""

    def set_elapsed(self, share: float) -> None:
        """Sets the share of the time limit that has passed in the schedule.

        Does nothing for a schedule without a clock.
        """
