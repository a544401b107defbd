"""Loss and metrics against an explicit V-wide target distribution."""

import keras
import numpy as np
import pytest
import references
import tensorflow as tf
from later import later

import keras_transformer as kt
from keras_transformer.kernels.cross_entropy import smoothed_cross_entropy
from keras_transformer.kernels.projected_loss import (
    projected_cross_entropy,
    projected_r_drop,
)
from keras_transformer.training.update import token_weights

LABELS = np.array([[3, 6, 2, 0], [5, 2, 0, 0]], "int32")
LOGITS = np.random.default_rng(0).normal(size=(2, 4, 7), scale=3)
LOGITS = LOGITS.astype("float32")
REAL = LABELS != 0


COMPILED = pytest.mark.parametrize(
    "jit_compile", [False, *later("backend", True)]
)


def differentiated(losses_of, values, scales, jit_compile=False):
    """Returns the losses of tokens, and gradients of their weighted sum."""

    @tf.function(jit_compile=jit_compile, autograph=False)
    def run(values):
        with tf.GradientTape() as tape:
            tape.watch(values)
            losses = losses_of(values)
            total = tf.reduce_sum(losses * tf.cast(scales, losses.dtype))
        return losses, tape.gradient(total, values)

    return run(tf.nest.map_structure(tf.constant, values))


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 0.5])
def test_loss_is_the_token_mean_of_smoothed_cross_entropy(label_smoothing):
    expected = references.smoothed_cross_entropy(
        LABELS, LOGITS, label_smoothing
    )[REAL].mean()
    loss = kt.SmoothedCrossEntropy(label_smoothing)
    np.testing.assert_allclose(loss(LABELS, LOGITS), expected, rtol=1e-5)


@COMPILED
@pytest.mark.parametrize("which", [0, 1])
def test_gradient_is_softmax_minus_target(which, jit_compile):
    scales = np.array([[1.0, 2.0, 0.5, 0.0], [3.0, 1.0, 0.0, 0.0]], "float32")
    _, gradient = differentiated(
        lambda logits: smoothed_cross_entropy(LABELS, logits, 0.1)[which],
        LOGITS,
        scales,
        jit_compile,
    )
    target = references.smoothed_target(LABELS, 7, (0.1, 0.0)[which])
    expected = (references.softmax(LOGITS) - target) * scales[..., None]
    np.testing.assert_allclose(gradient, expected, atol=1e-6)


def test_both_losses_stay_exact_for_extreme_logits():
    logits = np.array([[[0.0, 1e4, -1e4]]], "float32")
    loss, nll = smoothed_cross_entropy(np.array([[2]]), logits, 0.1)
    np.testing.assert_allclose(nll, [[2e4]])
    np.testing.assert_allclose(loss, [[0.9 * 2e4 + 0.1 * 1e4]], rtol=1e-6)


STATES = np.random.default_rng(1).normal(size=(2, 4, 3))
MATRIX = np.random.default_rng(2).normal(size=(7, 3))
BIAS = np.random.default_rng(3).normal(size=7)
SCALES = np.array([[1.0, 2.0, 0.5, 0.0], [3.0, 1.0, 0.0, -1.0]])


def projected(labels, bias, which=0, jit_compile=False, dtype="float64"):
    """Returns the scaled loss, and gradients of states, matrix and bias."""
    values = {"x": STATES, "matrix": MATRIX}
    if bias is not None:
        values["bias"] = bias
    return differentiated(
        lambda values: projected_cross_entropy(
            labels,
            tf.cast(values["x"], dtype),
            values["matrix"],
            values.get("bias"),
            0.1,
        )[which],
        values,
        SCALES,
        jit_compile,
    )


@COMPILED
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("bias", [None, BIAS], ids=["no bias", "bias"])
def test_projection_and_loss_as_one(which, bias, jit_compile):
    """Two positions of the same label, and of the padding, among them."""
    losses, gradients = projected(LABELS, bias, which, jit_compile)
    logits = STATES @ MATRIX.T + (0.0 if bias is None else bias)
    label_smoothing = (0.1, 0.0)[which]
    expected = references.smoothed_cross_entropy(
        LABELS, logits, label_smoothing
    )
    np.testing.assert_allclose(losses, expected, rtol=1e-12)
    target = references.smoothed_target(LABELS, 7, label_smoothing)
    of_logits = (references.softmax(logits) - target) * SCALES[..., None]
    expected = {
        "x": of_logits @ MATRIX,
        "matrix": np.einsum("btv,btd->vd", of_logits, STATES),
    }
    if bias is not None:
        expected["bias"] = of_logits.sum((0, 1))
    assert gradients.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(gradients[name], value, atol=1e-12)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_projection_and_loss_in_half_precision(dtype):
    losses, gradients = projected(LABELS, None, dtype=dtype)
    exact_losses, exact = projected(LABELS, None)
    assert losses.dtype == tf.float32
    np.testing.assert_allclose(losses, exact_losses, atol=0.05)
    for name in exact:
        assert gradients[name].dtype == exact[name].dtype
        np.testing.assert_allclose(gradients[name], exact[name], atol=0.05)


IS_WRONG = np.arange(8).reshape(2, 4) == 1  # one token of all


def test_projection_and_loss_show_a_wrong_label():
    labels = np.where(IS_WRONG, 7, LABELS)
    losses, gradients = projected(labels, None)
    np.testing.assert_array_equal(np.isnan(losses), IS_WRONG)
    np.testing.assert_array_equal(np.isnan(gradients["x"]).any(-1), IS_WRONG)
    assert np.isnan(gradients["matrix"]).any()


HALVES = np.random.default_rng(4).normal(size=(4, 4, 3))
ALPHA = 3.0


def r_drop_losses(which, dtype="float64"):
    """Returns a function of values, one of `projected_r_drop`'s losses."""
    return lambda values: projected_r_drop(
        LABELS,
        tf.cast(values["x"], dtype),
        values["matrix"],
        values.get("bias"),
        0.1,
        ALPHA,
    )[which]


def expected_r_drop(values, which):
    logits = values["x"] @ values["matrix"].T + values.get("bias", 0.0)
    first, second = logits[:2], logits[2:]
    if which == 0:
        return references.r_drop(LABELS, first, second, 0.1, ALPHA)
    return sum(
        references.smoothed_cross_entropy(LABELS, half, 0.0) / 2
        for half in (first, second)
    )


@COMPILED
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("bias", [None, BIAS], ids=["no bias", "bias"])
def test_r_drop_and_its_slopes(which, bias, jit_compile):
    """The loss by its definition, its gradient by central differences."""
    values = {"x": HALVES.copy(), "matrix": MATRIX.copy()}
    if bias is not None:
        values["bias"] = bias.copy()
    losses, gradients = differentiated(
        r_drop_losses(which), values, SCALES, jit_compile
    )
    expected = expected_r_drop(values, which)
    np.testing.assert_allclose(losses, expected, rtol=1e-12)
    for name, value in values.items():
        slopes = np.zeros(value.shape)
        for index in np.ndindex(value.shape):
            for sign in (1, -1):
                value[index] += sign * 1e-5
                total = (expected_r_drop(values, which) * SCALES).sum()
                value[index] -= sign * 1e-5
                slopes[index] += sign * total / 2e-5
        np.testing.assert_allclose(gradients[name], slopes, atol=1e-8)


def test_equal_halves_do_not_diverge():
    """R-Drop's loss is then the cross-entropy, with its gradient."""
    values = {"x": np.concatenate([STATES, STATES]), "matrix": MATRIX}
    losses, gradients = differentiated(r_drop_losses(0), values, SCALES)
    expected, slopes = projected(LABELS, None)
    np.testing.assert_allclose(losses, expected, rtol=1e-12)
    np.testing.assert_allclose(gradients["matrix"], slopes["matrix"], 1e-9)
    for half in np.split(gradients["x"], 2):
        np.testing.assert_allclose(half, slopes["x"] / 2, atol=1e-12)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_r_drop_in_half_precision(dtype):
    values = {"x": HALVES, "matrix": MATRIX}
    losses = r_drop_losses(0, dtype)(values)
    assert losses.dtype == tf.float32
    np.testing.assert_allclose(losses, expected_r_drop(values, 0), atol=0.1)


def graph_of_gradients():
    """Returns the graph of the gradients of states and matrix."""

    @tf.function
    def gradients(x, matrix):
        with tf.GradientTape() as tape:
            tape.watch((x, matrix))
            losses = projected_cross_entropy(LABELS, x, matrix, None, 0.1)[0]
        return tape.gradient(losses, (x, matrix))

    return gradients.get_concrete_function(
        tf.TensorSpec((2, 4, 3)), tf.TensorSpec((7, 3))
    ).graph


def test_the_gradient_of_the_logits_is_never_made():
    """Only the logits and their softmax are as wide as the vocabulary."""
    wide = [
        op.type
        for op in graph_of_gradients().get_operations()
        for output in op.outputs
        if output.shape == (8, 7) and op.type not in ("Reshape", "BroadcastTo")
    ]  # neither of which copies its input here
    assert sorted(wide) == ["MatMul", "Softmax"]


def test_the_gradient_of_the_matrix_is_not_put_off():
    """It comes before that of the states, which the backward pass waits for."""
    products = {
        tuple(op.outputs[0].shape): op
        for op in graph_of_gradients().get_operations()
        if op.type == "MatMul"
    }
    of_x, of_matrix = products[8, 3], products[7, 3]
    assert of_matrix in of_x.control_inputs


def test_an_empty_batch_costs_nothing():
    loss = kt.SmoothedCrossEntropy(0.1)(np.zeros((2, 4), int), LOGITS)
    assert float(loss) == 0.0


@pytest.mark.parametrize(
    "weights",
    [
        np.array([2.0, 0.5]),  # of rows
        np.array([[2.0], [0.5]]),
        np.array([[2.0, 1.0, 0.5, 3.0], [0.0, 4.0, 1.0, 1.0]]),
    ],
)
def test_sample_weight_weighs_rows_or_tokens(weights):
    losses = references.smoothed_cross_entropy(LABELS, LOGITS, 0.1)
    each = REAL * (weights[:, None] if weights.ndim == 1 else weights)
    expected = (losses * each).sum() / each.sum()
    loss = kt.SmoothedCrossEntropy(0.1)(LABELS, LOGITS, sample_weight=weights)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    accuracy = kt.TokenAccuracy()
    accuracy.update_state(LABELS, LOGITS, sample_weight=weights)
    hits = (LOGITS.argmax(-1) == LABELS) * each
    np.testing.assert_allclose(accuracy.result(), hits.sum() / each.sum(), 1e-6)


def test_weights_of_rows_are_not_taken_for_columns():
    """There are as many rows as columns: [B] could be either."""
    labels = np.array([[3, 6], [5, 2]])
    weights = token_weights(labels, np.array([2.0, 5.0]))
    np.testing.assert_array_equal(weights, [[2, 2], [5, 5]])


@pytest.mark.parametrize("weights", [2.0, np.ones((2, 4, 1))])
def test_other_shapes_of_sample_weight_are_refused(weights):
    with pytest.raises(ValueError, match=r"\[B\], for rows, or \[B, T\]"):
        kt.SmoothedCrossEntropy(0.1)(LABELS, LOGITS, sample_weight=weights)


@COMPILED
@pytest.mark.parametrize("label", [-1, 7, 2**32 + 3])
def test_a_label_outside_the_vocabulary_makes_nan(label, jit_compile):
    """Loss and gradient are NaN only at its own position."""
    labels = np.where(IS_WRONG, label, LABELS.astype("int64"))
    for which in (0, 1):
        losses, gradient = differentiated(
            lambda logits, which=which: smoothed_cross_entropy(
                tf.constant(labels), logits, 0.1
            )[which],
            LOGITS,
            1.0,
            jit_compile,
        )
        np.testing.assert_array_equal(np.isnan(losses), IS_WRONG)
        np.testing.assert_array_equal(np.isnan(gradient).any(-1), IS_WRONG)


@pytest.mark.parametrize("label", [-1, 7])
def test_a_label_outside_the_vocabulary_shows_in_the_metrics(label):
    for metric in (kt.TokenAccuracy(), kt.Perplexity()):
        metric.update_state([[label, 2]], LOGITS[:1, :2])
        assert np.isnan(metric.result())
        metric.reset_state()
        metric.update_state([[3, 2]], LOGITS[:1, :2])
        assert np.isfinite(metric.result())


def test_float64_stays_float64():
    logits = LOGITS.astype("float64") + 1e-9 * np.arange(7)
    expected = references.smoothed_cross_entropy(LABELS, logits, 0.1)
    loss, nll = smoothed_cross_entropy(LABELS, logits, 0.1)
    np.testing.assert_allclose(loss, expected, rtol=1e-13)
    mean = kt.SmoothedCrossEntropy(0.1)(LABELS, logits)
    np.testing.assert_allclose(mean, expected[REAL].mean(), rtol=1e-13)
    perplexity = kt.Perplexity(dtype="float64")
    perplexity.update_state(LABELS, logits)
    nll = references.smoothed_cross_entropy(LABELS, logits, 0.0)[REAL]
    np.testing.assert_allclose(perplexity.result(), np.exp(nll.mean()), 1e-13)


def test_half_precision_logits_give_float32_losses():
    loss = kt.SmoothedCrossEntropy(0.1)(LABELS, tf.cast(LOGITS, "float16"))
    assert loss.dtype == "float32"


def test_loss_and_metrics_can_be_saved():
    loss = kt.SmoothedCrossEntropy(0.25)
    copy = keras.losses.deserialize(keras.losses.serialize(loss))
    assert copy.label_smoothing == 0.25
    for metric in (kt.TokenAccuracy(), kt.Perplexity(name="ppl")):
        config = keras.metrics.serialize(metric)
        copy = keras.metrics.deserialize(config)
        assert type(copy) is type(metric) and copy.name == metric.name


@pytest.mark.parametrize("label_smoothing", [1.0, -0.1])
def test_label_smoothing_must_be_a_share(label_smoothing):
    with pytest.raises(ValueError, match=f"label_smoothing={label_smoothing}"):
        kt.SmoothedCrossEntropy(label_smoothing)


def test_metrics_are_token_means_over_batches():
    accuracy, perplexity = kt.TokenAccuracy(), kt.Perplexity()
    for row in range(2):  # rows have 3 and 2 tokens
        labels, logits = LABELS[row : row + 1], LOGITS[row : row + 1]
        accuracy.update_state(labels, logits)
        perplexity.update_state(labels, logits)
    nll = references.smoothed_cross_entropy(LABELS, LOGITS, 0.0)[REAL]
    hits = (LOGITS.argmax(-1) == LABELS)[REAL]
    np.testing.assert_allclose(perplexity.result(), np.exp(nll.mean()), 1e-5)
    np.testing.assert_allclose(accuracy.result(), hits.mean(), rtol=1e-6)
    for metric in (accuracy, perplexity):
        metric.reset_state()
        assert float(metric.total) == float(metric.count) == 0
    # Of no token at all.
    assert float(accuracy.result()) == 0.0 and float(perplexity.result()) == 1.0


def test_infinite_logits_of_padding_do_not_count():
    """Models that never emit padding have such logits."""
    logits = LOGITS.copy()
    logits[:, :, 0] = -np.inf
    expected = references.smoothed_cross_entropy(
        np.where(REAL, LABELS - 1, 0), LOGITS[:, :, 1:], 0.0
    )[REAL].mean()
    loss = kt.SmoothedCrossEntropy(0.0)(LABELS, logits)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    perplexity = kt.Perplexity()
    perplexity.update_state(LABELS, logits)
    np.testing.assert_allclose(perplexity.result(), np.exp(expected), rtol=1e-5)
    variable = tf.Variable(logits)
    with tf.GradientTape() as tape:
        loss = kt.SmoothedCrossEntropy(0.0)(LABELS, variable)
    gradient = tape.gradient(loss, variable).numpy()
    assert np.isfinite(gradient).all() and not gradient[~REAL].any()


@pytest.mark.parametrize("reduction", ["sum", "none", None])
def test_there_is_one_reduction(reduction):
    with pytest.raises(ValueError, match="expected reduction='sum_over_batch"):
        kt.SmoothedCrossEntropy(0.1, reduction=reduction)
    config = kt.SmoothedCrossEntropy(0.1).get_config()
    assert kt.SmoothedCrossEntropy.from_config(config).label_smoothing == 0.1


def test_the_mean_of_the_vocabulary_is_precise_in_bfloat16():
    """The logit of the label is rounded, as all are; their mean is not."""
    random = np.random.default_rng(2)
    matrix = (1.005 + 0.001 * random.normal(size=(64, 4))).astype("float32")
    x = np.ones((1, 4, 4), "float32")
    labels = np.array([[3, 5, 6, 2]])
    loss, nll = projected_cross_entropy(
        labels, tf.cast(x, "bfloat16"), matrix, None, 0.5
    )
    half = tf.cast(matrix, "bfloat16")
    logits = tf.matmul(tf.cast(x[0], "bfloat16"), half, transpose_b=True)
    label_logits = tf.cast(logits, "float32").numpy()[range(4), labels[0]]
    mean = matrix.mean(0, dtype="float64").sum()
    np.testing.assert_allclose(
        (loss - nll)[0], 0.5 * (label_logits - mean), atol=2e-3
    )
