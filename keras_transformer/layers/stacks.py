"""Encoder and decoder: layers and stacks of them (sec. 3.1, Figure 1)."""

import dataclasses
import typing

import keras

from keras_transformer.base.backend import Shape, Tensor
from keras_transformer.base.refusals import expect
from keras_transformer.config import TransformerConfig
from keras_transformer.kernels.base import TracedLayer
from keras_transformer.kernels.layers import LayerNorm
from keras_transformer.layers.attention import KeyValue, MultiHeadAttention
from keras_transformer.layers.cache import Position, Slots
from keras_transformer.layers.chunks import (
    centered_neighborhood,
    last_neighborhood,
)
from keras_transformer.layers.relative_attention import RelativeAttention
from keras_transformer.layers.restricted_attention import RestrictedAttention
from keras_transformer.layers.sublayers import (
    FeedForward,
    Residual,
    activation_name,
)


class Memory(typing.NamedTuple):
    """The encoder output, projected for each decoder layer."""

    key_values: tuple[KeyValue, ...]  # of each layer, [B, H, S, K]
    mask: Tensor  # bool [B, 1, 1, S], True where the source has a token


class DecoderCache(typing.NamedTuple):
    """Keys and values of the earlier target positions; see `Slots`.

    `lineage` is True for the rows of each hypothesis's own past. It is () if
    there is one hypothesis per sentence.
    """

    layers: tuple[KeyValue, ...]  # of each layer, [B, H, C * W, K]
    lineage: Tensor | tuple[()]  # bool [B, W, C * W]


class GrowingCache(DecoderCache):
    """A `DecoderCache` that grows by a slot at each position."""


def split_config(
    config: TransformerConfig | None, kwargs: dict[str, typing.Any]
) -> tuple[TransformerConfig, dict[str, typing.Any]]:
    """Separates the configuration from a layer's arguments of Keras.

    Raises ValueError if both a configuration and fields of one are given.
    """
    names = {field.name for field in dataclasses.fields(TransformerConfig)}
    fields = {name: kwargs.pop(name) for name in names & set(kwargs)}
    if "activation" in fields:
        fields["activation"] = activation_name(fields["activation"])
    if config is None:
        return TransformerConfig(**fields), kwargs
    if fields or not isinstance(config, TransformerConfig):
        raise ValueError(
            "Pass either a TransformerConfig or its fields by name."
            f" Received: config={config!r}, {', '.join(sorted(fields))}"
        )
    return config, kwargs


class _Block(TracedLayer):
    """A layer made from a `TransformerConfig`, or from its fields by name."""

    def __init__(self, config: TransformerConfig | None = None, **kwargs):
        config, kwargs = split_config(config, kwargs)
        super().__init__(**kwargs)
        self.config = config

    def get_config(self):
        return {**super().get_config(), **dataclasses.asdict(self.config)}

    def _self_attention(self, neighborhood_of):
        window = self.config.attention_window
        if window is not None:
            kind = RestrictedAttention
            option = {"neighborhood": neighborhood_of(window)}
        elif self.config.relative_distance is not None:
            kind = RelativeAttention
            option = {"max_relative_position": self.config.relative_distance}
        else:
            kind, option = MultiHeadAttention, {}
        return self._attention("self_attention", kind, **option)

    def _attention(self, name, kind=MultiHeadAttention, **options):
        return kind(
            num_heads=self.config.num_heads,
            d_key=self.config.key_size,
            d_value=self.config.value_size,
            dropout=self.config.attention_dropout,
            use_bias=self.config.attention_bias,
            dtype=self.dtype_policy,
            name=name,
            **options,
        )

    def _feed_forward(self):
        return FeedForward(
            d_ff=self.config.d_ff,
            dropout=self.config.activation_dropout,
            activation=self.config.activation,
            dtype=self.dtype_policy,
            name="feed_forward",
        )

    def _residual(self, name):
        return Residual(
            dropout=self.config.dropout,
            pre_norm=self.config.pre_norm,
            layer_norm_epsilon=self.config.layer_norm_epsilon,
            dtype=self.dtype_policy,
            name=name,
        )

    def _check_width(self, x_shape: Shape) -> None:
        """Raises ValueError unless the last axis has size `d_model`."""
        expect(
            x_shape[-1] == self.config.d_model,
            f"an input whose last axis is d_model = {self.config.d_model}",
            f"shape {tuple(x_shape)}",
            where=self.name,
        )

    def compute_output_shape(
        self, x_shape: Shape, memory_shape: Shape | None = None
    ) -> Shape:
        return x_shape


@keras.saving.register_keras_serializable("keras_transformer")
class EncoderLayer(_Block):
    """Self-attention and feed-forward, each in a `Residual`: Figure 1, left.

    Args:
        config: A `TransformerConfig`, or its fields as keywords.

    Call arguments:
        x: float `[B, S, D]`.
        attention_mask: bool, broadcastable to `[B, H, S, S]`; `True` = may
            attend. None hides nothing.
        training: Whether dropout is active.

    Returns:
        float `[B, S, D]` in the compute dtype.

    Raises:
        ValueError: `x` is not `d_model` wide, or a mask is not bool.

    >>> layer = EncoderLayer(d_model=8, d_ff=16, num_heads=2)
    >>> layer(keras.ops.ones((1, 5, 8))).shape.as_list()
    [1, 5, 8]
    """

    def __init__(
        self, config: TransformerConfig | None = None, **kwargs: typing.Any
    ):
        super().__init__(config, **kwargs)
        self.self_attention = self._self_attention(centered_neighborhood)
        self.self_attention_residual = self._residual("self_attention_residual")
        self.feed_forward = self._feed_forward()
        self.feed_forward_residual = self._residual("feed_forward_residual")

    def build(self, x_shape: Shape) -> None:
        self._check_width(x_shape)
        self.self_attention.build(x_shape, x_shape)
        self.self_attention_residual.build(x_shape)
        self.feed_forward.build(x_shape)
        self.feed_forward_residual.build(x_shape)

    def call(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        x = self.self_attention_residual(
            x, sublayer=lambda y: self.self_attention(y, y, attention_mask)
        )
        return self.feed_forward_residual(x, sublayer=self.feed_forward)


@keras.saving.register_keras_serializable("keras_transformer")
class DecoderLayer(_Block):
    """Self-attention, attention to the source, feed-forward: Figure 1, right.

    Args:
        config: A `TransformerConfig`, or its fields as keywords.

    Call arguments:
        x: float `[B, T, D]`.
        memory: float `[B, S, D']`, the encoder's output, or the `KeyValue` that
            `cross_attention.project` returned for it.
        self_attention_mask: bool, broadcastable to `[B, H, T, T]`, usually
            `causal_mask(T)`; `True` = may attend. None hides nothing.
        cross_attention_mask: bool, broadcastable to `[B, H, T, S]`, usually
            `padding_mask(source_ids)`.
        training: Whether dropout is active.

    Returns:
        float `[B, T, D]` in the compute dtype.

    Raises:
        ValueError: `x` is not `d_model` wide, or a mask is not bool.

    >>> layer = DecoderLayer(d_model=8, d_ff=16, num_heads=2)
    >>> x, memory = keras.ops.ones((1, 5, 8)), keras.ops.ones((1, 7, 8))
    >>> layer(x, memory).shape.as_list()
    [1, 5, 8]
    """

    def __init__(self, config: TransformerConfig | None = None, **kwargs):
        super().__init__(config, **kwargs)
        self.self_attention = self._self_attention(last_neighborhood)
        self.self_attention_residual = self._residual("self_attention_residual")
        self.cross_attention = self._attention("cross_attention")
        self.cross_attention_residual = self._residual(
            "cross_attention_residual"
        )
        self.feed_forward = self._feed_forward()
        self.feed_forward_residual = self._residual("feed_forward_residual")

    def build(self, x_shape: Shape, memory_shape: Shape) -> None:
        self._check_width(x_shape)
        self.self_attention.build(x_shape, x_shape)
        self.self_attention_residual.build(x_shape)
        self.cross_attention.build(x_shape, memory_shape)
        self.cross_attention_residual.build(x_shape)
        self.feed_forward.build(x_shape)
        self.feed_forward_residual.build(x_shape)

    def call(
        self,
        x: Tensor,
        memory: Tensor | KeyValue,
        self_attention_mask: Tensor | None = None,
        cross_attention_mask: Tensor | None = None,
    ) -> Tensor:
        x = self.self_attention_residual(
            x, sublayer=lambda y: self.self_attention(y, y, self_attention_mask)
        )
        x = self.cross_attention_residual(
            x,
            sublayer=lambda y: self.cross_attention(
                y, memory, cross_attention_mask
            ),
        )
        return self.feed_forward_residual(x, sublayer=self.feed_forward)

    def step(
        self,
        x: Tensor,
        memory: KeyValue,
        cache: KeyValue,
        slots: Slots,
        position: Position,
        cross_attention_mask: Tensor,
    ) -> tuple[Tensor, KeyValue]:
        """Computes one position of `call`, with a cache of earlier positions.

        Args:
            x: float `[N, D]`, one row for each hypothesis. The rows of a
                sentence are adjacent.
            memory: The result of `cross_attention.project`, `[B, H, S, K]`, one
                row for each sentence.
            cache: The result of `self_attention.make_cache` or of the previous
                step.
            slots: The `Slots` of the cache.
            position: The result of `Slots.enter` for this position.
            cross_attention_mask: bool `[B, 1, 1, S]`.

        Returns:
            float `[N, D]`, and the cache with this position in it.
        """
        x, cache = self.self_attention_residual.step(
            x,
            sublayer=lambda y: self.self_attention.step(
                y, cache, slots, position
            ),
        )
        x = self.cross_attention_residual(
            x,
            sublayer=lambda y: self.cross_attention.attend_from_rows(
                y, memory, cross_attention_mask, slots.beam_size
            ),
        )
        return self.feed_forward_residual(x, sublayer=self.feed_forward), cache


class _Stack(_Block):
    """A stack of layers, which ends with a norm if it is a pre-norm stack."""

    def _pile(self, kind, number):
        self.blocks = [
            kind(self.config, dtype=self.dtype_policy, name=f"layer_{i}")
            for i in range(number)
        ]
        self.final_norm = None
        if self.config.pre_norm:
            self.final_norm = LayerNorm(
                epsilon=self.config.layer_norm_epsilon,
                dtype=self.dtype_policy,
                name="final_norm",
            )

    def _build_all(self, x_shape, *memory_shape):
        for block in self.blocks:
            block.build(x_shape, *memory_shape)
        if self.final_norm is not None:
            self.final_norm.build(x_shape)

    def _finish(self, x):
        return x if self.final_norm is None else self.final_norm(x)


@keras.saving.register_keras_serializable("keras_transformer")
class Encoder(_Stack):
    """A stack of N encoder layers (sec. 3.1).

    Arguments, results and errors are as in `EncoderLayer`. The input is the
    embedded source.
    """

    def __init__(self, config: TransformerConfig | None = None, **kwargs):
        super().__init__(config, **kwargs)
        self._pile(EncoderLayer, self.config.num_layers)

    def build(self, x_shape: Shape) -> None:
        self._build_all(x_shape)

    def call(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        for block in self.blocks:
            x = block(x, attention_mask)
        return self._finish(x)


@keras.saving.register_keras_serializable("keras_transformer")
class Decoder(_Stack):
    """A stack of N decoder layers (sec. 3.1).

    Arguments, results and errors are as in `DecoderLayer`, except that `memory`
    is the encoder's output, float `[B, S, D']`, or the result of `project`. The
    input is the embedded target.
    """

    def __init__(self, config: TransformerConfig | None = None, **kwargs):
        super().__init__(config, **kwargs)
        self._pile(DecoderLayer, self.config.decoder_depth)

    def build(self, x_shape: Shape, memory_shape: Shape) -> None:
        self._build_all(x_shape, memory_shape)

    def call(
        self,
        x: Tensor,
        memory: Tensor | tuple[KeyValue, ...],
        self_attention_mask: Tensor | None = None,
        cross_attention_mask: Tensor | None = None,
    ) -> Tensor:
        for block, key_value in zip(
            self.blocks, self.project(memory), strict=True
        ):
            x = block(x, key_value, self_attention_mask, cross_attention_mask)
        return self._finish(x)

    def project(self, memory: Tensor) -> tuple[KeyValue, ...]:
        """Projects the encoder's output to keys and values, for each layer.

        Args:
            memory: float `[B, S, D']`. An earlier result is returned unchanged.
        """
        if isinstance(memory, tuple):
            return memory
        return tuple(
            block.cross_attention.project(memory) for block in self.blocks
        )

    def make_cache(
        self,
        batch_size: int | Tensor,
        length: int,
        beam_size: int = 1,
        growing: bool = False,
    ) -> DecoderCache:
        """Makes an empty cache for `step`; see `Transformer.make_cache`."""
        count = None
        if not growing:
            count = min(length, self.config.attention_window or length)
        slots = Slots(count, beam_size, self.config.attention_window)
        kind = GrowingCache if growing else DecoderCache
        return kind(
            layers=tuple(
                block.self_attention.make_cache(batch_size, slots)
                for block in self.blocks
            ),
            lineage=slots.make_lineage(batch_size),
        )

    def step(
        self,
        x: Tensor,
        memory: Memory,
        cache: DecoderCache,
        index: int | Tensor,
    ) -> tuple[Tensor, DecoderCache]:
        """Computes one position of `call`, with a cache of earlier positions.

        Args:
            x: float `[N, D]`.
            memory: A `Memory` of `B` rows; see `DecoderLayer.step`.
            cache: The result of `make_cache` or of the previous step.
            index: This position, int32 scalar.

        Returns:
            float `[N, D]`, and the cache with this position in it.
        """
        slots = self._slots_of(cache)
        position, lineage = slots.enter(cache.lineage, x, index)
        after = []
        for block, key_value, before in zip(
            self.blocks, memory.key_values, cache.layers, strict=True
        ):
            x, key_value = block.step(
                x, key_value, before, slots, position, memory.mask
            )
            after.append(key_value)
        return self._finish(x), type(cache)(tuple(after), lineage)

    def _slots_of(self, cache):
        beam_size = 1
        if not isinstance(cache.lineage, tuple):
            beam_size = cache.lineage.shape[1]
        count = None
        if not isinstance(cache, GrowingCache):
            count = cache.layers[0].keys.shape[2] // beam_size
        return Slots(count, beam_size, self.config.attention_window)
