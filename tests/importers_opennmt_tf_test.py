"""Import of OpenNMT-tf's runs: logits, translations, what is refused."""

import dataclasses
import shutil

import numpy as np
import pytest
import yaml
from original_models import FIXTURES, Original, check_logits, translate

import keras_transformer as kt
from trainers import import_model
from trainers.importers import find_importer, opennmt_tf

RUNS = FIXTURES / "opennmt_tf"


def original_of(name):
    folder = RUNS / name
    sides = ("joint", "joint") if name == "shared" else ("source", "target")
    pieces = [
        (folder / f"{side}.txt").read_text("utf-8").splitlines() + ["<unk>"]
        for side in sides
    ]
    return Original(folder, (pieces[0], pieces[1]))


def check_translations(original, found):
    best = original.expected["beam"]
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
    assert (
        imported.config.sharing
        == {
            "separate": "none",
            "shared": "all",
            "relative": "target",
        }[name]
    )
    check_logits(original_of(name), imported)


def test_beam_search_is_that_of_opennmt_tf():
    original = original_of("relative")
    imported = opennmt_tf.read(original.folder)
    found = translate(
        imported, original.expected["sources"], max_output_length=40
    )
    check_translations(original, found)


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
    found = translator.translate(expected["sources"])
    assert found == [best["text"] for best in expected["beam"]]


DESCRIPTIONS = {
    "from opennmt import models\nmodel = lambda: models."
    'get_model_from_catalog("TransformerBigRelative")\n': (16, None),
    "import opennmt\n\n\nclass Mine(opennmt.models.Transformer):\n"
    "    def __init__(self):\n        super().__init__(None, None, 6, 512, 4)\n"
    "\n\nmodel = Mine\n": (4, "SinusoidalPositionEncoder"),
    "import opennmt\n\nmodel = lambda: opennmt.models.TransformerTiny()\n": (
        2,
        "SinusoidalPositionEncoder",
    ),
    "import opennmt\n\n\nclass Mine(opennmt.models.Transformer):\n"
    "    def __init__(self):\n"
    "        super(__class__, self).__init__(num_layers=6, num_heads=4)\n"
    "\n\nmodel = Mine\n": (4, "SinusoidalPositionEncoder"),
    "import opennmt\n\n\nclass Mine(opennmt.models.TransformerRelative):\n"
    "    pass\n\n\nmodel = Mine\n": (8, None),
}


@pytest.mark.parametrize("text", DESCRIPTIONS)
def test_descriptions_are_read(tmp_path, text):
    (tmp_path / "model_description.py").write_text(text)
    heads, positions = DESCRIPTIONS[text]
    model = opennmt_tf.read_description(tmp_path)
    assert model.get("num_heads", 0) == heads
    assert ("position_encoder_class" in model) == (positions is not None)


def edited(folder, name, old, new):
    path = folder / name
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


REFUSED = {
    "expected the run's configuration": lambda run: (run / "data.yml").unlink(),
    "expected a checkpoint": lambda run: (run / "ckpt-5000.index").unlink(),
    "corrupt checkpoint": lambda run: (
        run / "ckpt-5000.data-00000-of-00001"
    ).write_bytes(b""),
    "number of heads": lambda run: (run / "model_description.py").unlink(),
    "expected a model of the catalog": lambda run: (
        run / "model_description.py"
    ).write_text("raise SystemExit('run')\n"),
    "cannot be read": lambda run: (run / "model_description.py").write_text(
        "model = ("
    ),
    "d_model must divide by num_heads": lambda run: edited(
        run, "model_description.py", "num_heads=2", "num_heads=3"
    ),
    "ffn_activation='tf.tanh' cannot be imported": lambda run: edited(
        run,
        "model_description.py",
        "num_heads=2",
        "num_heads=2, ffn_activation=tf.tanh",
    ),
    "and not both": lambda run: edited(
        run,
        "model_description.py",
        "num_heads=2",
        "num_heads=2, position_encoder_class=None",
    ),
    "there is no joint.txt": lambda run: (run / "joint.txt").unlink(),
    "that begins with the lines <blank>": lambda run: edited(
        run, "joint.txt", "<blank>\n", ""
    ),
    "VARIABLE_VALUE of shape (105, 16). Received: (104, 16)": (
        lambda run: edited(run, "joint.txt", "</s>\n", "</s>\nnew\n")
    ),
    "words and BPE need their own": lambda run: edited(
        run, "data.yml", "SentencePieceTokenizer", "OpenNMTTokenizer"
    ),
    "it begins with <s>": lambda run: edited(
        run,
        "data.yml",
        "data:\n",
        "data:\n  source_sequence_controls: {start: true}\n",
    ),
    "expected SinusoidalPositionEncoder": lambda run: edited(
        run,
        "model_description.py",
        "num_heads=2",
        "num_heads=2, position_encoder_class=opennmt.layers.PositionEmbedder",
    ),
    "a line occurs twice": lambda run: edited(
        run, "joint.txt", "</s>\n", "</s>\n</s>\n"
    ),
    "is <unk>, which comes after the last": lambda run: edited(
        run, "joint.txt", "</s>\n", "</s>\n<unk>\n"
    ),
    "expected a SentencePieceTokenizer": lambda run: edited(
        run, "data.yml", "      model: joint.model", "      none: 0"
    ),
    "expected one configuration": lambda run: shutil.copy(
        run / "data.yml", run / "other.yml"
    ),
    "beam_width='four' is not a whole number": lambda run: edited(
        run, "data.yml", "beam_width: 4", "beam_width: four"
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_read_is_named(tmp_path, message):
    run = tmp_path / "run"
    shutil.copytree(RUNS / "shared", run)
    assert find_importer(run) is opennmt_tf
    REFUSED[message](run)
    with pytest.raises(ValueError) as error:
        opennmt_tf.read(run)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_options_of_the_run_are_taken_over(tmp_path):
    run = tmp_path / "run"
    shutil.copytree(RUNS / "shared", run)
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
        "dropout": 0.25,
    }
    (run / "data.yml").write_text(yaml.safe_dump(config))
    imported = opennmt_tf.read(run)
    for name in ("coverage_penalty", "replace_unknown_target"):
        assert f"{name} of the run is not supported" in " ".join(imported.notes)
    assert imported.config.dropout == 0.25
    decoding = imported.decoding
    assert decoding.beam_size == 4 and decoding.length_penalty == 1.0
    assert decoding.min_length == 2


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
        f"model = lambda: get_model_from_catalog({name!r})\n"
    )
    (tmp_path / "data.yml").write_text(
        yaml.safe_dump({"data": {"source_sequence_controls": controls}})
    )
    model = opennmt_tf.read_description(tmp_path)
    run = opennmt_tf._read_run(tmp_path)
    assert opennmt_tf._ends_source(model, run) is expected
    assert model.get("num_heads", 0) == 16
