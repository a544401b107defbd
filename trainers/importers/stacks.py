"""The weights of encoder and decoder: which there are, in which shapes.

What differs between systems is how they name them: an importer brings two
functions that read a linear map and a norm.
"""

import typing
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from keras_transformer.config import TransformerConfig

# A bias that leaves no probability to a token, in half precision, too.
EXCLUDED = -1e4
PROJECTIONS = ("query", "key", "value", "output")
ATTENTIONS = {
    "encoder": ("self_attention",),
    "decoder": ("self_attention", "cross_attention"),
}


class Place(typing.NamedTuple):
    """Where a linear map or a norm is.

    Attributes:
        stack: "encoder" or "decoder".
        layer: Its number, from 0; None: of the whole stack.
        part: "self_attention", "cross_attention" or "feed_forward"; of a stack:
            "embedding", the norm before its layers, or "final", after them.
        name: Of a linear map: one of `PROJECTIONS`; or "inner", "outer".
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
    """A `TransformerConfig`; if it cannot be, the error says of which file."""
    try:
        return TransformerConfig(**fields)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


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


def logits_bias_path(config: TransformerConfig) -> str:
    """Where the bias of the logits is: with the matrix of the softmax."""
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
