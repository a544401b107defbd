"""Layers against NumPy versions of section 3."""

import re

import keras
import numpy as np
import pytest
import references
import tensorflow as tf
from keras import ops
from tolerance import assert_close

import keras_transformer as kt
from keras_transformer.kernels.layers import LayerNorm
from keras_transformer.layers import (
    LearnedPositions,
    RelativeAttention,
    RestrictedAttention,
    SoftmaxProjection,
    chunks,
)
from keras_transformer.layers.cache import Slots


def random(*shape, seed=0):
    values = np.random.default_rng(seed).normal(size=shape)
    return values.astype("float32")


def test_attention_is_equation_1():
    q, k, v = random(2, 3, 4, 5), random(2, 3, 6, 5), random(2, 3, 6, 7)
    mask = np.random.default_rng(1).random((2, 1, 4, 6)) < 0.7
    mask[..., 0] = True
    result = ops.convert_to_numpy(
        kt.scaled_dot_product_attention(q, k, v, mask)
    )
    for b in range(2):
        for h in range(3):
            expected = references.attention(
                q[b, h], k[b, h], v[b, h], mask[b, 0]
            )
            np.testing.assert_allclose(result[b, h], expected, atol=1e-5)


def test_attention_without_anything_to_attend_to_is_finite():
    q, k, v = random(1, 1, 2, 4), random(1, 1, 3, 4), random(1, 1, 3, 4)
    result = kt.scaled_dot_product_attention(
        q, k, v, np.zeros((1, 1, 2, 3), bool)
    )
    np.testing.assert_allclose(
        result[0, 0], np.tile(v[0, 0].mean(0), (2, 1)), atol=1e-6
    )


def test_multi_head_attention_projects_splits_and_joins():
    """In double precision, where float32 falls 1e-8 short."""
    layer = kt.MultiHeadAttention(
        num_heads=3, d_key=4, d_value=5, dtype="float64"
    )
    query = random(2, 6, 8).astype(float)
    value = random(2, 7, 10, seed=1).astype(float)
    mask = np.tril(np.ones((6, 7), bool))[None, None]
    result = layer(query, value, attention_mask=mask)
    weights = [w.numpy() for w in layer.weights]
    assert [w.shape for w in weights] == [(8, 12), (10, 12), (10, 15), (15, 8)]
    assert result.dtype == "float64" and weights[0].dtype == np.float64
    for b in range(2):
        expected = references.multi_head_attention(
            query[b], value[b], weights, 3, mask[0, 0]
        )
        np.testing.assert_allclose(result[b], expected, atol=1e-13)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_a_mask_that_is_not_bool_is_refused_in_every_form(dtype):
    """An additive mask has zeros where a query may attend."""
    x, mask = random(1, 5, 8), np.ones((1, 1, 5, 5), dtype)
    layer = kt.MultiHeadAttention(2, 4, 4)
    layer.build((1, 5, 8), (1, 5, 8))
    graph = tf.function(lambda mask: layer(x, x, attention_mask=mask))
    refused = pytest.raises(ValueError, match=f"must be bool.*{dtype}")
    with refused:
        kt.scaled_dot_product_attention(x, x, x, mask)
    with refused:
        layer(x, x, attention_mask=mask)
    with refused:
        graph(tf.constant(mask))
    symbolic = keras.Input((5, 8)), keras.Input((1, 5, 5), dtype=dtype)
    with refused:
        layer(symbolic[0], symbolic[0], attention_mask=symbolic[1])
    with refused:
        kt.EncoderLayer(d_model=8, num_heads=2, d_ff=8)(*symbolic)
    right = keras.Input((1, 5, 5), dtype="bool")
    assert layer(symbolic[0], symbolic[0], right).shape == (None, 5, 8)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int64", "uint64"])
def test_ids_of_any_integer_dtype_are_the_same_ids(dtype):
    layer = kt.PositionalEmbedding(vocab_size=11, d_model=6)
    ids = np.array([[3, 10, 2, 0]])
    expected = layer(ids.astype("int32"))
    np.testing.assert_array_equal(layer(ids.astype(dtype)), expected)


@pytest.mark.parametrize("jit_compile", [None, False, True])
def test_ids_outside_the_vocabulary_are_nan(jit_compile):
    layer = kt.PositionalEmbedding(vocab_size=300, d_model=6)
    layer.build()
    embed = layer
    if jit_compile is not None:
        embed = tf.function(layer, jit_compile=jit_compile)
    right = np.array([[3, 299, 0]])
    expected = embed(tf.constant(right, tf.int32)).numpy()
    assert np.isfinite(expected).all()
    for dtype, wrong in [
        ("int32", -1),
        ("int32", 300),
        ("int32", 2**31 - 1),
        ("int64", 2**32 + 5),
        ("int64", -300),
        ("int8", -128),
    ]:
        ids = np.array([[3, wrong, 0]]).astype(dtype)
        found = embed(tf.constant(ids)).numpy()
        assert np.isnan(found[0, 1]).all(), wrong
        np.testing.assert_array_equal(found[0, ::2], expected[0, ::2])


def test_ids_that_are_no_integers_are_refused():
    layer = kt.PositionalEmbedding(vocab_size=11, d_model=6)
    for dtype in ("float16", "bool"):
        with pytest.raises(ValueError, match=f"integers.*dtype {dtype}"):
            layer(np.ones((1, 3), dtype))
    with pytest.raises(ValueError, match="integers.*dtype float16"):
        layer(keras.Input((3,), dtype="float16"))


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_float32_ids_are_those_that_they_are(policy):
    """Keras makes them so; others are outside the vocabulary."""
    layer = kt.PositionalEmbedding(vocab_size=3001, d_model=6, dtype=policy)
    ids = np.array([[3, 257, 2999, 3000, 0]])
    expected = ops.convert_to_numpy(layer(ids))
    found = layer(ids.astype("float32"))
    np.testing.assert_array_equal(ops.convert_to_numpy(found), expected)
    wrong = layer(np.array([[2.5, -1, 3001, 2.0**24, np.nan, np.inf, 1e30]]))
    assert np.isnan(ops.convert_to_numpy(wrong)).all()


def steps(layer, x, slots):
    """Yields the `step` of each position: x [B, T, D] -> [B, D], cache."""
    cache = layer.make_cache(len(x), slots)
    for index in range(x.shape[1]):
        position, _ = slots.enter((), x[:, index], tf.constant(index))
        result, cache = layer.step(x[:, index], cache, slots, position)
        yield result, cache


def test_attention_dropout_acts_in_training_only():
    layer = kt.MultiHeadAttention(2, 4, 4, dropout=0.5)
    x = random(1, 5, 8)
    calm, trained = layer(x, x), layer(x, x, training=True)
    assert np.array_equal(calm, layer(x, x))
    assert np.abs(calm - trained).max() > 1e-3


@pytest.mark.parametrize("activation", ["relu", "swish", "gelu", "gelu_tanh"])
def test_feed_forward_is_equation_2(activation):
    options = {} if activation == "relu" else {"activation": activation}
    layer = kt.FeedForward(d_ff=12, dtype="float64", **options)
    x = 2 * random(2, 3, 8)
    layer(x)
    weights = [random(*w.shape, seed=i) for i, w in enumerate(layer.weights)]
    layer.set_weights(weights)
    expected = references.feed_forward(x, *weights, activation)
    np.testing.assert_allclose(layer(x), expected, atol=1e-6)


@pytest.mark.parametrize("d_model", [2, 8, 512])
def test_positional_encoding_is_interleaved(d_model):
    np.testing.assert_allclose(
        kt.positional_encoding(100, d_model),
        references.positional_encoding(100, d_model),
        atol=1e-5,
    )


def test_positional_encoding_may_start_anywhere():
    whole = ops.convert_to_numpy(kt.positional_encoding(10, 6))
    for start in range(10):
        step = kt.positional_encoding(1, 6, start=start)
        np.testing.assert_allclose(step[0], whole[start], atol=1e-6)


@pytest.mark.parametrize(
    "policy, tolerance", [("float32", 1e-5), ("mixed_bfloat16", 2e-2)]
)
def test_every_form_of_the_projection_has_the_same_logits(policy, tolerance):
    random = np.random.default_rng(1)
    x = random.normal(size=(3, 6)).astype("float32")
    for kind in (kt.PositionalEmbedding, SoftmaxProjection):
        layer = kind(11, 6, logits_bias=True, dtype=policy)
        layer.build()
        layer.logits_bias.assign(random.normal(size=11))
        x_, matrix = (
            ops.convert_to_numpy(
                ops.cast(ops.cast(a, layer.compute_dtype), "float32")
            )
            for a in (x, layer.softmax_matrix)
        )
        expected = x_ @ matrix.T + ops.convert_to_numpy(layer.logits_bias)
        for ids in (None, np.array([0, 2, 3, 7])):
            columns = slice(None) if ids is None else ids
            for form in ({}, {"compiled": True}, {"transposed": True}):
                logits = layer.projection(ids, **form)(x)
                np.testing.assert_allclose(
                    logits, expected[:, columns], tolerance, tolerance
                )


@pytest.mark.parametrize("compiled", [False, True])
def test_xla_does_not_copy_the_matrix_of_a_projection(compiled):
    """With one row and a bias it does so, unless the product is turned."""
    layer = kt.PositionalEmbedding(48, 8, logits_bias=True)
    layer.build()
    project = layer.projection(compiled=compiled)
    function = tf.function(project, jit_compile=True, autograph=False)
    text = function.experimental_get_compiler_ir(tf.ones([1, 8]))(
        stage="optimized_hlo"
    )
    assert bool(re.search(r"f32\[8,48\]\S* copy\(", text)) != compiled


def test_embeddings_begin_with_unit_length_rows():
    layer = kt.PositionalEmbedding(vocab_size=2000, d_model=64)
    layer.build()
    assert abs(layer.embeddings.numpy().std() * 64**0.5 - 1) < 0.01


@pytest.mark.slow("backend")
def test_layers_of_other_systems_are_the_same_with_xla():
    """Forward and backward: the operations that the paper's do not have."""
    embedding = kt.PositionalEmbedding(
        11, 6, sinusoids="t2t", first_position=2, scale=False, logits_bias=True
    )
    embedding.build()
    norm = LayerNorm(epsilon=1e-5)
    layers = [kt.FeedForward(8, activation=a) for a in ("swish", "gelu")]
    ids = np.array([[3, 10, 2, 0]])

    def gradients():
        with tf.GradientTape() as tape:
            x = embedding.finish(norm(embedding.sum(ids)))
            for layer in layers:
                x = layer(x)
            loss = tf.reduce_sum(embedding.logits(x) ** 2)
        weights = [w.value for each in built for w in each.weights]
        return [tf.convert_to_tensor(g) for g in tape.gradient(loss, weights)]

    built = []
    gradients()  # makes the weights
    built += [embedding, norm, *layers]
    compiled = tf.function(gradients, jit_compile=True)()
    for one, other in zip(gradients(), compiled, strict=True):
        assert np.abs(one).max() > 1e-3
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_masks_of_symbolic_ids():
    """Whose length the functional API does not know."""
    ids = keras.Input((None,), dtype="int32")
    x = keras.Input((None, 8))
    layer = kt.EncoderLayer(d_model=8, d_ff=16, num_heads=2)
    mask = kt.padding_mask(ids) & kt.causal_mask(ids)
    model = keras.Model([ids, x], layer(x, mask))
    values = np.array([[5, 2, 0], [7, 8, 2]]), random(2, 3, 8)
    mask = kt.padding_mask(values[0]) & kt.causal_mask(3)
    assert_close(model(values), layer(values[1], mask))
    assert kt.causal_mask(np.ones((0, 3), int)).shape == (1, 1, 3, 3)
    with pytest.raises(ValueError, match="ids.*Received: length=None"):
        kt.causal_mask(ops.shape(ids)[1])


@pytest.mark.parametrize("fields", [{}, {"pre_norm": True}])
def test_masks_of_keras_are_not_used_and_that_is_told_once(fields, recwarn):
    ids = np.array([[5, 2, 0], [7, 8, 2]])
    embedding = keras.layers.Embedding(9, 8, mask_zero=True)
    layer = kt.Encoder(d_model=8, d_ff=16, num_heads=2, num_layers=2, **fields)
    y = layer(embedding(ids))
    assert len(recwarn) == 1
    assert "attention_mask=padding_mask(ids)" in str(recwarn[0].message)
    assert getattr(y, "_keras_mask", None) is None
    expected = layer(ops.copy(embedding.embeddings.value.numpy()[ids]))
    assert_close(y, expected)


def test_layers_say_why_they_are_not_quantized():
    x = keras.Input((5, 8))
    layer = kt.EncoderLayer(d_model=8, d_ff=16, num_heads=2)
    model = keras.Model(x, keras.layers.Dense(3)(layer(x)))
    with pytest.warns(UserWarning, match="Keras could not load") as told:
        model.quantize("int8")
    linear = [w for w in told if "Linear" in str(w.message)]
    assert not linear
    assert model.layers[-1].quantization_mode == "int8"


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: kt.MultiHeadAttention(0, 4, 4), "num_heads=0"),
        (lambda: kt.MultiHeadAttention(2, 4.5, 4), "d_key=4.5"),
        (lambda: RestrictedAttention(2, 4, 4, (1, -1)), r"hood=\(1, -1\)"),
        (lambda: RelativeAttention(2, 4, 4, 0), "max_relative_position=0"),
        (lambda: LearnedPositions(0, 4), "max_positions=0"),
        (lambda: kt.FeedForward(-1), "d_ff=-1"),
        (lambda: kt.FeedForward(4, activation="elu"), "activation='elu'"),
        (lambda: kt.positional_encoding(3, 4, sinusoids="x"), "sinusoids='x'"),
        (
            lambda: kt.PositionalEmbedding(9, 4, 0.0, None, 1),
            "first_position=1",
        ),
        (lambda: kt.PositionalEmbedding(10, 7), "d_model=7"),
        (lambda: kt.EncoderLayer(d_model=10, num_heads=3), "num_heads=3"),
        (lambda: kt.TransformerConfig(dropout=1.0), "dropout=1.0"),
        (lambda: kt.preset("huge"), "preset='huge'"),
        (lambda: kt.preset("base", d_modle=3), "d_modle"),
    ],
)
def test_bad_arguments_are_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("name", ["EncoderLayer", "DecoderLayer", "Encoder"])
def test_an_input_of_another_width_is_refused(name):
    layer = getattr(kt, name)(d_model=8, d_ff=8, num_heads=2, num_layers=1)
    inputs = [random(1, 5, 16)] * (2 if "Decoder" in name else 1)
    with pytest.raises(ValueError, match=r"d_model = 8.*\(1, 5, 16\)"):
        layer(*inputs)


# ---- Restricted and relative self-attention ----------------------------------

# Window r, length n, causal: in several chunks, of which the last is not full;
# r odd and even, above and below the least chunk; a window beyond the sequence.
WINDOWS = [
    (1, 70, False),
    (6, 70, False),
    (6, 70, True),
    (33, 131, False),
    (34, 102, True),
    (50, 7, False),
    (50, 7, True),
]


def neighborhood(window, causal):
    if causal:
        return chunks.last_neighborhood(window)
    return chunks.centered_neighborhood(window)


def as_full_attention(layer, x):
    """Makes the same layer without the restriction of attention."""
    full = kt.MultiHeadAttention(layer.num_heads, layer.d_key, layer.d_value)
    full(x, x)
    full.set_weights(layer.get_weights())
    return full


@pytest.mark.parametrize("window, length, causal", WINDOWS)
def test_restricted_attention_is_full_attention_under_a_band(
    window, length, causal
):
    """Values and gradients, with padding."""
    layer = RestrictedAttention(
        2, 4, 3, neighborhood=neighborhood(window, causal)
    )
    x = tf.constant(random(2, length, 8))
    layer(x, x)
    full = as_full_attention(layer, x)
    tokens = np.arange(length) < np.array([[length], [length - length // 3]])
    padding = tokens[:, None, None]
    band = references.sees(length, window, causal)[None, None] & padding
    weighted = random(2, length, 8, seed=1) * band.any((1, 3))[..., None]

    def differentiated(layer, mask):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, x, attention_mask=mask)
            loss = tf.reduce_sum(y * weighted)  # of rows that see a key
        gradients = tape.gradient(loss, [x, *layer.trainable_weights])
        return [y * (weighted != 0), *gradients]

    for found, expected in zip(
        differentiated(layer, padding), differentiated(full, band), strict=True
    ):
        np.testing.assert_allclose(found, expected, atol=1e-5)
    if window == 6:  # NumPy's, of the row that has no padding
        weights = [w.numpy() for w in layer.weights]
        expected = references.multi_head_attention(
            x[0].numpy(), x[0].numpy(), weights, 2, band[0, 0]
        )
        np.testing.assert_allclose(layer(x, x)[0], expected, atol=1e-5)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_restricted_attention_has_no_matrix_of_all_pairs(jit_compile):
    """One graph for all lengths, whose tensors grow with n alone."""
    layer = RestrictedAttention(2, 4, 3, neighborhood=(3, 2))
    layer.build((None, None, 8), (None, None, 8))

    def graph(size):
        return tf.function(
            lambda x, mask: layer(x, x, attention_mask=mask),
            input_signature=[
                tf.TensorSpec([1, size, 8]),
                tf.TensorSpec([1, 1, 1, size], tf.bool),
            ],
            jit_compile=jit_compile,
        )

    free = graph(None)
    for length in (5, 70):
        x = tf.constant(random(1, length, 8))
        mask = tf.constant(random(1, 1, 1, length) < 1)
        expected = layer(x, x, attention_mask=mask)
        np.testing.assert_allclose(free(x, mask), expected, atol=1e-5)
    operations = graph(1000).get_concrete_function().graph.get_operations()
    sizes = [t.shape.num_elements() for op in operations for t in op.outputs]
    # 32 chunks of 32 queries and 37 keys, in two heads.
    assert max(sizes) == 32 * 32 * 37 * 2 and None not in sizes


def test_restricted_attention_honors_a_mask_of_pairs():
    x = random(2, 70, 8)
    mask = np.random.default_rng(1).random((2, 1, 70, 70)) < 0.7
    mask |= np.eye(70, dtype=bool)
    for causal in (False, True):
        layer = RestrictedAttention(
            2, 4, 3, neighborhood=neighborhood(6, causal)
        )
        found = layer(x, x, attention_mask=mask)
        band = references.sees(70, 6, causal)
        expected = as_full_attention(layer, x)(x, x, attention_mask=mask & band)
        np.testing.assert_allclose(found, expected, atol=1e-5)
    with pytest.raises(ValueError, match="must be bool.*float32"):
        layer(x, x, attention_mask=mask.astype("float32"))


@pytest.mark.parametrize("count", [9, None])
@pytest.mark.parametrize("window", [None, 3])
def test_a_step_is_a_row_of_causal_attention(window, count):
    """With a cache longer than is needed, and with one that grows.

    That of restricted attention rolls.
    """
    x = random(3, 8, 8)
    if window:
        layer = RestrictedAttention(2, 4, 3, neighborhood=(window - 1, 0))
        expected, count = layer(x, x), count and window
    else:
        layer = kt.MultiHeadAttention(num_heads=2, d_key=4, d_value=3)
        expected = layer(x, x, attention_mask=kt.causal_mask(8))
    slots = Slots(count, beam_size=1, window=window)
    for index, (result, cache) in enumerate(steps(layer, x, slots)):
        np.testing.assert_allclose(result, expected[:, index], atol=1e-5)
        number = count or min(index + 1, window or 8)
        assert cache.keys.shape == [3, 2, number, 4]
        assert cache.values.shape == [3, 2, number, 3]
    if not window:
        keys = layer.project(x).keys
        np.testing.assert_allclose(cache.keys[:, :, :8], keys, atol=1e-5)
        assert not np.any(cache.keys[:, :, 8:])


def test_a_cache_is_of_attention_after_its_own_position():
    layer = RestrictedAttention(2, 4, 3, neighborhood=(1, 1))
    with pytest.raises(ValueError, match=r"after its own.*\(1, 1\)"):
        layer.make_cache(2, Slots(3, beam_size=1, window=3))


def test_options_of_self_attention_refuse_two_sequences():
    query, value = random(1, 5, 8), random(1, 6, 8)
    for layer in (
        RestrictedAttention(2, 4, 3, neighborhood=(1, 1)),
        RelativeAttention(2, 4, 3, max_relative_position=2),
    ):
        with pytest.raises(ValueError, match="5 queries, 6 keys"):
            layer(query, value)
