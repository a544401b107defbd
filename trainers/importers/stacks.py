"""The weights of a Transformer: their paths and shapes.

Systems differ in the names: an importer brings functions that read a weight.
"""

import typing
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from keras_transformer.config import TransformerConfig
from trainers.importers.files import named_errors
from trainers.importers.tensors import Tensors
from trainers.importers.vocabularies import NO_ROW, Side

# A bias that leaves no probability to a token, in half precision, too.
EXCLUDED = -1e4
MAX_LAYERS = 256
PROJECTIONS = ("query", "key", "value", "output")
FEED_FORWARD = ("inner", "outer")
ATTENTIONS = {
    "encoder": ("self_attention",),
    "decoder": ("self_attention", "cross_attention"),
}
# Names of fairseq, which transformers has, too: of linear maps and norms.
TORCH_ATTENTIONS = {
    "self_attention": "self_attn.",
    "cross_attention": "encoder_attn.",
}
TORCH_LINEAR = {
    "query": "q_proj",
    "key": "k_proj",
    "value": "v_proj",
    "output": "out_proj",
    "inner": "fc1",
    "outer": "fc2",
}
TORCH_NORMS = {
    "self_attention": "self_attn_layer_norm",
    "cross_attention": "encoder_attn_layer_norm",
    "feed_forward": "final_layer_norm",
    "final": "layer_norm",
    "embedding": "layernorm_embedding",
}
TORCH_WEIGHTS = {
    "kernel": "weight",
    "gamma": "weight",
    "bias": "bias",
    "beta": "bias",
}


class Place(typing.NamedTuple):
    """The place of a linear map or a norm.

    Attributes:
        stack: "encoder" or "decoder".
        layer: Its number, from 0; None for a norm of the whole stack.
        part: "self_attention", "cross_attention" or "feed_forward"; for a norm
            of the stack "embedding" (before its layers) or "final" (after).
        name: The linear map: of `PROJECTIONS` or `FEED_FORWARD`; "" for a norm.
    """

    stack: str
    layer: int | None
    part: str
    name: str = ""


def make_config(
    path: typing.Any, sides: Sequence[Side], **fields: typing.Any
) -> TransformerConfig:
    """A `TransformerConfig` for the vocabularies of both sides.

    Raises:
        ValueError: With the path, there is no such configuration.
    """
    source, target = (len(side.ids) for side in sides)
    sizes = {
        "vocab_size": target,
        "source_vocab_size": source if source != target else None,
    }
    with named_errors(path):
        config = TransformerConfig(**(sizes | fields))
        depth = max(config.num_layers, config.decoder_depth)
        if depth > MAX_LAYERS:  # layers may share weights, and cost no bytes
            raise ValueError(
                f"expected at most {MAX_LAYERS} layers. Received: {depth}"
            )
    return config


def sharing(inputs: bool, softmax: bool) -> str:
    """`share_embeddings` of a `TransformerConfig`.

    Args:
        inputs: Whether source and target share a matrix.
        softmax: Whether softmax and target share a matrix.
    """
    if inputs:
        return "all" if softmax else "inputs"
    return "target" if softmax else "none"


def read_stacks(
    config: TransformerConfig,
    read: Callable[[Place, str, tuple[int, ...]], np.ndarray],
) -> dict[str, np.ndarray]:
    """All weights of both stacks by path.

    Args:
        config: The `TransformerConfig`, whose heads are `d_model / num_heads`
            wide.
        read: Function of a `Place`, of which weight is read there ("kernel",
            "bias", "gamma" or "beta"), and of its shape; a kernel has the axes
            (in, out).
    """
    width, inner = config.d_model, config.d_ff
    shapes = {"inner": (width, inner), "outer": (inner, width)}
    weights = {}
    for place, path in _places(config):
        kernel = shapes.get(place.name, (width, width))
        of_place: dict[str, tuple[int, ...]]
        if not place.name:
            of_place = {"gamma": (width,), "beta": (width,)}
        elif place.part == "feed_forward" or config.attention_bias:
            of_place = {"kernel": kernel, "bias": kernel[1:]}
        else:
            of_place = {"kernel": kernel}
        for name, shape in of_place.items():
            weights[f"{path}/{name}"] = read(place, name, shape)
    return weights


def _places(config) -> Iterator[tuple[Place, str]]:
    """Every linear map and every norm of both stacks, and its path."""
    for stack, attentions in ATTENTIONS.items():
        for layer in range(depth_of(config, stack)):
            for part in (*attentions, "feed_forward"):
                is_attention = part != "feed_forward"
                path = f"{stack}/layer_{layer}/{part}"
                for name in PROJECTIONS if is_attention else FEED_FORWARD:
                    yield Place(stack, layer, part, name), f"{path}/{name}"
                yield Place(stack, layer, part), f"{path}_residual/norm"
        if config.pre_norm:
            yield Place(stack, None, "final"), f"{stack}/final_norm"
        if config.embedding_norm:
            side = "source" if stack == "encoder" else "target"
            yield Place(stack, None, "embedding"), f"{side}_embedding_norm"


def read_torch_stacks(
    config: TransformerConfig, tensors: Tensors, prefix: str = ""
) -> dict[str, np.ndarray]:
    """`read_stacks` with the names of fairseq, after a prefix."""

    def read(place, name, shape):
        """Such as `decoder.layers.0.encoder_attn.q_proj.weight`."""
        path = f"{prefix}{place.stack}."
        if place.layer is not None:
            path += f"layers.{place.layer}."
        if place.name:
            path += TORCH_ATTENTIONS.get(place.part, "")
            path += TORCH_LINEAR[place.name]
        else:
            path += TORCH_NORMS[place.part]
        # PyTorch's kernels have the axes (out, in).
        return tensors.take(f"{path}.{TORCH_WEIGHTS[name]}", shape[::-1]).T

    return read_stacks(config, read)


def read_embeddings(
    config: TransformerConfig,
    sides: Sequence[Side],
    read: Callable[[str, tuple[int, ...]], np.ndarray],
) -> dict[str, np.ndarray]:
    """Embeddings, the matrix of the softmax and the bias of the logits by path.

    Args:
        config: The `TransformerConfig`.
        sides: The vocabularies of source and target.
        read: Function of the name of a weight ("source", "target", "softmax" or
            "bias") and its shape: a row for each id of the original.
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
        layer = "softmax" if config.has_softmax_matrix else "embedding"
        weights[f"{layer}/logits_bias"] = bias
    return weights


def depth_of(config: TransformerConfig, stack: str) -> int:
    """The number of layers of a stack."""
    return config.num_layers if stack == "encoder" else config.decoder_depth
