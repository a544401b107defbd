"""Sentence pairs of random words, for tests of the data side."""

import random

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
