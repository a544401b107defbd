"""Data: sources, the encoded corpus, buckets, epochs and batches."""

import gzip
import itertools
import random

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.data import batches as batches_module
from keras_transformer.data import corpus as corpus_module
from keras_transformer.data import pairs as pairs_module
from keras_transformer.tokenization import Tokenizer
from keras_transformer.vocabulary import BOS, EOS, PAD

ENGLISH = "the dog cat runs sees house garden and small big red in a".split()
GERMAN = "der Hund Katze läuft sieht Haus Gärten und klein groß rot im".split()


def make_pairs(num_pairs, seed=0):
    """Sentence pairs of random words, the German a little longer."""
    rng = random.Random(seed)
    pairs = []
    for _ in range(num_pairs):
        length = min(40, 1 + int(rng.expovariate(0.15)))
        english = rng.choices(ENGLISH, k=length)
        german = rng.choices(GERMAN, k=length + rng.randint(0, 4))
        pairs.append((" ".join(english), " ".join(german)))
    return pairs


def write_pair(folder, english, german, name="train"):
    """Writes bytes to `name.en` and `name.de`; returns the prefix."""
    (folder / f"{name}.en").write_bytes(english)
    (folder / f"{name}.de").write_bytes(german)
    return folder / name


@pytest.fixture(scope="module")
def tokenizer():
    lines = itertools.chain.from_iterable(make_pairs(300))
    return Tokenizer.train(lines, vocab_size=90)


@pytest.fixture(scope="module")
def corpus(tokenizer):
    return corpus_module.encode_corpus(
        make_pairs(1000), tokenizer, max_length=60
    )


@pytest.fixture(scope="module")
def batches(corpus):
    return batches_module.make_batches(corpus, 256, num_buckets=5, seed=7)


def row_of(rows, index):
    return rows.ids[rows.offsets[index] : rows.offsets[index + 1]].tolist()


def take(dataset, num_batches=None):
    """Batches of a data set as `(source_ids, target_ids, labels)`."""
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


# ------------------------------------------------------------------- sources


def test_files_give_their_pairs_again_and_again(tmp_path):
    prefix = write_pair(tmp_path, b"a\nb c\n", "ä\nß d\n".encode())
    pairs = pairs_module.read_parallel_files([prefix], "en", "de")
    assert list(pairs) == list(pairs) == [("a", "ä"), ("b c", "ß d")]
    swapped = pairs_module.read_parallel_files([str(prefix)], "de", "en")
    assert list(swapped) == [("ä", "a"), ("ß d", "b c")]


def test_several_corpora_and_gzip(tmp_path):
    first = write_pair(tmp_path, b"a\nb\n", b"c\nd\n", "first")
    second = tmp_path / "second"
    for language, content in (("en", b"e\nf"), ("de", b"g\nh")):
        with gzip.open(f"{second}.{language}.gz", "wb") as file:
            file.write(content)
    pairs = pairs_module.read_parallel_files([first, second], "en", "de")
    assert list(pairs) == [("a", "c"), ("b", "d"), ("e", "g"), ("f", "h")]


def test_lines_end_at_newlines_alone(tmp_path):
    english = "\ufeffa\u2028b\r\nc\x0bd\x85e\x1c\n\n f\u00a0 g".encode()
    prefix = write_pair(tmp_path, english, b"1\n2\n3\n4\n")
    pairs = pairs_module.read_parallel_files([prefix], "en", "de")
    assert [source for source, _ in pairs] == ["a b", "c d e", "", "f g"]


def test_missing_files_are_named(tmp_path):
    (tmp_path / "train.en").write_text("a\n")
    with pytest.raises(FileNotFoundError, match=r"train\.de, nor .*de\.gz$"):
        pairs_module.read_parallel_files([tmp_path / "train"], "en", "de")


def test_line_counts_must_agree(tmp_path):
    prefix = write_pair(tmp_path, b"a\nb\nc\n", b"a\nb\n")
    message = r"train\.en with 3 lines, .*train\.de with 2 lines"
    with pytest.raises(ValueError, match=message):
        pairs_module.read_parallel_files([prefix], "en", "de")


def test_invalid_utf8_is_located(tmp_path):
    prefix = write_pair(tmp_path, b"a\nb\nc\n", b"a\nb\nc\xfc\n")
    with pytest.raises(ValueError, match=r"train\.de, line 3: not UTF-8.*2 of"):
        pairs_module.read_parallel_files([prefix], "en", "de")


def test_a_corpus_must_have_lines(tmp_path):
    prefix = write_pair(tmp_path, b"", b"")
    with pytest.raises(ValueError, match="no lines. Received:.*train"):
        pairs_module.read_parallel_files([prefix], "en", "de")
    with pytest.raises(ValueError, match="must be a list"):
        pairs_module.read_parallel_files(str(prefix), "en", "de")


@pytest.mark.parametrize("damage", ["cut off", "no gzip"])
def test_broken_gzip_is_an_error(tmp_path, damage):
    zipped = gzip.compress(b"a b c\n" * 100)
    broken = zipped[:-12] if damage == "cut off" else b"a b c\n"
    (tmp_path / "train.en.gz").write_bytes(broken)
    (tmp_path / "train.de.gz").write_bytes(zipped)
    with pytest.raises(ValueError, match=r"train\.en\.gz: broken gzip"):
        pairs_module.read_parallel_files([tmp_path / "train"], "en", "de")


@pytest.fixture(scope="module")
def tfds_dir(tmp_path_factory):
    """A directory with the prepared data set `tiny_translate`."""
    import tensorflow_datasets as tfds

    english, german = zip(*make_pairs(50), strict=True)
    folder = tmp_path_factory.mktemp("tfds")
    tfds.dataset_builders.store_as_tfds_dataset(
        name="tiny_translate",
        version="1.0.0",
        data_dir=folder,
        features=tfds.features.Translation(languages=["de", "en"]),
        split_datasets={
            "train": tf.data.Dataset.from_tensor_slices(
                {"en": list(english), "de": list(german)}
            )
        },
    )
    return folder


def test_tfds_gives_its_pairs_again_and_again(tfds_dir):
    pairs = pairs_module.read_tfds(
        "tiny_translate", "train", "en", "de", tfds_dir
    )
    assert sorted(pairs) == sorted(make_pairs(50))
    assert list(pairs) == list(pairs)
    swapped = pairs_module.read_tfds(
        "tiny_translate", "train", "de", "en", tfds_dir
    )
    assert list(swapped) == [(german, english) for english, german in pairs]
    part = pairs_module.read_tfds(
        "tiny_translate", "train[:10]", "en", "de", tfds_dir
    )
    assert list(part) == list(pairs)[:10]


def test_tfds_errors_are_clear(tfds_dir):
    with pytest.raises(ValueError, match="among de, en. Received: 'fr'"):
        pairs_module.read_tfds("tiny_translate", "train", "en", "fr", tfds_dir)
    with pytest.raises(ValueError, match=r"^No such data set: .*found\.\)$"):
        pairs_module.read_tfds("no_such_set", "train", "en", "de", tfds_dir)
    with pytest.raises(ValueError, match="no_split"):
        pairs_module.read_tfds(
            "tiny_translate", "no_split", "en", "de", tfds_dir
        )


# -------------------------------------------------------------------- corpus


def test_a_corpus_holds_the_ids_of_its_pairs(tokenizer):
    pairs = make_pairs(20)
    corpus = corpus_module.encode_corpus(
        iter(pairs), tokenizer, max_length=1000
    )
    assert len(corpus) == 20
    assert corpus.source.ids.dtype == np.uint16
    for side, strings in zip(
        (corpus.source, corpus.target), zip(*pairs, strict=True), strict=True
    ):
        rows = tokenizer.encode(list(strings)).to_list()
        assert [row_of(side, i) for i in range(20)] == rows


def test_chunks_keep_their_order(tokenizer):
    pairs = make_pairs(200)
    whole = _rows(corpus_module._encode_chunks(pairs, tokenizer))
    assert (
        _rows(corpus_module._encode_chunks(pairs, tokenizer, chunk_size=7))
        == whole
    )


def _rows(chunks):
    return [
        (row_of(source, i), row_of(target, i))
        for source, target in chunks
        for i in range(len(source.lengths))
    ]


def test_dropped_pairs_are_counted(tokenizer):
    pairs = [("the dog", "der Hund")] * 3 + [("", "der"), ("the", " ")]
    pairs += [("dog " * 50, "Hund"), ("the dog", "Hund " * 50), ("", "x " * 99)]
    corpus = corpus_module.encode_corpus(pairs, tokenizer, max_length=20)
    assert len(corpus) == len(corpus.source.lengths) == 3
    assert str(corpus.counts) == (
        "8 pairs read, 3 kept; dropped: 3 with an empty side,"
        " 2 with more than 20 tokens"
    )


def test_max_length_counts_the_end_mark(tokenizer):
    pair = ("the dog", "der Hund")
    longest = max(len(row) for row in tokenizer.encode(pair).to_list())
    assert len(corpus_module.encode_corpus([pair], tokenizer, longest)) == 1
    with pytest.raises(ValueError, match="No pair is left.*1 pairs read, 0"):
        corpus_module.encode_corpus([pair], tokenizer, longest - 1)


@pytest.mark.parametrize("pairs", [[], [("", "")]])
def test_an_empty_corpus_is_an_error(tokenizer, pairs):
    with pytest.raises(ValueError, match="No pair is left"):
        corpus_module.encode_corpus(pairs, tokenizer, max_length=20)


def test_max_length_must_leave_room(tokenizer):
    with pytest.raises(ValueError, match="Received: max_length=1"):
        corpus_module.encode_corpus([("a", "b")], tokenizer, max_length=1)


# ------------------------------------------------------------------- buckets


def padded_tokens(lengths, boundaries):
    return sum(min(b for b in boundaries if b >= n) for n in lengths)


@pytest.mark.parametrize("seed", range(20))
def test_boundaries_are_optimal(seed):
    rng = random.Random(seed)
    lengths = [rng.randint(1, 12) for _ in range(rng.randint(1, 40))]
    num_buckets = rng.randint(1, 5)
    boundaries = batches_module.choose_boundaries(lengths, num_buckets)
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
        shapes = batches_module.choose_shapes(
            corpus.longer_side, batch_tokens, 6, replicas
        )
        assert len(shapes) <= 6
        for rows, length in shapes:
            assert rows % replicas == 0
            assert rows * length <= batch_tokens < (rows + replicas) * length


def test_a_batch_must_hold_the_longest_sentence():
    with pytest.raises(ValueError, match="at least 20.*batch_tokens=19"):
        batches_module.choose_shapes(
            [3, 10], 19, num_buckets=2, rows_multiple=2
        )
    for wrong in ({"num_buckets": 0}, {"rows_multiple": 0}):
        kwargs = {"num_buckets": 2, "rows_multiple": 1, **wrong}
        with pytest.raises(ValueError, match="at least 1. Received"):
            batches_module.choose_shapes([3, 10], 100, **kwargs)


def test_shapes_must_hold_the_longest_pair(corpus):
    with pytest.raises(ValueError, match=r"Received: shapes=\[\(9, 3\)\]"):
        batches_module.Batches(corpus, [(9, 3)], seed=None, run_length=1)


# ------------------------------------------------------------------- batches


def test_labels_are_the_target_shifted():
    rows = corpus_module.TokenRows(
        np.array([5, 6, 2, 7, 2]), np.array([0, 3, 5])
    )
    counts = corpus_module.CorpusCounts(2, 2, 0, 0, 9)
    source = corpus_module.TokenRows(
        np.array([8, 2, 9, 9, 9, 2]), np.array([0, 2, 6])
    )
    corpus = corpus_module.Corpus(source, rows, counts)
    batches = batches_module.Batches(corpus, [(3, 4)], seed=None, run_length=1)
    ((source_ids, target_ids, labels),) = take(batches.dataset(epochs=1))
    assert source_ids.tolist() == [[8, 2, 0, 0], [9, 9, 9, 2], [0, 0, 0, 0]]
    assert target_ids.tolist() == [[1, 5, 6, 0], [1, 7, 0, 0], [0, 0, 0, 0]]
    assert labels.tolist() == [[5, 6, 2, 0], [7, 2, 0, 0], [0, 0, 0, 0]]


def test_an_element_is_what_the_model_takes(batches):
    inputs, labels = next(iter(batches.dataset()))
    assert set(inputs) == {"source_ids", "target_ids"}
    for ids in (*inputs.values(), labels):
        assert ids.dtype == tf.int32
    labels, target_ids = labels.numpy(), inputs["target_ids"].numpy()
    real = labels != PAD
    assert np.all(target_ids[real[:, 0], 0] == BOS)
    assert np.all((target_ids != PAD) == real)
    assert not np.any(target_ids == EOS)
    assert np.all(np.sum(labels == EOS, axis=1) == real[:, 0])


@pytest.mark.parametrize("seed", [None, 7])
@pytest.mark.parametrize("epoch", [0, 3])
def test_every_pair_is_in_exactly_one_batch(corpus, seed, epoch):
    batches = batches_module.make_batches(corpus, 256, num_buckets=5, seed=seed)
    plan = batches.plan_epoch(epoch)
    seen = np.concatenate([indices for indices, _ in plan])
    assert sorted(seen) == list(range(len(corpus)))
    assert len(plan) == batches.steps_per_epoch


def test_batches_hold_the_pairs_of_the_plan(corpus, batches):
    for (indices, _), (source_ids, _, labels) in zip(
        batches.plan_epoch(0), take(batches.dataset(epochs=1)), strict=True
    ):
        for index, source, target in zip(
            indices, source_ids, labels, strict=False
        ):
            assert source[source != PAD].tolist() == row_of(
                corpus.source, index
            )
            assert target[target != PAD].tolist() == row_of(
                corpus.target, index
            )
        assert not np.any(source_ids[len(indices) :])


def test_shapes_are_few_and_keep_to_the_budget(batches):
    elements = take(batches.dataset(epochs=2))
    for arrays in elements:
        assert len({array.shape for array in arrays}) == 1
        assert arrays[0].size <= 256
    assert {arrays[0].shape for arrays in elements} <= set(batches.shapes)
    assert len(batches.shapes) <= 5


def test_only_one_batch_of_an_epoch_has_rows_of_padding(batches):
    plan = batches.plan_epoch(2)
    assert sum(len(indices) < rows for indices, (rows, _) in plan) <= 1


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


def test_epochs_differ_and_seeds_decide(corpus, batches):
    def order(batches, epoch):
        return np.concatenate([i for i, _ in batches.plan_epoch(epoch)])

    again = batches_module.make_batches(corpus, 256, num_buckets=5, seed=7)
    other = batches_module.make_batches(corpus, 256, num_buckets=5, seed=8)
    np.testing.assert_array_equal(order(batches, 1), order(again, 1))
    assert np.any(order(batches, 1) != order(batches, 0))
    assert np.any(order(batches, 1) != order(other, 1))


def test_batches_mix_all_lengths_of_an_epoch(batches):
    lengths = [shape[1] for _, shape in batches.plan_epoch(0)]
    assert lengths != sorted(lengths)


def test_without_a_seed_order_is_that_of_the_corpus(corpus):
    plan = batches_module.make_batches(corpus, 256).plan_epoch(0)
    assert [shape for _, shape in plan] == sorted(
        (shape for _, shape in plan), key=lambda shape: shape[1]
    )
    first_shape = plan[0][1]
    first = np.flatnonzero(corpus.longer_side <= first_shape[1])
    np.testing.assert_array_equal(plan[0][0], first[: first_shape[0]])


def test_resume_at_any_step_equals_the_unbroken_run(batches):
    steps = batches.steps_per_epoch
    unbroken = take(batches.dataset(), 2 * steps + 5)
    for start in (0, 1, steps - 1, steps, steps + 3, 2 * steps):
        resumed = take(batches.dataset(start_step=start), 5)
        assert_equal_batches(resumed, unbroken[start : start + 5])


def test_epochs_end_where_they_should(batches):
    steps = batches.steps_per_epoch
    assert len(take(batches.dataset(epochs=2))) == 2 * steps
    assert len(take(batches.dataset(start_step=steps + 2, epochs=2))) == (
        steps - 2
    )
    assert take(batches.dataset(start_step=3 * steps + 1, epochs=2)) == []
    assert batches.dataset().cardinality() == tf.data.INFINITE_CARDINALITY
    assert batches.dataset(epochs=2).cardinality() == 2 * steps


def test_shards_are_slices_of_the_rows(corpus):
    batches = batches_module.make_batches(corpus, 256, rows_multiple=4, seed=1)
    whole = take(batches.dataset(epochs=1))
    shards = [
        take(batches.dataset(epochs=1, shards=[shard], num_shards=4))
        for shard in range(4)
    ]
    joined = [
        tuple(map(np.concatenate, zip(*parts, strict=True)))
        for parts in zip(*shards, strict=True)
    ]
    assert_equal_batches(joined, whole)
    # A worker with two replicas gets the slices of both, batch by batch.
    both = take(batches.dataset(epochs=1, shards=(2, 3), num_shards=4))
    assert_equal_batches(both[0::2], shards[2])
    assert_equal_batches(both[1::2], shards[3])


def test_shards_must_divide_the_rows(batches):
    for shard, num_shards in ((0, 7), (2, 2), (-1, 1)):
        with pytest.raises(ValueError, match="Received: shards="):
            batches.dataset(shards=[shard], num_shards=num_shards)


def test_runs_of_one_shape(corpus):
    batches = batches_module.make_batches(
        corpus, 256, num_buckets=3, run_length=4, seed=1
    )
    plan = batches.plan_epoch(0)
    pairs = np.concatenate([indices for indices, _ in plan])
    np.testing.assert_array_equal(np.sort(pairs), np.arange(len(corpus)))
    # Stacked, it is the same batches in the same order, and nearly all come in
    # runs: at most 3 of a shape are left over in an epoch.
    stacked = take(batches.dataset(epochs=1, stack=True))
    lengths = [len(labels) for _, _, labels in stacked]
    assert set(lengths) == {1, 4}
    assert lengths.count(1) <= 3 * len(batches.shapes)
    unstacked = [
        tuple(part[step] for part in run)
        for run in stacked
        for step in range(len(run[0]))
    ]
    assert_equal_batches(unstacked, take(batches.dataset(epochs=1)))
    # Cut anywhere, it goes on with the batch that was next.
    cut = take(batches.dataset(3, end_step=9, stack=True))
    assert sum(len(labels) for _, _, labels in cut) == 6
    np.testing.assert_array_equal(cut[0][2][0], unstacked[3][2])


@pytest.mark.parametrize("bucket", [0, 1, 2])
def test_fullest_batch_of_a_shape(bucket, corpus):
    batches = batches_module.make_batches(corpus, 256, num_buckets=3, seed=1)
    rows, length = batches.shapes[bucket]
    ((source_ids, _, labels),) = take(batches.fullest((rows, length)))
    assert source_ids.shape == (rows, length)
    tokens = np.maximum((source_ids != PAD).sum(1), (labels != PAD).sum(1))
    fitting = corpus.longer_side[corpus.longer_side <= length]
    longest = np.sort(fitting)[-rows:]
    np.testing.assert_array_equal(np.sort(tokens)[-len(longest) :], longest)


def test_plan_id_is_that_of_the_plan(corpus):
    def plan_id(tokens=256, **options):
        options = {"seed": 1, "num_buckets": 3, **options}
        return batches_module.make_batches(corpus, tokens, **options).plan_id

    assert plan_id() == plan_id()
    others = {
        plan_id(),
        plan_id(tokens=300),
        plan_id(seed=2),
        plan_id(num_buckets=2),
        plan_id(run_length=2),
        plan_id(rows_multiple=4),
    }
    assert len(others) == 6


def test_a_corpus_smaller_than_a_batch(tokenizer):
    corpus = corpus_module.encode_corpus(
        make_pairs(3), tokenizer, max_length=100
    )
    batches = batches_module.make_batches(corpus, 4096, seed=0)
    assert batches.steps_per_epoch == 1
    ((source_ids, _, _),) = take(batches.dataset(epochs=1))
    assert np.sum(np.any(source_ids != PAD, axis=1)) == 3
