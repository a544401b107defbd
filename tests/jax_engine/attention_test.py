"""JAX's own attention, which a step on a GPU uses, against ours."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from keras import ops
from step_test import make_batch, make_step

from keras_transformer.kernels import attention
from keras_transformer.kernels.attention import attend, fused_attention
from keras_transformer.layers import recorded_weights
from keras_transformer.layers.attention import (
    MultiHeadAttention,
    scaled_dot_product_attention,
)
from keras_transformer.layers.masking import causal_mask, padding_mask
from keras_transformer.training import jax_step
from keras_transformer.training.schedule import scheduled_adam

IDS = np.array([[5, 6, 7, 2, 0, 0], [0, 0, 0, 0, 0, 0]])  # of nothing, too


@pytest.mark.parametrize("mask", [padding_mask(IDS), causal_mask(6), None])
def test_values_and_gradients_are_ours_in_float64(mask):
    random = np.random.default_rng(1)
    arrays = random.normal(size=(4, 2, 3, 6, 8)).astype("float32")

    def gradients(function, arrays):
        *inputs, weights = arrays
        found, pull_back = jax.vjp(lambda *x: function(*x, mask), *inputs)
        return found, *pull_back(weights)

    with jax.enable_x64(True):
        expected = gradients(
            scaled_dot_product_attention, jnp.asarray(arrays, "float64")
        )
        assert expected[0].dtype == "float64"
    with fused_attention("xla"):
        found = gradients(attend, jnp.asarray(arrays))
    for one, exact in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, exact, atol=2e-6)


def is_used(monkeypatch, layer, query, mask, implementation="xla"):
    """Tells whether a layer attends by JAX's own function."""
    used = []
    kernel = jax.nn.dot_product_attention

    def spy(*arguments, **options):
        used.append(options["implementation"])
        return kernel(*arguments, **options)

    monkeypatch.setattr(attention.jax.nn, "dot_product_attention", spy)
    with fused_attention(implementation):
        layer(query, query, mask)
    assert set(used) <= {implementation}
    return bool(used)


def test_what_cudnn_lacks_is_computed_as_before(monkeypatch):
    def layer(**options):
        fields = {"d_key": 8, "d_value": 8, "dtype": "bfloat16", **options}
        return MultiHeadAttention(num_heads=2, **fields)

    query, mask = ops.ones((2, 6, 8)), padding_mask(IDS)
    assert is_used(monkeypatch, layer(), query, mask)
    assert not is_used(monkeypatch, layer(), query, mask, None)
    for other in ({"d_value": 16}, {"dropout": 0.1}, {"dtype": "float32"}):
        assert not is_used(monkeypatch, layer(**other), query, mask)
    assert not is_used(monkeypatch, layer(), query[:, :5], mask[..., :5])
    with recorded_weights() as record:
        assert not is_used(monkeypatch, layer(), query, mask)
    assert len(record) == 1


def test_a_step_uses_it_where_the_devices_have_it(monkeypatch):
    """The loss in bfloat16 is the same up to rounding; a CPU has ours."""
    inputs, labels = make_batch(1)
    batch = {name: ids[:, :6] for name, ids in inputs.items()}, labels[:, :6]
    losses = []
    for implementation in (None, "xla"):
        monkeypatch.setattr(
            jax_step, "attention_of", lambda mesh, value=implementation: value
        )
        options = {"dtype": "mixed_bfloat16", "d_key": 8, "d_value": 8}
        _, step, state = make_step(scheduled_adam(0.01), model_options=options)
        state, totals = step(state, *step.place_rows(*batch))
        losses.append(float(totals[0]))
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=2e-3)


def test_attention_that_does_not_run_is_told_and_left(caplog):
    """A CPU has XLA's, and no cuDNN."""
    [device, *_] = jax.local_devices()
    assert jax_step.runs_attention(device, "xla")
    with caplog.at_level("WARNING"):
        assert not jax_step.runs_attention(device, "cudnn")
    assert "attention is computed without cuDNN" in caplog.text
