"""Exports a folder for transformers: Marian, or a multilingual model.

`kt-import` reads such folders, this module writes them. A model with
`language_tokens` is written as the model that it was imported from,
`M2M100ForConditionalGeneration` or `MBartForConditionalGeneration`, with the
original's ids and files, except `tokenizer.json`, which transformers makes from
the others; see `importers.m2m100`. If training has changed the embedding of
BOS, BOS is the last id, and `renormalize_logits` compensates for its
probability.

All other models are written as `MarianMTModel`: the paper's model with biases
in attention and all sines before all cosines. It differs from ours:

- Ids: EOS 0, UNK 1, the pieces, BOS, PAD; with two vocabularies PAD is 2. BOS
  is omitted if it is a copy of PAD, as after an import: then the decoder starts
  with PAD, like the original's.
- LayerNorm's epsilon is 1e-5 there and 1e-6 in models trained here. Values of
  variance 1 change by five in a million.
- Search: transformers divides by length ^ length_penalty, and ends a search
  earlier. Greedy search is identical. The length limit is one number for all
  sources.
"""

import json
import pathlib
import typing

import numpy as np
from absl import logging

from keras_transformer.base.permutation import reorder, to_blocks
from keras_transformer.commands.flags import CommandError
from keras_transformer.config import TransformerConfig
from keras_transformer.importers import huggingface, m2m100, stacks
from keras_transformer.importers.generation import CONFIG, GENERATION
from keras_transformer.importers.imported import LANGUAGE
from keras_transformer.importers.vocabularies import original_model
from keras_transformer.storage import checkpoints
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.text.vocabulary import BOS, EOS, PAD, SPECIAL_IDS, UNK
from keras_transformer.translation.requests import direction_ids
from keras_transformer.translator import Translator
from savedmodel.formats import Export

Json: typing.TypeAlias = dict[str, typing.Any]
Files: typing.TypeAlias = dict[str, bytes | Json]  # bytes, or JSON, by name
Weights: typing.TypeAlias = dict[str, np.ndarray]  # by path or PyTorch's name
ROLES = ("bos_token", "pad_token", "eos_token", "unk_token")  # as in SPECIAL
START = len(SPECIAL_IDS)  # our id of <s> in a multilingual model
# transformers has several names for some activations. The first is written.
ACTIVATIONS = {
    ours: theirs for theirs, ours in reversed(stacks.ACTIVATIONS.items())
}
DTYPES = {"float32": np.float32, "float16": np.float16}
# Classes by family in `LANGUAGE_TOKENS`; transformers lacks SMaLL-100's.
TOKENIZERS = {
    "m2m100": "M2M100Tokenizer",
    "small100": "SMALL100Tokenizer",
    "nllb": "NllbTokenizer",
    "nllb_legacy": "NllbTokenizer",
    "mbart50": "MBart50Tokenizer",
    "mbart": "MBartTokenizer",
}


class Folder(typing.NamedTuple):
    """The parts of a folder that depend on the family of the model."""

    tensors: Weights
    model: Json  # further fields of config.json
    search: Json  # further fields of generation_config.json
    files: Files  # bytes, or JSON, by name


def write(export: Export) -> None:
    """Writes the folder; see `formats`."""
    translator, directory = export.translator, export.directory
    model, tokenizer = translator.model, translator.tokenizer
    if tokenizer.source.has_case_marks or tokenizer.target.has_case_marks:
        raise CommandError(
            "format=huggingface needs case_marks=False: MarianTokenizer cannot"
            " put marks for capital letters into text. Received:"
            " case_marks=True"
        )
    decoding = translator.decoding
    if decoding.length_normalization != "power" and decoding.length_penalty:
        logging.warning(
            "transformers divides scores by length ^ length_penalty, not by"
            " ((5 + length) / 6) ^ length_penalty: beams may differ"
        )
    weights = {
        variable.path.partition("/")[2]: variable.numpy()
        for variable in model.weights
    }
    if model.config.positions == "sinusoidal":
        weights = reorder(weights, to_blocks(model.config.d_model))
    is_multilingual = translator.languages.language_tokens
    make = _make_multilingual if is_multilingual else _make_marian
    folder = make(export, weights)
    path, precision = directory / "model.safetensors", export.options.precision
    write_safetensors(path, folder.tensors, precision)
    files = {
        CONFIG: folder.model | _model_options(model.config),
        GENERATION: _search_options(translator) | folder.search,
        **folder.files,
    }
    for name, content in files.items():
        if not isinstance(content, bytes):
            text = json.dumps(content, ensure_ascii=False, indent=2)
            content = f"{text}\n".encode()
        (directory / name).write_bytes(content)


def _make_marian(export: Export, weights: Weights) -> Folder:
    translator = export.translator
    config, tokenizer = translator.model.config, translator.tokenizer
    shared = not config.has_source_embedding
    order = _order(weights, tokenizer.target, shared)
    source_order = order if shared else _order(None, tokenizer.source, shared)
    pad, eos = order.index(PAD), order.index(EOS)
    start = order.index(BOS) if BOS in order else pad
    tokens = {
        "pad_token_id": pad,
        "eos_token_id": eos,
        "decoder_start_token_id": start,
        "forced_eos_token_id": eos,
    }
    model = {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "static_position_embeddings": True,
        "max_position_embeddings": max(512, translator.max_source_length),
        "share_encoder_decoder_embeddings": shared,
        "vocab_size": len(source_order),
        "decoder_vocab_size": len(order),
        **tokens,
    }
    banned = [[id] for id in sorted({start, pad})]
    return Folder(
        _tensors(config, weights, source_order, order),
        model,
        {"bad_words_ids": banned, **tokens},
        _marian_files(export, source_order, order, shared),
    )


def _marian_files(
    export: Export, source_order: list[int], order: list[int], shared: bool
) -> Files:
    tokenizer = export.translator.tokenizer
    pieces = tokenizer.target.pieces
    files: Files = {
        "source.spm": tokenizer.source.segmenting_bytes,
        "target.spm": tokenizer.target.segmenting_bytes,
        huggingface.VOCABULARY: _ids(tokenizer.source.pieces, source_order),
        huggingface.TOKENIZER_CONFIG: {
            "tokenizer_class": "MarianTokenizer",
            "source_lang": export.description["source_language"],
            "target_lang": export.description["target_language"],
            "model_max_length": export.translator.max_source_length,
            "separate_vocabs": not shared,
            "eos_token": pieces[EOS],
            "unk_token": pieces[UNK],
            "pad_token": pieces[PAD],
        },
    }
    if not shared:
        files[huggingface.TARGET_VOCABULARY] = _ids(pieces, order)
    return files


def _make_multilingual(export: Export, weights: Weights) -> Folder:
    translator = export.translator
    config, tokenizer = translator.model.config, translator.tokenizer.target
    languages, size = translator.languages, tokenizer.vocab_size
    if tokenizer.find(m2m100.SPECIAL[0]) != START:
        raise CommandError(
            "format=huggingface needs with language_tokens the vocabulary of"
            f" an imported model. Received: {START} is not {m2m100.SPECIAL[0]}"
        )
    is_mbart = languages.language_tokens.startswith("mbart")
    # Here <s> follows the four special tokens.
    order = [START, PAD, EOS, UNK, *range(START + 1, size)]
    ids = {f"{role}_id": id for id, role in enumerate(ROLES[:-1])}
    search: Json = {"bad_words_ids": [[ids["pad_token_id"]]]}
    start: int | None = EOS
    if languages.language_tokens == "mbart":  # its decoder starts with this
        [start] = direction_ids(tokenizer, languages.target_language)
    table = weights["embedding/embeddings"]
    if not np.array_equal(table[start], table[BOS]):  # after a training
        start = BOS
        search["bad_words_ids"].append([len(order)])
        search["renormalize_logits"] = True  # among all tokens but this one
        order.append(BOS)
    tensors = _tensors(config, weights, order, order)
    if not is_mbart and np.any(tensors.pop("final_logits_bias")[0, : size - 1]):
        raise CommandError(
            "format=huggingface needs logits_bias of 0:"
            " M2M100ForConditionalGeneration has none. Received: others"
        )
    ids["decoder_start_token_id"] = order.index(start)
    ids["forced_eos_token_id"] = ids["eos_token_id"]
    if translator.direction and translator.direction.output:
        first = tokenizer.find(translator.direction.output)
        ids["forced_bos_token_id"] = order.index(first)
    name = "MBart" if is_mbart else "M2M100"
    model = {
        "architectures": [f"{name}ForConditionalGeneration"],
        "model_type": "mbart" if is_mbart else "m2m_100",
        "max_position_embeddings": config.position_limit
        or translator.max_source_length,
        "vocab_size": len(order),
        **ids,
    }
    files = _multilingual_files(translator, order)
    return Folder(tensors, model, search | ids, files)


def _multilingual_files(translator: Translator, order: list[int]) -> Files:
    """Makes the tokenizer's files for a model with `language_tokens`."""
    tokenizer = translator.tokenizer.target
    family = translator.languages.language_tokens
    added = m2m100.added_tokens(tokenizer)
    end = min(added)
    special: Json = dict(zip(ROLES, m2m100.SPECIAL, strict=True))
    codes = list(filter(LANGUAGE.fullmatch, added.values()))
    special["additional_special_tokens"] = codes
    names: Json = {
        "tokenizer_class": TOKENIZERS[family],
        "model_max_length": translator.max_source_length,
    }
    if family.startswith("nllb"):  # <mask> is before the languages or last
        names["legacy_behaviour"] = family == "nllb_legacy"
        names["added_tokens_decoder"] = {
            order.index(id): {"content": token, "special": True}
            for id, token in added.items()
        }
    files: Files = {
        m2m100.MODEL: original_model(tokenizer, end),
        "special_tokens_map.json": special,
        huggingface.TOKENIZER_CONFIG: special | names,
    }
    if family in ("m2m100", "small100"):
        text = [*m2m100.SPECIAL, *tokenizer.pieces[START + 1 : end]]
        files[huggingface.VOCABULARY] = _ids(text, list(range(len(text))))
    return files


def _model_options(config: TransformerConfig) -> Json:
    """Returns the fields of config.json that all families have."""
    values = {
        "is_encoder_decoder": True,
        "d_model": config.d_model,
        "encoder_layers": config.num_layers,
        "decoder_layers": config.decoder_depth,
        "activation_function": ACTIVATIONS[config.activation],
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "scale_embedding": config.scale_embeddings,
        "tie_word_embeddings": not config.has_softmax_matrix,
    }
    for stack in stacks.SIDES.values():
        values[f"{stack}_ffn_dim"] = config.d_ff
        values[f"{stack}_attention_heads"] = config.num_heads
    return values


def _search_options(translator: Translator) -> Json:
    """Returns the fields of generation_config.json that all families have."""
    decoding = translator.decoding
    return {
        "num_beams": decoding.beam_size,
        "length_penalty": decoding.length_penalty,
        "min_length": decoding.min_length,
        # BOS and an EOS at the limit are included.
        "max_length": translator.max_target_length + 2,
    }


def _order(
    weights: Weights | None, tokenizer: Tokenizer, shared: bool
) -> list[int]:
    """Returns our ids in transformers' order, which the module describes.

    `weights` is None for a source, which has no BOS. `shared` says whether both
    sides have the same ids.
    """
    pieces = list(range(len(SPECIAL_IDS), tokenizer.vocab_size))
    start = [] if weights is None or _is_padding(weights) else [BOS]
    if shared:
        return [EOS, UNK, *pieces, *start, PAD]
    return [EOS, UNK, PAD, *pieces, *start]


def _is_padding(weights: Weights) -> bool:
    """Returns whether BOS is a copy of PAD and is never generated."""
    table = weights["embedding/embeddings"]
    bias = _bias(weights)
    # Lower precision may have rounded EXCLUDED.
    excluded = bias is not None and bias[BOS] <= stacks.EXCLUDED / 10
    return excluded and np.array_equal(table[BOS], table[PAD])


def _bias(weights: Weights) -> np.ndarray | None:
    for owner in ("softmax", "embedding"):
        if f"{owner}/logits_bias" in weights:
            return weights[f"{owner}/logits_bias"]
    return None


def _tensors(
    config: TransformerConfig,
    weights: Weights,
    source_order: list[int],
    order: list[int],
) -> Weights:
    """Returns the tensors by PyTorch's names. Kernels are [out, in]."""
    table = weights["embedding/embeddings"][order]
    bias = _bias(weights)
    bias = np.zeros(len(order)) if bias is None else bias[order]
    tensors = {"final_logits_bias": bias[None]}  # [1, V]
    if not config.has_source_embedding:
        tensors["model.shared.weight"] = table
    else:
        source = weights["source_embedding/embeddings"][source_order]
        tensors["model.encoder.embed_tokens.weight"] = source
        tensors["model.decoder.embed_tokens.weight"] = table
    if config.has_softmax_matrix:
        tensors["lm_head.weight"] = weights["softmax/matrix"][order]
    for path, array in weights.items():
        part, _, rest = path.partition("/")
        if not part.endswith(("coder", "positions", "embedding_norm")):
            continue
        name = stacks.torch_name(path, "model.")
        if rest == "table":
            array = np.pad(array, [(stacks.FIRST_POSITION, 0), (0, 0)])
        elif path.endswith("/kernel"):
            array = array.T
            bias_name = name.replace(".weight", ".bias")
            tensors.setdefault(bias_name, np.zeros(len(array)))
        tensors[name] = array
    return tensors


def write_safetensors(
    path: pathlib.Path, tensors: Weights, precision: str
) -> None:
    """Writes arrays by name to a `.safetensors` file, as a type in `DTYPES`."""
    arrays = {
        name: np.asarray(array, DTYPES[precision], order="C")
        for name, array in tensors.items()
    }
    checkpoints.write_safetensors(path, arrays, {"format": "pt"})


def _ids(pieces: list[str], order: list[int]) -> dict[str, int]:
    """Returns transformers' id of each piece. `order` is as in `_order`."""
    return {pieces[ours]: id for id, ours in enumerate(order)}
