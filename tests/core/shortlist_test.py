"""Shortlists: translations of tokens, and searches among them."""

import collections
import dataclasses
import json
import shutil
from unittest import mock

import ctranslate2
import exports
import keras
import numpy as np
import pytest
from commands import fails, write_pairs
from later import later
from translator_test import CONFIG, TEXT, make_translator

from keras_transformer.decoding import Constraints
from keras_transformer.model import Transformer
from keras_transformer.text.tokenization import Tokenizer, TokenizerPair
from keras_transformer.text.vocabulary import EOS, SPECIAL_IDS
from keras_transformer.translation import inference as inference_module
from keras_transformer.translation import shortlist as shortlists
from keras_transformer.translation.requests import read_text
from keras_transformer.translation.shortlist import (
    Shortlist,
    make_shortlist,
    translation_table,
)
from keras_transformer.translator import Translator
from savedmodel import export
from trainers import shortlist
from trainers.scoring import shortlist as scoring
from trainers.translating.shards import make_settings

PAIRS = [
    ([4, 5, EOS], [6, 7, EOS]),
    ([4, EOS], [6, EOS]),
    ([5, 8, 5, EOS], [9, 7, EOS]),
]


def model_1(pairs, iterations):
    """Computes IBM Model 1 word by word."""
    table = collections.defaultdict(lambda: 1.0)
    for _ in range(iterations):
        counts = collections.Counter()
        for source, target in pairs:
            for word in target[:-1]:
                whole = sum(table[s, word] for s in source)
                for s in source:
                    counts[s, word] += table[s, word] / whole
        totals = collections.Counter()
        for (s, _), count in counts.items():
            totals[s] += count
        table = {key: count / totals[key[0]] for key, count in counts.items()}
    return table


@pytest.mark.parametrize("chunk", [1, 2, 10])
def test_the_table_is_that_of_model_1(monkeypatch, chunk):
    monkeypatch.setattr(shortlists, "CHUNK", chunk)
    expected = model_1(PAIRS, shortlists.ITERATIONS)
    sources, targets, probabilities = translation_table(PAIRS)
    keys = zip(map(int, sources), map(int, targets), strict=True)
    found = dict(zip(keys, probabilities, strict=True))
    assert found == pytest.approx(expected)
    assert found[4, 6] > 0.5 and found[8, 9] > 0.5


def test_a_shortlist_has_frequent_tokens_copies_and_best_translations():
    tokenizer = Tokenizer.train(TEXT, 60)
    found = make_shortlist(PAIRS, tokenizer, 2, 1)
    expected = model_1(PAIRS, shortlists.ITERATIONS)
    # 6 and 7 are there twice each; one of them translates EOS, too.
    assert found.frequent.tolist() == [*SPECIAL_IDS, 6, 7]
    assert not len(found.translations[EOS])
    for source in set(range(60)) - {EOS}:
        of_source = {t: p for (s, t), p in expected.items() if s == source}
        best = [max(of_source, key=of_source.get)] if of_source else []
        assert found.translations[source].tolist() == [source, *best]


def test_two_vocabularies_share_what_has_the_same_piece():
    pair = TokenizerPair(
        Tokenizer.train(["a b c d"] * 3, 12), Tokenizer.train(["b x y z"], 12)
    )
    found = make_shortlist([([5, EOS], [4, EOS])], pair, 0, 1)
    sources, targets = pair.source.pieces, pair.target.pieces
    assert found.frequent.tolist() == [*SPECIAL_IDS, 4]  # 4 translates EOS
    for id, ids in enumerate(found.translations):
        if id == EOS:
            continue
        copies = [i for i, piece in enumerate(targets) if piece == sources[id]]
        learned = [4] if id == 5 and 4 not in copies else []
        assert ids.tolist() == copies + learned


def test_the_tokens_of_a_batch():
    translations = [[] for _ in range(40)]
    translations[30], translations[31] = [2999, 7], [2000]
    found = Shortlist([2998], translations, 3000).tokens(
        [[30, EOS], [32, EOS]], [[1500]]
    )
    wanted = {*SPECIAL_IDS, 7, 1500, 2998, 2999}
    fillers = [id for id in range(3000) if id not in wanted]
    expected = sorted(wanted | set(fillers[: 1024 - len(wanted)]))
    assert found.dtype == np.int32 and found.tolist() == expected


def test_no_shortlist_of_more_than_half_of_the_vocabulary():
    for size, expected in ((2048, 1024), (2047, None)):
        found = Shortlist([], [[]] * 5, size).tokens([[4]])
        assert (None if found is None else len(found)) == expected


def test_a_file_has_the_shortlist(tmp_path):
    tokenizer = Tokenizer.train(TEXT, 60)
    before = make_shortlist(PAIRS, tokenizer, 3, 2)
    path = tmp_path / "shortlist.txt"
    before.write(path, tokenizer)
    after = Shortlist.read(path, tokenizer)
    assert after.sha256 == before.sha256
    assert after.vocab_size == 60
    other = make_shortlist(PAIRS, tokenizer, 3, 1)
    assert other.sha256 != before.sha256
    pieces = tokenizer.pieces
    line = "\t" + " ".join(pieces[id] for id in before.frequent)
    assert path.read_text(encoding="utf-8").split("\n")[0] == line


@pytest.mark.parametrize(
    "line", ["no tab", "wrong\tt", "t\twrong", "u\tt  o", "t\to"]
)
def test_a_wrong_line_is_named(tmp_path, line):
    path = tmp_path / "shortlist.txt"
    path.write_text(f"t\to\n{line}\n", encoding="utf-8")
    with pytest.raises(ValueError, match="t.txt, line 2: expected a new"):
        Shortlist.read(path, Tokenizer.train(TEXT, 60))


def test_improbable_translations_are_left_out():
    tokenizer = Tokenizer.train(TEXT, 60)
    expected = model_1(PAIRS, shortlists.ITERATIONS)
    found = make_shortlist(PAIRS, tokenizer, 0, 9, min_probability=0.3)
    for source in (4, 5, 8):
        probable = {t for (s, t), p in expected.items() if s == source}
        likely = {t for t in probable if expected[source, t] >= 0.3}
        assert set(found.translations[source].tolist()) == likely | {source}
        assert likely < probable or source == 4


def with_shortlist(full, shortlist, **options):
    """Returns the same translator with a shortlist."""
    parts = full.tokenizer, full.model, full.decoding, full.max_source_length
    return Translator(*parts, shortlist=shortlist, **options)


def test_a_shortlist_of_another_vocabulary_is_refused():
    message = r"target tokens, \(60, 60\). Received: \(60, 61\)"
    with pytest.raises(ValueError, match=message):
        with_shortlist(make_translator(), Shortlist([], [[]] * 60, 61))


@pytest.fixture
def small(monkeypatch):
    """Makes batches of few tokens use only a part of a small vocabulary."""
    monkeypatch.setattr(shortlists, "SMALLEST", 24)


LINES = [TEXT[0], "", TEXT[1], TEXT[2], "fox", "the dog"]
PREFIXES = ["", "", "fox", "how", "", "the"]
ONE_BATCH = 4  # of the lines are searched together


def make_pair(dtype="float32", **options):
    """Makes a translator with a shortlist, and one with a bias instead.

    The bias of a token outside the list is so low that it has no probability.
    """
    config = dataclasses.replace(CONFIG, logits_bias=True)
    full = make_translator(config=config, dtype=dtype, **options)
    forced = sum(full.tokenizer.to_ids(PREFIXES), [])
    some = Shortlist([*forced, *range(25, 40)], [[]] * 60, 60)
    tokens = some.tokens([[4]])
    assert len(tokens) == 24
    listed = with_shortlist(full, some, jit_compile=full.jit_compile)
    model = Transformer(config, dtype=dtype)
    for weight, value in zip(model.weights, full.model.weights, strict=True):
        weight.assign(value)
    bias = keras.ops.convert_to_numpy(model.softmax.logits_bias).copy()
    bias[np.setdiff1d(np.arange(60), tokens)] = -1e9
    model.softmax.logits_bias.assign(bias)
    masked = Translator(
        full.tokenizer, model, full.decoding, full.max_source_length
    )
    return listed, masked


@pytest.mark.parametrize(
    "jit_compile, num_lines, decoding",
    [
        (False, ONE_BATCH, {"beam_size": 3, "no_repeat_ngram": 1}),
        *later(
            "options",
            (False, ONE_BATCH, {"sampling": True, "top_k": 9}),
            (False, ONE_BATCH, {"beam_size": 1}),
            (False, len(LINES), {"beam_size": 3}),
            (False, ONE_BATCH, {"sampling": True, "temperature": 2.0}),
        ),
        *later(
            "backend",
            (True, ONE_BATCH, {"beam_size": 1}),
            (True, ONE_BATCH, {"beam_size": 3}),
        ),
    ],
)
def test_a_search_among_tokens_is_that_without_the_others(
    small, jit_compile, num_lines, decoding
):
    listed, masked = make_pair(jit_compile=jit_compile)
    listed = listed.with_decoding(**decoding)
    masked = masked.with_decoding(**decoding)
    lines = LINES[:num_lines]
    for forced in (None, PREFIXES[:num_lines]):
        found = listed.n_best_ids(lines, forced)
        expected = masked.n_best_ids(lines, forced)
        for one, other in zip(found, expected, strict=True):
            ids, scores = zip(*one, strict=True)
            other_ids, other_scores = zip(*other, strict=True)
            assert ids == other_ids
            np.testing.assert_allclose(scores, other_scores, rtol=1e-4)


@pytest.mark.parametrize(
    "excess, shapes, decoding, expected",
    [
        (0, "static", {"beam_size": 3}, True),
        (1, "static", {"beam_size": 3}, False),
        (0, "free", {"beam_size": 3}, False),
        (0, "static", {"beam_size": 1}, False),
        (0, "static", {"sampling": True, "beam_size": 3}, False),
    ],
)
@pytest.mark.parametrize("num_tokens", [None, 9])
def test_a_small_softmax_matrix_is_transposed_for_a_beam_of_xla(
    monkeypatch, num_tokens, excess, shapes, decoding, expected
):
    """The limit applies to the matrix of the tokens that are scored."""
    inference = make_translator().with_decoding(**decoding).inference
    config, softmax = inference.models[0].config, inference.models[0].softmax
    tokens = None if num_tokens is None else np.arange(num_tokens)
    size = (num_tokens or config.vocab_size) * config.d_model
    projection = mock.Mock(wraps=softmax.projection)
    monkeypatch.setattr(softmax, "projection", projection)
    monkeypatch.setattr(inference_module, "MOST_TRANSPOSED", size - excess)
    ids = np.array([[5, 6, EOS]], np.int32)
    constraints = Constraints(draws=np.zeros((1, 99)))
    inference.translate_ids(
        ids, constraints, tokens, shapes=shapes, max_steps=2
    )
    [call] = projection.mock_calls
    assert call.args[1] == (shapes == "static")
    assert call.kwargs == {"transposed": expected}


def test_each_batch_has_its_own_tokens(small):
    lines = ["fox", "the dog", "jugs"]
    full = make_translator(batch_tokens=8)
    some = Shortlist([], [[id] for id in range(60)], 60)
    listed = with_shortlist(full, some, batch_tokens=8)
    rows, found = full.tokenizer.to_ids(lines), listed.search(lines)
    for row, translation in zip(rows, found, strict=True):
        tokens = some.tokens([row]).tolist()
        assert set(sum(translation.ids, [])) <= set(tokens)
    assert found != full.search(lines)


@pytest.fixture
def workdir(tmp_path):
    """A copy of a trained work directory, and pairs beside it."""
    path = tmp_path / "run"
    shutil.copytree(exports.workdir(), path)
    write_pairs(tmp_path / "pairs", exports.make_pairs(40))
    return path


def arguments(workdir, *argv):
    """Returns the command line."""
    prefix = f"--train_files={workdir.parent / 'pairs'}"
    return [f"--workdir={workdir}", prefix, *argv]


@pytest.mark.parametrize(
    "argv, rows",
    [
        ([], range(40)),
        (["--max_pairs=15"], range(0, 40, 3)),
        (["--max_length=12", "--num_translations=3"], range(40)),
    ],
)
def test_the_command_makes_a_shortlist_of_pairs(workdir, capsys, argv, rows):
    shortlist.main(arguments(workdir, *argv))
    options = dict(flag.lstrip("-").split("=") for flag in argv)
    translator = Translator.load(workdir, shortlist=True)
    tokenizer = translator.tokenizer
    pairs = [
        tuple(tokenizer.to_ids(pair))
        for number, pair in enumerate(exports.make_pairs(40))
        if number in rows
    ]
    longest = int(options.get("max_length", 100))
    kept = [pair for pair in pairs if max(map(len, pair)) <= longest]
    number = int(options.get("num_translations", 50))
    expected = make_shortlist(kept, tokenizer, 200, number, 0.001)
    assert translator.shortlist.sha256 == expected.sha256
    assert (len(kept) < len(pairs)) == ("max_length" in options)
    summary = json.loads(capsys.readouterr().out)
    assert summary["output"] == str(workdir / "shortlist.txt")
    assert summary["pairs"] == len(kept)
    assert summary["too_long"] == len(pairs) - len(kept)
    assert summary["not_read"] == 40 - len(rows)


def test_without_short_pairs_there_is_no_shortlist(workdir, capsys):
    pairs = [("one red dog", "eins rot Hund"), ("two dogs", "zwei Hunde")]
    write_pairs(workdir.parent / "pairs", pairs)
    argv = arguments(workdir, "--max_length=2")
    message = fails(shortlist.main, argv, capsys)
    assert "expected pairs of at most max_length=2 tokens" in message
    assert "Received: 2 longer ones" in message
    assert not (workdir / "shortlist.txt").exists()


def test_the_plan_of_a_bulk_translation_has_the_shortlist(workdir):
    shortlist.main(arguments(workdir))
    listed = Translator.load(workdir, shortlist=True)
    settings = make_settings(listed, shard_lines=5)
    assert settings.pop("shortlist_sha256") == listed.shortlist.sha256
    assert settings.pop("num_threads") == 1
    plain = make_settings(Translator.load(workdir), shard_lines=5)
    assert settings == plain


@pytest.mark.slow("backend")
def test_ctranslate2_reads_the_file(workdir, monkeypatch):
    """The same tokens and scores as ours, among the same tokens."""
    monkeypatch.setattr(shortlists, "_rounded", lambda number: number)
    monkeypatch.setattr(scoring, "NUM_FREQUENT", 0)
    shortlist.main(arguments(workdir, "--num_translations=1"))
    output = workdir.parent / "export"
    options = export.ExportOptions(
        workdir=str(workdir), format="ctranslate2", output=str(output)
    )
    output.mkdir()
    # Verified without the shortlist, which would change translations.
    export.export(export.load_source(options), options, output)
    greedy = {"beam_size": 1, "length_penalty": 0.0}
    listed = Translator.load(workdir, shortlist=True).with_decoding(**greedy)
    whole = Translator.load(workdir).with_decoding(**greedy)
    theirs = ctranslate2.Translator(str(output), intra_threads=1)
    differences = 0
    for line in filter(listed.fits, filter(str.strip, exports.SENTENCES)):
        read = read_text(listed.tokenizer, line).text
        [row] = listed.tokenizer.to_ids([read])
        assert listed.shortlist.tokens([row]) is not None
        [found] = theirs.translate_batch(
            [[listed.tokenizer.pieces[id] for id in row[:-1]]],
            use_vmap=True,
            beam_size=1,
            length_penalty=0,
            max_decoding_length=listed.limits.output_limit(len(row) - 1),
            min_decoding_length=0,
            return_scores=True,
            return_end_token=True,
        )
        [(ids, score)] = listed.n_best_ids([line])[0]
        assert [listed.tokenizer.pieces[id] for id in ids] == (
            found.hypotheses[0]
        )
        assert score == pytest.approx(found.scores[0], abs=1e-4)
        differences += ids != whole.n_best_ids([line])[0][0][0]
    assert differences  # the shortlist has an effect
