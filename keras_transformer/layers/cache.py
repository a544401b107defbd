"""The decoder's cache of earlier positions.

A search has W hypotheses of each sentence. At each position each of them writes
a row, so that a slot of a cache holds W rows. Where the search goes on with
other hypotheses, no row moves: `lineage` says for each hypothesis which rows
belong to its own past, and attention hides the others. The keys of a sentence
are then one matrix for all its hypotheses. A change of hypotheses changes a few
bytes of the lineage; a copy of the cache would be megabytes.

Shapes use the letters of the package, and C for slots.
"""

import typing

import numpy as np
from keras import ops

from keras_transformer.base.backend import Tensor


class Position(typing.NamedTuple):
    """One position of decoding, as every attention layer takes it.

    `visible` are the rows of the cache that belong to a hypothesis' own past,
    this position included; None means all.
    """

    index: Tensor  # int32 scalar, from 0
    visible: Tensor | None  # bool, broadcastable to [B, 1, W, C * W]
    distances: Tensor  # int32 [C * W], from this position; visible ones <= 0


class Slots(typing.NamedTuple):
    """How the positions of a cache are laid out.

    A cache without a number of slots begins empty and grows by one at each
    position, so that early positions are cheap. Its shape then changes in the
    loop of a search, which XLA and TFLite do not support.
    """

    num_slots: int | None  # C; None: it grows
    beam_size: int  # hypotheses of a sentence, W; they are neighbours
    window: (
        int | None
    )  # positions that a query sees, its own included; None: all

    def first_rows(self, batch_size: int | Tensor) -> int | Tensor:
        """Makes the rows of a cache before the first position.

        For a cache that grows in a graph, `batch_size` must be a tensor: a
        number of rows that the graph knows could not change in a loop.
        """
        if self.num_slots is None:
            return batch_size * 0
        return self.num_slots * self.beam_size

    def make_lineage(self, batch_size: int | Tensor) -> Tensor | tuple[()]:
        """Makes the initial lineage, without history: bool `[B, W, C * W]`.

        () if a sentence has one hypothesis.
        """
        if self.beam_size == 1:
            return ()
        number = self.first_rows(batch_size)
        return ops.zeros((batch_size, self.beam_size, number), "bool")

    def enter(
        self, lineage: Tensor | tuple[()], x: Tensor, index: int | Tensor
    ) -> tuple[Position, Tensor | tuple[()]]:
        """Begins a position and adds it to the lineage of each hypothesis.

        `x` is `[N, D]`, a row for each hypothesis; its values do not matter.
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
        """Writes the rows of one position into a cache, which may grow by it.

        `rows` is `[B, X, C * W, ...]`, `new` `[B, X, W, ...]`.
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
    """Updates the lineage of hypotheses that continue others of their sentence.

    `parents` is int32 `[B, W]`, in [0, W).
    """
    if isinstance(lineage, tuple):
        return lineage
    batch_size, beam_size, num_rows = ops.shape(lineage)
    flat = ops.reshape(lineage, (batch_size * beam_size, num_rows))
    sentences = ops.arange(batch_size, dtype="int32")[:, None]
    return ops.take(flat, sentences * beam_size + parents, axis=0)
