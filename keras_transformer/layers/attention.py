"""Attention as in section 3.2, with a cache for decoding."""

import contextlib
import contextvars
import functools
import typing
from collections.abc import Callable, Iterator

import keras
import numpy as np
from keras import ops

from keras_transformer.base.backend import (
    Shape,
    Tensor,
    num_rows,
    precise_dtype,
)
from keras_transformer.base.fields import check_positive
from keras_transformer.base.refusals import expect
from keras_transformer.kernels.attention import attend, is_fused
from keras_transformer.kernels.base import TracedLayer, check_axes, check_built
from keras_transformer.kernels.layers import Dropout, Linear
from keras_transformer.layers.cache import Position, Slots
from keras_transformer.layers.masking import checked_mask

# A score that softmax turns into zero. It is finite, so that a query that may
# attend to nothing does not give NaN.
HIDDEN_SCORE = -1e9


# Section 3.2.1: Scaled Dot-Product Attention


def attention_weights(
    query: Tensor, key: Tensor, mask: Tensor | None = None
) -> Tensor:
    """Computes softmax(Q K^T / sqrt(d_k)) of eq. 1: `[B, H, T, S]`.

    Arguments are as in `scaled_dot_product_attention`. A query that may attend
    to nothing weights all keys equally.
    """
    return masked_softmax(
        ops.matmul(scaled(query), ops.swapaxes(key, -1, -2)), mask
    )


def scaled(query: Tensor) -> Tensor:
    """Computes Q / sqrt(d_k)."""
    # With a NumPy number, JAX would compute half precision in float32.
    return query * float(1 / np.sqrt(query.shape[-1]))


def masked_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Computes the softmax over the allowed keys, in the scores' dtype.

    Raises the errors of `checked_mask`.
    """
    dtype = scores.dtype
    scores = ops.cast(scores, precise_dtype(dtype))
    if mask is not None:
        scores = ops.where(
            checked_mask(mask, scores.shape), scores, HIDDEN_SCORE
        )
    return ops.cast(ops.softmax(scores, axis=-1), dtype)


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
) -> Tensor:
    """Computes softmax(Q K^T / sqrt(d_k)) V: eq. 1, sec. 3.2.1.

    Args:
        query: float `[B, H, T, K]`.
        key: float `[B, H, S, K]`.
        value: float `[B, H, S, Vd]`.
        mask: bool, broadcastable to `[B, H, T, S]`; `True` = may attend.

    Returns:
        `[B, H, T, Vd]` in the dtype of `query`.

    Raises:
        ValueError: The mask is invalid; see `checked_mask`.

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

    keys: Tensor
    values: Tensor


@keras.saving.register_keras_serializable("keras_transformer")
class MultiHeadAttention(TracedLayer):
    """Concat(head_1, ..., head_h) W^O of sec. 3.2.2.

    head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V). The projections of all heads
    are stored side by side in one matrix each. Keys and values come from the
    same sequence in all three uses of sec. 3.2.3.

    Decoding runs the same attention for one position of many hypotheses.
    `attend_from_rows` attends to the source, whose keys and values `project`
    has computed once. `step` attends to a cache of earlier positions.
    `RelativeAttention` and `RestrictedAttention` are subclasses for
    self-attention.

    Differs from the paper: with `use_bias` the four projections have biases, as
    in models from other systems.

    Args:
        num_heads: Number of heads H.
        d_key: Size K of keys and queries of one head.
        d_value: Size Vd of the values of one head, by default K.
        dropout: Dropout rate of the attention weights, in [0, 1).
        use_bias: Whether the four projections have biases.

    Call arguments:
        query: float `[B, T, D]`.
        value: float `[B, S, D']`, which is `query` in self-attention, or the
            `KeyValue` that `project` returned for it.
        attention_mask: bool, broadcastable to `[B, H, T, S]`; `True` = may
            attend. None hides nothing.
        training: Whether dropout is active.

    Returns:
        float `[B, T, D]` in the compute dtype.

    Raises:
        ValueError: A size is below 1, a sequence is not `[B, T, D]`, or the
            mask is invalid (see `checked_mask`).

    >>> layer = MultiHeadAttention(num_heads=2, d_key=4, d_value=3)
    >>> layer(ops.ones((1, 5, 8)), ops.ones((1, 7, 6))).shape.as_list()
    [1, 5, 8]
    """

    def __init__(
        self,
        num_heads: int,
        d_key: int,
        d_value: int | None = None,
        dropout: float = 0.0,
        use_bias: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        d_value = d_key if d_value is None else d_value
        check_positive(num_heads=num_heads, d_key=d_key, d_value=d_value)
        self.num_heads = num_heads
        self.d_key = d_key
        self.d_value = d_value
        self.use_bias = use_bias
        project = functools.partial(
            Linear, use_bias=use_bias, dtype=self.dtype_policy
        )
        self.query_projection = project(num_heads * d_key, name="query")
        self.key_projection = project(num_heads * d_key, name="key")
        self.value_projection = project(num_heads * d_value, name="value")
        # W^O, made in `build`: it is as wide as the query.
        self.output_projection: typing.Any = None
        self.weight_dropout = Dropout(
            dropout, dtype=self.dtype_policy, name="weight_dropout"
        )

    def get_config(self) -> dict[str, typing.Any]:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "d_key": self.d_key,
            "d_value": self.d_value,
            "dropout": self.weight_dropout.rate,
            "use_bias": self.use_bias,
        }

    def build(self, query_shape: Shape, value_shape: Shape) -> None:
        self.query_projection.build(query_shape)
        self.key_projection.build(value_shape)
        self.value_projection.build(value_shape)
        self.output_projection = Linear(
            query_shape[-1],
            use_bias=self.use_bias,
            dtype=self.dtype_policy,
            name="output",
        )
        self.output_projection.build(
            (None, None, self.num_heads * self.d_value)
        )
        self.weight_dropout.build((None, self.num_heads, None, None))

    def call(
        self,
        query: Tensor,
        value: Tensor | KeyValue,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        check_axes(self, query, "[B, T, D]")
        if not isinstance(value, KeyValue):
            check_axes(self, value, "[B, S, D']")
        return self.attend(query, self.project(value), attention_mask)

    def project(self, value: Tensor | KeyValue) -> KeyValue:
        """Projects `[B, S, D']` to a `KeyValue`, or returns one unchanged."""
        if isinstance(value, KeyValue):
            return value
        if not keras.backend.is_keras_tensor(value):
            check_built(self, value)
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
        """Computes `call` for projected keys and values: float `[B, T, D]`."""
        keys, values = key_value
        query = self._project_query(query)
        if (
            _RECORD.get() is None
            and type(self) is MultiHeadAttention
            and not self.weight_dropout.rate
            and is_fused(query, keys, values)
        ):
            if attention_mask is not None:
                shape = (*query.shape[:3], keys.shape[2])
                attention_mask = checked_mask(attention_mask, shape)
            heads = attend(query, keys, values, attention_mask)
            return self._join_heads(heads)
        weights = self.weigh(query, keys, attention_mask)
        record_weights(self, lambda: weights)
        return self._join_heads(self.weigh_values(weights, values))

    def weigh(
        self, query: Tensor, keys: Tensor, attention_mask: Tensor | None
    ) -> Tensor:
        """Computes the weights of eq. 1, before dropout: float `[B, H, T, S]`.

        Args:
            query: Projected queries `[B, H, T, K]`.
            keys: Projected keys `[B, H, S, K]`.
            attention_mask: As in `call`.
        """
        return attention_weights(query, keys, attention_mask)

    def weigh_values(self, weights: Tensor, values: Tensor) -> Tensor:
        """Multiplies weights, after dropout, by values: `[B, H, T, Vd]`."""
        return ops.matmul(self.weight_dropout(weights), values)

    def attend_from_rows(
        self,
        query: Tensor,
        key_value: KeyValue,
        attention_mask: Tensor,
        beam_size: int,
    ) -> Tensor:
        """Runs `attend` for one position of the hypotheses of each sentence.

        Hypotheses of a sentence share its keys and values. No weights are
        recorded.

        Args:
            query: float `[N, D]`; the W rows of a sentence are adjacent.
            key_value: The result of `project`, `[B, H, S, K]`.
            attention_mask: bool `[B, 1, 1, S]`.
            beam_size: Hypotheses per sentence, W.

        Returns:
            float `[N, D]`.
        """
        query = self._heads_of_rows(
            self.query_projection(query), self.d_key, beam_size
        )
        weights = attention_weights(query, key_value.keys, attention_mask)
        return self._rows_of_heads(ops.matmul(weights, key_value.values))

    def make_cache(self, batch_size: int | Tensor, slots: Slots) -> KeyValue:
        """Makes an empty cache for `step`.

        Args:
            batch_size: Number of sentences B; see `Slots.first_rows`.
            slots: The layout of the cache.

        Returns:
            `KeyValue` of `[B, H, C * W, K]` and `[B, H, C * W, Vd]`.
        """

        def zeros(size: int) -> Tensor:
            number = slots.first_rows(batch_size)
            shape = (batch_size, self.num_heads, number, size)
            return ops.zeros(shape, self.compute_dtype)

        return KeyValue(keys=zeros(self.d_key), values=zeros(self.d_value))

    def step(
        self, query: Tensor, cache: KeyValue, slots: Slots, position: Position
    ) -> tuple[Tensor, KeyValue]:
        """Computes causal self-attention of one position, with a cache.

        The result is row `index` of `call(query, query, causal_mask(T))`. No
        weights are recorded.

        Args:
            query: float `[N, D]`, this position of each hypothesis; the W rows
                of a sentence are adjacent.
            cache: The result of `make_cache` or of the previous step.
            slots: The `Slots` of the cache.
            position: The result of `Slots.enter` for this position.

        Returns:
            float `[N, D]`, and the cache with this position in it.
        """
        beam_size = slots.beam_size
        keys, values = (
            slots.append(
                before,
                self._heads_of_rows(project(query), size, beam_size),
                position.index,
            )
            for before, project, size in (
                (cache.keys, self.key_projection, self.d_key),
                (cache.values, self.value_projection, self.d_value),
            )
        )
        cache = KeyValue(keys, values)
        query = self._heads_of_rows(
            self.query_projection(query), self.d_key, beam_size
        )
        heads = self.attend_to_cache(query, cache, position)
        return self._rows_of_heads(heads), cache

    def attend_to_cache(
        self, query: Tensor, cache: KeyValue, position: Position
    ) -> Tensor:
        """Computes the attention of `step` in each head: float `[B, H, W, Vd]`.

        Args:
            query: Projected queries `[B, H, W, K]`.
            cache, position: As in `step`. The cache includes this position.
        """
        return scaled_dot_product_attention(query, *cache, position.visible)

    def compute_output_shape(
        self, query_shape: Shape, value_shape: Shape
    ) -> Shape:
        return query_shape

    def _project_query(self, query: Tensor) -> Tensor:
        """Projects and splits queries: [B, T, D] -> [B, H, T, K]."""
        return self._split_heads(self.query_projection(query), self.d_key)

    def _split_heads(self, x: Tensor, size: int) -> Tensor:
        """Splits x into heads: [B, S, H * size] -> [B, H, S, size]."""
        x = ops.reshape(x, (num_rows(x), ops.shape(x)[1], self.num_heads, size))
        return ops.transpose(x, (0, 2, 1, 3))

    def _join_heads(self, x: Tensor) -> Tensor:
        """Computes Concat(head_1, ...) W^O: [B, H, T, Vd] -> [B, T, D]."""
        x = ops.transpose(x, (0, 2, 1, 3))  # [B, T, H, Vd]
        width = self.num_heads * self.d_value
        x = ops.reshape(x, (num_rows(x), ops.shape(x)[1], width))
        return self.output_projection(x)

    def _heads_of_rows(self, x: Tensor, size: int, beam_size: int) -> Tensor:
        """Splits one position into heads: [N, H * size] -> [B, H, W, size]."""
        if beam_size == 1:
            return ops.reshape(x, (-1, self.num_heads, 1, size))
        x = ops.reshape(x, (-1, beam_size, self.num_heads, size))
        return ops.transpose(x, (0, 2, 1, 3))

    def _rows_of_heads(self, x: Tensor) -> Tensor:
        """Computes Concat(head_1, ...) W^O: [B, H, W, Vd] -> [N, D]."""
        if x.shape[2] != 1:
            x = ops.transpose(x, (0, 2, 1, 3))  # [B, W, H, Vd]
        x = ops.reshape(x, (-1, self.num_heads * self.d_value))
        return self.output_projection(x)


_RECORD: contextvars.ContextVar[dict | None] = contextvars.ContextVar(
    "record", default=None
)


@contextlib.contextmanager
def recorded_weights() -> Iterator[dict[MultiHeadAttention, Tensor]]:
    """Records the weights of every attention layer called in the block.

    Yields:
        A dictionary of the weights `[B, H, T, S]` of each `MultiHeadAttention`,
        before dropout. The weights of restricted attention are 0 outside the
        neighborhoods, and for queries that see no key.
    """
    record: dict[MultiHeadAttention, Tensor] = {}
    token = _RECORD.set(record)
    try:
        yield record
    finally:
        _RECORD.reset(token)


def record_weights(
    layer: MultiHeadAttention, make_weights: Callable[[], Tensor]
) -> None:
    """In `recorded_weights`, records what `make_weights` returns."""
    record = _RECORD.get()
    if record is not None:
        record[layer] = make_weights()


def check_self_attention(
    layer: typing.Any, query: Tensor, keys: Tensor
) -> None:
    """Raises ValueError if projected queries and keys differ in length."""
    lengths = query.shape[2], keys.shape[2]
    expect(
        None in lengths or lengths[0] == lengths[1],
        f"queries and keys of one sequence: {type(layer).__name__} is"
        " self-attention",
        f"{lengths[0]} queries, {lengths[1]} keys",
        where=layer.name,
    )
