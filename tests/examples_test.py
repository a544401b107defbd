"""The scripts of examples/ do what they say, and stay short."""

import importlib.util
import io
import pathlib

import exports
import pytest

from keras_transformer.commands import flags
from keras_transformer.config import DecodingConfig
from savedmodel import export

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(
        f"example_{name}", EXAMPLES / f"{name}.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "path", sorted(EXAMPLES.glob("*.py")), ids=lambda p: p.stem
)
def test_is_short(path):
    assert len(path.read_text().splitlines()) < 60


def test_fit_learns_its_sentences(capsys):
    fit = load("fit")
    learned = fit.main()
    out = capsys.readouterr().out
    assert f"{learned} of 20 translated as in the corpus" in out
    assert learned >= 17  # rounding differs by CPU
    (english, german), *_ = fit.read_pairs(20)
    assert f"{english} -> {german}" in out


def test_own_model_learns_more_than_guessing():
    accuracy, common = load("own_model").main()
    assert 0.5 < common < 0.9
    assert accuracy > (1 + common) / 2  # half of the way to no mistake


@pytest.fixture
def made_exports(monkeypatch):
    """Export commands run, with the shared export in place of a new one."""
    commands, there = [], exports.exported("saved_model")[0]

    def main(argv):
        arguments = flags.parse(argv, "", export.ExportOptions, DecodingConfig)
        options = arguments.build(export.ExportOptions)
        commands.append(options)
        pathlib.Path(options.output).symlink_to(there)

    monkeypatch.setattr(export, "main", main)
    return commands


def test_serve_answers_as_the_translator(tmp_path, made_exports, capsys):
    lines = ["one dog\n", "two red dogs\n", "the house is green\n"]
    output = str(tmp_path / "exported")
    serve = load("serve")
    for _ in range(2):  # the second finds what the first has exported
        serve.main(str(exports.workdir()), output, io.StringIO("".join(lines)))
    [options] = made_exports
    assert options.format == "saved_model"
    assert options.workdir == str(exports.workdir())
    answers = capsys.readouterr().out.splitlines()
    assert answers[:3] == answers[3:]
    expected = exports.translator().n_best([line[:-1] for line in lines])
    for answer, ((text, score), (second, _), *_) in zip(
        answers[:3], expected, strict=True
    ):
        translation, shown, other = answer.split("\t")
        assert (translation, other) == (text, second)
        assert float(shown) == pytest.approx(score, abs=1e-3)
