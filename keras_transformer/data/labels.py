"""Labels: their checks, and the decoder input that predicts them."""

import typing
from collections.abc import Sequence

import keras
import numpy as np

from keras_transformer.base.backend import Tensor, whole_ids
from keras_transformer.base.refusals import expect
from keras_transformer.text.vocabulary import BOS, PAD


def shift_right(labels: Tensor) -> Tensor:
    """Returns the decoder input that predicts the labels.

    Labels are int `[B, T]`, an array or a tensor. Rows end with `EOS`, then
    `PAD`. The result has the same type and shape: `BOS` first, then the labels
    one position later, without their `EOS`.

    >>> shift_right(np.array([[5, 6, 2, 0],
    ...                       [7, 2, 0, 0]]))
    array([[1, 5, 6, 0],
           [1, 7, 0, 0]])
    """
    ops = np if isinstance(labels, np.ndarray) else keras.ops
    begin = ops.full_like(labels[:, :1], BOS)  # [B, 1]
    shifted = ops.concatenate([begin, labels[:, :-1]], axis=1)
    return ops.where(labels == PAD, ops.full_like(labels, PAD), shifted)


def token_labels(labels: typing.Any, shape: Sequence[int | None]) -> Tensor:
    """Returns labels as int `[B, T]`, checked against a shape.

    A float32 that is not an integer becomes -1, which no vocabulary has. Raises
    ValueError if the labels are ragged, in half precision, or of another shape,
    such as one-hot vectors.
    """
    labels = whole_ids(labels, "labels")
    sizes = tuple(labels.shape)
    fits = len(sizes) == len(shape) == 2 and all(
        None in (size, other) or size == other
        for size, other in zip(sizes, shape, strict=True)
    )
    expect(
        fits,
        "labels int [B, T], the id of the token at each position, 0 for"
        f" padding: {list(shape)}",
        f"labels of shape {list(sizes)}",
    )
    return labels


def check_class_weight(given: typing.Any) -> None:
    """Raises ValueError if `class_weight` is given, which is not supported."""
    expect(
        given is None,
        "sample_weight [B, T]; Keras turns class_weight into one weight for"
        " each row, that of the position of its largest id",
        "class_weight",
    )
