"""Boolean attention masks: `True` = may attend. All masks are made here.

Every mask broadcasts to the attention scores `[B, H, T, S]`.
"""

import typing
from collections.abc import Sequence

import keras
from keras import ops

from keras_transformer.base.backend import Tensor, dense
from keras_transformer.text.vocabulary import EOS, PAD


def padding_mask(ids: Tensor, hide_eos: bool = False) -> Tensor:
    """Hides padding from every query (sec. 3.2.3).

    Args:
        ids: int `[B, S]`, padded with `PAD`.
        hide_eos: Whether to hide `EOS` as well.

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
            `[B, T]`, if the functional API does not know their length.

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
        zeros = ops.cast(ops.zeros_like(length), "int32")
        positions = ops.cumsum(ops.sum(zeros, axis=0) + 1)  # [B, T] -> [T]
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

    A query sees `before` keys before its own position and `after` keys after
    it. `first` is the position of the first query. Returns bool
    `[1, 1, num_queries, num_keys]`.

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


def checked_mask(mask: typing.Any, shape: Sequence[int | None]) -> Tensor:
    """Returns a mask as bool `[B, H, T, S]`, in which axes may have size 1.

    A mask with fewer axes is `[S]`, `[T, S]` or `[H, T, S]`, as in
    broadcasting, or `[B, S]` or `[B, T, S]`, as in Keras. Its sizes must tell
    which. `shape` is that of the scores, `[B, H, T, S]`, with None for unknown
    sizes.

    Raises ValueError if the mask is not bool (an additive mask has the opposite
    meaning), or if its shape fits none or several of these.
    """
    mask = dense(mask, "an attention mask")
    dtype = keras.backend.standardize_dtype(mask.dtype)
    if dtype != "bool":
        what = (
            'of 1 and 0, keras.ops.cast(mask, "bool")'
            if "int" in dtype
            else "a third sequence is not read, since keys and values are one"
        )
        raise ValueError(
            "An attention mask must be bool, True where a query may attend;"
            f" {what}. Received: a mask of dtype {dtype}"
        )
    sizes, missing = tuple(mask.shape), len(shape) - len(mask.shape)
    axes, new = (slice(None),) * len(sizes), (None,) * missing
    readings = {(1,) * missing + sizes: new + axes}
    if len(sizes) in (2, 3):
        other = (*sizes[:1], *(1,) * missing, *sizes[1:])
        readings.setdefault(other, axes[:1] + new + axes[1:])
    # An unknown size fits any, but a match of known sizes is preferred.
    for unknown in ((), (None,)):
        if found := [r for r in readings if _fits(r, shape, unknown)]:
            break
    if len(found) != 1:
        raise ValueError(
            "expected a mask that can be broadcast to [B, H, T, S] ="
            f" {list(shape)}, or [B, T, S] or [B, S] if its sizes say so."
            f" Received: a mask of shape {list(sizes)}"
            + (", which may be two of them: add the axes of 1" * bool(found))
        )
    return mask[readings[found[0]]] if missing else mask


def _fits(sizes, shape, unknown):
    """Tells whether `sizes` can be broadcast to `shape`.

    A size in `unknown` fits any.
    """
    return len(sizes) == len(shape) and all(
        size in (1, full) or size in unknown or full in unknown
        for size, full in zip(sizes, shape, strict=True)
    )
