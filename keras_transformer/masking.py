"""Boolean attention masks: `True` = may attend. Made here and nowhere else.

Every mask broadcasts to the attention scores `[B, H, T, S]`.
"""

from keras import ops

from keras_transformer.backend import Tensor
from keras_transformer.vocabulary import EOS, PAD


def padding_mask(ids: Tensor, hide_eos: bool = False) -> Tensor:
    """Hides padding from every query (sec. 3.2.3).

    Args:
        ids: int `[B, S]`, `PAD` where a row has ended.
        hide_eos: Whether to hide `EOS`, too.

    Returns:
        bool `[B, 1, 1, S]`.

    >>> padding_mask(ops.array([[5, 6, 2], [7, 2, 0]]))[:, 0, 0].numpy()
    array([[ True,  True,  True],
           [ True,  True, False]])
    """
    mask = ops.not_equal(ids, PAD)
    if hide_eos:
        mask = mask & ops.not_equal(ids, EOS)
    return mask[:, None, None, :]  # [B, S] -> [B, 1, 1, S]


def causal_mask(length: int | Tensor) -> Tensor:
    """Hides the future: position i attends to positions up to i (sec. 3.2.3).

    Args:
        length: Number of positions T, int or int scalar tensor; or ids
            `[B, T]`, whose length the functional API may not know.

    Returns:
        bool `[1, 1, T, T]`.

    >>> causal_mask(3)[0, 0].numpy()
    array([[ True, False, False],
           [ True,  True, False],
           [ True,  True,  True]])
    """
    if length is None:
        raise ValueError(
            "length must be a number, or the ids [B, T] if it is unknown."
            " Received: length=None"
        )
    if len(getattr(length, "shape", ())) == 2:
        ones = ops.sum(ops.zeros_like(length), axis=0) + 1  # [B, T] -> [T]
        positions = ops.cumsum(ones)
    else:
        positions = ops.arange(length, dtype="int32")
    return (positions[None, :] <= positions[:, None])[None, None]


def band_mask(
    num_queries: int | Tensor,
    num_keys: int | Tensor,
    before: int,
    after: int,
    first: int | Tensor = 0,
) -> Tensor:
    """Restricts each query to its neighborhood (sec. 4, Table 1).

    A query sees as many keys `before` and `after` its own position; `first` is
    that of the first query. bool `[1, 1, num_queries, num_keys]`.

    >>> band_mask(4, 4, before=1, after=0)[0, 0].numpy()
    array([[ True, False, False, False],
           [ True,  True, False, False],
           [False,  True,  True, False],
           [False, False,  True,  True]])
    """
    queries = first + ops.arange(num_queries, dtype="int32")
    keys = ops.arange(num_keys, dtype="int32")
    distance = keys[None, :] - queries[:, None]
    return ((distance >= -before) & (distance <= after))[None, None]
