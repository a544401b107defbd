"""Restricted self-attention (sec. 4; Table 1, last row)."""

import typing

import keras
from keras import ops

from keras_transformer.base.backend import Tensor
from keras_transformer.base.fields import is_of_kind
from keras_transformer.base.refusals import expect
from keras_transformer.layers.attention import (
    KeyValue,
    MultiHeadAttention,
    attention_weights,
    check_self_attention,
    record_weights,
)
from keras_transformer.layers.cache import Slots
from keras_transformer.layers.chunks import Neighborhood, divide
from keras_transformer.layers.masking import band_mask, checked_mask


@keras.saving.register_keras_serializable("keras_transformer")
class RestrictedAttention(MultiHeadAttention):
    """Self-attention of each position to its neighborhood (sec. 4).

    It is computed by chunks (`chunks.py`), so that time and memory grow with
    r * n, and a cache keeps only the last r positions. If the neighborhood ends
    with the query, attention is causal without a mask. A mask with a row for
    each query is applied, but is an n x n matrix itself.

    Args:
        num_heads, d_key, d_value, dropout, use_bias: As in
            `MultiHeadAttention`.
        neighborhood: Numbers of positions that a query sees before and after
            its own, such as `(64, 63)`.

    Call arguments, Returns: As in `MultiHeadAttention`, but `query` and `value`
        must be the same sequence.

    Raises ValueError if a size is below 1, if the neighborhood is not two
    numbers, if `query` and `value` have different lengths, or if a mask is
    invalid.

    >>> layer = RestrictedAttention(2, 4, 3, neighborhood=(2, 0))
    >>> x = ops.ones((1, 7, 8))
    >>> layer(x, x).shape.as_list()
    [1, 7, 8]
    """

    def __init__(
        self,
        num_heads: int,
        d_key: int,
        d_value: int,
        neighborhood: tuple[int, int],
        **kwargs,
    ):
        super().__init__(num_heads, d_key, d_value, **kwargs)
        self.neighborhood = _checked_neighborhood(neighborhood)

    def get_config(self) -> dict[str, typing.Any]:
        return {**super().get_config(), "neighborhood": [*self.neighborhood]}

    def attend(
        self,
        query: Tensor,
        key_value: KeyValue,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        query = self._project_query(query)
        check_self_attention(self, query, key_value.keys)
        chunks = divide(ops.shape(query)[2], self.neighborhood)
        # [B, H, n, K] -> [B, H, G, M, K]
        keys, values = (chunks.split_with_margins(x) for x in key_value)
        mask = band_mask(
            chunks.size, chunks.width, *self.neighborhood, chunks.before
        )  # [1, 1, C, M]
        mask = mask[:, :, None] & _chunk_mask(chunks, attention_mask, query)
        weights = attention_weights(chunks.split(query), keys, mask)
        # Padding may see no key, and weights all equally: recorded as 0.
        record_weights(
            self, lambda: chunks.join_by_key(ops.where(mask, weights, 0.0))
        )
        heads = self.weigh_values(weights, values)
        return self._join_heads(chunks.join(heads))

    def make_cache(self, batch_size: int | Tensor, slots: Slots) -> KeyValue:
        expect(
            not self.neighborhood.after,
            "no position after its own in a step",
            f"neighborhood={tuple(self.neighborhood)}",
            where=self.name,
        )
        return super().make_cache(batch_size, slots)


def _checked_neighborhood(neighborhood: tuple[int, int]) -> Neighborhood:
    pair = tuple(neighborhood)
    expect(
        len(pair) == 2 and all(is_of_kind(n, int) and n >= 0 for n in pair),
        "two numbers of positions, before and after",
        f"{neighborhood=}",
    )
    return Neighborhood(*pair)


def _chunk_mask(chunks, mask, query):
    """Makes the mask of chunks, bool [B, H, G, C, M], from a mask or None.

    `mask` is broadcastable to [B, H, n, n]. The result is False where a margin
    or the last chunk lies outside the sequence.
    """
    if mask is None:
        mask = ops.ones((1, 1, 1, 1), "bool")
    mask = checked_mask(mask, (*query.shape[:3], query.shape[2]))
    axes = ops.shape(mask)
    length = chunks.length
    if mask.shape[2] == 1:  # the same for every query
        return chunks.split_key_mask(
            ops.broadcast_to(mask, (*axes[:3], length))
        )
    return chunks.split_mask(
        ops.broadcast_to(mask, (*axes[:2], length, length))
    )
