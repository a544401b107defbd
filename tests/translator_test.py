"""Strings to strings: every line answered, alone or in company."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.config import DecodingConfig, TransformerConfig
from keras_transformer.model import Transformer
from keras_transformer.tokenization import Tokenizer
from keras_transformer.translator import Translator, bucket, pad_rows
from keras_transformer.vocabulary import EOS, PAD
from keras_transformer.workdir import WorkDirectory, named_weights

TEXT = [
    "the quick brown fox jumps over the lazy dog",
    "pack my box with five dozen liquor jugs",
    "how quickly daft jumping zebras vex",
]
CONFIG = TransformerConfig(
    vocab_size=60, d_model=16, d_ff=16, num_heads=2, num_layers=1
)


def make_translator(seed=3, **options):
    """A translator whose model knows nothing, but is sure of it."""
    beam_size = options.pop("beam_size", 2)
    decoding = DecodingConfig(
        beam_size=beam_size, extra_length=3, sampling=False
    )
    decoding = dataclasses.replace(decoding, **options.pop("decoding", {}))
    model = Transformer(CONFIG)
    random = np.random.default_rng(seed)
    for weight in model.trainable_weights:
        weight.assign(random.normal(size=weight.shape, scale=0.5))
    options = {"max_source_length": 30, **options}
    tokenizer = Tokenizer.train(TEXT, CONFIG.vocab_size)
    return Translator(tokenizer, model, decoding, **options)


@pytest.fixture(scope="module")
def translator():
    """Shared, since tracing its graphs is slow: change it by `monkeypatch`."""
    return make_translator()


def test_same_answer_in_any_company(translator, monkeypatch):
    lines = [TEXT[0], "fox", TEXT[1], "the dog", "", TEXT[2], "fox"]
    together = translator.translate(lines)
    alone = [translator.translate([line])[0] for line in lines]
    assert together == alone
    assert together[1] == together[6]
    assert len(set(together)) > 3
    monkeypatch.setattr(translator, "batch_tokens", 16)
    assert translator.translate(lines) == together


def test_blank_lines_do_not_reach_the_model(translator, monkeypatch):
    monkeypatch.setattr(translator, "_graph", None)
    assert translator.translate(["", "  ", "\t\n"]) == [""] * 3
    assert translator.translate([]) == []


def test_long_line_is_truncated_and_named(translator, monkeypatch, caplog):
    monkeypatch.setattr(translator, "max_source_length", 4)
    tokens = translator.tokenizer.encode([TEXT[0]])[0].numpy()
    found = translator.translate_ids(tf.constant([[*tokens[:3], EOS]]))
    expected = translator.tokenizer.decode(found.ids[0]).numpy()[0].decode()
    truncated, short = translator.translate([TEXT[0], "fox"])
    assert truncated == expected
    assert short == translator.translate(["fox"])[0]
    assert f"line 1 has {len(tokens) - 1} tokens, truncated to 3" in caplog.text
    assert "line 2" not in caplog.text


def test_n_best_is_ordered_and_starts_with_the_translation(translator):
    [hypotheses] = translator.n_best(["the fox"])
    assert len(hypotheses) == 2
    scores = [score for _, score in hypotheses]
    assert scores == sorted(scores, reverse=True)
    assert translator.translate(["the fox"]) == [hypotheses[0][0]]
    assert translator.n_best([""]) == [[("", 0.0)]]


def test_output_is_at_most_extra_length_longer():
    translator = make_translator(decoding={"min_length": 50})
    rows = [[5, 6, 7, EOS], [5, EOS, PAD, PAD], [EOS, PAD, PAD, PAD]]
    found = translator.translate_ids(tf.constant(rows))
    np.testing.assert_array_equal(found.lengths[:, 0], [3 + 3, 1 + 3, 0])


def test_unknown_length_and_known_length_agree(translator):
    rows = tf.constant([[5, 6, EOS, PAD], [9, 8, 7, EOS]])
    spec = tf.TensorSpec([None, None], tf.int32)
    graph = tf.function(
        translator.translate_ids, input_signature=[spec], autograph=False
    )
    known, unknown = translator.translate_ids(rows), graph(rows)
    np.testing.assert_allclose(known.scores, unknown.scores, rtol=1e-5)
    length = known.ids.shape[-1]
    np.testing.assert_array_equal(known.ids, unknown.ids[..., :length])


def test_few_graphs(translator):
    translator.translate(["fox"] * 3 + TEXT)
    number = len(translator._graphs)
    searches = [key for key in translator._graphs if "translate" in key[0]]
    assert 0 < len(searches) <= len({bucket(n) for n in range(1, 31)})
    translator.translate(["dog", "the fox", *TEXT[::-1], "the lazy dog"])
    assert len(translator._graphs) == number


def test_ids_and_scores_are_those_of_the_texts(translator):
    lines = [TEXT[0], "", "the fox"]
    texts = translator.n_best(lines)
    for hypotheses, in_ids in zip(
        texts, translator.n_best_ids(lines), strict=True
    ):
        assert [score for _, score in in_ids] == [h[1] for h in hypotheses]
        ids = [ids for ids, _ in in_ids]
        decoded = translator.tokenizer.decode(ids).numpy()
        assert [text.decode() for text in decoded] == [h[0] for h in hypotheses]
    assert translator.n_best_ids([""]) == [[([], 0.0)]]
    assert (
        EOS in translator.n_best_ids(lines)[2][0][0]
        or len(translator.n_best_ids(lines)[2][0][0])
        == 3 + len(translator.tokenizer.encode(["the fox"])[0]) - 1
    )


def test_with_decoding_changes_a_copy_alone(translator, monkeypatch):
    unusual = {"checkpoint": "ckpt-1", "seed": 5, "batch_tokens": 99}
    for name, value in {**unusual, "jit_compile": True}.items():
        monkeypatch.setattr(translator, name, value)
    greedy = translator.with_decoding(beam_size=1)
    assert greedy.decoding == dataclasses.replace(
        translator.decoding, beam_size=1
    )
    assert translator.decoding.beam_size == 2
    kept = ("tokenizer", "model", "max_source_length", "batch_tokens")
    for name in (*kept, "jit_compile", "seed", "checkpoint"):
        assert getattr(greedy, name) is getattr(translator, name), name
    with pytest.raises(ValueError, match="beam_size=0"):
        translator.with_decoding(beam_size=0)


def test_the_score_of_a_translation_is_what_the_search_found(translator):
    lines = [TEXT[0], "fox", "the dog"]
    translator = translator.with_decoding(beam_size=1, length_penalty=0.0)
    found = translator.n_best_ids(lines)
    # Not by way of text, which may be segmented otherwise.
    source_ids = pad_rows(translator.tokenizer.encode(lines).to_list())
    labels = pad_rows([hypotheses[0][0] for hypotheses in found])
    log_probs = translator.score_ids(
        tf.constant(source_ids), tf.constant(labels)
    ).numpy()
    assert log_probs.shape == labels.shape
    assert np.all((log_probs == 0) == (labels == PAD))
    np.testing.assert_allclose(
        log_probs.sum(1)[:3], [h[0][1] for h in found], rtol=1e-4
    )


def test_scores_are_the_models_own(translator, monkeypatch):
    """Against logits of one pair alone, without padding."""
    pairs = [("the fox", "how quickly"), (TEXT[1], "dog"), ("dog", "")]
    monkeypatch.setattr(translator, "batch_tokens", 16)
    for (source, target), score in zip(
        pairs, translator.score(pairs), strict=True
    ):
        source_ids = translator.tokenizer.encode([source]).to_tensor()
        labels = translator.tokenizer.encode([target]).to_list()[0]
        logits = translator.model(
            {
                "source_ids": source_ids,
                "target_ids": np.array([[1, *labels[:-1]]]),
            }
        ).numpy()[0]
        logits = logits.astype("float64")
        log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        assert score.ids == labels and score.ids[-1] == EOS
        np.testing.assert_allclose(
            score.log_probs, log_probs[range(len(labels)), labels], atol=1e-4
        )
        assert score.truncated is False
    assert translator.score([]) == []


def test_long_pairs_are_scored_truncated_and_say_so(
    translator, monkeypatch, caplog
):
    # And 4 + 3 tokens of a translation.
    monkeypatch.setattr(translator, "max_source_length", 4)
    scores = translator.score(
        [("fox", "dog"), (TEXT[0], "dog"), ("fox", TEXT[0])]
    )
    assert [score.truncated for score in scores] == [False, True, True]
    assert len(scores[2].ids) == 7 and scores[2].ids[-1] == EOS
    assert "line 2 has" in caplog.text and "truncated to 3 (" in caplog.text
    assert "line 3 has" in caplog.text and "truncated to 6 (" in caplog.text
    assert "line 1" not in caplog.text


@pytest.mark.parametrize(
    "pairs", ["ab", [("a", "b", "c")], ["ab"], [("a", None)], None]
)
def test_wrong_pairs(pairs, translator):
    with pytest.raises(TypeError, match="Received: "):
        translator.score(pairs)


def test_weights_that_are_no_numbers_raise(translator):
    weight = translator.model.trainable_weights[0]
    right = weight.numpy()
    weight.assign(np.nan * right)
    try:
        for call in (translator.translate, translator.n_best_ids):
            with pytest.raises(FloatingPointError, match="line 2: the model's"):
                call(["", "fox"])
        with pytest.raises(FloatingPointError, match="line 1: the model's"):
            translator.score([("fox", "dog")])
        assert translator.translate([""]) == [""]
    finally:
        weight.assign(right)


def test_a_huge_limit_and_a_huge_line_cost_what_they_hold(translator):
    [row], [truncated] = translator._encode(
        translator.tokenizer, ["fox"], 1, 10**9
    )
    assert row == translator.tokenizer.encode(["fox"]).to_list()[0]
    assert not truncated
    rows, truncated = translator._encode(
        translator.tokenizer, ["fox " * 10**5] + ["a"] * 999, 1, 5
    )
    assert truncated == [True] + [False] * 999
    assert len(rows[0]) == 5 and rows[0][-1] == EOS
    assert rows[1:] == translator.tokenizer.encode(["a"] * 999).to_list()


def test_xla_gives_the_same():
    lines = ["fox", "the dog"]
    plain = make_translator(beam_size=1)
    compiled = make_translator(beam_size=1, jit_compile=True)
    assert compiled.translate(lines) == plain.translate(lines)


def test_sampling_goes_on_anew_but_the_same_for_a_seed():
    sampling = {"sampling": True, "temperature": 5.0}
    first = make_translator(decoding=sampling)
    second = make_translator(decoding=sampling)
    samples = [first.translate([TEXT[0]])[0] for _ in range(3)]
    assert len(set(samples)) > 1
    assert [second.translate([TEXT[0]])[0] for _ in range(3)] == samples


@pytest.mark.parametrize(
    "strings", ["a line", None, [b"bytes"], ["a", None], ["a", 1], {"a": 1}]
)
def test_wrong_types(strings, translator):
    with pytest.raises(TypeError, match="must be a list of str. Received: "):
        translator.translate(strings)


def test_wrong_arguments(translator):
    with pytest.raises(ValueError, match="max_source_length must be at least"):
        make_translator(max_source_length=1)
    with pytest.raises(ValueError, match="Received: batch_tokens=0"):
        make_translator(batch_tokens=0)
    model = Transformer(dataclasses.replace(CONFIG, vocab_size=61))
    with pytest.raises(ValueError, match="60 and 61 tokens"):
        Translator(translator.tokenizer, model, DecodingConfig(), 9)


def test_padded_shapes():
    ids = pad_rows([[5, EOS], [6, 7, EOS], [5, 6, 7, 8, 9, 5, 6, 7, EOS]])
    assert ids.shape == (4, 16) and ids.dtype == np.int32
    assert ids[3].tolist() == [EOS] + [PAD] * 15
    assert ids[1].tolist() == [6, 7, EOS] + [PAD] * 13


# The work directory


def save(workdir, kind, step, translator):
    workdir.write_config(
        model=translator.model.config,
        data=DecodingConfig(),
        decoding=translator.decoding,
    )
    translator.tokenizer.save(workdir.tokenizer_path)
    checkpoint = tf.train.Checkpoint(weights=named_weights(translator.model))
    return getattr(workdir, kind).save(checkpoint, step, keep=1)


def test_load_takes_averaged_then_best_then_latest(tmp_path):
    workdir = WorkDirectory(tmp_path)
    options = {"max_source_length": 30}
    expected, prefixes = {}, {}

    def is_of(loaded, kind):
        found = loaded.model.get_weights()
        return loaded.checkpoint == prefixes[kind] and all(
            map(np.array_equal, found, expected[kind])
        )

    for seed, kind in enumerate(("latest", "best", "averaged")):
        translator = make_translator(seed, beam_size=1)
        prefixes[kind] = prefix = save(workdir, kind, 9 - seed, translator)
        expected[kind] = translator.model.get_weights()
        loaded = Translator.load(tmp_path, **options)
        assert is_of(loaded, kind)
        assert loaded.decoding == translator.decoding
    assert loaded.translate(["the fox"]) == translator.translate(["the fox"])
    for checkpoint in ("best", "latest", prefix, prefix + ".index"):
        loaded = Translator.load(tmp_path, checkpoint=checkpoint, **options)
        assert is_of(
            loaded, "averaged" if checkpoint.startswith(prefix) else checkpoint
        )
    decoding = DecodingConfig(beam_size=3)
    loaded = Translator.load(tmp_path, decoding, **options)
    assert loaded.decoding.beam_size == 3
    (tmp_path / "averaged/ckpt-7.index").write_bytes(b"half")
    assert is_of(Translator.load(tmp_path, **options), "best")


def test_load_says_what_is_missing(tmp_path, translator):
    with pytest.raises(ValueError, match="expected a work directory made by"):
        Translator.load(tmp_path)
    workdir = WorkDirectory(tmp_path)
    prefix = save(workdir, "latest", 1, translator)
    options = {"max_source_length": 30}
    with pytest.raises(ValueError, match="no best checkpoint yet"):
        Translator.load(tmp_path, checkpoint="best", **options)
    with pytest.raises(ValueError, match="no such checkpoint.*/no/such"):
        Translator.load(tmp_path, checkpoint="/no/such", **options)
    (tmp_path / "checkpoints/ckpt-1.index").write_bytes(b"")
    with pytest.raises(ValueError, match=f"every .* corrupt: {prefix}"):
        Translator.load(tmp_path, **options)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="config.json: not JSON"):
        Translator.load(tmp_path)
    (tmp_path / "config.json").write_text('{"format_version": 9}')
    with pytest.raises(ValueError, match="Received: format_version=9"):
        Translator.load(tmp_path)


def test_only_files_count_and_leftovers_go(tmp_path, translator):
    """As after a kill: a newer step that training did not come to again."""
    workdir = WorkDirectory(tmp_path)
    checkpoint = tf.train.Checkpoint(weights=named_weights(translator.model))
    for step in (2, 4, 6):
        workdir.latest.save(checkpoint, step, keep=2)
    (tmp_path / "checkpoints/ckpt-8_temp").mkdir()
    (tmp_path / "checkpoints/ckpt-8.data-00000-of-00001").write_bytes(b"1")
    assert workdir.latest.find_intact().endswith("ckpt-6")
    workdir.latest.save(checkpoint, 5, keep=2)
    names = {p.name.split(".")[0] for p in workdir.latest.directory.iterdir()}
    assert names == {"ckpt-4", "ckpt-5"}
