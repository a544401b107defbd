"""A vocabulary for each language: trained, resumed, translated, exported."""

import hashlib
import json
import shutil

import keras
import numpy as np
import onnx
import pytest
import tensorflow as tf
import tokenization_test
from commands import SMALL_MODEL, open_trainer, write_pairs
from random_pairs import make_pairs
from readable import readable
from signatures import assert_answers

import keras_transformer as kt
from keras_transformer.decoding import SearchResult
from keras_transformer.importers.vocabularies import make_tokenizer
from keras_transformer.storage.workdir import WorkDirectory
from keras_transformer.text.vocabulary import EOS
from savedmodel import export, formats, reload, verify
from savedmodel.reload import tokenizer as reload_tokenizer
from savedmodel.search import make_search
from trainers import wmt
from trainers.datasets import phrasebook
from trainers.run.data_config import DataConfig
from trainers.run.training_config import Configuration, TrainingConfig

SENTENCES = ["the dog sees a house", "", "a cat", "red", "the dog " * 5]
FILES = ["source_tokenizer.model", "target_tokenizer.model"]


def flags_of(folder):
    prefix = write_pairs(folder / "train", phrasebook.read_split("train", 80))
    return [
        "--dataset=files",
        f"--train_files={prefix}",
        "--noshare_vocabulary",
        "--source_vocab_size=70",
        "--vocab_size=90",
        "--max_length=90",
        *SMALL_MODEL,
        # What models of other systems have, from the flags to the exports.
        "--activation=gelu_tanh",
        "--attention_bias",
        "--first_position=1",
        "--layer_norm_epsilon=1e-5",
        "--logits_bias",
        "--sinusoids=t2t",
        "--beam_size=2",
        "--extra_length=3",
        "--warmup_steps=10",
        "--log_steps=1",
    ]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Flags, and the work directory that their training made."""
    folder = tmp_path_factory.mktemp("separate")
    flags = flags_of(folder)
    wmt.main([*flags, f"--workdir={folder / 'run'}", "--train_steps=3"])
    return flags, folder / "run"


@pytest.fixture(scope="module")
def translator(trained):
    translator = kt.Translator.load(trained[1], max_source_length=12)
    # So that translations differ, and have all tokens, without much training.
    random = np.random.default_rng(3)
    model = translator.model
    for side in (model.target_input, model.source_input):
        table = side.embedding.embeddings
        table.assign(random.normal(size=table.shape))
    return translator


@pytest.fixture(scope="module")
def tokenizer():
    """A pair of tokenizers with the same words at different ids."""
    sources, targets = zip(*make_pairs(200), strict=True)
    return kt.TokenizerPair(
        kt.Tokenizer.train(sources, 60), kt.Tokenizer.train(targets, 75)
    )


def test_each_language_has_files_sizes_and_embeddings(trained):
    _, path = trained
    assert sorted(p.name for p in path.glob("*.model")) == FILES
    config = json.loads((path / "config.json").read_text())
    assert config["data"]["share_vocabulary"] is False
    model = config["model"]
    assert model["source_vocab_size"] == 70
    assert model["share_embeddings"] is None
    assert (model["activation"], model["first_position"]) == ("gelu_tanh", 1)
    for name in FILES:
        digest = hashlib.sha256((path / name).read_bytes()).hexdigest()
        assert config[name.replace(".model", "_sha256")] == digest
    assert "tokenizer_sha256" not in config
    tokenizer = WorkDirectory(path).load_tokenizer()
    sizes = tokenizer.source.vocab_size, tokenizer.target.vocab_size
    assert sizes == (70, 90)
    pieces = set(tokenizer.source.pieces), set(tokenizer.target.pieces)
    assert "ü" in pieces[1] - pieces[0]


def test_it_resumes(trained):
    flags, path = trained
    trainer = open_trainer([*flags, f"--workdir={path}", "--train_steps=4"])
    assert trainer.progress.step == 3
    assert [len(t.model_bytes) for t in trainer.experiment.tokenizer] == [
        (path / name).stat().st_size for name in FILES
    ]


@pytest.mark.slow("options")
def test_it_translates(translator):
    outputs = translator.translate(SENTENCES)
    assert outputs[1] == "" and len(set(outputs)) == len(SENTENCES)
    ids = [found[0][0] for found in translator.n_best_ids(SENTENCES)]
    assert max(map(max, filter(None, ids))) > 70  # of the target's vocabulary
    target = translator.tokenizer.target
    for output, string in zip(outputs, target.decode(ids).numpy(), strict=True):
        # An unknown token becomes the word that it translates.
        assert "⁇" in string.decode() or output == string.decode()
    [score] = translator.score([("a dog", "der Hund")])
    assert score.ids == target.encode(["der Hund"]).to_list()[0]


def test_a_replaced_file_is_named(trained, tmp_path):
    path = shutil.copytree(trained[1], tmp_path / "run")
    file = path / FILES[1]
    before = file.read_bytes()
    file.write_bytes((path / FILES[0]).read_bytes())
    with pytest.raises(ValueError, match=f"{FILES[1]} is not the vocab"):
        kt.Translator.load(path)
    file.unlink()
    with pytest.raises(FileNotFoundError, match=FILES[1]):
        kt.Translator.load(path)
    (path / "tokenizer.model").write_bytes(before)
    with pytest.raises(ValueError, match="Received: both"):
        kt.Translator.load(path)


def test_given_vocabularies_decide_the_sizes(trained):
    flags, path = trained
    kept = [flag for flag in flags if "vocab_size" not in flag]

    def sizes(*given):
        argv = [*kept, *given, "--workdir=x"]
        arguments, options = wmt.read_arguments(argv)
        model = wmt.read_configuration(arguments, options.preset).model
        return model.source_vocab_size, model.vocab_size

    source, target = (path / name for name in FILES)
    given = f"--source_tokenizer={source}", f"--target_tokenizer={target}"
    assert (sizes(*given), sizes()) == ((70, 90), (37000, 37000))


def export_to(directory, format_name, translator, workdir):
    """Writes an export of a translator of a work directory.

    Returns its description.
    """
    return export.write(
        export.Source(translator, [], ("en", "de")),
        export.ExportOptions(
            workdir=str(workdir), format=format_name, output=str(directory)
        ),
        directory,
    )


def test_ctranslate2_translates_as_the_translator(
    translator, trained, tmp_path
):
    greedy = translator.with_decoding(beam_size=1)
    description = export_to(tmp_path, "ctranslate2", greedy, trained[1])
    assert description["source_vocab_size"] == 70
    assert description["vocab_size"] == 90
    answers = reload.load(tmp_path, description)(SENTENCES)
    expected = [found[0] for found in greedy.n_best_ids(SENTENCES)]
    for answer, (ids, score) in zip(answers, expected, strict=True):
        assert answer["ids"] == ids
        assert answer["score"] == pytest.approx(score, abs=1e-3)


@pytest.mark.parametrize(
    "format_name, function",
    [("tflite", "save_searches"), ("onnx", "make_model")],
)
def test_both_files_lie_beside_a_model_of_ids(
    translator, trained, format_name, function, tmp_path, monkeypatch
):
    """`reload` reads them; the model itself needs no test of its own."""
    module = formats.load_exporter(format_name)
    monkeypatch.setattr(module, function, lambda *arguments: onnx.ModelProto())
    for name in ("convert", "_quantize"):
        monkeypatch.setattr(module, name, lambda *a: b"", raising=False)
    description = export_to(tmp_path, format_name, translator, trained[1])
    assert set(FILES) <= set(description["sha256"])
    encode, decode, _ = reload_tokenizer.load_tokenizer(tmp_path, description)
    pair = translator.tokenizer
    assert encode("a dog")[0] == pair.source.encode(["a dog"]).to_list()[0]
    assert decode(pair.target.encode(["der Hund"]).to_list()[0]) == "der Hund"


@pytest.fixture(scope="module")
def joint():
    """A byte-pair and a character model over one table of ids, as imported."""
    source = tokenization_test.trained("bpe")
    target = tokenization_test.trained("char")
    table = [*source.pieces, *{*target.pieces} - {*source.pieces}]
    tokenizer = kt.TokenizerPair(
        make_tokenizer(source.model_bytes, table, "source"),
        make_tokenizer(target.model_bytes, table, "target"),
    )
    model = kt.Transformer(
        vocab_size=len(table), d_model=8, d_ff=12, num_heads=2, num_layers=1,
        logits_bias=True,
    )  # fmt: skip
    random = np.random.default_rng(5)
    for weight in model.weights:
        weight.assign_add(random.normal(size=weight.shape, scale=0.5))
    return kt.Translator(
        tokenizer, model, kt.DecodingConfig(beam_size=2, extra_length=4), 12
    )


@pytest.mark.slow("format")
def test_a_saved_model_of_two_vocabularies_answers_in_text(
    joint, trained, tmp_path, monkeypatch
):
    monkeypatch.setattr(joint, "checkpoint", "averaged/ckpt-3")
    export_to(tmp_path, "saved_model", joint, trained[1])
    lines = ["the dog", "", "ß ä ☃ C:\\x", "Straße ''", ">>fra<< the"]
    lines.append("dog " * 9)
    comparison = verify.compare(joint, tmp_path, lines)
    assert str(comparison) == "passed: 6 of 6 sentences equal"
    signatures = tf.saved_model.load(str(tmp_path)).signatures
    read = readable(joint.tokenizer, lines)  # the graph has unknown tokens
    assert len(read) >= 3
    assert_answers(signatures, joint, [lines[i] for i in read])
    texts = joint.translate(lines)
    assert texts[1] == "" and len(set(texts)) >= 4


@pytest.mark.parametrize("kind", tokenization_test.KINDS)
def test_the_files_beside_a_model_segment_alike(kind, tmp_path):
    """They convert text to ids and back, as in the exports' scripts."""
    tokenizer = tokenization_test.trained(*tokenization_test.KINDS[kind])
    with_table = tokenization_test.with_table(tokenizer)
    foreign = tokenization_test.with_foreign_pair()
    pairs = [
        kt.TokenizerPair(with_table, with_table),
        kt.TokenizerPair(foreign, foreign),
        tokenizer,
    ]
    strings = [*tokenization_test.make_odd_strings(), "abcd"]
    for number, pair in enumerate(pairs):
        directory = tmp_path / str(number)
        directory.mkdir()
        formats.save_vocabulary(pair, directory)
        found = reload_tokenizer.load_vocabularies(directory)
        for vocabulary, of_side in zip(
            found, (pair.source, pair.target), strict=True
        ):
            rows = of_side.to_ids(strings)
            assert [[*vocabulary.encode(s), EOS] for s in strings] == rows
            texts = [vocabulary.decode(row[:-1]) for row in rows]
            assert texts == of_side.to_strings(rows)


def test_an_export_takes_ids_of_the_source(translator, monkeypatch):
    """70 is an id of the target alone."""

    def translate_ids(source_ids, constraints, **options):
        shape = source_ids.shape[0], 1
        return SearchResult(
            ids=tf.ones((*shape, 3), tf.int32),
            scores=tf.ones(shape),
            log_probs=tf.ones(shape),
            lengths=tf.ones(shape, tf.int32),
        )

    monkeypatch.setattr(translator.inference, "translate_ids", translate_ids)
    search = make_search(translator, length=12)
    for last, valid in ((69, True), (70, False)):
        ids = np.array([[last, 2] + 10 * [0]], np.int32)
        found = search(ids)["scores"].numpy()
        assert np.isfinite(found).all() == valid


@pytest.mark.slow("format")
def test_the_saved_model_reads_each_language(translator):
    """Signatures that take text of the target."""
    from savedmodel.saved_model import Signatures

    signatures = Signatures(translator)
    dog = {"text": ["a dog"], "reference": ["der Hund"]}
    found = signatures.answer("score", **dog)
    [expected] = translator.score([("a dog", "der Hund")])
    np.testing.assert_allclose(
        found["log_prob"], [sum(expected.log_probs)], rtol=1e-4
    )
    forced = signatures.answer(
        "forced", text=["a dog"], target_prefix=["der Hund"]
    )
    assert forced["translation"].numpy()[0].startswith(b"der Hund")
    pieces = {"", *translator.tokenizer.target.pieces}
    dog["reference"] = [""]
    shown = signatures.answer("attention_maps", **dog)
    assert {p.decode() for p in shown["target_pieces"].numpy()[0]} <= pieces


def test_a_corpus_is_encoded_side_by_side(tokenizer):
    pairs = make_pairs(20, seed=3)
    corpus = kt.encode_corpus(pairs, tokenizer, max_length=200)
    sampled = kt.SampledCorpus(pairs, tokenizer, 200, alpha=0.3, seed=1)
    for number, of_side in enumerate(tokenizer):
        strings = [pair[number] for pair in pairs]
        rows = (corpus.source, corpus.target)[number]
        assert rows.ids.tolist() == (
            of_side.encode(strings).flat_values.numpy().tolist()
        )
        rows = (sampled.source, sampled.target)[number]
        ids = np.split(rows.ids, rows.offsets[1:-1])
        decoded = of_side.decode([row.tolist() for row in ids]).numpy()
        assert [string.decode() for string in decoded] == strings


def test_ids_of_the_source_end_with_its_vocabulary():
    sizes = {"d_model": 8, "d_ff": 12, "num_heads": 2, "num_layers": 1}
    model = kt.Transformer(vocab_size=11, source_vocab_size=7, **sizes)
    inputs = {
        "source_ids": np.array([[6, 4, 2], [7, 4, 2]], np.int32),
        "target_ids": np.array([[1, 10], [1, 10]], np.int32),
    }
    logits = keras.ops.convert_to_numpy(model(inputs))
    assert np.isfinite(logits[0]).all() and np.isnan(logits[1]).all()


def test_sizes_that_do_not_fit_are_refused(tokenizer):
    model = kt.Transformer(vocab_size=75, d_model=8, num_heads=2, num_layers=1)
    with pytest.raises(ValueError, match="vocabularies .*Received: .60, 75"):
        kt.Translator(tokenizer, model, kt.DecodingConfig(), 9)
    sections = TrainingConfig(), kt.DecodingConfig()
    for share, size in ((True, 60), (False, None)):
        config = kt.TransformerConfig(source_vocab_size=size)
        with pytest.raises(ValueError, match="only with it"):
            Configuration(config, DataConfig(share_vocabulary=share), *sections)
    prepared = {"dataset": "prepared", "train_files": ("x",)}
    for wrong in (
        {"share_vocabulary": False, "tokenizer": "a.model"},
        {"target_tokenizer": "a.model"},
        {"share_vocabulary": False, **prepared},
    ):
        with pytest.raises(ValueError, match="Received: .*share_vocabulary="):
            DataConfig(**wrong)
