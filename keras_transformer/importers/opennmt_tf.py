"""A run of OpenNMT-tf 2: checkpoint, options, vocabularies.

    ckpt-5000.index, ...    the checkpoint, in `checkpoint` or in `avg` below
    data.yml                the run's configuration, of any name, here or in a
                            directory above: vocabularies, tokenization, search
    model_description.py    which model: read, and never run

The checkpoint is a graph of objects. Which matrices are shared is read there;
heads and activation in the description, since shapes do not tell them. Adam's
moments are ignored.
"""

import glob
import math
import pathlib
import re
import typing

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2

from keras_transformer.checkpoints import NAME as CHECKPOINT
from keras_transformer.config import DecodingConfig, TransformerConfig
from keras_transformer.importers.files import (
    check_file,
    named_errors,
    only,
    read_file,
    read_text,
)
from keras_transformer.importers.imported import Imported
from keras_transformer.importers.model_description import read_description
from keras_transformer.importers.options import Options
from keras_transformer.importers.stacks import (
    make_config,
    read_embeddings,
    read_stacks,
    sharing,
    their_path,
)
from keras_transformer.importers.tensors import Tensors
from keras_transformer.importers.vocabularies import Side, make_tokenizers
from keras_transformer.importers.yaml_files import read_options
from keras_transformer.permutation import from_blocks, reorder
from keras_transformer.refusals import expect

DESCRIPTION = "model_description.py"
GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
SLOTS = ".OPTIMIZER_SLOT"
MAX_INDEX = 16 << 20  # bytes
LAYER_NORM_EPSILON = 1e-3  # the default of Keras' LayerNormalization
MAX_LENGTH = 512  # tokens of a source: the model itself has no limit
BEAM_SIZE = 4  # as in the automatic configuration of such a model
# Options of the search without a counterpart here.
NOT_SUPPORTED = {
    "coverage_penalty": 0.0,
    "replace_unknown_target": False,
    "sampling_topk": 1,  # the most probable token: beam search
    "sampling_temperature": 1.0,
    "maximum_decoding_length": 250,
}
# Ids of OpenNMT-tf: PAD, BOS and EOS as here; UNK is the last.
SPECIAL = ("<blank>", "<s>", "</s>")
UNKNOWN = "<unk>"
SINUSOIDS = (
    "layers.SinusoidalPositionEncoder",
    "position.SinusoidalPositionEncoder",
)
# Paths of objects in a checkpoint.
INPUTTER = "model/examples_inputter"
EMBEDDINGS = {
    "source": f"{INPUTTER}/features_inputter/embedding",
    "target": f"{INPUTTER}/labels_inputter/embedding",
}
OUTPUT = "model/decoder/output_layer"
FIRST = "model/encoder/layers/0"
# Its names of the parts of a path.
NAMES = {
    "self_attention": "self_attention/layer",
    "cross_attention": "attention/0/layer",
    "feed_forward": "ffn/layer",
    "query": "linear_queries",
    "key": "linear_keys",
    "value": "linear_values",
    "output": "linear_output",
    "relative_keys": "relative_position_keys",
    "relative_values": "relative_position_values",
    "self_attention_residual": "self_attention",
    "cross_attention_residual": "attention/0",
    "feed_forward_residual": "ffn",
    "norm": "output_layer_norm",
    "final_norm": "layer_norm",
}
ACTIVATIONS = {
    "nn.relu": "relu",
    "nn.swish": "swish",
    "nn.silu": "swish",
    "nn.gelu": "gelu",
    "layers.gelu": "gelu_tanh",
    "common.gelu": "gelu_tanh",
}


def recognizes(directory: pathlib.Path) -> bool:
    """Whether a directory holds a run of OpenNMT-tf, or a part of one."""
    has_checkpoint = any(directory.glob("*.index"))
    return has_checkpoint and _find_description(directory).is_file()


def _folders(directory: pathlib.Path) -> list[pathlib.Path]:
    """A directory and the two above it: `run/avg` belongs to `run`."""
    return [directory, *directory.absolute().parents[:2]]


def read(directory: pathlib.Path) -> Imported:
    """The model of a run: see `keras_transformer.importers`."""
    checkpoint = _Checkpoint(_find_checkpoint(directory))
    run = _read_run(directory)
    model = read_description(_find_description(directory))
    sides = [_read_side(run, name) for name in ("source", "target")]
    config = _read_config(checkpoint, model, run, sides)
    return Imported(
        config=config,
        weights=_read_weights(checkpoint, config, sides),
        tokenizer=make_tokenizers(sides),
        decoding=_read_decoding(run),
        max_length=MAX_LENGTH,
        notes=[
            f"{name} of the run is not supported: ignored"
            for name, default in NOT_SUPPORTED.items()
            if run.params.get(name, default) != default
        ],
    )


# The checkpoint


class _Checkpoint:
    """The weights of a checkpoint by the path of attributes to them.

    A variable has one key in the file, whatever the number of paths to it, and
    TensorFlow chooses which of them is the key: so it is looked up. The prefix
    is the checkpoint without its ending.
    """

    def __init__(self, prefix: str):
        arrays = _read_arrays(prefix)
        graph = trackable_object_graph_pb2.TrackableObjectGraph()
        with named_errors(prefix, "corrupt graph of objects: "):
            graph.ParseFromString(arrays.pop(GRAPH, b""))
        if not graph.nodes or not arrays:
            raise ValueError(
                f"{prefix}: expected a checkpoint of OpenNMT-tf 2, with model/"
                " in it; version 1 cannot be imported"
            )
        self.prefix = prefix
        self.tensors = Tensors(arrays, prefix)
        self._nodes = graph.nodes

    def find(self, path: str) -> str | None:
        """The key of a variable, or None if there is none at this path."""
        node = self._node(path)
        if node is None or not node.attributes:
            return None
        return node.attributes[0].checkpoint_key

    def count(self, path: str) -> int:
        """The length of a list."""
        node = self._node(path)
        children = [] if node is None else node.children
        return sum(child.local_name.isdecimal() for child in children)

    def take(self, path: str, shape: typing.Sequence[int]) -> np.ndarray:
        """Removes a variable and returns it."""
        return self.tensors.take(self.find(path) or path, shape)

    def shape(self, path: str) -> tuple[int, int]:
        """The shape of a matrix."""
        return self.tensors.matrix_shape(self.find(path) or path)

    def _node(self, path: str):
        """The object at a path of attributes from the root."""
        node = self._nodes[0]
        for name in path.split("/"):
            ids = [c.node_id for c in node.children if c.local_name == name]
            if not ids or not 0 <= ids[0] < len(self._nodes):
                return None
            node = self._nodes[ids[0]]
        return node


def _read_arrays(prefix: str) -> dict[str, np.ndarray]:
    """The weights of a checkpoint by key, and its graph of objects.

    Files that TensorFlow would wait for, or read without end, are refused.
    """
    index = pathlib.Path(f"{prefix}.index")
    check_file(index, MAX_INDEX)
    name = glob.escape(index.stem)
    size = sum(map(check_file, index.parent.glob(f"{name}.data-*")))
    with named_errors(prefix, "corrupt checkpoint: "):
        reader = tf.train.load_checkpoint(prefix)
        types = reader.get_variable_to_dtype_map()
        shapes = reader.get_variable_to_shape_map()
        total = sum(types[n].size * math.prod(shapes[n]) for n in shapes)
        if total > size:  # several tensors are the same bytes
            raise ValueError(f"{total} bytes of tensors in {size}")
        return {
            name: reader.get_tensor(name)  # compares its checksum
            for name in shapes
            if name == GRAPH
            or (name.startswith("model/") and SLOTS not in name)
        }


def _find_checkpoint(directory: pathlib.Path) -> str:
    """The prefix of the newest checkpoint in a directory."""
    names = [path.stem for path in directory.glob("ckpt-*.index")]
    steps = [int(name[5:]) for name in names if re.fullmatch(CHECKPOINT, name)]
    expect(steps, "a checkpoint, such as ckpt-5000.index", where=directory)
    return str(directory / f"ckpt-{max(steps)}")


# The files beside it


class _Run(typing.NamedTuple):
    """The configuration of a run: where its files may be, and its sections."""

    folders: list[pathlib.Path]
    data: Options
    params: Options


def _read_run(directory: pathlib.Path) -> _Run:
    """The configuration that is nearest: here, or above."""
    for folder in _folders(directory):
        paths = [
            path
            for path in sorted([*folder.glob("*.yml"), *folder.glob("*.yaml")])
            if isinstance(read_options(path).get("data"), dict)
        ]
        if paths:
            path = only(paths, f"one .yml with a section `data` in {folder}")
            sections = Options(read_options(path), path)
            data, params = map(sections.section, ("data", "params"))
            return _Run([folder, *_folders(directory)], data, params)
    raise ValueError(
        f"{directory}: expected the run's configuration (data.yml), which names"
        " the vocabularies and the tokenization, here or above"
    )


def _find_file(run: _Run, name: str) -> pathlib.Path:
    """A file that the configuration names, relative to one of its folders."""
    for folder in run.folders:
        for path in (folder / name, folder / pathlib.PurePath(name).name):
            if path.is_file():
                return path
    raise ValueError(f"{run.data.path}: there is no {name}")


def _find_description(directory: pathlib.Path) -> pathlib.Path:
    """The path of the nearest description of a model."""
    paths = [folder / DESCRIPTION for folder in _folders(directory)]
    return next((path for path in paths if path.is_file()), paths[0])


def _read_side(run: _Run, name: str) -> Side:
    """The vocabulary of one side, and the SentencePiece model it is of."""
    path = _find_file(run, run.data.need(f"{name}_vocabulary", str))
    pieces = read_text(path).removesuffix("\n").split("\n")
    if tuple(pieces[: len(SPECIAL)]) != SPECIAL:
        raise ValueError(
            f"{path}: expected a vocabulary that begins with the lines"
            f" {', '.join(SPECIAL)}. Received: {', '.join(pieces[:3])}"
        )
    if len({*pieces, UNKNOWN}) <= len(pieces):
        raise ValueError(
            f"{path}: a line occurs twice, or is {UNKNOWN}, which OpenNMT-tf"
            " adds itself"
        )
    first = len(SPECIAL)
    table = [*SPECIAL, UNKNOWN, *pieces[first:]]
    ids = [*range(first), len(pieces), *range(first, len(pieces))]
    model = _find_subwords(run, name)
    return Side(table, ids, read_file(model), model)


def _find_subwords(run: _Run, name: str) -> pathlib.Path:
    """The SentencePiece model of one side, as its tokenization names it."""
    tokenization = run.data.section(f"{name}_tokenization")
    kind = tokenization.get("type", "OpenNMTTokenizer")
    params = tokenization
    if "type" in tokenization:
        params = tokenization.section("params")
    key = "model" if kind == "SentencePieceTokenizer" else "sp_model_path"
    is_known = kind == "SentencePieceTokenizer" or (
        kind == "OpenNMTTokenizer" and params.get("mode", "") == "none"
    )
    if is_known and key in params:
        return _find_file(run, params.need(key, str))
    run.data.refuse(
        f"{name}_tokenization",
        "expected a SentencePieceTokenizer, or an OpenNMTTokenizer with mode:"
        " none and an sp_model_path; words and BPE need their own tokenizer",
    )


# The model


def _read_config(
    checkpoint: _Checkpoint, model: Options, run: _Run, sides: list[Side]
) -> TransformerConfig:
    """The `TransformerConfig`, from shapes and the description."""
    attention = f"{FIRST}/self_attention/layer"
    inner = f"{FIRST}/ffn/layer/inner/kernel"
    if checkpoint.find(inner) is None:
        raise ValueError(
            f"{checkpoint.prefix}: expected a Transformer with one source"
        )
    _, d_model = checkpoint.shape(EMBEDDINGS["target"])
    relative = f"{attention}/relative_position_keys"
    has_relative = checkpoint.find(relative) is not None
    encoder = model.get("position_encoder_class", "")
    if encoder and encoder not in SINUSOIDS:
        model.refuse("position_encoder_class", f"expected {SINUSOIDS[0]}")
    if bool(encoder) == has_relative:
        model.refuse(
            "position_encoder_class",
            "expected sinusoids or relative positions, and not both",
        )
    activation = ACTIVATIONS.get(model.need("ffn_activation", str))
    if activation is None:
        model.refuse("ffn_activation", f"expected {', '.join(ACTIVATIONS)}")
    positions = {"sinusoids": "t2t", "first_position": 1}
    if has_relative:
        distance = checkpoint.shape(relative)[0] // 2
        positions = {"positions": "relative", "max_relative_position": distance}
    # One variable has one key.
    source, target = map(checkpoint.find, EMBEDDINGS.values())
    tied = checkpoint.find(f"{OUTPUT}/kernel") in (None, target)
    return make_config(
        checkpoint.prefix,
        sides,
        d_model=d_model,
        d_ff=checkpoint.shape(inner)[1],
        num_heads=model.need("num_heads", int),
        num_layers=checkpoint.count("model/encoder/layers"),
        num_decoder_layers=checkpoint.count("model/decoder/layers"),
        dropout=run.params.get("dropout", model.need("dropout", float)),
        attention_dropout=model.need("attention_dropout", float),
        activation_dropout=model.need("ffn_dropout", float),
        pre_norm=checkpoint.find("model/encoder/layer_norm/gamma") is not None,
        activation=activation,
        attention_bias=checkpoint.find(f"{attention}/linear_queries/bias")
        is not None,
        layer_norm_epsilon=LAYER_NORM_EPSILON,
        share_embeddings=sharing(inputs=source == target, softmax=tied),
        logits_bias=checkpoint.find(f"{OUTPUT}/bias") is not None,
        source_eos=_ends_source(model, run),
        **positions,
    )


def _ends_source(model: Options, run: _Run) -> bool:
    """Whether EOS ends the source, which it does not if nothing says so."""
    name = "source_sequence_controls"
    controls = run.data.section(name)
    if controls.get("start", False):
        run.data.refuse(name, "it begins with <s>")
    default = model.need("source_eos", bool) and not run.data.get(name, {})
    return controls.get("end", default)


def _read_weights(
    checkpoint: _Checkpoint, config: TransformerConfig, sides: list[Side]
) -> dict[str, np.ndarray]:
    """The weights by path."""

    names = NAMES | ({"norm": "input_layer_norm"} if config.pre_norm else {})

    def read(path: str, shape: tuple[int, ...]) -> np.ndarray:
        return checkpoint.take(f"model/{their_path(path, names)}", shape)

    def read_rows(name: str, shape: tuple[int, ...]) -> np.ndarray:
        if name == "softmax":
            return checkpoint.take(f"{OUTPUT}/kernel", shape[::-1]).T
        return checkpoint.take(EMBEDDINGS.get(name, f"{OUTPUT}/bias"), shape)

    weights = read_embeddings(config, sides, read_rows)
    weights |= read_stacks(config, read)
    checkpoint.tensors.close()
    if config.positions == "sinusoidal":
        weights = reorder(weights, from_blocks(config.d_model))
    return weights


# Search


def _read_decoding(run: _Run) -> DecodingConfig:
    """The search, as the configuration has it; there EOS does not count."""
    minimum = run.params.get("minimum_decoding_length", 0)
    return DecodingConfig(
        beam_size=run.params.get("beam_width", BEAM_SIZE),
        length_penalty=run.params.get("length_penalty", 0.0),
        stopping="opennmt_tf",
        min_length=minimum + 1 if minimum else 0,
    )
