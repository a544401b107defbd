"""The learning rate and the optimizer of a recipe."""

import typing

import keras

from keras_transformer.config import TransformerConfig
from keras_transformer.training.schedule import (
    ConstantSchedule,
    CosineSchedule,
    LinearSchedule,
    NoamSchedule,
    scheduled_adam,
)
from trainers.run.training_config import TrainingConfig

LOSS_SCALE = {"float32": False, "mixed_bfloat16": False, "mixed_float16": True}
DECAYING = {"linear": LinearSchedule, "cosine": CosineSchedule}


def make_schedule(
    model: TransformerConfig, training: TrainingConfig
) -> keras.optimizers.schedules.LearningRateSchedule:
    """Makes the learning-rate schedule.

    With `train_minutes`, a `LinearSchedule` or `CosineSchedule` has a clock.
    """
    warmup_steps = training.updates_to_peak
    if training.schedule == "noam":
        return NoamSchedule(
            model.d_model, warmup_steps, training.learning_rate_scale
        )
    peak = typing.cast(float, training.learning_rate)  # see `TrainingConfig`
    if training.schedule == "constant":
        return ConstantSchedule(peak, warmup_steps)
    return DECAYING[training.schedule](
        peak,
        warmup_steps,
        training.train_steps,
        timed=training.train_minutes > 0,
    )


def make_optimizer(
    schedule: keras.optimizers.schedules.LearningRateSchedule,
    training: TrainingConfig,
    model: keras.Model,
) -> keras.optimizers.Optimizer:
    """Makes the optimizer of a built model.

    With mixed_float16, the optimizer scales the loss.
    """
    optimizer = scheduled_adam(
        schedule, training.adam_beta_2, training.weight_decay or None
    )
    if training.weight_decay:
        optimizer.exclude_from_weight_decay(
            [v for v in model.trainable_variables if len(v.shape) < 2]
        )
    if training.precision and LOSS_SCALE[training.precision]:
        return keras.optimizers.LossScaleOptimizer(optimizer)
    return optimizer
