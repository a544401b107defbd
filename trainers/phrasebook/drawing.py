"""Random choices, and corpora of distinct examples in splits that share none.

The built-in treebank of `trainers.parsing` uses these, too.
"""

import random
import zlib

# A sentence belongs to a split by its hash: in percent.
SPLITS = {"train": range(0, 80), "valid": range(80, 90), "test": range(90, 100)}
MAX_SIZE = 1_000_000  # of all splits; by then a grammar repeats itself


class Sampler:
    """Makes random choices.

    Args:
        generator: A `random.Random`.
    """

    def __init__(self, generator: random.Random):
        self._random = generator.random

    def chance(self, probability: float) -> bool:
        """True with the given probability."""
        return self._random() < probability

    def pick(self, choices):
        """One of the choices, evenly."""
        return choices[int(self._random() * len(choices))]

    def number(self, low: int, high: int) -> int:
        """A whole number in [low, high)."""
        return low + int(self._random() * (high - low))


def draw_split(name, size, draw):
    """Distinct examples of a split; the splits share no sentence.

    Args:
        name: A key of `SPLITS`.
        size: How many, from 1 to the split's share of `MAX_SIZE`.
        draw: Function of a `random.Random`; it yields (sentence, example)
            without end. The first example of a sentence counts.

    Returns:
        A dictionary of the examples by their sentence, the same for the same
        arguments; that of a larger size begins with that of a smaller one.

    Raises:
        ValueError: The name is unknown or `size` is out of range.
    """
    if name not in SPLITS:
        raise ValueError(
            f"name must be one of {', '.join(SPLITS)}. Received: name={name!r}"
        )
    percentiles = SPLITS[name]
    limit = MAX_SIZE * len(percentiles) // 100
    if not 1 <= size <= limit:
        raise ValueError(
            f"the size of a split must be from 1 to {limit}."
            f" Received: {name} of size {size!r}"
        )
    found = {}
    for sentence, example in draw(random.Random(percentiles.start)):
        if zlib.crc32(sentence.encode()) % 100 in percentiles:
            found.setdefault(sentence, example)
            if len(found) == size:
                return found
