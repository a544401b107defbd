"""Permutations of the model dimension, which change no output.

A Transformer treats the D numbers of the residual stream alike: products sum
over them, and layer normalization takes their mean. If the rows and columns of
all weights are reordered alike, the function stays the same. Only sinusoids fix
an order: here each sine is followed by its cosine (sec. 3.5); in other systems
all sines come before all cosines. So weights from those systems are reordered
by `from_blocks`, and weights for them by `to_blocks`.

Weights are arrays by path: the path of a Keras variable after the model's name,
such as `encoder/layer_0/feed_forward/inner/kernel`.
"""

import typing
from collections.abc import Mapping

import numpy as np

# The axis of size D, by the last name of a path or the last two.
_AXES = {
    "embeddings": 1,
    "table": 1,  # of learned positions
    "matrix": 1,  # of the softmax
    "gamma": 0,
    "beta": 0,
    "relative_keys": None,
    "relative_values": None,
    "query/kernel": 0,
    "query/bias": None,
    "key/kernel": 0,
    "key/bias": None,
    "value/kernel": 0,
    "value/bias": None,
    "output/kernel": 1,
    "output/bias": 0,
    "inner/kernel": 0,
    "inner/bias": None,
    "outer/kernel": 1,
    "outer/bias": 0,
    "logits_bias": None,
}


def from_blocks(d_model: int) -> np.ndarray:
    """Returns the order that puts each cosine after its sine, int `[D]`.

    >>> from_blocks(6).tolist()
    [0, 3, 1, 4, 2, 5]
    """
    return np.arange(d_model).reshape(2, -1).T.ravel()


def to_blocks(d_model: int) -> np.ndarray:
    """Returns the inverse of `from_blocks`.

    >>> to_blocks(6).tolist()
    [0, 2, 4, 1, 3, 5]
    """
    return np.arange(d_model).reshape(-1, 2).T.ravel()


def reorder(
    weights: Mapping[str, typing.Any], order: np.ndarray
) -> dict[str, np.ndarray]:
    """Reorders the model dimension of weights: new[i] = old[order[i]].

    Arrays without this dimension are not changed. Raises ValueError if `order`
    is not a permutation, if a `Transformer` has no such path, or if the size of
    the dimension is not that of `order`.

    >>> reorder({"encoder/final_norm/gamma": [1, 2, 3, 4]}, from_blocks(4))
    {'encoder/final_norm/gamma': array([1, 3, 2, 4])}
    """
    order = np.asarray(order)
    if sorted(order.tolist()) != list(range(order.size)):
        raise ValueError(
            "order must have each number below D once. Received:"
            f" order={order.tolist()}"
        )
    reordered = {}
    for path, weight in weights.items():
        axis = _axis_of(path)
        array = np.asarray(weight)
        if axis is not None:
            if array.shape[axis] != order.size:
                raise ValueError(
                    f"{path}: expected {order.size} numbers along axis {axis}."
                    f" Received: shape {array.shape}"
                )
            array = np.take(array, order, axis)
        reordered[path] = array
    return reordered


def _axis_of(path):
    """Finds the axis of a weight that has size D, or None.

    Raises ValueError if a `Transformer` has no such path.
    """
    names = path.split("/")
    for name in (names[-1], "/".join(names[-2:])):
        if name in _AXES:
            return _AXES[name]
    raise ValueError(
        f"expected the path of a weight of a Transformer. Received: {path!r}"
    )
