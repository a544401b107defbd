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
- The caller truncates sources; see `reload.py`. With learned positions a longer
  source, or an output beyond the last position, is an error of CTranslate2.
- It has no restricted attention: its `sliding_window` is the decoder's alone.
- `precision` is how weights are stored. The type of the computation depends on
  the CPU: `ctranslate2.get_supported_compute_types("cpu")` lists the types that
  it supports, and `Translator.compute_type` names the one that is used.
"""

import numpy as np
from keras import ops

from keras_transformer.commands.flags import CommandError
from keras_transformer.layers import RelativeAttention, positional_encoding
from keras_transformer.vocabulary import BOS, EOS, UNK
from savedmodel.formats import save_vocabulary

MAX_INPUT_LENGTH = 1024  # at which CTranslate2 truncates sources by default
# Names in its enumeration of activations.
ACTIVATIONS = {
    "relu": "RELU",
    "swish": "SWISH",
    "gelu": "GELU",
    "gelu_tanh": "GELUTanh",
}


def write(translator, directory, options, description, examples):
    """Writes the model, its vocabulary, the tokenizer: `formats.Exporter`.

    Raises:
        CommandError: CTranslate2 knows no model of this shape.
    """
    model = translator.model
    _check_head_sizes(model.config)
    _check_attention(model.config)
    longest = translator.max_source_length + translator.decoding.extra_length
    spec = make_spec(model, max(MAX_INPUT_LENGTH, longest) + 1)
    pieces = translator.tokenizer.target.pieces
    spec.register_source_vocabulary(translator.tokenizer.source.pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.bos_token = pieces[BOS]
    spec.config.eos_token = pieces[EOS]
    spec.config.unk_token = pieces[UNK]
    spec.config.decoder_start_token = pieces[BOS]
    spec.config.add_source_bos = False
    spec.config.add_source_eos = model.config.source_eos
    spec.config.layer_norm_epsilon = model.config.layer_norm_epsilon
    spec.validate()
    spec.optimize(
        quantization=None
        if options.precision == "float32"
        else options.precision
    )
    spec.save(str(directory))
    save_vocabulary(translator.tokenizer, directory)


def make_spec(model, num_positions):
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
    source.weight = _array(model.source_embedding.embeddings)
    target.weight = _array(model.embedding.embeddings)
    for stack in (spec.encoder, spec.decoder):
        stack.scale_embeddings = config.scale_embeddings
    match config.positions:
        case "sinusoidal":
            positions = ops.convert_to_numpy(
                positional_encoding(
                    num_positions,
                    config.d_model,
                    start=config.first_position,
                    sinusoids=config.sinusoids,
                )
            )
            spec.encoder.position_encodings.encodings = positions
            spec.decoder.position_encodings.encodings = positions
        case "learned":
            for stack, learned in (
                (spec.encoder, model.source_positions),
                (spec.decoder, model.target_positions),
            ):
                stack.position_encodings.encodings = _array(learned.table)
        case "relative":
            pass  # weights of each self-attention
        case other:
            raise CommandError(f"format=ctranslate2 has no positions={other}")
    if config.embedding_norm:
        _fill_norm(spec.encoder.layernorm_embedding, model.source_norm)
        _fill_norm(spec.decoder.layernorm_embedding, model.target_norm)
    _fill_logits(spec.decoder.projection, model)

    for layer, block in zip(
        spec.encoder.layer, model.encoder.blocks, strict=True
    ):
        _fill_encoder_layer(layer, block)
    for layer, block in zip(
        spec.decoder.layer, model.decoder.blocks, strict=True
    ):
        _fill_encoder_layer(layer, block)
        _fill_cross_attention(layer.attention, block)
    if config.pre_norm:
        _fill_norm(spec.encoder.layer_norm, model.encoder.final_norm)
        _fill_norm(spec.decoder.layer_norm, model.decoder.final_norm)
    return spec


def _fill_encoder_layer(layer, block):
    """Self-attention and feed-forward, which decoder layers have, too."""
    attention = block.self_attention
    _fill_linear(
        layer.self_attention.linear[0],
        attention.query_projection,
        attention.key_projection,
        attention.value_projection,
    )
    _fill_linear(layer.self_attention.linear[1], attention.output_projection)
    if isinstance(attention, RelativeAttention):
        layer.self_attention.relative_position_keys = _array(
            attention.relative_keys
        )
        layer.self_attention.relative_position_values = _array(
            attention.relative_values
        )
    _fill_norm(
        layer.self_attention.layer_norm, block.self_attention_residual.norm
    )
    feed_forward = block.feed_forward
    _fill_linear(layer.ffn.linear_0, feed_forward.inner)
    _fill_linear(layer.ffn.linear_1, feed_forward.outer)
    _fill_norm(layer.ffn.layer_norm, block.feed_forward_residual.norm)


def _fill_cross_attention(layer, block):
    """Attention to the source: queries apart from keys and values."""
    attention = block.cross_attention
    _fill_linear(layer.linear[0], attention.query_projection)
    _fill_linear(
        layer.linear[1], attention.key_projection, attention.value_projection
    )
    _fill_linear(layer.linear[2], attention.output_projection)
    _fill_norm(layer.layer_norm, block.cross_attention_residual.norm)


def _fill_norm(spec, norm):
    spec.gamma = _array(norm.gamma)
    spec.beta = _array(norm.beta)


def _fill_logits(spec, model):
    """The projection to logits: matrix and bias of the softmax."""
    softmax = model.softmax
    is_embedding = softmax is model.embedding
    spec.weight = _array(softmax.embeddings if is_embedding else softmax.matrix)
    if softmax.logits_bias is not None:
        spec.bias = _array(softmax.logits_bias)


def _fill_linear(spec, *layers):
    """Kernels [in, out] -> one weight [sum of out, in]; biases, if any."""
    spec.weight = np.concatenate([_array(each.kernel).T for each in layers])
    if layers[0].use_bias:
        spec.bias = np.concatenate([_array(each.bias) for each in layers])


def _array(variable):
    return variable.numpy()


def _check_attention(config):
    if config.attention_window is not None:
        raise CommandError(
            "format=ctranslate2 has no restricted self-attention. Received: a"
            f" model with attention_window={config.attention_window}"
        )


def _check_head_sizes(config):
    if not (
        config.key_size == config.value_size
        and config.key_size * config.num_heads == config.d_model
    ):
        raise CommandError(
            "format=ctranslate2 needs d_key and d_value of d_model / num_heads."
            f" Received: d_key={config.key_size}, d_value={config.value_size},"
            f" d_model={config.d_model}, num_heads={config.num_heads}"
        )
