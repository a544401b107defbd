"""Imports M2M-100, NLLB-200, SMaLL-100 and mBART from Hugging Face.

Files in a directory:

    config.json             the model
    generation_config.json  the search; older models have it in config.json
    model.safetensors, in one file or several, or pytorch_model.bin
    sentencepiece.bpe.model or tokenizer.json: how text is segmented
    vocab.json              subword ids (M2M-100, SMaLL-100); the other models
                            have the order of the SentencePiece model
    special_tokens_map.json, tokenizer_config.json or tokenizer.json
                            language tokens; by default those of transformers'
                            M2M100Tokenizer

All are pre-norm Transformers with biases, epsilon 1e-5 and one embedding
matrix. mBART has learned positions, and normalizes embeddings. The others have
sinusoids from position 2 on, all sines before all cosines. Here the ids are
PAD, BOS, EOS, UNK, then the rest in the original's order. BOS, the decoder's
start token, has a row of its own, as in `marian_huggingface`.
"""

import functools
import pathlib
import re
import typing

import numpy as np

from keras_transformer.base.foreign_files import (
    named_errors,
    read_file,
    read_json_if_any,
)
from keras_transformer.base.permutation import from_blocks, reorder
from keras_transformer.base.refusals import expect
from keras_transformer.config import TransformerConfig
from keras_transformer.data.languages import LANGUAGE_TOKENS
from keras_transformer.importers import (
    generation,
    huggingface,
    stacks,
    tokenizer_json,
    vocabularies,
)
from keras_transformer.importers.imported import LANGUAGE, Imported
from keras_transformer.importers.options import Options
from keras_transformer.importers.tensors import Later, Tensors
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.text.vocabulary import BOS

MODEL = "sentencepiece.bpe.model"
TYPES = ("m2m_100", "mbart")
# The originals' first ids. The ids in the SentencePiece model differ.
START, PAD, EOS, UNK = range(4)
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
OFFSET = 1  # an id minus the index of its piece in the SentencePiece model
# M2M100Tokenizer's languages for each `language_codes`, in order.
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
    "activation_function": tuple(stacks.ACTIVATIONS),
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
    """Returns whether config.json names one of `TYPES`."""
    return huggingface.model_type(directory) in TYPES


def read(directory: pathlib.Path) -> Imported:
    """Reads the model in a directory. See `keras_transformer.importers`."""
    options = huggingface.read_config(directory, KNOWN_VALUES)
    search = generation.search_options(directory, options)
    names = read_json_if_any(directory / huggingface.TOKENIZER_CONFIG)
    start = generation.start_id(search, options)
    tensors = huggingface.read_tensors(directory)
    size = options.need("vocab_size", int)
    huggingface.check_size(tensors, "vocab_size", size)
    side, languages = _read_side(directory, options, start)
    family = _find_family(directory, options, names, languages)
    config = _make_config(options, side)
    first: typing.Any = start
    if "output" in LANGUAGE_TOKENS[family].places:
        first = search.get("forced_bos_token_id", -1)  # none
        search = search.without("forced_bos_token_id")
    target = dict(zip(side.ids, side.table, strict=True)).get(first)
    decoding, notes = generation.read_decoding(search, options)
    licence = LICENCES.get(family.removesuffix("_legacy"))
    return Imported(
        config=config,
        weights=_read_weights(config, tensors, side),
        tokenizer=vocabularies.make_tokenizer(
            side.model, side.table, side.path, controls=(MASK, *languages)
        ),
        decoding=decoding,
        target_language=_code_of(target) if target in languages else "",
        max_length=huggingface.longest_source(options, names, 1024),
        language_tokens=family,
        notes=[*filter(None, [licence]), *notes],
    )


def added_tokens(tokenizer: Tokenizer) -> dict[int, str]:
    """Finds language tokens and the mask by our id, after the text's tokens."""
    entries = enumerate(tokenizer.entries[: tokenizer.vocab_size])
    return {
        id: piece
        for id, (piece, _, kind) in entries
        if kind == "CONTROL" and id > len(SPECIAL)
    }


def _code_of(token: str) -> str:
    """Returns the language code in a language token.

    >>> _code_of("__de__"), _code_of("deu_Latn")
    ('de', 'deu_Latn')
    """
    return re.sub(r"^__(\w*?)__$", r"\1", token)


def _reordered(path: str, weight: np.ndarray, order: np.ndarray) -> np.ndarray:
    return reorder({path: weight}, order)[path]


def _find_family(
    directory: pathlib.Path, options: Options, names: dict, languages: list[str]
) -> str:
    """Finds a model's family, a key of `LANGUAGE_TOKENS`."""
    kind = names.get("tokenizer_class") or options.values.get("tokenizer_class")
    kind = str(kind or "")
    if options.values["model_type"] == "mbart":
        is_later = len(languages) > 25 and "MBart" not in kind
        return "mbart50" if "50" in kind or is_later else "mbart"
    if not languages[0].startswith("__"):
        return "nllb_legacy" if names.get("legacy_behaviour") else "nllb"
    is_small = any(directory.glob("tokenization_small100.py"))
    return "small100" if is_small or "SMALL" in kind.upper() else "m2m100"


def _make_config(
    options: Options, side: vocabularies.Side
) -> TransformerConfig:
    is_mbart = options.values["model_type"] == "mbart"
    positions = {"sinusoids": "t2t", "first_position": stacks.FIRST_POSITION}
    if is_mbart:
        rows = options.need("max_position_embeddings", int)
        positions = {"positions": "learned", "max_positions": rows}
    return stacks.make_config(
        options.path,
        [side, side],
        **huggingface.common_fields(options, "gelu" if is_mbart else "relu"),
        pre_norm=True,
        embedding_norm=is_mbart,
        scale_embeddings=options.get("scale_embedding", not is_mbart),
        share_embeddings="all",
        **positions,
    )


def _read_side(
    directory: pathlib.Path, options: Options, start: int
) -> tuple[vocabularies.Side, list[str]]:
    """Reads the vocabulary and its language tokens."""
    size = options.need("vocab_size", int)
    path = directory / MODEL
    other = directory / tokenizer_json.NAME
    if not path.exists() and other.exists():
        path = other
        model, subwords = tokenizer_json.read_pieces(path)
    elif (directory / huggingface.VOCABULARY).exists():
        model = read_file(path)
        ids = huggingface.read_ids(directory / huggingface.VOCABULARY, size)
        subwords = {id: subword for subword, id in ids.items()}
    else:
        model = read_file(path)
        pieces = vocabularies.model_pieces(model, path)[len(SPECIAL) - OFFSET :]
        subwords = dict(enumerate([*SPECIAL, *pieces]))
    for id, name in enumerate(SPECIAL):
        found = subwords.get(id)
        expect(
            found == name,
            f"{name} with the id {id}",
            repr(found),
            where=directory,
        )
    added = _added_tokens(directory, len(subwords))
    subwords |= added
    expect(
        max(subwords) < size and 0 <= start < size,
        f"ids below vocab_size={size}",
        max(*subwords, start),
        where=directory,
    )
    order = [PAD, start, EOS, UNK, START, *range(len(SPECIAL), size)]
    table = [subwords.get(id) or f"<id {id}>" for id in order]
    table[BOS] = vocabularies.start_name(table)
    languages = [name for name in added.values() if LANGUAGE.fullmatch(name)]
    side = vocabularies.Side(table, order, model, path, excluded=(BOS,))
    return side, languages


def _added_tokens(directory: pathlib.Path, first: int) -> dict[int, str]:
    """Reads language tokens and other added tokens by original id.

    They begin with the id `first` if no file has their ids.
    """
    for name, field in (
        ("tokenizer.json", "added_tokens"),
        (huggingface.TOKENIZER_CONFIG, "added_tokens_decoder"),
    ):
        path = directory / name
        values = read_json_if_any(path, tokenizer_json.MAX_BYTES)
        added = values.get(field, [])
        with named_errors(path, f"{field}: "):
            if isinstance(added, dict):
                added = [{"id": id, **added[id]} for id in added]
            found = {int(t["id"]): str(t["content"]) for t in added}
        if any(map(LANGUAGE.fullmatch, found.values())):
            return {id: s for id, s in found.items() if id >= len(SPECIAL)}
    for name in ("special_tokens_map.json", huggingface.TOKENIZER_CONFIG):
        path = directory / name
        tokens = Options(read_json_if_any(path), path)
        given = tokens.get("additional_special_tokens", [])
        names = list(map(str, given))
        if any(map(LANGUAGE.fullmatch, names)):
            return dict(enumerate([*names, MASK], first))
    if (directory / huggingface.VOCABULARY).exists():
        # `tokens` has the options of tokenizer_config.json.
        tokens.check({"language_codes": [*CODES]})
        codes = CODES[tokens.get("language_codes", "m2m100")]
        return dict(enumerate((f"__{code}__" for code in codes), first))
    raise ValueError(
        f"{directory}: expected the tokens of its languages in tokenizer.json,"
        " special_tokens_map.json or tokenizer_config.json. Received: none"
    )


def _read_weights(
    config: TransformerConfig, tensors: Tensors, side: vocabularies.Side
) -> dict[str, np.ndarray]:
    for stack in stacks.SIDES.values():
        tensors.drop(f"model.{stack}.embed_positions.weights")  # sinusoids
    tables = stacks.read_positions(config, tensors, "model.")
    weights: dict[str, typing.Any] = huggingface.read_weights(
        config, tensors, [side, side]
    )
    tensors.close()
    if config.positions == "sinusoidal":
        order = from_blocks(config.d_model)
        for path, weight in weights.items():
            make = functools.partial(_reordered, path, weight, order)
            # The table of embeddings is a copy already. The other weights are
            # mapped from a file, and are copied one at a time to save memory.
            weights[path] = Later(weight.shape, make)
        embeddings = "embedding/embeddings"
        weights[embeddings] = np.asarray(weights[embeddings])
    return weights | tables
