"""A folder that transformers loads: Marian, or a multilingual model.

`kt-import` reads such folders, this module writes them. A model
with `language_tokens` becomes what it was, `M2M100ForConditionalGeneration` or
`MBartForConditionalGeneration`, with the original's ids and files, but for
`tokenizer.json`, which transformers makes of them; see `importers.m2m100`. If
BOS has an embedding of its own, after a training, it is the last id, and
`renormalize_logits` makes up for its probability.

All others become `MarianMTModel`, which is the paper's with biases in attention
and its sines before its cosines. The differences:

- Ids: EOS 0, UNK 1, the pieces, BOS, PAD; with two vocabularies PAD is 2. BOS
  is omitted if it is a copy of PAD, as after an import: then the decoder starts
  with PAD, like the original's.
- LayerNorm's epsilon is 1e-5 there and 1e-6 in models trained here. Values of
  variance 1 change by five in a million.
- Search: transformers divides by length ^ length_penalty, and ends a search
  earlier; greedy search is identical. Its limit is one number, for all sources.
"""

import json
import pathlib
import typing

import numpy as np
from absl import logging

from keras_transformer import checkpoints
from keras_transformer.commands.flags import CommandError
from keras_transformer.config import TransformerConfig
from keras_transformer.importers.generation import CONFIG, GENERATION
from keras_transformer.importers.huggingface import (
    TARGET_VOCABULARY,
    TOKENIZER_CONFIG,
    VOCABULARY,
)
from keras_transformer.importers.imported import LANGUAGE
from keras_transformer.importers.m2m100 import (
    FIRST_POSITION,
    MODEL,
    SPECIAL,
    added_tokens,
)
from keras_transformer.importers.stacks import torch_name
from keras_transformer.importers.vocabularies import original_model
from keras_transformer.permutation import reorder, to_blocks
from keras_transformer.tokenization import Tokenizer
from keras_transformer.translation.requests import direction_ids
from keras_transformer.translator import Translator
from keras_transformer.vocabulary import BOS, EOS, PAD, SPECIAL_IDS, UNK
from savedmodel.formats import Export

ROLES = ("bos_token", "pad_token", "eos_token", "unk_token")  # of SPECIAL
START = len(SPECIAL_IDS)  # our id of <s> in a multilingual model
EXCLUDED = -1e3  # a bias that excludes a token: see `importers`
ACTIVATIONS = {
    "relu": "relu",
    "swish": "swish",
    "gelu": "gelu",
    "gelu_tanh": "gelu_new",
}
DTYPES = {"float32": np.float32, "float16": np.float16}
# By family of `LANGUAGE_TOKENS`; transformers has none for SMaLL-100.
TOKENIZERS = {
    "m2m100": "M2M100Tokenizer",
    "small100": "SMALL100Tokenizer",
    "nllb": "NllbTokenizer",
    "nllb_legacy": "NllbTokenizer",
    "mbart50": "MBart50Tokenizer",
    "mbart": "MBartTokenizer",
}


def write(export: Export) -> None:
    """Writes the folder; see `formats`."""
    translator = export.translator
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
    if translator.languages.language_tokens:
        _write_multilingual(export, weights)
    else:
        _write_marian(export, weights)


def _write_marian(export: Export, weights: dict[str, np.ndarray]) -> None:
    """Writes the folder of a `MarianMTModel`."""
    translator, directory = export.translator, export.directory
    model, tokenizer = translator.model, translator.tokenizer
    shared = not model.config.has_source_embedding
    order = _order(weights, tokenizer.target, shared)
    source_order = order if shared else _order(None, tokenizer.source, shared)
    tensors = _tensors(model.config, weights, source_order, order)
    write_safetensors(
        directory / "model.safetensors", tensors, export.options.precision
    )
    for side, name in (("source", "source.spm"), ("target", "target.spm")):
        content = getattr(tokenizer, side).segmenting_bytes
        (directory / name).write_bytes(content)
    pieces = tokenizer.target.pieces
    _write_ids(directory / VOCABULARY, tokenizer.source.pieces, source_order)
    if not shared:
        _write_ids(directory / TARGET_VOCABULARY, pieces, order)
    ids = {special: order.index(special) for special in (PAD, EOS)}
    start = order.index(BOS) if BOS in order else ids[PAD]
    tokens = {
        "pad_token_id": ids[PAD],
        "eos_token_id": ids[EOS],
        "decoder_start_token_id": start,
        "forced_eos_token_id": ids[EOS],
    }
    sizes = {"vocab_size": len(source_order), "decoder_vocab_size": len(order)}
    others = {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "static_position_embeddings": True,
        "max_position_embeddings": max(512, translator.max_source_length),
        "share_encoder_decoder_embeddings": shared,
    }
    banned = [[id] for id in sorted({start, ids[PAD]})]
    _write_options(
        translator,
        directory,
        {**others, **sizes, **tokens},
        {"bad_words_ids": banned, **tokens},
    )
    _write_json(
        directory / TOKENIZER_CONFIG,
        {
            "tokenizer_class": "MarianTokenizer",
            "source_lang": export.description["source_language"],
            "target_lang": export.description["target_language"],
            "model_max_length": translator.max_source_length,
            "separate_vocabs": not shared,
            "eos_token": pieces[EOS],
            "unk_token": pieces[UNK],
            "pad_token": pieces[PAD],
        },
    )


def _write_multilingual(export: Export, weights: dict[str, np.ndarray]) -> None:
    """Writes the folder of a model with `language_tokens`."""
    translator, directory = export.translator, export.directory
    config, tokenizer = translator.model.config, translator.tokenizer.target
    languages, size = translator.languages, tokenizer.vocab_size
    if tokenizer.find(SPECIAL[0]) != START:
        raise CommandError(
            "format=huggingface needs with language_tokens the vocabulary of"
            f" an imported model. Received: {SPECIAL[0]} is not id {START}"
        )
    family = languages.language_tokens
    is_mbart = family.startswith("mbart")
    # <s> is the first here after the four special tokens.
    order = [START, PAD, EOS, UNK, *range(START + 1, size)]
    tokens = dict(zip(ROLES, SPECIAL, strict=True))
    ids = {f"{role}_id": id for id, role in enumerate(ROLES[:-1])}
    search: dict[str, typing.Any] = {"bad_words_ids": [[ids["pad_token_id"]]]}
    start: int | None = EOS
    if family == "mbart":  # its decoder starts with the language
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
    write_safetensors(
        directory / "model.safetensors", tensors, export.options.precision
    )
    ids["decoder_start_token_id"] = order.index(start)
    ids["forced_eos_token_id"] = ids["eos_token_id"]
    if translator.direction and translator.direction.output:
        first = tokenizer.find(translator.direction.output)
        ids["forced_bos_token_id"] = order.index(first)
    limit = config.position_limit or translator.max_source_length
    model = "MBart" if is_mbart else "M2M100"
    values = {
        "architectures": [f"{model}ForConditionalGeneration"],
        "model_type": "mbart" if is_mbart else "m2m_100",
        "max_position_embeddings": limit,
        "vocab_size": len(order),
    }
    _write_options(translator, directory, {**values, **ids}, {**search, **ids})
    added = added_tokens(tokenizer)
    end = min(added)
    if family in ("m2m100", "small100"):
        text = [*SPECIAL, *tokenizer.pieces[START + 1 : end]]
        _write_ids(directory / VOCABULARY, text, list(range(len(text))))
    (directory / MODEL).write_bytes(original_model(tokenizer, end))
    codes = list(filter(LANGUAGE.fullmatch, added.values()))
    special = {**tokens, "additional_special_tokens": codes}
    _write_json(directory / "special_tokens_map.json", special)
    names: dict[str, typing.Any] = {
        "tokenizer_class": TOKENIZERS[family],
        "model_max_length": translator.max_source_length,
    }
    if family.startswith("nllb"):  # <mask> is before the languages or last
        names["legacy_behaviour"] = family == "nllb_legacy"
        names["added_tokens_decoder"] = {
            order.index(id): {"content": token, "special": True}
            for id, token in added.items()
        }
    _write_json(directory / TOKENIZER_CONFIG, {**special, **names})


def _write_options(
    translator: Translator,
    directory: pathlib.Path,
    of_model: dict[str, typing.Any],
    of_search: dict[str, typing.Any],
) -> None:
    """Writes the files of the model and of the search, with further fields."""
    config, decoding = translator.model.config, translator.decoding
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
    for side in ("encoder", "decoder"):
        values[f"{side}_ffn_dim"] = config.d_ff
        values[f"{side}_attention_heads"] = config.num_heads
    _write_json(directory / CONFIG, {**of_model, **values})
    search = {
        "num_beams": decoding.beam_size,
        "length_penalty": decoding.length_penalty,
        "min_length": decoding.min_length,
        # With BOS, and an EOS at the limit.
        "max_length": translator.max_target_length + 2,
    }
    _write_json(directory / GENERATION, {**search, **of_search})


def _order(
    weights: dict[str, np.ndarray] | None, tokenizer: Tokenizer, shared: bool
) -> list[int]:
    """Our id of each id there: see above.

    A source, which has no BOS, has None for weights; `shared` says whether both
    sides have the same ids.
    """
    pieces = list(range(len(SPECIAL_IDS), tokenizer.vocab_size))
    start = [] if weights is None or _is_padding(weights) else [BOS]
    if shared:
        return [EOS, UNK, *pieces, *start, PAD]
    return [EOS, UNK, PAD, *pieces, *start]


def _is_padding(weights: dict[str, np.ndarray]) -> bool:
    """Whether BOS is a copy of PAD, and never the next token."""
    table = weights["embedding/embeddings"]
    bias = _bias(weights)
    excluded = bias is not None and bias[BOS] <= EXCLUDED
    return excluded and np.array_equal(table[BOS], table[PAD])


def _bias(weights: dict[str, np.ndarray]) -> np.ndarray | None:
    """The bias of the logits, if any."""
    for owner in ("softmax", "embedding"):
        if f"{owner}/logits_bias" in weights:
            return weights[f"{owner}/logits_bias"]
    return None


def _tensors(
    config: TransformerConfig,
    weights: dict[str, np.ndarray],
    source_order: list[int],
    order: list[int],
) -> dict[str, np.ndarray]:
    """The tensors by PyTorch's names; kernels are [out, in]."""
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
        if rest == "table":  # of positions
            stack = "encoder" if part == "source_positions" else "decoder"
            name = f"model.{stack}.embed_positions.weight"
            tensors[name] = np.pad(array, [(FIRST_POSITION, 0), (0, 0)])
            continue
        if not part.endswith(("coder", "embedding_norm")):
            continue
        name = torch_name(path, "model.")
        if path.endswith("/kernel"):
            array = array.T
            bias_name = name.replace(".weight", ".bias")
            tensors.setdefault(bias_name, np.zeros(len(array)))
        tensors[name] = array
    return tensors


def write_safetensors(
    path: pathlib.Path, tensors: dict[str, np.ndarray], precision: str
) -> None:
    """Writes arrays by name as a `.safetensors` file; see `DTYPES`."""
    arrays = {
        name: np.asarray(array, DTYPES[precision], order="C")
        for name, array in tensors.items()
    }
    checkpoints.write_safetensors(path, arrays, {"format": "pt"})


def _write_ids(path: pathlib.Path, pieces: list[str], order: list[int]) -> None:
    """Writes the ids of pieces."""
    _write_json(path, {pieces[ours]: id for id, ours in enumerate(order)})


def _write_json(path: pathlib.Path, values: dict[str, typing.Any]) -> None:
    """Writes a JSON object, one field a line."""
    text = json.dumps(values, ensure_ascii=False, indent=2)
    path.write_text(text + "\n", encoding="utf-8")
