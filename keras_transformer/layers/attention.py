"""Attention (sec. 3.2), with its cache for decoding."""

import contextlib
import contextvars
import typing
from collections.abc import Iterator

import keras
import numpy as np
from keras import ops

from keras_transformer.backend import Tensor, precise_dtype
from keras_transformer.cache import Position, Slots
from keras_transformer.chunks import (
    Chunks,
    Neighborhood,
    by_distance,
    by_key,
    divide,
)
from keras_transformer.fields import is_of_kind
from keras_transformer.kernels.dropout import Dropout
from keras_transformer.kernels.linear import Linear
from keras_transformer.layers.checks import check_sizes
from keras_transformer.layers.traced import TracedLayer
from keras_transformer.masking import band_mask

# A score that softmax turns into zero. It is finite, so that a row that may
# attend to nothing gives no NaN.
HIDDEN_SCORE = -1e9


# Section 3.2.1: Scaled Dot-Product Attention


def attention_weights(
    query: Tensor, key: Tensor, mask: Tensor | None = None
) -> Tensor:
    """softmax(Q K^T / sqrt(d_k)): the weights of eq. 1.

    Args:
        query: float `[B, H, T, K]`.
        key: float `[B, H, S, K]`.
        mask: bool, broadcastable to `[B, H, T, S]`; `True` = may attend. A
            query that may attend to nothing weighs all keys alike.

    Returns:
        `[B, H, T, S]` in the dtype of `query`; each row sums to 1.

    Raises:
        ValueError: `mask` is not bool: an additive float mask would be read
            with the opposite meaning.
    """
    scores = ops.matmul(_scaled(query), ops.swapaxes(key, -1, -2))
    return _normalized(scores, mask)


def _scaled(query):
    """Q / sqrt(d_k)."""
    return query * (1 / np.sqrt(query.shape[-1]))


def _product(x, matrix):
    """[..., m] times a matrix [m, n], as one product: [..., n]."""
    *others, width = ops.shape(x)
    y = ops.matmul(ops.reshape(x, (-1, width)), matrix)
    return ops.reshape(y, (*others, ops.shape(matrix)[-1]))


def _normalized(scores, mask):
    """Softmax over the keys that the mask leaves: [..., T, S], same dtype."""
    dtype = scores.dtype
    scores = ops.cast(scores, precise_dtype(dtype))
    if mask is not None:
        scores = ops.where(_checked_mask(mask), scores, HIDDEN_SCORE)
    return ops.cast(ops.softmax(scores, axis=-1), dtype)


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
) -> Tensor:
    """Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V: eq. 1, sec. 3.2.1.

    Args:
        query: float `[B, H, T, K]`.
        key: float `[B, H, S, K]`.
        value: float `[B, H, S, Vd]`.
        mask: bool, broadcastable to `[B, H, T, S]`; `True` = may attend.

    Returns:
        `[B, H, T, Vd]` in the dtype of `query`.

    Raises:
        ValueError: `mask` is not bool.

    >>> q, k = ops.ones((1, 1, 1, 2)), ops.ones((1, 1, 3, 2))
    >>> v = ops.reshape(ops.array([1.0, 2.0, 9.0]), (1, 1, 3, 1))
    >>> mask = ops.array([True, True, False])
    >>> float(scaled_dot_product_attention(q, k, v, mask)[0, 0, 0, 0])
    1.5
    """
    return ops.matmul(attention_weights(query, key, mask), value)


# Section 3.2.2: Multi-Head Attention


class KeyValue(typing.NamedTuple):
    """Projected keys `[B, H, S, K]` and values `[B, H, S, Vd]` of one layer."""

    keys: typing.Any
    values: typing.Any


@keras.saving.register_keras_serializable("keras_transformer")
class MultiHeadAttention(TracedLayer):
    """Concat(head_1, ..., head_h) W^O of sec. 3.2.2.

    head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V). The projections of all heads
    are stored side by side in one matrix each. Keys and values come from the
    same sequence in all three uses of sec. 3.2.3.

    Decoding runs the same attention for one position of many hypotheses. To
    the source, whose keys and values do not change, it is `attend_from_rows`
    over what `project` returned once. To its own past, it is `step` over a
    cache. What a cache holds is known to this class alone: another kind of
    attention brings its own `make_cache` and `step`.

    Two options are for self-attention alone, where query and key positions are
    those of one sequence. They go together, and with any mask:

    - `neighborhood` restricts a query to the positions around it (sec. 4), by
      chunks (`chunks.py`): time and memory grow with r * n, and a cache keeps
      the last r positions. With a neighborhood that has nothing after the
      query, attention is causal without a mask. A mask that has a row for each
      query is honored, but it is n x n by itself.
    - `max_relative_position` adds to each key, and to each value, a learned
      vector of its distance from the query (Shaw et al. 2018, eq. 3 and 4);
      distances are clipped to it. The heads share the vectors.

    Differs from the paper: only with these options and with `use_bias`, which
    it does not use; models of other systems have biases.

    Args:
        num_heads: Number of heads H.
        d_key: Size K of keys and queries of one head.
        d_value: Size Vd of the values of one head.
        dropout: Dropout rate of the attention weights, in [0, 1).
        neighborhood: How many positions before and after its own a query sees,
            such as `(64, 63)`; None: all.
        max_relative_position: Greatest distance that has vectors of its own;
            None: positions are not relative.
        use_bias: Whether the four projections have biases.

    Call arguments:
        query: float `[B, T, D]`.
        value: float `[B, S, D']`, `query` itself in self-attention; or the
            `KeyValue` that `project` made of it.
        attention_mask: bool, broadcastable to `[B, H, T, S]`; `True` = may
            attend; None: everything may be attended.
        training: Whether dropout is active.

    Returns:
        float `[B, T, D]` in the compute dtype.

    Raises:
        ValueError: A size is below 1, or a mask is not bool, or an option for
            self-attention meets sequences of different lengths.

    >>> layer = MultiHeadAttention(num_heads=2, d_key=4, d_value=3)
    >>> layer(ops.ones((1, 5, 8)), ops.ones((1, 7, 6))).shape.as_list()
    [1, 5, 8]
    """

    def __init__(
        self,
        num_heads: int,
        d_key: int,
        d_value: int,
        dropout: float = 0.0,
        neighborhood: tuple[int, int] | None = None,
        max_relative_position: int | None = None,
        use_bias: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_sizes(num_heads=num_heads, d_key=d_key, d_value=d_value)
        if max_relative_position is not None:
            check_sizes(max_relative_position=max_relative_position)
        self.num_heads = num_heads
        self.d_key = d_key
        self.d_value = d_value
        self.neighborhood = _checked_neighborhood(neighborhood)
        self.max_relative_position = max_relative_position
        self.relative_keys: typing.Any = None  # [2 * greatest + 1, K]
        self.relative_values: typing.Any = None  # [2 * greatest + 1, Vd]
        self.use_bias = use_bias
        project = _linear(self.dtype_policy, use_bias)
        self.query_projection = project(num_heads * d_key, name="query")
        self.key_projection = project(num_heads * d_key, name="key")
        self.value_projection = project(num_heads * d_value, name="value")
        self.output_projection: typing.Any = (
            None  # W^O: as wide as the query, see build
        )
        self.weight_dropout = Dropout(
            dropout, dtype=self.dtype_policy, name="weight_dropout"
        )

    def build(self, query_shape, value_shape):
        self.query_projection.build(query_shape)
        self.key_projection.build(value_shape)
        self.value_projection.build(value_shape)
        self.output_projection = _linear(self.dtype_policy, self.use_bias)(
            query_shape[-1], name="output"
        )
        self.output_projection.build(
            (None, None, self.num_heads * self.d_value)
        )
        self.weight_dropout.build((None, self.num_heads, None, None))
        if self.max_relative_position is not None:
            number = 2 * self.max_relative_position + 1
            self.relative_keys = self.add_weight(
                name="relative_keys", shape=(number, self.d_key)
            )
            self.relative_values = self.add_weight(
                name="relative_values", shape=(number, self.d_value)
            )

    def call(self, query, value, attention_mask=None):
        return self.attend(query, self.project(value), attention_mask)

    def project(self, value: Tensor | KeyValue) -> KeyValue:
        """Keys and values of a sequence `[B, S, D']`; a `KeyValue` stays."""
        if isinstance(value, KeyValue):
            return value
        return KeyValue(
            keys=self._split_heads(self.key_projection(value), self.d_key),
            values=self._split_heads(
                self.value_projection(value), self.d_value
            ),
        )

    def attend(
        self,
        query: Tensor,
        key_value: KeyValue,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Attention over what `project` returned: float `[B, T, D]`."""
        if self.neighborhood is not None:
            return self._attend_nearby(query, key_value, attention_mask)
        keys, values = key_value
        weights = self.attention_weights(query, keys, attention_mask)
        _record(self, lambda: weights)
        distances = self._distances(query, keys)
        heads = self._weigh_values(weights, values, distances)
        return self._join_heads(heads)

    def _attend_nearby(self, query, key_value, attention_mask):
        """`attend` by chunks: each query attends to its neighborhood."""
        query = self._project_query(query)
        self._check_self_attention(query, key_value.keys)
        chunks = divide(ops.shape(query)[2], self.neighborhood)
        # [B, H, n, K] -> [B, H, G, M, K]
        keys, values = (chunks.split_with_margins(x) for x in key_value)
        mask = band_mask(
            chunks.size, chunks.width, *self.neighborhood, first=chunks.before
        )  # [1, 1, C, M]
        mask = mask[:, :, None] & _chunk_mask(chunks, attention_mask)
        first = chunks.size - 1 + chunks.before
        distances = ops.arange(chunks.size + chunks.width - 1, dtype="int32")
        distances = distances - first
        weights = self._weigh(chunks.split(query), keys, mask, distances)
        # A row of padding may see no key, and weighs all alike: not recorded.
        _record(self, lambda: chunks.join_by_key(ops.where(mask, weights, 0.0)))
        heads = self._weigh_values(weights, values, distances)
        return self._join_heads(chunks.join(heads))

    def _weigh(self, query, keys, mask, distances):
        """The weights of eq. 1, with relative positions if there are any.

        Args:
            query: float `[..., T, K]`.
            keys: float `[..., S, K]`.
            mask: bool, broadcastable to `[..., T, S]`; or None.
            distances: int32 `[T + S - 1]`: how far key j is from query i stands
                at j - i + T - 1.

        Returns:
            float `[..., T, S]`, before dropout.
        """
        if self.max_relative_position is None:
            return attention_weights(query, keys, mask)
        query = _scaled(query)
        scores = ops.matmul(query, ops.swapaxes(keys, -1, -2))
        vectors = self._relative_vectors(self.relative_keys, distances)
        relative = _product(query, ops.transpose(vectors))
        scores += by_key(relative, ops.shape(keys)[-2])
        return _normalized(scores, mask)

    def _weigh_values(self, weights, values, distances):
        """Weights times values, and relative positions if there are any.

        Args:
            weights: What `_weigh` returned.
            values: float `[..., S, Vd]`.
            distances: As in `_weigh`.

        Returns:
            float `[..., T, Vd]`.
        """
        weights = self.weight_dropout(weights)
        if self.max_relative_position is None:
            return ops.matmul(weights, values)
        vectors = self._relative_vectors(self.relative_values, distances)
        heads = ops.matmul(weights, values)
        return heads + _product(by_distance(weights), vectors)

    def _distances(self, query, keys):
        """`distances` of `_weigh` for whole sequences; None if not needed."""
        if self.max_relative_position is None:
            return None
        num_queries, num_keys = ops.shape(query)[-2], ops.shape(keys)[-2]
        number = num_queries + num_keys - 1
        return ops.arange(number, dtype="int32") - (num_queries - 1)

    def _relative_vectors(self, table, distances):
        """The vector of each distance: [T + S - 1] -> [T + S - 1, K]."""
        greatest = self.max_relative_position
        rows = ops.clip(distances, -greatest, greatest) + greatest
        return ops.take(ops.cast(table, self.compute_dtype), rows, axis=0)

    def _check_self_attention(self, query, keys):
        """Raises ValueError if an option needs one sequence, and it is two."""
        if self.neighborhood is None and self.max_relative_position is None:
            return
        lengths = query.shape[2], keys.shape[2]
        if None not in lengths and lengths[0] != lengths[1]:
            raise ValueError(
                f"{self.name}: neighborhood and max_relative_position are for"
                " self-attention, queries and keys of one sequence. Received:"
                f" {lengths[0]} queries, {lengths[1]} keys"
            )

    def attend_from_rows(
        self,
        query: Tensor,
        key_value: KeyValue,
        attention_mask: Tensor,
        num_beams: int,
    ) -> Tensor:
        """`attend` for one position of the hypotheses of each sentence.

        Those of a sentence share its keys and values. Records nothing.

        Args:
            query: float `[N, D]`; the W rows of a sentence are neighbours.
            key_value: What `project` returned, `[B, H, S, K]`.
            attention_mask: bool `[B, 1, 1, S]`.
            num_beams: W, hypotheses of a sentence.

        Returns:
            float `[N, D]`.
        """
        query = self._heads_of_rows(
            self.query_projection(query), self.d_key, num_beams
        )
        weights = attention_weights(query, key_value.keys, attention_mask)
        return self._rows_of_heads(ops.matmul(weights, key_value.values))

    def attention_weights(
        self, query: Tensor, keys: Tensor, attention_mask: Tensor | None = None
    ) -> Tensor:
        """Attention weights before dropout: float `[B, H, T, S]`.

        They are an n x n matrix in restricted attention, too.

        Args:
            query: float `[B, T, D]`.
            keys: Projected keys `[B, H, S, K]`.
            attention_mask: As in `call`.
        """
        query = self._project_query(query)
        self._check_self_attention(query, keys)
        if self.neighborhood is not None:
            sizes = ops.shape(query)[2], ops.shape(keys)[2]
            band = band_mask(*sizes, *self.neighborhood)
            if attention_mask is not None:
                band = band & _checked_mask(attention_mask)
            attention_mask = band
        distances = self._distances(query, keys)
        return self._weigh(query, keys, attention_mask, distances)

    def make_cache(self, batch_size: int | Tensor, slots: Slots) -> KeyValue:
        """An empty cache for `step`.

        Args:
            batch_size: Sentences B; see `Slots.first_rows`.
            slots: How it is laid out.

        Returns:
            `KeyValue` of `[B, H, C * W, K]` and `[B, H, C * W, Vd]`.

        Raises:
            ValueError: The neighborhood has positions after the query.
        """
        if self.neighborhood is not None and self.neighborhood.after:
            raise ValueError(
                f"{self.name}: a step sees no position after its own."
                f" Received: neighborhood={tuple(self.neighborhood)}"
            )

        def zeros(size):
            number = slots.first_rows(batch_size)
            shape = (batch_size, self.num_heads, number, size)
            return ops.zeros(shape, self.compute_dtype)

        return KeyValue(keys=zeros(self.d_key), values=zeros(self.d_value))

    def step(
        self,
        query: Tensor,
        cache: KeyValue,
        slots: Slots,
        position: Position,
    ) -> tuple[Tensor, KeyValue]:
        """Causal self-attention of one position, over a cache.

        It is row `index` of `call(query, query, causal_mask(T))`. Records
        nothing.

        Args:
            query: float `[N, D]`, this position of each hypothesis; the W of a
                sentence are neighbours.
            cache: What `make_cache` or the step before returned.
            slots: The `Slots` of the cache.
            position: What `Slots.enter` returned for this position.

        Returns:
            float `[N, D]`, and the cache with this position in it.
        """
        num_beams = slots.num_beams
        keys, values = (
            slots.append(
                before,
                self._heads_of_rows(project(query), size, num_beams),
                position.index,
            )
            for before, project, size in (
                (cache.keys, self.key_projection, self.d_key),
                (cache.values, self.value_projection, self.d_value),
            )
        )
        cache = KeyValue(keys, values)
        query = self._heads_of_rows(
            self.query_projection(query), self.d_key, num_beams
        )
        query = _scaled(query)  # [B, H, W, K]
        scores = ops.matmul(query, ops.swapaxes(keys, -1, -2))
        if self.max_relative_position is not None:
            # A vector for each key and value: [C * W, K].
            of_keys, of_values = (
                self._relative_vectors(table, position.distances)
                for table in (self.relative_keys, self.relative_values)
            )
            scores += _product(query, ops.transpose(of_keys))
            values = values + of_values
        weights = _normalized(scores, position.visible)
        return self._rows_of_heads(ops.matmul(weights, values)), cache

    def compute_output_shape(self, query_shape, value_shape):
        return query_shape

    def _project_query(self, query):
        """[B, T, D] -> [B, H, T, K]."""
        return self._split_heads(self.query_projection(query), self.d_key)

    def _split_heads(self, x, size):
        """[B, S, H * size] -> [B, H, S, size]."""
        x = ops.reshape(x, (-1, ops.shape(x)[1], self.num_heads, size))
        return ops.transpose(x, (0, 2, 1, 3))

    def _join_heads(self, x):
        """Concat(head_1, ..., head_h) W^O: [B, H, T, Vd] -> [B, T, D]."""
        x = ops.transpose(x, (0, 2, 1, 3))  # [B, T, H, Vd]
        width = self.num_heads * self.d_value
        x = ops.reshape(x, (-1, ops.shape(x)[1], width))
        return self.output_projection(x)

    def _heads_of_rows(self, x, size, num_beams):
        """One position of each hypothesis: [N, H * size] -> [B, H, W, size]."""
        if num_beams == 1:
            return ops.reshape(x, (-1, self.num_heads, 1, size))
        x = ops.reshape(x, (-1, num_beams, self.num_heads, size))
        return ops.transpose(x, (0, 2, 1, 3))

    def _rows_of_heads(self, x):
        """Concat(head_1, ..., head_h) W^O: [B, H, W, Vd] -> [N, D]."""
        if x.shape[2] != 1:
            x = ops.transpose(x, (0, 2, 1, 3))  # [B, W, H, Vd]
        x = ops.reshape(x, (-1, self.num_heads * self.d_value))
        return self.output_projection(x)


_RECORD: contextvars.ContextVar[dict | None] = contextvars.ContextVar(
    "record", default=None
)


@contextlib.contextmanager
def recorded_weights() -> Iterator[dict[MultiHeadAttention, Tensor]]:
    """Records what every attention layer called meanwhile attends to.

    Yields:
        A dictionary, in which each `MultiHeadAttention` that is called puts its
        weights, before dropout: `[B, H, T, S]`. Those of restricted attention
        are 0 outside the neighborhoods, and in the rows that see no key.
    """
    record: dict[MultiHeadAttention, Tensor] = {}
    token = _RECORD.set(record)
    try:
        yield record
    finally:
        _RECORD.reset(token)


def _record(layer, make_weights):
    """Records the weights that a function makes, if there is a record."""
    record = _RECORD.get()
    if record is not None:
        record[layer] = make_weights()


def _chunk_mask(chunks: Chunks, mask):
    """A mask of whole sequences as chunks have it: bool [B, H, G, C, M].

    False where a margin, or the last chunk, has no position.

    Args:
        chunks: The `Chunks`.
        mask: bool, broadcastable to `[B, H, n, n]`; None: everything.
    """
    if mask is None:
        mask = ops.ones((1, 1, 1, 1), "bool")
    mask = _checked_mask(mask)
    axes = [1] * (4 - len(mask.shape)) + list(ops.shape(mask))
    mask = ops.reshape(mask, axes)
    length = chunks.length
    if mask.shape[2] == 1:  # the same for every query
        return chunks.split_key_mask(
            ops.broadcast_to(mask, (*axes[:3], length))
        )
    return chunks.split_mask(
        ops.broadcast_to(mask, (*axes[:2], length, length))
    )


def _linear(dtype, use_bias):
    """Makes the projections of sec. 3.2.2, which have no biases there."""

    def make(units, name):
        return Linear(units, use_bias=use_bias, dtype=dtype, name=name)

    return make


def _checked_neighborhood(neighborhood):
    """A pair of numbers of positions as a `Neighborhood`; None stays."""
    if neighborhood is None:
        return None
    pair = tuple(neighborhood)
    if len(pair) != 2 or not all(is_of_kind(n, int) and n >= 0 for n in pair):
        raise ValueError(
            "neighborhood must be two numbers of positions, before and after."
            f" Received: neighborhood={neighborhood!r}"
        )
    return Neighborhood(*pair)


def _checked_mask(mask):
    """A mask as a tensor, if it is bool."""
    mask = ops.convert_to_tensor(mask)
    dtype = keras.backend.standardize_dtype(mask.dtype)
    if dtype != "bool":
        raise ValueError(
            "An attention mask must be bool, True where a query may attend."
            f" Received: a mask of dtype {dtype}"
        )
    return mask
