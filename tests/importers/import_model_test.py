"""Imported models of Hugging Face answer as in transformers.

`fixtures/make_marian.py` made the models and what is expected, with
transformers. Ids in `expected.json` are the original's.
"""

import argparse
import dataclasses
import functools
import json
import os
import pathlib
import pickle
import re
import shutil
import zipfile

import numpy as np
import pytest
import tensorflow as tf
from commands import fails
from original_models import FIXTURES, POINTER
from sentencepiece import sentencepiece_model_pb2

from keras_transformer.commands.flags import CommandError
from keras_transformer.config import DecodingConfig, TransformerConfig
from keras_transformer.importers import (
    find_format,
    generation,
    huggingface,
    marian_huggingface,
    read_model,
)
from keras_transformer.importers.imported import describe_tables
from keras_transformer.importers.stacks import SIDES
from keras_transformer.importers.tensors import read_safetensors
from keras_transformer.importers.torch_pickle import Plain, read_torch
from keras_transformer.model import Transformer
from keras_transformer.storage.checkpoints import named_weights
from keras_transformer.text.vocabulary import BOS, EOS, PAD
from keras_transformer.translator import Translator
from savedmodel import export
from savedmodel.formats import Export, check_model
from savedmodel.huggingface import write as write_huggingface
from savedmodel.huggingface import write_safetensors
from savedmodel.reload.tokenizer import load_vocabularies
from trainers import import_model

SHARED, SEPARATE = FIXTURES / "marian_shared", FIXTURES / "marian_separate"
BOTH = pytest.mark.parametrize(
    "source", [SHARED, SEPARATE], ids=lambda d: d.name
)
BIAS = "embedding/logits_bias"
WEIGHTS = "model.safetensors"


class Import:
    """An imported fixture, and the ids of both."""

    def __init__(self, source, workdir):
        import_model.main([f"--source={source}", f"--workdir={workdir}"])
        self.workdir = workdir
        self.translator = Translator.load(workdir)
        self.expected = json.loads((source / "expected.json").read_text())
        self.logits = np.load(source / "logits.npz")["logits"]
        self.vocabularies = sides_of(source)

    def ours(self, rows, side):
        """Converts rows of the original's ids to ours."""
        ids = self.vocabularies[side].ids
        numbers = {its: id for id, its in enumerate(ids) if id != BOS}
        return [[numbers[id] for id in row] for row in rows]

    def padded(self, rows):
        return tf.ragged.constant(rows, tf.int32).to_tensor(PAD)

    def sources(self):
        return self.padded(self.ours(self.expected["source_ids"], side=0))


@pytest.fixture(scope="module")
def imports(tmp_path_factory):
    directory = tmp_path_factory.mktemp("imports")
    return {s: Import(s, directory / s.name) for s in (SHARED, SEPARATE)}


# ---- Answers -----------------------------------------------------------------


@BOTH
def test_ids_are_those_of_its_tokenizer(imports, source):
    model = imports[source]
    for of_text, texts, side in (
        ("source_ids", "sources", 0),
        ("odd_source_ids", "odd", 0),
        ("odd_target_ids", "odd", 1),
    ):
        tokenizer = list(model.translator.tokenizer)[side]
        strings = model.expected[texts]
        expected = model.ours(model.expected[of_text], side)
        assert tokenizer.encode(strings).to_list() == expected
        # The same without TensorFlow, for alignments and for exports.
        tokens = tokenizer.tokens(strings)
        assert [[t.id for t in row] + [EOS] for row in tokens] == expected
    with_code = strings.index(">>deu<< the dog sleeps")
    words = [token.word for token in tokens[with_code]]
    assert words == sorted(words) and {*words} == {0, 1, 2, 3}


@BOTH
def test_logits_are_those_of_its_model(imports, source):
    model = imports[source]
    labels = model.ours(model.expected["labels"], side=1)
    few = model.sources()[: len(labels)]
    targets = model.padded([[BOS, *row[:-1]] for row in labels])
    found = model.translator.model({"source_ids": few, "target_ids": targets})
    ids = model.vocabularies[1].ids
    columns = [id for id in range(len(ids)) if id != BOS]
    for ours, theirs, row in zip(
        found.numpy(), model.logits, labels, strict=True
    ):
        np.testing.assert_allclose(
            ours[: len(row), columns],
            theirs[: len(row), [ids[id] for id in columns]],
            atol=1e-4,
        )
    # Nothing is left to BOS, which the original has not.
    probabilities = tf.nn.softmax(found)
    assert not probabilities[..., BOS].numpy().any()


@BOTH
@pytest.mark.parametrize("search", ["beam", "greedy"])
def test_translations_are_those_of_generate(imports, source, search):
    model = imports[source]
    translator = model.translator
    if search == "greedy":
        translator = translator.with_decoding(beam_size=1)
    found = translator.inference.translate_ids(model.sources())
    limit = translator.decoding.max_output_length
    # transformers adds an EOS at the limit, which costs nothing.
    expected = [
        row[:limit] if len(row) > limit else row
        for row in model.ours(model.expected[search], side=1)
    ]
    rows = zip(
        found.ids[:, 0].numpy(), found.lengths[:, 0].numpy(), strict=True
    )
    assert [ids[:length].tolist() for ids, length in rows] == expected
    if source == SHARED:  # some end, some are ended
        assert {len(row) < limit for row in expected} == {True, False}
    if search == "beam":
        np.testing.assert_allclose(
            found.scores[:, 0], model.expected["scores"], atol=1e-4
        )
        texts = translator.tokenizer.target.decode(found.ids[:, 0])
        texts = [text.decode() for text in texts.numpy()]
        assert texts == model.expected["texts"]


@pytest.mark.parametrize("number", range(11))
def test_fields_of_generate_change_what_they_change_there(copy, number):
    """`searches.json` has what `generate` gives with some fields.

    Sums of log-probabilities of its outputs are its scores, and their lengths
    are the limits; PAD has a probability of 0.1 in the first ones.
    """
    values = json.loads((SHARED / "searches.json").read_text())
    search = values["searches"][number]
    fields = search["fields"]
    # Where transformers has no limit, the fixture had this one.
    limits = {"max_length": 5 if "max_new_tokens" in fields else 24}
    change_json("generation_config.json", **(limits | fields))(copy)
    if search["pad_bias"] is not None:
        assert 0.09 < search["pad_probability"] < 0.11
        weights = read_safetensors(copy / "model.safetensors")
        bias = np.array(weights["final_logits_bias"], np.float32)
        bias[0, 105] = search["pad_bias"]
        change_tensors(final_logits_bias=bias)(copy)
    imported = marian_huggingface.read(copy)
    is_forced = fields.get("forced_eos_token_id", 0) is not None
    notes = [] if is_forced else ["forced_eos_token_id=null"]
    assert [note.split(": ")[1] for note in imported.notes] == notes
    decoding = imported.decoding
    lengths = [len(row) for row in search["tokens"]]
    assert max(lengths) == decoding.max_output_length + is_forced
    shortest = {"min_new_tokens": 10, "min_length": 9}  # both with EOS
    assert decoding.min_length == shortest.get(min(fields, default=""), 0)
    if search["scores"] is None:
        return
    ids = sides_of(copy)[1].ids
    target = [[ids.index(id) for id in row] for row in search["tokens"]]
    padded = tf.ragged.constant([[BOS, *row] for row in target]).to_tensor(PAD)
    sources = imported.tokenizer.source.encode(values["sources"])
    logits = imported.make_model()(
        {"source_ids": sources.to_tensor(PAD), "target_ids": padded}
    )
    log_probs = tf.nn.log_softmax(logits).numpy()
    for i, row in enumerate(target):
        # At the limit transformers adds an EOS, which costs nothing.
        own = row[: decoding.max_output_length]
        total = sum(log_probs[i, t, id] for t, id in enumerate(own))
        np.testing.assert_allclose(
            total / len(row), search["scores"][i], atol=1e-4
        )


def sides_of(directory):
    """Returns the vocabularies of source and target."""
    options = huggingface.read_config(directory, {})
    search = generation.search_options(directory, options)
    tensors = huggingface.read_tensors(directory)
    read = marian_huggingface._read_side
    return [read(directory, s, options, search, tensors) for s in SIDES]


def test_the_work_directory_has_what_commands_read(imports):
    model = imports[SHARED]
    configs = [
        json.loads((imports[source].workdir / "config.json").read_text())
        for source in (SHARED, SEPARATE)
    ]
    for config, is_shared in zip(configs, (True, False), strict=True):
        assert (config["model"]["source_vocab_size"] is None) == is_shared
        assert config["data"]["share_vocabulary"] == is_shared
    for part, expected in {
        "data": {"source_language": "en", "target_language": "de"},
        "decoding": {
            "length_normalization": "power",
            "stopping": "transformers",
            "beam_size": 4,
        },
        "model": {"activation": "swish", "layer_norm_epsilon": 1e-5},
    }.items():
        assert configs[0][part].items() >= expected.items()
    assert len(configs[0]["source_tokenizer_sha256"]) == 64
    assert not [p for p in model.workdir.parent.iterdir() if p.name[0] == "."]
    mask = os.umask(0)
    os.umask(mask)
    assert model.workdir.stat().st_mode & 0o777 == 0o777 & ~mask
    texts = model.translator.translate(["", model.expected["sources"][0]])
    assert texts == ["", model.expected["texts"][0]]


def test_exports_tokenize_alike(imports):
    model = imports[SHARED]
    vocabularies = load_vocabularies(model.workdir)
    for vocabulary, tokenizer in zip(
        vocabularies, model.translator.tokenizer, strict=True
    ):
        strings = model.expected["odd"]
        rows = tokenizer.encode(strings).to_list()
        assert [vocabulary.encode(s) + [EOS] for s in strings] == rows
        rows = [[id for id in row if id != EOS] for row in rows]
        texts = [text.decode() for text in tokenizer.decode(rows).numpy()]
        assert [vocabulary.decode(row) for row in rows] == texts


# ---- Files -------------------------------------------------------------------


@pytest.fixture
def copy(tmp_path):
    """A copy of a model, for changes."""
    directory = shutil.copytree(SHARED, tmp_path / "source")
    for name in ("legacy_pytorch_model.bin", "pytorch_model.bin", "logits.npz"):
        (directory / name).unlink()
    return directory


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "legacy_pytorch_model.bin"]
)
def test_weights_of_pytorch_are_the_same(copy, name):
    expected = marian_huggingface.read(copy).weights
    (copy / "model.safetensors").unlink()
    shutil.copy(SHARED / name, copy / "pytorch_model.bin")
    found = marian_huggingface.read(copy).weights
    assert set(found) == set(expected)
    for path, array in expected.items():
        np.testing.assert_array_equal(found[path], array, path)


def test_other_forms_of_weights_are_refused(copy):
    """Shards and TensorFlow's file, which are not read."""
    path = copy / "model.safetensors"
    path.rename(copy / "model-00001-of-00001.safetensors")
    (copy / "tf_model.h5").touch()
    message = (
        f"{copy}: expected model.safetensors or pytorch_model.bin."
        " Received: neither"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        marian_huggingface.read(copy)


def change_json(name, **values):
    def change(directory):
        path = directory / name
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    return change


def change_tensors(**changes):
    """Replaces tensors. None removes one."""

    def change(directory):
        path = directory / WEIGHTS
        tensors = {**read_safetensors(path), **changes}
        kept = {n: np.array(a) for n, a in tensors.items() if a is not None}
        write_safetensors(path, kept, "float32")

    return change


def change_bytes(name, make):
    def change(directory):
        path = directory / name
        path.write_bytes(make(path.read_bytes()))

    return change


def with_pickle(content, compression=zipfile.ZIP_STORED):
    """Makes a file of torch.save with this pickle."""

    def change(directory):
        (directory / WEIGHTS).unlink()
        path = directory / "pytorch_model.bin"
        with zipfile.ZipFile(path, "w", compression) as archive:
            archive.writestr("archive/data.pkl", content)

    return change


def as_fifo(name):
    def change(directory):
        (directory / name).unlink()
        os.mkfifo(directory / name)

    return change


def both(*changes):
    def change(directory):
        for one in changes:
            one(directory)

    return change


class Shell:
    """An object whose pickle would make a file."""

    def __reduce__(self):
        return pathlib.Path.touch, (pathlib.Path("/tmp/pickle_was_run"),)


NORM = "model.encoder.layers.0.final_layer_norm.bias"
POSITIONS = "model.encoder.embed_positions.weight"
config = functools.partial(change_json, "config.json")
search = functools.partial(change_json, "generation_config.json")
# Part of the message -> what is wrong.
HOSTILE = {
    "would run code": with_pickle(pickle.dumps({"a": Shell()})),
    "without compression": with_pickle(b"\0" * 10**6, zipfile.ZIP_DEFLATED),
    f"{WEIGHTS}: truncated": change_bytes(WEIGHTS, lambda b: b[:5]),
    "truncated or corrupt": change_bytes(WEIGHTS, lambda b: b[:-1]),
    f"{WEIGHTS}. Received: none": both(
        as_fifo(WEIGHTS),  # beside good weights in another format
        lambda d: shutil.copy(SHARED / "pytorch_model.bin", d),
    ),
    "source.spm. Received: none": as_fifo("source.spm"),
    f"expected {NORM} of shape (16,). Received: (17,)": change_tensors(
        **{NORM: np.zeros(17)}
    ),
    f"no tensor {NORM}": change_tensors(**{NORM: None}),
    "finite numbers": change_tensors(**{NORM: np.full(16, np.nan)}),
    "with the sinusoids": change_tensors(**{POSITIONS: np.zeros((9, 16))}),
    f"{POSITIONS}. Received: the shape ()": change_tensors(
        **{POSITIONS: np.zeros(())}
    ),
    "model.shared.weight and lm_head.weight must be equal": change_tensors(
        **{"lm_head.weight": np.zeros((106, 16))}
    ),
    "tokenizer_config.json: not JSON": change_bytes(
        "tokenizer_config.json", lambda b: b"[" * 10**5
    ),
    "d_model='wide' is not a whole number": config(d_model="wide"),
    "of shape (106, 100000)": config(d_model=10**5),
    "num_layers must be at least 1": config(encoder_layers=-1),
    "num_layers must be at most 10000": config(encoder_layers=10**7),
    "max_length must be at least 2": config(max_position_embeddings=1),
    "decoder_attention_heads=4 cannot be imported: the encoder has 2": config(
        encoder_attention_heads=2
    ),
    "activation_function='tanh' cannot be imported: expected 'gelu'": config(
        activation_function="tanh"
    ),
    "target_vocab.json. Received: none": config(
        share_encoder_decoder_embeddings=False
    ),
    "expected embeddings of decoder_vocab_size=1000000000 tokens.": both(
        config(
            share_encoder_decoder_embeddings=False, decoder_vocab_size=10**9
        ),
        lambda d: shutil.copy(d / "vocab.json", d / "target_vocab.json"),
    ),
    "expected a matrix model.shared.weight. Received: the shape (1000": both(
        config(vocab_size=10**9),
        change_tensors(**{"model.shared.weight": np.zeros((10**9, 0))}),
    ),
    "expected ids below vocab_size=106": change_json("vocab.json", more=106),
    "expected a distinct id": change_json("vocab.json", more=7),
    "unknown tokens that it has. Received: 105, 105, 1": config(
        eos_token_id=105
    ),
    "unknown tokens that it has. Received: 106, 0, 1": config(pad_token_id=106),
    "unknown tokens that it has. Received: 105, 0, None": change_bytes(
        "vocab.json", lambda b: b.replace(b"<unk>", b"<unknown>")
    ),
    "bad_words_ids must be a list of lists of ids. Received:": search(
        bad_words_ids=5
    ),
    "expected a decoder_start_token_id below vocab_size=106": search(
        decoder_start_token_id=106
    ),
    "max_output_length must be at least 1. Received: max_output_length=0": (
        search(max_length=2)
    ),
}


@pytest.mark.parametrize("message", HOSTILE)
def test_a_hostile_file_ends_with_a_line(copy, tmp_path, capsys, message):
    HOSTILE[message](copy)
    argv = [f"--source={copy}", f"--workdir={tmp_path / 'workdir'}"]
    assert message in fails(import_model.main, argv, capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
    assert not pathlib.Path("/tmp/pickle_was_run").exists()


def test_a_work_directory_in_use_is_refused(tmp_path, capsys):
    (tmp_path / "file").touch()
    argv = [f"--source={SHARED}", f"--workdir={tmp_path}"]
    assert "does not exist yet" in fails(import_model.main, argv, capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_plain_data_is_read_and_nothing_of_it_run(tmp_path):
    path = tmp_path / "file.pt"
    value = {"args": argparse.Namespace(arch="transformer", heads=4)}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", pickle.dumps(value, protocol=2))
    with pytest.raises(ValueError, match="would run code.*argparse.Namespace"):
        read_torch(path)
    found = read_torch(path, plain=("argparse",))["args"]
    assert isinstance(found, Plain) and found.kind == "argparse.Namespace"
    assert found.state == {"arch": "transformer", "heads": 4}


def test_what_the_files_leave_out_is_as_in_transformers(copy):
    names = ("dropout", "attention_dropout", "activation_dropout")
    missing = ("activation_function", "scale_embedding", "tie_word_embeddings")
    path = copy / "config.json"
    values = json.loads(path.read_text())
    for name in (*missing, "share_encoder_decoder_embeddings"):
        del values[name]
    values |= {name: None for name in names}
    search = json.loads((copy / "generation_config.json").read_text())
    del search["max_length"]
    (copy / "generation_config.json").unlink()
    path.write_text(json.dumps({**values, **search}))
    (copy / "tokenizer_config.json").unlink()
    change_tensors(final_logits_bias=None)(copy)
    found = marian_huggingface.read(copy)
    assert found.config.activation == "gelu"
    assert found.config.scale_embeddings is False
    assert found.config.sharing == "all"
    dropouts = [getattr(found.config, name) for name in names]
    assert dropouts == [0.1, 0.0, 0.0]
    assert found.decoding.beam_size == 4  # of config.json
    assert found.decoding.max_output_length is None  # not transformers' 20
    assert any("transformers has 20" in note for note in found.notes)
    assert (found.source_language, found.max_length) == ("", 128)
    bias = found.weights[BIAS]
    assert bias[BOS] == -1e4 and not np.delete(bias, BOS).any()


def test_options_of_the_search_are_taken_over(copy):
    search(
        max_length=512,
        length_penalty=2,
        min_length=3,
        no_repeat_ngram_size=4,
        do_sample=True,
        temperature=0.5,
        top_p=0.75,
        repetition_penalty=1.5,
        diversity_penalty=0.0,
        bad_words_ids=[[105], [7, 8]],
        begin_suppress_tokens=[7],
        sequence_bias=[],
        eos_token_id=[0, 7],
        forced_eos_token_id=7,
        renormalize_logits=True,
        min_p=0.5,
        epsilon_cutoff=0.01,
    )(copy)
    change_json("tokenizer_config.json", model_max_length=100)(copy)
    found = marian_huggingface.read(copy)
    expected = {
        "max_output_length": 510,
        "extra_length": 50,
        "min_length": 3,
        "no_repeat_ngram": 4,
        "length_penalty": 2.0,
        "sampling": True,
        "temperature": 0.5,
        "top_p": 0.75,
        "epsilon": 0.01,
        "top_k": 50,  # as transformers has it
    }
    assert vars(found.decoding).items() >= expected.items()
    notes = "\n".join(found.notes)
    for part in (
        "the maximum output length is source tokens + 50;",
        "begin_suppress_tokens=[7] has no counterpart",
        "repetition_penalty=1.5 has no counterpart",
        "num_beams=4 has no counterpart",
        "min_p=0.5 has no counterpart",
        "bad_words_ids: here only padding is banned",
        "eos_token_id=[0, 7]: here an output ends with 0",
        "forced_eos_token_id=7: here an output at its length limit is scored",
        "probability of tokens that min_length or no_repeat",
        "epsilon_cutoff: here it applies before top_p",
    ):
        assert part in notes
    assert len(found.notes) == 10 and found.max_length == 100
    change_json("tokenizer_config.json", model_max_length=1)(copy)
    assert marian_huggingface.read(copy).max_length == 128


def test_no_probability_is_left_to_what_is_banned(copy):
    for banned, is_left in (
        ([[105]], (False, True)),
        ([[105], [7]], (False, False)),
        ([[7]], (True, False)),
    ):
        search(
            bad_words_ids=banned,
            decoder_start_token_id=7,
            renormalize_logits=True,
            no_repeat_ngram_size=3,
        )(copy)
        found = marian_huggingface.read(copy)
        bias = found.weights[BIAS]
        assert bias[PAD] > -100 if is_left[0] else bias[PAD] == -1e4
        # A start that is not banned is a token, and BOS a row of its own.
        assert len(bias) == 106 + is_left[1] and bias[BOS] == -1e4
        notes = "\n".join(found.notes)
        assert ("has no padding, which is banned here" in notes) == is_left[0]
        assert "min_length or no_repeat_ngram_size forbids" in notes
    search(renormalize_logits=False)(copy)
    assert marian_huggingface.read(copy).weights[BIAS][BOS] > -100


def test_ids_that_generation_config_leaves_out(copy):
    path = copy / "generation_config.json"
    search = json.loads(path.read_text())
    for name in ("decoder_start_token_id", "forced_eos_token_id"):
        del search[name]
    path.write_text(json.dumps({**search, "bos_token_id": 7}))
    found = marian_huggingface.read(copy)
    # Without a start the decoder starts with BOS, and no EOS is forced.
    table = found.weights["embedding/embeddings"]
    np.testing.assert_array_equal(table[BOS], table[4 + 5])
    assert found.decoding.max_output_length == search["max_length"] - 1
    # In a config.json alone MarianConfig has an EOS.
    values = json.loads((copy / "config.json").read_text())
    del values["forced_eos_token_id"]
    (copy / "config.json").write_text(json.dumps({**search, **values}))
    path.unlink()
    found = marian_huggingface.read(copy)
    assert found.decoding.max_output_length == search["max_length"] - 2
    assert not found.notes


def test_limits_and_activations(copy):
    change_json("tokenizer_config.json", model_max_length=2)(copy)
    search(max_length=130)(copy)
    for theirs, ours in (("gelu_new", "gelu_tanh"), ("silu", "swish")):
        config(activation_function=theirs)(copy)
        found = marian_huggingface.read(copy)
        assert found.config.activation == ours
    assert (found.max_length, found.decoding.extra_length) == (2, 128)
    assert not found.notes


def test_a_start_that_is_a_token_has_a_row_of_its_own(copy):
    for name in ("config.json", "generation_config.json"):
        change_json(name, decoder_start_token_id=7)(copy)
    weights = marian_huggingface.read(copy).weights
    table, bias = weights["embedding/embeddings"], weights[BIAS]
    assert len(table) == 107 and bias[BOS] == -1e4
    # Id 7 stays: of ours PAD, BOS, EOS and UNK come first, of its 0, 1, 105.
    np.testing.assert_array_equal(table[BOS], table[4 + 5])
    assert bias[4 + 5] > -100


def test_weights_are_read_before_the_vocabularies(copy):
    """Weights are wrong more often, and vocabularies take longer."""
    change_tensors(extra=np.zeros(3))(copy)
    (copy / "source.spm").write_bytes(b"no model")
    with pytest.raises(ValueError, match="Received: extra"):
        marian_huggingface.read(copy)


@pytest.mark.parametrize(
    "name", ["model.safetensors", "source.spm", "vocab.json", "config.json"]
)
def test_a_pointer_of_git_lfs_is_named(copy, tmp_path, capsys, name):
    (copy / name).write_text(POINTER)
    argv = [f"--source={copy}", f"--workdir={tmp_path / 'run'}"]
    err = fails(import_model.main, argv, capsys)
    assert f"{copy / name} is a Git LFS pointer" in err
    assert "git lfs pull" in err and not (tmp_path / "run").exists()


@pytest.mark.parametrize("ending", ["index", "data-00000-of-00001"])
def test_a_pointer_of_a_checkpoint_is_named(tmp_path, ending):
    shutil.copytree(FIXTURES / "opennmt_tf/separate", tmp_path / "run")
    path = tmp_path / f"run/ckpt-5000.{ending}"
    path.write_text(POINTER)
    with pytest.raises(ValueError, match=f"{path} is a Git LFS pointer"):
        read_model(tmp_path / "run")


def test_a_pointer_that_nobody_reads_does_no_harm(copy, tmp_path):
    (copy / "pytorch_model.bin").write_text(POINTER)
    model = read_model(copy)[1]
    assert model.config == marian_huggingface.read(SHARED).config
    config(normalize_before=True)(copy)
    with pytest.raises(
        ValueError, match="normalize_before=True cannot be imported"
    ):
        read_model(copy)


def as_torch(*keys):
    """Makes a file as PyTorch writes it, with these keys."""
    content = pickle.dumps(dict.fromkeys(keys, 0), protocol=2)

    def write(directory):
        with zipfile.ZipFile(directory / "model.pt", "w") as archive:
            archive.writestr("archive/data.pkl", content)

    return write


def as_file(name, content):
    return lambda directory: (directory / name).write_bytes(content)


def of_type(kind):
    return as_file("config.json", b'{"model_type": "%s"}' % kind.encode())


OTHERS = {
    "model_type='nllb-moe': NLLB's mixture of experts": of_type("nllb-moe"),
    ": T5": of_type("t5"),
    ": BART": of_type("bart"),
    ": FSMT": of_type("fsmt"),
    "model_type='gpt2': another model": of_type("gpt2"),
    "an adapter of PEFT": as_file("adapter_config.json", b"{}"),
    "a model of CTranslate2": as_file(
        "model.bin", b"\2\0\0\0\x10\0TransformerBase\0\7\0\0\0"
    ),
    "a model of OpenNMT-py: model.pt": as_torch(
        "model", "generator", "vocab", "opt"
    ),
    "without the dictionaries of fairseq: expected dict.SOURCE.txt": as_torch(
        "args", "model"
    ),
    "without its .npz": as_file("decoder.yml", b"models: [a.npz]"),
    "with Git LFS pointers, not the files (git lfs pull): opus.npz": as_file(
        "opus.npz", POINTER.encode()
    ),
}


@pytest.mark.parametrize("message", OTHERS)
@pytest.mark.parametrize("format_name", [None, "huggingface"])
def test_models_of_other_systems_are_named(tmp_path, message, format_name):
    OTHERS[message](tmp_path)
    with pytest.raises(ValueError) as error:
        read_model(tmp_path, format_name)
    assert message in str(error.value)
    assert "expected a model of " in str(error.value)


def test_what_a_format_is_not_is_named(copy, tmp_path):
    package = FIXTURES / "marian_npz"  # a release of OPUS-MT
    with pytest.raises(ValueError, match="huggingface;.*, the format marian$"):
        read_model(package, "huggingface")
    with pytest.raises(ValueError, match="fairseq;.*, the format huggingface"):
        read_model(copy, "fairseq")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="expected a file .*config.json"):
        read_model(tmp_path / "empty", "huggingface")
    (tmp_path / "empty/config.json").write_text("{}")
    with pytest.raises(
        ValueError, match="missing option encoder_attention_heads"
    ):
        read_model(tmp_path / "empty", "huggingface")
    # Beside each other the first of both is read, or the one that is named.
    for path in package.iterdir():
        if not (copy / path.name).exists():
            shutil.copy(path, copy)
    assert find_format(copy) == "huggingface"
    assert find_format(copy, "marian") == "marian"


def test_notes_say_which_share_of_the_pieces_has_ids(copy, tmp_path, capsys):
    expected = marian_huggingface.read(copy)
    lines = describe_tables(expected.tokenizer)
    ids = json.loads((copy / "vocab.json").read_text())
    for line, side in zip(lines, ("source", "target"), strict=True):
        model = sentencepiece_model_pb2.ModelProto.FromString(
            (copy / f"{side}.spm").read_bytes()
        )
        pieces = [p.piece for p in model.pieces if p.type == p.NORMAL]
        known = sum(piece in ids for piece in pieces)
        assert 0 < known < len(pieces)
        assert line == (
            f"{side} vocabulary: {known} of the {len(pieces)} pieces of its"
            f" SentencePiece model have an id ({known / len(pieces):.1%})"
        )
    (one,) = describe_tables(expected.tokenizer.target)
    assert one == lines[1].removeprefix("target ")
    argv = [f"--source={copy}", f"--workdir={tmp_path / 'run'}"]
    import_model.main(argv)
    assert lines[0] in capsys.readouterr().out


@pytest.mark.parametrize(
    "own, flags, expected",
    [
        ("", "", ("source", "target")),
        ("", "--source_language=fr --target_language=it", ("fr", "it")),
        ("gem", "", ("source", "target")),
        ("gem", "--target_language=de", ("gem", "de")),
    ],
)
def test_languages_are_those_of_files_and_flags(
    copy, tmp_path, capsys, own, flags, expected
):
    """Two sides of one language are named apart."""
    if own:
        languages = {"source_lang": own, "target_lang": own}
        change_json("tokenizer_config.json", **languages)(copy)
    else:
        (copy / "tokenizer_config.json").unlink()
    workdir = tmp_path / "run"
    argv = [f"--source={copy}", f"--workdir={workdir}", *flags.split()]
    import_model.main(argv)
    data = json.loads((workdir / "config.json").read_text())["data"]
    assert (data["source_language"], data["target_language"]) == expected
    assert own or data["max_length"] == 128
    is_noted = (
        "both languages are gem: here they are" in capsys.readouterr().out
    )
    assert is_noted == (own == "gem" and not flags)


def test_two_flags_of_one_language_are_refused(copy, tmp_path, capsys):
    argv = [f"--source={copy}", f"--workdir={tmp_path}/a"]
    argv += ["--source_language=de", "--target_language=de"]
    assert "languages that differ" in fails(import_model.main, argv, capsys)


# ---- Export back -------------------------------------------------------------


def test_an_export_is_the_original_again(imports, tmp_path, capsys):
    output = tmp_path / "export"
    export.main(
        [
            f"--workdir={imports[SHARED].workdir}",
            "--format=huggingface",
            f"--output={output}",
        ]
    )
    assert "huggingface, float32" in capsys.readouterr().out
    ids = json.loads((output / "vocab.json").read_text())
    assert ids == json.loads((SHARED / "vocab.json").read_text())
    found = read_safetensors(output / "model.safetensors")
    expected = read_safetensors(SHARED / "model.safetensors")
    for name, array in found.items():
        np.testing.assert_array_equal(array, expected[name].astype("f4"), name)
    for name in ("config.json", "generation_config.json"):
        theirs = json.loads((SHARED / name).read_text())
        ours = json.loads((output / name).read_text())
        for field, value in ours.items():
            if field in theirs and field != "max_position_embeddings":
                assert value == theirs[field], field
    again = marian_huggingface.read(output)
    first = marian_huggingface.read(SHARED)
    assert again.config == first.config
    assert again.decoding == first.decoding
    odd = imports[SHARED].expected["odd"]
    for one, other in zip(again.tokenizer, first.tokenizer, strict=True):
        assert one.encode(odd).to_list() == other.encode(odd).to_list()


def test_a_model_trained_here_comes_back(tmp_path):
    output = tmp_path / "export"
    workdir = FIXTURES / "workdir_0_2/run"
    export.main(
        [f"--workdir={workdir}", "--format=huggingface", f"--output={output}"]
    )
    before = Translator.load(workdir)
    after = marian_huggingface.read(output)
    # BOS is its own row, not another of padding's.
    assert after.config.vocab_size == before.model.config.vocab_size
    assert after.tokenizer.target.pieces == before.tokenizer.pieces
    found = {path.replace("/", "."): a for path, a in after.weights.items()}
    for name, variable in named_weights(before.model).items():
        np.testing.assert_array_equal(found.pop(name), variable.numpy(), name)
    # What Marian has and the paper has not is 0.
    assert {name.rpartition(".")[2] for name in found} == {
        "bias",
        "logits_bias",
    }
    assert not any(array.any() for array in found.values())


@pytest.mark.parametrize("sharing", ["all", "target", "inputs", "none"])
def test_embeddings_shared_in_every_way_come_back(tmp_path, sharing):
    imported = marian_huggingface.read(SHARED)
    config = dataclasses.replace(imported.config, share_embeddings=sharing)
    model = Transformer(config)
    random = np.random.default_rng(3)
    for weight in model.weights:
        weight.assign(random.normal(size=weight.shape))
    translator = Translator(imported.tokenizer, model, imported.decoding, 64)
    names = {"source_language": "en", "target_language": "de"}
    options = argparse.Namespace(precision="float32")
    write_huggingface(Export(translator, tmp_path, options, names, []))
    found = marian_huggingface.read(tmp_path)
    assert found.config.sharing == sharing
    weights = {p.replace("/", "."): a for p, a in found.weights.items()}
    for name, variable in named_weights(model).items():
        array, expected = weights.pop(name), variable.numpy()
        if name == "source_embedding.embeddings":  # no source has BOS
            array[BOS] = expected[BOS]
        np.testing.assert_array_equal(array, expected, name)
    assert not weights


@pytest.mark.parametrize(
    "fields",
    [
        {"pre_norm": True},
        {"positions": "learned"},
        {"sinusoids": "t2t"},
        {"first_position": 1},
        {"embedding_norm": True},
        {"attention_window": 3},
        {"source_eos": False},
        {"layer_norm_epsilon": 1e-3},
        {"d_key": 3},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_what_marian_cannot_be_is_not_exported(fields):
    config = TransformerConfig(d_model=8, num_heads=2, **fields)
    with pytest.raises(CommandError, match=f"Received: {next(iter(fields))}"):
        check_model("huggingface", config, DecodingConfig())
