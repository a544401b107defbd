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


@pytest.mark.parametrize("first, num_queries", [(0, 4), (0, 2), (3, 1), (2, 2)])
def test_a_query_sees_itself_and_what_came_before(first, num_queries):
    full = np.tril(np.ones((4, 4), bool))
    mask = kt.causal_mask(4, first, num_queries)
    assert mask.shape == (1, 1, num_queries, 4) and mask.dtype == "bool"
    np.testing.assert_array_equal(mask[0, 0], full[first : first + num_queries])


def test_every_key_has_its_query_by_default():
    np.testing.assert_array_equal(
        kt.causal_mask(3)[0, 0], np.tril(np.ones((3, 3), bool))
    )


def test_lengths_and_positions_may_be_tensors():
    @tf.function(input_signature=[tf.TensorSpec((), tf.int32)] * 2)
    def mask(length, first):
        return kt.causal_mask(length, first, 1)

    np.testing.assert_array_equal(mask(3, 1)[0, 0], [[True, True, False]])
