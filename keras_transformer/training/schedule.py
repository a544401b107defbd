"""The learning rate and the optimizer of section 5.3, and other schedules."""

import math
import typing

import keras
from keras import ops

from keras_transformer.base.refusals import expect
from keras_transformer.config import PAPER_BETA_2, PAPER_SCALE
from keras_transformer.kernels.adam import FusedAdam


class _Schedule(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule that stores its constructor's arguments as attributes."""

    arguments: tuple[str, ...]

    def get_config(self) -> dict[str, typing.Any]:
        return {name: getattr(self, name) for name in self.arguments}


@keras.saving.register_keras_serializable("keras_transformer")
class NoamSchedule(_Schedule):
    """Linear warm-up, then inverse square root decay (eq. 3).

    lr = scale * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5)

    The paper counts steps from 1 and Keras from 0, so the formula's step is
    Keras' step + 1. The peak is at the formula's step `warmup_steps`.

    Args:
        d_model: Width of the model.
        warmup_steps: Updates until the peak.
        scale: Factor of the learning rate.

    Raises:
        ValueError: An argument is not positive.

    >>> round(float(NoamSchedule(d_model=512, warmup_steps=4000)(3999)), 7)
    0.0006988
    """

    arguments = ("d_model", "warmup_steps", "scale")

    def __init__(
        self, d_model: int, warmup_steps: int, scale: float = PAPER_SCALE
    ):
        super().__init__()
        _check_positive(d_model=d_model, warmup_steps=warmup_steps, scale=scale)
        self.d_model = d_model
        self.warmup_steps = warmup_steps
        self.scale = scale

    def __call__(self, step: typing.Any) -> typing.Any:
        step = ops.cast(step, "float32") + 1.0
        warmup = step * self.warmup_steps**-1.5
        decay = ops.rsqrt(step)
        return self.scale * self.d_model**-0.5 * ops.minimum(warmup, decay)


@keras.saving.register_keras_serializable("keras_transformer")
class ConstantSchedule(_Schedule):
    """Linear warm-up, if any, then a constant learning rate.

    Args:
        learning_rate: The learning rate after warm-up.
        warmup_steps: Updates until it is reached; 0 means no warm-up.

    Raises:
        ValueError: `learning_rate` is not positive, or `warmup_steps` is
            negative.

    >>> schedule = ConstantSchedule(0.5, warmup_steps=2)
    >>> [float(schedule(step)) for step in range(4)]
    [0.25, 0.5, 0.5, 0.5]
    """

    arguments = ("learning_rate", "warmup_steps")

    def __init__(self, learning_rate: float, warmup_steps: int):
        super().__init__()
        _check_positive(learning_rate=learning_rate)
        _check_warmup(warmup_steps)
        self.learning_rate = learning_rate
        self.warmup_steps = warmup_steps

    def __call__(self, step: typing.Any) -> typing.Any:
        return self.learning_rate * _warmup(step, self.warmup_steps)


class _DecayingSchedule(_Schedule):
    """Linear warm-up, then decay to 0 at the end of a known budget.

    lr = learning_rate * min(1, step / warmup_steps) * decay(done)
    done = max((step - 1 - warmup_steps) / (total_steps - warmup_steps),
               elapsed)

    The formula's step is Keras' step + 1. The learning rate is 0 only after the
    last update.
    """

    arguments = ("learning_rate", "warmup_steps", "total_steps", "timed")

    def __init__(
        self,
        learning_rate: float,
        warmup_steps: int,
        total_steps: int,
        timed: bool = False,
    ):
        super().__init__()
        _check_positive(learning_rate=learning_rate)
        _check_warmup(warmup_steps)
        expect(
            total_steps > warmup_steps,
            "total_steps above warmup_steps",
            f"{total_steps=}, {warmup_steps=}",
        )
        self.learning_rate = learning_rate
        self.warmup_steps = warmup_steps
        self.total_steps = total_steps
        self.timed = timed
        self.elapsed = None
        if timed:
            self.elapsed = keras.Variable(
                0.0,
                dtype="float32",
                trainable=False,
                name="elapsed",
                aggregation="only_first_replica",
            )

    def __call__(self, step: typing.Any) -> typing.Any:
        past = ops.cast(step, "float32") - self.warmup_steps
        done = past / (self.total_steps - self.warmup_steps)
        if self.elapsed is not None:
            done = ops.maximum(done, self.elapsed)
        decay = self._decay(ops.clip(done, 0.0, 1.0))
        return self.learning_rate * _warmup(step, self.warmup_steps) * decay

    def _decay(self, done):
        """Computes the decay for the share of the budget used, in [0, 1]."""
        raise NotImplementedError


@keras.saving.register_keras_serializable("keras_transformer")
class LinearSchedule(_DecayingSchedule):
    """Linear warm-up, then linear decay to 0 at the end of a known budget.

    Args:
        learning_rate: The peak, at step `warmup_steps` (counted from 1).
        warmup_steps: Updates until the peak; 0 means no warm-up.
        total_steps: Updates until the learning rate is 0.
        timed: Whether a clock may end the budget earlier. The schedule then has
            a variable `elapsed`, which the training sets to the share of the
            time that has passed. The larger of the two shares is used.

    Raises:
        ValueError: `learning_rate` is not positive, or `warmup_steps` is
            negative or not below `total_steps`.

    >>> schedule = LinearSchedule(1.0, warmup_steps=0, total_steps=4)
    >>> [float(schedule(step)) for step in range(5)]
    [1.0, 0.75, 0.5, 0.25, 0.0]
    """

    def _decay(self, done):
        return 1.0 - done


@keras.saving.register_keras_serializable("keras_transformer")
class CosineSchedule(_DecayingSchedule):
    """Linear warm-up, then half a cosine to 0 at the end of a known budget.

    Args, Raises: As in `LinearSchedule`.

    >>> schedule = CosineSchedule(1.0, warmup_steps=0, total_steps=2)
    >>> [round(float(schedule(step)), 6) for step in range(3)]
    [1.0, 0.5, 0.0]
    """

    def _decay(self, done):
        return 0.5 * (1.0 + ops.cos(math.pi * done))


def _warmup(step, warmup_steps):
    """Computes the warm-up factor min(1, (step + 1) / max(warmup_steps, 1))."""
    step = ops.cast(step, "float32") + 1.0
    return ops.minimum(step / max(warmup_steps, 1), 1.0)


def _check_positive(**values):
    for name, value in values.items():
        expect(value > 0, "a positive number", f"{name}={value}")


def _check_warmup(warmup_steps):
    expect(warmup_steps >= 0, "a number of at least 0", f"{warmup_steps=}")


def paper_adam(
    d_model: int,
    warmup_steps: int,
    scale: float = PAPER_SCALE,
    beta_2: float = PAPER_BETA_2,
) -> keras.optimizers.Adam:
    """Makes Adam with beta_1 0.9, beta_2 0.98, epsilon 1e-9, eq. 3 (sec. 5.3).

    Differs from the paper: Keras' Adam divides by sqrt(v) + epsilon before bias
    correction, the "epsilon hat" of Kingma and Ba (2015, end of sec. 2). Other
    systems divide by sqrt(v / (1 - beta_2^t)) + epsilon. With epsilon 1e-9,
    updates differ only for gradients below about 1e-6.

    Args:
        d_model: Width of the model.
        warmup_steps: Updates until the learning rate's peak.
        scale: Factor of the learning rate.
        beta_2: Decay of the mean of squared gradients. Other systems train
            this model with 0.997 or 0.998.

    Returns:
        A `FusedAdam`, which uses one operation per variable.
    """
    return scheduled_adam(NoamSchedule(d_model, warmup_steps, scale), beta_2)


def scheduled_adam(
    schedule: keras.optimizers.schedules.LearningRateSchedule,
    beta_2: float = PAPER_BETA_2,
    weight_decay: float | None = None,
) -> keras.optimizers.Adam:
    """Makes `paper_adam` with another schedule, such as one for fine-tuning.

    Args:
        schedule: The learning rate of each step.
        beta_2: As in `paper_adam`.
        weight_decay: The decoupled weight decay of AdamW (Loshchilov and Hutter
            2019): each update also subtracts learning rate * `weight_decay` *
            weight. None means no decay. The optimizer's
            `exclude_from_weight_decay` excludes weights.

    Returns:
        A `FusedAdam`.
    """
    return FusedAdam(
        schedule,
        beta_1=0.9,
        beta_2=beta_2,
        epsilon=1e-9,
        weight_decay=weight_decay,
    )
