"""What models of Hugging Face's transformers have in common: files, names.

`marian_huggingface` and `m2m100` read the models.
"""

import json
import pathlib
import typing

import numpy as np

from keras_transformer.config import TransformerConfig
from keras_transformer.importers.files import read_json
from keras_transformer.importers.options import Options
from keras_transformer.importers.stacks import (
    read_embeddings,
    read_torch_stacks,
)
from keras_transformer.importers.tensors import (
    Tensors,
    arrays_by_name,
    read_safetensors,
)
from keras_transformer.importers.torch_pickle import read_torch
from keras_transformer.importers.vocabularies import Side

TOKENIZER_CONFIG = "tokenizer_config.json"
VOCABULARY, TARGET_VOCABULARY = "vocab.json", "target_vocab.json"
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


def check_sides(options: Options) -> None:
    """Refuses a decoder of other sizes than the encoder's."""
    for name in ("attention_heads", "ffn_dim"):
        encoder = options.need(f"encoder_{name}", int)
        if options.need(f"decoder_{name}", int) != encoder:
            options.refuse(f"decoder_{name}", f"the encoder has {encoder}")


def sizes_and_dropouts(options: Options) -> dict[str, typing.Any]:
    """Fields of a `TransformerConfig` that all families name alike."""
    return {
        "d_model": options.need("d_model", int),
        "d_ff": options.need("encoder_ffn_dim", int),
        "num_heads": options.need("encoder_attention_heads", int),
        "num_layers": options.need("encoder_layers", int),
        "num_decoder_layers": options.need("decoder_layers", int),
        "dropout": options.get("dropout", 0.1),
        "attention_dropout": options.get("attention_dropout", 0.0),
        "activation_dropout": options.get("activation_dropout", 0.0),
    }


def longest_source(
    options: Options, tokenizer_config: dict[str, typing.Any], default: int
) -> int:
    """Maximum number of tokens of a source that both files allow."""
    limit = options.get("max_position_embeddings", default)
    other = tokenizer_config.get("model_max_length")
    return min(limit, other) if type(other) is int and other >= 2 else limit


def read_ids(path: pathlib.Path, size: int) -> dict[str, int]:
    """The id of each subword in a file, all below a size and different."""
    ids = read_json(path)
    for subword, id in ids.items():
        if type(id) is not int or not 0 <= id < size:
            raise ValueError(
                f"{path}: expected ids below vocab_size={size}. Received:"
                f" {json.dumps({subword: id}, ensure_ascii=False)[:60]}"
            )
    if len(set(ids.values())) < len(ids):
        raise ValueError(f"{path}: expected a distinct id for each subword")
    return ids


def check_size(tensors: Tensors, field: str, size: int) -> None:
    """Refuses ids without an embedding: each of them takes memory."""
    names = [name for name in MATRICES if name in tensors]
    limit = max((tensors.matrix_shape(name)[0] for name in names), default=0)
    if size > limit:
        raise ValueError(
            f"{tensors.path}: expected embeddings of {field}={size} tokens."
            f" Received: of at most {limit}"
        )


def read_tensors(directory: pathlib.Path) -> Tensors:
    """The tensors by the names that PyTorch has for them.

    They are in one file, or in several that an index lists.
    """
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
    """The weights of embeddings, stacks and softmax by path."""
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

    weights = read_embeddings(config, sides, read)
    return weights | read_torch_stacks(config, tensors, "model.")


def _take_tied(
    tensors: Tensors, names: list[str], shape: tuple[int, ...]
) -> np.ndarray:
    """The matrix that has some of several names, once or several times."""
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
