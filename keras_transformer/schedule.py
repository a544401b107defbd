"""The learning rate and the optimizer of section 5.3."""

import typing

import keras
from keras import ops

from keras_transformer.config import PAPER_BETA_2, PAPER_SCALE
from keras_transformer.optimizer import FusedAdam


@keras.saving.register_keras_serializable("keras_transformer")
class NoamSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up, then decay with the square root of the step (eq. 3).

    lr = scale * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5)

    The paper counts steps from 1 and Keras from 0, so the formula's step is
    Keras' step + 1. The peak is at the formula's step `warmup_steps`.

    Args:
        d_model: Width of the model.
        warmup_steps: Updates until the peak.
        scale: Factor of the whole schedule.

    Raises:
        ValueError: An argument is not positive.

    >>> round(float(NoamSchedule(d_model=512, warmup_steps=4000)(3999)), 7)
    0.0006988
    """

    def __init__(
        self, d_model: int, warmup_steps: int, scale: float = PAPER_SCALE
    ):
        super().__init__()
        for name, value in (
            ("d_model", d_model),
            ("warmup_steps", warmup_steps),
            ("scale", scale),
        ):
            if value <= 0:
                raise ValueError(
                    f"{name} must be positive. Received: {name}={value}"
                )
        self.d_model = d_model
        self.warmup_steps = warmup_steps
        self.scale = scale

    def __call__(self, step: typing.Any) -> typing.Any:
        step = ops.cast(step, "float32") + 1.0
        warmup = step * self.warmup_steps**-1.5
        decay = ops.rsqrt(step)
        return self.scale * self.d_model**-0.5 * ops.minimum(warmup, decay)

    def get_config(self) -> dict[str, typing.Any]:
        return {
            "d_model": self.d_model,
            "warmup_steps": self.warmup_steps,
            "scale": self.scale,
        }


def paper_adam(
    d_model: int,
    warmup_steps: int,
    scale: float = PAPER_SCALE,
    beta_2: float = PAPER_BETA_2,
) -> keras.optimizers.Adam:
    """Adam with beta_1 0.9, beta_2 0.98, epsilon 1e-9 and eq. 3 (sec. 5.3).

    Differs from the paper: Keras' Adam divides by sqrt(v) + epsilon before the
    correction of the bias, the "epsilon hat" of Kingma and Ba (2015, end of
    sec. 2), other systems by sqrt(v / (1 - beta_2^t)) + epsilon. With epsilon
    1e-9 updates differ only for gradients below about 1e-6.

    Args:
        d_model: Width of the model.
        warmup_steps: Updates until the learning rate's peak.
        scale: Factor of the schedule.
        beta_2: Decay of the mean of squared gradients; other systems train
            this model with 0.997 or 0.998.

    Returns:
        A `keras.optimizers.Adam` that is one operation for each variable.
    """
    return FusedAdam(
        NoamSchedule(d_model, warmup_steps, scale),
        beta_1=0.9,
        beta_2=beta_2,
        epsilon=1e-9,
    )
