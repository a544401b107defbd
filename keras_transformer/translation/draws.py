"""The random numbers of a sample: the same for a sentence in any batch."""

import hashlib
from collections.abc import Sequence

import numpy as np

from keras_transformer.decoding.rules import MAX_DRAW


def make_draws(
    seed: int, source_ids: Sequence[int], sample: int, length: int
) -> np.ndarray:
    """Numbers for the first tokens of a sample, by `Constraints.draws`.

    They depend on nothing else, so the samples of a sentence do not change with
    its batch, its place in a file, the backend, or how many samples there are.

    `seed` is from 0 to 2^64 - 1, else ValueError is raised; `sample` counts
    from 0. Returns int32 `[length]`, in [0, `MAX_DRAW`).

    >>> make_draws(1, [5, 2], 0, 3).tolist() == (
    ...     make_draws(1, [5, 2], 0, 9)[:3].tolist()
    ... )
    True
    """
    if not 0 <= seed < 2**64 or seed != int(seed):
        raise ValueError(
            f"seed must be an integer from 0 to 2^64 - 1. Received: {seed=}"
        )
    ids = np.asarray(source_ids, "<i4").tobytes()
    sentence = hashlib.blake2b(ids, digest_size=8).digest()
    key = np.array([seed, int.from_bytes(sentence, "little")], np.uint64)
    stream = np.random.Philox(key=key, counter=[0, 0, 0, sample])
    # The highest bits of numbers below 2^64.
    numbers = stream.random_raw(length) // np.uint64(2**64 // MAX_DRAW)
    return numbers.astype(np.int32)
