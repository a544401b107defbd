"""The corpus: distinct sentence pairs, in splits that share none."""

from trainers.phrasebook.drawing import draw_split
from trainers.phrasebook.sampling import ClauseSampler
from trainers.phrasebook.sentences import CONSTRUCTIONS

WORDS = range(3, 19)  # of an English sentence


def make_split(name, num_pairs):
    """Distinct sentence pairs of a split; the splits share no sentence.

    Args:
        name: "train", "valid" or "test".
        num_pairs: How many, from 1 to 800,000; of "valid" and "test", to
            100,000.

    Returns:
        A list of (English, German) pairs of str, the same for the same
        arguments; a larger request starts with the pairs of a smaller one.
        No English sentence is in it twice.

    Raises:
        ValueError: The name is unknown or `num_pairs` is out of range.

    >>> test = dict(make_split("test", 50))
    >>> any(english in test for english, _ in make_split("train", 50))
    False
    """
    return list(draw_split(name, num_pairs, draw_pairs).items())


def draw_pairs(generator):
    """Yields pairs of moderate length without end; some repeat."""
    sampler = ClauseSampler(generator)
    constructions = [c for c in CONSTRUCTIONS for _ in range(c.share)]
    while True:
        english, german = sampler.pick(constructions).write(sampler)
        if english.count(" ") + 1 in WORDS:
            yield english, german
