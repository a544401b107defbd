"""The random numbers of a sample, which do not depend on the batch."""

import hashlib
from collections.abc import Sequence

import numpy as np

from keras_transformer.base.refusals import expect
from keras_transformer.decoding.rules import MAX_DRAW


def make_draws(
    seed: int, source_ids: Sequence[int], sample: int, length: int
) -> np.ndarray:
    """Draws the numbers for `length` tokens of a sample; see `Constraints`.

    They depend only on `seed`, `source_ids` and `sample`, the index of the
    sample. So the samples of a sentence do not change with its batch, its place
    in a file, the backend, or the number of samples.

    Returns int32 `[length]`, in [0, `MAX_DRAW`). Raises ValueError unless
    `seed` is from 0 to 2^64 - 1.

    >>> make_draws(1, [5, 2], 0, 3).tolist() == (
    ...     make_draws(1, [5, 2], 0, 9)[:3].tolist()
    ... )
    True
    """
    is_seed = 0 <= seed < 2**64 and seed == int(seed)
    expect(is_seed, "an integer from 0 to 2^64 - 1", f"{seed=}")
    ids = np.asarray(source_ids, "<i4").tobytes()
    sentence = hashlib.blake2b(ids, digest_size=8).digest()
    key = np.array([seed, int.from_bytes(sentence, "little")], np.uint64)
    stream = np.random.Philox(key=key, counter=[0, 0, 0, sample])
    # Keep the highest bits of numbers below 2^64.
    numbers = stream.random_raw(length) // np.uint64(2**64 // MAX_DRAW)
    return numbers.astype(np.int32)
