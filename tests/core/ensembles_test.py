"""Ensembles: several models that search as one."""

import dataclasses
import io
import json
import pathlib
import shutil
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from commands import changed_config
from later import later
from tolerance import assert_close

from keras_transformer.commands.flags import CommandError
from keras_transformer.config import DecodingConfig, TransformerConfig
from keras_transformer.figures.attention import attention_figure
from keras_transformer.model import Transformer
from keras_transformer.storage.checkpoints import named_weights
from keras_transformer.storage.workdir import WorkDirectory
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.text.vocabulary import BOS, EOS, PAD
from keras_transformer.translation.inference import Inference
from keras_transformer.translator import Translator
from savedmodel import export
from trainers import evaluate, score, translate
from trainers.serving.pairs import load_pairs
from trainers.translating.options import EnsembleOptions
from trainers.translating.shards import make_settings

CONFIG = TransformerConfig(
    vocab_size=13, d_model=8, d_ff=16, num_heads=2, num_layers=1, dropout=0.0
)
SOURCES = np.array(
    [[4, 5, 6, EOS, PAD], [7, EOS, PAD, PAD, PAD], [9, 8, 8, 12, EOS]], "int32"
)


def make_model(seed, **changes):
    """Makes a model with distributions far from uniform."""
    model = Transformer(dataclasses.replace(CONFIG, **changes))
    random = np.random.RandomState(seed)
    for weight in model.weights:
        weight.assign(random.normal(size=weight.shape, scale=0.8))
    return model


def log_probs(models, how, source_ids, hypotheses):
    """Computes float64 [N, V] after N hypotheses, by whole forward passes.

    Args:
        models: Members of the ensemble.
        how: They are combined.
        source_ids: [1, S], the sentence of all hypotheses.
        hypotheses: N tuples of ids.
    """
    target_ids = np.array([[BOS, *ids] for ids in hypotheses], "int32")
    source_ids = np.repeat(source_ids, len(hypotheses), axis=0)
    each = []
    for model in models:
        logits = model({"source_ids": source_ids, "target_ids": target_ids})
        last = np.array(logits, "float64")[:, -1]
        each.append(last - np.log(np.sum(np.exp(last), axis=1, keepdims=True)))
    if how == "linear":
        return np.log(np.mean(np.exp(each), axis=0))
    mean = np.mean(each, axis=0)
    return mean - np.log(np.sum(np.exp(mean), axis=1, keepdims=True))


def beam(models, how, source_ids, width, length):
    """Finds a beam search's best output without length penalty, in Python."""
    live, finished = [(0.0, ())], []
    for _ in range(length):
        rows = log_probs(models, how, source_ids, [ids for _, ids in live])
        grown = [
            (value + row[token], (*ids, token))
            for (value, ids), row in zip(live, rows, strict=True)
            for token in range(len(row))
            if token not in (PAD, BOS)
        ]
        grown = sorted(grown, reverse=True)[: 2 * width if width > 1 else 1]
        finished += [found for found in grown if found[1][-1] == EOS]
        live = [found for found in grown if found[1][-1] != EOS][:width]
        if width == 1 and finished:  # greedy search
            break
    return max(finished or live)


@pytest.mark.parametrize(
    ("how", "width"),
    [("linear", 3), *later("options", ("linear", 1), ("log_linear", 3))],
)
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
        extra_length=2,
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
        [row] = log_probs(models, how, SOURCES[:1, :4], [labels[0, :position]])
        np.testing.assert_allclose(scores[position], row[token], rtol=1e-4)


def test_the_mean_of_probabilities_below_the_range_of_float32():
    models = [make_model(0), make_model(1)]
    for model in models:
        model.set_weights([6 * weight for weight in model.get_weights()])
    source_ids = SOURCES[:1, :4]
    [row] = log_probs(models, "linear", source_ids, [()])
    token = int(np.argmin(row[PAD + 1 :])) + PAD + 1
    assert -700 < row[token] < np.log(np.finfo("float32").tiny)
    inference = Inference(models, DecodingConfig(ensemble="linear"), 8)
    scores = inference.score_ids(source_ids, np.array([[token, EOS]], "int32"))
    np.testing.assert_allclose(np.array(scores)[0, 0], row[token], rtol=1e-4)


def test_an_ensemble_of_one_model_twice_is_that_model():
    """It is not so bit by bit, since the mean rounds."""
    model = make_model(4)
    decoding = DecodingConfig(beam_size=3, stopping="exact", extra_length=3)
    alone = Inference(model, decoding, 8).translate_ids(SOURCES)
    twice = Inference([model, model], decoding, 8).translate_ids(SOURCES)
    assert_close([alone.ids, alone.scores], [twice.ids, twice.scores])


def test_a_failing_member_fails_the_search():
    """NaN of one model is not hidden by the mean."""
    broken = make_model(1)
    broken.weights[0].assign(np.full(broken.weights[0].shape, np.nan))
    inference = Inference([make_model(0), broken], DecodingConfig(), 8)
    found = inference.translate_ids(SOURCES)
    assert np.all(np.isnan(keras.ops.convert_to_numpy(found.scores[:, 0])))


# ---- Work directories --------------------------------------------------------

RUN = pathlib.Path(__file__).parents[1] / "fixtures/workdir_0_2/run"
SIZES = {"vocab_size": 60, "d_ff": 8}
LINES = ["a dog", "", "a cat and a dog", "the dog"]
PAIRS = [("a dog", "Hund da ."), ("a cat and a dog", "o 5")]


@pytest.fixture(scope="module")
def members(tmp_path_factory):
    """Two work directories of one vocabulary, with different models."""
    paths = []
    for seed, changes in enumerate([{}, {"d_model": 12, "num_heads": 3}]):
        workdir = WorkDirectory(tmp_path_factory.mktemp("members") / "run")
        workdir.path.mkdir()
        shutil.copy(RUN / "tokenizer.model", workdir.path)
        shutil.copy(RUN / "config.json", workdir.path)
        model = make_model(seed, **SIZES, **changes)
        workdir.replace_section("model", model.config)
        weights = {"weights": named_weights(model)}
        workdir.averaged.save(weights, step=6 + seed, keep=1)
        paths.append(str(workdir.path))
    return paths


@pytest.fixture(scope="module")
def ensemble(members):
    return Translator.load(members)


def copy_of(path, target, **data):
    """Copies a work directory with other values in its section `data`."""
    shutil.copytree(path, target)
    with changed_config(target) as config:
        config["data"] |= data
    return str(target)


@pytest.mark.slow("run")
def test_a_translator_of_work_directories_scores_by_the_mean(members, ensemble):
    alone = [Translator.load(path).score(PAIRS) for path in members]
    for mean, *each in zip(ensemble.score(PAIRS), *alone, strict=True):
        assert each[0].log_probs != pytest.approx(each[1].log_probs, abs=0.1)
        expected = np.log(np.mean(np.exp([s.log_probs for s in each]), axis=0))
        np.testing.assert_allclose(mean.log_probs, expected, rtol=1e-4)
    other = ensemble.with_decoding(ensemble="log_linear").score(PAIRS)
    assert other[0].log_probs != pytest.approx(mean.log_probs, abs=0.1)
    assert [pathlib.Path(p).stem for p in ensemble.checkpoints] == [
        "ckpt-6",
        "ckpt-7",
    ]
    assert ensemble.checkpoint == ensemble.checkpoints[0]
    first = Translator.load(members[0])
    assert ensemble.align(PAIRS) == first.align(PAIRS)


def test_the_shortest_length_and_the_precision_of_all(members, tmp_path):
    short = copy_of(members[1], tmp_path / "short", max_length=12)
    loaded = Translator.load([members[0], short], precision="bfloat16")
    assert loaded.max_source_length == 12
    assert [model.dtype for model in loaded.models] == ["bfloat16"] * 2


def test_models_that_are_no_ensemble_are_refused(members, tmp_path):
    """The line names both directories, or the value."""
    other = tmp_path / "vocabulary"
    copy_of(members[1], other)
    lines = [f"{n} {n + 1} a b c d e f g h i j k l m n o" for n in range(60)]
    WorkDirectory(other).save_tokenizer(Tokenizer.train(lines, vocab_size=40))
    with changed_config(other) as config:
        del config["tokenizer_sha256"]
    french = copy_of(members[1], tmp_path / "fr", target_language="fr")
    for path, what in ((str(other), "vocabulary"), (french, "languages")):
        with pytest.raises(ValueError, match=f"must have the same {what}") as e:
            Translator.load([members[0], path])
        assert f"{members[0]} and {path}, which differ" in str(e.value)
    checkpoint = f"{members[0]}/averaged/ckpt-6"
    with pytest.raises(
        ValueError, match="averaged or best or latest of several.*ckpt-6"
    ):
        Translator.load(members, checkpoint=checkpoint)
    with pytest.raises(ValueError, match="expected a work directory"):
        Translator.load([])
    with pytest.raises(ValueError, match="expected a work dir.*/no/such"):
        Translator.load([members[0], "/no/such"])


def test_what_has_one_model_says_so(ensemble, tmp_path):
    options = export.ExportOptions(
        workdir="run", format="saved_model", output=str(tmp_path)
    )
    with pytest.raises(CommandError, match="has one model. Received: 2"):
        export.write(export.Source(ensemble, [], ("", "")), options, tmp_path)
    page = attention_figure(ensemble, "a dog", "Hund").html()
    assert "The first model of the ensemble has this attention." in page


def test_the_plan_of_shards_has_all_models(members, ensemble):
    one = make_settings(Translator.load(members[0]), shard_lines=5)
    two = make_settings(ensemble, shard_lines=5)
    twice = make_settings(Translator.load([members[0]] * 2), shard_lines=5)
    [its] = two.pop("other_models")
    assert its["d_model"] == 12
    [same] = twice.pop("other_models")
    assert same["checkpoint_sha256"] == one["checkpoint_sha256"]
    assert same["checkpoint_sha256"] != its["checkpoint_sha256"]
    assert one == two == twice


# ---- Commands ----------------------------------------------------------------


@pytest.mark.slow("run")
def test_translate_and_evaluate_take_several(
    members, ensemble, tmp_path, monkeypatch, capsysbinary
):
    """The systems that evaluate compares are single models."""
    text = io.BytesIO("".join(f"{line}\n" for line in LINES).encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(text))
    argv = [f"--workdir={','.join(members)}"]
    translate.main(argv)
    found = capsysbinary.readouterr().out.decode().split("\n")[:-1]
    assert found == ensemble.translate(LINES)

    files = ["--test_files=" + str(RUN.parent / "pairs")]
    output = tmp_path / "output"
    log_linear = ["--ensemble=log_linear", f"--output={output}"]
    evaluate.main([*argv, *files, *log_linear, f"--compare={members[1]}"])
    sources = (RUN.parent / "pairs.en").read_text().splitlines()
    other = ensemble.with_decoding(ensemble="log_linear")
    assert output.read_text().splitlines() == other.translate(sources)
    *_, last = capsysbinary.readouterr().out.decode().splitlines()
    compared = json.loads(last)["compare"]
    assert compared["baseline"]["name"] == members[1]
    assert [s["name"] for s in compared["systems"]] == [",".join(members)]

    score.main([*argv, *files, "--ensemble=log_linear"])
    *_, last = capsysbinary.readouterr().out.decode().splitlines()
    references = (RUN.parent / "pairs.de").read_text().splitlines()
    pairs = list(zip(sources, references, strict=True))
    expected = sum(sum(pair.log_probs) for pair in other.score(pairs))
    assert json.loads(last)["log_prob"] == pytest.approx(expected, rel=1e-4)


def test_a_server_has_ensembles_and_pairs(members, tmp_path):
    german = copy_of(
        members[0], tmp_path / "de", source_language="de", target_language="en"
    )
    options = EnsembleOptions(
        workdir=",".join([members[0], german, members[1]])
    )
    found = load_pairs(options, {"ensemble": "log_linear"}, max_searches=1)
    assert [(p.source, p.target) for p in found] == [("en", "de"), ("de", "en")]
    assert [len(pair.translator.models) for pair in found] == [2, 1]
    assert found[0].translator.decoding.ensemble == "log_linear"
