"""The parts of the Transformer, in the order of the paper's section 3.

Letters of shapes: see the legend in `keras_transformer/__init__.py`.

In a half-precision policy, softmax and positions are computed in float32, and
logits are converted to float32. With dtype float64, all three are float64.
"""

import contextlib
import contextvars
import functools
import typing
from collections.abc import Callable, Iterator

import keras
import numpy as np
from keras import ops

from keras_transformer.cache import Position, Slots
from keras_transformer.chunks import (
    Chunks,
    Neighborhood,
    by_distance,
    by_key,
    divide,
)
from keras_transformer.config import ACTIVATIONS, SINUSOIDS, check_even
from keras_transformer.dropout import Dropout
from keras_transformer.fields import is_of_kind
from keras_transformer.linear import Linear
from keras_transformer.loss import projected_cross_entropy, projected_r_drop
from keras_transformer.masking import band_mask
from keras_transformer.normalization import LayerNorm
from keras_transformer.vocabulary import PAD

Tensor: typing.TypeAlias = typing.Any  # of the Keras backend, or NumPy's

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
    scores = ops.cast(scores, _precise(dtype))
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


class TracedLayer(keras.layers.Layer):
    """A layer whose `call` also runs on symbolic inputs.

    Keras would skip it wherever `compute_output_shape` says enough, and inputs
    of a wrong dtype would be refused only when the functional model is run.
    """

    def compute_output_spec(self, *args, **kwargs):
        return keras.Operation.compute_output_spec(self, *args, **kwargs)


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
        _check_sizes(num_heads=num_heads, d_key=d_key, d_value=d_value)
        if max_relative_position is not None:
            _check_sizes(max_relative_position=max_relative_position)
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


# Section 3.3: Position-wise Feed-Forward Networks

_ACTIVATION_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": ops.relu,
    "swish": ops.silu,
    "gelu": functools.partial(ops.gelu, approximate=False),
    "gelu_tanh": functools.partial(ops.gelu, approximate=True),
}


@keras.saving.register_keras_serializable("keras_transformer")
class FeedForward(keras.layers.Layer):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2: eq. 2, sec. 3.3.

    Differs from the paper: max(0, x) may be another `activation`, for models
    of other systems.

    Args:
        d_ff: Width F of the inner layer.
        dropout: Dropout rate after the activation, in [0, 1); the paper has
            none.
        activation: "relu"; "swish", x * sigmoid(x); "gelu", x * Phi(x), where
            Phi is the normal distribution's; "gelu_tanh", which approximates it
            (Hendrycks and Gimpel 2016).

    Call arguments:
        x: float `[B, T, D]`.
        training: Whether dropout is active.

    Returns:
        float `[B, T, D]` in the compute dtype.

    Raises:
        ValueError: `d_ff` is below 1, or the activation is not one of these.

    >>> FeedForward(d_ff=32)(ops.ones((2, 5, 8))).shape.as_list()
    [2, 5, 8]
    """

    def __init__(
        self,
        d_ff: int,
        dropout: float = 0.0,
        activation: str = "relu",
        **kwargs,
    ):
        super().__init__(**kwargs)
        _check_sizes(d_ff=d_ff)
        _check_choice(ACTIVATIONS, activation=activation)
        self.d_ff = d_ff
        self.inner = Linear(
            d_ff,
            activation=_ACTIVATION_FUNCTIONS[activation],
            dtype=self.dtype_policy,
            name="inner",
        )
        self.outer = None  # as wide as the input, see build
        self.activation_dropout = Dropout(
            dropout, dtype=self.dtype_policy, name="activation_dropout"
        )

    def build(self, x_shape):
        self.outer = Linear(x_shape[-1], dtype=self.dtype_policy, name="outer")
        self.inner.build(x_shape)
        self.outer.build((None, None, self.d_ff))
        self.activation_dropout.build((None, None, self.d_ff))

    def call(self, x):
        return self.outer(self.activation_dropout(self.inner(x)))

    def compute_output_shape(self, x_shape):
        return x_shape


# Sections 3.4 and 3.5: Embeddings and Softmax, Positional Encoding


def positional_encoding(
    length: int | Tensor,
    d_model: int,
    start: int | Tensor = 0,
    dtype: str = "float32",
    sinusoids: str = "paper",
) -> Tensor:
    """Sinusoids of sec. 3.5, sine and cosine interleaved.

    PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i + 1) = cos(same).

    Differs from the paper: with `sinusoids="t2t"` the exponent is
    i / (d_model / 2 - 1), as in tensor2tensor, OpenNMT-tf and fairseq. These
    have all sines before all cosines, too; see `permutation.py`.

    Args:
        length: Number of positions T, int or int scalar tensor.
        d_model: Width D, even.
        start: First position, int or int scalar tensor.
        dtype: "float32" or "float64", which the angles are computed in, too.
        sinusoids: "paper" or "t2t", which exponent.

    Returns:
        `[T, D]` of `dtype`.

    Raises:
        ValueError: `d_model` is odd, or there are no such sinusoids.

    >>> positional_encoding(2, 4).numpy().round(2)
    array([[0.  , 1.  , 0.  , 1.  ],
           [0.84, 0.54, 0.01, 1.  ]], dtype=float32)
    """
    check_even(d_model)
    _check_choice(SINUSOIDS, sinusoids=sinusoids)
    exponents = np.arange(0, d_model, 2) / d_model
    if sinusoids == "t2t":
        exponents = np.linspace(0, 1, d_model // 2)
    rates = 10000.0**-exponents
    positions = ops.cast(start + ops.arange(length, dtype="int32"), dtype)
    angles = positions[:, None] * rates.astype(dtype)  # [T, D / 2]
    pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)
    return ops.reshape(pairs, (-1, d_model))  # [T, D / 2, 2] -> [T, D]


class _Softmax:
    """The softmax projection of a layer that has `softmax_matrix`, `[V, D]`."""

    softmax_matrix: typing.Any
    logits_bias: typing.Any  # [V], or None
    compute_dtype: str

    def logits(self, x: Tensor) -> Tensor:
        """Scores of every token, x W^T, and a bias if there is one.

        Args:
            x: float `[B, T, D]`.

        Returns:
            float32 `[B, T, V]`; float64 if that is the compute dtype.
        """
        dtype = self.compute_dtype
        matrix = ops.cast(self.softmax_matrix, dtype)
        logits = ops.matmul(ops.cast(x, dtype), ops.transpose(matrix))
        logits = ops.cast(logits, _precise(dtype))
        return logits if self.logits_bias is None else logits + self.logits_bias

    def token_losses(
        self,
        x: Tensor,
        labels: Tensor,
        label_smoothing: float,
        r_drop: float = 0.0,
    ) -> tuple[Tensor, Tensor]:
        """The losses of `smoothed_cross_entropy(labels, logits(x), ...)`.

        Cheaper, since the gradient of the logits is never made.

        Args:
            x: float `[B, T, D]`; with R-Drop `[2 B, T, D]`.
            labels: int `[B, T]`.
            label_smoothing: As in `SmoothedCrossEntropy`.
            r_drop: Alpha of R-Drop, as in `projected_r_drop`; 0: none.

        Returns:
            Two `[B, T]`: the smoothed loss, and -log p(label).
        """
        projection = (
            ops.cast(x, self.compute_dtype),
            self.softmax_matrix,
            self.logits_bias,
        )
        if r_drop:
            return projected_r_drop(
                labels, *projection, label_smoothing, r_drop
            )
        return projected_cross_entropy(labels, *projection, label_smoothing)


@keras.saving.register_keras_serializable("keras_transformer")
class PositionalEmbedding(_Softmax, TracedLayer):
    """Scaled embeddings plus positions, and the tied softmax projection.

    dropout(E[ids] * sqrt(d_model) + PE), sec. 3.4, 3.5 and 5.4; `logits` is
    x E^T. The Transformer uses one such layer three times, so that there is a
    single matrix E `[V, D]`.

    Differs from the paper, for models of other systems: embeddings may be
    added as they are, positions may be counted from another number than 0, a
    norm may follow the sum, and logits may have a bias.

    An id outside [0, V) has the embedding NaN, on every backend and device,
    with and without XLA: a wrong vocabulary shows in the loss at once, and no
    negative id means a row counted from the end.

    Args:
        vocab_size: Number of tokens V.
        d_model: Width D, even.
        dropout: Dropout rate of the sum, in [0, 1).
        sinusoids: "paper" or "t2t", the PE that is added; see
            `positional_encoding`. None: positions are learned, a call argument;
            or relative, which attention adds.
        first_position: Number of the first position in PE.
        scale: Whether embeddings are multiplied by sqrt(d_model).
        logits_bias: Whether logits have a bias `[V]`.

    Call arguments:
        ids: Integers of any size `[B, T]`, in [0, V).
        start: Place of the first column, from 0, int or int scalar tensor.
        positions: A `LearnedPositions`, whose rows are added; or None.
        norm: A `LayerNorm` of the sum; or None. Source and target have one
            each, where they share embeddings, too.
        training: Whether dropout is active.

    Returns:
        float `[B, T, D]` in the compute dtype.

    Raises:
        ValueError: A size is below 1, or `d_model` is odd, or there are no
            such sinusoids, or none to count from `first_position`, or `ids`
            are not integers, or longer than `positions`.

    >>> layer = PositionalEmbedding(vocab_size=10, d_model=4)
    >>> x = layer(ops.array([[3, 4, 2]]))
    >>> x.shape.as_list(), layer.logits(x).shape.as_list()
    ([1, 3, 4], [1, 3, 10])
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        dropout: float = 0.0,
        sinusoids: str | None = "paper",
        first_position: int = 0,
        scale: bool = True,
        logits_bias: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        _check_sizes(vocab_size=vocab_size, d_model=d_model)
        check_even(d_model)
        _check_choice((*SINUSOIDS, None), sinusoids=sinusoids)
        if first_position and sinusoids is None:
            raise ValueError(
                "first_position is an option of sinusoids. Received:"
                f" first_position={first_position}, sinusoids=None"
            )
        self.vocab_size = vocab_size
        self.d_model = d_model
        self.sinusoids = sinusoids
        self.first_position = first_position
        self.scale = d_model**0.5 if scale else 1.0
        self.has_logits_bias = logits_bias
        self.logits_bias: typing.Any = None  # [V]
        self.sum_dropout = Dropout(
            dropout, dtype=self.dtype_policy, name="sum_dropout"
        )

    def build(self, ids_shape=None):
        self.embeddings = _add_table(
            self, "embeddings", self.vocab_size, self.d_model
        )
        if self.has_logits_bias:
            self.logits_bias = _add_logits_bias(self, self.vocab_size)
        self.sum_dropout.build((None, None, self.d_model))

    def call(self, ids, start=0, positions=None, norm=None):
        ids = _checked_ids(ids)
        dtype = _precise(self.variable_dtype)
        known = ops.clip(ids, 0, self.vocab_size - 1)
        is_right = known == ids
        if positions is not None:
            is_right = is_right & positions.has_rows_for(ids, start)
        # In the factor, where the check costs no pass over [B, T, D].
        scale, nan = np.array([self.scale, np.nan], dtype)
        scale = ops.where(is_right, scale, nan)
        scale = scale[..., None]  # [B, T] -> [B, T, 1]
        x = ops.take(self.embeddings, known, axis=0)  # [B, T] -> [B, T, D]
        x = ops.cast(x, dtype) * scale
        length = ops.shape(ids)[1]
        if self.sinusoids is not None:
            x += self._sinusoids(length, start, dtype)
        if positions is not None:
            x += ops.cast(positions.rows(length, start), dtype)
        if norm is not None:
            x = norm(x)
        return self.sum_dropout(ops.cast(x, self.compute_dtype))

    def _sinusoids(self, length, start, dtype):
        """PE of `length` places from `start` on: [T, D]."""
        if self.first_position:  # else no operation is added
            start = start + self.first_position
        return positional_encoding(
            length, self.d_model, start, dtype, self.sinusoids
        )

    @property
    def softmax_matrix(self):
        return self.embeddings

    def compute_output_shape(self, ids_shape):
        return (*ids_shape, self.d_model)


@keras.saving.register_keras_serializable("keras_transformer")
class SoftmaxProjection(_Softmax, keras.layers.Layer):
    """A matrix of the softmax that is no embedding matrix: `logits` is x W^T.

    Differs from the paper, which has one matrix for both (sec. 3.4): models of
    other systems may have two.

    It is no function of its own: the Transformer calls `logits`, as it does
    that of `PositionalEmbedding`. Whoever makes it builds it.

    Args:
        vocab_size: Number of tokens V.
        d_model: Width D.
        logits_bias: Whether logits have a bias `[V]`.

    >>> projection = SoftmaxProjection(vocab_size=10, d_model=4)
    >>> projection.build()
    >>> projection.logits(ops.ones((1, 3, 4))).shape.as_list()
    [1, 3, 10]
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        logits_bias: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        _check_sizes(vocab_size=vocab_size, d_model=d_model)
        self.vocab_size = vocab_size
        self.d_model = d_model
        self.has_logits_bias = logits_bias
        self.logits_bias: typing.Any = None  # [V]

    def build(self, input_shape=None):
        self.matrix = _add_table(self, "matrix", self.vocab_size, self.d_model)
        if self.has_logits_bias:
            self.logits_bias = _add_logits_bias(self, self.vocab_size)

    @property
    def softmax_matrix(self):
        return self.matrix


def _add_table(layer, name, num_rows, width):
    """A table of vectors, normal with a standard deviation of width^-0.5."""
    return layer.add_weight(
        name=name,
        shape=(num_rows, width),
        initializer=keras.initializers.RandomNormal(stddev=width**-0.5),
        autocast=False,  # a lookup reads few rows of a large matrix
    )


def _add_logits_bias(layer, vocab_size):
    """A bias `[V]` of a layer's logits, which half precision would round."""
    return layer.add_weight(
        name="logits_bias",
        shape=(vocab_size,),
        initializer="zeros",
        autocast=False,
    )


@keras.saving.register_keras_serializable("keras_transformer")
class LearnedPositions(keras.layers.Layer):
    """A table of learned positions `[P, D]`: Table 3, row E.

    Its rows are added to the scaled embeddings, in place of sinusoids. The
    Transformer has one table for the source and one for the target, as T2T's
    `pos="emb"` and the convolutional model that row E cites (Gehring et al.
    2017) have.

    A token beyond the last row has the embedding NaN, as an id outside the
    vocabulary has; where the length is static, it is refused. Padding may lie
    beyond it. T2T would add zeros there, without a word.

    Differs from the paper, which does not say how the table is initialized:
    as embeddings here are, normal with a standard deviation of d_model^-0.5.

    Args:
        max_positions: Number of rows P.
        d_model: Width D.

    It is no function of its own: `PositionalEmbedding` reads it, and whoever
    makes it builds it.

    >>> positions = LearnedPositions(max_positions=10, d_model=4)
    >>> positions.build()
    >>> positions.rows(3).shape.as_list()
    [3, 4]
    """

    def __init__(self, max_positions: int, d_model: int, **kwargs):
        super().__init__(**kwargs)
        _check_sizes(max_positions=max_positions, d_model=d_model)
        self.max_positions = max_positions
        self.d_model = d_model

    def build(self, input_shape=None):
        self.table = _add_table(self, "table", self.max_positions, self.d_model)

    def rows(self, length: int | Tensor, start: int | Tensor = 0) -> Tensor:
        """The rows of `length` positions from `start` on: float `[T, D]`."""
        positions = start + ops.arange(length, dtype="int32")
        last = self.max_positions - 1
        return ops.take(self.table, ops.minimum(positions, last), axis=0)

    def has_rows_for(self, ids: Tensor, start: int | Tensor = 0) -> Tensor:
        """Whether each of ids `[B, T]` has a row, or is padding: bool `[B, T]`.

        Raises:
            ValueError: There are more ids than rows.
        """
        length = ids.shape[1]
        if length is not None and length > self.max_positions:
            raise ValueError(
                f"{self.name}: expected at most max_positions ="
                f" {self.max_positions} ids. Received: {length}"
            )
        positions = start + ops.arange(ops.shape(ids)[1], dtype="int32")
        return (ids == PAD) | (positions < self.max_positions)


# Sections 3.1 and 5.4: residual connection, normalization, dropout


@keras.saving.register_keras_serializable("keras_transformer")
class Residual(keras.layers.Layer):
    """LayerNorm(x + Dropout(Sublayer(x))): the frame of every sub-layer.

    See sec. 3.1 and 5.4.

    Differs from the paper: with `pre_norm` it is x + Dropout(Sublayer(
    LayerNorm(x))), which trains deep stacks without a careful warm-up; the
    stack then ends with a norm of its own.

    Args:
        dropout: Dropout rate of the sub-layer's output, in [0, 1).
        pre_norm: Whether to normalize the input instead of the output.
        layer_norm_epsilon: What LayerNorm adds to the variance; the paper
            leaves it open.

    Call arguments:
        x: float `[B, T, D]`, the residual stream.
        sublayer: Function of one such tensor that returns another; by name.
        training: Whether dropout is active.

    Returns:
        float `[B, T, D]` in the compute dtype.

    >>> frame = Residual(dropout=0.0, pre_norm=True, layer_norm_epsilon=1e-6)
    >>> frame(ops.ones((1, 1, 4)), sublayer=lambda x: x + 2.0).numpy()
    array([[[3., 3., 3., 3.]]], dtype=float32)
    """

    def __init__(
        self,
        dropout: float,
        pre_norm: bool,
        layer_norm_epsilon: float,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.pre_norm = pre_norm
        self.norm = LayerNorm(
            epsilon=layer_norm_epsilon, dtype=self.dtype_policy, name="norm"
        )
        self.output_dropout = Dropout(
            dropout, dtype=self.dtype_policy, name="output_dropout"
        )

    def build(self, x_shape):
        self.norm.build(x_shape)
        self.output_dropout.build(x_shape)

    def call(self, x, sublayer):
        return self._leave(x, sublayer(self._enter(x)))

    def step(
        self, x: Tensor, sublayer: Callable[[Tensor], tuple[Tensor, typing.Any]]
    ) -> tuple[Tensor, typing.Any]:
        """`call` for a sub-layer that returns its output and its cache."""
        y, cache = sublayer(self._enter(x))
        return self._leave(x, y), cache

    def _enter(self, x):
        return self.norm(x) if self.pre_norm else x

    def _leave(self, x, y):
        x = x + self.output_dropout(y)
        return x if self.pre_norm else self.norm(x)

    def compute_output_shape(self, x_shape):
        return x_shape


def _linear(dtype, use_bias):
    """Makes the projections of sec. 3.2.2, which have no biases there."""

    def make(units, name):
        return Linear(units, use_bias=use_bias, dtype=dtype, name=name)

    return make


def _precise(dtype):
    """The dtype for what half precision cannot hold: float32, or float64."""
    is_double = keras.backend.standardize_dtype(dtype) == "float64"
    return "float64" if is_double else "float32"


# Checks of arguments


def _check_sizes(**sizes):
    for name, size in sizes.items():
        if not is_of_kind(size, int) or size < 1:
            raise ValueError(
                f"{name} must be a positive integer. Received: {name}={size!r}"
            )


def _check_choice(choices, **values):
    for name, value in values.items():
        if value not in choices:
            raise ValueError(
                f"{name} must be one of {', '.join(map(repr, choices))}."
                f" Received: {name}={value!r}"
            )


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


def _checked_ids(ids):
    """Ids as int32; as int64 if their dtype has ids that int32 has not."""
    ids = ops.convert_to_tensor(ids)
    dtype = keras.backend.standardize_dtype(ids.dtype)
    if "int" not in dtype:
        raise ValueError(
            "ids must be integers: floats of half precision cannot tell ids"
            f" above 256 apart. Received: ids of dtype {dtype}"
        )
    is_large = dtype in ("uint32", "int64", "uint64")
    return ops.cast(ids, "int64" if is_large else "int32")
