"""Imports Marian models from Hugging Face, such as the OPUS-MT collection.

Files in a directory:

    config.json             the model
    generation_config.json  the search; older models have it in config.json
    model.safetensors or pytorch_model.bin, or their parts and index
    source.spm, target.spm  how text is segmented
    vocab.json              subword ids; target_vocab.json: the target's
    tokenizer_config.json   languages, maximum source length

The model is transformers' `MarianMTModel`: layers as in the paper, with biases
in attention, epsilon 1e-5, and sinusoids with all sines before all cosines.
Here the ids are PAD, BOS, EOS, UNK, then the rest in the original's order.
Marian has no BOS. Here BOS has the embedding of the original's start token, and
a logits bias that gives it no probability, so that the probabilities of all
other tokens are the original's. PAD has such a bias, too, if `generate`
renormalizes probabilities (`renormalize_logits`).
"""

import pathlib

import numpy as np

from keras_transformer.base.foreign_files import read_file, read_json_if_any
from keras_transformer.base.refusals import expect
from keras_transformer.config import TransformerConfig
from keras_transformer.importers import (
    generation,
    huggingface,
    stacks,
    vocabularies,
)
from keras_transformer.importers.imported import Imported
from keras_transformer.importers.options import Options
from keras_transformer.importers.tensors import Tensors
from keras_transformer.text.tokenization import END_OF_TABLE, TokenizerPair
from keras_transformer.text.vocabulary import BOS, PAD

# The supported values of fields that change the model. The first is the
# default.
KNOWN_VALUES = {
    "activation_function": ("gelu", *stacks.ACTIVATIONS),
    "add_bias_logits": (False,),
    "add_final_layer_norm": (False,),
    "is_encoder_decoder": (True,),
    "model_type": ("marian",),
    "normalize_before": (False,),
    "normalize_embedding": (False,),
    "static_position_embeddings": (True,),
}


def recognizes(directory: pathlib.Path) -> bool:
    """Returns whether config.json describes a Marian model."""
    return huggingface.model_type(directory) == "marian"


def read(directory: pathlib.Path) -> Imported:
    """Reads the model in a directory. See `keras_transformer.importers`."""
    options = huggingface.read_config(directory, KNOWN_VALUES)
    search = generation.search_options(directory, options)
    tensors = huggingface.read_tensors(directory)
    sides = [
        _read_side(directory, side, options, search, tensors)
        for side in stacks.SIDES
    ]
    config = _make_config(options, sides)
    weights = huggingface.read_weights(config, tensors, sides)
    for stack in stacks.SIDES.values():
        name = f"model.{stack}.embed_positions.weight"
        if name in tensors:
            _check_positions(tensors, name, config)
    weights = stacks.finish(config, weights, tensors)
    languages = read_json_if_any(directory / huggingface.TOKENIZER_CONFIG)
    longest = huggingface.longest_source(options, languages, 512)
    decoding, notes = generation.read_decoding(search, options)
    make = vocabularies.make_tokenizer
    source, target = (
        make(side.model, side.table, side.path, END_OF_TABLE) for side in sides
    )
    return Imported(
        config=config,
        weights=weights,
        tokenizer=TokenizerPair(source, target),
        decoding=decoding,
        source_language=str(languages.get("source_lang") or ""),
        target_language=str(languages.get("target_lang") or ""),
        max_length=longest,
        notes=notes,
    )


def _make_config(
    options: Options, sides: list[vocabularies.Side]
) -> TransformerConfig:
    shared = _shares_sides(options)
    return stacks.make_config(
        options.path,
        sides,
        source_vocab_size=None if shared else len(sides[0].ids),
        **huggingface.common_fields(options, "gelu"),
        scale_embeddings=options.get("scale_embedding", False),
        share_embeddings=stacks.sharing(
            shared, options.get("tie_word_embeddings", True)
        ),
    )


def _shares_sides(options: Options) -> bool:
    return options.get("share_encoder_decoder_embeddings", True)


def _read_side(
    directory: pathlib.Path,
    side: str,
    options: Options,
    search: Options,
    tensors: Tensors,
) -> vocabularies.Side:
    """Reads the vocabulary of a side, "source" or "target"."""
    pad, eos = (
        options.need(f"{name}_token_id", int) for name in ("pad", "eos")
    )
    start, banned = (
        generation.start_id(search, options),
        generation.banned_ids(search),
    )
    path, field = directory / huggingface.VOCABULARY, "vocab_size"
    if not _shares_sides(options):
        if side == "source":  # which has no id for the start token
            start, banned = pad, []
        else:
            path = directory / huggingface.TARGET_VOCABULARY
            field = "decoder_vocab_size"
    size = options.get(field, options.need("vocab_size", int))
    huggingface.check_size(tensors, field, size)
    ids = huggingface.read_ids(path, size)
    subwords = {id: subword for subword, id in ids.items()}
    special = {pad, eos, ids.get("<unk>")}
    expect(
        len(special) == 3 and special <= set(subwords),
        "distinct ids of padding, end and unknown tokens that it has",
        f"{pad}, {eos}, {ids.get('<unk>')}",
        where=path,
    )
    expect(
        0 <= start < size,
        f"a decoder_start_token_id below vocab_size={size}",
        where=directory,
        decoder_start_token_id=start,
    )
    # Whether the decoder's start token is used for nothing else.
    has_start = start not in special and [start] in banned
    known = special | ({start} if has_start else set())
    order = [pad, start, eos, ids["<unk>"]]
    order += [id for id in range(size) if id not in known]
    table = [subwords.get(id) or f"<id {id}>" for id in order]
    if not has_start:
        table[BOS] = vocabularies.start_name(table)
    renormalizes = search.get("renormalize_logits", False)
    excluded = []
    if renormalizes and [pad] in banned:
        excluded.append(PAD)
    if renormalizes or not has_start:
        excluded.append(BOS)
    model = directory / f"{side}.spm"
    return vocabularies.Side(
        table, order, read_file(model), model, tuple(excluded)
    )


def _check_positions(
    tensors: Tensors, name: str, config: TransformerConfig
) -> None:
    """Takes a table of positions. Raises ValueError unless it is sinusoidal."""
    length, width = tensors.matrix_shape(name)[0], config.d_model
    table = tensors.take(name, (length, width))
    rates = 10000.0 ** (-np.arange(0, width, 2) / width)
    angles = np.arange(length)[:, None] * rates
    expected = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    expect(
        np.allclose(table, expected, atol=1e-2),  # bfloat16 has 8 bits
        f"{name} with the sinusoids of transformers' Marian models",
        "other numbers",
        where=tensors.path,
    )
