"""The interface between the training loop and the devices that compute.

The loop counts steps, reports, validates, saves and ends. An engine holds the
model and the optimizer on its devices and makes the updates. The loop imports
no framework; `tensorflow_engine.py` is the engine of TensorFlow.
"""

import typing
from collections.abc import Iterator

import numpy as np

# The order of the totals of steps.
TOTALS = ("loss", "nll", "target_tokens", "source_tokens")


class OutOfMemoryError(Exception):
    """The memory of a device is too small for a batch."""


class Steps(typing.NamedTuple):
    """Updates that an engine has begun to compute.

    Attributes:
        num_steps: Number of updates.
        totals: float32 `[4]`, this worker's sums of `TOTALS` over the tokens of
            these updates, on the device: `numpy.asarray` waits for them.
    """

    num_steps: int
    totals: typing.Any


class Engine(typing.Protocol):
    """A model and its optimizer on devices.

    Attributes:
        model: The `Transformer` that is trained.
        optimizer: Its Keras optimizer.
        num_slices: Parts of a batch that a replica computes at the same time.
        num_programs: Programs that XLA compiles for the batches; 0 without XLA.
    """

    model: typing.Any
    optimizer: typing.Any
    num_slices: int
    num_programs: int

    def try_batch(self, shape: tuple[int, int]) -> float:
        """Makes a step with a full batch and takes it back.

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
        """Batches of this worker on its devices, one element for `make_steps`.

        Args:
            start: First batch, counted from the beginning of `start_epoch`.
            start_epoch: Epoch, from 0.
            end_step: Batch to stop before, counted in the same way.
        """

    def make_steps(self, batch: typing.Any) -> Steps:
        """Updates the weights by an element of `batches`; does not wait."""

    def begin(self) -> None:
        """To be called once, between restoring weights and the first step."""

    def begin_with(self, workdir: str, checkpoint: str | None) -> str:
        """Sets the weights to those of another work directory.

        Returns:
            The path of the checkpoint that they are from.
        """

    def make_checkpoint(
        self, workdir: typing.Any, progress: typing.Any, keep: int
    ) -> typing.Any:
        """The `TrainingCheckpoint` of weights, optimizer, seeds, progress."""

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
