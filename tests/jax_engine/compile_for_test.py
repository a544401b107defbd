"""Programs of `benchmarks/compile_for.py`, compiled for an existing device."""

import dataclasses
import importlib
import os

import jax
import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer.config import DecodingConfig
from keras_transformer.translation.batched import BatchedSearch
from keras_transformer.translation.inference import Inference
from keras_transformer.translation.programs import variables_of

SIZES = dict(vocab_size=50, d_model=8, d_ff=16, num_heads=2, num_layers=1)
ROWS, LENGTH = 3, 7


@pytest.fixture(scope="module")
def compile_for():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(os.path.join(os.getcwd(), "benchmarks"))
        return importlib.import_module("compile_for")


@pytest.fixture(scope="module")
def configuration(compile_for):
    return dataclasses.replace(
        compile_for.read_recipe("wmt14_ende_base"),
        model=kt.TransformerConfig(**SIZES),
        decoding=DecodingConfig(beam_size=2, extra_length=4),
    )


def test_the_search_is_the_one_that_translates(compile_for, configuration):
    case = {"precision": "float32", "rows": ROWS, "length": LENGTH}
    lowered, sizes, least = compile_for.make_search(
        configuration, case, jax.devices()
    )
    keras.utils.set_random_seed(1)
    model = kt.Transformer(configuration.model)
    inference = Inference(model, configuration.decoding, LENGTH)
    ids = np.random.default_rng(1).integers(4, 50, (ROWS, LENGTH), np.int32)
    expected = BatchedSearch(inference, 1, True, 1).run(
        Inference.translate_ids, [ids], num_best=1, shapes="static"
    )
    values = [variable.value for variable in variables_of(inference)]
    found = lowered.compile()(values, (ids,))
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5)

    def size(variables):
        return sum(4 * np.prod(v.shape, dtype=int) for v in variables)

    assert sizes == {"weights": size(variables_of(inference))}
    # In each of 7 steps: the weights, and in one layer the keys and values of
    # the sources and of two hypotheses with 7 + 4 positions. A bool for each
    # token of the source, and one for each of a hypothesis' cached positions.
    weights = sizes["weights"] - size(model.encoder.variables)
    cached = 2 * 8 * 4 * ROWS * (LENGTH + 2 * 11)
    masks = ROWS * LENGTH + ROWS * 2 * (2 * 11)
    assert least["bytes"] == 7 * (weights + cached + masks)


def test_the_step_has_the_state_of_the_engine(compile_for, configuration):
    """Adam has two moments of each weight and some scalars."""
    case = {"precision": "mixed_bfloat16", "rows": 8, "length": LENGTH}
    lowered, sizes, _ = compile_for.make_step(
        configuration, case | {"remat": "none"}, jax.devices()
    )
    assert 0 < sizes["optimizer"] - 2 * sizes["weights"] < 64
    compiled = lowered.compile()
    arguments = compiled.memory_analysis().argument_size_in_bytes
    batch = arguments - sum(sizes.values())
    assert 0 <= batch - 2 * LENGTH * 4 < 2048  # and the seeds of dropout
    added = compile_for.all_reduce_bytes(compiled.as_text())
    assert 0 <= added - sizes["weights"] < 64
