"""The masks, by literal examples: `True` = may attend."""

import numpy as np
import pytest
import tensorflow as tf

import keras_transformer as kt
from keras_transformer.layers.masking import checked_mask


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint16"])
def test_padding_is_hidden_from_every_query(dtype):
    ids = np.array([[5, 6, 2], [7, 2, 0], [0, 0, 0]], dtype)
    mask = kt.padding_mask(ids)
    assert mask.shape == (3, 1, 1, 3) and mask.dtype == "bool"
    expected = [[True, True, True], [True, True, False], [False] * 3]
    np.testing.assert_array_equal(mask[:, 0, 0], expected)


def test_a_query_sees_itself_and_what_came_before():
    mask = kt.causal_mask(3)
    assert mask.shape == (1, 1, 3, 3) and mask.dtype == "bool"
    np.testing.assert_array_equal(mask[0, 0], np.tril(np.ones((3, 3), bool)))


def test_a_length_may_be_a_tensor():
    @tf.function(input_signature=[tf.TensorSpec((), tf.int32)])
    def mask(length):
        return kt.causal_mask(length)

    np.testing.assert_array_equal(mask(2)[0, 0], [[True, False], [True, True]])


# B, H, T and S of scores; a mask's shape; the axes of 1 that it gets, or None.
SHAPES = [
    ((2, 3, 4, 5), (2, 3, 4, 5), (2, 3, 4, 5)),
    ((2, 3, 4, 5), (), (1, 1, 1, 1)),
    ((2, 3, 4, 5), (5,), (1, 1, 1, 5)),
    ((2, 3, 4, 5), (4, 5), (1, 1, 4, 5)),
    ((2, 3, 4, 5), (1, 5), (1, 1, 1, 5)),
    ((2, 3, 4, 5), (2, 5), (2, 1, 1, 5)),
    ((2, 3, 4, 5), (2, 1), (2, 1, 1, 1)),
    ((2, 3, 4, 5), (3, 4, 5), (1, 3, 4, 5)),
    ((2, 3, 4, 5), (2, 4, 5), (2, 1, 4, 5)),
    ((2, 3, 4, 5), (2, 1, 5), (2, 1, 1, 5)),
    ((2, 3, 4, 5), (1, 4, 5), (1, 1, 4, 5)),
    ((2, 1, 4, 5), (2, 4, 5), (2, 1, 4, 5)),
    ((1, 3, 4, 5), (4, 5), (1, 1, 4, 5)),
    ((None, 3, 4, 5), (2, 1, 4, 5), (2, 1, 4, 5)),
    ((None, 3, 4, 5), (4, 5), (1, 1, 4, 5)),
    # Two meanings, or none.
    ((4, 3, 4, 5), (4, 5), None),
    ((3, 3, 4, 5), (3, 4, 5), None),
    ((2, 3, 4, 5), (3, 5), None),
    ((2, 3, 4, 5), (4,), None),
    ((2, 3, 4, 5), (5, 4), None),
    ((2, 3, 4, 5), (2, 4, 1, 5), None),
    ((2, 3, 4, 5), (1, 2, 3, 4, 5), None),
    ((None, 3, None, 5), (4, 5), None),
]


@pytest.mark.parametrize(("scores", "mask", "axes"), SHAPES)
def test_a_mask_has_one_meaning_or_is_refused(scores, mask, axes):
    values = np.random.default_rng(1).random(mask) < 0.5
    if axes is None:
        with pytest.raises(ValueError, match=r"broadcast to \[B, H, T, S\]"):
            checked_mask(values, scores)
        return
    found = checked_mask(values, scores)
    np.testing.assert_array_equal(found, values.reshape(axes))


def test_a_mask_of_a_graph_has_the_meaning_of_its_unknown_sizes():
    """An unknown size is rather the batch's, if the others are known."""

    def meaning(scores, mask):
        found = []
        tf.function(
            lambda x: found.append(checked_mask(x, scores).shape),
            input_signature=[tf.TensorSpec(mask, tf.bool)],
        ).get_concrete_function()
        return tuple(found[0])

    assert meaning((None, 3, 4, 5), (None, 5)) == (None, 1, 1, 5)
    assert meaning((None, 3, None, None), (None,) * 3) == (None, 1, None, None)
    assert meaning((None, 3, None, None), (None,) * 4) == (None,) * 4
    with pytest.raises(ValueError, match="may be two of them"):
        meaning((None, 3, None, 5), (None, 5))


@pytest.mark.parametrize("fields", [{}, {"attention_window": 2}])
def test_layers_take_masks_as_keras_has_them(fields):
    layer = kt.EncoderLayer(d_model=8, d_ff=8, num_heads=4, **fields)
    x = np.random.default_rng(1).normal(size=(3, 6, 8)).astype("float32")
    mask = np.random.default_rng(2).random((3, 6, 6)) < 0.7
    mask |= np.eye(6, dtype=bool)
    for given, axes in ((mask, (3, 1, 6, 6)), (mask[:, 0], (3, 1, 1, 6))):
        wanted = layer(x, given.reshape(axes))
        np.testing.assert_allclose(layer(x, given), wanted, atol=1e-6)
    with pytest.raises(ValueError, match="may be two of them"):
        layer(x[:, :3], mask[:, :3, :3][:, 0])
