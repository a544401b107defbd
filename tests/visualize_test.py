"""The command `trainers.visualize`."""

import dataclasses
import functools
import pathlib
import types

import matplotlib
import numpy as np
import pages
import pytest
import references
import tensorflow as tf
from commands import fails, fails_without_room

import keras_transformer as kt
from keras_transformer.checkpoints import named_weights
from keras_transformer.config import preset
from keras_transformer.workdir import WorkDirectory
from trainers import visualize
from trainers.run.config import TrainingConfig
from trainers.run.data_config import DataConfig

OLD_RUN = pathlib.Path(__file__).parent / "fixtures/workdir_0_1/run"
FROM_RUN = (f"--workdir={OLD_RUN}", "--text=a dog runs.")
FROM_BASE = ("--preset=base",)
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
        ((PAGE, "--text=a"), "needs either --workdir or --export."),
        (
            (*FROM_RUN, PAGE, "--export=x"),
            "needs either --workdir or --export.",
        ),
        (FROM_RUN, "expected --output=FILE. Received: no output"),
        (
            (*FROM_RUN, "--output=a.gif"),
            "with .html or .svg or .png or .pdf.",
        ),
        ((FROM_RUN[0], PAGE, "--text= "), "expected --text=SENTENCE"),
        (
            (*FROM_RUN, PAGE, "--reference= "),
            "a word in reference, too. Received",
        ),
        (
            (*FROM_RUN, PAGE, "--layer=1"),
            "layer is an option of .svg, .png",
        ),
        ((*FROM_RUN, SVG, "--heads=1,x"), "heads must be whole numbers"),
        ((*FROM_RUN, PAGE, "--length=9"), "plot=positional_encoding"),
        ((*FROM_RUN, PAGE, "--preset=base"), "preset is an option of --plot="),
        (
            ("--export=x", "--text=a", PAGE, "--checkpoint=best"),
            "checkpoint is an option of --workdir. Received: checkpoint=best",
        ),
        (
            ("--export=x", "--text=a", PAGE, "--beam_size=2"),
            "an export has its own search, and a plot has none. Received:"
            " beam_size",
        ),
        (
            (*FROM_RUN, PAGE, "--reference=b", "--beam_size=8"),
            "a search has no effect on a reference, which is forced. Received:"
            " beam_size, reference",
        ),
        ((*FROM_RUN, "--output=/proc/a.svg"), "cannot be written: /proc: No"),
        ((SVG, "--plot=learning_rate"), "needs either --workdir or --preset."),
        (
            (*FROM_BASE, SVG, "--plot=learning_rate", "--text=a"),
            "text is an option of plot=attention. Received: text='a'",
        ),
        (
            (*FROM_BASE, SVG, "--plot=learning_rate", "--length=7"),
            "length is an option of plot=positional_encoding",
        ),
        (
            (*FROM_BASE, PAGE, "--plot=positional_encoding"),
            "ends with .svg or .png or .pdf. Received: output='a.html'",
        ),
    ],
)
def test_flags_without_effect_are_refused(
    flags, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delattr(visualize, "load_tensorflow")  # refused before that
    assert message in fails(visualize.main, flags, capsys)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "flags, message",
    [
        (("--export=.", "--text=a", PAGE), "expected a SavedModel that"),
        (("--workdir=x", "--text=a", PAGE), "made by trainers.wmt"),
        ((*FROM_RUN, SVG, "--layer=2"), "layer must be from 1 to 1. Received:"),
    ],
)
def test_what_is_not_there_is_one_line(
    flags, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert message in fails(visualize.main, flags, capsys)
    assert list(tmp_path.iterdir()) == []


def test_the_greatest_version_of_an_export_is_drawn(tmp_path):
    for name in ("2", "10", "latest"):
        (tmp_path / name).mkdir()
    for name in ("2", "10"):
        for file in ("saved_model.pb", "export.json"):
            (tmp_path / name / file).touch()
    assert visualize.find_export(tmp_path) == tmp_path / "10"
    assert visualize.find_export(tmp_path / "2") == tmp_path / "2"


@pytest.mark.parametrize(
    "reference, which",
    [("", "The source"), ("b", "The source or the reference")],
)
def test_truncated_input_of_an_export_is_noted(
    reference, which, tmp_path, monkeypatch
):
    (tmp_path / "saved_model.pb").touch()
    (tmp_path / "export.json").write_text(
        '{"source_language": "en", "target_language": "he"}'
    )
    weights = tf.ones((1, 1, 1, 2, 2)) / 2
    found = {
        "truncated": tf.constant([True]),
        "translation": tf.constant([b"b"]),
        "source_pieces": tf.constant([[b"a", b"</s>"]]),
        "target_pieces": tf.constant([[b"b", b"</s>"]]),
        "encoder_attention": weights,
        "decoder_attention": weights,
        "attention": weights,
    }
    export = types.SimpleNamespace(
        signatures={"attention_maps": lambda text, reference: found}
    )
    monkeypatch.setattr(tf.saved_model, "load", {str(tmp_path): export}.get)
    figure = visualize.figure_of_export(str(tmp_path), "a a a", reference)
    assert figure.notes == [
        f"{which} is truncated: the figure shows its beginning."
    ]
    data, _ = pages.data_of(figure.html())
    assert [s["direction"] for s in data["sentences"]] == ["ltr", "rtl"]


def test_the_learning_rate_is_eq_3(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        visualize.saving, "save_figure", lambda *args: drawn.append(args)
    )
    path = tmp_path / "rate.svg"
    visualize.main([*FROM_BASE, "--plot=learning_rate", f"--output={path}"])
    [(figure, output)] = drawn
    assert output == str(path)
    curve, top = figure.axes[0].lines
    training, d_model = TrainingConfig(), preset("base").d_model
    steps = np.linspace(1, training.train_steps, visualize.POINTS).round()
    steps = np.unique(np.append(steps, training.updates_to_peak))
    rates = np.minimum(
        steps**-0.5, steps * training.updates_to_peak**-1.5
    ) / np.sqrt(d_model)
    np.testing.assert_allclose(
        curve.get_xydata(), np.stack([steps, rates], -1), rtol=1e-5
    )
    peak = (d_model * training.updates_to_peak) ** -0.5
    np.testing.assert_allclose(top.get_xydata(), [(4000, peak)], rtol=1e-5)
    assert top.get_label() == f"maximum: {peak:.4g} at step 4,000"


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A work directory of a model with learned positions, and its model."""
    directory = WorkDirectory(tmp_path_factory.mktemp("learned"))
    tokenizer = kt.Tokenizer.load(OLD_RUN / "tokenizer.model")
    tokenizer.save(directory.tokenizer_path)
    model = kt.Transformer(
        vocab_size=60,
        d_model=8,
        d_ff=8,
        num_heads=2,
        num_layers=1,
        positions="learned",
        max_positions=60,
    )
    directory.write_config(
        model=model.config,
        data=DataConfig(max_length=40),
        training=TrainingConfig(),
        decoding=kt.DecodingConfig(extra_length=5),
    )
    directory.averaged.save({"weights": named_weights(model)}, step=1, keep=1)
    return directory.path, model


def test_a_figure_is_written_before_its_name(tmp_path, monkeypatch, capsys):
    path = tmp_path / "rate.svg"
    argv = [*FROM_BASE, "--plot=learning_rate", f"--output={path}"]
    fails_without_room(visualize.main, argv, monkeypatch, capsys)
    assert path.exists()


def test_positions_are_the_sinusoids(tmp_path):
    path = tmp_path / "positions.svg"
    what = ["--plot=positional_encoding", "--length=40", f"--output={path}"]
    visualize.main([*FROM_BASE, *what])
    angles = np.arange(40)[:, None] / 10000 ** (np.arange(0, 512, 2) / 512)
    expected = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(40, 512)
    np.testing.assert_allclose(
        drawn_matrix(path, expected), expected, atol=0.02
    )


def test_positions_of_other_systems_are_theirs(tmp_path):
    path = tmp_path / "positions.svg"
    options = visualize.Options(
        plot="positional_encoding", preset="base", length=9, output=str(path)
    )
    config = kt.TransformerConfig(d_model=8, sinusoids="t2t", first_position=2)
    figure = visualize.plot_positional_encoding(options, config)
    visualize.saving.save_figure(figure, path)
    expected = references.interleaved_sinusoids(9, 8, 2, "t2t")
    np.testing.assert_allclose(
        drawn_matrix(path, expected), expected, atol=0.02
    )


def test_learned_positions_are_those_of_the_weights(learned, tmp_path, capsys):
    path = tmp_path / "positions.svg"
    directory, model = learned
    what = ["--plot=positional_encoding", f"--output={path}"]
    from_learned = [f"--workdir={directory}", *what]
    visualize.main([*from_learned, "--length=50"])
    table = np.asarray(model.source_input.positions.table)[:50]
    expected = table / np.abs(table).max()
    np.testing.assert_allclose(
        drawn_matrix(path, expected), expected, atol=0.02
    )
    assert "length must be at most max_positions=60. Received: length=61" in (
        fails(visualize.main, [*from_learned, "--length=61"], capsys)
    )
    config = (directory / "config.json").read_text()
    relative = config.replace('"learned"', '"relative"')
    relative = relative.replace('"max_positions": 60', '"max_positions": null')
    (tmp_path / "config.json").write_text(relative)
    assert "Received: positions='relative'" in fails(
        visualize.main, [f"--workdir={tmp_path}", *what], capsys
    )


def drawn_matrix(path, expected):
    """The numbers in [-1, 1] that a picture shows, by its colors."""
    [picture] = [
        found
        for found in pages.images(path.read_text("utf-8"))
        if found.shape[:2] == expected.shape
    ]
    numbers = np.linspace(-1, 1, 256)
    colors = matplotlib.colormaps["RdBu_r"](range(256))[:, :3] * 255
    distances = np.abs(picture[:, :, None] - colors).sum(-1)
    return numbers[distances.argmin(-1)]
