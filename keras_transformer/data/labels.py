"""From labels to the decoder's input: for training, scores and alignments."""

import keras
import numpy as np

from keras_transformer.backend import Tensor
from keras_transformer.vocabulary import BOS, PAD


def shift_right(labels: Tensor) -> Tensor:
    """The decoder's input when it predicts the labels.

    Labels are int `[B, T]`, an array or a tensor; rows end with `EOS`, then
    `PAD`. Returns the same kind of array: `BOS` first, then the labels one
    position later, without their `EOS`.

    >>> shift_right(np.array([[5, 6, 2, 0],
    ...                       [7, 2, 0, 0]]))
    array([[1, 5, 6, 0],
           [1, 7, 0, 0]])
    """
    ops = np if isinstance(labels, np.ndarray) else keras.ops
    begin = ops.full_like(labels[:, :1], BOS)  # [B, 1]
    shifted = ops.concatenate([begin, labels[:, :-1]], axis=1)
    return ops.where(labels == PAD, ops.full_like(labels, PAD), shifted)
