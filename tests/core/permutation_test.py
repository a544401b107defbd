"""Weights with another order of the model dimension."""

import dataclasses

import numpy as np
import pytest
import references

import keras_transformer as kt
from keras_transformer.base.permutation import from_blocks, reorder, to_blocks

SOURCE = np.array([5, 9, 4, 17, 2])
TARGET = np.array([1, 12, 6, 5])
# With weights of every name.
FIELDS = {
    "attention_bias": True,
    "embedding_norm": True,
    "pre_norm": True,
    "share_embeddings": "none",
    "logits_bias": True,
    "num_layers": 1,
    "num_decoder_layers": 1,
}


def make_model(config):
    """Makes a random model. Returns it and its float64 weights by path."""
    model = kt.Transformer(config, dtype="float64")
    random = np.random.default_rng(3)
    for weight in model.weights:
        weight.assign(random.normal(size=weight.shape, scale=0.4))
    return model, {paths_of(model, w): w.numpy() for w in model.weights}


def paths_of(model, weight):
    return weight.path.removeprefix(model.name + "/")


def logits_of(model, weights):
    """Returns the logits of the model with these weights."""
    for weight in model.weights:
        weight.assign(weights[paths_of(model, weight)])
    inputs = {"source_ids": SOURCE[None], "target_ids": TARGET[None]}
    return model(inputs)[0].numpy()


@pytest.mark.parametrize("sinusoids, first", [("paper", 0), ("t2t", 2)])
def test_sinusoids_in_blocks_are_a_permutation(small_config, sinusoids, first):
    """A system that has all sines before all cosines, and our model."""
    config = dataclasses.replace(
        small_config, **FIELDS, sinusoids=sinusoids, first_position=first
    )
    model, theirs = make_model(config)
    expected = references.transformer(
        theirs,
        config,
        SOURCE,
        TARGET,
        sinusoids=references.blocks_of_sinusoids,
    )
    ours = reorder(theirs, from_blocks(config.d_model))
    found = logits_of(model, ours)
    np.testing.assert_allclose(found, expected, atol=1e-10)
    assert np.abs(logits_of(model, theirs) - expected).max() > 1e-3
    back = reorder(ours, to_blocks(config.d_model))
    for path, weight in theirs.items():
        np.testing.assert_array_equal(back[path], weight, err_msg=path)


@pytest.mark.parametrize("positions", ["learned", "relative"])
def test_any_order_is_right_without_sinusoids(small_config, positions):
    config = dataclasses.replace(small_config, **FIELDS, positions=positions)
    model, weights = make_model(config)
    expected = logits_of(model, weights)
    order = np.array([3, 0, 7, 5, 1, 6, 2, 4])
    found = logits_of(model, reorder(weights, order))
    np.testing.assert_allclose(found, expected, atol=1e-10)


@pytest.mark.parametrize(
    "weights, order, message",
    [
        ({}, [0, 0], r"each number below D once. Received: order=\[0, 0\]"),
        ({"a/layer_0/gate/kernel": 0}, [0], "Received: 'a/layer_0/gate/kern"),
        (
            {"encoder/final_norm/gamma": np.ones(3)},
            [1, 0],
            r"final_norm/gamma: expected 2 numbers along axis 0.*\(3,\)",
        ),
    ],
)
def test_what_does_not_fit_is_refused(weights, order, message):
    with pytest.raises(ValueError, match=message):
        reorder(weights, order)
