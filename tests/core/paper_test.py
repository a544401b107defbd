"""The paper's experiments: presets, recipes and formulas."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from commands import ROOT, open_trainer
from formulas import (
    count_parameters,
    multiply_adds,
    read_recipe,
    training_flops,
)
from table3 import PRINTED

import keras_transformer as kt
from trainers import wmt
from trainers.run.optimization import make_schedule

# Table 3 as printed; what a row leaves empty is "base".
# name: N, d_model, d_ff, h, d_k, d_v, P_drop, e_ls, steps, PPL, BLEU, 10^6
BASE = (6, 512, 2048, 8, 64, 64, 0.1, 0.1, 100_000, 4.92, 25.8, 65)
TABLE_3 = {
    "base": {},
    "a1": {3: 1, 4: 512, 5: 512, 9: 5.29, 10: 24.9, 11: None},
    "a2": {3: 4, 4: 128, 5: 128, 9: 5.00, 10: 25.5, 11: None},
    "a3": {3: 16, 4: 32, 5: 32, 9: 4.91, 10: 25.8, 11: None},
    "a4": {3: 32, 4: 16, 5: 16, 9: 5.01, 10: 25.4, 11: None},
    "b1": {4: 16, 9: 5.16, 10: 25.1, 11: 58},
    "b2": {4: 32, 9: 5.01, 10: 25.4, 11: 60},
    "c1": {0: 2, 9: 6.11, 10: 23.7, 11: 36},
    "c2": {0: 4, 9: 5.19, 10: 25.3, 11: 50},
    "c3": {0: 8, 9: 4.88, 10: 25.5, 11: 80},
    "c4": {1: 256, 4: 32, 5: 32, 9: 5.75, 10: 24.5, 11: 28},
    "c5": {1: 1024, 4: 128, 5: 128, 9: 4.66, 10: 26.0, 11: 168},
    "c6": {2: 1024, 9: 5.12, 10: 25.4, 11: 53},
    "c7": {2: 4096, 9: 4.75, 10: 26.2, 11: 90},
    "d1": {6: 0.0, 9: 5.77, 10: 24.6, 11: None},
    "d2": {6: 0.2, 9: 4.95, 10: 25.5, 11: None},
    "d3": {7: 0.0, 9: 4.67, 10: 25.3, 11: None},
    "d4": {7: 0.2, 9: 5.47, 10: 25.7, 11: None},
    "e": {9: 4.92, 10: 25.7, 11: None},  # learned positions
    "big": {1: 1024, 2: 4096, 3: 16, 6: 0.3, 8: 300_000, 9: 4.33, 10: 26.4}
    | {11: 213},
}


@pytest.mark.parametrize("row", TABLE_3)
def test_a_row_of_table_3_is_as_printed(row):
    expected = tuple(TABLE_3[row].get(i, BASE[i]) for i in range(len(BASE)))
    configuration = read_recipe(f"table3_{row}")
    model, training = configuration.model, configuration.training
    _, perplexity, bleu = PRINTED[f"table3_{row}"]
    *printed, millions = expected
    assert tuple(printed) == (
        model.num_layers,
        model.d_model,
        model.d_ff,
        model.num_heads,
        model.key_size,
        model.value_size,
        model.dropout,
        training.label_smoothing,
        training.train_steps,
        perplexity,
        bleu,
    )
    assert model == kt.preset(f"table3_{row}", vocab_size=37000)
    # What every row shares: sec. 5, and the caption of Table 3.
    assert model.decoder_depth == model.num_layers and not model.pre_norm
    assert (model.attention_dropout, model.activation_dropout) == (0, 0)
    assert model.positions == ("learned" if row == "e" else "sinusoidal")
    assert model.attention_window is None
    assert (training.warmup_steps, training.adam_beta_2) == (4000, 0.98)
    assert (training.learning_rate_scale, training.average_last) == (1.0, 1)
    assert training.valid_sentences == 3000
    assert configuration.data.batch_tokens == 25000
    assert training.valid_beam_size == configuration.decoding.beam_size == 4
    if millions is not None:
        fitting = dataclasses.replace(
            model, vocab_size=36000 if row == "big" else 41100
        )
        assert round(count_parameters(fitting) / 1e6) == millions


def test_no_row_is_left_out():
    rows = {f"table3_{row}" for row in TABLE_3}
    assert rows == set(PRINTED)
    kinds = ("table3_", "t2t_", "fairseq_", "wmt14_")
    presets = {n for n in kt.PRESETS if n.startswith(kinds)}
    assert presets == rows | set(RELATIVES)
    table_2 = {f"wmt14_{n}" for n in ("ende_base", "ende_big", "enfr_big")}
    recipes = {n for n in wmt.recipe_names() if n.startswith(kinds)}
    assert recipes == presets | table_2


# Read in tensor2tensor (models/transformer.py, utils/learning_rate.py) and in
# fairseq's examples/scaling_nmt. A batch is of 8 GPUs.
# name: pre-norm, dropouts, beta_2, warm-up, peak learning rate, batch tokens
RELATIVES = {
    "t2t_base_v1": (False, (0.1, 0.0, 0.0), 0.98, 4000, 6.99e-4, 8 * 4096),
    "t2t_base_v2": (True, (0.1, 0.1, 0.1), 0.98, 8000, 9.88e-4, 8 * 4096),
    "t2t_base_v3": (True, (0.1, 0.1, 0.1), 0.997, 8000, 9.88e-4, 8 * 4096),
    "t2t_big": (True, (0.3, 0.1, 0.1), 0.997, 8000, 6.99e-4, 8 * 2048),
    "fairseq_big": (False, (0.3, 0.0, 0.0), 0.98, 4000, 5.00e-4, 8 * 3584),
}


@pytest.mark.parametrize("name", RELATIVES)
def test_a_relative_is_as_its_source_has_it(name):
    configuration = read_recipe(name)
    model, training = configuration.model, configuration.training
    shape = ("d_model", "d_ff", "num_heads", "num_layers")
    theirs = kt.preset("big" if "big" in name else "base")
    for field in shape:
        assert getattr(model, field) == getattr(theirs, field)
    rate, step = peak_of(configuration)
    assert (
        model.pre_norm,
        (model.dropout, model.attention_dropout, model.activation_dropout),
        training.adam_beta_2,
        step,
        float(f"{rate:.2e}"),
        configuration.data.batch_tokens,
    ) == RELATIVES[name]
    assert training.label_smoothing == 0.1
    fields = dataclasses.asdict(kt.preset(name, vocab_size=32768))
    assert fields == dataclasses.asdict(model)


def peak_of(configuration):
    """Returns the maximum of the learning rate, and its step from 1 on."""
    schedule = make_schedule(configuration.model, configuration.training)
    rates = np.asarray(schedule(np.arange(20_000)))
    return rates.max(), np.argmax(rates) + 1


@pytest.mark.parametrize("name, peak", [("base", 6.99e-4), ("big", 4.94e-4)])
def test_the_peak_of_the_paper(name, peak):
    rate, step = peak_of(read_recipe(f"wmt14_ende_{name}"))
    assert (float(f"{rate:.2e}"), step) == (peak, 4000)


def products_of(graph):
    """Counts the multiplications of a graph's matrix products."""
    total = 0
    for op in graph.get_operations():
        if op.type not in ("MatMul", "BatchMatMulV2", "Einsum"):
            continue
        assert op.type != "Einsum", "count it, too"
        transposed = op.get_attr(
            "transpose_a" if op.type == "MatMul" else "adj_x"
        )
        inner = op.inputs[0].shape[-2 if transposed else -1]
        total += int(np.prod(op.outputs[0].shape.as_list())) * inner
    return total


def test_flops_are_those_of_the_graphs(small_config):
    """Forward and backward pass of a traced model, product by product."""
    small_config = dataclasses.replace(small_config, num_layers=1)
    model = kt.Transformer(small_config)
    rows, source_length, target_length = 3, 7, 5
    source = tf.zeros((rows, source_length), tf.int32) + 5
    target = tf.zeros((rows, target_length), tf.int32) + 5
    model({"source_ids": source, "target_ids": target})

    def forward():
        return model({"source_ids": source, "target_ids": target})

    def backward():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(forward())
        return tape.gradient(loss, model.trainable_variables)

    macs = rows * multiply_adds(small_config, source_length, target_length)
    for function, passes in ((forward, 1), (backward, 3)):
        graph = tf.function(function, autograph=False).get_concrete_function()
        assert products_of(graph.graph) == passes * macs
    square = multiply_adds(small_config, 7, 7)
    np.testing.assert_allclose(
        training_flops(small_config, 10, 70, sentence_length=7),
        10 * 10 * 6 * square,  # 10 steps of 10 pairs
    )


@pytest.mark.parametrize(
    "option", [{"attention_window": 4}, {"positions": "relative"}]
)
def test_flops_of_other_attention_are_refused(small_config, option):
    config = dataclasses.replace(small_config, **option)
    with pytest.raises(ValueError, match="full attention"):
        multiply_adds(config, 7, 7)


def test_a_row_starts(tmp_path, train_files):
    """A recipe on other files; its smoothing and Adam reach the training."""
    recipe = f"--flagfile={ROOT}/trainers/configs/table3_d4.flags"
    sizes = "--vocab_size=300 --d_model=16 --d_ff=32 --num_layers=1"
    others = "--batch_tokens=256 --num_buckets=2 --adam_beta_2=0.9"
    flags = [*sizes.split(), *others.split(), f"--workdir={tmp_path}/run"]
    trainer = open_trainer([recipe, *train_files, *flags])
    assert trainer.experiment.training.label_smoothing == 0.2
    assert trainer.engine.optimizer.beta_2 == 0.9
    assert trainer.engine.model.config.key_size == 2  # 8 heads of d_model 16
