"""Batches: buckets, the order of an epoch, padding, the data set."""

import itertools
import random

import numpy as np
import pytest
import tensorflow as tf
from random_pairs import make_pairs, rows_of

from keras_transformer.data.batches import Batches, make_batches
from keras_transformer.data.buckets import choose_boundaries, choose_shapes
from keras_transformer.data.corpus import (
    Corpus,
    CorpusCounts,
    TokenRows,
    encode_corpus,
)
from keras_transformer.data.labels import shift_right
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.text.vocabulary import PAD


@pytest.fixture(scope="module")
def tokenizer():
    lines = itertools.chain.from_iterable(make_pairs(300))
    return Tokenizer.train(lines, vocab_size=90)


@pytest.fixture(scope="module")
def corpus(tokenizer):
    return encode_corpus(make_pairs(1000), tokenizer, max_length=60)


@pytest.fixture(scope="module")
def batches(corpus):
    return make_batches(corpus, 256, num_buckets=5, seed=7)


def corpus_of(*sides):
    """Makes a corpus of two pairs from the ids of each side."""
    rows = [
        TokenRows(
            np.array(sum(side, []), np.uint16), np.cumsum([0, *map(len, side)])
        )
        for side in sides
    ]
    counts = CorpusCounts(2, 2, 0, 0, 9)
    return Corpus(*rows, counts)


def take(dataset, num_batches=None):
    """Returns batches of a data set as `(source_ids, target_ids, labels)`."""
    elements = itertools.islice(dataset.as_numpy_iterator(), num_batches)
    return [
        (inputs["source_ids"], inputs["target_ids"], labels)
        for inputs, labels in elements
    ]


def assert_equal_batches(first, second):
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        for array, other_array in zip(one, other, strict=True):
            np.testing.assert_array_equal(array, other_array)


def padded_tokens(lengths, boundaries):
    return sum(min(b for b in boundaries if b >= n) for n in lengths)


@pytest.mark.parametrize("seed", range(20))
def test_boundaries_are_optimal(seed):
    rng = random.Random(seed)
    lengths = [rng.randint(1, 12) for _ in range(rng.randint(1, 40))]
    num_buckets = rng.randint(1, 5)
    boundaries = choose_boundaries(lengths, num_buckets)
    values = sorted(set(lengths))
    brute_force = min(
        padded_tokens(lengths, [*chosen, values[-1]])
        for chosen in itertools.combinations(
            values[:-1], min(num_buckets, len(values)) - 1
        )
    )
    assert boundaries == sorted(set(boundaries))
    assert len(boundaries) <= num_buckets
    assert padded_tokens(lengths, boundaries) == brute_force


def test_shapes_keep_to_the_budget(corpus):
    for batch_tokens, replicas in ((256, 1), (300, 2), (1000, 8)):
        shapes = choose_shapes(corpus.longer_side, batch_tokens, 6, replicas)
        assert len(shapes) <= 6
        for rows, length in shapes:
            assert rows % replicas == 0
            assert rows * length <= batch_tokens < (rows + replicas) * length


def test_a_batch_must_hold_the_longest_pair(corpus):
    for numbers, message in (
        ((19, 2, 2), "at least 20.*batch_tokens=19"),
        ((100, 0, 1), "at least 1. Received"),
        ((100, 2, 0), "at least 1. Received"),
    ):
        with pytest.raises(ValueError, match=message):
            choose_shapes([3, 10], *numbers)
    with pytest.raises(ValueError, match=r"Received: shapes=\[\(9, 3\)\]"):
        Batches(corpus, [(9, 3)], seed=None, steps_per_call=1)


# --------------------------------------------------------- order and data set


def test_labels_are_the_target_shifted():
    corpus = corpus_of([[8, 2], [9, 9, 9, 2]], [[5, 6, 2], [7, 2]])
    batches = Batches(corpus, [(3, 4)], seed=None, steps_per_call=1)
    elements = batches.dataset(epochs=1)
    int32 = tf.TensorSpec([None, None], tf.int32)
    inputs = {"source_ids": int32, "target_ids": int32}
    assert elements.element_spec == (inputs, int32)
    ((source_ids, target_ids, labels),) = take(elements)
    assert source_ids.tolist() == [[8, 2, 0, 0], [9, 9, 9, 2], [0, 0, 0, 0]]
    assert target_ids.tolist() == [[1, 5, 6, 0], [1, 7, 0, 0], [0, 0, 0, 0]]
    assert labels.tolist() == [[5, 6, 2, 0], [7, 2, 0, 0], [0, 0, 0, 0]]


@pytest.mark.parametrize("seed", [None, 7])
@pytest.mark.parametrize("epoch", [0, 3])
def test_every_pair_is_in_exactly_one_batch(corpus, seed, epoch):
    batches = make_batches(corpus, 256, num_buckets=5, seed=seed)
    order = batches.epoch_order(epoch)
    seen = np.concatenate([indices for indices, _ in order])
    assert sorted(seen) == list(range(len(corpus)))
    assert len(order) == batches.steps_per_epoch


def test_batches_hold_the_pairs_of_the_order(corpus, batches):
    sources, targets = rows_of(corpus.source), rows_of(corpus.target)
    for (indices, _), (source_ids, _, labels) in zip(
        batches.epoch_order(0), take(batches.dataset(epochs=1)), strict=True
    ):
        for rows, ids in ((sources, source_ids), (targets, labels)):
            for index, row in zip(indices, ids, strict=False):
                assert row[row != PAD].tolist() == rows[index]
        assert not np.any(source_ids[len(indices) :])


def test_no_thread_tunes_the_pipeline(batches):
    """At its end, `fit` would wait for that thread if data is left."""
    assert batches.dataset().options().autotune.enabled is False


def test_only_one_batch_of_an_epoch_has_rows_of_padding(batches):
    order = batches.epoch_order(2)
    assert sum(len(indices) < rows for indices, (rows, _) in order) <= 1


def test_padding_share_is_that_of_the_batches(batches):
    elements = take(batches.dataset(epochs=1))
    padding = np.mean(
        np.concatenate(
            [array.ravel() == PAD for s, _, t in elements for array in (s, t)]
        )
    )
    assert batches.padding_share == pytest.approx(padding)
    assert f"{padding:.1%}" in str(batches)
    assert f"{len(elements)} batches an epoch" in str(batches)
    assert "limited" not in str(batches)


def test_epochs_differ_and_seeds_decide(corpus, batches):
    def order(batches, epoch):
        return np.concatenate([i for i, _ in batches.epoch_order(epoch)])

    again = make_batches(corpus, 256, num_buckets=5, seed=7)
    other = make_batches(corpus, 256, num_buckets=5, seed=8)
    np.testing.assert_array_equal(order(batches, 1), order(again, 1))
    assert np.any(order(batches, 1) != order(batches, 0))
    assert np.any(order(batches, 1) != order(other, 1))


def test_batches_mix_all_lengths_of_an_epoch(batches):
    lengths = [shape[1] for _, shape in batches.epoch_order(0)]
    assert lengths != sorted(lengths)


def test_without_a_seed_order_is_that_of_the_corpus(corpus):
    order = make_batches(corpus, 256).epoch_order(0)
    assert [shape for _, shape in order] == sorted(
        (shape for _, shape in order), key=lambda shape: shape[1]
    )
    first_shape = order[0][1]
    first = np.flatnonzero(corpus.longer_side <= first_shape[1])
    np.testing.assert_array_equal(order[0][0], first[: first_shape[0]])


def test_epochs_end_where_they_should(batches):
    steps = batches.steps_per_epoch
    assert len(take(batches.dataset(epochs=2))) == 2 * steps
    assert len(take(batches.dataset(start_step=steps + 2, epochs=2))) == (
        steps - 2
    )
    assert take(batches.dataset(start_step=3 * steps + 1, epochs=2)) == []
    assert batches.dataset().cardinality() == tf.data.INFINITE_CARDINALITY
    assert batches.dataset(epochs=2).cardinality() == 2 * steps


def test_slices_are_of_the_rows(corpus):
    batches = make_batches(corpus, 256, rows_multiple=4, seed=1)
    whole = take(batches.dataset(epochs=1))
    slices = [
        take(batches.dataset(epochs=1, replicas=[number], num_replicas=4))
        for number in range(4)
    ]
    joined = [
        tuple(map(np.concatenate, zip(*arrays, strict=True)))
        for arrays in zip(*slices, strict=True)
    ]
    assert_equal_batches(joined, whole)
    # A worker with two replicas gets the slices of both, batch by batch.
    both = take(batches.dataset(epochs=1, replicas=(2, 3), num_replicas=4))
    assert_equal_batches(both[0::2], slices[2])
    assert_equal_batches(both[1::2], slices[3])


def test_slices_must_divide_the_rows_and_steps_be_positive(batches, corpus):
    for number, num_replicas in ((0, 7), (2, 2), (-1, 1)):
        with pytest.raises(ValueError, match="Received: replicas="):
            batches.dataset(replicas=[number], num_replicas=num_replicas)
    with pytest.raises(ValueError, match="Received: steps_per_call=0"):
        make_batches(corpus, 256, steps_per_call=0)


def test_several_steps_per_call_are_one_element(corpus):
    batches = make_batches(corpus, 256, num_buckets=3, steps_per_call=4, seed=1)
    order = batches.epoch_order(0)
    pairs = np.concatenate([indices for indices, _ in order])
    np.testing.assert_array_equal(np.sort(pairs), np.arange(len(corpus)))
    # The elements are the batches of that order, and nearly all come by four:
    # at most 3 of a shape are left over in an epoch.
    elements = take(batches.dataset(epochs=1))
    lengths = [len(labels) for _, _, labels in elements]
    assert set(lengths) == {1, 4}
    assert lengths.count(1) <= 3 * len(batches.shapes)
    steps = [
        tuple(array[step] for array in element)
        for element in elements
        for step in range(len(element[0]))
    ]
    expected = []
    for indices, shape in order:
        inputs, labels = batches.assemble(indices, shape)
        expected.append((inputs["source_ids"], inputs["target_ids"], labels))
    assert_equal_batches(steps, expected)
    # Wherever it starts, the first batch is the one that was next.
    section = take(batches.dataset(3, end_step=9))
    assert sum(len(labels) for _, _, labels in section) == 6
    np.testing.assert_array_equal(section[0][2][0], expected[3][2])


@pytest.mark.parametrize("bucket", [0, 1, 2])
def test_largest_batch_of_a_shape(bucket, corpus):
    batches = make_batches(
        corpus, 256, num_buckets=3, rows_multiple=2, steps_per_call=2, seed=1
    )
    rows, length = batches.shapes[bucket]
    ((source_ids, target_ids, labels),) = take(
        batches.largest_batch((rows, length))
    )
    assert source_ids.shape == (rows, length)
    tokens = np.maximum((source_ids != PAD).sum(1), (labels != PAD).sum(1))
    fitting = corpus.longer_side[corpus.longer_side <= length]
    longest = np.sort(fitting)[-rows:]
    np.testing.assert_array_equal(np.sort(tokens)[-len(longest) :], longest)
    halves = take(batches.largest_batch((rows, length), (0, 1), 2))
    joined = map(np.concatenate, zip(*halves, strict=True))
    assert_equal_batches([(source_ids, target_ids, labels)], [tuple(joined)])


def test_order_id_depends_on_the_settings(corpus):
    def order_id(tokens=256, **options):
        options = {"seed": 1, "num_buckets": 3, **options}
        return make_batches(corpus, tokens, **options).order_id

    assert order_id() == order_id()
    others = {
        order_id(),
        order_id(tokens=300),
        order_id(seed=2),
        order_id(num_buckets=2),
        order_id(steps_per_call=2),
        order_id(rows_multiple=4),
    }
    assert len(others) == 6


def test_order_id_sees_which_side_and_which_row():
    """The same flat ids on other sides or in other rows are other corpora."""

    def order_id(source, target):
        corpus = corpus_of(source, target)
        return Batches(corpus, [(2, 4)], 1, 1).order_id

    one, other = [[5, 6, 2], [7, 2]], [[5, 2], [6, 7, 2]]
    moved = [[5, 6], [2, 7, 2]]
    found = {order_id(one, other), order_id(other, one), order_id(one, one)}
    found |= {order_id(moved, other), order_id(one, moved)}
    assert len(found) == 5


def test_a_corpus_smaller_than_a_batch(tokenizer):
    corpus = encode_corpus(make_pairs(3), tokenizer, max_length=100)
    batches = make_batches(corpus, 10**12, rows_multiple=2, seed=0)
    assert batches.steps_per_epoch == 1
    longest = corpus.longer_side.max()
    assert batches.shapes == [(4, longest)]
    assert f"4 x {longest}, limited to the 3 pairs available" in str(batches)
    ((source_ids, _, _),) = take(batches.dataset(epochs=1))
    assert source_ids.shape == (4, longest)
    assert np.sum(np.any(source_ids != PAD, axis=1)) == 3


def test_shapes_have_no_more_rows_than_there_are_pairs():
    lengths = [2] * 10 + [20]
    for tokens, expected in (
        # Room for 60 rows of 2 tokens, but not for all pairs at 20 tokens.
        (120, [(12, 2), (6, 20)]),
        # Just enough room for all pairs in one batch, and one token less.
        (240, [(12, 20)]),
        (239, [(12, 2), (9, 20)]),
    ):
        shapes = choose_shapes(lengths, tokens, 2, 3)
        assert shapes == expected


def test_shift_right_takes_arrays_and_tensors():
    labels = np.array([[5, 6, 2, 0], [7, 2, 0, 0]], np.int32)
    expected = [[1, 5, 6, 0], [1, 7, 0, 0]]
    shifted = shift_right(labels)
    assert isinstance(shifted, np.ndarray) and shifted.dtype == np.int32
    assert shifted.tolist() == expected
    symbolic = tf.function(
        shift_right,
        input_signature=[tf.TensorSpec([None, None], tf.int32)],
    )
    for result in (shift_right(tf.constant(labels)), symbolic(labels)):
        assert result.dtype == tf.int32
        assert result.numpy().tolist() == expected
