"""The loss of a batch in bfloat16: its values and its memory."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import references

import keras_transformer as kt
from keras_transformer.kernels.projected_loss import (
    projected_cross_entropy,
    projected_r_drop,
)

ROWS, LENGTH, WIDTH, VOCAB = 3, 7, 16, 410
SMOOTHING = 0.1


def make_case():
    """Makes states and a matrix that bfloat16 holds exactly, and labels."""
    random = np.random.default_rng(1)
    x = jnp.asarray(random.normal(size=(ROWS, LENGTH, WIDTH)), "bfloat16")
    matrix = jnp.asarray(random.normal(size=(VOCAB, WIDTH)), "bfloat16")
    labels = random.integers(0, VOCAB, (ROWS, LENGTH))
    return labels, x, matrix.astype("float32")


def losses_of(labels):
    return lambda x, matrix: projected_cross_entropy(
        labels, x, matrix, None, SMOOTHING
    )[0]


def test_values_and_gradients_in_float64():
    labels, *arguments = make_case()
    found, pull_back = jax.vjp(losses_of(labels), *arguments)
    gradients = pull_back(jnp.ones_like(found))

    x, matrix = (np.asarray(a.astype("float32"), float) for a in arguments)
    logits = x @ matrix.T
    p = np.exp(logits)
    p /= p.sum(-1, keepdims=True)
    target = np.full(p.shape, SMOOTHING / VOCAB)
    target += (1 - SMOOTHING) * np.eye(VOCAB)[labels]
    expected = -np.sum(target * np.log(p), -1)
    np.testing.assert_allclose(found, expected, atol=0.05)  # of about 15
    of_logits = p - target
    for gradient, value in zip(
        gradients,
        (of_logits @ matrix, np.einsum("btv,btd->vd", of_logits, x)),
        strict=True,
    ):
        gradient = np.asarray(gradient.astype("float32"), float)
        error = np.linalg.norm(gradient - value) / np.linalg.norm(value)
        assert error < 0.01


def test_nothing_as_wide_as_the_vocabulary_is_float32():
    """Except what a CPU computes in float32: the logits, one factor p."""
    labels, *arguments = make_case()

    def is_wide(array):
        return VOCAB in array.shape and ROWS * LENGTH in array.shape

    _, pull_back = jax.vjp(losses_of(labels), *arguments)
    kept = [a for a in jax.tree.leaves(pull_back) if is_wide(a)]
    assert [str(a.dtype) for a in kept] == ["bfloat16"]

    step = jax.grad(lambda *a: losses_of(labels)(*a).sum(), (0, 1))
    options = {"xla_backend_optimization_level": 3}
    program = jax.jit(step).lower(*arguments).compile(options).as_text()
    computations = program.split("\n\n")
    [entry] = [text for text in computations if "\nENTRY" in "\n" + text]
    shape = rf"= f32\[{ROWS * LENGTH},{VOCAB}\]"
    assert len(re.findall(shape, entry)) <= 2


def test_r_drop_and_its_slopes():
    """It equals its definition, and differences along directions."""
    random = np.random.default_rng(4)
    labels = np.array([[3, 6, 2, 5], [5, 2, 6, 3]])
    values = [random.normal(size=(4, 4, 3)), random.normal(size=(7, 3))]

    def defined(x, matrix):
        halves = np.split(x @ matrix.T, 2)
        return references.r_drop(labels, *halves, 0.1, 3.0)

    found, pull_back = jax.vjp(
        lambda x, matrix: projected_r_drop(labels, x, matrix, None, 0.1, 3.0)[
            0
        ],
        *(jnp.asarray(value, "float32") for value in values),
    )
    np.testing.assert_allclose(found, defined(*values), rtol=1e-4)
    for i, slope in enumerate(pull_back(jnp.ones_like(found))):
        ends, along = [], random.normal(size=slope.shape)
        for step in (1e-5, -1e-5):
            moved = [*values]
            moved[i] = moved[i] + step * along
            ends.append(defined(*moved).sum())
        expected = (ends[0] - ends[1]) / 2e-5
        np.testing.assert_allclose((slope * along).sum(), expected, 1e-3)


def test_a_label_outside_the_vocabulary_makes_nan():
    logits = np.zeros((1, 2, 7), "float32")
    loss = kt.SmoothedCrossEntropy(0.1)
    assert np.isnan(loss(np.array([[99, 2]]), logits))
    assert np.isfinite(loss(np.array([[6, 2]]), logits))
