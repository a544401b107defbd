"""Makes the ONNX graphs of tf2onnx faster, smaller and documented.

tf2onnx passes every weight through the loop as if it changed, so the quantizer
does not see that it is constant and skips it. `hoist_constants` moves weights
out of the loop, which changes no output.
"""

import copy

import numpy as np
import onnx
from onnx import helper, numpy_helper

# The axes of an input or output, named (`str`, any size) or of a fixed size,
# and one sentence about it.
Axes = tuple[list[str | int], str]
HALVED_SIZE = 1024  # minimum elements of an initializer stored in float16


def hoist_constants(model: onnx.ModelProto) -> int:
    """Moves constants out of the state of each loop. Returns their number."""
    return sum(
        _hoist(model.graph, node, attribute.g)
        for node in model.graph.node
        if node.op_type == "Loop"
        for attribute in node.attribute
        if attribute.name == "body"
    )


def halve_weights(model: onnx.ModelProto) -> None:
    """Stores large float32 weights as float16, with casts back to float32."""
    casts = []
    for tensor in model.graph.initializer:
        weights = numpy_helper.to_array(tensor)
        if weights.dtype == np.float32 and weights.size >= HALVED_SIZE:
            name, stored = tensor.name, f"{tensor.name}/float16"
            half = numpy_helper.from_array(weights.astype(np.float16), stored)
            tensor.CopyFrom(half)
            casts.append(
                helper.make_node(
                    "Cast", [stored], [name], to=onnx.TensorProto.FLOAT
                )
            )
    _replace(model.graph.node, [*casts, *model.graph.node])


def document(
    model: onnx.ModelProto,
    tensors: dict[str, Axes],
    text: str,
    metadata: dict[str, str],
) -> None:
    """Names the axes, and describes the model and its tensors.

    `tensors` has the `Axes` of each input and output. `text` and `metadata`
    describe the model.
    """
    model.producer_name = "keras_transformer"
    model.doc_string = text
    model.graph.name = "translator"
    helper.set_model_props(model, metadata)
    for value in (*model.graph.input, *model.graph.output):
        axes, value.doc_string = tensors[value.name]
        kind = value.type.tensor_type.elem_type
        new = helper.make_tensor_type_proto(kind, axes)
        value.type.CopyFrom(new)


def _hoist(
    graph: onnx.GraphProto, loop: onnx.NodeProto, body: onnx.GraphProto
) -> int:
    """Moves constants out of the body of one loop. Returns their number."""
    made_from = {
        node.output[0]: node.input[0]
        for node in body.node
        if node.op_type == "Identity"
    }

    def origin(name: str) -> str:
        while name in made_from:
            name = made_from[name]
        return name

    # State i is input i + 2 of the loop and of its body (after the number of
    # rounds and the condition), output i of the loop, and output i + 1 of the
    # body.
    constants = {
        i: loop.input[i + 2]
        for i, kept in enumerate(body.input[2:])
        if origin(body.output[i + 1].name) == kept.name
    }
    names = {}  # a constant's name in or after the loop -> name before it
    for i, name in constants.items():
        names[body.input[i + 2].name] = name
        names[body.output[i + 1].name] = name
        names[loop.output[i]] = name
    _replace(body.node, [n for n in body.node if n.output[0] not in names])
    for node in (*body.node, *graph.node):
        for k, name in enumerate(node.input):
            node.input[k] = names.get(name, name)
    for values, first in (
        (loop.input, 2),
        (loop.output, 0),
        (body.input, 2),
        (body.output, 1),
    ):
        _replace(
            values,
            [v for k, v in enumerate(values) if k - first not in constants],
        )
    return len(constants)


def _replace(field, values):
    """Replaces the values of a repeated field of a protocol buffer."""
    values = copy.deepcopy(values)  # they may be the field's own
    del field[:]
    field.extend(values)
