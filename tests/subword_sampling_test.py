"""Pairs segmented anew in every epoch: what is sampled, and from which seed."""

import collections
import concurrent.futures
import io
import itertools
import math
import random

import numpy as np
import pytest
import sentencepiece
from random_pairs import make_pairs

from keras_transformer.data import batches as batches_module
from keras_transformer.data.corpus import encode_corpus
from keras_transformer.data.subword_sampling import SampledCorpus
from keras_transformer.tokenization import Tokenizer
from keras_transformer.vocabulary import EOS, UNK
from trainers.config import DataConfig


def train(model_type, lines, vocab_size):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type=model_type,
        vocab_size=vocab_size,
        hard_vocab_limit=False,
        character_coverage=1.0,
        minloglevel=2,
        pad_id=0,
        bos_id=1,
        eos_id=2,
        unk_id=3,
    )
    return Tokenizer(model.getvalue())


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


def rows_of(rows):
    return [row.tolist() for row in np.split(rows.ids, rows.offsets[1:-1])]


def ids_of(corpus):
    return rows_of(corpus.source), rows_of(corpus.target)


# ---------------------------------------------------------- what is sampled


def test_a_merge_is_left_out_as_often_as_told():
    """`ab` has one merge: it is made with probability 1 - alpha."""
    tokenizer = Tokenizer.train(["ab"], vocab_size=8)
    assert tokenizer.pieces[4:] == ["ab", "a", "b", "▁"]
    rows = tokenizer.sample(["ab"] * 4000, alpha=0.3, seed=1).to_list()
    counts = collections.Counter(map(tuple, rows))
    assert set(counts) == {(7, 4, EOS), (7, 5, 6, EOS)}
    deviation = math.sqrt(0.3 * 0.7 / 4000)
    assert abs(counts[7, 5, 6, EOS] / 4000 - 0.3) < 4 * deviation


def test_unigram_segmentations_have_the_probabilities_of_kudo():
    """P(x) ^ alpha over all segmentations, by brute force."""
    choose = random.Random(1)
    lines = ["".join(choose.choices("aab", k=9)) for _ in range(300)]
    tokenizer = train("unigram", lines, 30)
    processor = sentencepiece.SentencePieceProcessor(
        model_proto=tokenizer.model_bytes
    )
    scores = {
        piece: processor.get_score(i)
        for i, piece in enumerate(tokenizer.pieces)
        if i > UNK
    }
    text, alpha, number = "▁aabaa", 0.4, 4000
    expected = {}
    for cuts in itertools.product([False, True], repeat=len(text) - 1):
        starts = [0, *(i + 1 for i, cut in enumerate(cuts) if cut)]
        pieces = [
            text[a:b] for a, b in zip(starts, [*starts[1:], None], strict=True)
        ]
        if all(piece in scores for piece in pieces):
            row = tuple(tokenizer.pieces.index(piece) for piece in pieces)
            weight = math.exp(alpha * sum(scores[piece] for piece in pieces))
            expected[(*row, EOS)] = weight
    total = sum(expected.values())
    assert len(expected) > 3
    rows = tokenizer.sample([text[1:]] * number, alpha, seed=1).to_list()
    counts = collections.Counter(map(tuple, rows))
    assert set(counts) <= set(expected)
    for row, weight in expected.items():
        p = weight / total
        deviation = math.sqrt(p * (1 - p) / number)
        assert abs(counts[row] / number - p) < 4 * deviation, row


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_the_text_stays_the_same(tokenizers, model_type):
    tokenizer = tokenizers[model_type]
    assert tokenizer.model_type == model_type
    lines = [*LINES[:100], "", "Ω dog", "der  Hund "]
    canonical = tokenizer.encode(lines)
    few, more, most = (
        tokenizer.sample(lines, alpha, seed=3) for alpha in (0.05, 0.3, 0.7)
    )
    for rows in (few, more, most):
        decoded = tokenizer.decode(rows).numpy().tolist()
        assert decoded == tokenizer.decode(canonical).numpy().tolist()
        assert rows.to_list() != canonical.to_list()
        assert rows[100].numpy().tolist() == [EOS]
        unknown = np.flatnonzero((rows.to_tensor() == UNK).numpy().any(axis=1))
        assert unknown.tolist() == [101]
    sizes = [rows.flat_values.shape[0] for rows in (few, more, most)]
    if model_type == "unigram":  # alpha is the power of the probability
        sizes.reverse()
    assert canonical.flat_values.shape[0] < sizes[0] < sizes[1] < sizes[2]


def test_a_vocabulary_of_characters_has_one_segmentation(tokenizers):
    with pytest.raises(ValueError, match="Received: model_type='char'"):
        SampledCorpus(PAIRS, tokenizers["char"], 300, alpha=0.1, seed=1)
    with pytest.raises(ValueError, match="Received: alpha=0.0"):
        SampledCorpus(PAIRS, tokenizers["bpe"], 300, alpha=0.0, seed=1)


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_the_seed_decides_in_every_thread(tokenizers, model_type):
    tokenizer = tokenizers[model_type]
    rows = tokenizer.sample(LINES, 0.2, seed=7).to_list()
    with concurrent.futures.ThreadPoolExecutor(3) as threads:
        others = list(
            threads.map(
                lambda seed: tokenizer.sample(LINES, 0.2, seed).to_list(),
                [7, 8, 7, 9, 7],
            )
        )
    assert [other == rows for other in others] == [True, False] * 2 + [True]


# ------------------------------------------------------------- the corpus


def test_every_epoch_has_segmentations_of_its_own(corpus, bpe):
    canonical = encode_corpus(PAIRS, bpe, max_length=60)
    assert str(corpus.counts) == str(canonical.counts)
    assert (corpus.counts.too_long, corpus.counts.empty) == (3, 1)
    epochs = [corpus.of_epoch(epoch) for epoch in (0, 1, 2)]
    texts = set()
    for side in range(2):
        rows = [ids_of(epoch)[side] for epoch in (*epochs, canonical)]
        for one, other in itertools.combinations(rows, 2):
            same = np.mean([a == b for a, b in zip(one, other, strict=True)])
            assert same < 0.3
        texts = {tuple(bpe.decode(each).numpy().tolist()) for each in rows}
        assert len(texts) == 1
    assert len(corpus) == corpus.counts.kept == 88
    assert "bpe vocabulary, alpha 0.2, 1." in str(corpus)


def test_ids_depend_on_epoch_seed_and_alpha_alone(corpus, bpe, monkeypatch):
    expected = ids_of(corpus.of_epoch(3))
    again = SampledCorpus(iter(PAIRS), bpe, 60, alpha=0.2, seed=5)
    again.prepare(4)  # another order of work, meanwhile
    assert ids_of(again.of_epoch(3)) == expected
    assert again.checksum == corpus.checksum
    for alpha, seed in ((0.3, 5), (0.2, 6)):
        other = SampledCorpus(PAIRS, bpe, 60, alpha=alpha, seed=seed)
        assert ids_of(other.of_epoch(3)) != expected
        assert other.checksum != corpus.checksum


def test_the_next_epoch_is_sampled_in_the_background(corpus, monkeypatch):
    """And the ids of epochs that are over are not kept."""
    corpus.prepare(7)
    made = corpus._epochs[7]
    made.result()
    monkeypatch.setattr(corpus, "_sample_epoch", None)  # no need to, any more
    assert corpus.of_epoch(7) is made.result()
    assert corpus.of_epoch(7) is corpus.of_epoch(7)
    monkeypatch.undo()
    corpus.of_epoch(8)
    assert set(corpus._epochs) == {8}


def test_an_error_in_the_background_reaches_the_training(corpus, monkeypatch):
    def fail(epoch):
        raise RuntimeError(f"no epoch {epoch}")

    monkeypatch.setattr(corpus, "_sample_epoch", fail)
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
    assert f"{corpus.num_long} rows of it had more than {longest} tokens" in (
        str(corpus)
    )
    assert corpus.num_long > 0


def test_seeds_that_decide_nothing_are_an_error(bpe, monkeypatch):
    """As they would with one generator for all threads."""
    monkeypatch.setattr(
        sentencepiece, "set_random_generator_seed", lambda seed: None
    )
    seeds = itertools.count()
    sample = Tokenizer.sample
    monkeypatch.setattr(
        Tokenizer,
        "sample",
        lambda self, strings, alpha, seed: sample(
            self,
            [*strings[next(seeds) % 2 :], strings[0]][: len(strings)],
            alpha,
            seed,
        ),
    )
    with pytest.raises(RuntimeError, match="differently under the same seed"):
        SampledCorpus(PAIRS, bpe, 60, alpha=0.2, seed=5)


def test_a_vocabulary_that_lacks_characters_is_refused(bpe, monkeypatch):
    sample = Tokenizer.sample

    def with_unknown(self, strings, alpha, seed):
        ids = sample(self, strings, alpha, seed)
        return ids.with_values(ids.values * 0 + UNK)

    monkeypatch.setattr(Tokenizer, "sample", with_unknown)
    with pytest.raises(ValueError, match="a piece for every character"):
        SampledCorpus(PAIRS, bpe, 60, alpha=0.2, seed=5)


def test_a_prepared_corpus_cannot_be_segmented_anew():
    with pytest.raises(ValueError, match="subword_sampling needs text"):
        DataConfig(dataset="prepared", train_files=("x",), subword_sampling=0.1)


# ------------------------------------------------------------- its batches


@pytest.fixture(scope="module")
def batches(corpus):
    return batches_module.make_batches(
        corpus, 700, num_buckets=4, rows_multiple=2, seed=3
    )


def take(dataset, number=None):
    elements = itertools.islice(dataset.as_numpy_iterator(), number)
    return [
        np.concatenate([inputs["source_ids"], labels])
        for inputs, labels in elements
    ]


def assert_equal(first, second):
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


def test_every_epoch_has_every_pair_once(batches, bpe):
    assert "batches an epoch" in str(batches)
    texts = set()
    shapes = {(2 * rows, length) for rows, length in batches.shapes}
    for epoch in range(3):
        order = batches.epoch_order(epoch)
        assert len(order) == batches.steps_of(epoch)
        indices = np.concatenate([indices for indices, _ in order])
        assert sorted(indices) == list(range(len(batches.corpus)))
        arrays = take(batches.dataset(epochs=epoch + 1, start_epoch=epoch))
        assert {array.shape for array in arrays} <= shapes
        decoded = np.concatenate([bpe.decode(a).numpy() for a in arrays])
        texts.add(tuple(sorted(decoded.tolist())))
    assert len(texts) == 1


def test_resumed_anywhere_it_continues_with_the_same_ids(batches, bpe):
    sizes = [batches.steps_of(epoch) for epoch in range(3)]
    unbroken = take(batches.dataset(epochs=3))
    assert len(unbroken) == sum(sizes)
    for epoch, step in ((0, 1), (1, sizes[1] - 1), (1, sizes[1])):
        corpus = SampledCorpus(PAIRS, bpe, 60, alpha=0.2, seed=5)
        again = batches_module.make_batches(
            corpus, 700, num_buckets=4, rows_multiple=2, seed=3
        )
        assert again.order_id == batches.order_id
        resumed = again.dataset(step, start_epoch=epoch, end_step=step + 4)
        start = sum(sizes[:epoch]) + step
        assert_equal(take(resumed), unbroken[start : start + 4])
    start = sizes[0] + 2  # counted from the first epoch on
    assert_equal(take(batches.dataset(start), 2), unbroken[start : start + 2])


def test_two_replicas_share_the_batches_of_one(batches):
    whole = take(batches.dataset(end_step=9))
    slices = take(batches.dataset(end_step=9, slices=(0, 1), num_slices=2))
    assert len(slices) == 2 * len(whole) == 18
    for array, first, second in zip(
        whole, slices[::2], slices[1::2], strict=True
    ):
        sources, targets = zip(
            *(np.split(half, 2) for half in (first, second)), strict=True
        )
        np.testing.assert_array_equal(
            array, np.concatenate([*sources, *targets])
        )


def test_the_order_has_a_number_of_its_own(batches, bpe):
    plain = encode_corpus(PAIRS, bpe, max_length=60)
    numbers = {batches.order_id}
    for corpus in (plain, SampledCorpus(PAIRS, bpe, 60, alpha=0.1, seed=5)):
        numbers.add(
            batches_module.Batches(corpus, batches.shapes, 3, 1).order_id
        )
    assert len(numbers) == 3
