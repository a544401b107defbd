"""Reads the files that all models of Hugging Face's transformers have.

`marian_huggingface` and `m2m100` import the models.
"""

import json
import pathlib
import typing
from collections.abc import Mapping, Sequence

import numpy as np

from keras_transformer.base.foreign_files import read_json
from keras_transformer.base.refusals import expect
from keras_transformer.config import TransformerConfig
from keras_transformer.importers import stacks
from keras_transformer.importers.generation import CONFIG
from keras_transformer.importers.options import Options
from keras_transformer.importers.tensors import (
    Tensors,
    arrays_by_name,
    read_safetensors,
)
from keras_transformer.importers.torch_pickle import read_torch
from keras_transformer.importers.vocabularies import Side

TOKENIZER_CONFIG = "tokenizer_config.json"
VOCABULARY, TARGET_VOCABULARY = "vocab.json", "target_vocab.json"
# Names of embedding matrices.
MATRICES = (
    "model.shared.weight",
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
)
EPSILON = 1e-5  # the default of PyTorch's LayerNorm


def model_type(directory: pathlib.Path) -> str | None:
    """Returns `model_type` of config.json, or None."""
    path = directory / CONFIG
    return read_json(path).get("model_type") if path.is_file() else None


def read_config(
    directory: pathlib.Path, known: Mapping[str, Sequence]
) -> Options:
    """Reads and checks config.json. `known` is as in `Options.check`."""
    path = directory / CONFIG
    options = Options(read_json(path), path)
    options.check(known)
    for name in ("attention_heads", "ffn_dim"):
        encoder = options.need(f"encoder_{name}", int)
        if options.need(f"decoder_{name}", int) != encoder:
            options.refuse(f"decoder_{name}", f"the encoder has {encoder}")
    return options


def common_fields(options: Options, activation: str) -> dict[str, typing.Any]:
    """Reads the fields of a `TransformerConfig` that all families have.

    `activation` is their default.
    """
    activation = options.get("activation_function", activation)
    return {
        "d_model": options.need("d_model", int),
        "d_ff": options.need("encoder_ffn_dim", int),
        "num_heads": options.need("encoder_attention_heads", int),
        "num_layers": options.need("encoder_layers", int),
        "num_decoder_layers": options.need("decoder_layers", int),
        "dropout": options.get("dropout", 0.1),
        "attention_dropout": options.get("attention_dropout", 0.0),
        "activation_dropout": options.get("activation_dropout", 0.0),
        "activation": stacks.ACTIVATIONS[activation],
        "attention_bias": True,
        "layer_norm_epsilon": EPSILON,
        "logits_bias": True,
    }


def longest_source(
    options: Options, tokenizer_config: dict[str, typing.Any], default: int
) -> int:
    """Returns the maximum number of source tokens that both files allow."""
    limit = options.get("max_position_embeddings", default)
    other = tokenizer_config.get("model_max_length")
    return min(limit, other) if type(other) is int and other >= 2 else limit


def read_ids(path: pathlib.Path, size: int) -> dict[str, int]:
    """Reads the ids of subwords.

    Raises ValueError unless they are distinct and in [0, size).
    """
    ids = read_json(path)
    for subword, id in ids.items():
        if type(id) is not int or not 0 <= id < size:
            raise ValueError(
                f"{path}: expected ids below vocab_size={size}. Received:"
                f" {json.dumps({subword: id}, ensure_ascii=False)[:60]}"
            )
    is_distinct = len(set(ids.values())) == len(ids)
    expect(is_distinct, "a distinct id for each subword", where=path)
    return ids


def check_size(tensors: Tensors, field: str, size: int) -> None:
    """Raises ValueError if `size` is above the number of embeddings.

    This limits the memory that a hostile file can take.
    """
    names = [name for name in MATRICES if name in tensors]
    limit = max((tensors.matrix_shape(name)[0] for name in names), default=0)
    rows = f"embeddings of {field}={size} tokens"
    expect(size <= limit, rows, f"at most {limit}", where=tensors.path)


def read_tensors(directory: pathlib.Path) -> Tensors:
    """Reads tensors by PyTorch's names, from one file or several."""
    readers = {
        "model.safetensors": read_safetensors,
        "pytorch_model.bin": read_torch,
    }
    for name, reader in readers.items():
        path, index = directory / name, directory / f"{name}.index.json"
        if path.exists():
            return Tensors(arrays_by_name(reader(path), path), path)
        if index.exists():
            arrays: dict[str, np.ndarray] = {}
            parts = Options(read_json(index), index).need("weight_map", dict)
            for part in sorted(set(map(str, parts.values()))):
                path = directory / pathlib.PurePath(part).name
                arrays |= arrays_by_name(reader(path), path)
            return Tensors(arrays, index)
    raise ValueError(
        f"{directory}: expected {' or '.join(readers)}. Received: neither"
    )


def read_weights(
    config: TransformerConfig, tensors: Tensors, sides: list[Side]
) -> dict[str, np.ndarray]:
    """Reads the weights of embeddings, stacks and softmax, by path."""
    source = "source" if config.has_source_embedding else "target"
    softmax = "softmax" if config.has_softmax_matrix else "target"
    matrices = dict(zip(MATRICES, ("target", source, "target"), strict=True))
    matrices["lm_head.weight"] = softmax

    def read(name: str, shape: tuple[int, ...]) -> np.ndarray:
        if name != "bias":
            names = [key for key, role in matrices.items() if role == name]
            return _take_tied(tensors, names, shape)
        if "final_logits_bias" in tensors:
            return tensors.take("final_logits_bias", (1, *shape))[0]
        return np.zeros(shape, np.float32)

    weights = stacks.read_embeddings(config, sides, read)
    return weights | stacks.read_torch_stacks(config, tensors, "model.")


def _take_tied(
    tensors: Tensors, names: list[str], shape: tuple[int, ...]
) -> np.ndarray:
    """Takes a matrix that may be stored under several names.

    Raises ValueError if the copies differ.
    """
    found = [name for name in names if name in tensors]
    first, *others = found or names[:1]
    array = tensors.take(first, shape)
    for other in others:
        if not np.array_equal(tensors.take(other, shape), array):
            raise ValueError(
                f"{tensors.path}: {first} and {other} must be equal, since"
                " config.json says that they are tied"
            )
    return array
