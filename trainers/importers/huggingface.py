"""Marian models of Hugging Face, such as the OPUS-MT collection.

What is read of a directory:

    config.json             the model
    generation_config.json  the search; older models have it in config.json
    model.safetensors (or its shards), pytorch_model.bin or tf_model.h5
    source.spm, target.spm  how text is segmented
    vocab.json              ids of subwords; target_vocab.json: the target's
    tokenizer_config.json   languages, longest source

The model is that of `MarianMTModel` of transformers: layers as in the paper,
with biases in attention, epsilon 1e-5, and sinusoids of which all sines come
before all cosines. Ids are other ones here: PAD, BOS, EOS, UNK, then the rest
in the original's order. BOS, which Marian has not, is a row of its own: the
embedding of what its decoder starts with, and a bias that leaves no probability
to it, so that those of all others are the original's. Where `generate`
renormalizes probabilities (`renormalize_logits`), PAD has such a bias, too.
"""

import json
import pathlib
import typing

import numpy as np

from keras_transformer.config import DecodingConfig, TransformerConfig
from keras_transformer.permutation import from_blocks, reorder
from keras_transformer.tokenization import (
    END_OF_TABLE,
    Tokenizer,
    TokenizerPair,
)
from keras_transformer.vocabulary import BOS, PAD
from trainers.importers.imported import Imported
from trainers.importers.keras_h5 import read_h5
from trainers.importers.safetensors import read_safetensors, read_shards
from trainers.importers.tensors import Tensors
from trainers.importers.torch_pickle import read_torch
from trainers.importers.vocabularies import (
    make_tokenizer,
    read_file,
    start_name,
)

# PyTorch's names of a layer's weights, by those of TensorFlow.
TF_NAMES = {
    "kernel": "weight",
    "gamma": "weight",
    "embeddings": "weight",
    "beta": "bias",
}
# Fields of `generate` that change its answers and that we do not have, with
# the values that change nothing.
NO_COUNTERPART = {
    "begin_suppress_tokens": None,
    "constraints": None,
    "diversity_penalty": 0.0,
    "early_stopping": False,
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1.0,
    "exponential_decay_length_penalty": None,
    "force_words_ids": None,
    "forced_bos_token_id": None,
    "guidance_scale": 1.0,
    "max_time": None,
    "num_beam_groups": 1,
    "penalty_alpha": 0.0,
    "repetition_penalty": 1.0,
    "sequence_bias": None,
    "stop_strings": None,
    "suppress_tokens": None,
    "watermarking_config": None,
}
# The same, of those that matter to sampling alone.
NO_SAMPLING = {
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "min_p": 0.0,
    "num_beams": 1,
    "top_h": None,
    "typical_p": 1.0,
}
# Tokens of an output: a limit of this many is as good as one by the source.
SHORT_OUTPUT = 128
CONFIG, GENERATION = "config.json", "generation_config.json"
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
FORCED_EOS = 0  # of a config.json that has none and is read for the search
EPSILON = 1e-5  # of PyTorch's LayerNorm
EXCLUDED = -1e4  # a bias that leaves no probability, in half precision, too
ACTIVATIONS = {
    "relu": "relu",
    "swish": "swish",
    "silu": "swish",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
}
# What config.json may say of the model without effect; any other value would
# make another model.
FIXED = {
    "add_bias_logits": False,
    "add_final_layer_norm": False,
    "is_encoder_decoder": True,
    "model_type": "marian",
    "normalize_before": False,
    "normalize_embedding": False,
    "static_position_embeddings": True,
}
# Where transformers has it from, if a file does not say.
DEFAULTS = {
    "activation_dropout": 0.0,
    "activation_function": "gelu",
    "attention_dropout": 0.0,
    "dropout": 0.1,
    "scale_embedding": False,
    "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True,
}


def recognizes(directory: pathlib.Path) -> bool:
    """Whether config.json says that it is such a model."""
    path = directory / CONFIG
    return path.is_file() and _read_json(path).get("model_type") == "marian"


def read(directory: pathlib.Path) -> Imported:
    """The model in a directory: see `trainers.importers`."""
    options = _read_options(directory / CONFIG)
    search = _search_options(directory, options)
    tensors = _read_weights(directory)
    _check_sizes(tensors, options)
    tables = _read_tables(directory, options, search)
    config = _make_config(options, tables)
    weights = _convert(tensors, options, config, tables)
    tensors.close()
    languages = _read_json(directory / TOKENIZER_CONFIG, missing=True)
    longest = _longest_source(options, languages)
    decoding, notes = _read_decoding(search, options)
    if search.get("renormalize_logits", bool, False):
        _exclude_banned(weights, tables.target, search, options)
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


class _Options:
    """The fields of config.json, each checked where it is read."""

    def __init__(self, values: dict, path: pathlib.Path):
        self.values = values
        self.path = path

    def get(self, name: str, kind: type, default: typing.Any = None):
        """A field of a type; of null and what is missing, the default.

        Raises:
            ValueError: It is of another type, or is missing without a default.
        """
        value = self.values.get(name)
        value = default if value is None else value
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise ValueError(
                f"{self.path}: {name} must be {kind.__name__}."
                f" Received: {name}={json.dumps(value)[:60]}"
            )
        return value

    def size(self, name: str) -> int:
        """A field that is a positive number."""
        value = self.get(name, int)
        if value < 1:
            raise ValueError(
                f"{self.path}: {name} must be at least 1."
                f" Received: {name}={value}"
            )
        return value

    def default(self, name: str):
        """A field of which transformers has a default."""
        return self.get(name, type(DEFAULTS[name]), DEFAULTS[name])


def _read_options(path):
    """config.json, if it is a model that can be expressed here."""
    options = _Options(_read_json(path), path)
    for name, value in FIXED.items():
        if options.values.get(name, value) != value:
            raise ValueError(
                f"{path}: expected {name}={json.dumps(value)}."
                f" Received: {name}={json.dumps(options.values[name])}"
            )
    for name in ("attention_heads", "ffn_dim"):
        sides = [options.size(f"{side}_{name}") for side in _SIDES]
        if sides[0] != sides[1]:
            raise ValueError(
                f"{path}: encoder_{name} and decoder_{name} must be equal."
                f" Received: {sides[0]} and {sides[1]}"
            )
    return options


_SIDES = ("encoder", "decoder")


def _make_config(options, tables):
    """The `TransformerConfig`."""
    activation = options.default("activation_function")
    if activation not in ACTIVATIONS:
        raise ValueError(
            f"{options.path}: activation_function must be one of"
            f" {', '.join(ACTIVATIONS)}."
            f" Received: activation_function={activation!r}"
        )
    try:
        return TransformerConfig(
            vocab_size=len(tables.target.ids),
            source_vocab_size=None if tables.shared else len(tables.source.ids),
            d_model=options.size("d_model"),
            d_ff=options.size("encoder_ffn_dim"),
            num_heads=options.size("encoder_attention_heads"),
            num_layers=options.size("encoder_layers"),
            num_decoder_layers=options.size("decoder_layers"),
            dropout=options.default("dropout"),
            attention_dropout=options.default("attention_dropout"),
            activation_dropout=options.default("activation_dropout"),
            activation=ACTIVATIONS[activation],
            attention_bias=True,
            layer_norm_epsilon=EPSILON,
            scale_embeddings=options.default("scale_embedding"),
            share_embeddings=_sharing(options),
            logits_bias=True,
        )
    except ValueError as error:
        raise ValueError(f"{options.path}: {error}") from None


def _sharing(options):
    """Which embeddings are one matrix, as `share_embeddings` says it."""
    shared = options.default("share_encoder_decoder_embeddings")
    if options.default("tie_word_embeddings"):
        return "all" if shared else "target"
    return "inputs" if shared else "none"


def _longest_source(options, tokenizer_config):
    """The most tokens of a source: what both files allow."""
    limits = [options.get("max_position_embeddings", int, 512)]
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
    rows = [rows for name in names for rows in tensors.shape(name)[:1]]
    most = max(rows, default=0)
    for name in ("vocab_size", "decoder_vocab_size"):
        size = options.get(name, int, 0)
        if size > most:
            raise ValueError(
                f"{tensors.path}: expected embeddings of {name}={size} tokens."
                f" Received: of at most {most}"
            )


def _read_tables(directory, options, search):
    """The ids that vocab.json and, if it has one, target_vocab.json give."""
    shared = options.default("share_encoder_decoder_embeddings")
    target = directory / TARGET_VOCABULARY
    if not shared and not target.exists():
        raise ValueError(
            f"{directory}: expected {TARGET_VOCABULARY}, since"
            " share_encoder_decoder_embeddings is false. Received: no such file"
        )
    size = options.size("vocab_size")
    banned = _banned(search)
    pad = options.get("pad_token_id", int)
    start = _start(search, options)
    path = directory / VOCABULARY
    if shared:
        table = _read_table(path, size, options, start, banned)
        return _Tables(table, table, True)
    # A source of its own has no id for what the decoder starts with.
    source = _read_table(path, size, options, pad, [])
    size = options.get("decoder_vocab_size", int, size)
    own = _read_table(target, size, options, start, banned)
    return _Tables(source, own, False)


def _read_table(path, size, options, start, banned):
    """The `_Table` of a file of subwords and their ids."""
    ids = _read_json(path)
    for subword, id in ids.items():
        if type(id) is not int or not 0 <= id < size:
            raise ValueError(
                f"{path}: expected ids below vocab_size={size}. Received:"
                f" {json.dumps({subword: id}, ensure_ascii=False)[:60]}"
            )
    subwords = {id: subword for subword, id in ids.items()}
    if len(subwords) < len(ids):
        raise ValueError(f"{path}: expected an id of its own for each subword")
    special = {}
    for role in ("pad", "eos"):
        special[role] = options.get(f"{role}_token_id", int)
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
        is_source = name == MODELS[0]
        sides.append(
            make_tokenizer(
                content, table.subwords, path, is_source, END_OF_TABLE
            )
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
        if path.is_file():
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
    for side, depth in (
        ("encoder", config.num_layers),
        ("decoder", config.decoder_depth),
    ):
        _check_positions(
            tensors, f"model.{side}.embed_positions.weight", config
        )
        for i in range(depth):
            layer = _convert_layer(tensors, f"model.{side}.layers.{i}", config)
            for path, array in layer.items():
                weights[f"{side}/layer_{i}/{path}"] = array
    return weights


def _convert_embeddings(tensors, options, config, tables):
    """Embeddings, softmax and its bias, rows in the order of our ids."""
    width = config.d_model
    sizes = {
        side: options.get(name, int, options.size("vocab_size"))
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
    # What there is of: embedding, source's own, softmax's own.
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
    owner = "softmax" if config.has_softmax_matrix else "embedding"
    weights[f"{owner}/logits_bias"] = bias
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


def _convert_layer(tensors, name, config):
    """The weights of one layer by path."""
    width, inner = config.d_model, config.d_ff
    weights = {}

    def linear(path, name, size_in, size_out):
        kernel = tensors.take(f"{name}.weight", (size_out, size_in))
        weights[f"{path}/kernel"] = np.ascontiguousarray(kernel.T)
        weights[f"{path}/bias"] = tensors.take(f"{name}.bias", (size_out,))

    def norm(path, name):
        weights[f"{path}/norm/gamma"] = tensors.take(f"{name}.weight", (width,))
        weights[f"{path}/norm/beta"] = tensors.take(f"{name}.bias", (width,))

    attentions = {"self_attention": "self_attn"}
    if ".decoder." in name:
        attentions["cross_attention"] = "encoder_attn"
    for ours, theirs in attentions.items():
        for part, projection in (
            ("query", "q_proj"),
            ("key", "k_proj"),
            ("value", "v_proj"),
            ("output", "out_proj"),
        ):
            linear(
                f"{ours}/{part}", f"{name}.{theirs}.{projection}", width, width
            )
        norm(f"{ours}_residual", f"{name}.{theirs}_layer_norm")
    linear("feed_forward/inner", f"{name}.fc1", width, inner)
    linear("feed_forward/outer", f"{name}.fc2", inner, width)
    norm("feed_forward_residual", f"{name}.final_layer_norm")
    return weights


def _check_positions(tensors, name, config):
    """Takes a table of positions, if it is that of the sinusoids."""
    if name not in tensors:
        return
    length, width = (*tensors.shape(name), 0)[0], config.d_model
    table = tensors.take(name, (length, width))
    rates = 10000.0 ** (-np.arange(0, width, 2) / width)
    angles = np.arange(length)[:, None] * rates
    expected = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    if not np.allclose(table, expected, atol=1e-2):  # bfloat16 has 8 bits
        raise ValueError(
            f"{tensors.path}: {name} must be the sinusoids of transformers'"
            " Marian models. Received: other numbers"
        )


# ---- Search -----------------------------------------------------------------


def _search_options(directory, options):
    """generation_config.json or, if there is none, config.json."""
    path = directory / GENERATION
    return _Options(_read_json(path), path) if path.exists() else options


def _start(search, options):
    """The id of what the decoder starts with."""
    start = options.get(
        "decoder_start_token_id", int, options.get("pad_token_id", int)
    )
    if search is options:
        return start
    start = search.get("bos_token_id", int, start)
    return search.get("decoder_start_token_id", int, start)


def _banned(search):
    """`bad_words_ids`: sequences of ids that are not written."""
    banned = search.values.get("bad_words_ids") or []
    if not isinstance(banned, list) or not all(
        isinstance(words, list) and all(type(id) is int for id in words)
        for words in banned
    ):
        raise ValueError(
            f"{search.path}: bad_words_ids must be a list of lists of ids."
            f" Received: bad_words_ids={json.dumps(banned)[:60]}"
        )
    return banned


def _exclude_banned(weights, table, search, options):
    """Leaves no probability to PAD and to BOS, if they are banned."""
    (path,) = (path for path in weights if path.endswith("/logits_bias"))
    banned = _banned(search)
    if [options.values["pad_token_id"]] in banned:
        weights[path][PAD] = EXCLUDED
    if table.has_start:
        weights[path][BOS] = EXCLUDED


def _forced_end(search, options):
    """What transformers writes at the limit of an output; None: nothing."""
    default = FORCED_EOS if search is options else None
    return search.values.get("forced_eos_token_id", default)


def _longest_output(search, options):
    """The most tokens of an output, EOS included.

    One more of transformers' limit is what the decoder starts with; another is
    the EOS at the limit, if there is one.
    """
    forced = _forced_end(search, options)
    name, more = "max_length", 1 if forced is None else 2
    if search.values.get("max_new_tokens") is not None:
        name, more = "max_new_tokens", more - 1
    limit = search.get(name, int, 20) - more
    if limit < 1:
        raise ValueError(
            f"{search.path}: {name} must be at least {1 + more}."
            f" Received: {name}={limit + more}"
        )
    return limit


def _shortest_output(search):
    """The fewest tokens of an output, EOS included."""
    if search.values.get("min_new_tokens") is not None:
        return search.get("min_new_tokens", int) + 1
    return search.get("min_length", int, 0)


def _read_decoding(search, options):
    """The `DecodingConfig` of `generate`, and what of it is not there."""
    sampling = search.get("do_sample", bool, False)
    limit = _longest_output(search, options)
    extra = limit if limit <= SHORT_OUTPUT else DecodingConfig.extra_length
    notes = []
    if extra < limit:
        notes.append(
            f"an output ends at {extra} tokens more than its source has, where"
            f" transformers goes on to {limit}: see --extra_length"
        )
    try:
        decoding = DecodingConfig(
            beam_size=search.get("num_beams", int, 1),
            length_penalty=search.get("length_penalty", float, 1.0),
            length_normalization="power",
            stopping="transformers",
            extra_length=extra,
            max_output_length=limit,
            min_length=_shortest_output(search),
            no_repeat_ngram=search.get("no_repeat_ngram_size", int, 0),
            sampling=sampling,
            **(_sampling(search) if sampling else {}),
        )
    except ValueError as error:
        raise ValueError(f"{search.path}: {error}") from None
    return decoding, [*notes, *_differences(search, options, decoding)]


def _differences(search, options, decoding):
    """Fields of `generate` that a search here does not follow, a line each."""
    neutral = NO_COUNTERPART | (NO_SAMPLING if decoding.sampling else {})
    notes = []
    for name, value in neutral.items():
        found = search.values.get(name)
        if found not in (None, [], value):
            notes.append(
                f"{name}={json.dumps(found)[:60]} has no counterpart here"
            )
    pad, eos = (options.values[f"{role}_token_id"] for role in ("pad", "eos"))
    banned = _banned(search)
    if any(words not in ([pad], [_start(search, options)]) for words in banned):
        notes.append("of bad_words_ids, only padding is banned here")
    if [pad] not in banned:
        notes.append("bad_words_ids has no padding, which is banned here")
    ends = search.values.get("eos_token_id")
    if ends not in (None, eos, [eos]):
        notes.append(
            f"eos_token_id={json.dumps(ends)[:60]}: here an output ends with"
            f" {eos}, as {CONFIG} says"
        )
    forced = _forced_end(search, options)
    if forced not in (eos, [eos]):
        notes.append(
            f"forced_eos_token_id={json.dumps(forced)[:60]}: here the score of"
            f" an output at its limit is as if {eos} were added"
        )
    if search.get("renormalize_logits", bool, False) and (
        decoding.min_length > 1 or decoding.no_repeat_ngram
    ):
        notes.append(
            "renormalize_logits: here the probability of tokens that are"
            " forbidden by min_length or no_repeat_ngram_size is not given to"
            " others"
        )
    return [f"{search.path.name}: {note}" for note in notes]


def _sampling(search):
    """How transformers samples: its defaults are not ours."""
    return {
        "temperature": search.get("temperature", float, 1.0),
        "top_k": search.get("top_k", int, 50),
        "top_p": search.get("top_p", float, 1.0),
    }


# ---- Files ------------------------------------------------------------------


def _read_json(path, missing=False):
    """The object in a JSON file; an empty one if it may be missing and is.

    Raises:
        ValueError: It is missing, or no such file.
    """
    if missing and not path.exists():
        return {}
    content = read_file(path)
    try:
        values = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path}: expected a JSON object")
    return values
