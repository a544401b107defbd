"""The whole model: values, laws, counts, saving."""

import dataclasses

import h5py
import keras
import numpy as np
import pytest
import references
import tensorflow as tf
from formulas import count_parameters
from later import later
from tolerance import assert_close

import keras_transformer as kt
from keras_transformer.kernels.layers import Dropout
from keras_transformer.layers import (
    attention,
    embeddings,
    sublayers,
)
from keras_transformer.model import model_to_be_read
from keras_transformer.storage.checkpoints import named_weights
from keras_transformer.training.token_losses import TokenLosses
from keras_transformer.training.update import StepOptions

SOURCE = np.array([[5, 9, 4, 17, 2], [7, 3, 2, 0, 0]], "int32")
TARGET = np.array([[1, 12, 6, 5], [1, 8, 0, 0]], "int32")


def logits_of(model, source=SOURCE, target=TARGET):
    return model({"source_ids": source, "target_ids": target}).numpy()


def test_learned_positions_end(small_config):
    """Too many tokens are refused, or NaN where their number is not static."""
    config = dataclasses.replace(
        small_config, positions="learned", max_positions=4
    )
    model = kt.Transformer(config)
    message = "source_positions: expected at most max_positions = 4 ids.*: 5"
    with pytest.raises(ValueError, match=message):
        logits_of(model)
    with pytest.raises(ValueError, match="target_positions.*: 5"):
        logits_of(model, SOURCE[:, :4], np.ones((2, 5), "int32"))

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2)
    def logits(source_ids, target_ids):
        return model({"source_ids": source_ids, "target_ids": target_ids})

    found = logits(SOURCE, TARGET).numpy()
    assert np.isnan(found[0]).all()  # five tokens; the other row is padded
    expected = logits_of(model, SOURCE[:, :4])
    np.testing.assert_allclose(found[1], expected[1], atol=1e-5)
    memory, cache = model.encode(SOURCE[:, :4]), model.make_cache(2, 6)
    for index, is_known in [(3, True), (4, False)]:
        step, _ = model.decode_step(TARGET[:, 0], memory, cache, index)
        assert np.isfinite(step).all() == is_known


def test_weights_that_will_be_read_are_not_drawn(small_config):
    read = named_weights(model_to_be_read(small_config))
    drawn = named_weights(kt.Transformer(small_config))
    assert all(np.unique(weight).size == 1 for weight in read.values())
    kernels = [w for name, w in drawn.items() if name.endswith("kernel")]
    matrices = [*kernels, drawn["embedding.embeddings"]]
    assert all(0 < np.std(matrix) < 1 for matrix in matrices)
    assert {n: w.shape for n, w in read.items()} == {
        n: w.shape for n, w in drawn.items()
    }


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"positions": "absolute"}, "one of 'sinusoidal', 'learned', 'relat"),
        ({"max_positions": 9}, "max_positions=9, positions='sinusoidal'"),
        ({"positions": "learned", "max_relative_position": 9}, "=relative.*=9"),
        ({"attention_window": 0}, "attention_window=0"),
        ({"attention_window": 4, "positions": "relative"}, "excludes positi"),
        ({"activation": "tanh"}, "one of 'relu', 'swish', 'gelu', 'gelu_ta"),
        ({"positions": "learned", "first_position": 2}, "needs.*=sinusoidal"),
        ({"positions": "relative", "sinusoids": "t2t"}, "needs.*=sinusoidal"),
        ({"source_vocab_size": 9, "share_embeddings": "inputs"}, "excludes sh"),
        ({"layer_norm_epsilon": 0.0}, "layer_norm_epsilon must be at least"),
    ],
)
def test_an_option_without_effect_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        kt.TransformerConfig(**fields)


# The kinds of positions, restricted attention, pre-norm: fields of a config.
KINDS = [
    {"positions": "learned", "max_positions": 6, "pre_norm": True},
    {"positions": "relative", "max_relative_position": 2},
    {"attention_window": 3},
]


FIELDS_AND_CACHES = [
    *((fields, True) for fields in [{}, *KINDS]),
    ({}, False),
    *later("options", *((fields, False) for fields in KINDS)),
]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"share_embeddings": "none", "logits_bias": True},
        *later(
            "options",
            {"logits_bias": True},
            {"pre_norm": True, "source_vocab_size": 23},
        ),
    ],
)
def test_token_losses_are_the_losses_of_the_logits(small_config, fields):
    config = dataclasses.replace(small_config, **fields)
    model, _ = moved_model(config, dtype="float64")
    inputs = {"source_ids": SOURCE, "target_ids": TARGET}
    labels = np.array([[12, 6, 5, 2], [8, 2, 0, 0]])
    loss, nll = TokenLosses(model, StepOptions(0.1))(inputs, labels)
    for result, label_smoothing in ((loss, 0.1), (nll, 0.0)):
        expected = references.smoothed_cross_entropy(
            labels, logits_of(model), label_smoothing
        )
        np.testing.assert_allclose(result, expected, rtol=1e-9)


# The paper's model, its kinds of positions, and models as these systems have
# them, each with something of its own besides.
SYSTEMS = {
    "paper": {},
    "learned": KINDS[0],
    "relative": KINDS[1],
    "restricted": KINDS[2],
    "Marian": {
        "activation": "swish",
        "attention_bias": True,
        "layer_norm_epsilon": 1e-5,
        "logits_bias": True,
    },
    "OpenNMT-tf": {
        "pre_norm": True,
        "attention_bias": True,
        "sinusoids": "t2t",
        "first_position": 1,
        "source_vocab_size": 23,
        "share_embeddings": "none",
        "logits_bias": True,
        "source_eos": False,
    },
    "fairseq": {
        "attention_bias": True,
        "sinusoids": "t2t",
        "first_position": 2,
        "share_embeddings": "target",
        "activation": "gelu_tanh",
    },
    "BART": {
        "positions": "learned",
        "max_positions": 6,
        "activation": "gelu",
        "attention_bias": True,
        "layer_norm_epsilon": 1e-2,
        "embedding_norm": True,
        "scale_embeddings": False,
        "share_embeddings": "inputs",
    },
    "relative pre-norm": {
        "positions": "relative",
        "max_relative_position": 1,
        "attention_bias": True,
        "pre_norm": True,
        "source_vocab_size": 23,  # means share_embeddings="target"
        "logits_bias": True,
    },
}


def moved_model(config, **kwargs):
    """Returns a model with weights off their initial values, and these."""
    model = kt.Transformer(config, **kwargs)
    random = np.random.default_rng(3)
    for weight in model.weights:
        weight.assign_add(random.normal(size=weight.shape, scale=0.2))
    name = model.name + "/"
    return model, {
        w.path.removeprefix(name): w.numpy().astype("float64")
        for w in model.weights
    }


@pytest.mark.parametrize(
    "name",
    [
        *("paper", "learned", "relative", "restricted", "BART", "OpenNMT-tf"),
        *later("family", "Marian", "fairseq", "relative pre-norm"),
    ],
)
def test_logits_are_figure_1(small_config, name):
    config = dataclasses.replace(small_config, **SYSTEMS[name])
    model, weights = moved_model(config, dtype="float64")
    logits = logits_of(model)
    assert logits.dtype == np.float64 and logits.shape == (2, 4, 19)
    # Functions of TensorFlow are less exact than the paper's operations.
    atol = 1e-12 if name == "paper" else 1e-7
    for row, (length, steps) in enumerate([(5, 4), (3, 2)]):
        expected = references.transformer(
            weights, config, SOURCE[row, :length], TARGET[row, :steps]
        )
        np.testing.assert_allclose(logits[row, :steps], expected, atol=atol)
    single = kt.Transformer(config)
    single.set_weights(model.get_weights())
    assert single.compute_dtype == "float32"
    np.testing.assert_allclose(logits_of(single), logits, atol=1e-4)
    memory, cache = model.encode(SOURCE), model.make_cache(2, 6)
    for index in range(4):
        step, cache = model.decode_step(TARGET[:, index], memory, cache, index)
        np.testing.assert_allclose(step, logits[:, index], atol=atol)
    assert model.count_params() == count_parameters(config)


# All that is not of one kind of positions.
EVERY_FIELD = {
    "activation": "gelu",
    "attention_bias": True,
    "layer_norm_epsilon": 1e-5,
    "embedding_norm": True,
    "scale_embeddings": False,
    "sinusoids": "t2t",
    "first_position": 2,
    "share_embeddings": "none",
    "logits_bias": True,
}


@pytest.fixture
def every_field(small_config):
    depths = {"num_layers": 1, "num_decoder_layers": 1}
    return dataclasses.replace(small_config, **depths, **EVERY_FIELD)


def test_every_field_in_a_file_and_in_half_precision(every_field, tmp_path):
    model, _ = moved_model(every_field)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.config == every_field
    logits = logits_of(model)
    np.testing.assert_array_equal(logits_of(loaded), logits)
    half = kt.Transformer(every_field, dtype="mixed_bfloat16")
    half.set_weights(model.get_weights())
    rounded = logits_of(half)
    assert rounded.dtype == np.float32
    # bfloat16 has 8 bits: a part in 256 for each of some twenty roundings.
    # Not the greatest difference, which depends on the CPU's kernels.
    distance = np.abs(rounded - logits).mean() / np.abs(logits).mean()
    assert 1e-4 < distance < 0.05
    memory = half.encode(SOURCE)
    step, _ = half.decode_step(TARGET[:, 0], memory, half.make_cache(2, 3), 0)
    assert np.abs(step - rounded[:, 0]).mean() < 0.05
    # A bias that bfloat16 would round away beside logits of about 1.
    half.softmax.logits_bias.assign_add(np.full(19, 1e-4))
    np.testing.assert_allclose(logits_of(half) - rounded, 1e-4, rtol=0.05)


def test_the_order_and_the_names_of_the_parts_weights(every_field, tmp_path):
    """The optimizer's variables in a checkpoint are in the same order."""
    learned = {"positions": "learned", "max_positions": 9}
    defaults = {"sinusoids": "paper", "first_position": 0}
    model = kt.Transformer(
        dataclasses.replace(every_field, **learned | defaults)
    )
    paths = [w.path.partition("/")[2] for w in model.weights]
    assert paths[:11] == [
        "embedding/embeddings",
        "source_embedding/embeddings",
        "softmax/matrix",
        "softmax/logits_bias",
        "source_embedding_norm/gamma",
        "source_embedding_norm/beta",
        "target_embedding_norm/gamma",
        "target_embedding_norm/beta",
        "source_positions/table",
        "target_positions/table",
        "encoder/layer_0/self_attention/query/kernel",
    ]
    model.save_weights(tmp_path / "model.weights.h5")
    with h5py.File(tmp_path / "model.weights.h5") as file:
        assert file["embedding/vars/0"].shape == (19, 8)
        assert set(file["layers"]) == {
            "layer_norm",
            "layer_norm_1",
            "learned_positions",
            "learned_positions_1",
            "positional_embedding_1",
            "softmax_projection",
        }


def test_every_field_has_its_gradient(every_field):
    """Against a difference of losses along one direction."""
    model, _ = moved_model(every_field, dtype="float64")
    inputs = {"source_ids": SOURCE, "target_ids": TARGET}
    labels = tf.constant([[12, 6, 5, 2], [8, 2, 0, 0]])
    weights = [w.value for w in model.trainable_weights]

    def loss():
        logits = model(inputs, training=True)
        return kt.SmoothedCrossEntropy(0.1)(labels, logits)

    with tf.GradientTape() as tape:
        value = loss()
    gradients = [
        tf.convert_to_tensor(g).numpy() for g in tape.gradient(value, weights)
    ]
    for weight, gradient in zip(
        model.trainable_weights, gradients, strict=True
    ):
        # Softmax does not see what is added to all scores of a query.
        has_effect = not weight.path.endswith("key/bias")
        assert (np.abs(gradient).max() > 1e-6) == has_effect, weight.path
    random = np.random.default_rng(5)
    direction = [random.normal(size=g.shape) for g in gradients]
    losses = []
    for step in (1e-5, -2e-5):  # to one side, then to the other
        for weight, along in zip(weights, direction, strict=True):
            weight.assign_add(step * along)
        losses.append(loss().numpy())
    expected = sum(
        np.sum(g * d) for g, d in zip(gradients, direction, strict=True)
    )
    found = (losses[0] - losses[1]) / 2e-5
    np.testing.assert_allclose(found, expected, rtol=1e-3)


@pytest.mark.parametrize(
    "name, vocab_size, count",
    [("base", 37000, 63_045_632), ("tiny", 8000, 2_342_912)],
)
def test_parameters_are_the_papers(name, vocab_size, count):
    config = kt.preset(name, vocab_size=vocab_size)
    assert kt.Transformer(config).count_params() == count
    assert count_parameters(config) == count


def test_big_has_214_million():
    config = kt.preset("big", vocab_size=37000)
    assert round(count_parameters(config) / 1e6, 1) == 214.2


def test_the_future_changes_nothing(small_config):
    model = kt.Transformer(small_config)
    before = logits_of(model)
    for position in range(1, 4):
        target = TARGET.copy()
        target[:, position:] = 11
        after = logits_of(model, target=target)
        np.testing.assert_array_equal(after[:, :position], before[:, :position])
        assert np.abs(after[:, position] - before[:, position]).max() > 1e-3


def test_padding_changes_nothing(small_config):
    model = kt.Transformer(small_config)
    alone = logits_of(model, SOURCE[1:, :3], TARGET[1:, :2])
    assert_close(logits_of(model)[1:, :2], alone)


@pytest.mark.parametrize("fields, growing", FIELDS_AND_CACHES)
def test_cached_decoding_is_full_decoding(small_config, fields, growing):
    model = kt.Transformer(dataclasses.replace(small_config, **fields))
    expected = logits_of(model)
    memory = model.encode(SOURCE)
    cache = model.make_cache(batch_size=2, length=6, growing=growing)
    for index in range(TARGET.shape[1]):
        logits, cache = model.decode_step(
            TARGET[:, index], memory, cache, index
        )
        np.testing.assert_allclose(logits, expected[:, index], atol=1e-5)


@pytest.mark.parametrize("fields, growing", FIELDS_AND_CACHES)
def test_hypotheses_take_their_past_with_them(small_config, fields, growing):
    """Three of each sentence, which continue any other at each position."""
    model = kt.Transformer(dataclasses.replace(small_config, **fields))
    random = np.random.default_rng(7)
    memory = model.encode(SOURCE)
    cache = model.make_cache(2, 6, beam_size=3, growing=growing)
    of_each = model.encode(np.repeat(SOURCE, 3, axis=0))
    past = np.zeros((2, 3, 0), int)
    for index in range(5):
        parents = random.integers(0, 3, (2, 3))
        past = np.take_along_axis(past, parents[:, :, None], axis=1)
        cache = model.reorder_cache(cache, tf.constant(parents, tf.int32))
        ids = random.integers(4, 11, (2, 3))
        past = np.concatenate([past, ids[:, :, None]], axis=2)
        found, cache = model.decode_step(
            ids.reshape(-1).astype("int32"), memory, cache, tf.constant(index)
        )
        expected = model.decode(past.reshape(6, -1), of_each)
        np.testing.assert_allclose(found, expected[:, -1], atol=1e-5)


def test_call_is_decode_of_encode(small_config):
    model = kt.Transformer(small_config)
    decoded = model.decode(TARGET, model.encode(SOURCE))
    assert_close(decoded, logits_of(model))


def test_dropout_acts_in_training_only(small_config):
    model = kt.Transformer(dataclasses.replace(small_config, dropout=0.5))
    inputs = {"source_ids": SOURCE, "target_ids": TARGET}
    assert np.array_equal(logits_of(model), logits_of(model))
    noisy = model(inputs, training=True).numpy()
    assert np.abs(noisy - logits_of(model)).max() > 1e-3


def test_each_dropout_has_the_rate_of_its_field(small_config, monkeypatch):
    """A layer that is told no rate has none: here every one is told."""
    rates = set()

    def remember(rate, name, **kwargs):
        rates.add((name, rate))
        return Dropout(rate, name=name, **kwargs)

    for module in (attention, embeddings, sublayers):
        monkeypatch.setattr(module, "Dropout", remember)
    fields = {"attention_dropout": 0.2, "activation_dropout": 0.3}
    kt.Transformer(dataclasses.replace(small_config, dropout=0.1, **fields))
    assert rates == {
        ("sum_dropout", 0.1),
        ("output_dropout", 0.1),
        ("weight_dropout", 0.2),
        ("activation_dropout", 0.3),
    }


def test_attention_maps_are_those_of_every_layer_and_head(small_config):
    """Against NumPy: the first layers from embeddings, the rest by sums."""
    model = kt.Transformer(small_config)
    maps = model.attention_maps({"source_ids": SOURCE, "target_ids": TARGET})
    assert maps.encoder.shape == (2, 2, 2, 5, 5)
    assert maps.decoder.shape == (2, 3, 2, 4, 4)
    assert maps.cross.shape == (2, 3, 2, 4, 5)
    for weights in maps:
        np.testing.assert_allclose(np.sum(weights, -1), 1, atol=1e-5)
    maps = kt.model.AttentionMaps(*(weights.numpy() for weights in maps))
    assert not np.any(maps.decoder[..., ~np.tril(np.ones((4, 4), bool))])
    assert not np.any(maps.cross[1, ..., 3:]) and np.all(maps.cross[0] > 0)
    assert not np.any(maps.encoder[1, ..., 3:])

    for embedded, ids, blocks, found in [
        ("encoder", SOURCE, model.encoder.blocks, maps.encoder),
        ("decoder", TARGET, model.decoder.blocks, maps.decoder),
    ]:
        x = model.embedding(ids).numpy()[0]
        query, key, *_ = blocks[0].self_attention.get_weights()
        for head in range(2):
            columns = slice(3 * head, 3 * head + 3)
            scores = x @ query[:, columns] @ (x @ key[:, columns]).T / 3**0.5
            if embedded == "decoder":
                scores = np.where(np.tril(np.ones((4, 4))) > 0, scores, -1e9)
            np.testing.assert_allclose(
                found[0, 0, head], references.softmax(scores), atol=1e-5
            )
    different = maps.cross[0].reshape(6, -1)  # layers and heads of their own
    assert len(np.unique(different.round(6), axis=0)) == 6


@pytest.mark.parametrize("length", [5, 80])
def test_maps_of_restricted_attention_are_whole_matrices(small_config, length):
    """Those of full attention under the same mask, in one chunk and in many."""
    config = dataclasses.replace(small_config, attention_window=4)
    model, plain = kt.Transformer(config), kt.Transformer(small_config)
    plain.set_weights(model.get_weights())
    ids = np.random.default_rng(0).integers(4, 19, (2, length))
    ids[1, 2:] = 0
    inputs = {"source_ids": ids, "target_ids": ids}
    maps, rows = model.attention_maps(inputs), ids > 0
    for found, causal in [(maps.encoder, False), (maps.decoder, True)]:
        found = found.numpy()
        sees = references.sees(length, 4, causal)
        assert found.shape[-2:] == (length, length)
        assert not found[..., ~sees].any()
        sums = found[:, 0].sum(-1)  # [B, H, T]
        np.testing.assert_allclose(sums[0], 1, atol=1e-5)
        blocks = (plain.decoder if causal else plain.encoder).blocks
        attention = blocks[0].self_attention  # its input has no layer below
        x = plain.embedding(ids)
        with kt.layers.recorded_weights() as recorded:
            attention(x, x, sees[None, None])
        np.testing.assert_allclose(
            found[0, 0], recorded[attention][0], atol=1e-5
        )
    lone = maps.encoder[1, 0, 0].numpy()  # two tokens, then padding
    np.testing.assert_allclose(lone[:2].sum(-1), 1, atol=1e-5)
    assert not lone[5:].any() and not lone[:, ~rows[1]].any()


def test_recording_ends_with_the_call(small_config):
    model = kt.Transformer(small_config)
    with kt.layers.recorded_weights() as outer:
        model.attention_maps({"source_ids": SOURCE, "target_ids": TARGET})
        assert not outer
    logits_of(model)
    assert not outer


def test_ids_outside_the_vocabulary_fail_their_sentence_alone(small_config):
    model = kt.Transformer(small_config)
    expected = logits_of(model)
    for name in ("source", "target"):
        for wrong in (19, -1):
            inputs = {"source": SOURCE.copy(), "target": TARGET.copy()}
            inputs[name][0, 1] = wrong
            logits = logits_of(model, **inputs)
            assert np.isnan(logits[0, 1:]).all(), (name, wrong)
            np.testing.assert_allclose(logits[1], expected[1], atol=1e-5)


def test_save_and_load_are_bit_equal(small_config, tmp_path):
    model = kt.Transformer(small_config)
    model.compile(
        kt.paper_adam(8, warmup_steps=10), kt.SmoothedCrossEntropy(0.1)
    )
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.config == small_config
    assert isinstance(loaded.loss, kt.SmoothedCrossEntropy)
    np.testing.assert_array_equal(logits_of(loaded), logits_of(model))
    model.save_weights(tmp_path / "model.weights.h5")
    other = kt.Transformer(small_config)
    other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(logits_of(other), logits_of(model))


@pytest.mark.parametrize(
    "fields",
    [{}, *later("options", {"positions": "relative"}, {"attention_window": 3})],
)
def test_ids_may_be_empty(small_config, fields):
    """No row, no position, or neither, of source, target or both."""
    model = kt.Transformer(dataclasses.replace(small_config, **fields))
    for rows, source, target in np.ndindex(2, 2, 2):
        found = logits_of(
            model, SOURCE[:rows, : 5 * source], TARGET[:rows, : 4 * target]
        )
        assert found.shape == (rows, 4 * target, small_config.vocab_size)
        assert np.isfinite(found).all()


def test_config_or_its_fields(small_config):
    fields = dataclasses.asdict(small_config)
    assert kt.Transformer(**fields).config == small_config
    copy = kt.Transformer.from_config(kt.Transformer(**fields).get_config())
    assert copy.config == small_config
    with pytest.raises(ValueError, match="d_model"):
        kt.Transformer(small_config, d_model=16)


def test_a_source_may_be_a_symbolic_input():
    """`encode` works in the functional API."""
    model = kt.Transformer(
        vocab_size=11, d_model=8, d_ff=16, num_heads=2, num_layers=1
    )
    ids = keras.Input((None,), dtype="int32")
    keys = model.encode(ids).key_values[0].keys
    assert isinstance(keys, keras.KerasTensor)
    expected = model.encode(tf.constant([[4, 5, 2, 0]])).key_values[0].keys
    assert keys.dtype == expected.dtype
    assert len(keys.shape) == len(expected.shape)
