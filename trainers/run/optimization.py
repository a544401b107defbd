"""The learning rate and the optimizer of a recipe."""

import keras

from keras_transformer.config import TransformerConfig
from keras_transformer.training.schedule import (
    ConstantSchedule,
    CosineSchedule,
    LinearSchedule,
    NoamSchedule,
    scheduled_adam,
)
from trainers.run.config import TrainingConfig

DECAYING = {"linear": LinearSchedule, "cosine": CosineSchedule}


def make_schedule(
    model: TransformerConfig, training: TrainingConfig
) -> keras.optimizers.schedules.LearningRateSchedule:
    """The learning rate by step; and by time, if the schedule has a clock.

    `LinearSchedule` and `CosineSchedule` have one if `train_minutes` limits the
    run.
    """
    warmup_steps = training.updates_to_peak
    peak = training.learning_rate
    if peak is None:  # of noam, and of no other: see `TrainingConfig`
        return NoamSchedule(
            model.d_model, warmup_steps, training.learning_rate_scale
        )
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
    """A new optimizer; with a loss scale if half precision needs one.

    Args:
        schedule: What `make_schedule` returned.
        training: The recipe.
        model: The model to be trained, built.
    """
    optimizer = scheduled_adam(
        schedule, training.adam_beta_2, training.weight_decay or None
    )
    if training.weight_decay:
        optimizer.exclude_from_weight_decay(
            [v for v in model.trainable_variables if len(v.shape) < 2]
        )
    if training.precision == "mixed_float16":
        return keras.optimizers.LossScaleOptimizer(optimizer)
    return optimizer
