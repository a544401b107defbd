"""The interface between the training loop and the devices that compute.

The loop counts steps, reports, validates, saves and ends. `Devices` describes
the devices of a run, and connects its workers. An `Engine` holds the model and
the optimizer on these devices and makes the updates. The loop imports no
framework; `tensorflow_engine.py` and `jax_engine.py` implement both.

Three things compute side by side. A worker is a process, usually on a machine
of its own. A worker has a replica of the model for each of its devices. On CPUs
a replica computes slices of its rows, each on a thread.
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

# Inputs and labels on the devices; with `steps_per_call`, of several batches.
Batch: typing.TypeAlias = tuple[dict[str, Tensor], Tensor]
# Function of inputs and labels; see `Engine.make_loss_sums`.
LossSums: typing.TypeAlias = Callable[
    [dict[str, np.ndarray], np.ndarray], np.ndarray
]


class OutOfMemoryError(Exception):
    """The memory of a device is too small for a batch."""


class LostWorkerError(RunError):
    """Another worker is gone, and the run cannot continue without it."""


class Steps(typing.NamedTuple):
    """Updates that an engine has begun to compute."""

    num_steps: int  # number of updates
    # float32 `[4]`, this worker's sums of `TOTALS` over the tokens of these
    # updates, on the device: `numpy.asarray` waits for them.
    totals: Tensor


class Workers(abc.ABC):
    """The workers of a run, which agree on what they do."""

    size: int  # number of workers
    is_chief: bool  # whether this worker logs and writes
    name: str  # as in "worker 1 of 2"

    @abc.abstractmethod
    def all_reduce_sum(self, values: list[float]) -> list[float]:
        """Sums numbers over the workers; all of them must call it."""

    def any_of(self, flags: list[bool]) -> list[bool]:
        """Tells which flags any worker has raised; all of them must call it."""
        return [
            count > 0 for count in self.all_reduce_sum([*map(float, flags)])
        ]

    def barrier(self) -> None:
        """Waits until every worker has called it."""
        self.all_reduce_sum([0.0])

    @contextlib.contextmanager
    def chief_first(self) -> Iterator[None]:
        """Lets the other workers enter the body when the chief has left it."""
        if not self.is_chief:
            self.barrier()
        yield
        if self.is_chief:
            self.barrier()

    def part(self) -> None:
        """Disconnects from the other workers; every worker calls it."""
        self.barrier()  # a worker that leaves early would count as lost

    def lost_another(self, reason: str) -> LostWorkerError:
        """Makes the error of a worker whose connection to another broke."""
        return LostWorkerError(
            f"{self.name} has lost another worker ({reason}). Rerun the same"
            " command on every worker to resume from the last checkpoint"
        )

    @abc.abstractmethod
    def watch(self) -> contextlib.AbstractContextManager[None]:
        """Turns the network's errors in its body into a `LostWorkerError`."""


class Devices(typing.Protocol):
    """The devices of a run."""

    num_replicas: int  # replicas of the model, over all workers
    # Batches of sentences that this worker best translates at the same time.
    num_searches: int
    description: str  # the devices in one line, or why a GPU cannot be used
    num_gpus: int  # GPUs of this worker
    precision: str  # the fastest precision that trains as well as float32
    framework: str  # name and version of the framework

    @property
    def workers(self) -> Workers: ...

    def make_engine(self, task: "Task") -> "Engine":
        """Makes an `Engine` that trains the model of a task here."""


class Task(typing.Protocol):
    """What an engine trains: an `Experiment`, as far as engines know it."""

    devices: Devices  # those to train on
    train_batches: Batches  # batches of the training pairs

    @property
    def data(self) -> RunData: ...

    @property
    def training(self) -> TrainingConfig: ...

    @property
    def rows_multiple(self) -> int:
        """The number of micro-batches of a batch, over all replicas."""

    @property
    def schedule(self) -> keras.optimizers.schedules.LearningRateSchedule:
        """The learning rate, made when the engine uses it first."""

    def make_model(self) -> Transformer:
        """Makes a model with initial weights from the seed."""

    def make_optimizer(
        self, model: Transformer
    ) -> keras.optimizers.Optimizer: ...

    def step_options(self, model: Transformer) -> StepOptions:
        """Returns the options of a model's updates."""


class Engine(typing.Protocol):
    """A model and its optimizer on devices."""

    model: Transformer  # the model that is trained
    # Whether `model` itself may be validated; if not, a copy.
    can_validate: bool
    optimizer: keras.optimizers.Optimizer
    # Slices of its rows that a replica computes at the same time.
    num_slices: int
    # Programs that XLA compiles for the batches; 0 without XLA.
    num_programs: int

    def try_batch(self, shape: Shape) -> float:
        """Makes a step with a full batch of a shape, and undoes it.

        Returns its seconds, without compilation. Raises `OutOfMemoryError` if
        the batch does not fit.
        """

    def batches(
        self, start: int, start_epoch: int, end_step: int
    ) -> Iterator[Batch]:
        """Yields this worker's batches on its devices, for `make_steps`.

        The first one, and the one to stop before, are counted from the
        beginning of `start_epoch`; epochs from 0.
        """

    def make_steps(self, batch: Batch) -> Steps:
        """Begins the updates for an element of `batches`; does not wait."""

    def begin(self) -> None:
        """Readies the first step; called once, after weights are restored."""

    def variables(self) -> Groups:
        """Returns the groups of variables that a checkpoint saves.

        `weights` are by name; with `lora_rank` they are the adapters alone;
        with a moving average they are the averages, and `trained` has the
        weights that are trained. `optimizer`, and `seeds` of dropout, are
        lists. A variable has `numpy()` and `assign(array)`.
        """

    def synchronize(self) -> None:
        """Brings `variables` up to date; every worker calls it."""

    def make_loss_sums(self, model: Transformer) -> LossSums:
        """Makes a function that measures a model on a batch, without dropout.

        It returns the sums of smoothed loss, loss and tokens, float64 `[3]`.
        """

    def first_not_finite(self) -> str | None:
        """Finds a variable that is not finite; returns its path, or None."""

    def learning_rate(self) -> float:
        """Returns the learning rate of the last update."""

    def set_elapsed(self, share: float) -> None:
        """Tells a schedule with a clock the share of the time that is over."""
