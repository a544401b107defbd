"""The encoder-decoder model of section 3.

There is one forward path: `call` is `decode(target_ids, encode(source_ids))`,
and `decode_step` runs the same layers with a cache, one position at a time.
"""

import dataclasses
import typing

import keras
from keras import ops

from keras_transformer import layers
from keras_transformer.base.backend import Shape, Tensor
from keras_transformer.config import TransformerConfig
from keras_transformer.kernels.layers import weights_to_be_read
from keras_transformer.layers.cache import reorder
from keras_transformer.layers.masking import causal_mask, padding_mask
from keras_transformer.layers.stacks import (
    Decoder,
    DecoderCache,
    Encoder,
    Memory,
    split_config,
)
from keras_transformer.training.fit import TokenExactTraining, check_inputs


class AttentionMaps(typing.NamedTuple):
    """Attention weights of every layer L and head H, before dropout."""

    encoder: Tensor  # float [B, L, H, S, S], from source to source
    decoder: Tensor  # float [B, L, H, T, T], from target to target
    cross: Tensor  # float [B, L, H, T, S], from target to source


@keras.saving.register_keras_serializable("keras_transformer")
class Transformer(TokenExactTraining):
    """The Transformer: Figure 1, sec. 3.

    One embedding matrix serves source, target and softmax (sec. 3.4). All
    weights exist as soon as the model is made.

    Differs from the paper: with `source_vocab_size` the source has a vocabulary
    and an embedding matrix of its own, for languages that share no subwords.
    Models from other systems may have more separate matrices
    (`share_embeddings`), a bias for the logits (`logits_bias`) or a norm after
    the embeddings (`embedding_norm`).

    Args:
        config: A `TransformerConfig`, or its fields as keywords.

    Call arguments:
        inputs: A dictionary of `source_ids`, int32 `[B, S]`, whose rows end
            with EOS, and `target_ids`, int32 `[B, T]`, whose rows start with
            BOS. Both are padded with `PAD`.
        training: Whether dropout is active.

    Returns:
        Logits, float32 `[B, T, V]` (float64 if that is the dtype). The logits
        at position t score the token that follows `target_ids[:, t]`. An id
        outside [0, V), or a token beyond `max_positions` learned positions,
        makes all logits of its sentence NaN.

    Raises:
        ValueError: Ids are not integers, or longer than `max_positions`.

    >>> model = Transformer(
    ...     vocab_size=11, d_model=8, d_ff=16, num_heads=2, num_layers=1)
    >>> source_ids, target_ids = ops.ones((2, 5), "int32"), ops.ones(
    ...     (2, 3), "int32")
    >>> logits = model({"source_ids": source_ids, "target_ids": target_ids})
    >>> logits.shape.as_list()
    [2, 3, 11]
    """

    def __init__(self, config: TransformerConfig | None = None, **kwargs):
        config, kwargs = split_config(config, kwargs)
        # Autocasting to half precision would change ids that Keras made floats.
        super().__init__(**{**kwargs, "autocast": False})
        self.config = config
        target = layers.InputEmbedding(config, "target", self.dtype_policy)
        shared = None if config.has_source_embedding else target.embedding
        source = layers.InputEmbedding(
            config, "source", self.dtype_policy, shared
        )
        self.source_input, self.target_input = source, target
        # Keras finds layers in attributes, whose order is also that of the
        # optimizer's variables in checkpoints and of layers in .keras files.
        self.embedding = target.embedding
        self.source_embedding = source.embedding
        self.softmax = self._softmax()
        parts = source.norm, target.norm, source.positions, target.positions
        self.norms_and_positions = [part for part in parts if part is not None]
        self.encoder = Encoder(config, dtype=self.dtype_policy, name="encoder")
        self.decoder = Decoder(config, dtype=self.dtype_policy, name="decoder")
        self.build()

    def _softmax(self):
        """Makes the layer that computes logits, or returns `embedding`."""
        if not self.config.has_softmax_matrix:
            return self.embedding
        return layers.SoftmaxProjection(
            vocab_size=self.config.vocab_size,
            d_model=self.config.d_model,
            logits_bias=self.config.logits_bias,
            dtype=self.dtype_policy,
            name="softmax",
        )

    def build(self, input_shape: Shape | None = None) -> None:
        if self.built:
            return
        stream = (None, None, self.config.d_model)
        for table in (self.embedding, self.source_embedding, self.softmax):
            if not table.built:  # they may be the same layer
                table.build()
        for part in self.norms_and_positions:
            part.build(stream)
        self.encoder.build(stream)
        self.decoder.build(stream, stream)

    def call(
        self, inputs: dict[str, Tensor], training: bool | None = None
    ) -> Tensor:
        check_inputs(inputs)
        return self.decode(
            inputs["target_ids"], self.encode(inputs["source_ids"])
        )

    def encode(self, source_ids: Tensor) -> Memory:
        """Encodes a source: int32 `[B, S]` -> `Memory`."""
        mask = padding_mask(source_ids, hide_eos=not self.config.source_eos)
        states = self.encoder(self.source_input(source_ids), mask)
        return Memory(self.decoder.project(states), mask)

    def decode(self, target_ids: Tensor, memory: Memory) -> Tensor:
        """Scores a target: int32 `[B, T]` -> logits, float32 `[B, T, V]`."""
        return self.softmax.logits(self.decoder_states(target_ids, memory))

    def decoder_states(self, target_ids: Tensor, memory: Memory) -> Tensor:
        """Computes the decoder's output before the softmax (sec. 3.4).

        Args:
            target_ids: int32 `[B, T]`.
            memory: The result of `encode`.

        Returns:
            float `[B, T, D]` in the compute dtype.
        """
        # Attention with a window is causal without a mask.
        mask = None
        if self.config.attention_window is None:
            mask = causal_mask(ops.shape(target_ids)[1])
        return self.decoder(
            self.target_input(target_ids),
            memory.key_values,
            self_attention_mask=mask,
            cross_attention_mask=memory.mask,
        )

    def attention_maps(self, inputs: dict[str, Tensor]) -> AttentionMaps:
        """Computes the attention weights (eq. 1) of every layer and head.

        Args:
            inputs: As in `call`.

        Returns:
            The `AttentionMaps`; each row of weights sums to 1. With
            `attention_window`, rows of padding that see no token sum to 0.
        """
        with layers.recorded_weights() as weights:
            self(inputs, training=False)

        def stacked(
            blocks: list[keras.Layer], name: str
        ) -> Tensor:  # L times [B, H, T, S] -> [B, L, H, T, S]
            maps = [weights[getattr(block, name)] for block in blocks]
            return ops.stack(maps, axis=1)

        return AttentionMaps(
            encoder=stacked(self.encoder.blocks, "self_attention"),
            decoder=stacked(self.decoder.blocks, "self_attention"),
            cross=stacked(self.decoder.blocks, "cross_attention"),
        )

    def make_cache(
        self,
        batch_size: int | Tensor,
        length: int,
        beam_size: int = 1,
        growing: bool = False,
    ) -> DecoderCache:
        """Makes an empty cache for `decode_step`.

        Args:
            batch_size: Number of sentences B, int or int scalar tensor.
            length: Number of positions T, int.
            beam_size: Hypotheses per sentence, W. They have adjacent rows.
            growing: Whether the cache grows with the positions, so that early
                steps are cheap. In a graph, `batch_size` must then be a tensor.
                XLA and TFLite do not support it.

        Returns:
            A `DecoderCache`, or a `GrowingCache`.
        """
        return self.decoder.make_cache(batch_size, length, beam_size, growing)

    @staticmethod
    def reorder_cache(cache: DecoderCache, parents: Tensor) -> DecoderCache:
        """Reorders a cache after a search has selected hypotheses.

        Args:
            cache: The result of `decode_step`.
            parents: int32 `[B, W]`, in [0, W): the row that each one continues.
        """
        return cache._replace(lineage=reorder(cache.lineage, parents))

    def decode_step(
        self,
        ids: Tensor,
        memory: Memory,
        cache: DecoderCache,
        index: int | Tensor,
    ) -> tuple[Tensor, DecoderCache]:
        """Scores the next token: one position of `decode`, with a cache.

        Args:
            ids: int32 `[N]`, the token at position `index`; BOS at 0. The W
                hypotheses of a sentence have adjacent rows.
            memory: The result of `encode` for B sentences.
            cache: The result of `make_cache` or of the previous step.
            index: Position, int32 scalar.

        Returns:
            Logits, float32 `[N, V]`, and the cache for the next step.
        """
        x, cache = self.step_states(ids, memory, cache, index)
        return self.softmax.logits(x), cache

    def step_states(
        self,
        ids: Tensor,
        memory: Memory,
        cache: DecoderCache,
        index: int | Tensor,
    ) -> tuple[Tensor, DecoderCache]:
        """Runs `decode_step` without the softmax projection.

        Args:
            ids, memory, cache, index: As in `decode_step`.

        Returns:
            float `[N, D]` in the compute dtype, and the cache.
        """
        x = self.target_input(ids[:, None], start=index)  # [N] -> [N, 1, D]
        x = ops.reshape(x, (-1, self.config.d_model))  # [N, 1, D] -> [N, D]
        return self.decoder.step(x, memory, cache, index)

    def get_config(self):
        return {**super().get_config(), **dataclasses.asdict(self.config)}


def model_to_be_read(
    config: TransformerConfig, dtype: str = "float32"
) -> Transformer:
    """Makes a model with zeros as weights, for weights read from a file."""
    with weights_to_be_read():
        return Transformer(config, dtype=dtype)
