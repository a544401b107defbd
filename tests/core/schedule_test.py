"""The warm-up schedule and the optimizer of section 5.3."""

import keras
import numpy as np
import pytest

import keras_transformer as kt


@pytest.mark.parametrize("scale", [1.0, 2.5])
def test_schedule_is_equation_3_with_steps_from_one(scale):
    schedule = kt.NoamSchedule(d_model=512, warmup_steps=40, scale=scale)
    steps = np.array([*range(1, 200), 2**31])
    expected = scale * 512**-0.5 * np.minimum(steps**-0.5, steps * 40**-1.5)
    found = [schedule(keras.ops.array(step - 1, "int64")) for step in steps]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(schedule(0), expected[0], rtol=1e-5)


def test_optimizer_has_the_papers_constants():
    optimizer = kt.paper_adam(512, warmup_steps=4000)
    assert (optimizer.beta_1, optimizer.beta_2) == (0.9, 0.98)
    assert optimizer.epsilon == 1e-9
    np.testing.assert_allclose(
        optimizer.learning_rate, 512**-0.5 * 4000**-1.5, rtol=1e-5
    )


def test_epsilon_is_epsilon_hat():
    """It is added before the correction of the bias, as documented."""
    optimizer = kt.paper_adam(512, warmup_steps=4000, scale=1e6)
    weight = keras.Variable([0.0, 0.0])
    gradient = np.array([1.0, 3e-9])
    optimizer.apply_gradients([(keras.ops.array(gradient, "float32"), weight)])
    rate = 1e6 * 512**-0.5 * 4000**-1.5
    size = np.sqrt(1 - 0.98) * gradient  # sqrt(v)
    expected = -rate * np.sqrt(1 - 0.98) * gradient / (size + 1e-9)
    np.testing.assert_allclose(weight, expected, rtol=1e-4)


# Schedules for a known budget


def rates(schedule, steps):
    return np.asarray(schedule(np.arange(steps)))


@pytest.mark.parametrize("warmup_steps", [0, 1, 8])
def test_a_constant_rate_after_warmup(warmup_steps):
    found = rates(kt.ConstantSchedule(0.3, warmup_steps), 20)
    rising = (np.arange(20) + 1) / max(warmup_steps, 1)
    np.testing.assert_allclose(found, 0.3 * np.minimum(rising, 1), rtol=1e-6)


@pytest.mark.parametrize("warmup_steps", [0, 8])
@pytest.mark.parametrize(
    "kind, decay",
    [
        (kt.LinearSchedule, lambda done: 1 - done),
        (kt.CosineSchedule, lambda done: (1 + np.cos(np.pi * done)) / 2),
    ],
)
def test_decay_to_zero_after_the_last_step(kind, decay, warmup_steps):
    found = rates(kind(0.3, warmup_steps, total_steps=20), 25)
    step = np.arange(25)
    done = np.clip((step - warmup_steps) / (20 - warmup_steps), 0, 1)
    rising = np.minimum((step + 1) / max(warmup_steps, 1), 1)
    np.testing.assert_allclose(
        found, 0.3 * rising * decay(done), rtol=1e-5, atol=1e-8
    )
    assert found[19] > 0 and found[20] == 0  # updates are counted from 0
    assert found.max() == found[max(warmup_steps - 1, 0)]


@pytest.mark.parametrize("kind", [kt.LinearSchedule, kt.CosineSchedule])
def test_a_clock_ends_the_budget_earlier(kind):
    """The greater share of steps and time counts."""
    schedule = kind(0.3, 0, total_steps=20, timed=True)
    by_steps = kind(0.3, 0, total_steps=20)
    np.testing.assert_allclose(rates(schedule, 20), rates(by_steps, 20))
    schedule.elapsed.assign(0.5)
    np.testing.assert_allclose(
        rates(schedule, 20), rates(by_steps, 20)[[10] * 10 + [*range(10, 20)]]
    )
    schedule.elapsed.assign(1.25)
    assert not rates(schedule, 20).any()


@pytest.mark.parametrize(
    "schedule",
    [
        kt.NoamSchedule(64, 100, scale=2.5),
        kt.ConstantSchedule(0.3, warmup_steps=3),
        kt.LinearSchedule(0.3, warmup_steps=3, total_steps=20, timed=True),
        kt.CosineSchedule(0.3, warmup_steps=3, total_steps=20),
    ],
)
def test_every_schedule_can_be_saved(schedule):
    copy = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(schedule)
    )
    assert type(copy) is type(schedule)
    assert copy.get_config() == schedule.get_config()
    assert float(copy(7)) == float(schedule(7))


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: kt.NoamSchedule(0, 10), "positive"),
        (lambda: kt.NoamSchedule(8, 0), "positive"),
        (lambda: kt.NoamSchedule(8, 10, -1.0), "positive"),
        (lambda: kt.ConstantSchedule(0.0, 3), "learning_rate=0.0"),
        (lambda: kt.ConstantSchedule(0.1, -1), "warmup_steps=-1"),
        (lambda: kt.LinearSchedule(0.1, 5, 5), "total_steps=5, warmup_steps=5"),
    ],
)
def test_wrong_arguments_of_schedules(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_weight_decay_is_decoupled():
    """AdamW: a share of the weight is taken away, whatever the gradient."""
    optimizer = kt.scheduled_adam(kt.ConstantSchedule(0.1, 0), weight_decay=0.5)
    weight, kept = keras.Variable([[2.0]]), keras.Variable([2.0])
    optimizer.exclude_from_weight_decay([kept])
    optimizer.build([weight, kept])
    zeros = [keras.ops.zeros((1, 1)), keras.ops.zeros((1,))]
    for _ in range(2):
        optimizer.apply_gradients(zip(zeros, [weight, kept], strict=True))
    np.testing.assert_allclose(weight, [[2 * (1 - 0.1 * 0.5) ** 2]])
    np.testing.assert_allclose(kept, [2.0])
