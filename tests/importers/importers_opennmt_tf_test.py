"""Import of OpenNMT-tf's runs: logits, translations, what is refused."""

import dataclasses
import os
import shutil

import numpy as np
import pytest
import yaml
from original_models import (
    FIXTURES,
    Original,
    check_logits,
    check_text,
    translate,
)
from readable import readable

import keras_transformer as kt
from keras_transformer.importers import find_format, opennmt_tf
from keras_transformer.importers.model_description import read_description
from trainers import import_model

RUNS = FIXTURES / "opennmt_tf"


def original_of(name):
    folder = RUNS / name
    sides = ("joint", "joint") if name == "shared" else ("source", "target")
    pieces = [
        (folder / f"{side}.txt").read_text("utf-8").splitlines() + ["<unk>"]
        for side in sides
    ]
    return Original(folder, (pieces[0], pieces[1]))


def check_translations(original, found, tokenizer=None):
    best = original.expected["beam"]
    if tokenizer is not None:  # the others are read without what is unknown
        read = readable(tokenizer, original.expected["sources"])
        found, best = ([rows[i] for i in read] for rows in (found, best))
    assert [tokens for tokens, _ in found] == [b["tokens"] for b in best]
    assert len({b["text"] for b in best}) > 12
    for (tokens, score), b in zip(found, best, strict=True):
        length = min(len(tokens) + 1, 40)  # EOS, unless it is truncated
        penalty = ((5 + length) / 6) ** 0.2
        np.testing.assert_allclose(
            score * penalty, b["log_prob"], rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("name", ["separate", "shared", "relative"])
def test_runs_have_the_logits_of_opennmt_tf(name):
    imported = opennmt_tf.read(RUNS / name)
    assert imported.config.source_eos is (name == "separate")
    sharing = {"separate": "none", "shared": "all", "relative": "target"}
    assert imported.config.sharing == sharing[name]
    check_logits(original_of(name), imported)


@pytest.mark.slow("family")
def test_beam_search_is_that_of_opennmt_tf():
    original = original_of("relative")
    imported = opennmt_tf.read(original.folder)
    found = translate(
        imported, original.expected["sources"], max_output_length=40
    )
    check_translations(original, found, imported.tokenizer)


@pytest.mark.slow("family")
def test_command_translates_a_run(tmp_path):
    """The checkpoint is in `avg`; what it needs besides lies above."""
    original = original_of("shared")
    run, workdir = tmp_path / "run", tmp_path / "imported"
    shutil.copytree(original.folder, run)
    (run / "avg").mkdir()
    for path in run.glob("ckpt-*"):
        path.rename(run / "avg" / path.name)
    import_model.main([f"--source={run / 'avg'}", f"--workdir={workdir}"])
    decoding = dataclasses.replace(
        opennmt_tf.read(original.folder).decoding, max_output_length=40
    )
    translator = kt.Translator.load(workdir, decoding)
    expected = original.expected
    read = readable(translator.tokenizer, expected["sources"])
    assert len(read) > 30
    found = translator.translate([expected["sources"][i] for i in read])
    assert found == [expected["beam"][i]["text"] for i in read]


@pytest.mark.parametrize("name", ["separate", "shared"])
def test_language_codes_are_those_of_the_table(tmp_path, name):
    run = shutil.copytree(RUNS / name, tmp_path / "run")
    side = "joint" if name == "shared" else "source"
    model = run / f"{side}.model"
    unknown = ">>fra<< The boy buys it."
    for text in (unknown, ">>The boy<< buys it.", "The boy buys it."):
        check_text(opennmt_tf.read(run).tokenizer.source, model, text)
    table = run / f"{side}.txt"
    lines = table.read_text("utf-8").splitlines()
    lines[-1] = ">>fra<<"
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    tokenizer = opennmt_tf.read(run).tokenizer.source
    (row,) = tokenizer.to_ids([unknown])
    (rest,) = tokenizer.to_ids(["The boy buys it."])
    assert row == [tokenizer.pieces.index(">>fra<<"), *rest]
    assert tokenizer.encode([unknown]).to_list() == [row]
    check_text(tokenizer, model, ">>deu<< The boy buys it.")


def class_of(call, base="opennmt.models.Transformer"):
    return (
        f"import opennmt\n\n\nclass Mine({base}):\n"
        f"    def __init__(self):\n        {call}\n\n\nmodel = Mine\n"
    )


@pytest.fixture
def describe(tmp_path):
    """Reads a model_description.py with this text."""

    def describe_by(text):
        path = tmp_path / "model_description.py"
        path.write_text(text)
        return read_description(path)

    return describe_by


# Descriptions, with the heads and the dropout of attention weights that
# OpenNMT-tf 2.32 would give their models.
DESCRIPTIONS = [
    (
        "from opennmt.models import catalog\nmodel = lambda: catalog."
        'get_model_from_catalog("TransformerBig")\n',
        (16, 0.1),
    ),
    (
        "from opennmt.models.catalog import get_model_from_catalog\n\n"
        'def model():\n    """Big."""\n'
        '    return get_model_from_catalog(name="ScalingNmtEnFr")\n',
        (16, 0.0),
    ),
    (
        "import opennmt as o\nmodel = lambda: o.models.TransformerBase()",
        (8, 0.1),
    ),
    (class_of("super().__init__(None, None, 6, 512, 4)"), (4, 0.1)),
    (
        class_of("super().__init__()", "opennmt.models.TransformerBig"),
        (16, 0.1),
    ),
    (
        '"""A model."""\nimport opennmt\nimport tensorflow as tf\n'
        "class Wide(opennmt.models.Transformer):\n"
        '    """Wide."""\n'
        "    def __init__(self):\n        super().__init__(\n"
        "            opennmt.inputters.WordEmbedder(embedding_size=16),\n"
        "            num_layers=(1, 2), num_heads=2,\n"
        "            attention_dropout=0.25)\n"
        "model = Wide\n",
        (2, 0.25),
    ),
]


@pytest.mark.parametrize("text, expected", DESCRIPTIONS)
def test_descriptions_are_evaluated(describe, text, expected):
    model = describe(text)
    found = model.need("num_heads", int), model.need("attention_dropout", float)
    assert found == expected
    assert "position_encoder_class" in model


def test_names_in_descriptions_have_their_module(describe):
    model = describe(
        "from opennmt import layers, models\nimport tensorflow as tf\n"
        "model = lambda: models.Transformer(num_heads=-1, dropout=-0.5,"
        " ffn_activation=tf.nn.gelu,"
        " position_encoder_class=layers.PositionEmbedder)\n"
    )
    expected = {
        "num_heads": -1,
        "dropout": -0.5,
        "ffn_activation": "nn.gelu",
        "position_encoder_class": "layers.PositionEmbedder",
    }
    assert model.values.items() >= expected.items()
    relative = describe(
        "from opennmt import models\n"
        "model = lambda: models.TransformerBigRelative()\n"
    )
    assert "position_encoder_class" not in relative


MODEL = "import opennmt\nmodel = lambda: opennmt.models.Transformer"
# What could make another model than it seems, and the line that is named.
NOT_EVALUATED = [
    ("", "it defines no `model`"),
    ("model = (", "was never closed"),
    ("model = 5", "line 1: expected one definition of `model`"),
    ("model = lambda: model()", "line 1: expected one of Transformer, "),
    ("import opennmt\nmodel = opennmt.models.Transformer()", "line 2: "),
    ("import opennmt\nmodel = lambda: opennmt.models", "line 2: "),
    (f"{MODEL}(HEADS)", "line 2: HEADS"),
    (f"{MODEL}(num_heads=2 * 4)", "line 2: 2 * 4"),
    (f"{MODEL}(num_heads=f().heads)", "line 2: f().heads"),
    ("import opennmt\nmodel = lambda: opennmt.models.GPT2Small()", "one of Tr"),
    ("import mine\nmodel = mine.model", "line 1: import mine"),
    ("from . import model", "line 1: "),
    ("import opennmt, os", "line 1: import opennmt, os"),
    ("raise SystemExit('run')", "line 1: "),
    ("HEADS = 4\nmodel = lambda: Transformer(HEADS)", "line 1: "),
    (f"{MODEL}()\n{MODEL.splitlines()[1]}Big()", "line 2: "),
    ("def model():\n    h = 4\n    return model(h)", "line 1: "),
    ("def model():\n    return 4", "line 1: "),
    ("@mine\ndef model():\n    return Transformer()", "line 2: "),
    (f"{MODEL}(**OPTIONS)", "line 2: the argument **O"),
    (f"{MODEL}(*(None, None, 6, 512, 4))", "line 2: *(None,"),
    (f"{MODEL}(heads=4)", "line 2: the argument heads: 4"),
    (f"{MODEL}(None, source_inputter=4)", "argument source_in"),
    (f"{MODEL}({'None, ' * 19})", "expected at most 18 arg"),
    (f"{MODEL}Big(num_heads=4)", "line 2: the argument num_h"),
    (
        f"{MODEL}(opennmt.inputters.CharConvEmbedder(16))",
        "line 2: opennmt.inputters.CharConvEmbedder(16)",
    ),
    (
        "import opennmt\n"
        "model = lambda: opennmt.models.get_model_from_catalog('Mine')",
        "line 2: expected one of Transformer, ",
    ),
    (class_of("super().build(num_heads=4)"), "line 4: "),
    (class_of("super().__init__(num_heads=4); self.a = 1"), "line 4: "),
    (class_of("super().__init__()", base="A, B"), "line 4: "),
    (class_of("super().__init__()", base="A, metaclass=x"), "line 4: "),
    (class_of("super().__init__()") + "\nmodel = Other", "line 4: "),
    (class_of("super().__init__()", base="Mine"), "expected one of Transf"),
    (
        "import opennmt\nclass Mine(opennmt.models.Transformer):\n"
        "    HEADS = 4\nmodel = Mine",
        "line 2: ",
    ),
]


@pytest.mark.parametrize("text, message", NOT_EVALUATED)
def test_what_cannot_be_evaluated_is_named(describe, tmp_path, text, message):
    with pytest.raises(ValueError) as error:
        describe(text)
    assert message in str(error.value) and "\n" not in str(error.value)
    path = tmp_path / "model_description.py"
    assert f"{path}, which has the number of heads" in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 60_000,
        "-" * 60_000 + "1",
        "model = a" + ".a" * 30_000,
        "model = " + "f(" * 20_000,
        "model = a" + "()" * 30_000,
        "model = 1" + "+1" * 30_000,
        "model = " + "lambda: " * 8_000 + "1",
        "if 1:\n " * 9_000,
        "model = 0x" + "f" * 60_000,
        "a0 = (1, 1)\n"
        + "".join(f"a{i + 1} = (a{i}, a{i})\n" for i in range(99))
        + "import opennmt\n"
        "model = lambda: opennmt.models.get_model_from_catalog(a99)",
        "model = 1\0",
        " " * (1 << 17),
    ],
)
def test_descriptions_of_any_depth_and_size_are_refused(describe, text):
    with pytest.raises(ValueError) as error:
        describe(text)
    assert len(str(error.value)) < 1000 and "\n" not in str(error.value)


def edit(name, old, new):
    def change(run):
        text = (run / name).read_text("utf-8")
        assert old in text
        (run / name).write_text(text.replace(old, new), encoding="utf-8")

    return change


def edit_model(new):
    """Returns an edit of the model's arguments."""
    return edit("model_description.py", "num_heads=2", new)


def remove(name):
    return lambda run: (run / name).unlink()


def as_device(name):
    """Puts an endless file at a path."""

    def change(run):
        (run / name).unlink()
        (run / name).symlink_to("/dev/zero")

    return change


INDEX, DATA = "ckpt-5000.index", "ckpt-5000.data-00000-of-00001"
REFUSED = {
    "expected the run's configuration": remove("data.yml"),
    "expected a checkpoint": remove(INDEX),
    "model_description.py. Received: none": remove("model_description.py"),
    "there is no joint.txt": remove("joint.txt"),
    "index. Received: none": as_device(INDEX),
    "00001. Received: none": as_device(DATA),
    "there is no joint.model": as_device("joint.model"),
    "corrupt checkpoint": lambda run: (run / DATA).write_bytes(b""),
    "20000 bytes of tensors": lambda run: os.truncate(run / DATA, 20_000),
    "expected one .yml with a section `data`": lambda run: shutil.copy(
        run / "data.yml", run / "other.yml"
    ),
    "cannot be evaluated: line 1: expected one": lambda run: (
        run / "model_description.py"
    ).write_text("raise SystemExit('run')\n"),
    "params=5 is not options by name": edit(
        "data.yml", "params:\n      model: joint.model", "params: 5"
    ),
    "model=5 is not text": edit("data.yml", "model: joint.model", "model: 5"),
    "source_sequence_controls=5 is not options by name": edit(
        "data.yml", "data:\n", "data:\n  source_sequence_controls: 5\n"
    ),
    "it begins with <s>": edit(
        "data.yml",
        "data:\n",
        "data:\n  source_sequence_controls: {start: true}\n",
    ),
    "words and BPE need their own": edit(
        "data.yml", "SentencePieceTokenizer", "OpenNMTTokenizer"
    ),
    "expected a SentencePieceTokenizer": edit(
        "data.yml", "      model: joint.model", "      none: 0"
    ),
    "missing option num_heads": edit_model("num_heads=None"),
    "d_model that num_heads divides": edit_model("num_heads=3"),
    "ffn_activation='layers.mine' cannot be imported": edit_model(
        "num_heads=2, ffn_activation=opennmt.layers.mine"
    ),
    "and not both": edit_model("num_heads=2, position_encoder_class=None"),
    "expected layers.SinusoidalPositionEncoder": edit_model(
        "num_heads=2, position_encoder_class=opennmt.layers.PositionEmbedder"
    ),
    "that begins with the lines <blank>": edit("joint.txt", "<blank>\n", ""),
    "VARIABLE_VALUE of shape (105, 16). Received: (104, 16)": edit(
        "joint.txt", "</s>\n", "</s>\nnew\n"
    ),
    "each line once": edit("joint.txt", "</s>\n", "</s>\n</s>\n"),
    "no <unk>, which OpenNMT-tf adds itself": edit(
        "joint.txt", "</s>\n", "</s>\n<unk>\n"
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_read_is_named(tmp_path, message):
    run = shutil.copytree(RUNS / "shared", tmp_path / "run")
    assert find_format(run) == "opennmt_tf"
    REFUSED[message](run)
    with pytest.raises(ValueError) as error:
        opennmt_tf.read(run)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_options_of_the_run_are_taken_over(tmp_path):
    run = shutil.copytree(RUNS / "shared", tmp_path / "run")
    config = yaml.safe_load((run / "data.yml").read_text())
    # Names as another machine has them.
    data = config["data"]
    data["source_vocabulary"] = "/elsewhere/joint.txt"
    data["source_tokenization"]["params"]["model"] = "/elsewhere/joint.model"
    (run / "ckpt-400.index").touch()  # an older one, which is not read
    config["params"] = {
        "coverage_penalty": 0.3,
        "length_penalty": 1,
        "replace_unknown_target": True,
        "minimum_decoding_length": 2,
        "sampling_topk": 0,
        "dropout": 0.25,
    }
    (run / "data.yml").write_text(yaml.safe_dump(config))
    imported = opennmt_tf.read(run)
    for name in ("coverage_penalty", "replace_unknown_target", "sampling_topk"):
        assert f"{name} of the run is not supported" in " ".join(imported.notes)
    assert imported.config.dropout == 0.25
    decoding = imported.decoding
    assert decoding.beam_size == 4 and decoding.length_penalty == 1.0
    assert decoding.min_length == 3  # EOS counts here


@pytest.mark.parametrize(
    "name, controls, expected",
    [
        ("ScalingNmtEnDe", {}, True),
        ("ScalingNmtEnDe", {"end": False}, False),
        ("ScalingNmtEnDe", {"start": False}, False),
        ("TransformerBig", {}, False),
        ("TransformerBig", {"end": True}, True),
    ],
)
def test_controls_say_whether_a_source_ends(tmp_path, name, controls, expected):
    (tmp_path / "model_description.py").write_text(
        "from opennmt.models import get_model_from_catalog\n"
        f"model = lambda: get_model_from_catalog({name!r})\n"
    )
    (tmp_path / "data.yml").write_text(
        yaml.safe_dump({"data": {"source_sequence_controls": controls}})
    )
    model = read_description(tmp_path / "model_description.py")
    run = opennmt_tf._read_run(tmp_path)
    assert opennmt_tf._ends_source(model, run) is expected
    assert model.get("num_heads", 0) == 16
