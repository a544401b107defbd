"""Self-attention with relative positions (Shaw et al. 2018)."""

import typing

import keras
from keras import ops

from keras_transformer.base.backend import Shape, Tensor
from keras_transformer.base.fields import check_positive
from keras_transformer.layers.attention import (
    KeyValue,
    MultiHeadAttention,
    check_self_attention,
    masked_softmax,
    scaled,
)
from keras_transformer.layers.cache import Position
from keras_transformer.layers.chunks import by_distance, by_key


@keras.saving.register_keras_serializable("keras_transformer")
class RelativeAttention(MultiHeadAttention):
    """Self-attention with learned distance vectors in keys and values.

    Each distance from the query, clipped to `max_relative_position`, has one
    learned vector that is added to the key and another that is added to the
    value (Shaw et al. 2018, eq. 3 and 4). The heads share the vectors.

    Differs from the paper, which adds sinusoids to the embeddings.

    Args:
        num_heads, d_key, d_value, dropout, use_bias: As in
            `MultiHeadAttention`.
        max_relative_position: Distances are clipped to this maximum on each
            side.

    Call arguments, Returns: As in `MultiHeadAttention`, but `query` and `value`
        must be the same sequence.

    Raises ValueError if a size is below 1, if `query` and `value` have
    different lengths, or if a mask is invalid.

    >>> layer = RelativeAttention(2, 4, 3, max_relative_position=5)
    >>> x = ops.ones((1, 7, 8))
    >>> layer(x, x).shape.as_list(), tuple(layer.relative_keys.shape)
    ([1, 7, 8], (11, 4))
    """

    def __init__(
        self,
        num_heads: int,
        d_key: int,
        d_value: int,
        max_relative_position: int,
        **kwargs,
    ):
        super().__init__(num_heads, d_key, d_value, **kwargs)
        check_positive(max_relative_position=max_relative_position)
        self.max_relative_position = max_relative_position
        self.relative_keys: typing.Any = None  # [2 * maximum + 1, K]
        self.relative_values: typing.Any = None  # [2 * maximum + 1, Vd]

    def get_config(self) -> dict[str, typing.Any]:
        maximum = self.max_relative_position
        return {**super().get_config(), "max_relative_position": maximum}

    def build(self, query_shape: Shape, value_shape: Shape) -> None:
        super().build(query_shape, value_shape)
        number = 2 * self.max_relative_position + 1
        self.relative_keys = self.add_weight(
            name="relative_keys", shape=(number, self.d_key)
        )
        self.relative_values = self.add_weight(
            name="relative_values", shape=(number, self.d_value)
        )

    def weigh(
        self, query: Tensor, keys: Tensor, attention_mask: Tensor | None
    ) -> Tensor:
        check_self_attention(self, query, keys)
        length = ops.shape(keys)[2]
        query = scaled(query)
        scores = ops.matmul(query, ops.swapaxes(keys, -1, -2))
        vectors = self._vectors(self.relative_keys, _distances(length))
        scores += by_key(_product(query, ops.transpose(vectors)), length)
        return masked_softmax(scores, attention_mask)

    def weigh_values(self, weights: Tensor, values: Tensor) -> Tensor:
        weights = self.weight_dropout(weights)
        if values.shape[2] == 0:  # there are no distances
            return ops.matmul(weights, values)
        distances = _distances(ops.shape(values)[2])
        vectors = self._vectors(self.relative_values, distances)
        heads = ops.matmul(weights, values)
        return heads + _product(by_distance(weights), vectors)

    def attend_to_cache(
        self, query: Tensor, cache: KeyValue, position: Position
    ) -> Tensor:
        # All queries have the same position, so each row has one distance.
        query = scaled(query)
        vectors = self._vectors(self.relative_keys, position.distances)
        scores = ops.matmul(query, ops.swapaxes(cache.keys, -1, -2))
        scores += _product(query, ops.transpose(vectors))
        weights = masked_softmax(scores, position.visible)
        vectors = self._vectors(self.relative_values, position.distances)
        return ops.matmul(weights, cache.values + vectors)

    def _vectors(self, table: Tensor, distances: Tensor) -> Tensor:
        maximum = self.max_relative_position
        rows = ops.clip(distances, -maximum, maximum) + maximum
        return ops.take(ops.cast(table, self.compute_dtype), rows, axis=0)


def _distances(length: int | Tensor) -> Tensor:
    """Lists the distances of keys from queries: -(T - 1) to T - 1, [2T - 1]."""
    # For T = 0, arange(2T - 1) would fail.
    return ops.arange(2 * length, dtype="int32")[1:] - length


def _product(x: Tensor, matrix: Tensor) -> Tensor:
    """Multiplies [..., m] by a matrix [m, n] in one product: [..., n]."""
    *others, width = ops.shape(x)
    y = ops.matmul(ops.reshape(x, (-1, width)), matrix)
    return ops.reshape(y, (*others, ops.shape(matrix)[-1]))
