"""Paths and shapes of a Transformer's weights, and functions to read them.

Each system has its own names, so an importer passes a function that reads one
weight.
"""

import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from keras_transformer.base.foreign_files import named_errors
from keras_transformer.base.permutation import from_blocks, reorder
from keras_transformer.base.refusals import expect
from keras_transformer.config import TransformerConfig
from keras_transformer.importers.tensors import Tensors
from keras_transformer.importers.vocabularies import NO_ROW, Side

# A bias that gives a token no probability, even in half precision.
EXCLUDED = -1e4
MAX_LAYERS = 256
SIDES = {"source": "encoder", "target": "decoder"}  # the stack of each side
PROJECTIONS = ("query", "key", "value", "output")
ATTENTIONS = {
    "encoder": ("self_attention",),
    "decoder": ("self_attention", "cross_attention"),
}
# Our activations by other systems' names. OpenNMT-tf's `layers.gelu` is not
# TensorFlow's `nn.gelu`.
ACTIVATIONS = {
    "relu": "relu",
    "swish": "swish",
    "silu": "swish",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "layers.gelu": "gelu_tanh",
    "common.gelu": "gelu_tanh",
}
FIRST_POSITION = 2  # in fairseq and transformers; rows before it are not used
# Names of the parts of a path in fairseq and transformers.
TORCH_NAMES = {
    "self_attention": "self_attn",
    "cross_attention": "encoder_attn",
    "feed_forward": "",
    "query": "q_proj",
    "key": "k_proj",
    "value": "v_proj",
    "output": "out_proj",
    "inner": "fc1",
    "outer": "fc2",
    "self_attention_residual": "self_attn_layer_norm",
    "cross_attention_residual": "encoder_attn_layer_norm",
    "feed_forward_residual": "final_layer_norm",
    "norm": "",
    "final_norm": "layer_norm",
    "source_embedding_norm": "encoder/layernorm_embedding",
    "target_embedding_norm": "decoder/layernorm_embedding",
    "source_positions": "encoder/embed_positions",
    "target_positions": "decoder/embed_positions",
    "table": "weight",
    "kernel": "weight",
    "gamma": "weight",
    "beta": "bias",
}


def make_config(
    path: typing.Any, sides: Sequence[Side], **fields: typing.Any
) -> TransformerConfig:
    """Makes a `TransformerConfig` with the vocabulary sizes of the sides.

    Raises ValueError, with the path, if a field is wrong or there are too many
    layers.
    """
    source, target = (len(side.ids) for side in sides)
    sizes = {
        "vocab_size": target,
        "source_vocab_size": source if source != target else None,
    }
    with named_errors(path):
        config = TransformerConfig(**(sizes | fields))
        depth = max(config.num_layers, config.decoder_depth)
        # Tied layers take no bytes, so the file's size does not limit them.
        expect(depth <= MAX_LAYERS, f"at most {MAX_LAYERS} layers", depth)
    return config


def sharing(inputs: bool, softmax: bool) -> str:
    """Returns the value of `share_embeddings`.

    `inputs` and `softmax` say whether the source embedding and the softmax use
    the target embedding's matrix.
    """
    if inputs:
        return "all" if softmax else "inputs"
    return "target" if softmax else "none"


def read_stacks(
    config: TransformerConfig,
    read: Callable[[str, tuple[int, ...]], np.ndarray],
) -> dict[str, np.ndarray]:
    """Reads all weights of both stacks by path.

    `read` takes the path and the shape of a weight. Kernels have the axes
    (in, out). Heads are `d_model / num_heads` wide.
    """
    return {path: read(path, shape) for path, shape in _shapes(config)}


def weight_shapes(config: TransformerConfig) -> dict[str, tuple[int, ...]]:
    """Returns the shape of every weight of a model by path."""
    width = config.d_model
    shapes: dict[str, tuple[int, ...]] = {
        "embedding/embeddings": (config.vocab_size, width)
    }
    if config.has_source_embedding:
        rows = config.num_source_tokens
        shapes["source_embedding/embeddings"] = rows, width
    if config.has_softmax_matrix:
        shapes["softmax/matrix"] = config.vocab_size, width
    if config.logits_bias:
        shapes[_bias_path(config)] = (config.vocab_size,)
    if config.position_limit is not None:
        for side in SIDES:
            shapes[f"{side}_positions/table"] = config.position_limit, width
    return shapes | dict(_shapes(config))


def _bias_path(config: TransformerConfig) -> str:
    layer = "softmax" if config.has_softmax_matrix else "embedding"
    return f"{layer}/logits_bias"


def _shapes(config: TransformerConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yields the path and shape of every weight of both stacks."""
    width, inner = config.d_model, config.d_ff
    feed_forward = {"inner": (width, inner), "outer": (inner, width)}
    attention = dict.fromkeys(PROJECTIONS, (width, width))
    depths = config.num_layers, config.decoder_depth
    for (side, stack), depth in zip(SIDES.items(), depths, strict=True):
        norms = []
        for layer in range(depth):
            for part in (*ATTENTIONS[stack], "feed_forward"):
                path = f"{stack}/layer_{layer}/{part}"
                is_attention = part != "feed_forward"
                shapes = attention if is_attention else feed_forward
                for name, shape in shapes.items():
                    yield f"{path}/{name}/kernel", shape
                    if config.attention_bias or not is_attention:
                        yield f"{path}/{name}/bias", shape[1:]
                distance = config.relative_distance
                if distance is not None and part == "self_attention":
                    table = 2 * distance + 1, config.key_size
                    yield f"{path}/relative_keys", table
                    yield f"{path}/relative_values", table
                norms.append(f"{path}_residual/norm")
        if config.pre_norm:
            norms.append(f"{stack}/final_norm")
        if config.embedding_norm:
            norms.append(f"{side}_embedding_norm")
        for path in norms:
            yield f"{path}/gamma", (width,)
            yield f"{path}/beta", (width,)


def their_path(path: str, names: Mapping[str, str]) -> str:
    """Translates a path to another system's names, and drops empty parts.

    >>> their_path("encoder/layer_0/feed_forward/inner/kernel", TORCH_NAMES)
    'encoder/layers/0/fc1/weight'
    """
    path = re.sub(r"/layer_(\d+)/", r"/layers/\1/", path)
    parts = [names.get(part, part) for part in path.split("/")]
    return "/".join(filter(None, parts))


def torch_name(path: str, prefix: str = "") -> str:
    """Returns a weight's name in fairseq and transformers, after a prefix.

    >>> torch_name("decoder/layer_1/cross_attention/query/kernel")
    'decoder.layers.1.encoder_attn.q_proj.weight'
    """
    return prefix + their_path(path, TORCH_NAMES).replace("/", ".")


def read_torch_stacks(
    config: TransformerConfig, tensors: Tensors, prefix: str = ""
) -> dict[str, np.ndarray]:
    """Reads the weights of both stacks, by the names of `torch_name`."""

    def read(path: str, shape: tuple[int, ...]) -> np.ndarray:
        # PyTorch's kernels have the axes (out, in).
        return tensors.take(torch_name(path, prefix), shape[::-1]).T

    return read_stacks(config, read)


def read_embeddings(
    config: TransformerConfig,
    sides: Sequence[Side],
    read: Callable[[str, tuple[int, ...]], np.ndarray],
) -> dict[str, np.ndarray]:
    """Reads embeddings, softmax matrix and logits bias by path.

    `read` takes the name of a weight ("source", "target", "softmax" or "bias")
    and its shape, with a row for each of the original's ids.
    """
    source, target = sides
    of_weights = {"embedding/embeddings": ("target", target)}
    if config.has_source_embedding:
        of_weights["source_embedding/embeddings"] = ("source", source)
    if config.has_softmax_matrix:
        of_weights["softmax/matrix"] = ("softmax", target)
    weights = {}
    for path, (name, side) in of_weights.items():
        rows = read(name, (max(side.ids) + 1, config.d_model))[side.ids]
        rows[np.array(side.ids) == NO_ROW] = 0.0
        weights[path] = rows
    if config.logits_bias:
        bias = read("bias", (max(target.ids) + 1,))[target.ids]
        bias[list(target.excluded)] = EXCLUDED
        weights[_bias_path(config)] = bias
    return weights


def read_positions(
    config: TransformerConfig, tensors: Tensors, prefix: str = ""
) -> dict[str, np.ndarray]:
    """Reads the tables of learned positions, if any, by path."""
    if config.position_limit is None:
        return {}
    shape = config.position_limit + FIRST_POSITION, config.d_model
    tables = {}
    for side in SIDES:
        path = f"{side}_positions/table"
        table = tensors.take(torch_name(path, prefix), shape)
        tables[path] = table[FIRST_POSITION:]
    return tables


def finish(
    config: TransformerConfig, weights: dict[str, np.ndarray], tensors: Tensors
) -> dict[str, np.ndarray]:
    """Reorders the model dimension to match the sinusoids here.

    Raises ValueError if some tensors were not taken.
    """
    tensors.close()
    if config.positions != "sinusoidal":
        return weights
    return reorder(weights, from_blocks(config.d_model))
