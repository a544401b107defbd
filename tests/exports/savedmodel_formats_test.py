"""TFLite, ONNX and CTranslate2: the translator's answer, without TensorFlow."""

import functools
import importlib
import inspect
import itertools
import json
import logging
import pathlib
import shutil
import subprocess
import sys
import types

import exports
import numpy as np
import onnx.parser
import onnxruntime
import pytest
from commands import run_python
from later import later
from tolerance import assert_close

import keras_transformer as kt
from keras_transformer.commands.flags import CommandError
from keras_transformer.text import signs
from keras_transformer.text.vocabulary import EOS, PAD
from keras_transformer.translation.requests import read_text
from savedmodel import (
    export,
    formats,
    onnx_rewrites,
    reload,
    saved_model,
    verify,
)

LINES = list(exports.SENTENCES)
OTHER_FORMATS = ("tflite", "onnx", "ctranslate2")
QUANTIZED = [
    param
    for name in OTHER_FORMATS
    for precision in formats.FORMATS[name].precisions
    if precision != "float32"
    for param in (
        [(name, precision)]
        if name != "tflite"
        else later("format", (name, precision))
    )
]


@functools.cache
def loaded(format_name, beam_size, precision="float32"):
    """Returns the export's translate function, in this process."""
    if precision == "float32":
        directory, _ = exports.exported(format_name)
    else:
        directory = exports.quantized(format_name, precision)
    description = verify.read_description(directory)
    description["decoding"]["beam_size"] = beam_size
    directory = reload.find_export(directory)
    return reload.load(directory, description)


@functools.cache
def expected(beam_size):
    """Returns the translator's hypotheses. Each beam size is another graph."""
    return exports.translator().with_decoding(beam_size=beam_size).n_best(LINES)


# ---- The contract of every format --------------------------------------------


@pytest.mark.parametrize("format_name", formats.FORMATS)
def test_a_format_keeps_the_contract(format_name):
    write = formats.load_exporter(format_name).write
    arguments = ", ".join(inspect.signature(write).parameters)
    assert f"write({arguments})" in formats.__doc__
    loader = importlib.import_module(f"savedmodel.reload.{format_name}")
    assert [*inspect.signature(loader.load).parameters] == [
        "directory",
        "description",
    ]
    assert f"\n{format_name} " in f"\n{formats.describe()}"
    first = "int8" if formats.FORMATS[format_name].is_workdir else "float32"
    assert formats.FORMATS[format_name].precisions[0] == first


STUB = """
import os

class saved_model:
    def load(path):
        print(os.environ["TF_NUM_INTRAOP_THREADS"])
        raise SystemExit
"""


@pytest.mark.parametrize("own", [None, "3"])
def test_a_saved_model_has_one_thread_within_an_operation(
    own, tmp_path, monkeypatch
):
    """Set before TensorFlow, which a stub stands for, is imported."""
    (tmp_path / "tensorflow.py").write_text(STUB)
    (tmp_path / "tensorflow_text.py").touch()
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    environment = {"TF_NUM_INTRAOP_THREADS": own} if own else {}
    folder = str(pathlib.Path(reload.__file__).parents[1])
    code = f"import sys; sys.path.append({folder!r}); import reload"
    code += "; reload.load('', {'format': 'saved_model'})"
    found = run_python("-c", code, PYTHONPATH=str(tmp_path), **environment)
    assert found == f"{own or 1}\n"


@pytest.mark.parametrize("name", ["reload-1.0", "json", "ctranslate2"])
def test_the_folder_that_runs_exports_may_have_any_name(name, tmp_path):
    folder = tmp_path / name
    shutil.copytree(pathlib.Path(reload.__file__).parent, folder)
    found = subprocess.run(
        [sys.executable, "-I", folder, tmp_path],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert "ValueError: expected an export" in found.stderr


@pytest.mark.parametrize(
    "format_name", ["saved_model", *later("format", *OTHER_FORMATS)]
)
def test_an_export_warns_of_nothing(format_name):
    directory, _ = exports.exported(format_name)
    assert directory.with_suffix(".warned").read_text() == ""


@pytest.mark.parametrize("format_name", ("saved_model", *OTHER_FORMATS))
def test_an_export_describes_itself(format_name):
    directory = reload.find_export(exports.exported(format_name)[0])
    description = verify.read_description(directory)
    translator = exports.translator()
    assert description["format"] == format_name
    assert description["source_language"] == "en"
    assert description["target_language"] == "de"
    assert description["max_source_length"] == exports.MAX_SOURCE_LENGTH
    assert description["vocab_size"] == translator.tokenizer.vocab_size
    ids = {"pad": 0, "bos": 1, "eos": 2, "unk": 3}
    assert description["special_ids"] == ids
    assert description["decoding"] == {
        "beam_size": 3,
        "length_penalty": 0.6,
        "length_normalization": "wu",
        "stopping": "transformers",
        "extra_length": 6,
        "max_output_length": None,
        "min_length": 0,
        "no_repeat_ngram": 0,
        "alignment_layer": None,
        "alignment_head": 0,
    }
    assert description["checkpoint"] == "averaged/ckpt-3"  # it may be moved
    assert description["checkpoint_warnings"] == []
    packages = {"saved_model": "tensorflow", "tflite": "ai-edge-litert"}
    assert packages.get(format_name, format_name) in description["versions"]
    assert description["verification"].startswith("passed: 4 of 4")
    files = {
        path.relative_to(directory).as_posix()
        for path in directory.rglob("*")
        if path.is_file()
    }
    assert set(description["sha256"]) == files - {"export.json"}
    if format_name != "saved_model":  # which has it inside
        tokenizer = directory / "tokenizer.model"
        assert tokenizer.read_bytes() == translator.tokenizer.model_bytes


# ---- Answers -----------------------------------------------------------------


@pytest.mark.parametrize(
    "format_name, beam_size",
    [
        *later("options", ("tflite", 1)),
        *(("tflite", 3), ("onnx", 3), ("ctranslate2", 1)),
    ],
)
def test_text_and_score_are_the_translators(format_name, beam_size):
    found = loaded(format_name, beam_size)(LINES)
    for result, hypotheses in zip(found, expected(beam_size), strict=True):
        text, score = hypotheses[0]
        assert result["text"] == text
        assert result["score"] == pytest.approx(score, rel=1e-3, abs=1e-4)
    limit = exports.MAX_SOURCE_LENGTH
    rows = exports.translator().tokenizer.encode(LINES)
    too_long = [length > limit for length in rows.row_lengths().numpy()]
    assert [result["truncated"] for result in found] == too_long
    assert any(too_long) and not all(too_long)


@pytest.mark.parametrize("format_name", ("saved_model", *OTHER_FORMATS))
def test_an_answer_does_not_depend_on_the_company(format_name):
    translate = loaded(format_name, 3)
    assert list(translate([])) == []
    together = [result["ids"] for result in translate(LINES)]
    backwards = [result["ids"] for result in translate(LINES[::-1])]
    assert together == backwards[::-1]
    if format_name != "tflite":  # whose batches are one sentence each
        alone = [translate([line])[0]["ids"] for line in LINES]
        assert alone == together


def number_of_equal_texts(format_name, beam_size, precision="float32"):
    found = loaded(format_name, beam_size, precision)(LINES)
    return sum(
        result["text"] == hypotheses[0][0]
        for result, hypotheses in zip(found, expected(beam_size), strict=True)
    )


@pytest.mark.parametrize("beam_size", [4, *later("options", 2)])
def test_ctranslate2_beams_find_much_the_same(beam_size):
    assert number_of_equal_texts("ctranslate2", beam_size) >= len(LINES) - 2


@pytest.mark.parametrize("normalization", ["wu", *later("options", "power")])
def test_ctranslate2_ranks_hypotheses_by_our_scores(normalization):
    """A search that ends as CTranslate2's has the same answers."""
    search = {
        "beam_size": 3,
        "length_penalty": 4.0,
        "length_normalization": normalization,
    }
    directory, _ = exports.exported("ctranslate2")
    description = verify.read_description(directory)
    description["decoding"] |= search
    found = reload.load(directory, description)(LINES)
    ours = exports.translator().with_decoding(stopping="fairseq", **search)
    for result, [(ids, score), *_] in zip(
        found, ours.n_best_ids(LINES), strict=True
    ):
        assert result["ids"] == ids
        assert result["score"] == pytest.approx(score, abs=1e-4)


def test_ctranslate2_is_told_our_limits():
    """EOS counts in ours; the greatest length is that of each source."""
    directory, _ = exports.exported("ctranslate2")

    def ids(lines, **limits):
        description = verify.read_description(directory)
        description["decoding"] |= {"beam_size": 1, **limits}
        translate = reload.load(directory, description)
        return [result["ids"] for result in translate(lines)]

    [best] = ids(["tree"])
    assert best[-1] == EOS
    assert ids(["tree"], min_length=len(best)) == [best]
    [longer] = ids(["tree"], min_length=len(best) + 1)
    assert len(longer) > len(best)
    sources = exports.translator().tokenizer.encode(LINES).to_list()
    limits = [min(len(row), exports.MAX_SOURCE_LENGTH) - 1 for row in sources]
    found = ids(LINES, extra_length=0)
    truncated = [row for row in found if row and row[-1] != EOS]
    lengths = [len(row) for row in found]
    assert truncated and all(map(int.__le__, lengths, limits))
    assert any(len(row) in limits for row in truncated)


@pytest.mark.parametrize("format_name, precision", QUANTIZED)
def test_quantized_weights_take_less_and_translate(format_name, precision):
    beam_size = 3 if format_name == "onnx" else 1  # onnx has the one beam
    same = number_of_equal_texts(format_name, beam_size, precision)
    # int8 moves near ties, and the weights depend on the CPU's kernels.
    assert same >= len(LINES) // 2
    suffix = {"ctranslate2": "bin"}.get(format_name, format_name)
    full = exports.exported(format_name)[0] / f"model.{suffix}"
    small = exports.quantized(format_name, precision) / full.name
    assert weight_bytes(small) < 0.9 * weight_bytes(full)


@pytest.mark.slow("format")
@pytest.mark.parametrize(
    "precision, kind", [("int8", np.int8), ("float16", np.float16)]
)
def test_tflite_stores_weights_in_the_precision(precision, kind):
    from ai_edge_litert.interpreter import Interpreter

    path = exports.quantized("tflite", precision) / "model.tflite"
    details = Interpreter(str(path)).get_tensor_details()
    kinds = {tensor["dtype"] for tensor in details}
    assert kinds & {np.float16, np.int8} == {kind}


def test_int8_weights_of_onnx_have_seven_bits():
    """With eight, sums overflow on CPUs without VNNI, unseen by tests."""
    path = exports.quantized("onnx", "int8") / "model.onnx"
    graph = onnx.load(str(path)).graph
    weights = [
        onnx.numpy_helper.to_array(tensor).astype(int)
        for tensor in graph.initializer
        if tensor.data_type == onnx.TensorProto.INT8 and len(tensor.dims) == 2
    ]
    greatest = [abs(weight).max() for weight in weights]
    assert greatest and max(greatest) in (63, 64)


def weight_bytes(path):
    """Returns the size of a file, or of ONNX weights: the graph is larger."""
    if path.suffix == ".onnx":
        graph = onnx.load(str(path)).graph
        return sum(len(tensor.raw_data) for tensor in graph.initializer)
    return path.stat().st_size


def test_only_the_onnx_quantizer_is_silenced(tmp_path, monkeypatch):
    """It warns of everything that it leaves in float32."""
    exporter, log = formats.load_exporter("onnx"), logging.getLogger()
    levels = []

    def quantize(model, path, **options):
        levels.append(log.level)
        onnx.save(model, path)

    monkeypatch.setattr(exporter.quantization, "quantize_dynamic", quantize)
    before = log.level
    exporter._quantize(onnx.ModelProto(), tmp_path)
    assert levels == [logging.ERROR] != [before]
    assert log.level == before


def test_ctranslate2_says_what_it_computes_in():
    import ctranslate2

    supported = ctranslate2.get_supported_compute_types("cpu")
    for precision in ("float32", "float16", "int16", "int8"):
        computed_in = loaded("ctranslate2", 1, precision).computed_in
        assert computed_in in supported
        if precision in supported and precision.startswith("float"):
            assert computed_in == precision
    _, printed = exports.exported("ctranslate2")
    assert "computed in float32" in printed


# ---- Rows of ids from outside ------------------------------------------------


@functools.cache
def onnx_session():
    directory, _ = exports.exported("onnx")
    return onnxruntime.InferenceSession(str(directory / "model.onnx"))


@pytest.mark.parametrize("padding", [PAD, 5, -3, 10**6])
def test_onnx_padding_is_what_follows_eos(padding):
    session, tokenizer = onnx_session(), exports.translator().tokenizer
    rows = tokenizer.encode([read_text(tokenizer, s).text for s in LINES])
    rows = rows.to_tensor(PAD, shape=[None, 90]).numpy()  # wider than all
    ended = np.cumsum(rows == EOS, axis=1) - (rows == EOS) > 0
    names = ["ids", "scores", "truncated"]
    ids, scores, truncated = session.run(
        names, {"source_ids": np.where(ended, np.int32(padding), rows)}
    )
    best = [row[row != PAD].tolist() for row in ids[:, 0]]
    assert best == exports.best_ids(LINES)
    wanted = [hypotheses[0][1] for hypotheses in expected(3)]
    np.testing.assert_allclose(scores[:, 0], wanted, rtol=1e-3)
    limit = exports.MAX_SOURCE_LENGTH
    assert truncated.tolist() == (np.sum(rows != PAD, 1) > limit).tolist()


NO_SOURCES = [[5, -6, EOS], [5, 60, EOS], [5, 6, 7], [5, PAD, EOS]]


def test_onnx_marks_rows_that_are_no_sources():
    session = onnx_session()
    good = np.array([[5, 6, EOS]], np.int32)
    rows = np.concatenate([good, np.array(NO_SOURCES, np.int32)])
    ids, scores, lengths = session.run(
        ["ids", "scores", "lengths"], {"source_ids": rows}
    )
    assert np.isnan(scores).tolist() == [[False] * 3] + [[True] * 3] * 4
    assert not ids[1:].any() and not lengths[1:].any()
    alone = session.run(["ids", "scores"], {"source_ids": good})
    assert_close([ids[:1], scores[:1]], alone)


@pytest.mark.parametrize(
    "source_ids", [np.ones(3, np.int32), np.ones((1, 3), np.int64)]
)
def test_onnx_refuses_another_rank_or_type(source_ids):
    with pytest.raises(Exception, match="source_ids|data type"):
        onnx_session().run(["ids"], {"source_ids": source_ids})


def tflite_search(name):
    from ai_edge_litert.interpreter import Interpreter

    directory, _ = exports.exported("tflite")
    interpreter = Interpreter(str(directory / "model.tflite"))
    return interpreter, interpreter.get_signature_runner(name)


@pytest.mark.parametrize("padding", [PAD, 5, -3])
def test_tflite_padding_is_what_follows_eos(padding):
    _, search = tflite_search("beam")
    [row] = exports.translator().tokenizer.encode(["one dog"]).to_list()
    source_ids = np.full((1, exports.MAX_SOURCE_LENGTH), padding, np.int32)
    source_ids[0, : len(row)] = row
    found = search(source_ids=source_ids)
    best = found["ids"][0, 0]
    assert best[best != PAD].tolist() == exports.best_ids(["one dog"])[0]


def test_tflite_marks_rows_that_are_no_sources():
    _, search = tflite_search("greedy")
    for row in NO_SOURCES:
        source_ids = np.full((1, exports.MAX_SOURCE_LENGTH), row[-1], np.int32)
        if row[-1] == EOS:
            source_ids[:] = PAD
        source_ids[0, :3] = row
        found = search(source_ids=source_ids)
        assert np.isnan(found["scores"]).all()
        assert not found["ids"].any() and not found["lengths"].any()


# ---- The ONNX file -----------------------------------------------------------


def test_onnx_documents_itself():
    directory, _ = exports.exported("onnx")
    model = onnx.load(str(directory / "model.onnx"))
    onnx.checker.check_model(model)

    def axes(value):
        dims = value.type.tensor_type.shape.dim
        return [dim.dim_param or dim.dim_value for dim in dims]

    values = [*model.graph.input, *model.graph.output]
    limit = exports.MAX_SOURCE_LENGTH + exports.DECODING.extra_length
    assert {value.name: axes(value) for value in values} == {
        "source_ids": ["sentences", "source_tokens"],
        "ids": ["sentences", 3, limit],
        "scores": ["sentences", 3],
        "lengths": ["sentences", 3],
        "truncated": ["sentences"],
    }
    assert all(value.doc_string for value in values)
    assert "ONNX Runtime" in model.doc_string
    metadata = onnx_session().get_modelmeta().custom_metadata_map
    assert metadata["target_language"] == "de"
    assert json.loads(metadata["special_ids"])["eos"] == EOS
    assert json.loads(metadata["decoding"])["beam_size"] == 3


def test_the_onnx_loop_holds_what_changes():
    directory, _ = exports.exported("onnx")
    model = onnx.load(str(directory / "model.onnx"))
    [loop] = [n for n in model.graph.node if n.op_type == "Loop"]
    [body] = [a.g for a in loop.attribute if a.name == "body"]
    depth = exports.translator().model.config.decoder_depth
    # No weight is part of the loop's state: index and condition, what the
    # search keeps (six values), and keys, values and lineage.
    assert len(loop.input) <= 2 + 7 + 2 * depth + 1
    # A cache grows by what is added to it.
    kept = {value.name for value in body.output}
    grown = [
        n for n in body.node if n.op_type == "Concat" and set(n.output) & kept
    ]
    assert len(grown) >= 2 * depth
    weights = {t.name for t in model.graph.initializer if len(t.dims) == 2}
    assert sum(
        n.op_type == "MatMul" and n.input[1] in weights for n in body.node
    )


def test_a_loop_without_its_constants_answers_as_before():
    """A loop of its own: a value that changes, and one that does not."""
    model = onnx.parser.parse_model(LOOP)
    inputs = {"weight": np.array(2.0, np.float32)}
    before = run_model(model, inputs)
    assert before == [6.0, 8.0]  # 2 * (0 + 1 + 2), and with the weight
    assert onnx_rewrites.hoist_constants(model) == 1
    [body] = [a.g for a in model.graph.node[0].attribute if a.name == "body"]
    assert not any("weight_out" in node.output for node in body.node)
    onnx.checker.check_model(model)
    assert run_model(model, inputs) == before


def run_model(model, inputs):
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, inputs)


# The sum of three positions times a weight, as tf2onnx would write it.
LOOP = """
<ir_version: 9, opset_import: ["" : 18]>
graph (float weight) => (float sum, float both)
<int64 rounds = {3}, bool go_on = {1}, float zero = {0}>
{
    sum, weight_after = Loop <body = body (
        int64 i, bool condition_in, float sum_in, float weight_in
    ) => (bool condition_out, float sum_out, float weight_out) {
        position = Cast <to = 1> (i)
        scaled = Mul (position, weight_in)
        sum_out = Add (sum_in, scaled)
        weight_out = Identity (weight_in)
        condition_out = Identity (condition_in)
    }> (rounds, go_on, zero, weight)
    both = Add (sum, weight_after)
}
"""


# ---- Other kinds of positions and of attention, rules of the search ----------

LIMIT = 48  # longer than a chunk of restricted attention and its margins
# What models of other systems have besides.
BART = {
    "activation": "gelu",
    "attention_bias": True,
    "layer_norm_epsilon": 1e-2,
    "embedding_norm": True,
    "scale_embeddings": False,
    "share_embeddings": "inputs",
    "logits_bias": True,
}
MARIAN = {
    "activation": "swish",
    "attention_bias": True,
    "share_embeddings": "none",
    "logits_bias": True,
}
KINDS = {
    "restricted": {"attention_window": 3, **BART},
    "relative": {"positions": "relative", "max_relative_position": 2, **BART},
    "fairseq": {
        "activation": "gelu_tanh",
        "attention_bias": True,
        "sinusoids": "t2t",
        "first_position": 2,
        "share_embeddings": "target",
        "logits_bias": True,
        "source_eos": False,
    },
    # Outputs would be longer than the sources, of which the longest fits.
    "learned": {"positions": "learned", "max_positions": LIMIT, **MARIAN},
    "learned and restricted": {
        "positions": "learned",
        "max_positions": LIMIT,
        "attention_window": 4,
        **MARIAN,
    },
}
LONG_AND_SHORT = [" ".join(exports.SENTENCES * 2), "one dog", "tree"]


@functools.cache
def of_kind(name):
    """Makes a translator with random weights, not all of them small.

    EOS is rare: outputs shall fill the caches.
    """
    model = kt.Transformer(
        vocab_size=60, d_model=8, d_ff=12, num_heads=2, num_layers=1,
        **KINDS[name],
    )  # fmt: skip
    random = np.random.default_rng(1)
    for weight in model.weights:
        weight.assign_add(random.normal(size=weight.shape, scale=0.4))
    model.softmax.logits_bias.assign_add(-5.0 * np.eye(60)[EOS])
    # A rule where the format has our search.
    no_repeat_ngram = 2 if "restricted" in name else 0
    decoding = kt.DecodingConfig(
        beam_size=2, extra_length=4, no_repeat_ngram=no_repeat_ngram
    )
    tokenizer = exports.translator().tokenizer
    translator = kt.Translator(tokenizer, model, decoding, LIMIT)
    translator.checkpoint = exports.translator().checkpoint
    return translator


@pytest.mark.parametrize(
    "format_name, kind",
    [
        ("ctranslate2", "relative"),
        *later("family", ("ctranslate2", "fairseq")),
        *later(
            "format",
            ("ctranslate2", "learned"),
            ("saved_model", "learned and restricted"),
            ("tflite", "restricted"),
            ("onnx", "restricted"),
        ),
    ],
)
def test_other_positions_and_attention_are_exported(
    format_name, kind, tmp_path, monkeypatch
):
    translator = of_kind(kind)
    if format_name == "ctranslate2":  # the search that it has, too
        translator = translator.with_decoding(beam_size=1)
    options = export.ExportOptions(
        workdir=str(exports.workdir()), format=format_name, output="unused"
    )
    # The signature that `reload` runs.
    monkeypatch.setattr(saved_model, "INPUTS", {"n_best": ["text"]})
    source = exports.source()._replace(translator=translator)
    description = export.write(source, options, tmp_path)
    max_positions = LIMIT if "learned" in kind else None
    assert description["max_positions"] == max_positions
    found = reload.load(tmp_path, description)(LONG_AND_SHORT)
    wanted = translator.n_best_ids(LONG_AND_SHORT)
    assert found[0]["truncated"] and len(wanted[0][0][0]) >= 20
    for result, [(ids, score), *_] in zip(found, wanted, strict=True):
        assert result["ids"] == ids
        # The two kinds of gelu differ by 1e-3 here, kernels by 1e-5.
        assert result["score"] == pytest.approx(score, rel=1e-5, abs=2e-4)


def test_the_rules_of_these_searches_are_felt():
    translator, lines = of_kind("restricted"), LONG_AND_SHORT[:1]
    [[(ids, _), *_]] = translator.n_best_ids(lines)
    assert len(set(itertools.pairwise(ids))) == len(ids) - 1
    free = translator.with_decoding(no_repeat_ngram=0)
    [[(repeating, _), *_]] = free.n_best_ids(lines)
    assert len(set(itertools.pairwise(repeating))) < len(repeating) - 1


def test_ctranslate2_refuses_restricted_attention(tmp_path):
    options = export.ExportOptions(
        workdir=str(exports.workdir()), format="ctranslate2", output="unused"
    )
    source = exports.source()._replace(translator=of_kind("restricted"))
    with pytest.raises(CommandError, match="attention_window=3"):
        export.write(source, options, tmp_path)


def test_ctranslate2_knows_its_precisions_and_no_others(tmp_path):
    """For other formats and fields, see `choices_test.py`."""
    options = types.SimpleNamespace(precision="int4")
    with pytest.raises(ValueError, match="int4"):
        formats.load_exporter("ctranslate2").write(
            formats.Export(exports.translator(), tmp_path, options, {}, [])
        )


# ---- What the vocabulary cannot write ---------------------------------------


@pytest.mark.parametrize("format_name", [*OTHER_FORMATS, "saved_model"])
def test_signs_stay_and_change_nothing_else(format_name):
    line = exports.SENTENCES[0]
    translate = loaded(format_name, 1, "float32")
    [plain], [signed] = translate([line]), translate([f"☃ {line} 😆"])
    assert signed["ids"] == plain["ids"]
    assert signed["text"] == f"☃ {plain['text']} 😆"


def test_the_folder_has_a_copy_of_the_signs():
    copy = pathlib.Path(reload.__file__).with_name("signs.py")
    assert copy.read_bytes() == pathlib.Path(signs.__file__).read_bytes()
