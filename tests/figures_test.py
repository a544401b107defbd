"""Figures: what is drawn is what was given, whatever the text is."""

import html
import itertools
import math
import pathlib
import re
import sys

import numpy as np
import pages
import pytest
import tensorflow as tf

import keras_transformer as kt
from keras_transformer.figures import attention, drawing, plots, saving
from keras_transformer.figures.drawing import PAPER
from keras_transformer.vocabulary import UNK

OLD_RUN = pathlib.Path(__file__).parent / "fixtures/workdir_0_1/run"
NUM_LAYERS, NUM_HEADS = {"encoder": 2, "decoder": 3, "cross": 3}, 2
SOURCE = ["▁the", "▁dog", "s", "</s>"]
TARGET = ["▁die", "▁Hund", "e", "▁da", "</s>"]
HOSTILE = (
    "</script><script>alert(1)</script>",
    "<!-- <script>",
    "\"quoted\" & 'so' &amp; {{data}} $title \\",
    "line\u2028and\u2029paragraph",
    "\u202eשלום\u202c مرحبا 今日は \U0001f468\u200d\U0001f469",
    "a lone \udc80 surrogate",
)


def make_maps(rng, num_source, num_target):
    """Random weights of every kind; those of the decoder are causal."""
    shapes = {
        "encoder": (num_source, num_source),
        "decoder": (num_target, num_target),
        "cross": (num_target, num_source),
    }
    maps = {}
    for kind, shape in shapes.items():
        weights = rng.random((NUM_LAYERS[kind], NUM_HEADS, *shape)) ** 4
        if kind == "decoder":
            weights *= np.tri(num_target)
        maps[kind] = weights / weights.sum(-1, keepdims=True)
    return maps


def make_figure(source="the dogs", pieces=SOURCE):
    maps = make_maps(np.random.default_rng(3), len(pieces), len(TARGET))
    return attention.AttentionFigure(
        source, "die Hunde da", pieces, TARGET, maps, ("en", "de")
    )


@pytest.fixture(scope="module")
def figure():
    return make_figure()


# The numbers


def test_stored_weights_are_whole_and_near():
    rng = np.random.default_rng(1)
    weights = rng.dirichlet(np.full(70, 0.1), size=(3, 40))
    numbers = attention.quantize(weights)
    assert numbers.dtype == np.uint16
    assert np.all(numbers.sum(axis=-1, dtype=int) == attention.WHOLE)
    error = np.abs(numbers / attention.WHOLE - weights)
    assert error.max() < 1 / attention.WHOLE
    alike = attention.quantize(np.full((1, 7), 1 / 7))
    assert np.ptp(alike) == 1 and alike.sum() == attention.WHOLE


def test_the_page_has_the_maps(figure):
    data, weights = pages.data_of(figure.html())
    for kind, expected in figure.maps.items():
        np.testing.assert_allclose(weights[kind], expected, atol=2e-5)
        np.testing.assert_allclose(weights[kind].sum(-1), 1, atol=1e-12)
    assert data["tokens"]["source"] == [
        ["the", True, False],
        ["dog", True, False],
        ["s", False, False],
        ["EOS", True, True],
    ]
    texts = {name: [t[0] for t in ts] for name, ts in data["tokens"].items()}
    assert texts["written"] == ["die", "Hund", "e", "da", "EOS"]
    assert texts["read"] == ["BOS", "die", "Hund", "e", "da"]
    assert [s["language"] for s in data["sentences"]] == ["en", "de"]
    assert [s["direction"] for s in data["sentences"]] == ["ltr", "ltr"]
    assert len(pages.Elements(figure.html()).of("h1")) == 1


def test_the_page_asks_for_nothing(figure):
    pages.assert_offline(figure.html())


@pytest.mark.parametrize("text", HOSTILE)
def test_text_stays_text(text):
    figure = make_figure(text, [*SOURCE[:-1], f"▁{text}", "</s>"])
    page = figure.html()
    assert "\u2028" not in page.split("</title>")[1]
    elements = pages.Elements(page)
    assert len(elements.of("script")) == 2
    data, _ = pages.data_of(page)
    assert data["sentences"][0]["text"] == text
    assert data["tokens"]["source"][3][0] == text
    shown = text.replace("\udc80", "\ufffd")
    assert elements.of("title")[0][2] == f"Attention: {shown}"
    texts = [words for _, words in pages.drawing(figure.svg())["text"]]
    assert texts.count(shown) == 2
    [(_, attributes, _)] = pages.Elements(figure._repr_html_()).of("iframe")
    assert attributes["srcdoc"] == page
    assert attributes["sandbox"] == "allow-scripts"


def test_every_head_stands_out_from_the_page(figure):
    style = figure.html()
    light, dark = re.findall(r"--paper: (#\w{6})", style)
    for num_heads in (1, 2, 7, 8, 16, 32):
        for paper, is_dark in ((light, False), (dark, True)):
            colors = [
                attention.attention_svg.head_color(head, num_heads, is_dark)
                for head in range(num_heads)
            ]
            assert len(set(colors)) == num_heads
            for color in colors:
                found = pages.contrast(pages.rgb(color), pages.rgb(paper))
                assert found >= 3, (num_heads, color)
    data, _ = pages.data_of(style)
    assert data["kinds"][0]["colors"] == {
        "light": [attention.attention_svg.head_color(i, 2) for i in range(2)],
        "dark": [
            attention.attention_svg.head_color(i, 2, True) for i in range(2)
        ],
    }


def test_notes_are_in_page_and_drawings(figure):
    note = "The <source> is truncated."
    figure = attention.AttentionFigure(
        "a", "b", SOURCE, TARGET, figure.maps, notes=[note]
    )
    [(_, _, shown)] = [
        found
        for found in pages.Elements(figure.html()).of("p")
        if found[1].get("class") == "warning"
    ]
    assert shown == note
    for view in attention.VIEWS:
        found = pages.drawing(figure.svg(view=view))
        [place] = [at for at, text in found["text"] if text == note]
        [(size, _)] = found["svg"]
        # Below all else, and inside.
        assert float(place["y"]) < float(size["height"])
        assert float(size["width"]) > 6 * len(note)
        others = [at for at, text in found["text"] if text != note]
        assert all(
            float(at["y"]) < float(place["y"]) - 6
            for at in others
            if "transform" not in at
        )


def test_unknown_texts_are_named(figure):
    pieces = [*SOURCE[:2], "<unk>", "</s>"]
    figure = attention.AttentionFigure(
        "the dog☃",
        "b",
        pieces,
        ["<unk>", "▁Hund", "<unk>", "<unk>", "</s>"],
        figure.maps,
        unknown=(["☃"], ["ab", "", "☃"]),
    )
    assert figure.tokens["source"][2] == ("UNK ☃", True, True)
    texts = [token.text for token in figure.tokens["written"]]
    assert texts == ["UNK ab", "Hund", "UNK", "UNK ☃", "EOS"]
    assert figure.notes == [
        "Not in the vocabulary, read as UNK: ☃ (U+2603 SNOWMAN), ab."
    ]
    many = attention.AttentionFigure(
        "", "", pieces, TARGET, figure.maps, unknown=(list("abcdefgh"), ())
    )
    assert many.notes[0].endswith("e (U+0065 LATIN SMALL LETTER E) and 3 more.")


@pytest.mark.parametrize(
    "language, direction",
    [
        ("ar", "rtl"),
        ("fa_IR", "rtl"),
        ("heb_Hebr", "rtl"),
        ("ku-Arab", "rtl"),
        ("ur-Latn-PK", "ltr"),
        ("EN", "ltr"),
        ("arn", "ltr"),  # Mapudungun
        ("", "auto"),
        (None, "auto"),
    ],
)
def test_direction_is_that_of_the_language(language, direction):
    assert drawing.direction(language) == direction


# The drawings


def test_a_line_for_each_weight(figure):
    svg = figure.svg(kind="cross", layer=2, heads=[2])
    found = pages.drawing(svg)
    weights = figure.maps["cross"][1, 1]
    expected = {
        (i, j): weights[i, j]
        for i, j in np.ndindex(5, 4)
        if weights[i, j] >= 0.005
    }
    drawn = {}
    for line, _ in found["line"]:
        ends = [(float(line[x]) - 14 - 11) / 22 for x in ("x1", "x2")]
        drawn[tuple(map(round, ends))] = float(line["stroke-opacity"])
        assert line["stroke"] == attention.attention_svg.head_color(1, 2)
    assert drawn.keys() == expected.keys()
    for place, opacity in drawn.items():
        assert opacity == pytest.approx(expected[place], abs=0.0051)
    texts = [text for _, text in found["text"]]
    assert texts == [
        "die",
        "Hund",
        "·e",
        "da",
        "EOS",
        "the",
        "dog",
        "·s",
        "EOS",
    ]


def test_one_token_of_all_heads(figure):
    found = pages.drawing(figure.svg(kind="decoder", token=3))
    starts = {line["x1"] for line, _ in found["line"]}
    assert len(starts) == 1
    colors = {line["stroke"] for line, _ in found["line"]}
    assert len(colors) == NUM_HEADS
    faint = [text for at, text in found["text"] if "fill-opacity" in at]
    assert faint == ["die", "Hund", "da", "EOS"]


def test_the_heat_map_is_the_mean(figure):
    found = pages.drawing(figure.svg(view="heat_map", layer=1))
    mean = figure.maps["encoder"][0].mean(axis=0)
    cells = [at for at, _ in found["rect"] if "fill-opacity" in at]
    assert len(cells) == np.sum(mean >= 0.005)
    opacities = sorted(float(cell["fill-opacity"]) for cell in cells)
    expected = np.sort(mean[mean >= 0.005] / mean.max())
    np.testing.assert_allclose(opacities, expected, atol=0.0051)


def test_japanese_stands_upright():
    svg = make_figure("日本語", ["▁日", "本語", "</s>"]).svg()
    found = pages.drawing(svg)["text"]
    upright = [text for at, text in found if "transform" not in at]
    assert upright == ["日", "本", "語"] * 2  # and no dot


@pytest.mark.parametrize(
    "choice, message",
    [
        ({"kind": "both"}, "kind must be one of encoder, decoder, cross."),
        ({"view": "list"}, "view must be one of lines, heat_map."),
        ({"layer": 3}, "layer must be from 1 to 2. Received: layer=3"),
        ({"heads": [1, 0]}, "heads must be from 1 to 2. Received: heads=0"),
        ({"heads": []}, "heads must name one at least."),
        ({"token": 5}, "token must be from 1 to 4. Received: token=5"),
        ({"token": 1, "view": "heat_map"}, "token is an option of view=lines"),
    ],
)
def test_what_is_not_there_is_refused(figure, choice, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        figure.svg(**choice)


def test_weights_of_other_tokens_are_refused(figure):
    def make(kind, weights):
        maps = {**figure.maps, kind: weights}
        attention.AttentionFigure("a", "b", SOURCE, TARGET, maps)

    with pytest.raises(ValueError, match=r"'cross' must be \[layers, heads, 5"):
        make("cross", figure.maps["encoder"])
    with pytest.raises(ValueError, match="'encoder' must sum to 1"):
        make("encoder", figure.maps["encoder"] * np.float32(np.nan))


# Files


def test_files_by_their_endings(figure, tmp_path, monkeypatch):
    figure.save(tmp_path / "a.html")
    assert (tmp_path / "a.html").read_text("utf-8") == figure.html()
    figure.save(tmp_path / "a.svg", kind="cross")
    assert (tmp_path / "a.svg").read_text() == figure.svg(kind="cross") + "\n"
    figure.save(tmp_path / "a.png", kind="cross")
    [(size, _)] = pages.drawing(figure.svg(kind="cross"))["svg"]
    pixels = tf.io.decode_png((tmp_path / "a.png").read_bytes(), 3).numpy()
    assert pixels.shape[1] == round(saving.PNG_SCALE * float(size["width"]))
    assert pixels[0, 0].tolist() == [255, 255, 255]
    assert (pixels < 90).any()  # text
    for name, choice, message in (
        ("b.pdf", {}, "ends with .html or .svg or .png. Received: output="),
        ("b.html", {"layer": 1}, "a page has all layers, heads and views."),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            figure.save(tmp_path / name, **choice)
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(ValueError, match=r"keras-transformer-nmt\[png\]'"):
        figure.save(tmp_path / "b.png")
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"a.html", "a.svg", "a.png"}


# From a translator


@pytest.fixture(scope="module")
def translator():
    return kt.Translator.load(OLD_RUN)


@pytest.mark.parametrize(
    "text, reference",
    [
        (" a dog runs.", None),
        ("\x85a dog\u2028", "\x85ein Hund"),
        ("a dog " * 30, "ein Hund rennt."),
        ("a dog☃ runs.", "ein ☃☂ rennt."),
    ],
)
def test_attention_is_that_of_the_model(translator, text, reference, caplog):
    figure = kt.attention_figure(translator, text, reference)
    pieces = translator.tokenizer.pieces
    [source] = translator.tokenizer.encode([text]).to_list()
    if reference is None:
        [[(target, _), *_]] = translator.n_best_ids([text])
        assert figure.target == translator.translate([text])[0]
    else:
        [target] = translator.tokenizer.encode([reference]).to_list()
        assert figure.target == reference
    notes = []
    if len(source) > 40:
        notes = [
            "The source is truncated: the model reads the first 39 of its"
            f" {len(source) - 1} tokens."
        ]
        source = [*source[:39], kt.EOS]
        assert "truncated to 39" in caplog.text
    if "☃" in text:
        notes = ["Not in the vocabulary, read as UNK: ☃ (U+2603 SNOWMAN), ☃☂."]
    assert figure.notes == notes
    expected = translator.model.attention_maps(
        {
            "source_ids": tf.constant([source]),
            "target_ids": tf.constant([[kt.BOS, *target[:-1]]]),
        }
    )
    for kind, weights in expected._asdict().items():
        np.testing.assert_array_equal(figure.maps[kind], weights[0])
    shown = [token.text for token in figure.tokens["source"]]
    unknown = "UNK ☃" if "☃" in text else "UNK"
    plain = [
        unknown if i == UNK else pieces[i].replace("▁", "") or "␣"
        for i in source[:-1]
    ]
    assert shown == [*plain, "EOS"]
    assert len(figure.tokens["written"]) == len(target)
    assert figure.forced == (reference is not None)


@pytest.mark.parametrize(
    "arguments, name", [((" ",), "text"), (("a", "\t"), "reference")]
)
def test_blank_sentences_are_refused(translator, arguments, name):
    with pytest.raises(ValueError, match=f"{name} must have a word"):
        kt.attention_figure(translator, *arguments)


def test_truncated_translations_are_noted(translator):
    short = translator.with_decoding(max_output_length=2, min_length=2)
    [[(ids, _), *_]] = short.n_best_ids(["a dog runs."])
    assert len(ids) == 2 and ids[-1] != kt.EOS
    figure = kt.attention_figure(short, "a dog runs.")
    assert figure.notes == [
        "The translation is truncated: it may have 2 tokens."
    ]
    figure = kt.attention_figure(short, "a dog runs.", "ein Hund rennt.")
    tokens = len(translator.tokenizer.to_ids(["ein Hund rennt."])[0]) - 1
    assert figure.notes == [
        "The reference is truncated: the model reads the first 1 of its"
        f" {tokens} tokens."
    ]


# Plots


def numbers_at(svg, axis):
    """Pixels and numbers of an axis' ticks."""
    anchor, at = {"x": ("middle", "x"), "y": ("end", "y")}[axis]
    return [
        (
            float(attributes[at]) - (4 if axis == "y" else 0),
            float(text.replace(",", "")),
        )
        for attributes, text in pages.drawing(svg)["text"]
        if attributes["text-anchor"] == anchor
        and re.fullmatch(r"[-\d.,e]+", text)
    ]


@pytest.mark.parametrize("logarithmic", [False, True])
def test_points_are_where_the_ticks_say(logarithmic):
    points = [(0, 3.0), (100, 5000.0), (250, 20.0)]
    svg = plots.plot(
        [plots.Series("one", points), plots.Series("none", [])],
        label="l",
        x_label="x",
        y_label="y",
        theme=PAPER,
        logarithmic=logarithmic,
    )
    [(polyline, _)] = pages.drawing(svg)["polyline"]
    drawn = [
        tuple(map(float, p.split(","))) for p in polyline["points"].split()
    ]
    for axis, side in (("x", 0), ("y", 1)):
        ticks = numbers_at(svg, axis)
        assert len(ticks) >= 3
        (first, low), *_, (last, high) = ticks
        bend = math.log if logarithmic and axis == "y" else float
        for pixels, point in zip(drawn, points, strict=True):
            share = (bend(point[side]) - bend(low)) / (bend(high) - bend(low))
            expected = first + share * (last - first)
            assert pixels[side] == pytest.approx(expected, abs=0.2)


def test_a_single_point_and_equal_values_have_axes():
    for points in ([(5, 2.0)], [(1, 0.0), (2, 0.0)]):
        for logarithmic in (False, True):
            if logarithmic and points[0][1] == 0:
                continue
            svg = plots.plot(
                [plots.Series("one", points)],
                label="l",
                x_label="x",
                y_label="y",
                theme=PAPER,
                logarithmic=logarithmic,
            )
            assert "nan" not in svg and numbers_at(svg, "y")
    with pytest.raises(ValueError, match="expected points. Received: none"):
        plots.plot([], label="l", x_label="x", y_label="y", theme=PAPER)


def test_ticks_are_round_and_inside():
    for low, high in itertools.product((-3.7, 0, 0.013), (0.021, 9, 48211)):
        found = plots.ticks(low, high)
        assert 2 <= len(found) <= plots.NUM_TICKS
        assert low <= found[0] and found[-1] <= high
        steps = np.diff(found)
        np.testing.assert_allclose(steps, steps[0])
        assert f"{steps[0]:.0e}"[0] in "125"


def test_a_matrix_is_a_picture():
    matrix = np.array([[1.0, 0.0, -1.0], [0.5, 0.0, 0.0]])
    svg = plots.matrix_plot(
        matrix, label="l", x_label="x", y_label="y", theme=PAPER
    )
    uri = pages.drawing(svg)["image"][0][0]["href"]
    pixels = pages.pixels_of(uri)
    assert pixels.shape == (2, 3, 3)
    lowest = pixels[1]  # row 0 of the matrix
    assert lowest[0, 0] > lowest[0, 2]  # red
    assert lowest[2, 2] > lowest[2, 0]  # blue
    assert lowest[1].tolist() == [255, 255, 255]
    assert 0 < pixels[0, 0, 1] - lowest[0, 1] < 255  # half as strong


def test_characters_that_xml_lacks_are_replaced():
    assert (
        drawing.escape("a\0b\x0bc\ufffe\ud800") == "a\ufffdb\ufffdc\ufffd\ufffd"
    )
    assert html.unescape(drawing.escape("<&>\"'")) == "<&>\"'"
