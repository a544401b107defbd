"""Marian models of Hugging Face, such as the OPUS-MT collection.

Files of a directory:

    config.json             the model
    generation_config.json  the search; older models have it in config.json
    model.safetensors (or its shards), pytorch_model.bin or tf_model.h5
    source.spm, target.spm  how text is segmented
    vocab.json              ids of subwords; target_vocab.json: the target's
    tokenizer_config.json   languages, longest source

The model is `MarianMTModel` of transformers: layers as in the paper,
with biases in attention, epsilon 1e-5, and sinusoids of which all sines come
before all cosines. Ids are other ones here: PAD, BOS, EOS, UNK, then the rest
in the original's order. BOS, which Marian has not, is a row of its own: the
embedding of the original's start token, and a bias that leaves it no
probability, so that all other tokens have the original's. Where `generate`
renormalizes probabilities (`renormalize_logits`), PAD has such a bias, too.
"""

import json
import pathlib
import typing

import numpy as np

from keras_transformer.permutation import from_blocks, reorder
from keras_transformer.tokenization import (
    END_OF_TABLE,
    Tokenizer,
    TokenizerPair,
)
from keras_transformer.vocabulary import BOS, PAD
from trainers.importers.files import read_file, read_json
from trainers.importers.generation import (
    CONFIG,
    banned_ids,
    read_decoding,
    search_options,
    start_id,
)
from trainers.importers.imported import Imported
from trainers.importers.keras_h5 import read_h5
from trainers.importers.options import Options
from trainers.importers.safetensors import read_safetensors, read_shards
from trainers.importers.stacks import (
    EXCLUDED,
    logits_bias_path,
    make_config,
    read_torch_stacks,
)
from trainers.importers.tensors import Tensors
from trainers.importers.torch_pickle import read_torch
from trainers.importers.vocabularies import make_tokenizer, start_name

# TensorFlow's names of a layer's weights -> PyTorch's names.
TF_NAMES = {
    "kernel": "weight",
    "gamma": "weight",
    "embeddings": "weight",
    "beta": "bias",
}
TOKENIZER_CONFIG = "tokenizer_config.json"
VOCABULARY, TARGET_VOCABULARY = "vocab.json", "target_vocab.json"
MODELS = ("source.spm", "target.spm")
INDEX = "model.safetensors.index.json"
# Where embeddings are.
MATRICES = (
    "model.shared.weight",
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
)
EPSILON = 1e-5  # of PyTorch's LayerNorm
ACTIVATIONS = {
    "relu": "relu",
    "swish": "swish",
    "silu": "swish",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
}
# The possible values of fields that change the model; a model without a field
# has the first.
KNOWN_VALUES = {
    "activation_function": ("gelu", "relu", "swish", "silu", "gelu_new"),
    "add_bias_logits": (False,),
    "add_final_layer_norm": (False,),
    "is_encoder_decoder": (True,),
    "model_type": ("marian",),
    "normalize_before": (False,),
    "normalize_embedding": (False,),
    "static_position_embeddings": (True,),
}


def recognizes(directory: pathlib.Path) -> bool:
    """Whether config.json says that it is such a model."""
    path = directory / CONFIG
    return path.is_file() and read_json(path).get("model_type") == "marian"


def read(directory: pathlib.Path) -> Imported:
    """The model in a directory: see `trainers.importers`."""
    options = _read_options(directory / CONFIG)
    search = search_options(directory, options)
    tensors = _read_weights(directory)
    _check_sizes(tensors, options)
    tables = _read_tables(directory, options, search)
    config = _make_config(options, tables)
    weights = _convert(tensors, options, config, tables)
    tensors.close()
    path = directory / TOKENIZER_CONFIG
    languages = read_json(path) if path.exists() else {}
    longest = _longest_source(options, languages)
    decoding, notes = read_decoding(search, options)
    if search.get("renormalize_logits", False):
        _exclude_banned(
            weights[logits_bias_path(config)], tables.target, search, options
        )
    return Imported(
        config=config,
        weights=reorder(weights, from_blocks(config.d_model)),
        tokenizer=_make_tokenizer(directory, tables),
        decoding=decoding,
        source_language=str(languages.get("source_lang") or ""),
        target_language=str(languages.get("target_lang") or ""),
        max_length=longest,
        notes=notes,
    )


# ---- config.json ------------------------------------------------------------


def _read_options(path):
    """config.json, if it is a model that can be expressed here."""
    options = Options(read_json(path), path)
    options.check(KNOWN_VALUES)
    for name in ("attention_heads", "ffn_dim"):
        encoder, decoder = (
            options.need(f"{side}_{name}", int) for side in _SIDES
        )
        if encoder != decoder:
            raise ValueError(
                f"{path}: encoder_{name} and decoder_{name} must be equal."
                f" Received: {encoder} and {decoder}"
            )
    return options


_SIDES = ("encoder", "decoder")


def _make_config(options, tables):
    """The `TransformerConfig`."""
    return make_config(
        options.path,
        vocab_size=len(tables.target.ids),
        source_vocab_size=None if tables.shared else len(tables.source.ids),
        d_model=options.need("d_model", int),
        d_ff=options.need("encoder_ffn_dim", int),
        num_heads=options.need("encoder_attention_heads", int),
        num_layers=options.need("encoder_layers", int),
        num_decoder_layers=options.need("decoder_layers", int),
        dropout=options.get("dropout", 0.1),
        attention_dropout=options.get("attention_dropout", 0.0),
        activation_dropout=options.get("activation_dropout", 0.0),
        activation=ACTIVATIONS[options.get("activation_function", "gelu")],
        attention_bias=True,
        layer_norm_epsilon=EPSILON,
        scale_embeddings=options.get("scale_embedding", False),
        share_embeddings=_sharing(options),
        logits_bias=True,
    )


def _shares_sides(options):
    """Whether both sides have one vocabulary."""
    return options.get("share_encoder_decoder_embeddings", True)


def _sharing(options):
    """Which embeddings are one matrix, as `share_embeddings` has it."""
    shared = _shares_sides(options)
    if options.get("tie_word_embeddings", True):
        return "all" if shared else "target"
    return "inputs" if shared else "none"


def _longest_source(options, tokenizer_config):
    """Maximum number of tokens of a source that both files allow."""
    limits = [options.get("max_position_embeddings", 512)]
    limit = tokenizer_config.get("model_max_length")
    if type(limit) is int and limit >= 2:
        limits.append(limit)
    if min(limits) < 2:
        raise ValueError(
            f"{options.path}: max_position_embeddings must be at least 2."
            f" Received: max_position_embeddings={limits[0]}"
        )
    return min(limits)


# ---- Vocabularies -----------------------------------------------------------


class _Table(typing.NamedTuple):
    """The ids of one side.

    Attributes:
        subwords: That of each id here.
        ids: The id that the original has for each id here.
        has_start: Whether BOS is a row of the original, and nothing else.
    """

    subwords: list[str]
    ids: list[int]
    has_start: bool


class _Tables(typing.NamedTuple):
    """The ids of both sides; `shared`: they are the same."""

    source: _Table
    target: _Table
    shared: bool


def _check_sizes(tensors, options):
    """Refuses ids without an embedding: each of them takes memory."""
    names = [name for name in MATRICES if name in tensors]
    limit = max((tensors.matrix_shape(name)[0] for name in names), default=0)
    for name in ("vocab_size", "decoder_vocab_size"):
        size = options.get(name, 0)
        if size > limit:
            raise ValueError(
                f"{tensors.path}: expected embeddings of {name}={size} tokens."
                f" Received: of at most {limit}"
            )


def _read_tables(directory, options, search):
    """The ids that vocab.json and, if it has one, target_vocab.json give."""
    shared = _shares_sides(options)
    target = directory / TARGET_VOCABULARY
    if not shared and not target.exists():
        raise ValueError(
            f"{directory}: expected {TARGET_VOCABULARY}, since"
            " share_encoder_decoder_embeddings is false. Received: no such file"
        )
    size = options.need("vocab_size", int)
    banned = banned_ids(search)
    pad = options.need("pad_token_id", int)
    start = start_id(search, options)
    path = directory / VOCABULARY
    if shared:
        table = _read_table(path, size, options, start, banned)
        return _Tables(table, table, True)
    # A separate source vocabulary has no id for the start token.
    source = _read_table(path, size, options, pad, [])
    size = options.get("decoder_vocab_size", size)
    own = _read_table(target, size, options, start, banned)
    return _Tables(source, own, False)


def _read_table(path, size, options, start, banned):
    """The `_Table` of a file of subwords and their ids."""
    ids = read_json(path)
    for subword, id in ids.items():
        if type(id) is not int or not 0 <= id < size:
            raise ValueError(
                f"{path}: expected ids below vocab_size={size}. Received:"
                f" {json.dumps({subword: id}, ensure_ascii=False)[:60]}"
            )
    subwords = {id: subword for subword, id in ids.items()}
    if len(subwords) < len(ids):
        raise ValueError(f"{path}: expected an id of its own for each subword")
    special = {
        role: options.need(f"{role}_token_id", int) for role in ("pad", "eos")
    }
    if "<unk>" not in ids:
        raise ValueError(f"{path}: expected an id of <unk>. Received: none")
    special["unk"] = ids["<unk>"]
    if len(set(special.values())) < 3 or not set(special.values()) <= set(
        subwords
    ):
        raise ValueError(
            f"{path}: expected different ids of padding, end and unknown"
            f" tokens that it has. Received: {special}"
        )
    if not 0 <= start < size:
        raise ValueError(
            f"{path.parent}: expected a decoder_start_token_id below"
            f" vocab_size={size}. Received: decoder_start_token_id={start}"
        )
    # Whether nothing but BOS has the id that the decoder starts with.
    has_start = start not in special.values() and [start] in banned
    first = [special["pad"], start, special["eos"], special["unk"]]
    known = set(special.values()) | ({start} if has_start else set())
    order = first + [id for id in range(size) if id not in known]
    names = [subwords.get(id) or f"<id {id}>" for id in order]
    if not has_start:
        names[BOS] = start_name(names)
    return _Table(names, order, has_start)


def _make_tokenizer(directory, tables):
    """The `TokenizerPair` over the tables."""
    sides: list[Tokenizer] = []
    for name, table in zip(MODELS, tables[:2], strict=True):
        path = directory / name
        content = read_file(path)
        sides.append(
            make_tokenizer(content, table.subwords, path, END_OF_TABLE)
        )
    return TokenizerPair(*sides)


# ---- Weights ----------------------------------------------------------------


def _read_weights(directory):
    """The tensors by the names that PyTorch has for them."""
    readers = {
        "model.safetensors": read_safetensors,
        INDEX: read_shards,
        "pytorch_model.bin": _read_bin,
        "tf_model.h5": _read_tf,
    }
    for name, reader in readers.items():
        path = directory / name
        if path.exists():
            return Tensors(reader(path), path)
    raise ValueError(
        f"{directory}: expected one of {', '.join(readers)}."
        " Received: none of them"
    )


def _read_bin(path):
    """The tensors of a PyTorch file."""
    found = read_torch(path)
    if not isinstance(found, dict) or not all(
        isinstance(name, str) and isinstance(array, np.ndarray)
        for name, array in found.items()
    ):
        raise ValueError(f"{path}: expected tensors by name")
    return found


def _read_tf(path):
    """The tensors of a file of TensorFlow, by PyTorch's names and axes."""
    return dict(_as_torch(*item) for item in read_h5(path).items())


def _as_torch(name, array):
    """Name and array of a data set as PyTorch has them."""
    parts = name.removesuffix(":0").split("/")
    start = next(
        (i for i, part in enumerate(parts) if part in ("encoder", "decoder")),
        None,
    )
    if parts[-1] == "final_logits_bias":
        return "final_logits_bias", array
    if start is None:
        return "model.shared.weight", array
    parts = parts[start:]
    if parts[-1] == "kernel":
        array = array.T
    parts[-1] = TF_NAMES.get(parts[-1], parts[-1])
    return ".".join(["model", *parts]), array


def _convert(tensors, options, config, tables):
    """The weights by path, the model dimension in the original's order."""
    weights = _convert_embeddings(tensors, options, config, tables)
    for side in _SIDES:
        name = f"model.{side}.embed_positions.weight"
        if name in tensors:
            _check_positions(tensors, name, config)
    return weights | read_torch_stacks(config, tensors, "model.")


def _convert_embeddings(tensors, options, config, tables):
    """Embeddings, softmax and its bias, rows in the order of our ids."""
    width = config.d_model
    sizes = {
        side: options.get(name, options.need("vocab_size", int))
        for side, name in (
            ("encoder", "vocab_size"),
            (
                "decoder",
                "vocab_size" if tables.shared else "decoder_vocab_size",
            ),
        )
    }
    names = {side: f"model.{side}.embed_tokens.weight" for side in _SIDES}
    groups = [["model.shared.weight", *names.values()]]
    if not tables.shared:
        groups = [[names["encoder"]], [names["decoder"]]]
    if not config.has_softmax_matrix:
        groups[-1].append("lm_head.weight")
    else:
        groups.append(["lm_head.weight"])
    arrays = [
        _take_tied(
            tensors,
            group,
            (
                sizes["encoder" if names["encoder"] in group else "decoder"],
                width,
            ),
        )
        for group in groups
    ]
    # Number of: shared embedding, source embedding, softmax matrix.
    target = arrays[0] if tables.shared else arrays[1]
    weights = {"embedding/embeddings": target[tables.target.ids]}
    if not tables.shared:
        source = arrays[0][tables.source.ids]
        weights["source_embedding/embeddings"] = source
    if config.has_softmax_matrix:
        weights["softmax/matrix"] = arrays[-1][tables.target.ids]
    bias = np.zeros((1, sizes["decoder"]), np.float32)
    if "final_logits_bias" in tensors:
        bias = tensors.take("final_logits_bias", bias.shape)
    bias = bias[0, tables.target.ids]
    if not tables.target.has_start:
        bias[BOS] = EXCLUDED
    weights[logits_bias_path(config)] = bias
    return weights


def _take_tied(tensors, names, shape):
    """The matrix that has some of several names, once or several times.

    Raises:
        ValueError: There is none, or they differ.
    """
    found = [name for name in names if name in tensors]
    first, *others = found or names[:1]
    array = tensors.take(first, shape)
    for other in others:
        if not np.array_equal(tensors.take(other, shape), array):
            raise ValueError(
                f"{tensors.path}: {first} and {other} must be equal, since"
                " config.json says that they are one"
            )
    return array


def _check_positions(tensors, name, config):
    """Takes a table of positions, which must be the sinusoids."""
    length, width = tensors.matrix_shape(name)[0], config.d_model
    table = tensors.take(name, (length, width))
    rates = 10000.0 ** (-np.arange(0, width, 2) / width)
    angles = np.arange(length)[:, None] * rates
    expected = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    if not np.allclose(table, expected, atol=1e-2):  # bfloat16 has 8 bits
        raise ValueError(
            f"{tensors.path}: {name} must be the sinusoids of transformers'"
            " Marian models. Received: other numbers"
        )


def _exclude_banned(bias, table, search, options):
    """Leaves no probability to PAD and to BOS, if they are banned."""
    if [options.need("pad_token_id", int)] in banned_ids(search):
        bias[PAD] = EXCLUDED
    if table.has_start:
        bias[BOS] = EXCLUDED
