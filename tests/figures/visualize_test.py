"""The command `kt-visualize`."""

import dataclasses
import functools
import pathlib
import re
import shutil

import numpy as np
import pages
import pytest
from commands import fails, fails_without_room

import keras_transformer as kt
from keras_transformer.storage.workdir import WorkDirectory
from trainers import visualize
from trainers.figures import training
from trainers.run.event_file import read_curves
from trainers.run.progress import Reporter

OLD_RUN = pathlib.Path(__file__).parents[1] / "fixtures/workdir_0_2/run"
FROM_RUN = (f"--workdir={OLD_RUN}", "--text=a dog runs.")
TRAINING = (FROM_RUN[0], "--plot=training")
PAGE, SVG = "--output=a.html", "--output=a.svg"


def test_a_page_and_a_figure_of_a_work_directory(tmp_path, capsys, monkeypatch):
    load = functools.cache(kt.Translator.load)  # once for all three
    monkeypatch.setattr(kt.Translator, "load", load)
    page, svg = tmp_path / "a.html", tmp_path / "a.svg"
    flags = [*FROM_RUN, "--reference=ein Hund rennt.", "--extra_length=4"]
    visualize.main([*flags, f"--output={page}"])
    out = capsys.readouterr().out
    assert "source:      a dog runs.\nreference:   ein Hund rennt.\n" in out
    choice = ["--kind=cross", "--layer=1", "--heads=2", "--token=1"]
    visualize.main([*flags, *choice, f"--output={svg}"])
    before = WorkDirectory(OLD_RUN).read_section("decoding", kt.DecodingConfig)
    decoding = dataclasses.replace(before, extra_length=4)
    expected = kt.attention_figure(
        load(str(OLD_RUN), decoding, None),
        "a dog runs.",
        "ein Hund rennt.",
        ("en", "de"),
    )
    assert load.cache_info().misses == 1
    assert page.read_text("utf-8") == expected.html()
    drawn = expected.svg(kind="cross", layer=1, heads=[2], token=1)
    assert svg.read_text("utf-8") == drawn


@pytest.mark.parametrize(
    "flags, message",
    [
        ((TRAINING[1], SVG), "expected --workdir=DIR with plot=training. Rece"),
        (FROM_RUN, "expected --output=FILE. Received: no output"),
        ((*FROM_RUN, "--output=a.gif"), "with .html or .svg or .png or .pdf."),
        ((FROM_RUN[0], PAGE, "--text= "), "expected --text=SENTENCE"),
        ((*FROM_RUN, PAGE, "--reference= "), "a word in reference, too. Recei"),
        ((*FROM_RUN, PAGE, "--layer=1"), ".svg, .png or .pdf for layer"),
        ((*FROM_RUN, SVG, "--heads=1,x"), "heads with whole numbers"),
        ((*TRAINING, SVG, "--beam_size=2"), "have no search. Received: beam"),
        ((*FROM_RUN, PAGE, "--ensemble=mean"), "no glossary. Received: ensem"),
        ((*FROM_RUN, PAGE, "--reference=b", "--beam_size=8"), "not searched"),
        ((*TRAINING, SVG, "--text=a"), "text needs plot=attention. Received:"),
        ((*TRAINING, PAGE), "ends with .svg or .png or .pdf. Received: outp"),
    ],
)
def test_flags_without_effect_are_refused(
    flags, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delattr(visualize, "draw")  # refused before that
    assert message in fails(visualize.main, flags, capsys)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "flags, message",
    [
        ((*FROM_RUN, SVG, "--layer=2"), "layer from 1 to 1. Received: 2"),
        (("--workdir=x", "--plot=training", SVG), "made by kt-train"),
        ((*TRAINING, SVG), "expected TensorBoard records of a training."),
    ],
)
def test_what_is_not_there_is_one_line(
    flags, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert message in fails(visualize.main, flags, capsys)
    assert list(tmp_path.iterdir()) == []


CURVES = {
    "train/loss": {step: 100.0 / step for step in range(10, 1010, 10)},
    "train/perplexity": {10: float("inf")},
    "train/learning_rate": {10: 0.25, 1000: 0.5},
    "validation/loss": {500: 4.0, 1000: 3.0},
    "validation/bleu": {500: 30.0, 1000: 20.0},
    "validation/wall_seconds": {500: 7.0},
}


def record(logs, curves):
    """Writes records like a training."""
    reporter = Reporter(logs, 0, 1000, is_chief=True)
    for name, points in curves.items():
        kind, value = name.split("/")
        for step, number in points.items():
            reporter.record(step, kind, {value: number})
    reporter.close()


@pytest.fixture
def recorded(tmp_path):
    """A work directory with records."""
    workdir = tmp_path / "run"
    workdir.mkdir()
    shutil.copy(OLD_RUN / "config.json", workdir)
    record(workdir / "logs", CURVES)
    return workdir


def lines_of(axes):
    """Returns the points of each line of axes, by its name in the legend."""
    return {
        line.get_label(): list(map(tuple, line.get_xydata().tolist()))
        for line in axes.lines
    }


def test_the_curves_of_a_run(recorded, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(training, "save_figure", lambda *it: drawn.append(it))
    visualize.main([f"--workdir={recorded}", *TRAINING[1:], SVG])
    [(figure, output)] = drawn
    assert output == "a.svg"
    loss, bleu, rate = figure.axes
    assert bleu.get_ylabel() == "BLEU"
    raw, *smooth = lines_of(loss).values()
    expected = np.array(list(CURVES["train/loss"].items()))
    np.testing.assert_allclose(raw, expected, rtol=1e-6)
    means = [expected[i : i + 5].mean(axis=0) for i in range(96)]
    assert list(lines_of(loss))[1:] == ["training, mean of 5", "validation"]
    np.testing.assert_allclose(smooth[0][0], (30, means[0][1]), rtol=1e-6)
    np.testing.assert_allclose(
        np.array(smooth[0])[:, 1], np.array(means)[:, 1], rtol=1e-6
    )
    assert smooth[1] == [(500, 4.0), (1000, 3.0)]
    assert lines_of(bleu) == {
        "validation": [(500, 30.0), (1000, 20.0)],
        "best: 30.00 at step 500": [(500, 30.0)],
    }
    assert lines_of(rate) == {"training": [(10, 0.25), (1000, 0.5)]}
    without_legend = [axes.get_legend() is None for axes in figure.axes]
    assert without_legend == [False, False, True]
    assert loss.get_xlim() == rate.get_xlim()


def test_the_curves_of_a_run_as_a_file(recorded, tmp_path, capsys):
    path = tmp_path / "training.svg"
    argv = [f"--workdir={recorded}", *TRAINING[1:], f"--output={path}"]
    visualize.main(argv)
    assert capsys.readouterr().out == f"{path}\n"
    svg = path.read_text("utf-8")
    texts = {"loss, nats per token", "learning rate", "step", "1,000"}
    assert texts <= set(pages.texts(svg))
    assert f"<dc:title>Training of {recorded}<" in svg


def test_only_what_was_recorded_is_drawn():
    curves = {name: CURVES[name] for name in CURVES if "train" in name}
    figure = training.draw(curves, "")
    labels = [axes.get_ylabel() for axes in figure.axes]
    assert labels == ["loss, nats per token", "learning rate"]
    one = training.draw({"validation/f1": {7: 0.0}}, "")
    assert [axes.get_ylabel() for axes in one.axes] == ["F1"]
    assert training.panels_of({"train/loss": {}}) == []


def test_a_figure_is_written_before_its_name(recorded, monkeypatch, capsys):
    path = recorded / "training.svg"
    argv = [f"--workdir={recorded}", *TRAINING[1:], f"--output={path}"]
    fails_without_room(visualize.main, argv, monkeypatch, capsys)
    assert path.exists()


def test_records_that_cannot_be_read_are_told(tmp_path, caplog):
    record(tmp_path, CURVES)
    assert read_curves(tmp_path).keys() == CURVES.keys()
    assert "corrupt" not in caplog.text
    [path] = tmp_path.iterdir()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    [(name, points)] = read_curves(tmp_path).items()
    assert name == "train/loss" and 0 < len(points) < 100
    assert re.search(f"{path} is corrupt after [1-9]\\d* records", caplog.text)
    assert read_curves(tmp_path / "none") == {}
