"""Rewrites of the ONNX graph that tf2onnx makes: faster, smaller, documented.

`hoist_constants` changes no answer: tf2onnx passes every weight through the
loop as if it changed, so the quantizer does not see that it is constant and
skips it.
"""

import numpy as np
import onnx
from onnx import helper, numpy_helper

HALVED_SIZE = 1024  # elements from which an initializer is stored in float16


def hoist_constants(model):
    """Removes constants from the state of every loop.

    Args:
        model: An `onnx.ModelProto`, changed in place.

    Returns:
        The number of values removed.
    """
    return sum(_hoist(model.graph, *loop) for loop in _loops(model.graph))


def halve_weights(model):
    """Stores large float32 weights as float16; they are computed in float32.

    Args:
        model: An `onnx.ModelProto`, changed in place.

    Returns:
        The number of weights stored as float16.
    """
    graph, casts = model.graph, []
    for tensor in graph.initializer:
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
    _replace(graph.node, [*casts, *graph.node])
    return len(casts)


def document(model, inputs, outputs, text, metadata):
    """Names the axes, and describes the model and its tensors.

    Args:
        model: An `onnx.ModelProto`, changed in place.
        inputs: For each input its name -> its axes, `str` (free) or `int`, and
            one sentence.
        outputs: The same for outputs.
        text: Description of the model.
        metadata: `str` by name.
    """
    model.producer_name = "keras_transformer"
    model.doc_string = text
    model.graph.name = "translator"
    helper.set_model_props(model, metadata)
    for values, known in (
        (model.graph.input, inputs),
        (model.graph.output, outputs),
    ):
        for value in values:
            axes, value.doc_string = known[value.name]
            shape = value.type.tensor_type.shape
            shape.Clear()
            for axis in axes:
                size = "dim_param" if isinstance(axis, str) else "dim_value"
                setattr(shape.dim.add(), size, axis)


def _hoist(graph, loop, body):
    """`hoist_constants` of one loop."""
    makers = _makers(body)
    # State i is input i + 2 of the loop and of its body, after the number of
    # rounds and the condition; output i of the loop; output i + 1 of the body.
    constants = {
        i: loop.input[i + 2]
        for i, kept in enumerate(body.input[2:])
        if _origin(body.output[i + 1].name, makers, ("Identity",)) == kept.name
    }
    names = {}  # of a constant inside and behind the loop -> before the loop
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


def _loops(graph):
    """The `Loop` nodes of a graph, each with its body."""
    return [
        (node, attribute.g)
        for node in graph.node
        if node.op_type == "Loop"
        for attribute in node.attribute
        if attribute.name == "body"
    ]


def _makers(graph):
    """The node that makes each value of a graph, by the value's name."""
    return {name: node for node in graph.node for name in node.output}


def _origin(name, makers, operators):
    """The value that a value is made of by nothing but some operators."""
    while name in makers and makers[name].op_type in operators:
        name = makers[name].input[0]
    return name


def _replace(field, values):
    """Gives a repeated field of a protocol buffer other values."""
    if field and not isinstance(field[0], str):
        values = [
            type(value).FromString(value.SerializeToString())
            for value in values
        ]
    values = list(values)
    del field[:]
    field.extend(values)
