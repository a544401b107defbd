"""Training of a model that reads its languages as tokens."""

import json
import types

import numpy as np
import pytest
from commands import TINY, check_resumed, fails, train, write_sides
from original_models import FIXTURES

import keras_transformer as kt
from keras_transformer.data.corpus import encode_corpus
from keras_transformer.data.files.pairs import Pairs
from keras_transformer.data.labels import shift_right
from keras_transformer.data.languages import Languages, read_directions
from keras_transformer.importers import m2m100
from keras_transformer.importers.options import Options
from keras_transformer.storage.checkpoints import named_weights
from keras_transformer.text.vocabulary import EOS
from keras_transformer.training.token_losses import TokenLosses
from keras_transformer.training.update import StepOptions
from keras_transformer.translation.requests import (
    Request,
    encode,
    encode_pairs,
)
from savedmodel import export
from trainers import evaluate, import_model, wmt
from trainers.datasets import phrasebook
from trainers.run.corpora import encode_valid_corpus
from trainers.run.data_config import DataConfig


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Prefixes of files, where French is German spelled backwards."""
    folder = tmp_path_factory.mktemp("files")
    found = {}
    for name, size in (("train", 40), ("valid", 6)):
        english, german = zip(*phrasebook.read_split(name, size), strict=True)
        french = [line[::-1] for line in german[: size // 2]]
        found[name] = [
            write_sides(folder / f"{name}.de", en=english, de=german),
            write_sides(
                folder / f"{name}.fr", en=english[: size // 2], fr=french
            ),
        ]
    return found


@pytest.fixture(scope="module")
def flags(files):
    return [
        *TINY,
        "--language_tokens=m2m100",
        *("--source_language=en,de,fr", "--target_language=en,de,fr"),
        f"--train_files={','.join(files['train'])}",
        f"--valid_files={','.join(files['valid'])}",
        f"--test_files={files['valid'][1]}",
        *("--language_temperature=2", "--train_steps=6"),
        *("--valid_steps=6", "--valid_sentences=4", "--extra_length=3"),
        *("--beam_size=2", "--max_length=100", "--bleu_tokenizer=char"),
    ]


@pytest.fixture(scope="module")
def run(flags, tmp_path_factory):
    """A work directory, and the log of its training."""
    path = tmp_path_factory.mktemp("tokens") / "run"
    log = train([*flags, f"--workdir={path}"])
    return types.SimpleNamespace(path=path, log=log)


# ---- Pairs ------------------------------------------------------------------


def test_directions_are_those_that_have_both_files(tmp_path):
    one = write_sides(tmp_path / "one", en=["a", ""], de=["A", "B"])
    two = write_sides(tmp_path / "two", en=["c"], fr=["C"], de=["D"])
    languages = Languages("en,de,cs", "de,fr,cs,en", "m2m100")
    found = read_directions([one, two], languages)
    assert found.directions == [
        *(("en", "de"), ("en", "fr"), ("de", "fr"), ("de", "en")),
    ]
    assert found.sizes == [3, 1, 1, 3] and len(found) == 8
    parts = {codes: list(part) for codes, part in found.by_direction()}
    assert parts["en", "de"] == [("a", "A"), ("", "B"), ("c", "D")]
    assert parts["de", "fr"] == [("D", "C")]
    assert parts["de", "en"] == [("A", "a"), ("B", ""), ("D", "c")]
    alone = write_sides(tmp_path / "alone", fr=["x"])
    with pytest.raises(FileNotFoundError, match="alone.en and .*alone.de"):
        read_directions([one, alone], languages)


def corpus_of(translator, pairs, sizes, codes, **fields):
    """Makes a corpus as validation encodes it, in parts by direction."""
    data = DataConfig(
        dataset="files",
        train_files=("x",),
        **vars(translator.languages),
        **fields,
    )
    read = Pairs(lambda: iter(pairs), len(pairs), sizes, codes)
    return encode_valid_corpus(data, read, translator.tokenizer)


@pytest.mark.parametrize("name", ["m2m100", "nllb", "mbart50"])
def test_ids_and_loss_are_those_of_transformers(name):
    """Labels, and what the decoder reads, as in its fine-tuning."""
    folder = FIXTURES / name
    expected = json.loads((folder / "expected.json").read_text("utf-8"))
    batches = expected["training"]
    options = Options(json.loads((folder / "config.json").read_text()), folder)
    side, _ = m2m100._read_side(folder, options, EOS)
    ids = np.array(side.ids)
    translator = kt.Translator.from_pretrained(folder)
    sizes = [len(batch["pairs"]) for batch in batches]
    corpus = corpus_of(
        translator,
        [tuple(pair) for batch in batches for pair in batch["pairs"]],
        sizes,
        [tuple(batch["languages"]) for batch in batches],
    )
    sources, targets = (
        np.split(side.ids, side.offsets[1:-1])
        for side in (corpus.source, corpus.target)
    )
    for which, rows in (("source_ids", sources), ("labels", targets)):
        wanted = [row for batch in batches for row in batch[which]]
        assert [ids[row].tolist() for row in rows] == wanted
    losses = TokenLosses(translator.model, StepOptions(0.0))
    start = 0
    for size, batch in zip(sizes, batches, strict=True):
        source, target = (
            padded(rows[start : start + size]) for rows in (sources, targets)
        )
        inputs = {"source_ids": source, "target_ids": shift_right(target)}
        found, _ = losses(inputs, target, training=False)
        mean = np.asarray(found)[target != 0].mean()
        np.testing.assert_allclose(mean, batch["loss"], rtol=1e-4)
        start += size


def padded(rows):
    width = max(map(len, rows))
    return np.array([[*r, *[0] * (width - len(r))] for r in rows], np.int32)


def test_training_has_the_rows_of_scores():
    """A pair has the same form in training and in `score`."""
    translator = kt.Translator.from_pretrained(FIXTURES / "nllb")
    codes = "eng_Latn", "fra_Latn"
    direction = translator.languages.direction(*codes)
    pairs = [("a dog", "ein Hund"), ("", "b"), ("c", ""), ("the cat", "c")]
    corpus = corpus_of(translator, pairs, [4], [codes])
    assert corpus.selected.tolist() == [True, False, False, True]
    rows = encode_pairs(
        [(Request(s, direction=direction), t) for s, t in pairs],
        translator.encoding,
    )
    kept = [rows[0], rows[3]]
    assert corpus.source.ids.tolist() == sum((r.source_ids for r in kept), [])
    assert corpus.target.ids.tolist() == sum((r.target_ids for r in kept), [])


def test_the_longest_pair_has_its_tokens():
    """`max_length` counts the tokens of a direction."""
    translator = kt.Translator.from_pretrained(FIXTURES / "nllb")
    pairs = [("a dog", "a")], [1], [("eng_Latn", "fra_Latn")]
    [ids] = translator.tokenizer.to_ids(["a dog"])
    longest = len(ids) + 1
    found = corpus_of(translator, *pairs, max_length=longest)
    assert found.longer_side.tolist() == [longest]
    with pytest.raises(ValueError, match="1 with more than"):
        corpus_of(translator, *pairs, max_length=longest - 1)
    alone = encode_corpus(pairs[0], translator.tokenizer, longest - 1)
    assert len(alone) == 1


# ---- A training -------------------------------------------------------------


@pytest.mark.slow("family")
def test_a_new_vocabulary_has_the_tokens_of_languages(run):
    translator = kt.Translator.load(run.path)
    tokenizer = translator.tokenizer
    tokens = [f"__{code}__" for code in ("en", "de", "fr")]
    ids = [tokenizer.find(token) for token in tokens]
    assert len({*ids}) == 3 and None not in ids
    [row] = tokenizer.to_ids(["__de__ a dog"])
    assert not {*ids} & {*row}  # in text it is text
    direction = translator.languages.direction("en", "de")
    [row] = encode([Request("a dog", direction=direction)], translator.encoding)
    assert row.source_ids[0] == ids[0] and row.target_ids == [ids[1]]


@pytest.mark.slow("run")
def test_a_resumed_training_has_the_same_batches(run, flags):
    check_resumed(flags, run.path, 3, run.log)


@pytest.mark.slow("family")
def test_evaluate_measures_each_direction(run, files, capsys):
    argv = [f"--workdir={run.path}", f"--test_files={files['valid'][0]}"]
    evaluate.main(argv)
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert list(found["directions"]) == ["en-de", "de-en"]
    argv += ["--source_language=de", "--target_language=en"]
    evaluate.main(argv)
    alone = json.loads(capsys.readouterr().out.splitlines()[-1])
    alone.pop("seconds")
    assert alone == found["directions"]["de-en"]
    error = fails(evaluate.main, [*argv[:2], "--compare=x"], capsys)
    expected = "source_language and target_language, one of en-de, de-en,"
    assert f"compare needs {expected}" in error
    error = fails(evaluate.main, [argv[0], "--test_files=no/such"], capsys)
    assert "No such file: no/such." in error


@pytest.mark.slow("family")
def test_transformers_has_no_model_with_a_vocabulary_of_ours(
    run, tmp_path, capsys
):
    argv = [f"--workdir={run.path}", f"--output={tmp_path / 'out'}"]
    error = fails(export.main, [*argv, "--format=huggingface"], capsys)
    assert "the vocabulary of an imported model" in error


@pytest.mark.slow("run")
def test_an_imported_model_is_trained_further(files, tmp_path, capsys):
    """It is trained in two of its directions. The embeddings stay."""
    parent, path = tmp_path / "nllb", tmp_path / "run"
    import_model.main([f"--source={FIXTURES / 'nllb'}", f"--workdir={parent}"])
    english, german = zip(*phrasebook.read_split("train", 9), strict=True)
    prefix = write_sides(tmp_path / "pairs", eng_Latn=english, deu_Latn=german)
    argv = [f"--init_from={parent}", f"--workdir={path}", "--dataset=files"]
    argv += [f"--train_files={prefix}", f"--valid_files={prefix}"]
    argv += ["--train_steps=2", "--warmup_steps=1", "--checkpoint_steps=2"]
    argv += ["--freeze=embeddings", "--num_buckets=1", "--batch_tokens=2000"]
    out = train(argv)
    assert "(deu_Latn-eng_Latn 0" in out and ", eng_Latn-deu_Latn 0" in out
    before, after = (kt.Translator.load(where) for where in (parent, path))
    assert after.languages == before.languages
    weights = named_weights(before.model)
    changed = {
        name
        for name, weight in named_weights(after.model).items()
        if not np.array_equal(weight, weights[name])
    }
    assert changed and "embedding.embeddings" not in changed
    argv[1] = f"--workdir={tmp_path / 'other'}"
    error = fails(wmt.main, [*argv, "--target_language=xyz_Latn"], capsys)
    assert "nothing that contradicts the weights" in error
    error = fails(wmt.main, [*argv[:2], "--dataset=phrasebook"], capsys)
    assert "language_tokens, need dataset=files" in error


def test_a_vocabulary_without_the_tokens_is_refused(flags, tmp_path, capsys):
    lines = [
        line for pair in phrasebook.read_split("train", 40) for line in pair
    ]
    kt.Tokenizer.train(lines, 150, controls=["__en__", "__de__"]).save(
        tmp_path / "given"
    )
    given = [f"--tokenizer={tmp_path}/given", f"--workdir={tmp_path}/run"]
    message = fails(wmt.main, [*flags, *given], capsys)
    assert "its vocabulary has no token '__fr__'" in message
    assert not (tmp_path / "run").exists()
