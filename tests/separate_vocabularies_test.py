"""A vocabulary for each language: trained, resumed, translated, exported."""

import hashlib
import json

import keras
import numpy as np
import pytest
from commands import write_pairs
from random_pairs import make_pairs

import keras_transformer as kt
from keras_transformer.workdir import WorkDirectory
from savedmodel import export, reload
from trainers import phrasebook, wmt
from trainers.config import Configuration, DataConfig, TrainingConfig

SENTENCES = ["the dog sees a house", "", "a cat", "red", "the dog " * 5]
FILES = ["source_tokenizer.model", "target_tokenizer.model"]


def flags_of(folder):
    prefix = write_pairs(folder / "train", phrasebook.make_split("train", 80))
    valid = write_pairs(folder / "valid", phrasebook.make_split("valid", 3))
    return [
        "--dataset=files",
        f"--train_files={prefix}",
        f"--valid_files={valid}",
        "--noshare_vocabulary",
        "--source_vocab_size=70",
        "--vocab_size=90",
        "--max_length=90",
        "--d_model=16",
        "--d_ff=16",
        "--num_heads=2",
        "--num_layers=1",
        "--beam_size=2",
        "--extra_length=3",
        "--warmup_steps=10",
        "--log_steps=1",
    ]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Flags, and the work directory that they made."""
    folder = tmp_path_factory.mktemp("separate")
    flags = flags_of(folder)
    wmt.main([*flags, f"--workdir={folder / 'run'}", "--train_steps=3"])
    return flags, folder / "run"


@pytest.fixture(scope="module")
def translator(trained):
    return kt.Translator.load(trained[1], max_source_length=12)


@pytest.fixture(scope="module")
def tokenizer():
    """A pair that has the same words at other ids."""
    sources, targets = zip(*make_pairs(200), strict=True)
    return kt.TokenizerPair(
        kt.Tokenizer.train(sources, 60), kt.Tokenizer.train(targets, 75)
    )


def test_each_language_has_files_sizes_and_embeddings(trained):
    _, path = trained
    assert sorted(p.name for p in path.glob("*.model")) == FILES
    config = json.loads((path / "config.json").read_text())
    assert config["data"]["share_vocabulary"] is False
    assert config["model"]["source_vocab_size"] == 70
    for name in FILES:
        digest = hashlib.sha256((path / name).read_bytes()).hexdigest()
        assert config[name.replace(".model", "_sha256")] == digest
    assert "tokenizer_sha256" not in config
    tokenizer = WorkDirectory(path).load_tokenizer()
    sizes = tokenizer.source.vocab_size, tokenizer.target.vocab_size
    assert sizes == (70, 90)
    pieces = set(tokenizer.source.pieces), set(tokenizer.target.pieces)
    assert "ü" in pieces[1] - pieces[0]


def test_it_resumes_and_translates(trained, translator, capsys, tmp_path):
    flags, path = trained
    wmt.main([*flags, f"--workdir={path}", "--train_steps=4"])
    out = capsys.readouterr().out
    assert "resuming at step 3" in out
    assert "vocabulary of" not in out
    outputs = translator.translate(SENTENCES)
    assert outputs[1] == ""
    ids = [found[0][0] for found in translator.n_best_ids(SENTENCES)]
    assert max(map(max, filter(None, ids))) > 70  # of the target's vocabulary
    target = translator.tokenizer.target
    assert outputs == [s.decode() for s in target.decode(ids).numpy()]
    [score] = translator.score([("a dog", "der Hund")])
    assert score.ids == target.encode(["der Hund"]).to_list()[0]


def test_a_replaced_file_is_named(trained, tmp_path):
    flags, path = trained
    file = path / FILES[1]
    before = file.read_bytes()
    try:
        file.write_bytes((path / FILES[0]).read_bytes())
        with pytest.raises(ValueError, match=f"{FILES[1]} is not the vocab"):
            kt.Translator.load(path)
        file.unlink()
        with pytest.raises(FileNotFoundError, match=FILES[1]):
            kt.Translator.load(path)
        (path / "tokenizer.model").write_bytes(before)
        with pytest.raises(ValueError, match="Received: both"):
            kt.Translator.load(path)
    finally:
        (path / "tokenizer.model").unlink(missing_ok=True)
        file.write_bytes(before)


def test_given_vocabularies_decide_the_sizes(trained):
    flags, path = trained
    kept = [flag for flag in flags if "vocab_size" not in flag]
    given = [f"--source_tokenizer={path / FILES[0]}"]
    given += [f"--target_tokenizer={path / FILES[1]}", "--workdir=x"]
    arguments, options = wmt.read_arguments([*kept, *given])
    model = wmt.read_configuration(arguments, options.preset).model
    assert (model.source_vocab_size, model.vocab_size) == (70, 90)
    arguments, options = wmt.read_arguments([*kept, "--workdir=x"])
    model = wmt.read_configuration(arguments, options.preset).model
    assert model.source_vocab_size == model.vocab_size == 37000


@pytest.mark.parametrize(
    "format_name", ["saved_model", "tflite", "onnx", "ctranslate2"]
)
def test_every_format_translates_as_the_translator(
    trained, translator, format_name, tmp_path
):
    greedy = translator.with_decoding(beam_size=1)
    options = export.ExportOptions(
        workdir=str(trained[1]), format=format_name, output=str(tmp_path)
    )
    description = export.write(
        export.Source(greedy, greedy.checkpoint, [], ("en", "de")),
        options,
        tmp_path,
    )
    assert description["source_vocab_size"] == 70
    assert description["vocab_size"] == 90
    translate = reload.LOADERS[format_name](tmp_path, description)
    expected = [found[0] for found in greedy.n_best_ids(SENTENCES)]
    for answer, (ids, score) in zip(
        translate(SENTENCES), expected, strict=True
    ):
        assert answer["ids"] == ids
        assert answer["score"] == pytest.approx(score, abs=1e-4)


def test_the_saved_model_reads_each_language(translator):
    """Signatures that take text of the target."""
    from savedmodel.saved_model import Signatures

    signatures = Signatures(translator)
    found = signatures.score(["a dog"], ["der Hund"])
    [expected] = translator.score([("a dog", "der Hund")])
    np.testing.assert_allclose(
        found["log_prob"], [sum(expected.log_probs)], rtol=1e-4
    )
    forced = signatures.forced(["a dog"], ["der Hund"])
    assert forced["translation"].numpy()[0].startswith(b"der Hund")
    pieces = translator.tokenizer.target.pieces
    shown = signatures.attention(["a dog"])
    assert {p.decode() for p in shown["target_pieces"].numpy()[0]} <= {
        "",
        *pieces,
    }


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


def test_the_model_has_two_embeddings(tmp_path):
    sizes = {"d_model": 8, "d_ff": 12, "num_heads": 2, "num_layers": 1}
    shared = kt.Transformer(vocab_size=11, **sizes)
    model = kt.Transformer(vocab_size=11, source_vocab_size=7, **sizes)
    assert shared.source_embedding is shared.embedding
    assert model.count_params() == shared.count_params() + 7 * 8
    inputs = {
        "source_ids": np.array([[6, 4, 2], [7, 4, 2]], np.int32),
        "target_ids": np.array([[1, 10], [1, 10]], np.int32),
    }
    logits = keras.ops.convert_to_numpy(model(inputs))
    assert logits.shape == (2, 2, 11)
    # 7 is no token of the source.
    assert np.isfinite(logits[0]).all() and np.isnan(logits[1]).all()
    # The table of the target is that of the softmax, and not of the source.
    before = model.encode(inputs["source_ids"][:1]).key_values[0][0]
    model.embedding.embeddings.assign(2 * model.embedding.embeddings)
    after = model.encode(inputs["source_ids"][:1]).key_values[0][0]
    np.testing.assert_array_equal(before, after)
    assert not np.allclose(model(inputs)[0], logits[0])
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(
        keras.ops.convert_to_numpy(loaded(inputs)),
        keras.ops.convert_to_numpy(model(inputs)),
    )


def test_sizes_that_do_not_fit_are_refused(tokenizer):
    model = kt.Transformer(vocab_size=75, d_model=8, num_heads=2, num_layers=1)
    with pytest.raises(ValueError, match="Received: 60 and 75 tokens"):
        kt.Translator(tokenizer, model, kt.DecodingConfig(), 9)
    sections = TrainingConfig(), kt.DecodingConfig()
    for share, size in ((True, 60), (False, None)):
        with pytest.raises(ValueError, match="go together"):
            Configuration(
                kt.TransformerConfig(source_vocab_size=size),
                DataConfig(share_vocabulary=share),
                *sections,
            )
    for wrong in (
        {"share_vocabulary": False, "tokenizer": "a.model"},
        {"target_tokenizer": "a.model"},
        {
            "share_vocabulary": False,
            "dataset": "prepared",
            "train_files": ("x",),
        },
    ):
        with pytest.raises(ValueError, match="Received: .*share_vocabulary="):
            DataConfig(**wrong)
