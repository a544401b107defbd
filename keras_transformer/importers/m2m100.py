"""Multilingual models of Hugging Face: M2M-100, NLLB-200, SMaLL-100, mBART.

Files of a directory:

    config.json             the model
    generation_config.json  the search; older models have it in config.json
    model.safetensors, in one file or several, or pytorch_model.bin
    sentencepiece.bpe.model or tokenizer.json: how text is segmented
    vocab.json              ids of subwords (M2M-100, SMaLL-100); else they
                            stand in the order of the SentencePiece model
    special_tokens_map.json, tokenizer_config.json or tokenizer.json
                            the tokens of the languages; without them, those of
                            transformers' M2M100Tokenizer

All are pre-norm Transformers with biases and epsilon 1e-5, and one matrix of
embeddings. M2M-100 and its kin have sinusoids from position 2 on, all sines
before all cosines; mBART has learned positions, and normalizes embeddings. Ids
are other ones here: PAD, BOS, EOS, UNK, then the rest in the original's order.
BOS, which the decoder starts with, is a row of its own, as in
`marian_huggingface`.
"""

import functools
import pathlib
import re
import typing

import numpy as np

from keras_transformer.config import TransformerConfig
from keras_transformer.data.languages import LANGUAGE_TOKENS
from keras_transformer.importers import tokenizer_json
from keras_transformer.importers.files import named_errors, read_file, read_json
from keras_transformer.importers.generation import (
    CONFIG,
    read_decoding,
    search_options,
    start_id,
)
from keras_transformer.importers.huggingface import (
    ACTIVATIONS,
    EPSILON,
    TOKENIZER_CONFIG,
    VOCABULARY,
    check_sides,
    check_size,
    longest_source,
    read_ids,
    read_tensors,
    read_weights,
    sizes_and_dropouts,
)
from keras_transformer.importers.imported import LANGUAGE, Imported
from keras_transformer.importers.options import Options
from keras_transformer.importers.stacks import make_config
from keras_transformer.importers.tensors import Later, Tensors
from keras_transformer.importers.vocabularies import (
    Side,
    make_tokenizer,
    model_pieces,
    start_name,
)
from keras_transformer.permutation import from_blocks, reorder
from keras_transformer.tokenization import Tokenizer
from keras_transformer.vocabulary import BOS

MODEL = "sentencepiece.bpe.model"
TYPES = ("m2m_100", "mbart")
# The first ids of the originals; the SentencePiece model has others.
START, PAD, EOS, UNK = range(4)
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
OFFSET = 1  # of an id to the place of a piece in the SentencePiece model
FIRST_POSITION = 2
# The languages of M2M100Tokenizer by its `language_codes`, in their order.
CODES = {
    "m2m100": """
        af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff
        fi fr fy ga gd gl gu ha he hi hr ht hu hy id ig ilo is it ja jv ka kk km
        kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps
        pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo
        xh yi yo zh zu
    """.split(),
    "wmt21": "en ha is ja cs ru zh de".split(),
}
MASK = "<mask>"
KNOWN_VALUES = {
    "activation_function": ("relu", "gelu", "swish", "silu", "gelu_new"),
    "add_bias_logits": (False,),
    "add_final_layer_norm": (True,),
    "is_encoder_decoder": (True,),
    "normalize_before": (True,),
    "normalize_embedding": (True,),
    "static_position_embeddings": (False,),
    "tie_word_embeddings": (True,),
}
LICENCES = {
    "nllb": "the weights of NLLB-200 are CC-BY-NC 4.0: no commercial use"
}


def recognizes(directory: pathlib.Path) -> bool:
    """Whether config.json says that it is such a model."""
    path = directory / CONFIG
    return path.is_file() and read_json(path).get("model_type") in TYPES


def read(directory: pathlib.Path) -> Imported:
    """The model in a directory: see `keras_transformer.importers`."""
    options = Options(read_json(directory / CONFIG), directory / CONFIG)
    options.check(KNOWN_VALUES)
    check_sides(options)
    search = search_options(directory, options)
    path = directory / TOKENIZER_CONFIG
    names = read_json(path) if path.exists() else {}
    start = start_id(search, options)
    tensors = read_tensors(directory)
    check_size(tensors, "vocab_size", options.need("vocab_size", int))
    side, languages = _read_side(directory, options, start)
    family = _find_family(directory, options, names, languages)
    config = _make_config(options, side)
    first: typing.Any = start
    if "output" in LANGUAGE_TOKENS[family].places:
        first = search.get("forced_bos_token_id", -1)  # none
        search = search.without("forced_bos_token_id")
    target = dict(zip(side.ids, side.table, strict=True)).get(first)
    decoding, notes = read_decoding(search, options)
    licence = LICENCES.get(family.removesuffix("_legacy"))
    return Imported(
        config=config,
        weights=_read_weights(config, tensors, side),
        tokenizer=make_tokenizer(
            side.model, side.table, side.path, controls=(MASK, *languages)
        ),
        decoding=decoding,
        target_language=_code_of(target) if target in languages else "",
        max_length=longest_source(options, names, 1024),
        language_tokens=family,
        notes=[*filter(None, [licence]), *notes],
    )


def added_tokens(tokenizer: Tokenizer) -> dict[int, str]:
    """Language tokens and a mask by id here, after the text's tokens."""
    entries = enumerate(tokenizer.entries[: tokenizer.vocab_size])
    return {
        id: piece
        for id, (piece, _, kind) in entries
        if kind == "CONTROL" and id > len(SPECIAL)
    }


def _code_of(token: str) -> str:
    """The code of the language of a token.

    >>> _code_of("__de__"), _code_of("deu_Latn")
    ('de', 'deu_Latn')
    """
    return re.sub(r"^__(.*)__$", r"\1", token)


def _reordered(path: str, weight: np.ndarray, order: np.ndarray) -> np.ndarray:
    """A weight whose model dimension has another order."""
    return reorder({path: weight}, order)[path]


def _find_family(
    directory: pathlib.Path, options: Options, names: dict, languages: list[str]
) -> str:
    """Which family of `LANGUAGE_TOKENS` a model is of."""
    kind = names.get("tokenizer_class") or options.values.get("tokenizer_class")
    kind = str(kind or "")
    if options.values["model_type"] == "mbart":
        is_later = len(languages) > 25 and "MBart" not in kind
        return "mbart50" if "50" in kind or is_later else "mbart"
    if not languages[0].startswith("__"):
        return "nllb_legacy" if names.get("legacy_behaviour") else "nllb"
    is_small = any(directory.glob("tokenization_small100.py"))
    return "small100" if is_small or "SMALL" in kind.upper() else "m2m100"


def _make_config(options: Options, side: Side) -> TransformerConfig:
    """The `TransformerConfig`."""
    is_mbart = options.values["model_type"] == "mbart"
    positions = {"sinusoids": "t2t", "first_position": FIRST_POSITION}
    if is_mbart:
        rows = options.need("max_position_embeddings", int)
        positions = {"positions": "learned", "max_positions": rows}
    default = KNOWN_VALUES["activation_function"][is_mbart]
    return make_config(
        options.path,
        [side, side],
        **sizes_and_dropouts(options),
        pre_norm=True,
        activation=ACTIVATIONS[options.get("activation_function", default)],
        attention_bias=True,
        layer_norm_epsilon=EPSILON,
        embedding_norm=is_mbart,
        scale_embeddings=options.get("scale_embedding", not is_mbart),
        share_embeddings="all",
        logits_bias=True,
        **positions,
    )


def _read_side(
    directory: pathlib.Path, options: Options, start: int
) -> tuple[Side, list[str]]:
    """The vocabulary, and the tokens of its languages."""
    size = options.need("vocab_size", int)
    path = directory / MODEL
    other = directory / tokenizer_json.NAME
    if not path.exists() and other.exists():
        path = other
        model, subwords = tokenizer_json.read_pieces(path)
    elif (directory / VOCABULARY).exists():
        model = read_file(path)
        ids = read_ids(directory / VOCABULARY, size)
        subwords = {id: subword for subword, id in ids.items()}
    else:
        model = read_file(path)
        pieces = model_pieces(model, path)[len(SPECIAL) - OFFSET :]
        subwords = dict(enumerate([*SPECIAL, *pieces]))
    for id, name in enumerate(SPECIAL):
        if subwords.get(id) != name:
            raise ValueError(
                f"{directory}: expected {name} with the id {id}. Received:"
                f" {subwords.get(id)!r}"
            )
    added = _added_tokens(directory, len(subwords))
    subwords |= added
    if max(subwords) >= size or not 0 <= start < size:
        raise ValueError(
            f"{directory}: expected ids below vocab_size={size}. Received:"
            f" {max(*subwords, start)}"
        )
    order = [PAD, start, EOS, UNK, START, *range(len(SPECIAL), size)]
    table = [subwords.get(id) or f"<id {id}>" for id in order]
    table[BOS] = start_name(table)
    languages = [name for name in added.values() if LANGUAGE.fullmatch(name)]
    return Side(table, order, model, path, excluded=(BOS,)), languages


def _added_tokens(directory: pathlib.Path, first: int) -> dict[int, str]:
    """The tokens after the text's by id, language tokens first."""
    for name, field in (
        ("tokenizer.json", "added_tokens"),
        (TOKENIZER_CONFIG, "added_tokens_decoder"),
    ):
        path = directory / name
        values = (
            read_json(path, tokenizer_json.MAX_BYTES) if path.exists() else {}
        )
        added = values.get(field, [])
        with named_errors(path, f"{field}: "):
            if isinstance(added, dict):
                added = [{"id": id, **added[id]} for id in added]
            found = {int(t["id"]): str(t["content"]) for t in added}
        if any(map(LANGUAGE.fullmatch, found.values())):
            return {id: s for id, s in found.items() if id >= len(SPECIAL)}
    for name in ("special_tokens_map.json", TOKENIZER_CONFIG):
        path = directory / name
        tokens = read_json(path) if path.exists() else {}
        given = Options(tokens, path).get("additional_special_tokens", [])
        names = list(map(str, given))
        if any(map(LANGUAGE.fullmatch, names)):
            return dict(enumerate([*names, MASK], first))
    if (directory / VOCABULARY).exists():
        path = directory / TOKENIZER_CONFIG
        known = Options(read_json(path) if path.exists() else {}, path)
        known.check({"language_codes": [*CODES]})
        codes = CODES[known.get("language_codes", "m2m100")]
        return dict(enumerate((f"__{code}__" for code in codes), first))
    raise ValueError(
        f"{directory}: expected the tokens of its languages in tokenizer.json,"
        f" special_tokens_map.json or {TOKENIZER_CONFIG}. Received: none"
    )


def _read_weights(
    config: TransformerConfig, tensors: Tensors, side: Side
) -> dict[str, np.ndarray]:
    """The weights by path."""
    tables = {}
    for part, stack in (("source", "encoder"), ("target", "decoder")):
        tensors.drop(f"model.{stack}.embed_positions.weights")  # sinusoids
        limit = config.position_limit
        if limit is not None:
            table = tensors.take(
                f"model.{stack}.embed_positions.weight",
                (limit + FIRST_POSITION, config.d_model),
            )
            tables[f"{part}_positions/table"] = table[FIRST_POSITION:]
    weights: dict[str, typing.Any] = read_weights(config, tensors, [side, side])
    tensors.close()
    if config.positions == "sinusoidal":
        order = from_blocks(config.d_model)
        for path, weight in weights.items():
            make = functools.partial(_reordered, path, weight, order)
            # The table of embeddings is a copy already, the others are parts of
            # a file: one by one they cost no memory.
            weights[path] = Later(weight.shape, make)
        embeddings = "embedding/embeddings"
        weights[embeddings] = np.asarray(weights[embeddings])
    return weights | tables
