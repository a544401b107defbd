"""Packages of Argos Translate: their files and their limits."""

import dataclasses
import json
import os
import pathlib
import subprocess
import types
import zipfile

import exports
import pytest
from original_models import FIXTURES

import keras_transformer as kt
from keras_transformer.commands.flags import CommandError
from savedmodel import argos, export, formats, reload, verify

ROOT = pathlib.Path(__file__).parents[2]
NAME = "translate-en_de"
DESCRIPTION = {
    "source_language": "en",
    "target_language": "de",
    "language_places": {},
}


def read(directory):
    """Reads the files of an export's package, by path."""
    with zipfile.ZipFile(directory / f"{NAME}.argosmodel") as package:
        assert package.testzip() is None
        return {
            name: package.read(name)
            for name in package.namelist()
            if not name.endswith("/")
        }


def test_a_package_has_what_argos_translate_reads():
    directory, printed = exports.exported("argos")
    assert "verified: 4 of 4 sentences equal" in printed
    assert {path.name for path in directory.iterdir()} == {
        f"{NAME}.argosmodel",
        "README.md",
        "export.json",
    }
    files = read(directory)
    assert files.keys() == {
        f"{NAME}/{name}"
        for name in (
            "README.md",
            "metadata.json",
            "model/config.json",
            "model/model.bin",
            "model/shared_vocabulary.json",
            "sentencepiece.model",
        )
    }
    assert json.loads(files[f"{NAME}/metadata.json"]) == {
        "package_version": "1.0",
        "argos_version": "1.11",
        "from_code": "en",
        "from_name": "English",
        "to_code": "de",
        "to_name": "German",
    }
    vocabulary = exports.translator().tokenizer.model_bytes
    assert files[f"{NAME}/sentencepiece.model"] == vocabulary
    ctranslate2, _ = exports.exported("ctranslate2")
    model = (ctranslate2 / "model.bin").read_bytes()
    assert files[f"{NAME}/model/model.bin"] == model
    assert b"# Translation from en into de\n" in files[f"{NAME}/README.md"]


def test_a_package_is_reloaded_as_the_model_of_ctranslate2():
    lines = list(exports.SENTENCES)
    found = []
    for name in ("argos", "ctranslate2"):
        directory, _ = exports.exported(name)
        description = verify.read_description(directory)
        found.append(reload.load(directory, description)(lines))
    assert found[0] == found[1]
    assert len({result["text"] for result in found[0]}) > 4


def test_a_package_has_a_version():
    options = export.ExportOptions(
        workdir="run", output="out", format="argos", version=3
    )
    assert options.target == pathlib.Path("out")  # no directory for it
    languages = {"source_language": "pt_BR", "target_language": "xx"}
    metadata = argos.make_metadata(options, languages)
    assert metadata["package_version"] == "3.0"
    assert metadata["from_name"] == "Portuguese (Brazil)"
    assert metadata["to_name"] == "xx"  # of no language that has a name


# ---- What it cannot hold -----------------------------------------------------


@pytest.mark.parametrize(
    "changes, received",
    [
        ({"source_language": None}, "source_language=None"),
        ({"target_language": "de,fr"}, "target_language='de,fr'"),
        ({"target_language": ""}, "target_language=''"),
        ({"language_places": {"before": "target_language"}}, "some"),
    ],
)
def test_a_model_has_one_direction_and_is_not_told(changes, received):
    translator = exports.translator()
    argos.check(translator, DESCRIPTION)
    with pytest.raises(CommandError, match=f"argos needs .* {received}$"):
        argos.check(translator, {**DESCRIPTION, **changes})


def with_case_marks():
    return kt.Tokenizer.train(["A Rose"] * 9, vocab_size=20, case_marks=True)


def imported(name):
    return kt.Translator.from_pretrained(FIXTURES / name).tokenizer


@pytest.mark.parametrize(
    "make, received",
    [
        (with_case_marks, "case marks"),
        (lambda: imported("marian_separate"), "one of each side"),
        (lambda: imported("marian_shared"), "one of each side"),
        (lambda: imported("nllb"), "an imported one"),
    ],
)
def test_a_vocabulary_is_a_sentencepiece_model(make, received):
    translator = types.SimpleNamespace(tokenizer=make())
    with pytest.raises(CommandError, match=f"Received: {received}$"):
        argos.check(translator, DESCRIPTION)


@pytest.mark.parametrize(
    "model, search, received",
    [
        ({"positions": "learned", "max_positions": 64}, {}, "positions='lea"),
        ({"source_vocab_size": 60}, {}, "source_vocab_size=60"),
        ({"attention_window": 3}, {}, "attention_window=3"),
        ({}, {"min_length": 2}, "min_length=2"),
        ({}, {"no_repeat_ngram": 3}, "no_repeat_ngram=3"),
    ],
)
def test_a_model_and_its_search_are_checked(model, search, received):
    config = exports.translator().model.config
    formats.check_model("argos", config, exports.DECODING)
    config = dataclasses.replace(config, **model)
    decoding = dataclasses.replace(exports.DECODING, **search)
    with pytest.raises(CommandError, match=f"Received: {received}"):
        formats.check_model("argos", config, decoding)


# ---- The program itself ------------------------------------------------------


@pytest.mark.argos
def test_argos_translate_installs_it_and_translates(tmp_path):
    lines = [line for line in exports.SENTENCES if line.strip()]
    directory, _ = exports.exported("argos")
    found = subprocess.run(
        [
            ROOT / ".venv-peers/argos/bin/python",
            ROOT / "tests/programs/argos_translate.py",
            directory / f"{NAME}.argosmodel",
        ],
        input=json.dumps(lines),
        env={
            **{k: v for k, v in os.environ.items() if not k.startswith("XDG")},
            "HOME": str(tmp_path),
            "ARGOS_COMPUTE_TYPE": "float32",
        },
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    answer = json.loads(found.stdout)
    assert answer["names"] == ["English", "German"]
    assert answer["readme"].startswith("# English - German\n")
    assert answer["computed_in"] == "float32"
    assert answer["argos"] == answer["ctranslate2"]
    # Another search than ours, so not all are the same.
    ours = exports.translator().translate(lines)
    same = sum(map(str.__eq__, answer["argos"], ours))
    assert same >= len(lines) // 2
