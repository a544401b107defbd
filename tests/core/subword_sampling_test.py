"""Pairs segmented anew in every epoch: the samples and their seeds."""

import collections
import functools
import itertools
import math
import random
import re
from unittest import mock

import numpy as np
import pytest
import tokenization_test
from random_pairs import ids_of, make_pairs, rows_of

from keras_transformer.data.changing import subword_sampling
from keras_transformer.data.changing.segmentation import (
    BytePairSampler,
    UnigramSampler,
    make_sampler,
)
from keras_transformer.data.changing.subword_sampling import SampledCorpus
from keras_transformer.data.corpus import encode_corpus
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.text.vocabulary import UNK
from trainers.run.data_config import DataConfig

train = functools.partial(
    tokenization_test.train, hard_vocab_limit=False, character_coverage=1.0
)
DROPPED = [("dog " * 70, "Hund"), ("", "Hund")]
PAIRS = [*make_pairs(40), *DROPPED, *make_pairs(50, seed=1)]
LINES = list(itertools.chain.from_iterable(make_pairs(300)))


@pytest.fixture(scope="module")
def tokenizers():
    return {
        "bpe": Tokenizer.train(LINES, vocab_size=90),
        **{name: train(name, LINES, 90) for name in ("unigram", "char")},
    }


@pytest.fixture(scope="module")
def bpe(tokenizers):
    return tokenizers["bpe"]


@pytest.fixture(scope="module")
def corpus(bpe):
    return SampledCorpus(PAIRS, bpe, 60, alpha=0.2, seed=5)


# ---------------------------------------------------------- what is sampled


def sample(tokenizer, lines, alpha, seed=1):
    """Returns sampled rows of ids without EOS."""
    sampler = make_sampler(tokenizer, alpha)
    words, ends = sampler.number_words(tokenizer.normalize(lines))
    ids, counts = sampler.sample(words, np.random.default_rng(seed))
    sums = np.concatenate([[0], np.cumsum(counts)])[ends]
    return [row.tolist() for row in np.split(ids, sums[1:-1])]


def frequencies_match(rows, probabilities):
    """Tells whether rows are as frequent as expected, to four deviations."""
    counts = collections.Counter(map(tuple, rows))
    assert set(counts) <= set(probabilities)
    for row, p in probabilities.items():
        deviation = math.sqrt(p * (1 - p) / len(rows))
        assert abs(counts[row] / len(rows) - p) < 4 * deviation, row
    return True


def outcomes_of_dropout(symbols, merges, alpha, dropped=frozenset()):
    """Returns segmentations with probabilities, by following every choice.

    The best pair that is still there is left out for good, or is merged.
    """
    pairs = [
        (-merges[a + b], i)
        for i, (a, b) in enumerate(itertools.pairwise(symbols))
        if a + b in merges and i not in dropped
    ]
    if not pairs:
        return {tuple(symbols): 1.0}
    _, i = min(pairs)
    merged = [*symbols[:i], symbols[i] + symbols[i + 1], *symbols[i + 2 :]]
    # Pairs with the new symbol are new; those behind it move up.
    still = {j if j < i else j - 1 for j in dropped if j not in (i - 1, i + 1)}
    found = collections.Counter()
    for p, outcomes in (
        (alpha, outcomes_of_dropout(symbols, merges, alpha, dropped | {i})),
        (1 - alpha, outcomes_of_dropout(merged, merges, alpha, still)),
    ):
        for outcome, probability in outcomes.items():
            found[outcome] += p * probability
    return found


def lines_of_two_letters():
    choose = random.Random(1)
    return ["".join(choose.choices("aab", k=9)) for _ in range(300)]


def test_bpe_dropout_has_the_probabilities_of_its_definition():
    tokenizer = Tokenizer.train(lines_of_two_letters(), vocab_size=14)
    entries = [entry for entry in tokenizer.entries if entry[2] == "NORMAL"]
    merges = {piece: score for piece, score, _ in entries if len(piece) > 1}
    assert len(merges) == 7
    outcomes = outcomes_of_dropout("▁aabab", merges, 0.3)
    assert len(outcomes) == 8
    number = tokenizer.pieces.index
    expected = {tuple(map(number, o)): p for o, p in outcomes.items()}
    assert math.fsum(expected.values()) == pytest.approx(1)
    rows = sample(tokenizer, ["aabab"] * 5000, 0.3)
    assert frequencies_match(rows, expected)


def test_unigram_segmentations_have_the_probabilities_of_kudo():
    """P(x) ^ alpha over all segmentations, by brute force."""
    tokenizer = train("unigram", lines_of_two_letters(), 30)
    scores = {piece: score for piece, score, _ in tokenizer.entries[UNK + 1 :]}
    text, alpha = "▁aabaa", 0.4
    weights = {}
    for cuts in itertools.product([False, True], repeat=len(text) - 1):
        starts = [0, *(i + 1 for i, cut in enumerate(cuts) if cut)]
        pieces = [
            text[a:b] for a, b in zip(starts, [*starts[1:], None], strict=True)
        ]
        if all(piece in scores for piece in pieces):
            row = tuple(tokenizer.pieces.index(piece) for piece in pieces)
            weights[row] = math.exp(alpha * sum(scores[p] for p in pieces))
    assert len(weights) > 3
    total = sum(weights.values())
    rows = sample(tokenizer, [text[1:]] * 4000, alpha)
    assert frequencies_match(rows, {r: w / total for r, w in weights.items()})


def test_without_dropout_it_is_the_segmentation_of_sentencepiece(bpe):
    rows = bpe.encode(LINES).to_list()
    assert sample(bpe, LINES, 0.0) == [row[:-1] for row in rows]


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_what_is_no_piece_is_sampled_as_its_bytes(model_type):
    tokenizer = train(model_type, LINES, 400, byte_fallback=True)
    lines = ["der dog", "dog 😆é😆", "<0xF0>"]
    for row, line in zip(sample(tokenizer, lines, 0.3), lines, strict=True):
        assert UNK not in row
        assert tokenizer.to_strings([row]) == [line]
    [row] = sample(tokenizer, ["😆"], 0.3)
    assert row == tokenizer.to_ids(["😆"])[0][:-1]


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_the_text_stays_the_same(tokenizers, model_type):
    tokenizer = tokenizers[model_type]
    assert tokenizer.model_type == model_type
    lines = [*LINES[:100], "", "Ω☃ dog", "der  Hund ", "ﬁsh"]
    canonical = [row[:-1] for row in tokenizer.encode(lines).to_list()]
    sizes = []
    for alpha in (0.05, 0.3, 0.7):
        rows = sample(tokenizer, lines, alpha)
        assert rows != canonical
        assert rows[100] == []
        assert [i for i, row in enumerate(rows) if UNK in row] == [
            i for i, row in enumerate(canonical) if UNK in row
        ]
        texts, expected = (
            tokenizer.to_strings([row for row in each if UNK not in row])
            for each in (rows, canonical)
        )
        assert texts == expected
        sizes.append(sum(map(len, rows)))
    if model_type == "unigram":  # alpha is the power of the probability
        sizes.reverse()
    assert sum(map(len, canonical)) < sizes[0] < sizes[1] < sizes[2]


def test_vocabularies_that_cannot_be_sampled_are_refused(tokenizers):
    with pytest.raises(ValueError, match="Received: model_type='char'"):
        SampledCorpus(PAIRS, tokenizers["char"], 300, alpha=0.1, seed=1)
    with pytest.raises(ValueError, match="'<x>' of type USER_DEFINED"):
        make_sampler(train("bpe", LINES, 90, user_defined_symbols="<x>"), 0.1)
    with pytest.raises(ValueError, match="Received: alpha=0.0"):
        SampledCorpus(PAIRS, tokenizers["bpe"], 300, alpha=0.0, seed=1)


GOLDEN = {
    BytePairSampler: [
        *([12, 9, 6], [4, 13], [10, 3, 7], [12, 7, 8]),
        *([4, 11, 8], [4, 13], [4, 5, 3, 7], [12, 9, 6]),
    ],
    UnigramSampler: [
        *([12, 13], [4, 7, 8], [10, 3, 7], [10, 6, 7, 5, 6]),
        *([10, 6, 7, 8], [4, 7, 5, 6], [4, 5, 3, 7], [4, 8, 9, 6]),
    ],
}


@pytest.mark.parametrize("sampler", [BytePairSampler, UnigramSampler])
def test_every_process_and_every_version_samples_the_same(sampler):
    """SentencePiece's own sampler, from 0.2.3 on, does not."""
    pieces = ["▁", "a", "b", "c", "ab", "ca", "▁a", "abc", "▁ab", "cab"]
    table = {piece: (4 + i, -1.0 - i / 2) for i, piece in enumerate(pieces)}
    made = sampler(table, 14, alpha=0.3)
    words, _ = made.number_words(["▁abcab▁cab", "▁aΩc▁abcab"])
    ids, counts = made.sample(
        np.tile(words, 2), np.random.default_rng([1, 0, 0, 1])
    )
    rows = np.split(ids, np.cumsum(counts)[:-1])
    assert [row.tolist() for row in rows] == GOLDEN[sampler]


# ------------------------------------------------------------- the corpus


def test_every_epoch_has_segmentations_of_its_own(corpus, bpe):
    canonical = encode_corpus(PAIRS, bpe, max_length=60)
    assert str(corpus.counts) == str(canonical.counts)
    assert (corpus.counts.too_long, corpus.counts.empty) == (3, 1)
    epochs = [corpus.of_epoch(epoch) for epoch in (0, 1, 2)]
    texts = set()
    for side in range(2):
        rows = [
            [pair[side] for pair in ids_of(epoch)]
            for epoch in (*epochs, canonical)
        ]
        for one, other in itertools.combinations(rows, 2):
            same = np.mean([a == b for a, b in zip(one, other, strict=True)])
            assert same < 0.3
        texts = {tuple(bpe.decode(each).numpy().tolist()) for each in rows}
        assert len(texts) == 1
    assert len(corpus) == corpus.counts.kept == 88
    assert "bpe vocabulary, alpha 0.2, 1." in str(corpus)


def test_the_next_epoch_is_sampled_in_the_background(corpus, monkeypatch):
    """The ids of past epochs are not kept."""
    corpus.prepare(7)
    made = corpus._epochs[7]
    made.result()
    monkeypatch.setattr(corpus, "_draw_epoch", None)  # no need to, any more
    assert corpus.of_epoch(7) is made.result()
    assert corpus.of_epoch(7) is corpus.of_epoch(7)
    monkeypatch.undo()
    corpus.of_epoch(8)
    assert set(corpus._epochs) == {8}


def test_an_error_in_the_background_reaches_the_training(corpus, monkeypatch):
    fail = mock.Mock(side_effect=RuntimeError("no epoch 5"))
    monkeypatch.setattr(corpus, "_draw_epoch", fail)
    corpus.prepare(5)
    with pytest.raises(RuntimeError, match="no epoch 5"):
        corpus.of_epoch(5)
    del corpus._epochs[5]


def test_rows_that_become_too_long_stay_canonical(bpe):
    canonical = encode_corpus(PAIRS, bpe, max_length=40)
    longest = int(canonical.longer_side.max())
    corpus = SampledCorpus(PAIRS, bpe, longest, alpha=0.3, seed=5)
    assert corpus.longest == corpus.longer_side.max() == longest
    for epoch in (0, 4):
        sampled = corpus.of_epoch(epoch)
        assert sampled.longer_side.max() <= longest
        rows = [*rows_of(sampled.source), *rows_of(sampled.target)]
        fixed = [*rows_of(canonical.source), *rows_of(canonical.target)]
        same = [a == b for a, b in zip(rows, fixed, strict=True)]
        lengths = [len(row) for row in fixed]
        # All of those with no room to grow, and few of the short ones.
        assert all(s for s, n in zip(same, lengths, strict=True) if n > 38)
        short = [s for s, n in zip(same, lengths, strict=True) if n < 20]
        assert np.mean(short) < 0.5
    long = f"of {2 * len(corpus)} rows have more than {longest} tokens"
    assert re.search(f"[1-9][0-9]* {long} and keep the canonical", str(corpus))


def test_another_text_than_the_canonical_one_is_refused(bpe, monkeypatch):
    """It may come from an unforeseen kind of vocabulary."""
    strange = make_sampler(bpe, 0.2)
    strange._merged = strange._merged[::-1].copy()
    monkeypatch.setattr(
        subword_sampling, "make_sampler", lambda tokenizer, alpha: strange
    )
    with pytest.raises(ValueError, match="another text for [0-9]+ of 88 sent"):
        SampledCorpus(PAIRS, bpe, 60, alpha=0.2, seed=5)


def test_unknown_characters_are_joined_as_in_sentencepiece():
    """A sampled corpus also has one UNK for any number of them."""
    tokenizer = Tokenizer.train(["ab ab", "a b"], vocab_size=9)
    lines = ["ΩΩ a", "aΩ", "ΩaΩΩΩb", "b ΩΩ"]
    corpus = SampledCorpus(
        zip(lines, lines[::-1], strict=True), tokenizer, 60, alpha=0.2, seed=5
    )
    for line, row in zip(lines, rows_of(corpus.source), strict=True):
        text = tokenizer.decode([row]).numpy()[0]
        assert text == tokenizer.decode(tokenizer.encode([line])).numpy()[0]
        assert "⁇  ⁇" not in text.decode()


def test_a_prepared_corpus_cannot_be_segmented_anew():
    with pytest.raises(ValueError, match="sampling excludes dataset=prep"):
        DataConfig(dataset="prepared", train_files=("x",), subword_sampling=0.1)


# ------------------------------------------------------------- its batches
