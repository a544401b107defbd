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
from collections.abc import Iterator

import numpy as np

from keras_transformer.checkpoints import Groups
from keras_transformer.commands.flags import RunError

# The order of the totals of steps.
TOTALS = ("loss", "nll", "target_tokens", "source_tokens")


def check_device(device: str | None, kind: str, description: str) -> None:
    """Checks that the device that computes is of the wanted kind.

    Args:
        device: The wanted kind, "gpu", "tpu" or "cpu", or None.
        kind: The kind that computes.
        description: `Devices.description`.

    Raises:
        ValueError: It is of another kind.
    """
    if device not in (None, kind):
        raise ValueError(
            f"device={device} is not available. Received: {description}"
        )


class OutOfMemoryError(Exception):
    """The memory of a device is too small for a batch."""


class LostWorkerError(RunError):
    """Another worker is gone, and the run cannot continue without it."""


class Steps(typing.NamedTuple):
    """Updates that an engine has begun to compute.

    Attributes:
        num_steps: Number of updates.
        totals: float32 `[4]`, this worker's sums of `TOTALS` over the tokens of
            these updates, on the device: `numpy.asarray` waits for them.
    """

    num_steps: int
    totals: typing.Any


class Workers(abc.ABC):
    """The workers of a run, and their agreement.

    Attributes:
        size: Number of workers.
        is_chief: Whether this worker logs and writes.
        name: As in "worker 1 of 2".
    """

    size: int
    is_chief: bool
    name: str

    @abc.abstractmethod
    def all_reduce_sum(self, values: list[float]) -> list[float]:
        """Adds up numbers over the workers; all of them must call it.

        Args:
            values: List of floats, of the same length on every worker.

        Returns:
            List of floats, the same on each worker.
        """

    def any_of(self, flags: list[bool]) -> list[bool]:
        """Which flags any worker has raised; all of them must call it."""
        raised = self.all_reduce_sum([1.0 if flag else 0.0 for flag in flags])
        return [count > 0 for count in raised]

    def barrier(self) -> None:
        """Returns when every worker has called it."""
        self.all_reduce_sum([0.0])

    def part(self) -> None:
        """Disconnects from the other workers; every worker calls it."""
        self.barrier()  # a worker that leaves early would count as lost

    def lost_another(self, reason: str) -> LostWorkerError:
        """The error of a worker whose connection to another broke."""
        return LostWorkerError(
            f"{self.name} has lost another worker ({reason})."
            " Rerun the same command on every worker to resume from the"
            " last checkpoint"
        )

    @abc.abstractmethod
    def watch(self) -> contextlib.AbstractContextManager[None]:
        """Turns the network's errors about a lost worker into one line.

        Raises:
            LostWorkerError: In place of these errors.
        """


class Devices(typing.Protocol):
    """The devices of a run.

    Attributes:
        num_replicas: Replicas of the model, over all workers.
        num_searches: Batches of sentences that this worker best translates at
            the same time.
        workers: The `Workers`.
        description: The devices in one line, or why a GPU cannot be used.
        num_gpus: GPUs of this worker.
        precision: The fastest precision that trains as well as float32.
        framework: Name and version of the framework.
    """

    num_replicas: int
    num_searches: int
    workers: Workers
    description: str
    num_gpus: int
    precision: str
    framework: str

    def make_engine(self, experiment: typing.Any) -> "Engine":
        """An `Engine` that trains the model of an `Experiment`."""


class Engine(typing.Protocol):
    """A model and its optimizer on devices.

    Attributes:
        model: The `Transformer` that is trained.
        can_validate: Whether `model` itself may be validated; if not, a copy.
        optimizer: Its Keras optimizer.
        num_slices: Slices of its rows that a replica computes at the same time.
        num_programs: Programs that XLA compiles for the batches; 0 without XLA.
    """

    model: typing.Any
    can_validate: bool
    optimizer: typing.Any
    num_slices: int
    num_programs: int

    def try_batch(self, shape: tuple[int, int]) -> float:
        """Makes a step with a full batch and undoes it.

        Args:
            shape: Rows and tokens of a row.

        Returns:
            Seconds of such a step, without compilation.

        Raises:
            OutOfMemoryError: The batch does not fit.
        """

    def batches(
        self, start: int, start_epoch: int, end_step: int
    ) -> Iterator[typing.Any]:
        """The batches of this worker on its devices, for `make_steps`.

        Args:
            start: First batch, counted from the beginning of `start_epoch`.
            start_epoch: The epoch, counted from 0.
            end_step: Batch to stop before, counted in the same way.
        """

    def make_steps(self, batch: typing.Any) -> Steps:
        """Updates the weights by an element of `batches`; does not wait."""

    def begin(self) -> None:
        """To be called once, between restoring weights and the first step."""

    def variables(self) -> Groups:
        """The groups of variables that a checkpoint saves and restores.

        `weights` by name; with a moving average these are the averages, and
        `trained` has the weights that are trained. `optimizer` and `seeds`, of
        dropout, are lists. Each variable has `numpy()` and `assign(array)`.
        """

    def synchronize(self) -> None:
        """Brings `variables` up to date; every worker calls it."""

    def make_loss_sums(
        self, model: typing.Any
    ) -> typing.Callable[..., np.ndarray]:
        """A function that measures a model on a batch, without dropout.

        Returns:
            Function of inputs and labels; it returns the sums of the smoothed
            loss, of the loss and of the tokens, float64 `[3]`.
        """

    def first_not_finite(self) -> str | None:
        """The path of a variable that is not finite, or None."""

    def learning_rate(self) -> float:
        """The learning rate of the last update."""

    def set_elapsed(self, share: float) -> None:
        """Tells a schedule with a clock which share of the time has passed."""
