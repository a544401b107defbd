"""Pruning a vocabulary keeps all that a corpus needs of it."""

import gzip
import json

import numpy as np
import pytest
import sentencepiece
from commands import fails
from later import later
from original_models import FIXTURES
from readable import readable

import keras_transformer as kt
from keras_transformer.importers import pruning, read_model
from keras_transformer.importers.imported import Imported
from keras_transformer.importers.vocabularies import make_tokenizer
from keras_transformer.storage.workdir import WorkDirectory
from keras_transformer.text.vocabulary import BOS, UNK
from keras_transformer.translation.loading import About
from keras_transformer.translation.requests import Request, encode
from savedmodel import export, huggingface
from savedmodel.formats import Export
from trainers import import_model
from trainers.datasets import phrasebook

SPECIAL = ["<pad>", "<start>", "</s>", "<unk>", "<s>"]
CODES = ["de_DE", "en_XX"]
CYRILLIC = str.maketrans("abdeghiklmnoprstuvz", "абдегхиклмнопрстувз")


def corpora():
    """Makes lines to prune with, other lines, and lines of another script."""
    lines = [
        line for pair in phrasebook.read_split("train", 400) for line in pair
    ]
    return lines[:40], lines[40:], [line.translate(CYRILLIC) for line in lines]


def toy(tmp_path, algorithm):
    """Makes a model of minimal layers, over a vocabulary of two scripts.

    Its table lacks the last pieces of the SentencePiece model.
    """
    first, others, cyrillic = corpora()
    text = tmp_path / "text"
    text.write_text("\n".join([*first, *others, *cyrillic]), "utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(text),
        model_prefix=str(tmp_path / "toy"),
        vocab_size=500,
        model_type=algorithm,
        minloglevel=2,
    )
    path = tmp_path / "toy.model"
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    pieces = processor.id_to_piece(list(range(3, 500)))
    table = [*SPECIAL, *pieces[:200], *pieces[210:], *CODES]
    config = kt.TransformerConfig(vocab_size=len(table), d_model=4, num_heads=1)
    rows = np.arange(len(table), dtype=np.float32)
    return Imported(
        config=config,
        weights={
            "embedding/embeddings": np.tile(rows[:, None], 4),
            "embedding/logits_bias": rows,
            "encoder/final_norm/gamma": np.ones(4),
        },
        tokenizer=make_tokenizer(
            path.read_bytes(), table, path, controls=CODES
        ),
        decoding=kt.DecodingConfig(),
        max_length=60,
        language_tokens="mbart50",
    )


def texts_of(tokenizer, line):
    """Returns the text of each token of a line."""
    return [tokenizer.pieces[id] for id in tokenizer.to_ids([line])[0]]


@pytest.mark.parametrize("algorithm", ["bpe", *later("family", "unigram")])
def test_text_whose_tokens_stay_has_the_same_segments(tmp_path, algorithm):
    imported = toy(tmp_path, algorithm)
    first, others, cyrillic = corpora()
    pruned = pruning.prune(imported, first)
    before, after = imported.tokenizer, pruned.tokenizer
    assert after.vocab_size < 0.7 * before.vocab_size
    kept, covered = set(after.pieces), 0
    for line in [*first, *others]:
        expected = texts_of(before, line)
        found = texts_of(after, line)
        if kept.issuperset(expected):
            covered += 1
            assert found == expected
            assert after.encode([line]).to_list() == after.to_ids([line])
        # All other text of this script is written, too.
        assert found.count("<unk>") <= expected.count("<unk>")
        assert (
            after.to_strings(after.to_ids([line]))
            == before.to_strings(before.to_ids([line]))
            or "<unk>" in expected
        )
    assert len(first) < covered < len(first) + len(others)
    letters = [line for line in cyrillic if "б" in line]
    assert all(UNK in ids for ids in after.to_ids(letters))
    assert not any("б" in piece for piece in after.pieces)
    # Rows go along with their tokens.
    rows = pruned.weights["embedding/logits_bias"].astype(int)
    assert [before.pieces[row] for row in rows] == after.pieces
    assert (pruned.weights["embedding/embeddings"][:, 0] == rows).all()
    assert pruned.config.vocab_size == len(rows)
    assert pruned.language_codes == CODES
    note = " ".join(pruned.notes)
    assert f"pruned: {len(rows)} of {before.vocab_size} rows stay" in note
    total = sum(len(ids) - 1 for ids in before.to_ids(first))
    assert f"All {total:,} tokens of the corpus stay" in note
    assert "scripts other than Latin" in note


def test_a_rare_script_is_not_one_of_the_corpus(tmp_path):
    imported = toy(tmp_path, "unigram")
    first, others, _ = corpora()
    line = "б"
    few = pruning.prune(imported, [*first, *others, line]).tokenizer
    many = pruning.prune(imported, [*first, *[line] * 50]).tokenizer
    assert few.find("б") and not few.find("г")
    assert many.find("б") and many.find("г")


def test_another_kind_of_model_is_refused(tmp_path):
    _, imported = read_model(FIXTURES / "marian_shared")
    with pytest.raises(
        ValueError, match="only a multilingual vocabulary can be pruned"
    ):
        pruning.prune(imported, ["a"])
    _, imported = read_model(FIXTURES / "nllb")
    with pytest.raises(ValueError, match="expected a corpus with text"):
        pruning.prune(imported, ["", " "])


@pytest.mark.parametrize(
    "name", ["nllb", *later("family", "m2m100", "mbart50")]
)
def test_tokens_that_stay_have_the_same_logits(name, tmp_path):
    _, imported = read_model(FIXTURES / name)
    expected = json.loads((FIXTURES / name / "expected.json").read_text())
    lines = [*expected["sources"][:3], *expected["texts"][:3]]
    pruned = pruning.prune(imported, lines)
    rows = [imported.tokenizer.pieces.index(p) for p in pruned.tokenizer.pieces]
    assert len(rows) < imported.config.vocab_size
    source, target = expected["languages"]
    tables = {path: np.asarray(pruned.weights[path]) for path in pruning.ROWS}
    translators = []
    for each in (imported, pruned):
        translator = kt.Translator(
            each.tokenizer,
            each.make_model(),
            each.decoding,
            each.max_length,
            about=About(
                each.languages, each.languages.direction(source, target)
            ),
        )
        translators.append(translator.with_decoding(beam_size=1))
    before, after = translators
    for line in lines:
        [theirs], [ours] = (
            encode([Request(line)], t.encoding) for t in translators
        )
        assert [rows[id] for id in ours.source_ids] == theirs.source_ids
        target_ids = [BOS, *theirs.target_ids, *theirs.source_ids[1:-1]]
        places = {row: id for id, row in enumerate(rows)}
        full, part = (
            np.asarray(
                t.model(
                    {
                        "source_ids": np.array([row.source_ids], "int32"),
                        "target_ids": np.array([ids], "int32"),
                    }
                )
            )[0]
            for t, row, ids in (
                (before, theirs, target_ids),
                (after, ours, [places[id] for id in target_ids]),
            )
        )
        np.testing.assert_allclose(part, full[:, rows], atol=1e-5)
        # Probabilities can only rise.
        total = np.logaddexp.reduce(full, axis=1)
        assert (np.logaddexp.reduce(part, axis=1) <= total + 1e-6).all()
    # The files for transformers have the ids of a smaller original.
    options = export.ExportOptions(
        workdir=".", output=str(tmp_path), format="huggingface"
    )
    huggingface.write(Export(after, tmp_path, options, {}, []))
    _, again = read_model(tmp_path)
    assert again.tokenizer.to_ids(lines) == pruned.tokenizer.to_ids(lines)
    for path in pruning.ROWS:
        assert np.array_equal(again.weights[path], tables[path])
    [[(found, score)]] = after.n_best_ids(lines[:1])
    [[(wanted, other)]] = before.n_best_ids(lines[:1])
    if set(wanted) <= set(rows):
        assert [rows[id] for id in found] == wanted
        assert score >= other - 1e-6


@pytest.mark.slow("options")
def test_a_corpus_with_all_tokens_changes_no_translation(tmp_path, capsys):
    """The command reads several files, one compressed, in two languages."""
    expected = json.loads((FIXTURES / "nllb/expected.json").read_text())
    lines = [
        line for pair in phrasebook.read_split("train", 300) for line in pair
    ]
    (tmp_path / "corpus.a").write_text("\n".join(lines))
    with gzip.open(tmp_path / "corpus.b.gz", "wt") as file:
        file.write("\n".join([*expected["sources"], *expected["texts"]]))
    workdir = tmp_path / "run"
    argv = [
        f"--source={FIXTURES / 'nllb'}",
        f"--workdir={workdir}",
        "--keep_languages=eng_Latn,deu_Latn",
        f"--vocabulary_from={tmp_path / 'corpus.*'}",
    ]
    import_model.main(argv)
    printed = capsys.readouterr().out
    assert "rows stay" in printed
    languages = WorkDirectory(workdir).read_languages()
    assert languages.sources == languages.targets == ["eng_Latn", "deu_Latn"]
    translator = kt.Translator.load(workdir).with_languages(
        *expected["languages"]
    )
    read = readable(translator.tokenizer, expected["sources"])
    assert len(read) > 9
    found = translator.translate([expected["sources"][i] for i in read])
    assert found == [expected["texts"][i] for i in read]
    for wrong, message in (
        (
            "--vocabulary_from=none.*",
            "files in vocabulary_from. Received: 'none.*'",
        ),
        ("--source_language=eng_Latn", "keep_languages excludes source_lang"),
        ("--keep_languages=eng_Latn,xyz", "expected a language of the model"),
    ):
        other = [*argv, f"--workdir={tmp_path / 'other'}", wrong]
        assert message in fails(import_model.main, other, capsys)
