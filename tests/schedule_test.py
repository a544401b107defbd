"""The warm-up schedule and the optimizer of section 5.3."""

import keras
import numpy as np
import pytest

import keras_transformer as kt


def test_schedule_is_equation_3_with_steps_from_one():
    schedule = kt.NoamSchedule(d_model=512, warmup_steps=40)
    for step in range(1, 200):
        expected = 512**-0.5 * min(step**-0.5, step * 40**-1.5)
        np.testing.assert_allclose(schedule(step - 1), expected, rtol=1e-5)


def test_peak_is_at_warmup_steps():
    rates = [float(kt.NoamSchedule(512, 4000)(i)) for i in range(3990, 4010)]
    assert np.argmax(rates) + 3990 + 1 == 4000
    np.testing.assert_allclose(max(rates), 6.99e-4, rtol=1e-3)


def test_schedule_can_be_saved():
    schedule = kt.NoamSchedule(64, 100, scale=2.5)
    config = keras.optimizers.schedules.serialize(schedule)
    copy = keras.optimizers.schedules.deserialize(config)
    assert copy.get_config() == schedule.get_config()
    np.testing.assert_allclose(copy(7), schedule(7))
    np.testing.assert_allclose(schedule(7), 2.5 * kt.NoamSchedule(64, 100)(7))


def test_optimizer_has_the_papers_constants():
    optimizer = kt.paper_adam(512, warmup_steps=4000)
    assert (optimizer.beta_1, optimizer.beta_2) == (0.9, 0.98)
    assert optimizer.epsilon == 1e-9
    np.testing.assert_allclose(
        optimizer.learning_rate, 512**-0.5 * 4000**-1.5, rtol=1e-5
    )


def test_epsilon_is_epsilon_hat():
    """As documented: added before the correction of the bias."""
    optimizer = kt.paper_adam(512, warmup_steps=4000, scale=1e6)
    weight = keras.Variable([0.0, 0.0])
    gradient = np.array([1.0, 3e-9])
    optimizer.apply_gradients([(keras.ops.array(gradient, "float32"), weight)])
    rate = 1e6 * 512**-0.5 * 4000**-1.5
    size = np.sqrt(1 - 0.98) * gradient  # sqrt(v)
    expected = -rate * np.sqrt(1 - 0.98) * gradient / (size + 1e-9)
    np.testing.assert_allclose(weight, expected, rtol=1e-4)


@pytest.mark.parametrize("step", [0, 2**31])
def test_schedule_takes_any_step(step):
    rate = kt.NoamSchedule(512, 4000)(keras.ops.array(step, "int64"))
    expected = 512**-0.5 * min((step + 1) ** -0.5, (step + 1) * 4000**-1.5)
    np.testing.assert_allclose(rate, expected, rtol=1e-5)


@pytest.mark.parametrize("arguments", [(0, 10), (8, 0), (8, 10, -1.0)])
def test_arguments_must_be_positive(arguments):
    with pytest.raises(ValueError, match="positive"):
        kt.NoamSchedule(*arguments)
