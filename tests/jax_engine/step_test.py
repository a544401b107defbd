"""The step of JAX on two devices, against its definition in NumPy."""

import jax
import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer.training.jax_step import AXIS, JaxStep
from keras_transformer.training.schedule import LinearSchedule, scheduled_adam
from keras_transformer.training.token_losses import TokenLosses
from keras_transformer.training.update import StepOptions

SIZES = dict(vocab_size=16, d_model=8, d_ff=16, num_heads=2, num_layers=1)
SMOOTHING = 0.1
RATE = 0.01


def make_batch(seed):
    """Makes rows of 2 to 9 tokens, of which devices get different numbers."""
    random = np.random.default_rng(seed)
    labels = random.integers(4, 16, (6, 9)).astype("int32")
    labels[np.arange(9) >= random.integers(2, 10, (6, 1))] = 0
    sources = random.integers(4, 16, (6, 7)).astype("int32")
    targets = np.pad(labels, ((0, 0), (1, 0)), constant_values=1)[:, :-1]
    return {"source_ids": sources, "target_ids": targets}, labels


def make_step(
    optimizer,
    num_devices=2,
    dropout=0.0,
    shard_parameters=False,
    clock=None,
    model_options=(),
    **options,
):
    """Makes a model, its step, and its state."""
    keras.utils.set_random_seed(5)
    model = kt.Transformer(**SIZES, dropout=dropout, **dict(model_options))
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:num_devices]), (AXIS,))
    step = JaxStep(
        model,
        optimizer,
        mesh,
        StepOptions(SMOOTHING, **options),
        shard_parameters,
        clock,
    )
    return model, step, step.initial_state()


def values_of(step, state, field):
    """Returns the values of variables in a state."""
    number = len(getattr(step.variables, field))
    return [np.array(step.value(state, field, i)) for i in range(number)]


def make_gradients(model):
    """Makes the gradients of the batch's mean token loss, by the logits."""
    loss = kt.SmoothedCrossEntropy(SMOOTHING)

    @jax.jit
    @jax.value_and_grad
    def mean_loss(weights, inputs, labels):
        pairs = zip(model.trainable_variables, weights, strict=True)
        with keras.StatelessScope(list(pairs)):
            return loss(labels, model(inputs))

    def gradients(weights, inputs, labels):
        mean, gradients = mean_loss(weights, inputs, labels)
        return float(mean), [np.asarray(g, np.float64) for g in gradients]

    return gradients


def test_clipped_adam_and_the_moving_average():
    """Three updates in a call and one alone, by the papers' formulas."""
    clip_norm, decay = 0.5, 0.9
    optimizer = scheduled_adam(RATE, 0.98)
    model, step, state = make_step(
        optimizer,
        clip_norm=clip_norm,
        ema_decay=decay,
        shard_parameters=True,
    )
    weights = [w.astype(float) for w in values_of(step, state, "trained")]
    averages = [w.copy() for w in weights]
    moments = [(np.zeros(w.shape), np.zeros(w.shape)) for w in weights]
    batches = [make_batch(seed) for seed in range(4)]
    gradients_of = make_gradients(model)
    sums, were_clipped = [], []
    for t, (inputs, labels) in enumerate(batches, 1):
        mean, gradients = gradients_of(
            [w.astype("float32") for w in weights], inputs, labels
        )
        sums.append(mean * np.count_nonzero(labels))
        norm = np.sqrt(sum(np.sum(g**2) for g in gradients))
        were_clipped.append(norm > clip_norm)
        ema = min(decay, (1 + t) / (10 + t))
        for i, g in enumerate(gradients):
            g *= min(1.0, clip_norm / norm)
            m, v = moments[i]
            m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g**2
            moments[i] = m, v
            scale = RATE * np.sqrt(1 - 0.98**t) / (1 - 0.9**t)
            weights[i] -= scale * m / (np.sqrt(v) + optimizer.epsilon)
            averages[i] += (1 - ema) * (weights[i] - averages[i])
    assert any(were_clipped)
    together = jax.tree.map(lambda *rows: np.stack(rows), *batches[:3])
    state, first = step(state, *step.place_rows(*together))
    state, last = step(state, *step.place_rows(*batches[3]))
    totals = np.asarray(first) + np.asarray(last)
    assert totals[0] == pytest.approx(sum(sums), rel=1e-5)
    assert totals[2] == sum(np.count_nonzero(labels) for _, labels in batches)
    assert totals[3] == sum(
        np.count_nonzero(inputs["source_ids"]) for inputs, _ in batches
    )
    for field, expected in (("trained", weights), ("averages", averages)):
        found = values_of(step, state, field)
        for array, value, (m, _) in zip(found, expected, moments, strict=True):
            # Adam also moves by gradients that are only rounding errors.
            real = np.abs(m) > 1e-6
            np.testing.assert_allclose(
                array[real], value[real], rtol=1e-3, atol=1e-5
            )


def test_programs_that_are_compiled_in_advance():
    """Batches of their shapes use them, with the same results."""
    found = []
    for in_advance in (False, True):
        _, step, state = make_step(scheduled_adam(RATE, 0.98), dropout=0.3)
        batches = [step.place_rows(*make_batch(seed)) for seed in range(3)]
        inputs, labels = batches[2]
        batches[2] = (
            {**inputs, "source_ids": inputs["source_ids"][:, :6]},
            labels,
        )
        if in_advance:
            step.compile(state, batches[1:], num_threads=2)
        for batch in batches:
            state, totals = step(state, *batch)
        assert step._compiled._cache_size() == (0 if in_advance else 2)
        found.append(jax.tree.map(np.asarray, (state, totals)))
    jax.tree.map(np.testing.assert_array_equal, *found)


def test_a_loss_that_a_layer_adds_is_refused(monkeypatch):
    model, step, state = make_step(scheduled_adam(RATE))
    encoder = model.encoder
    call = encoder.call

    def adding(*args, **kwargs):
        encoder.add_loss(keras.ops.convert_to_tensor(1.0))
        return call(*args, **kwargs)

    monkeypatch.setattr(encoder, "call", adding)
    with pytest.raises(ValueError, match="add_loss.*Received: 1 added loss"):
        step(state, *step.place_rows(*make_batch(1)))


def test_what_the_compiler_raises_is_raised_by_the_call(monkeypatch):
    _, step, state = make_step(scheduled_adam(RATE))
    batch = step.place_rows(*make_batch(1))

    class Lowered:
        def compile(self):
            raise MemoryError("too large")

    with monkeypatch.context() as patched:
        patched.setattr(step, "lower", lambda *arguments: Lowered())
        step.compile(state, [batch], num_threads=1)
    with pytest.raises(MemoryError, match="too large"):
        step(state, *batch)


def test_a_schedule_with_a_clock():
    """The rate follows the time that the caller tells, not the steps."""
    schedule = LinearSchedule(0.5, 1, 1000, timed=True)
    _, step, _ = make_step(scheduled_adam(schedule), clock=schedule.elapsed)
    batch = step.place_rows(*make_batch(1))
    for elapsed in (0.0, 0.25, 0.75):
        state, _ = step(step.initial_state(), *batch, elapsed)
        pairs = zip(
            values_of(step, step.initial_state(), "trained"),
            values_of(step, state, "trained"),
            strict=True,
        )
        # The first step of Adam has the size of the rate.
        largest = max(np.abs(new - old).max() for old, new in pairs)
        assert largest == pytest.approx(0.5 * (1 - elapsed), rel=0.01)


def test_r_drop_and_dropout_are_those_of_the_layers():
    """The loss of a step is that of `TokenLosses` with the same seeds."""
    model, step, state = make_step(
        scheduled_adam(RATE), 1, dropout=0.3, r_drop=2.0
    )
    inputs, labels = make_batch(2)

    @jax.jit
    def losses_of(seeds):
        """Returns losses with R-Drop, and with hardly any."""
        found = []
        for alpha in (2.0, 1e-9):
            pairs = zip(step.variables.seeds, seeds, strict=True)
            with keras.StatelessScope(list(pairs)):
                losses, _ = TokenLosses(
                    model, StepOptions(SMOOTHING, r_drop=alpha)
                )(inputs, labels, training=True)
            found.append(losses)
        return found

    expected, without = (
        float(np.sum(np.asarray(losses)[labels != 0]))
        for losses in losses_of(state.seeds)
    )
    assert expected > without * 1.01
    seeds = np.asarray(state.seeds)
    state, totals = step(state, *step.place_rows(inputs, labels))
    assert float(totals[0]) == pytest.approx(expected, rel=1e-5)
    assert (seeds != np.asarray(state.seeds)).any(axis=1).all()
