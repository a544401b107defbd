"""The corpus: distinct sentence pairs, in splits that share none."""

import random
import zlib

from trainers.phrasebook.sampling import ClauseSampler
from trainers.phrasebook.sentences import TEMPLATES

# A sentence belongs to a split by the hash of its English text: in percent.
SPLITS = {"train": range(0, 80), "valid": range(80, 90), "test": range(90, 100)}
MAX_PAIRS = 1_000_000  # the grammar has more, but repeats itself by then
WORDS = range(3, 19)  # of an English sentence


def _capitalized(text):
    """The text with its first letter in upper case."""
    return text[0].upper() + text[1:]


def _draw_pairs(generator):
    """Yields pairs of moderate length without end; some repeat."""
    sampler = ClauseSampler(generator)
    while True:
        english, german, mark = sampler.pick(TEMPLATES)(sampler)
        if english.count(" ") + 1 in WORDS:
            yield _capitalized(english) + mark, _capitalized(german) + mark


def _distinct_pairs(num_pairs, seed, percentiles):
    """The first distinct pairs whose hash is among the percentiles."""
    pairs = {}
    for english, german in _draw_pairs(random.Random(seed)):
        if zlib.crc32(english.encode()) % 100 in percentiles:
            pairs[english] = german
            if len(pairs) == num_pairs:
                return list(pairs.items())


def _check_size(num_pairs, limit):
    """Raises ValueError unless the grammar has that many pairs."""
    if not 1 <= num_pairs <= limit:
        raise ValueError(
            f"num_pairs must be from 1 to {limit}."
            f" Received: num_pairs={num_pairs!r}"
        )


def make_pairs(num_pairs, seed=0):
    """Distinct sentence pairs, the same for the same arguments.

    A larger request starts with the pairs of a smaller one.

    Args:
        num_pairs: How many, from 1 to `MAX_PAIRS`.
        seed: Of the random generator. Two seeds give different lists, which
            share some pairs; for disjoint sets see `make_split`.

    Returns:
        A list of (English, German) pairs of str; no English sentence twice.

    Raises:
        ValueError: `num_pairs` is out of range.

    >>> make_pairs(1, seed=7)
    [('She always asks Peter.', 'Sie fragt immer Peter.')]
    """
    _check_size(num_pairs, MAX_PAIRS)
    return _distinct_pairs(num_pairs, seed, range(100))


def make_split(name, num_pairs):
    """Distinct sentence pairs of a split; the splits share no sentence.

    Args:
        name: A key of `SPLITS`.
        num_pairs: How many, from 1 to the split's share of `MAX_PAIRS`.

    Returns:
        A list of (English, German) pairs of str, the same for the same
        arguments; a larger request starts with the pairs of a smaller one.

    Raises:
        ValueError: The name is unknown or `num_pairs` is out of range.

    >>> test = dict(make_split("test", 50))
    >>> any(english in test for english, _ in make_split("train", 50))
    False
    """
    if name not in SPLITS:
        raise ValueError(
            f"name must be one of {', '.join(SPLITS)}. Received: name={name!r}"
        )
    percentiles = SPLITS[name]
    _check_size(num_pairs, MAX_PAIRS * len(percentiles) // 100)
    return _distinct_pairs(num_pairs, percentiles.start, percentiles)
