"""Conversion of models to CTranslate2, for the engine and for exports.

    python -m keras_transformer.translation.conversion OPTIONS

makes the export that `exports` looks for. It is a separate process because,
unlike the engine, it needs Keras. OPTIONS are the arguments of `main`, as JSON.
"""

import json
import os
import pathlib
import sys
import typing

import keras
import numpy as np
from keras import ops

from keras_transformer.base.fields import unhandled
from keras_transformer.base.files import new_directory, sums_of, with_checksum
from keras_transformer.base.refusals import expect
from keras_transformer.config import (
    DecodingConfig,
    TransformerConfig,
    find_alignment_layer,
)
from keras_transformer.data.languages import LANGUAGE_TOKENS, Languages
from keras_transformer.layers import (
    DecoderLayer,
    EncoderLayer,
    RelativeAttention,
    positional_encoding,
)
from keras_transformer.model import Transformer, model_to_be_read
from keras_transformer.storage.checkpoints import named_weights
from keras_transformer.storage.workdir import WorkDirectory
from keras_transformer.text.tokenization import Tokenizer, TokenizerPair
from keras_transformer.text.vocabulary import BOS, EOS, SPECIAL_IDS, UNK
from keras_transformer.translation.batched import BatchedSearch
from keras_transformer.translation.ctranslate2 import (
    CTranslate2Model,
    CTranslate2Search,
)
from keras_transformer.translation.inference import Inference
from keras_transformer.translation.requests import Row

Spec: typing.TypeAlias = typing.Any  # a `LayerSpec` of CTranslate2
# `check` scores pairs with so many tokens. Their log-probabilities may differ
# by the tolerance.
LENGTHS, TOLERANCE = (1, 3, 5), 1e-2


def convert(
    model: Transformer,
    tokenizer: Tokenizer | TokenizerPair,
    decoding: DecodingConfig,
    languages: Languages,
    num_positions: int,
    directory: pathlib.Path,
    precision: str = "float32",
) -> None:
    """Writes a model and its vocabularies in CTranslate2's format.

    `num_positions` is the number of positions to store for sinusoids. Other
    positions ignore it.
    """
    config, pieces = model.config, tokenizer.target.pieces
    spec = make_spec(model, num_positions)
    layer = find_alignment_layer(config, decoding)
    spec.decoder.alignment_layer = np.int16(layer - 1)
    # The number of heads to average, from the first; 0 means all of them.
    spec.decoder.alignment_heads = np.int16(decoding.alignment_head)
    spec.register_source_vocabulary(tokenizer.source.pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.bos_token = pieces[BOS]
    spec.config.eos_token = pieces[EOS]
    spec.config.unk_token = pieces[UNK]
    spec.config.decoder_start_token = pieces[BOS]
    spec.config.add_source_bos = False
    tokens = LANGUAGE_TOKENS.get(languages.language_tokens)
    has_end = tokens is not None and "after" in tokens.places
    spec.config.add_source_eos = config.source_eos and not has_end
    spec.config.layer_norm_epsilon = config.layer_norm_epsilon
    spec.validate()
    spec.optimize(quantization=None if precision == "float32" else precision)
    spec.save(str(directory))


def make_spec(model: Transformer, num_positions: int) -> Spec:
    """Makes CTranslate2's `TransformerSpec` with the weights of a model."""
    from ctranslate2.specs import common_spec, transformer_spec

    config = model.config
    # CTranslate2 names them RELU, SWISH, GELU, GELUTanh.
    activations = {kind.name.lower(): kind for kind in common_spec.Activation}
    spec = transformer_spec.TransformerSpec.from_config(
        (config.num_layers, config.decoder_depth),
        config.num_heads,
        pre_norm=config.pre_norm,
        activation=activations[config.activation.replace("_", "")],
        layernorm_embedding=config.embedding_norm,
        with_relative_position=config.positions == "relative",
    )
    (source,), target = spec.encoder.embeddings, spec.decoder.embeddings
    source.weight = model.source_input.embedding.embeddings.numpy()
    target.weight = model.target_input.embedding.embeddings.numpy()
    projection, softmax = spec.decoder.projection, model.softmax
    projection.weight = softmax.softmax_matrix.numpy()
    if softmax.logits_bias is not None:
        projection.bias = softmax.logits_bias.numpy()
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
                pass  # these are weights of each self-attention
            case other:
                raise unhandled(positions=other)
        if config.embedding_norm:
            _fill_norm(stack.layernorm_embedding, inputs.norm)
        for layer, block in zip(stack.layer, ours.blocks, strict=True):
            _fill_layer(layer, block)
        if config.pre_norm:
            _fill_norm(stack.layer_norm, ours.final_norm)
    return spec


def _fill_layer(layer: Spec, block: EncoderLayer | DecoderLayer) -> None:
    """Copies the attentions and the feed-forward network of a layer."""
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


def _fill_linear(spec: Spec, *layers: keras.Layer) -> None:
    """Concatenates kernels [in, out] to a weight [sum of out, in]; also biases.

    CTranslate2 computes all projections of an input at once.
    """
    spec.weight = np.concatenate([each.kernel.numpy().T for each in layers])
    if layers[0].use_bias:
        spec.bias = np.concatenate([each.bias.numpy() for each in layers])


def check(
    model: Transformer,
    tokenizer: Tokenizer | TokenizerPair,
    decoding: DecodingConfig,
    directory: pathlib.Path,
) -> None:
    """Raises ValueError if CTranslate2's scores differ from the model's."""
    rng = np.random.default_rng(1)
    first, config = len(SPECIAL_IDS), model.config
    sizes = config.num_source_tokens, config.vocab_size
    rows = []
    for n in LENGTHS:
        source, target = ([*rng.integers(first, s, n), EOS] for s in sizes)
        rows.append(Row(source, target_ids=target))
    native = Inference([model], decoding, max(LENGTHS) + 1)
    limits = native.limits
    loaded = CTranslate2Model.open(directory, tokenizer, limits, num_threads=1)
    searches = (
        BatchedSearch(native, 64, jit_compile=False, num_threads=1),
        CTranslate2Search(loaded, limits, 64),
    )
    found = (search.score(rows) for search in searches)
    for row, *scores in zip(rows, *found, strict=True):
        ours, its = (of[: len(row.target_ids)] for of in scores)
        is_close = np.allclose(ours, its, TOLERANCE, TOLERANCE)
        expect(is_close, f"the log-probabilities {ours}", its)


def main(
    workdir: str,
    checkpoint: str,
    output: str,
    num_positions: int,
    **alignment: typing.Any,
) -> None:
    """Exports a checkpoint to `output`, which appears when it is complete."""
    run = WorkDirectory(workdir)
    tokenizer = run.load_tokenizer()
    model = model_to_be_read(run.read_section("model", TransformerConfig))
    run.restore_weights(named_weights(model), checkpoint)
    decoding = DecodingConfig(beam_size=1, **alignment)
    languages = run.read_languages()
    # Relative to the work directory, which may be moved.
    relative = os.path.relpath(checkpoint, workdir)
    with new_directory(output) as made:
        convert(model, tokenizer, decoding, languages, num_positions, made)
        check(model, tokenizer, decoding, made)
        description = {"checkpoint": relative, "sha256": sums_of(made)}
        text = json.dumps(with_checksum(description), indent=2)
        (made / "export.json").write_text(text)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
