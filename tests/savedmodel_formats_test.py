"""TFLite, ONNX and CTranslate2: the translator's answer, without TensorFlow."""

import exports
import numpy as np
import onnxruntime
import pytest

from keras_transformer.vocabulary import PAD
from savedmodel import reload, saved_model, verify

LINES = list(exports.SENTENCES)
FORMATS = ("tflite", "onnx", "ctranslate2")


def loaded(format_name, beam_size, *options):
    """The export's translate function, in this process."""
    directory, _ = exports.exported(format_name, *options)
    description = verify.read_description(directory)
    description["decoding"]["beam_size"] = beam_size
    return reload.LOADERS[format_name](directory, description)


def expected(beam_size):
    return exports.translator().with_decoding(beam_size=beam_size).n_best(LINES)


@pytest.mark.parametrize(
    "format_name, beam_size",
    [("tflite", 1), ("tflite", 3), ("onnx", 3), ("ctranslate2", 1)],
)
def test_text_and_score_are_the_translators(format_name, beam_size):
    found = loaded(format_name, beam_size)(LINES)
    for result, hypotheses in zip(found, expected(beam_size), strict=True):
        text, score = hypotheses[0]
        assert result["text"] == text
        assert result["score"] == pytest.approx(score, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("format_name", ["onnx", "ctranslate2"])
def test_an_answer_does_not_depend_on_the_company(format_name):
    translate = loaded(format_name, 3)
    alone = [translate([line])[0]["ids"] for line in LINES]
    together = [result["ids"] for result in translate(LINES)]
    backwards = [result["ids"] for result in translate(LINES[::-1])]
    assert alone == together == backwards[::-1]


def test_padding_changes_no_onnx_answer():
    directory, _ = exports.exported("onnx")
    session = onnxruntime.InferenceSession(str(directory / "model.onnx"))
    rows = exports.translator().tokenizer.encode(LINES).to_tensor()
    rows = saved_model.cut(rows, exports.MAX_SOURCE_LENGTH)
    for columns in (1, 9):
        padded = np.pad(rows, [(0, 0), (0, columns)])
        ids, scores = session.run(["ids", "scores"], {"source_ids": padded})
        best = [row[row != PAD].tolist() for row in ids[:, 0]]
        assert best == [h[0][0] for h in exports.translator().n_best_ids(LINES)]
        wanted = [hypotheses[0][1] for hypotheses in expected(3)]
        np.testing.assert_allclose(scores[:, 0], wanted, rtol=1e-3)


@pytest.mark.parametrize("format_name", FORMATS)
def test_an_empty_batch_has_an_empty_answer(format_name):
    assert list(loaded(format_name, 3)([])) == []


def test_each_tflite_answer_is_the_first(format_name="tflite"):
    translate = loaded(format_name, 3)
    once = [result["ids"] for result in translate(LINES)]
    again = [result["ids"] for result in translate(LINES[::-1])]
    assert once == again[::-1]


@pytest.mark.parametrize("beam_size", [2, 4])
def test_ctranslate2_beams_find_much_the_same(beam_size):
    found = loaded("ctranslate2", beam_size)(LINES)
    same = [
        result["text"] == hypotheses[0][0]
        for result, hypotheses in zip(found, expected(beam_size), strict=True)
    ]
    assert sum(same) >= len(LINES) - 2


@pytest.mark.parametrize(
    "format_name, precision",
    [
        ("tflite", "float16"),
        ("tflite", "int8"),
        ("ctranslate2", "float16"),
        ("ctranslate2", "int16"),
        ("ctranslate2", "int8"),
    ],
)
def test_rounded_weights_take_less_and_translate(format_name, precision):
    option = f"--precision={precision}"
    found = loaded(format_name, 1, option)(LINES)
    same = [
        result["text"] == hypotheses[0][0]
        for result, hypotheses in zip(found, expected(1), strict=True)
    ]
    assert sum(same) >= len(LINES) - 2
    file = {"tflite": "model.tflite", "ctranslate2": "model.bin"}[format_name]
    sizes = [
        (exports.exported(format_name, *options)[0] / file).stat().st_size
        for options in ((), (option,))
    ]
    assert sizes[1] < 0.9 * sizes[0]
