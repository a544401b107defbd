"""Imports a run of OpenNMT-tf 2: checkpoint, options, vocabularies.

    ckpt-5000.index, ...    the newest checkpoint, in the run or its `avg`
    data.yml                the run's configuration, of any name, here or in a
                            directory above: vocabularies, tokenization, search
    model_description.py    the model's definition: read, but never run

The checkpoint is a graph of objects, which shows the shared matrices. The
number of heads and the activation are read from the description, since no shape
shows them. Adam's moments are ignored.
"""

import glob
import math
import pathlib
import re
import typing

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2

from keras_transformer.base import foreign_files as files
from keras_transformer.base.refusals import expect
from keras_transformer.config import DecodingConfig, TransformerConfig
from keras_transformer.importers import stacks, vocabularies
from keras_transformer.importers.imported import Imported
from keras_transformer.importers.model_description import read_description
from keras_transformer.importers.options import Options
from keras_transformer.importers.tensors import Tensors
from keras_transformer.storage.checkpoints import NAME as CHECKPOINT
from keras_transformer.storage.yaml_files import read_options

DESCRIPTION = "model_description.py"
GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
SLOTS = ".OPTIMIZER_SLOT"
MAX_INDEX = 16 << 20  # bytes
LAYER_NORM_EPSILON = 1e-3  # the default of Keras' LayerNormalization
MAX_LENGTH = 512  # tokens of a source: the model itself has no limit
BEAM_SIZE = 4  # as in OpenNMT-tf's automatic configuration
# Search options without a counterpart here, with their defaults.
NOT_SUPPORTED = {
    "coverage_penalty": 0.0,
    "replace_unknown_target": False,
    "sampling_topk": 1,  # the most probable token: beam search
    "sampling_temperature": 1.0,
    "maximum_decoding_length": 250,
}
# OpenNMT-tf's ids of PAD, BOS and EOS are ours. UNK has the last id.
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
# OpenNMT-tf's names of the parts of a path.
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


def recognizes(directory: pathlib.Path) -> bool:
    """Returns whether a directory holds a run of OpenNMT-tf or its `avg`."""
    has_checkpoint = any(directory.glob("*.index"))
    return has_checkpoint and _find_description(directory).is_file()


def _folders(directory: pathlib.Path) -> list[pathlib.Path]:
    """Returns a directory and the two above it: `run/avg` belongs to `run`."""
    return [directory, *directory.absolute().parents[:2]]


def read(directory: pathlib.Path) -> Imported:
    """Reads the model of a run. See `keras_transformer.importers`."""
    checkpoint = _Checkpoint(_find_checkpoint(directory))
    run = _read_run(directory)
    model = read_description(_find_description(directory))
    sides = [_read_side(run, name) for name in stacks.SIDES]
    config = _read_config(checkpoint, model, run, sides)
    return Imported(
        config=config,
        weights=_read_weights(checkpoint, config, sides),
        tokenizer=vocabularies.make_tokenizers(sides),
        decoding=_read_decoding(run),
        max_length=MAX_LENGTH,
        notes=[
            f"{name} of the run is not supported: ignored"
            for name, default in NOT_SUPPORTED.items()
            if run.params.get(name, default) != default
        ],
    )


class _Checkpoint:
    """The weights of a checkpoint, found by paths of attributes.

    A variable has one key in the file, even if several paths lead to it.
    TensorFlow chooses the key, so it is looked up in the graph. `prefix` is the
    path of the checkpoint without a suffix.
    """

    def __init__(self, prefix: str):
        arrays = _read_arrays(prefix)
        graph = trackable_object_graph_pb2.TrackableObjectGraph()
        with files.named_errors(prefix, "corrupt graph of objects: "):
            graph.ParseFromString(arrays.pop(GRAPH, b""))
        expect(
            graph.nodes and arrays,
            "a checkpoint of OpenNMT-tf 2, with model/ in it; version 1 cannot"
            " be imported",
            where=prefix,
        )
        self.prefix = prefix
        self.tensors = Tensors(arrays, prefix)
        self._nodes = graph.nodes

    def find(self, path: str) -> str | None:
        """Returns the key of the variable at a path, or None."""
        node = self._node(path)
        if node is None or not node.attributes:
            return None
        return node.attributes[0].checkpoint_key

    def count(self, path: str) -> int:
        """Returns the length of the list at a path, 0 if there is none."""
        node = self._node(path)
        children = [] if node is None else node.children
        return sum(child.local_name.isdecimal() for child in children)

    def take(self, path: str, shape: typing.Sequence[int]) -> np.ndarray:
        """Removes and returns the variable at a path; see `Tensors.take`."""
        return self.tensors.take(self.find(path) or path, shape)

    def shape(self, path: str) -> tuple[int, int]:
        """Returns the shape of the matrix at a path."""
        return self.tensors.matrix_shape(self.find(path) or path)

    def _node(self, path: str):
        """Finds the object at a path of attributes from the root, or None."""
        node = self._nodes[0]
        for name in path.split("/"):
            ids = [c.node_id for c in node.children if c.local_name == name]
            if not ids or not 0 <= ids[0] < len(self._nodes):
                return None
            node = self._nodes[ids[0]]
        return node


def _read_arrays(prefix: str) -> dict[str, np.ndarray]:
    """Reads the weights of a checkpoint and its graph of objects, by key.

    Refuses special files, such as pipes, and files that are too large.
    """
    index = pathlib.Path(f"{prefix}.index")
    files.check_file(index, MAX_INDEX)
    name = glob.escape(index.stem)
    size = sum(map(files.check_file, index.parent.glob(f"{name}.data-*")))
    with files.named_errors(prefix, "corrupt checkpoint: "):
        reader = tf.train.load_checkpoint(prefix)
        types = reader.get_variable_to_dtype_map()
        shapes = reader.get_variable_to_shape_map()
        total = sum(types[n].size * math.prod(shapes[n]) for n in shapes)
        # The total is larger only if several tensors have the same bytes.
        expect(total <= size, f"at most {size} bytes of tensors", total)
        return {
            name: reader.get_tensor(name)  # checks its checksum
            for name in shapes
            if name == GRAPH
            or (name.startswith("model/") and SLOTS not in name)
        }


def _find_checkpoint(directory: pathlib.Path) -> str:
    """Finds the prefix of the newest checkpoint in a directory."""
    names = [path.stem for path in directory.glob("ckpt-*.index")]
    steps = [int(name[5:]) for name in names if re.fullmatch(CHECKPOINT, name)]
    expect(steps, "a checkpoint, such as ckpt-5000.index", where=directory)
    return str(directory / f"ckpt-{max(steps)}")


class _Run(typing.NamedTuple):
    """The configuration of a run: two sections, and folders of its files."""

    folders: list[pathlib.Path]
    data: Options
    params: Options


def _read_run(directory: pathlib.Path) -> _Run:
    """Reads the nearest configuration, in the directory or above it."""
    for folder in _folders(directory):
        paths = [
            path
            for path in sorted([*folder.glob("*.yml"), *folder.glob("*.yaml")])
            if isinstance(read_options(path).get("data"), dict)
        ]
        if paths:
            path = files.only(
                paths, f"one .yml with a section `data` in {folder}"
            )
            sections = Options(read_options(path), path)
            data, params = map(sections.section, ("data", "params"))
            return _Run([folder, *_folders(directory)], data, params)
    raise ValueError(
        f"{directory}: expected the run's configuration (data.yml), which names"
        " the vocabularies and the tokenization, here or above"
    )


def _find_file(run: _Run, name: str) -> pathlib.Path:
    """Finds a file that the configuration names, in the run's folders."""
    for folder in run.folders:
        for path in (folder / name, folder / pathlib.PurePath(name).name):
            if path.is_file():
                return path
    raise ValueError(f"{run.data.path}: there is no {name}")


def _find_description(directory: pathlib.Path) -> pathlib.Path:
    paths = [folder / DESCRIPTION for folder in _folders(directory)]
    return next((path for path in paths if path.is_file()), paths[0])


def _read_side(run: _Run, name: str) -> vocabularies.Side:
    """Reads the vocabulary of one side and its SentencePiece model."""
    path = _find_file(run, run.data.need(f"{name}_vocabulary", str))
    pieces, first = (
        files.read_text(path).removesuffix("\n").split("\n"),
        len(SPECIAL),
    )
    expect(
        tuple(pieces[:first]) == SPECIAL,
        f"a vocabulary that begins with the lines {', '.join(SPECIAL)}",
        ", ".join(pieces[:first]),
        where=path,
    )
    expect(
        len({*pieces, UNKNOWN}) > len(pieces),
        f"each line once, and no {UNKNOWN}, which OpenNMT-tf adds itself",
        where=path,
    )
    table = [*SPECIAL, UNKNOWN, *pieces[first:]]
    ids = [*range(first), len(pieces), *range(first, len(pieces))]
    model = _find_subwords(run, name)
    return vocabularies.Side(table, ids, files.read_file(model), model)


def _find_subwords(run: _Run, name: str) -> pathlib.Path:
    """Finds the SentencePiece model named in the tokenization of a side."""
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


def _read_config(
    checkpoint: _Checkpoint,
    model: Options,
    run: _Run,
    sides: list[vocabularies.Side],
) -> TransformerConfig:
    """Makes the configuration from shapes and the description."""
    attention = f"{FIRST}/self_attention/layer"
    inner = f"{FIRST}/ffn/layer/inner/kernel"
    has_stack = checkpoint.find(inner) is not None
    kind = "a Transformer with one source"
    expect(has_stack, kind, where=checkpoint.prefix)
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
    activation = model.need("ffn_activation", str).removeprefix("nn.")
    if activation not in stacks.ACTIVATIONS:
        model.refuse("ffn_activation", "expected ReLU, Swish or GELU")
    positions = {"sinusoids": "t2t", "first_position": 1}
    if has_relative:
        distance = checkpoint.shape(relative)[0] // 2
        positions = {"positions": "relative", "max_relative_position": distance}
    # Shared variables have the same key.
    source, target = map(checkpoint.find, EMBEDDINGS.values())
    tied = checkpoint.find(f"{OUTPUT}/kernel") in (None, target)
    return stacks.make_config(
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
        activation=stacks.ACTIVATIONS[activation],
        attention_bias=checkpoint.find(f"{attention}/linear_queries/bias")
        is not None,
        layer_norm_epsilon=LAYER_NORM_EPSILON,
        share_embeddings=stacks.sharing(inputs=source == target, softmax=tied),
        logits_bias=checkpoint.find(f"{OUTPUT}/bias") is not None,
        source_eos=_ends_source(model, run),
        **positions,
    )


def _ends_source(model: Options, run: _Run) -> bool:
    """Returns whether EOS ends the source.

    Raises ValueError if the source begins with <s>.
    """
    name = "source_sequence_controls"
    controls = run.data.section(name)
    if controls.get("start", False):
        run.data.refuse(name, "it begins with <s>")
    default = model.need("source_eos", bool) and not run.data.get(name, {})
    return controls.get("end", default)


def _read_weights(
    checkpoint: _Checkpoint,
    config: TransformerConfig,
    sides: list[vocabularies.Side],
) -> dict[str, np.ndarray]:
    names = NAMES | ({"norm": "input_layer_norm"} if config.pre_norm else {})

    def read(path: str, shape: tuple[int, ...]) -> np.ndarray:
        return checkpoint.take(f"model/{stacks.their_path(path, names)}", shape)

    def read_rows(name: str, shape: tuple[int, ...]) -> np.ndarray:
        if name == "softmax":
            return checkpoint.take(f"{OUTPUT}/kernel", shape[::-1]).T
        return checkpoint.take(EMBEDDINGS.get(name, f"{OUTPUT}/bias"), shape)

    weights = stacks.read_embeddings(config, sides, read_rows)
    weights |= stacks.read_stacks(config, read)
    return stacks.finish(config, weights, checkpoint.tensors)


def _read_decoding(run: _Run) -> DecodingConfig:
    """Reads the search options. Their minimum length does not include EOS."""
    minimum = run.params.get("minimum_decoding_length", 0)
    return DecodingConfig(
        beam_size=run.params.get("beam_width", BEAM_SIZE),
        length_penalty=run.params.get("length_penalty", 0.0),
        stopping="opennmt_tf",
        min_length=minimum + 1 if minimum else 0,
    )
