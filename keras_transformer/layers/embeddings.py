"""Embeddings, softmax projection and positions (sec. 3.4 and 3.5)."""

import typing
from collections.abc import Callable

import keras
import numpy as np
from keras import ops

from keras_transformer.base.backend import (
    Shape,
    Tensor,
    precise_dtype,
    whole_ids,
)
from keras_transformer.base.fields import (
    check_positive,
    check_values,
    unhandled,
)
from keras_transformer.base.refusals import expect
from keras_transformer.config import TransformerConfig, check_even
from keras_transformer.kernels.base import (
    KeptWeights,
    TracedLayer,
    check_axes,
    check_built,
)
from keras_transformer.kernels.layers import Dropout, LayerNorm, unless_read
from keras_transformer.text.vocabulary import PAD


def positional_encoding(
    length: int | Tensor,
    d_model: int,
    start: int | Tensor = 0,
    dtype: str = "float32",
    sinusoids: str = "paper",
) -> Tensor:
    """Computes the sinusoids of sec. 3.5, sine and cosine interleaved.

    PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i + 1) = cos(same).

    Differs from the paper: with `sinusoids="t2t"` the exponent is
    i / (d_model / 2 - 1), as in tensor2tensor, OpenNMT-tf and fairseq. In these
    systems, all sines also come before all cosines; see `permutation.py`.

    Args:
        length: Number of positions T, int or int scalar tensor.
        d_model: Width D, even.
        start: First position, int or int scalar tensor.
        dtype: "float32" or "float64", also for computing the angles.
        sinusoids: "paper" or "t2t": which exponent is used.

    Returns:
        `[T, D]` of `dtype`.

    Raises:
        ValueError: `d_model` is odd, `length` is None, or `sinusoids` is
            neither.

    >>> positional_encoding(2, 4).numpy().round(2)
    array([[0.  , 1.  , 0.  , 1.  ],
           [0.84, 0.54, 0.01, 1.  ]], dtype=float32)
    """
    check_even(d_model)
    check_values(TransformerConfig, sinusoids=sinusoids)
    expect(
        length is not None,
        "a length: keras.ops.shape(x)[1] in the call of a layer or model",
        length=length,
    )
    exponents = {
        "paper": np.arange(0, d_model, 2) / d_model,
        "t2t": np.linspace(0, 1, d_model // 2),
    }
    rates = 10000.0 ** -exponents[sinusoids]
    positions = ops.cast(start + ops.arange(length, dtype="int32"), dtype)
    angles = positions[:, None] * rates.astype(dtype)  # [T, D / 2]
    pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)
    return ops.reshape(pairs, (-1, d_model))  # [T, D / 2, 2] -> [T, D]


class _Softmax(KeptWeights):
    """The softmax projection of a layer that has `softmax_matrix`, `[V, D]`."""

    softmax_matrix: typing.Any
    _logits_call: dict[
        str, bool
    ] = {}  # arguments with which `call` is `logits`
    logits_bias: typing.Any = None  # [V]

    def _add_table(self, name: str) -> Tensor:
        """Adds the table `[V, D]` and, with `has_logits_bias`, the bias."""
        table = _add_table(self, name, self.vocab_size, self.d_model)
        if self.has_logits_bias:
            self.logits_bias = self.add_weight(
                name="logits_bias",
                shape=(self.vocab_size,),
                initializer="zeros",
                autocast=False,  # half precision would round it
            )
        return table

    def logits(self, x: Tensor) -> Tensor:
        """Computes the logits x W^T, plus the bias if there is one.

        float `[B, T, D]` -> float32 `[B, T, V]`, or float64 if that is the
        compute dtype. A functional model contains a call of the layer instead:
        Keras would treat the matrix as a constant, which is neither trained nor
        saved.
        """
        if keras.backend.is_keras_tensor(x):
            return self(x, **self._logits_call)
        check_built(self, x)
        return self.projection()(x)

    def projection(
        self,
        ids: Tensor | None = None,
        compiled: bool = False,
        transposed: bool = False,
    ) -> Callable[[Tensor], Tensor]:
        """Returns a function like `logits` that reads the matrix only once.

        With `ids`, int32 `[C]`, it computes only their logits, `[..., C]`. With
        `compiled` it computes (W x^T)^T, for x `[N, D]`: in each call, XLA for
        CPUs would copy W^T in bfloat16, and for one row with a bias. With
        `transposed` the matrix is transposed once, and stored twice.
        """
        matrix, bias = self.softmax_matrix, self.logits_bias
        if ids is not None:
            matrix = ops.take(matrix, ids, axis=0)
            bias = None if bias is None else ops.take(bias, ids, axis=0)
        dtype = self.compute_dtype
        matrix = ops.cast(matrix, dtype)
        if transposed:
            matrix = ops.transpose(matrix)

        def project(x: Tensor) -> Tensor:
            """Computes x W^T in the compute dtype, then adds b in float32."""
            x = ops.cast(x, dtype)
            if transposed:
                logits = ops.matmul(x, matrix)
            elif compiled:
                logits = ops.transpose(ops.matmul(matrix, ops.transpose(x)))
            else:
                logits = ops.matmul(x, ops.transpose(matrix))
            logits = ops.cast(logits, precise_dtype(dtype))
            if bias is None:
                return logits
            return logits + ops.cast(bias, logits.dtype)

        return project


@keras.saving.register_keras_serializable("keras_transformer")
class PositionalEmbedding(_Softmax, TracedLayer):
    """Scaled embeddings plus positions, and the tied softmax projection.

    A call is dropout(E[ids] * sqrt(d_model) + PE), sec. 3.4, 3.5 and 5.4;
    `logits` is x E^T. The Transformer uses one such layer three times, so that
    there is a single matrix E `[V, D]`.

    Differs from the paper, for models from other systems: embeddings may be
    unscaled, positions may start at a number other than 0, and logits may have
    a bias. `InputEmbedding` puts learned positions and a norm between `sum` and
    `finish`.

    An id outside [0, V) has the embedding NaN, on every backend and device,
    with and without XLA. So a wrong vocabulary shows in the loss at once, and a
    negative id does not select a row from the end.

    Args:
        vocab_size: Number of tokens V.
        d_model: Width D, even.
        dropout: Dropout rate of the sum, in [0, 1).
        sinusoids: "paper" or "t2t", the PE that is added; see
            `positional_encoding`. None adds nothing: positions are learned, or
            attention adds them.
        first_position: Number of the first position in PE.
        scale: Whether embeddings are multiplied by sqrt(d_model).
        logits_bias: Whether logits have a bias `[V]`.

    Call arguments:
        ids: Integers of any size `[B, T]`, in [0, V), or the same as float32.
        start: Position of the first column, from 0, int or int scalar tensor.
        reverse: Whether the first argument is float `[B, T, D]`, and the result
            its `logits`.
        training: Whether dropout is active.

    Returns:
        float `[B, T, D]` in the compute dtype.

    Raises:
        ValueError: A size is below 1, `d_model` is odd, `sinusoids` is unknown,
            `first_position` is given without sinusoids, or `ids` are in half
            precision, ragged, or not `[B, T]`.

    >>> layer = PositionalEmbedding(vocab_size=10, d_model=4)
    >>> x = layer(ops.array([[3, 4, 2]]))
    >>> x.shape.as_list(), layer.logits(x).shape.as_list()
    ([1, 3, 4], [1, 3, 10])
    """

    _logits_call = {"reverse": True}

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
        # Autocasting to half precision would change ids that Keras made floats.
        super().__init__(**{**kwargs, "autocast": False})
        check_positive(vocab_size=vocab_size, d_model=d_model)
        check_even(d_model)
        if sinusoids is not None:
            check_values(TransformerConfig, sinusoids=sinusoids)
        expect(
            sinusoids is not None or not first_position,
            "sinusoids with first_position",
            f"{first_position=}, {sinusoids=}",
        )
        self.vocab_size = vocab_size
        self.d_model = d_model
        self.sinusoids = sinusoids
        self.first_position = first_position
        self.scale = d_model**0.5 if scale else 1.0
        self.has_logits_bias = logits_bias
        self.sum_dropout = Dropout(
            dropout, dtype=self.dtype_policy, name="sum_dropout"
        )

    def get_config(self) -> dict[str, typing.Any]:
        return {
            **super().get_config(),
            "vocab_size": self.vocab_size,
            "d_model": self.d_model,
            "dropout": self.sum_dropout.rate,
            "sinusoids": self.sinusoids,
            "first_position": self.first_position,
            "scale": self.scale != 1.0,
            "logits_bias": self.has_logits_bias,
        }

    def build(self, ids_shape: Shape | None = None) -> None:
        self.embeddings = self._add_table("embeddings")
        self.sum_dropout.build((None, None, self.d_model))

    def call(
        self, ids: Tensor, start: int | Tensor = 0, reverse: bool = False
    ) -> Tensor:
        if reverse:
            expect(
                isinstance(start, int) and start == 0,
                "no start with reverse=True",
                f"{start=}",
                where=self.name,
            )
            return self.logits(ids)
        return self.finish(self.sum(ids, start))

    def sum(self, ids: Tensor, start: int | Tensor = 0) -> Tensor:
        """Computes E[ids] * sqrt(d_model) + PE, float32 `[B, T, D]`.

        The dtype is float64 if the weights have that dtype.
        """
        check_built(self, ids)
        ids = whole_ids(ids, "ids")
        check_axes(self, ids, "[B, T]")
        dtype = precise_dtype(self.variable_dtype)
        known = ops.clip(ids, 0, self.vocab_size - 1)
        # Checking in the factor costs no pass over [B, T, D].
        scale, nan = np.array([self.scale, np.nan], dtype)
        scale = ops.where(known == ids, scale, nan)
        scale = scale[..., None]  # [B, T] -> [B, T, 1]
        x = ops.take(self.embeddings, known, axis=0)  # [B, T] -> [B, T, D]
        x = ops.cast(x, dtype) * scale
        if self.sinusoids is not None:
            if self.first_position:  # at 0, no operation is needed
                start = start + self.first_position
            length = ops.shape(ids)[1]
            x += positional_encoding(
                length, self.d_model, start, dtype, self.sinusoids
            )
        return x

    def finish(self, x: Tensor) -> Tensor:
        """Casts the sum, `[B, T, D]`, to the compute dtype; applies dropout."""
        return self.sum_dropout(ops.cast(x, self.compute_dtype))

    @property
    def softmax_matrix(self):
        return self.embeddings

    def compute_output_shape(self, ids_shape: Shape) -> Shape:
        return (*ids_shape, self.d_model)


@keras.saving.register_keras_serializable("keras_transformer")
class SoftmaxProjection(_Softmax):
    """A softmax matrix separate from the embeddings: `logits` is x W^T.

    Differs from the paper, which has one matrix for both (sec. 3.4): models
    from other systems may have two.

    A call returns `logits`, the method that the Transformer uses. With
    `logits_bias`, logits have a bias `[V]`.

    >>> projection = SoftmaxProjection(vocab_size=10, d_model=4)
    >>> projection.build()
    >>> projection.logits(ops.ones((1, 3, 4))).shape.as_list()
    [1, 3, 10]
    """

    def __init__(
        self, vocab_size: int, d_model: int, logits_bias: bool = False, **kwargs
    ):
        super().__init__(**kwargs)
        check_positive(vocab_size=vocab_size, d_model=d_model)
        self.vocab_size = vocab_size
        self.d_model = d_model
        self.has_logits_bias = logits_bias

    def get_config(self) -> dict[str, typing.Any]:
        return {
            **super().get_config(),
            "vocab_size": self.vocab_size,
            "d_model": self.d_model,
            "logits_bias": self.has_logits_bias,
        }

    def build(self, input_shape: Shape | None = None) -> None:
        self.matrix = self._add_table("matrix")

    def call(self, x: Tensor) -> Tensor:
        return self.logits(x)

    @property
    def softmax_matrix(self):
        return self.matrix


def _add_table(
    layer: keras.Layer, name: str, num_rows: int, width: int
) -> Tensor:
    """Adds a table `[num_rows, width]`, normal with deviation width^-0.5."""
    normal = keras.initializers.RandomNormal(stddev=width**-0.5)
    return layer.add_weight(
        name=name,
        shape=(num_rows, width),
        initializer=unless_read(normal),
        autocast=False,  # a lookup reads few rows of a large matrix
    )


@keras.saving.register_keras_serializable("keras_transformer")
class LearnedPositions(TracedLayer):
    """Adds learned positions, rows of a table `[P, D]`: Table 3, row E.

    They replace sinusoids. The Transformer has one table for the source and one
    for the target, like T2T's `pos="emb"` and the convolutional model that
    row E cites (Gehring et al. 2017).

    A token beyond the last row has the embedding NaN, like an id outside the
    vocabulary. Padding may lie beyond the last row. T2T silently adds zeros
    there.

    Differs from the paper, which does not say how the table is initialized:
    like the embeddings, normal with a standard deviation of d_model^-0.5.

    Args:
        max_positions: Number of rows P.
        d_model: Width D.

    Call arguments:
        x: float `[B, T, D]`, scaled embeddings in full precision.
        ids: Integers `[B, T]`; `PAD` needs no row.
        start: Position of the first column, from 0, int or int scalar tensor.

    Returns float `[B, T, D]` in the dtype of `x`.

    Raises ValueError if the length is static and exceeds the number of rows.

    >>> positions = LearnedPositions(max_positions=10, d_model=4)
    >>> positions(ops.zeros((1, 3, 4)), ops.array([[5, 2, 0]])).shape.as_list()
    [1, 3, 4]
    """

    def __init__(self, max_positions: int, d_model: int, **kwargs):
        super().__init__(autocast=False, **kwargs)
        check_positive(max_positions=max_positions, d_model=d_model)
        self.max_positions = max_positions
        self.d_model = d_model

    def get_config(self) -> dict[str, typing.Any]:
        return {
            **super().get_config(),
            "max_positions": self.max_positions,
            "d_model": self.d_model,
        }

    def build(
        self, x_shape: Shape | None = None, ids_shape: Shape | None = None
    ) -> None:
        self.table = _add_table(self, "table", self.max_positions, self.d_model)

    def call(self, x: Tensor, ids: Tensor, start: int | Tensor = 0) -> Tensor:
        expect(
            ids.shape[1] is None or ids.shape[1] <= self.max_positions,
            f"at most max_positions = {self.max_positions} ids",
            ids.shape[1],
            where=self.name,
        )
        places = start + ops.arange(ops.shape(ids)[1], dtype="int32")
        rows = ops.take(
            self.table, ops.minimum(places, self.max_positions - 1), axis=0
        )  # [T, D]
        has_row = (ids == PAD) | (places < self.max_positions)  # [B, T]
        missing = ops.cast(ops.where(has_row, 0.0, np.nan), x.dtype)
        return x + ops.cast(rows, x.dtype) + missing[..., None]

    def compute_output_shape(self, x_shape: Shape, ids_shape: Shape) -> Shape:
        return x_shape


class InputEmbedding:
    """A stack's input: dropout(norm(E[ids] * sqrt(d_model) + positions)).

    In the paper there is no norm, and positions are sinusoids: then this is
    just a `PositionalEmbedding`.

    This is not a layer. A layer's name would become part of the paths of the
    weights, and would change their order, which is that of the optimizer's
    variables in a checkpoint. The Transformer holds its parts as attributes.

    `side` is "source" or "target". `shared` is the embedding of the other side
    if both share one matrix. Call arguments and result are as in
    `PositionalEmbedding`.
    """

    def __init__(
        self,
        config: TransformerConfig,
        side: str,
        dtype: typing.Any,
        shared: PositionalEmbedding | None = None,
    ):
        self.embedding = shared or _make_embedding(config, side, dtype)
        self.positions: typing.Any = None
        self.norm: typing.Any = None
        if config.position_limit is not None:
            self.positions = LearnedPositions(
                max_positions=config.position_limit,
                d_model=config.d_model,
                dtype=dtype,
                name=f"{side}_positions",
            )
        if config.embedding_norm:
            self.norm = LayerNorm(
                epsilon=config.layer_norm_epsilon,
                dtype=dtype,
                name=f"{side}_embedding_norm",
            )

    def __call__(self, ids: Tensor, start: int | Tensor = 0) -> Tensor:
        if self.positions is None and self.norm is None:
            return self.embedding(ids, start=start)  # ids may be symbolic
        x = self.embedding.sum(ids, start)
        if self.positions is not None:
            x = self.positions(x, ids, start=start)
        if self.norm is not None:
            x = self.norm(x)
        return self.embedding.finish(x)


def _make_embedding(config, side, dtype):
    """Makes the embedding of a side. The target's may also make logits."""
    match config.positions:
        case "sinusoidal":
            sinusoids = config.sinusoids
        case "learned" | "relative":  # in a table, or in self-attention
            sinusoids = None
        case other:
            raise unhandled(positions=other)
    is_target = side == "target"
    has_logits = is_target and not config.has_softmax_matrix
    return PositionalEmbedding(
        vocab_size=config.vocab_size if is_target else config.num_source_tokens,
        d_model=config.d_model,
        dropout=config.dropout,
        sinusoids=sinusoids,
        first_position=config.first_position,
        scale=config.scale_embeddings,
        logits_bias=config.logits_bias and has_logits,
        dtype=dtype,
        name="embedding" if is_target else "source_embedding",
    )
