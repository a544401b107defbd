"""Tests of ensembles: several models that search as one."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.config import DecodingConfig, TransformerConfig
from keras_transformer.model import Transformer
from keras_transformer.translation.inference import Inference
from keras_transformer.vocabulary import BOS, EOS, PAD

CONFIG = TransformerConfig(
    vocab_size=13, d_model=8, d_ff=16, num_heads=2, num_layers=1, dropout=0.0
)
SOURCES = np.array(
    [[4, 5, 6, EOS, PAD], [7, EOS, PAD, PAD, PAD], [9, 8, 8, 12, EOS]], "int32"
)


def make_model(seed, **changes):
    """A model whose distributions are far from uniform."""
    model = Transformer(dataclasses.replace(CONFIG, **changes))
    random = np.random.RandomState(seed)
    for weight in model.weights:
        weight.assign(random.normal(size=weight.shape, scale=0.8))
    return model


def log_probs(models, how, source_ids, ids):
    """Float64 [V] after ids, from whole forward passes of each model."""
    target_ids = np.array([[BOS, *ids]], "int32")
    rows = []
    for model in models:
        logits = model({"source_ids": source_ids, "target_ids": target_ids})
        row = np.array(logits, "float64")[0, -1]
        rows.append(row - np.log(np.sum(np.exp(row))))
    if how == "linear":
        return np.log(np.mean(np.exp(rows), axis=0))
    mean = np.mean(rows, axis=0)
    return mean - np.log(np.sum(np.exp(mean)))


def beam(models, how, source_ids, width, length):
    """The best output of a beam search without length penalty, in Python."""
    live, finished = [(0.0, ())], []
    for _ in range(length):
        grown = []
        for value, ids in live:
            row = log_probs(models, how, source_ids, ids)
            grown += [
                (value + row[token], (*ids, token))
                for token in range(len(row))
                if token not in (PAD, BOS)
            ]
        grown = sorted(grown, reverse=True)[: 2 * width if width > 1 else 1]
        finished += [found for found in grown if found[1][-1] == EOS]
        live = [found for found in grown if found[1][-1] != EOS][:width]
        if width == 1 and finished:  # greedy search
            break
    return max(finished or live)


@pytest.mark.parametrize("how", ["linear", "log_linear"])
@pytest.mark.parametrize("width", [1, 3])
def test_an_ensemble_searches_by_the_mean(how, width):
    """Models of different shapes, against whole forward passes."""
    models = [
        make_model(0),
        make_model(1, d_model=12, num_heads=3, num_layers=2),
        make_model(2, positions="learned", max_positions=40),
    ]
    decoding = DecodingConfig(
        beam_size=width,
        ensemble=how,
        length_penalty=0.0,
        stopping="exact",
        extra_length=3,
    )
    inference = Inference(models, decoding, 8)
    graph = tf.function(
        inference.translate_ids,
        input_signature=[tf.TensorSpec((None, None), tf.int32)],
        autograph=False,
    )
    found = graph(SOURCES)
    for row, source in enumerate(SOURCES):
        source = source[source != PAD]
        longest = len(source) - 1 + decoding.extra_length
        expected, ids = beam(models, how, source[None], width, longest)
        length = int(found.lengths[row, 0])
        assert tuple(np.array(found.ids)[row, 0, :length]) == ids
        np.testing.assert_allclose(found.log_probs[row, 0], expected, rtol=1e-4)


@pytest.mark.parametrize("how", ["linear", "log_linear"])
def test_an_ensemble_scores_by_the_mean(how):
    models = [make_model(0), make_model(1, num_layers=2)]
    inference = Inference(models, DecodingConfig(ensemble=how), 8)
    labels = np.array([[5, 6, EOS]], "int32")
    scores = np.array(inference.score_ids(SOURCES[:1, :4], labels))[0]
    for position, token in enumerate(labels[0]):
        row = log_probs(models, how, SOURCES[:1, :4], labels[0, :position])
        np.testing.assert_allclose(scores[position], row[token], rtol=1e-4)


def test_an_ensemble_of_one_model_twice_is_that_model():
    """Bit for bit would be too much: the mean rounds."""
    model = make_model(4)
    decoding = DecodingConfig(beam_size=3, stopping="exact", extra_length=3)
    alone = Inference(model, decoding, 8).translate_ids(SOURCES)
    twice = Inference([model, model], decoding, 8).translate_ids(SOURCES)
    np.testing.assert_array_equal(alone.ids, twice.ids)
    np.testing.assert_allclose(alone.scores, twice.scores, rtol=1e-5)


def test_a_failing_member_fails_the_search():
    """NaN of one model is not hidden by the mean."""
    broken = make_model(1)
    broken.weights[0].assign(np.full(broken.weights[0].shape, np.nan))
    inference = Inference([make_model(0), broken], DecodingConfig(), 8)
    found = inference.translate_ids(SOURCES)
    assert np.all(np.isnan(keras.ops.convert_to_numpy(found.scores[:, 0])))
