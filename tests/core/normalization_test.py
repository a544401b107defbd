"""LayerNorm against Keras' own, values and gradients."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.kernels.layers import LayerNorm


@pytest.mark.parametrize("dtype", ["float64", "mixed_bfloat16"])
@pytest.mark.parametrize("training", [False, True])
def test_it_is_keras_layer_normalization(dtype, training):
    numbers = np.random.default_rng(1)
    layers = (
        LayerNorm(epsilon=1e-6, dtype=dtype),
        (keras.layers.LayerNormalization(epsilon=1e-6, dtype=dtype)),
    )
    x = tf.constant(
        numbers.normal(3.0, 2.0, (2, 3, 5)), layers[0].compute_dtype
    )
    upstream = tf.constant(numbers.normal(size=(2, 3, 5)), x.dtype)
    weights = numbers.normal(size=(2, 5))
    found = []
    for layer in layers:
        layer.build(x.shape)
        layer.set_weights(list(weights))
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=training)
        variables = [v.value for v in layer.trainable_variables]
        found.append([y, *tape.gradient(y, [x, *variables], upstream)])
    tolerance = 1e-12 if dtype == "float64" else 0.02
    for ours, keras_own in zip(*found, strict=True):
        assert ours.dtype == keras_own.dtype
        np.testing.assert_allclose(
            tf.cast(ours, "float64"),
            tf.cast(keras_own, "float64"),
            rtol=tolerance,
            atol=tolerance,
        )


def test_the_gradient_is_a_few_operations():
    """A gradient that TensorFlow derives has many more."""
    layer = LayerNorm(epsilon=1e-6)
    layer.build((None, None, 5))

    @tf.function(
        input_signature=[tf.TensorSpec((None, None, 5))], autograph=False
    )
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
        return tape.gradient(y, x)

    graph = gradient.get_concrete_function().graph
    assert len(graph.get_operations()) < 60
