"""Mixtures of corpora: quotas, stages, and the batches of their epochs."""

import collections
import fractions
import itertools
import math
import random

import numpy as np
import pytest
from random_pairs import assert_equal, make_pairs, take

from keras_transformer.data import batches as batches_module
from keras_transformer.data.changing.mixture import Mixture, parse_mixture
from keras_transformer.data.corpus import encode_corpus
from keras_transformer.text.tokenization import Tokenizer
from trainers.run.data_config import DataConfig

PREFIXES = ["data/original", "data/back", "data/noisy"]
TEXT = (
    "original 0.5, back 0.35, until 3; back 1, noisy 0.1, original 0.25,"
    " until 7; noisy 1"
)
KEPT = [40, 61, 7]


def mix(text=TEXT, kept=KEPT, seed=3, prefixes=PREFIXES):
    stages, names = parse_mixture(text, prefixes[: len(kept)])
    read = [size + 2 for size in kept]
    return Mixture(stages, names, read, kept, seed)


def counts_of(mixture, epoch, kept=KEPT):
    """Counts each pair of each corpus in an epoch. Returns arrays."""
    counts = np.bincount(mixture.pairs_of(epoch), minlength=sum(kept))
    return np.split(counts, np.cumsum(kept)[:-1])


# ------------------------------------------------------------------- the text


def test_stages_of_a_text():
    stages, names = parse_mixture(TEXT, PREFIXES)
    assert names == ["original", "back", "noisy"]
    of = fractions.Fraction
    assert stages == [
        ({0: of("0.5"), 1: of("0.35")}, 3),
        ({1: of(1), 2: of("0.1"), 0: of("0.25")}, 7),
        ({2: of(1)}, math.inf),
    ]
    text, prefixes = "a/c .5,b/c 2 ,c 1", ["x/a/c", "x/b/c", "c"]
    (stage,), names = parse_mixture(text, prefixes)
    assert names == ["a/c", "b/c", "c"]
    assert list(stage.weights) == [0, 1, 2]


@pytest.mark.parametrize(
    "text, message",
    [
        ("original", "Received: 'original' in mixture='original'"),
        ("original 0.5 back 0.5", "must be NAME NUMBER"),
        ("original 0, back 1", "each number above 0. Received: 'original 0'"),
        ("original -1, back 1", "Received: 'original -1'"),
        ("original nan, back 1", "Received: 'original nan'"),
        ("original 1, original 1", "each name once"),
        ("original 1, data/original 1", "each once. Received: stage 'orig"),
        ("original 1, until 2; ", "Received: '' in mixture=''"),
        ("original 1, other 1", "'other', which matches 0 of data/orig"),
        ("l 1, back 1", "'l', which matches 0 of"),
        ("original 1, until 3", "stage 'original 1, until 3' of 1"),
        ("original 1; back 1", "stage 'original 1' of 2"),
        ("original 1, until 3; back 1, until 3; back 1", "greater from stage"),
        ("original 1, until 2.5; back 1", "until N' must be in every stage b"),
        ("until 3; back 1", "a stage must have a corpus"),
        ("original 1", "Received: none with data/back, data/noisy"),
    ],
)
def test_bad_texts_are_refused_in_one_line(text, message):
    with pytest.raises(ValueError, match=".") as error:
        DataConfig(dataset="files", train_files=tuple(PREFIXES), mixture=text)
    assert message in str(error.value) and "\n" not in str(error.value)
    assert str(error.value).startswith("mixture")


def test_a_name_must_be_of_one_corpus():
    with pytest.raises(ValueError, match="'train', which matches 2 of a/train"):
        parse_mixture("train 1", ["a/train", "b/train"])


@pytest.mark.parametrize("dataset", ["phrasebook", "tfds:x", "prepared"])
def test_only_files_are_mixed(dataset):
    files = ("x",) if dataset == "prepared" else ()
    with pytest.raises(ValueError, match="mixture needs dataset=files"):
        DataConfig(dataset=dataset, train_files=files, mixture="x 1")


def test_a_corpus_without_pairs_is_refused():
    with pytest.raises(ValueError, match="all pairs of back were dropped"):
        mix("original 1, back 1", [3, 0])


# --------------------------------------------------------------------- quotas


def quotas(epoch):
    """Returns the pairs of each corpus in an epoch of TEXT, written out."""
    if epoch < 3:  # 28 = 40 * 0.35 / 0.5
        return [40, 28, 0]
    if epoch < 7:  # 15.25 and 6.1 an epoch, rounded down in their sums
        return [[15, 15, 15, 16][epoch - 3], 61, 6]
    return [0, 0, 7]


def test_an_epoch_has_as_many_pairs_as_the_weights_ask_for():
    mixture = mix()
    for epoch in range(12):
        found = [int(c.sum()) for c in counts_of(mixture, epoch)]
        assert found == quotas(epoch), epoch
        assert mixture.describe(epoch) == (
            f"{found[0]} of original, {found[1]} of back, {found[2]} of noisy"
        )
    assert str(mixture) == (
        "original 42 pairs read, 40 kept; back 63 pairs read, 61 kept; noisy 9"
        " pairs read, 7 kept; epoch 1: "
        f"{mixture.describe(0)}; epoch 4: {mixture.describe(3)}; epoch 8:"
        f" {mixture.describe(7)}"
    )


@pytest.mark.parametrize("seed", range(10))
def test_the_laws_hold_for_any_stages(seed):
    """Weights within one pair of their sums; each pair equally often."""
    choose = random.Random(seed)
    kept = [choose.randint(1, 30) for _ in PREFIXES]
    stages, ends = [], sorted(choose.sample(range(1, 12), 4))
    for end in [*ends, 15]:
        numbers = choose.sample(range(3), 3)
        weights = [choose.randint(1, 40) / 10 for _ in numbers]
        stages.append((numbers, weights, end))
    mixture = mix(
        "; ".join(
            ", ".join(f"{PREFIXES[n]} {w}" for n, w in zip(*stage, strict=True))
            + (f", until {end}" if end < 15 else "")
            for *stage, end in stages
        ),
        kept,
    )
    seen, begin = np.zeros(sum(kept), int), 0
    for (first, *others), weights, end in stages:
        taken = np.zeros(3, int)
        for epoch in range(begin, end):
            counts = counts_of(mixture, epoch, kept)
            taken += [of_corpus.sum() for of_corpus in counts]
            assert (counts[first] == 1).all()
            for other, weight in zip(others, weights[1:], strict=True):
                share = kept[first] * weight / weights[0]
                expected = share * (epoch + 1 - begin)
                assert expected - 1 < taken[other] < expected + 1e-6
            seen += np.concatenate(counts)
            for of_corpus in np.split(seen, np.cumsum(kept)[:-1]):
                assert of_corpus.max() - of_corpus.min() <= 1
        begin = end


def test_a_corpus_is_taken_shuffle_by_shuffle():
    """With 12.5 of 5 pairs an epoch, each shuffle has every pair once."""
    mixture = mix("original 1, back 1.25", [10, 5])
    drawn = [mixture.pairs_of(epoch)[10:] for epoch in range(8)]
    assert [len(pairs) for pairs in drawn] == [12, 13] * 4
    shuffles = np.concatenate(drawn).reshape(-1, 5)
    assert (np.sort(shuffles) == np.arange(10, 15)).all()
    assert len({tuple(shuffle) for shuffle in shuffles}) > 15


def test_less_than_a_pair_an_epoch():
    mixture = mix("original 1, back 0.03", [10, 4])
    sizes = [len(mixture.pairs_of(epoch)) - 10 for epoch in range(40)]
    assert sum(sizes) == 12 and set(sizes) == {0, 1}


# ------------------------------------------------------------- its batches

PAIRS = make_pairs(sum(KEPT))


@pytest.fixture(scope="module")
def corpus():
    lines = list(itertools.chain.from_iterable(PAIRS))
    return encode_corpus(PAIRS, Tokenizer.train(lines, vocab_size=90), 200)


def make_batches(corpus, mixture, **options):
    options = {"num_buckets": 3, "rows_multiple": 2, "seed": 3, **options}
    return batches_module.make_batches(corpus, 400, mixture=mixture, **options)


def test_the_corpora_are_those_that_were_kept(corpus):
    assert corpus.kept_of(KEPT) == KEPT
    lines = list(itertools.chain.from_iterable(PAIRS))
    tokenizer = Tokenizer.train(lines, vocab_size=90)
    holes = [*PAIRS[:9], ("", "x"), *PAIRS[9:20], ("x", "")]
    found = encode_corpus(holes, tokenizer, 200).kept_of([10, 10, 2])
    assert found == [9, 10, 1]


def test_batches_have_the_pairs_of_the_mixture(corpus):
    mixture = mix()
    batches = make_batches(corpus, mixture)
    sizes = set()
    for epoch in range(9):
        order = batches.epoch_order(epoch)
        found = np.concatenate([indices for indices, _ in order])
        assert collections.Counter(found) == collections.Counter(
            mixture.pairs_of(epoch)
        )
        assert len(order) == batches.steps_of(epoch)
        sizes.add(len(order))
        for indices, (rows, length) in order:
            assert len(indices) <= rows
            assert corpus.longer_side[indices].max() <= length
    assert len(sizes) > 2
    assert batches.steps_per_epoch == batches.steps_of(0)


def test_the_figures_of_the_first_epoch_are_of_the_mixture(corpus):
    mixture = mix()
    batches = make_batches(corpus, mixture)
    arrays = list(batches.arrays(epochs=1))
    sources = sum(np.sum(x["source_ids"] != 0) for x, _ in arrays)
    targets = sum(np.sum(labels != 0) for _, labels in arrays)
    assert batches.tokens_per_epoch == [sources, targets]
    positions = sum(2 * labels.size for _, labels in arrays)
    assert batches.padding_share == 1 - (sources + targets) / positions


def test_a_mixture_of_one_corpus_changes_nothing(corpus):
    size = len(corpus)
    one = make_batches(corpus, mix("original 1", [size]))
    plain = make_batches(corpus, None)
    assert_equal(take(one.arrays(epochs=3)), take(plain.arrays(epochs=3)))
    assert one.padding_share == plain.padding_share
    staged = mix("original 0.5, until 2; original 3", [size])
    staged = make_batches(corpus, staged)
    assert_equal(take(staged.arrays(epochs=3)), take(plain.arrays(epochs=3)))


def test_the_data_set_ends_where_the_epochs_end(corpus):
    batches = make_batches(corpus, mix())
    steps = sum(map(batches.steps_of, range(8)))
    assert steps != 8 * batches.steps_per_epoch
    assert len(list(batches.dataset(epochs=8))) == steps
