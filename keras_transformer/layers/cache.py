"""The decoder's cache of earlier positions.

A search has W hypotheses per sentence. At each position, each hypothesis writes
a row, so that a slot of the cache holds W rows. When the search selects other
hypotheses, no row moves: `lineage` tells which rows belong to the past of each
hypothesis, and attention hides the others. So the keys of a sentence are one
matrix for all its hypotheses, and a selection changes a few bytes of the
lineage instead of copying megabytes of the cache.

Shapes use the letters of the package, and C for slots.
"""

import typing

import numpy as np
from keras import ops

from keras_transformer.base.backend import Tensor


class Position(typing.NamedTuple):
    """One position of decoding, which every attention layer takes.

    `visible` is True for the rows of the cache that belong to a hypothesis's
    own past, including this position. None means all rows.
    """

    index: Tensor  # int32 scalar, from 0
    visible: Tensor | None  # bool, broadcastable to [B, 1, W, C * W]
    distances: Tensor  # int32 [C * W], from this position; if visible, <= 0


class Slots(typing.NamedTuple):
    """The layout of the positions of a cache.

    If `num_slots` is None, the cache begins empty and grows by one slot at each
    position, so that early positions are cheap. Its shape then changes in the
    loop of a search, which XLA and TFLite do not support.
    """

    num_slots: int | None  # C; None: the cache grows
    beam_size: int  # hypotheses per sentence, W; their rows are adjacent
    window: (
        int | None
    )  # positions that a query sees, including its own; None: all

    def first_rows(self, batch_size: int | Tensor) -> int | Tensor:
        """Returns the number of rows of a cache before the first position.

        For a cache that grows in a graph, `batch_size` must be a tensor: a
        static number of rows could not change in a loop.
        """
        if self.num_slots is None:
            return batch_size * 0
        return self.num_slots * self.beam_size

    def make_lineage(self, batch_size: int | Tensor) -> Tensor | tuple[()]:
        """Makes the initial lineage, all False: bool `[B, W, C * W]`.

        Returns () if there is one hypothesis per sentence.
        """
        if self.beam_size == 1:
            return ()
        number = self.first_rows(batch_size)
        return ops.zeros((batch_size, self.beam_size, number), "bool")

    def enter(
        self, lineage: Tensor | tuple[()], x: Tensor, index: int | Tensor
    ) -> tuple[Position, Tensor | tuple[()]]:
        """Begins a position and adds it to the lineage of each hypothesis.

        Only the shape of `x`, `[N, D]`, matters: one row per hypothesis.
        Returns the `Position` and the new lineage.
        """
        width = self.beam_size
        if self.num_slots is None:
            number = index + 1
            if self.window is not None:
                number = ops.minimum(number, self.window)
            distances = ops.arange(number, dtype="int32") - (number - 1)
        else:
            newest = index if self.window is None else self.num_slots - 1
            distances = ops.arange(self.num_slots, dtype="int32") - newest
        if width == 1:
            visible = None
            if self.num_slots is not None:
                written = (distances <= 0) & (distances >= -index)
                visible = written[None, None, None]  # [C] -> [1, 1, 1, C]
            return Position(index, visible, distances), ()
        beams = np.arange(width, dtype="int32")
        nothing = ops.zeros_like(ops.reshape(x[:, 0], (-1, width, 1)), "int32")
        own = nothing + beams[:, None] == beams  # [B, W, W]
        lineage = self.append(lineage, own, index)
        distances = ops.repeat(distances, width)
        return Position(index, lineage[:, None], distances), lineage

    def append(self, rows: Tensor, new: Tensor, index: int | Tensor) -> Tensor:
        """Writes the rows of one position into a cache, or appends them.

        `rows` is `[B, X, C * W, ...]` and `new` is `[B, X, W, ...]`. With a
        `window`, the oldest rows are dropped.
        """
        width = self.beam_size
        if self.num_slots is None:
            rows = ops.concatenate([rows, new], axis=2)
            if self.window is None:
                return rows
            return rows[:, :, -self.window * width :]
        if self.window is not None:
            return ops.concatenate([rows[:, :, width:], new], axis=2)
        start = [0] * len(rows.shape)
        start[2] = index * width
        return ops.slice_update(rows, start, new)


def reorder(lineage: Tensor | tuple[()], parents: Tensor) -> Tensor | tuple[()]:
    """Updates the lineage after a search has selected hypotheses.

    `parents`, int32 `[B, W]` in [0, W), is the hypothesis of the same sentence
    that each one continues.
    """
    if isinstance(lineage, tuple):
        return lineage
    batch_size, beam_size, num_rows = ops.shape(lineage)
    flat = ops.reshape(lineage, (batch_size * beam_size, num_rows))
    sentences = ops.arange(batch_size, dtype="int32")[:, None]
    return ops.take(flat, sentences * beam_size + parents, axis=0)
