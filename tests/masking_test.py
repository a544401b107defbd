"""The masks, by literal examples: `True` = may attend."""

import numpy as np
import pytest
import tensorflow as tf

import keras_transformer as kt


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
