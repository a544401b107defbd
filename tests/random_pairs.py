"""Random sentence pairs, their ids and batches, for tests of the data."""

import random

import numpy as np

from keras_transformer.data.corpus import Corpus, CorpusCounts, TokenRows

ENGLISH = "the dog cat runs sees house garden and small big red in a".split()
GERMAN = "der Hund Katze läuft sieht Haus Gärten und klein groß rot im".split()


def make_pairs(num_pairs, seed=0):
    """Makes pairs of random words. The German is a little longer."""
    rng = random.Random(seed)
    pairs = []
    for _ in range(num_pairs):
        length = min(40, 1 + int(rng.expovariate(0.15)))
        english = rng.choices(ENGLISH, k=length)
        german = rng.choices(GERMAN, k=length + rng.randint(0, 4))
        pairs.append((" ".join(english), " ".join(german)))
    return pairs


def random_corpus(num_pairs, shortest, longest, vocab_size):
    """Makes a corpus of random ids. Each row ends with EOS."""
    random = np.random.default_rng(3)

    def rows():
        lengths = random.integers(shortest, longest + 1, num_pairs)
        ids = random.integers(4, vocab_size, lengths.sum()).astype("int32")
        ids[np.cumsum(lengths) - 1] = 2
        return TokenRows(ids, np.cumsum([0, *lengths]))

    counts = CorpusCounts(num_pairs, num_pairs, 0, 0, longest)
    return Corpus(rows(), rows(), counts)


def ids_of(corpus):
    """Returns the pairs of a corpus as lists of ids."""
    sides = rows_of(corpus.source), rows_of(corpus.target)
    return list(zip(*sides, strict=True))


def rows_of(rows):
    """Returns ragged rows of ids, in memory or in a file, as lists."""
    ids = rows.ids[np.arange(len(rows.ids))]
    return [row.tolist() for row in np.split(ids, rows.offsets[1:-1])]


def take(iterator):
    """Returns batches, each as one array of source ids and labels."""
    return [
        np.concatenate([inputs["source_ids"], labels], axis=-2)
        for inputs, labels in iterator
    ]


def assert_equal(first, second):
    """Checks that batches are equal, and that there is at least one."""
    assert len(first) == len(second) > 0
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


def check_two_replicas(batches, **options):
    """Checks that two replicas split the rows of one replica's batches."""
    whole = take(batches.arrays(end_step=9, **options))
    two = {"replicas": (0, 1), "num_replicas": 2}
    slices = take(batches.arrays(end_step=9, **two, **options))
    joined = []
    for pair in zip(slices[::2], slices[1::2], strict=True):
        halves = [np.split(half, 2) for half in pair]  # sources, labels
        sides = map(np.concatenate, zip(*halves, strict=True))
        joined.append(np.concatenate([*sides]))
    assert_equal(joined, whole)
