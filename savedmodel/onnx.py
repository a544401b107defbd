"""ONNX: encoder, search and cache in one file, run by ONNX Runtime.

Input: `source_ids` int32 [N, S], rows of tokens, then EOS; see `search.py`.
Outputs: `ids` int32 [N, W, T], `scores` float32 [N, W], `lengths` int32 [N, W],
`truncated` bool [N]. N and S are dynamic. The graph is that of
`Inference.translate_ids`, greedy if the beam size is 1. If the model takes
language tokens and has several languages, `source_language` and
`target_language` are further inputs, int32 [N]: ids of `language_ids` in
`export.json`. The graph puts them in their places. `ids` begin with the
language's token if the model's outputs do.

ONNX has no assertions. An invalid row (an id outside the vocabulary, no EOS),
or one with an unknown language, has the score NaN and no tokens.

`float16` stores float16 weights and computes in float32. `int8` is ONNX
Runtime's dynamic quantization: products with weights are computed in int8.
"""

import json
import logging
import os
import pathlib
import tempfile

import numpy as np
import onnx
import tf2onnx
from onnxruntime import quantization

from keras_transformer.base.fields import unhandled
from keras_transformer.translator import Translator
from savedmodel import onnx_rewrites
from savedmodel.formats import Export, save_vocabulary
from savedmodel.search import Directions, make_search

OPSET = 18


def write(export: Export) -> None:
    """Writes `model.onnx` and the tokenizer; see `formats`."""
    translator, directory = export.translator, export.directory
    model = make_model(translator)
    match export.options.precision:
        case "float32":
            pass
        case "float16":
            onnx_rewrites.halve_weights(model)
        case "int8":
            model = _quantize(model, directory)
        case other:
            raise unhandled(precision=other)
    onnx_rewrites.document(
        model,
        _axes(translator),
        __doc__,
        {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in export.description.items()
        },
    )
    onnx.save(model, str(directory / "model.onnx"))
    save_vocabulary(translator.tokenizer, directory)


def make_model(translator: Translator) -> onnx.ModelProto:
    """Converts the search to an `onnx.ModelProto` with float32 weights."""
    search = make_search(translator)
    model, _ = tf2onnx.convert.from_function(
        search,
        input_signature=search.input_signature,
        opset=OPSET,
        custom_op_handlers={
            "SelectV2": (_select_by_where, ["Where"]),
            "Erfc": (_erfc_by_erf, ["Erf"]),
        },
    )
    onnx_rewrites.hoist_constants(model)
    return model


def _axes(translator: Translator) -> dict[str, onnx_rewrites.Axes]:
    """Returns the axes and the description of each input and output."""
    beam_size = translator.decoding.beam_size
    return {
        "source_ids": (
            ["sentences", "source_tokens"],
            "Source tokens, then EOS; all after the first EOS is padding.",
        ),
        **{
            name: (["sentences"], "The id of its token: see language_ids.")
            for name in Directions(translator).inputs
        },
        "ids": (
            ["sentences", beam_size, translator.max_target_length],
            "Hypotheses, best first: tokens, EOS, then PAD.",
        ),
        "scores": (
            ["sentences", beam_size],
            "Log-probabilities after length penalty; -1e9: missing hypothesis;"
            " NaN: the row of source_ids is not valid.",
        ),
        "lengths": (["sentences", beam_size], "Tokens, EOS included."),
        "truncated": (
            ["sentences"],
            "Whether only the beginning of the source was translated.",
        ),
    }


def _quantize(
    model: onnx.ModelProto, directory: pathlib.Path
) -> onnx.ModelProto:
    """Quantizes the weights to int8, by dynamic quantization."""
    # The quantizer warns about everything that stays in float32: all but
    # weights.
    log = logging.getLogger()
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with tempfile.TemporaryDirectory(dir=directory) as unfinished:
            path = os.path.join(unfinished, "model.onnx")
            quantization.quantize_dynamic(
                model,
                path,
                per_channel=True,
                # Seven bits: sums of eight overflow on CPUs without VNNI.
                reduce_range=True,
                weight_type=quantization.QuantType.QInt8,
                extra_options={"EnableSubgraph": True},
            )
            return onnx.load(path)
    finally:
        log.setLevel(level)


def _select_by_where(context, node, name, arguments):
    """Converts TensorFlow's `where` to ONNX's `Where`, which does the same.

    tf2onnx would write a sum of products, in which 0 * -inf is NaN. An empty
    place in a beam has the log-probability -inf.
    """
    return node


def _erfc_by_erf(context, node, name, arguments):
    """Converts GELU's erfc(x) to 1 - erf(x): ONNX has no erfc."""
    erf = node.output[0]
    one = context.make_const(f"{name}_one", np.ones((), np.float32))
    context.insert_new_node_on_output("Sub", erf, inputs=[one.output[0], erf])
    return node
