"""CTranslate2: weights and vocabulary, for its own search on CPUs and GPUs.

Its decoder differs from ours in a few ways:

- Score: log-probability / length ^ length_penalty, which is ours with
  `length_normalization="power"`, if EOS is returned and so counted
  (`return_end_token`); ours by default is ((5 + length) / 6) ^ length_penalty.
  With `length_penalty=0` all are the bare log-probability. A beam search ends
  when W hypotheses have finished. Greedy search is identical.
- Length: `min_decoding_length` does not count EOS. Its default of 1 removes EOS
  from the first softmax, which changes the score. `max_decoding_length` is
  one number for all sentences of a call, where ours is source tokens +
  `extra_length` for each of them.
- The caller truncates sources; see `reload`. With learned positions a longer
  source, or an output beyond the last position, is an error of CTranslate2.
- It has no restricted attention: its `sliding_window` is the decoder's alone.
- `return_attention` gives the attention of our alignment layer, of its first
  head or the mean of all heads. Row t is of the step that emits token t and
  reads token t - 1: the alignment of a token is in the row after its own, which
  the last token has with `return_end_token`. In a pre-norm model without a
  guided head it is in its own row.
- `precision` is how weights are stored. The type of the computation depends on
  the CPU: `ctranslate2.get_supported_compute_types("cpu")` lists the types that
  it supports, and `Translator.compute_type` names the one that is used.
- The tokens of languages are written by the caller: `export.json` says in
  `language_places` where, and in `language_ids` which. The output's is
  the `target_prefix`, whose probability does not count, either. If one stands
  behind the source, the caller writes EOS, too.
- The shortlist of the translator, if it has one, is `vmap.txt`:
  `translate_batch(..., use_vmap=True)` uses it.
"""

import typing

import keras
import numpy as np
from keras import ops

from keras_transformer.commands.flags import CommandError
from keras_transformer.config import (
    DecodingConfig,
    TransformerConfig,
    find_alignment_layer,
)
from keras_transformer.layers import (
    DecoderLayer,
    EncoderLayer,
    RelativeAttention,
    positional_encoding,
)
from keras_transformer.model import Transformer
from keras_transformer.vocabulary import BOS, EOS, UNK
from savedmodel.formats import Export, save_vocabulary
from savedmodel.search import Directions

Spec: typing.TypeAlias = typing.Any  # a `LayerSpec` of CTranslate2
MAX_INPUT_LENGTH = 1024  # at which CTranslate2 truncates sources by default
# Names in its enumeration of activations.
ACTIVATIONS = {
    "relu": "RELU",
    "swish": "SWISH",
    "gelu": "GELU",
    "gelu_tanh": "GELUTanh",
}


def write(export: Export) -> None:
    """Writes the model, its vocabulary and the tokenizer; see `formats`."""
    translator, directory = export.translator, export.directory
    model = translator.model
    longest = translator.max_source_length + translator.decoding.extra_length
    spec = make_spec(model, max(MAX_INPUT_LENGTH, longest) + 1)
    _set_alignment(spec.decoder, model.config, translator.decoding)
    pieces = translator.tokenizer.target.pieces
    spec.register_source_vocabulary(translator.tokenizer.source.pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.bos_token = pieces[BOS]
    spec.config.eos_token = pieces[EOS]
    spec.config.unk_token = pieces[UNK]
    spec.config.decoder_start_token = pieces[BOS]
    spec.config.add_source_bos = False
    spec.config.add_source_eos = (
        model.config.source_eos and "after" not in Directions(translator).places
    )
    spec.config.layer_norm_epsilon = model.config.layer_norm_epsilon
    spec.validate()
    precision = export.options.precision
    spec.optimize(quantization=None if precision == "float32" else precision)
    spec.save(str(directory))
    save_vocabulary(translator.tokenizer, directory)
    if translator.shortlist is not None:
        path = directory / "vmap.txt"
        translator.shortlist.write(path, translator.tokenizer)


def make_spec(model: Transformer, num_positions: int) -> Spec:
    """The model's weights as CTranslate2's `TransformerSpec`."""
    from ctranslate2.specs import common_spec, transformer_spec

    config = model.config
    spec = transformer_spec.TransformerSpec.from_config(
        (config.num_layers, config.decoder_depth),
        config.num_heads,
        pre_norm=config.pre_norm,
        activation=common_spec.Activation[ACTIVATIONS[config.activation]],
        layernorm_embedding=config.embedding_norm,
        with_relative_position=config.positions == "relative",
    )
    (source,), target = spec.encoder.embeddings, spec.decoder.embeddings
    source.weight = model.source_input.embedding.embeddings.numpy()
    target.weight = model.target_input.embedding.embeddings.numpy()
    _fill_logits(spec.decoder.projection, model)
    for stack, ours, inputs in (
        (spec.encoder, model.encoder, model.source_input),
        (spec.decoder, model.decoder, model.target_input),
    ):
        stack.scale_embeddings = config.scale_embeddings
        match config.positions:
            case "sinusoidal":
                sinusoids = positional_encoding(
                    num_positions,
                    config.d_model,
                    start=config.first_position,
                    sinusoids=config.sinusoids,
                )
                table = ops.convert_to_numpy(sinusoids)
                stack.position_encodings.encodings = table
            case "learned":
                table = inputs.positions.table.numpy()
                stack.position_encodings.encodings = table
            case "relative":
                pass  # weights of each self-attention
            case other:
                raise CommandError(
                    f"format=ctranslate2 has no positions={other}"
                )
        if config.embedding_norm:
            _fill_norm(stack.layernorm_embedding, inputs.norm)
        for layer, block in zip(stack.layer, ours.blocks, strict=True):
            _fill_layer(layer, block)
        if config.pre_norm:
            _fill_norm(stack.layer_norm, ours.final_norm)
    return spec


def _set_alignment(
    spec: Spec, config: TransformerConfig, decoding: DecodingConfig
) -> None:
    """The layer of the attention that is returned, and its first heads."""
    layer = find_alignment_layer(config, decoding)
    spec.alignment_layer = np.int16(layer - 1)
    spec.alignment_heads = np.int16(decoding.alignment_head)  # 0: all of them


def _fill_layer(layer: Spec, block: EncoderLayer | DecoderLayer) -> None:
    """Self-attention, attention to the source (in decoders), feed-forward."""
    attention, spec = block.self_attention, layer.self_attention
    _fill_linear(
        spec.linear[0],
        attention.query_projection,
        attention.key_projection,
        attention.value_projection,
    )
    _fill_linear(spec.linear[1], attention.output_projection)
    if isinstance(attention, RelativeAttention):
        spec.relative_position_keys = attention.relative_keys.numpy()
        spec.relative_position_values = attention.relative_values.numpy()
    _fill_norm(spec.layer_norm, block.self_attention_residual.norm)
    if isinstance(block, DecoderLayer):
        attention, spec = block.cross_attention, layer.attention
        _fill_linear(spec.linear[0], attention.query_projection)
        _fill_linear(
            spec.linear[1], attention.key_projection, attention.value_projection
        )
        _fill_linear(spec.linear[2], attention.output_projection)
        _fill_norm(spec.layer_norm, block.cross_attention_residual.norm)
    _fill_linear(layer.ffn.linear_0, block.feed_forward.inner)
    _fill_linear(layer.ffn.linear_1, block.feed_forward.outer)
    _fill_norm(layer.ffn.layer_norm, block.feed_forward_residual.norm)


def _fill_norm(spec: Spec, norm: keras.Layer) -> None:
    spec.gamma = norm.gamma.numpy()
    spec.beta = norm.beta.numpy()


def _fill_logits(spec: Spec, model: Transformer) -> None:
    softmax = model.softmax
    spec.weight = softmax.softmax_matrix.numpy()
    if softmax.logits_bias is not None:
        spec.bias = softmax.logits_bias.numpy()


def _fill_linear(spec: Spec, *layers: keras.Layer) -> None:
    """Kernels [in, out] -> one weight [sum of out, in]; biases, if any."""
    spec.weight = np.concatenate([each.kernel.numpy().T for each in layers])
    if layers[0].use_bias:
        spec.bias = np.concatenate([each.bias.numpy() for each in layers])
