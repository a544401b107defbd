"""Rewrites of the ONNX graph that tf2onnx makes: faster, smaller, documented.

The first two change no answer:

- `hoist_constants`: tf2onnx passes every weight through the loop as if it
  changed, so the quantizer does not see that it is constant and skips it.
- `scatter_cache_writes`: the model writes a position into its cache with a
  comparison (`Where`), which every format knows. ONNX Runtime is slow at it,
  and spent half of the search there. `ScatterND` writes that position alone.
"""

import numpy as np
import onnx
from onnx import helper, numpy_helper

HALVED_SIZE = 1024  # elements from which an initializer is stored in float16
# What may stand between a comparison and the `Where` that uses it.
SHAPING = ("Identity", "Reshape", "Slice", "Squeeze", "Unsqueeze")


def hoist_constants(model):
    """Removes from the state of every loop what the loop does not change.

    Args:
        model: An `onnx.ModelProto`, changed in place.

    Returns:
        The number of values removed.
    """
    return sum(_hoist(model.graph, *loop) for loop in _loops(model.graph))


def scatter_cache_writes(model):
    """Replaces `Where` with `ScatterND` wherever a loop writes into a cache.

    Args:
        model: An `onnx.ModelProto`, changed in place.

    Returns:
        The number of writes replaced.
    """
    return sum(_scatter(body) for _, body in _loops(model.graph))


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
    """Names the axes, and says what the model and its tensors are.

    Args:
        model: An `onnx.ModelProto`, changed in place.
        inputs: For each input its name -> its axes, `str` (free) or `int`, and
            one sentence.
        outputs: The same for outputs.
        text: What the model is.
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


def _scatter(body):
    """`scatter_cache_writes` of one loop's body."""
    makers = _makers(body)
    lengths = {value.name: _length_of_cache(value) for value in body.output[1:]}
    nodes, indices = [], {}
    for node in body.node:
        index = None
        if node.op_type == "Where" and lengths.get(node.output[0]):
            index = _written_index(node, lengths[node.output[0]], makers, body)
        if index is None:
            nodes.append(node)
            continue
        _, new, cache = node.input
        # Keys and values of every layer are written at the same places; they
        # differ in their last axis alone.
        if index not in indices:
            made, indices[index] = _make_indices(new, index)
            nodes += made
        nodes.append(
            helper.make_node(
                "ScatterND", [cache, indices[index], new], node.output
            )
        )
    replaced = sum(node.op_type == "ScatterND" for node in nodes)
    _replace(body.node, nodes)
    return replaced


def _make_indices(new, index):
    """Nodes for the places `(n, h, index)`: int64 [N, H, 1, 3].

    Args:
        new: Name of what is written, `[N, H, 1, K]`.
        index: Name of the position, an integer scalar.

    Returns:
        The nodes, and the name of their result.
    """
    nodes = []

    def add(operator, inputs, output, **attributes):
        name = f"cache/{index}/{output}"
        nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def constant(value, output):
        tensor = numpy_helper.from_array(np.array(value, np.int64))
        return add("Constant", [], output, value=tensor)

    zero, one = constant(0, "zero"), constant(1, "one")
    last = constant([3], "last")
    shape = add("Shape", [new], "shape", start=0, end=3)  # N, H, 1
    places = []
    for axis, others in ((0, [1, 2]), (1, [0, 2])):
        size = add("Gather", [shape, (zero, one)[axis]], f"size_{axis}")
        line = add("Range", [zero, size, one], f"range_{axis}")
        others = constant(others, f"others_{axis}")
        line = add("Unsqueeze", [line, others], f"line_{axis}")
        places.append(add("Expand", [line, shape], f"grid_{axis}"))
    position = add("Cast", [index], "position", to=onnx.TensorProto.INT64)
    places.append(add("Expand", [position, shape], "positions"))
    columns = [
        add("Unsqueeze", [place, last], f"column_{k}")
        for k, place in enumerate(places)
    ]
    return nodes, add("Concat", columns, "indices", axis=3)


def _length_of_cache(value):
    """T of a float state `[N, H, T, K]` of a loop; None of any other."""
    tensor = value.type.tensor_type
    if tensor.elem_type != onnx.TensorProto.FLOAT or len(tensor.shape.dim) != 4:
        return None
    return tensor.shape.dim[2].dim_value or None


def _written_index(node, length, makers, body):
    """The position at which a `Where` writes into a cache; None if it does not.

    Its condition must be `range(length) == position`.
    """
    equal = makers.get(_origin(node.input[0], makers, SHAPING))
    if equal is None or equal.op_type != "Equal":
        return None
    known = {t.name: numpy_helper.to_array(t) for t in body.initializer}
    positions = [name for name in equal.input if name not in known]
    ranges = [known[name].ravel() for name in equal.input if name in known]
    if len(positions) == 1 and np.array_equal(ranges[0], np.arange(length)):
        return positions[0]
    return None


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
