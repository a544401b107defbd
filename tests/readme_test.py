"""The README's scripts run as they are written, on smaller numbers."""

import io
import pathlib
import re
import sys

import exports
import pytest

from trainers import phrasebook

README = pathlib.Path(__file__).parents[1] / "README.md"
SENTENCE = "A dog runs."  # which the README's scripts translate


def script_of(section):
    """The first Python block below a heading."""
    text = README.read_text(encoding="utf-8")
    return re.search(r"```python\n(.*?)```", text.split(section)[1], re.S)[1]


def replace(script, ours, other):
    assert ours in script
    return script.replace(ours, other)


def run(script):
    exec(compile(script, str(README), "exec"), {})


def test_the_script_trains_and_translates(tmp_path, monkeypatch, capsys):
    script = script_of("## In a script of your own")
    script = replace(script, "vocab_size=8000", "vocab_size=300")
    script = replace(script, "epochs=20", "epochs=1")
    (tmp_path / "corpus").mkdir()
    english, german = zip(*phrasebook.make_split("train", 300), strict=True)
    for language, lines in (("en", english), ("de", german)):
        path = tmp_path / "corpus" / f"train.{language}"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    run(script)
    assert re.search(r"\['.*'\]\s*$", capsys.readouterr().out)


@pytest.fixture
def exported(tmp_path, monkeypatch):
    """exports/FORMAT of the current directory is an export."""

    def make(format_name):
        (tmp_path / "exports").mkdir()
        (tmp_path / "exports" / format_name).symlink_to(
            exports.exported(format_name)[0]
        )
        monkeypatch.chdir(tmp_path)

    return make


def test_litert_translates_standard_input(exported, monkeypatch, capsys):
    exported("tflite")
    lines = [SENTENCE, "two red dogs", "tree"]
    text = "".join(line + "\n" for line in lines)
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    run(script_of("### LiteRT"))
    expected = exports.translator().translate(lines)
    assert capsys.readouterr().out.splitlines() == expected


def test_onnx_runtime_translates_a_sentence(exported, capsys):
    exported("onnx")
    run(script_of("### ONNX Runtime"))
    [expected] = exports.translator().translate([SENTENCE])
    assert capsys.readouterr().out == expected + "\n"


def test_ctranslate2_translates_a_sentence(exported, capsys):
    """Greedily: its beams are ranked otherwise, as the README says."""
    exported("ctranslate2")
    script = script_of("### CTranslate2")
    script = replace(
        script,
        "beam_size=4, length_penalty=0.6",
        "beam_size=1, length_penalty=0",
    )
    script = replace(
        script,
        "len(source) + 50",
        f"len(source) + {exports.DECODING.extra_length}",
    )
    run(script)
    translator = exports.translator().with_decoding(beam_size=1)
    assert capsys.readouterr().out == translator.translate([SENTENCE])[0] + "\n"
