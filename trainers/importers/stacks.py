"""The weights of encoder and decoder: their paths and shapes.

Systems differ in the names: an importer brings two functions that read a linear
map and a norm.
"""

import typing
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from keras_transformer.config import TransformerConfig
from trainers.importers.tensors import Tensors

# A bias that leaves no probability to a token, in half precision, too.
EXCLUDED = -1e4
MAX_LAYERS = 256
PROJECTIONS = ("query", "key", "value", "output")
ATTENTIONS = {
    "encoder": ("self_attention",),
    "decoder": ("self_attention", "cross_attention"),
}
# Names of fairseq, which transformers has, too: of linear maps and norms.
TORCH_ATTENTIONS = {
    "self_attention": "self_attn",
    "cross_attention": "encoder_attn",
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


class Place(typing.NamedTuple):
    """The place of a linear map or a norm.

    Attributes:
        stack: "encoder" or "decoder".
        layer: Its number, from 0; None for a norm of the whole stack.
        part: "self_attention", "cross_attention" or "feed_forward"; for a norm
            of the stack "embedding" (before its layers) or "final" (after).
        name: The linear map: one of `PROJECTIONS`, or "inner", "outer".
    """

    stack: str
    layer: int | None
    part: str
    name: str = ""


ReadLinear: typing.TypeAlias = Callable[
    [Place, Sequence[int]], tuple[np.ndarray, np.ndarray | None]
]
ReadNorm: typing.TypeAlias = Callable[[Place], tuple[np.ndarray, np.ndarray]]


def make_config(path: typing.Any, **fields: typing.Any) -> TransformerConfig:
    """A `TransformerConfig`; errors name the file."""
    try:
        config = TransformerConfig(**fields)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    depth = max(config.num_layers, config.decoder_depth)
    if depth > MAX_LAYERS:  # layers may share weights, and then cost no bytes
        raise ValueError(
            f"{path}: expected at most {MAX_LAYERS} layers. Received: {depth}"
        )
    return config


def read_stacks(
    config: TransformerConfig, read_linear: ReadLinear, read_norm: ReadNorm
) -> dict[str, np.ndarray]:
    """All weights of both stacks by path.

    Args:
        config: The `TransformerConfig`, whose heads are `d_model / num_heads`
            wide.
        read_linear: Function of a `Place` and the numbers (in, out): a matrix
            of this shape, and the bias or None.
        read_norm: Function of a `Place`: gamma and beta.
    """
    weights = {}
    for stack, attentions in ATTENTIONS.items():
        for place, path, shape in _linear_maps(config, stack, attentions):
            kernel, bias = read_linear(place, shape)
            weights[f"{path}/kernel"] = kernel
            if bias is not None:
                weights[f"{path}/bias"] = bias
        for place, path in _norms(config, stack, attentions):
            weights[f"{path}/gamma"], weights[f"{path}/beta"] = read_norm(place)
    return weights


def read_torch_stacks(
    config: TransformerConfig, tensors: Tensors, prefix: str = ""
) -> dict[str, np.ndarray]:
    """`read_stacks` with the names of fairseq, after a prefix."""

    def name_of(place, ending):
        """`decoder.layers.0.encoder_attn.q_proj`"""
        if place.layer is None:
            return f"{prefix}{place.stack}.{ending}"
        part = ""
        if place.name in PROJECTIONS:
            part = f"{TORCH_ATTENTIONS[place.part]}."
        return f"{prefix}{place.stack}.layers.{place.layer}.{part}{ending}"

    def read_linear(place, shape):
        name = name_of(place, TORCH_LINEAR[place.name])
        return (
            tensors.take(f"{name}.weight", shape[::-1]).T,
            tensors.take(f"{name}.bias", shape[1:]),
        )

    def read_norm(place):
        name = name_of(place, TORCH_NORMS[place.part])
        shape = (config.d_model,)
        return (
            tensors.take(f"{name}.weight", shape),
            tensors.take(f"{name}.bias", shape),
        )

    return read_stacks(config, read_linear, read_norm)


def logits_bias_path(config: TransformerConfig) -> str:
    """The path of the bias of the logits: beside the softmax' matrix."""
    layer = "softmax" if config.has_softmax_matrix else "embedding"
    return f"{layer}/logits_bias"


def depth_of(config: TransformerConfig, stack: str) -> int:
    """The number of layers of a stack."""
    return config.num_layers if stack == "encoder" else config.decoder_depth


def _linear_maps(
    config, stack, attentions
) -> Iterator[tuple[Place, str, tuple[int, int]]]:
    """Place, path and shape of every linear map of a stack."""
    width, inner = config.d_model, config.d_ff
    for layer in range(depth_of(config, stack)):
        for part, name, shape in (
            *(
                (attention, projection, (width, width))
                for attention in attentions
                for projection in PROJECTIONS
            ),
            ("feed_forward", "inner", (width, inner)),
            ("feed_forward", "outer", (inner, width)),
        ):
            path = f"{stack}/layer_{layer}/{part}/{name}"
            yield Place(stack, layer, part, name), path, shape


def _norms(config, stack, attentions) -> Iterator[tuple[Place, str]]:
    """Place and path of every norm of a stack."""
    for layer in range(depth_of(config, stack)):
        for part in (*attentions, "feed_forward"):
            path = f"{stack}/layer_{layer}/{part}_residual/norm"
            yield Place(stack, layer, part), path
    if config.pre_norm:
        yield Place(stack, None, "final"), f"{stack}/final_norm"
    if config.embedding_norm:
        side = "source" if stack == "encoder" else "target"
        yield Place(stack, None, "embedding"), f"{side}_embedding_norm"
