"""Figures: they draw what was given, for any text."""

import itertools
import pathlib
import re
import sys

import numpy as np
import pages
import pytest
import tensorflow as tf
from matplotlib.colors import to_hex
from tolerance import assert_close

import keras_transformer as kt
from keras_transformer.figures import attention, attention_plots, saving
from keras_transformer.figures.colors import head_color
from keras_transformer.text import writing

OLD_RUN = pathlib.Path(__file__).parents[1] / "fixtures/workdir_0_2/run"
NUM_LAYERS, NUM_HEADS = {"encoder": 2, "decoder": 3, "cross": 3}, 2
SOURCE = ["▁the", "▁dog", "s", "</s>"]
TARGET = ["▁die", "▁Hund", "e", "▁da", "</s>"]
HOSTILE = (
    "</script><script>alert(1)</script>",
    "<!-- <script>",
    "\"quoted\" & 'so' &amp; {{data}} {% raw %} $title$ \\",
    "line\u2028and\u2029paragraph",
    "\u202eשלום\u202c مرحبا 今日は \U0001f468\u200d\U0001f469",
    "a lone \udc80 surrogate",
)


def make_maps(rng, num_source, num_target):
    """Makes random weights of every kind. The decoder's are causal."""
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
    words, begin, special = zip(*data["tokens"]["source"], strict=True)
    assert words == ("the", "dog", "s", "EOS")
    assert begin == (True, True, False, True)
    assert special == (False, False, False, True)
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
    elements = pages.Elements(page)
    scripts = elements.of("script")
    assert len(scripts) == 2 and "\u2028" not in scripts[0][2]
    data, _ = pages.data_of(page)
    assert data["tokens"]["source"][3][0] == text
    shown = text.replace("\udc80", "\ufffd")
    assert elements.of("bdi")[0][2] == shown
    assert elements.of("title")[0][2] == f"Attention: {shown}"
    in_one_line = re.sub("[\u2028\u2029]", " ", shown)
    assert pages.texts(figure.svg()).count(in_one_line) == 2
    for suffix in (".png", ".pdf"):
        assert saving.render(figure._draw(), suffix)
    [(_, attributes, _)] = pages.Elements(figure._repr_html_()).of("iframe")
    assert attributes["srcdoc"] == page
    assert attributes["sandbox"] == "allow-scripts"


def test_every_head_stands_out_from_the_page(figure):
    style = figure.html()
    light, dark = re.findall(r"--paper: (#\w{6})", style)
    for num_heads, (paper, is_dark) in itertools.product(
        (1, 2, 7, 8, 16, 32), ((light, False), (dark, True))
    ):
        colors = [head_color(i, num_heads, is_dark) for i in range(num_heads)]
        assert len(set(colors)) == num_heads
        for color in colors:
            found = pages.contrast(pages.rgb(color), pages.rgb(paper))
            assert found >= 3, (num_heads, color)
    data, _ = pages.data_of(style)
    assert data["kinds"][0]["colors"] == {
        "light": [head_color(i, 2) for i in range(2)],
        "dark": [head_color(i, 2, True) for i in range(2)],
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
        drawn = figure._draw(view=view)
        [axes] = drawn.axes
        assert axes.get_xlabel().endswith(note)
        # Below all else, and inside.
        drawn.draw_without_rendering()
        whole = drawn.get_tightbbox()
        labels = [*axes.get_xticklabels(), *axes.get_yticklabels()]
        lowest = min(label.get_window_extent().y0 for label in labels)
        place = axes.xaxis.label.get_window_extent().y0 / drawn.dpi
        assert whole.y0 <= place + 1e-6 < lowest / drawn.dpi
        assert note in pages.texts(figure.svg(view=view))


def test_unknown_texts_are_named(figure):
    one, many = (
        attention.AttentionFigure(
            "", "", SOURCE, TARGET, figure.maps, unknown=unknown
        )
        for unknown in (["☃", "ab", "☃"], "abcdefgh")
    )
    assert one.notes == [
        "Not in the vocabulary, not read: ☃ (U+2603 SNOWMAN), ab."
    ]
    assert many.notes[0].endswith("e (U+0065 LATIN SMALL LETTER E) and 3 more.")


@pytest.mark.parametrize(
    "direction, languages",
    [
        ("rtl", ["ar", "fa_IR", "heb_Hebr", "ku-Arab"]),
        ("ltr", ["ur-Latn-PK", "EN", "arn"]),  # Mapudungun
        ("auto", ["", None]),
    ],
)
def test_direction_is_that_of_the_language(direction, languages):
    for language in languages:
        assert writing.direction(language) == direction, language


# The drawings


def lines_of(axes):
    """Returns the weights of (query, key, color) from the drawn lines."""
    return {
        (round(start[0]), round(end[0]), to_hex(color)): color[3]
        for lines in axes.collections
        for (start, end), color in zip(
            lines.get_segments(), lines.get_colors(), strict=True
        )
    }


def words_of(labels):
    return [label.get_text() for label in labels]


def test_a_line_for_each_weight(figure):
    [axes] = figure._draw(kind="cross", layer=2, heads=[2]).axes
    weights = figure.maps["cross"][1, 1]
    expected = {
        (i, j, head_color(1, 2)): weights[i, j]
        for i, j in np.ndindex(5, 4)
        if weights[i, j] >= 0.005
    }
    assert lines_of(axes) == pytest.approx(expected)
    [above] = axes.child_axes
    queries, keys = "die Hund ·e da EOS".split(), "the dog ·s EOS".split()
    assert words_of(above.get_xticklabels()) == queries
    assert words_of(axes.get_xticklabels()) == keys
    texts = pages.texts(figure.svg(kind="cross", layer=2, heads=[2]))
    assert sorted(texts) == sorted(queries + keys)


def test_one_token_of_all_heads(figure):
    [axes] = figure._draw(kind="decoder", token=3).axes
    found = lines_of(axes)
    assert {query for query, _, _ in found} == {2}
    assert len({color for _, _, color in found}) == NUM_HEADS
    labels = axes.child_axes[0].get_xticklabels()
    faint = [label for label in labels if label.get_alpha() is not None]
    assert words_of(faint) == ["die", "Hund", "da", "EOS"]


def test_the_heat_map_is_the_mean(figure):
    drawn = figure._draw(view="heat_map", kind="cross", layer=1)
    [axes] = drawn.axes
    [mesh] = axes.collections
    mean = figure.maps["cross"][0].mean(axis=0)
    np.testing.assert_allclose(mesh.get_array(), mean)
    assert mesh.get_clim() == (0, pytest.approx(mean.max()))
    # The cell of the first query and key is where their labels are.
    corner = mesh.get_coordinates()[0, 0]
    assert corner.tolist() == [-0.5, -0.5] and axes.yaxis_inverted()
    assert words_of(axes.get_yticklabels()) == "die Hund ·e da EOS".split()
    assert words_of(axes.get_xticklabels()) == "the dog ·s EOS".split()


def test_japanese_stands_upright():
    figure = make_figure("日本語", ["▁日", "本語", "</s>"])
    [axes] = figure._draw().axes
    labels = axes.get_xticklabels()
    assert [label.get_rotation() for label in labels] == [0, 0, 90]
    texts = pages.texts(figure.svg())
    assert sorted(texts) == sorted([*"日本語", "EOS"] * 2)  # and no dot


@pytest.mark.parametrize(
    "choice, message",
    [
        ({"view": "list"}, "view of lines, heat_map."),
        ({"layer": 3}, "layer from 1 to 2. Received: 3"),
        ({"heads": [1, 0]}, "heads from 1 to 2. Received: 0"),
        ({"heads": []}, "expected at least one head."),
        ({"token": 5}, "token from 1 to 4. Received: 5"),
        ({"token": 1, "view": "heat_map"}, "view=lines for token"),
    ],
)
def test_what_is_not_there_is_refused(figure, choice, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        figure.svg(**choice)


def test_weights_of_other_tokens_are_refused(figure):
    def make(kind, weights):
        maps = {**figure.maps, kind: weights}
        attention.AttentionFigure("a", "b", SOURCE, TARGET, maps)

    with pytest.raises(ValueError, match=r"'cross' \[layers, heads, 5"):
        make("cross", figure.maps["encoder"])
    with pytest.raises(ValueError, match="'encoder' that sum to 1"):
        make("encoder", figure.maps["encoder"] * np.float32(np.nan))


# Files


def test_files_by_their_suffixes(figure, tmp_path, monkeypatch):
    figure.save(tmp_path / "a.html")
    assert (tmp_path / "a.html").read_text("utf-8") == figure.html()
    for suffix in ("svg", "pdf", "png"):
        figure.save(tmp_path / f"a.{suffix}", kind="cross")
    svg = figure.svg(kind="cross")
    assert (tmp_path / "a.svg").read_text() == svg
    assert "<title>Encoder-decoder attention of layer 3, heads 1, 2<" in svg
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")
    width = float(re.search(r'<svg[^>]* width="([\d.]+)pt"', svg)[1])
    pixels = tf.io.decode_png((tmp_path / "a.png").read_bytes(), 3).numpy()
    assert pixels.shape[1] == pytest.approx(2 * width, abs=2)
    assert pixels[0, 0].tolist() == [255, 255, 255]
    assert (pixels < 90).any()  # text
    for name, choice, message in (
        ("b.gif", {}, "with .html or .svg or .png or .pdf. Received: output="),
        ("b.html", {"layer": 1}, "a page, which has all layers"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            figure.save(tmp_path / name, **choice)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for use in (lambda: figure.save(tmp_path / "b.png"), figure.svg):
        with pytest.raises(ValueError, match=r"keras-transformer-nmt\[figures"):
            use()
    figure.save(tmp_path / "b.html")
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"a.html", "a.svg", "a.png", "a.pdf", "b.html"}


@pytest.mark.parametrize("suffix", saving.SUFFIXES)
def test_the_same_figure_is_the_same_file(suffix):
    first, second = (
        saving.render(make_figure()._draw(), suffix) for _ in range(2)
    )
    assert first == second
    assert b"Matplotlib v" not in first and b"Date" not in first


def test_characters_without_a_font_are_reported_once(monkeypatch, caplog):
    # Of a private area, and so in no font.
    figure = make_figure("a", ["▁a\ue123", "\ue124\ue123", "</s>"])
    figure.svg()
    assert not caplog.records
    for suffix in (".png", ".pdf"):
        caplog.clear()
        saving.render(figure._draw(), suffix)
        [record] = caplog.records
        assert "the characters \ue123 \ue124, which are" in record.getMessage()


def test_fonts_have_the_scripts_that_are_installed(monkeypatch):
    monkeypatch.setattr(
        attention_plots,
        "get_font_names",
        lambda: ["Yu Gothic", "Some Font", "Noto Sans CJK JP"],
    )
    families = attention_plots._families.__wrapped__()
    assert families == [
        "DejaVu Sans",
        "Noto Sans CJK JP",
        "Yu Gothic",
        "sans-serif",
    ]
    monkeypatch.setattr(attention_plots, "_families", lambda: families[:1])
    [axes] = make_figure()._draw().axes
    assert axes.get_xticklabels()[0].get_fontfamily() == ["DejaVu Sans"]


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
    without = re.sub("[☃☂\x85\u2028]", "", text)
    [source] = translator.tokenizer.encode([without]).to_list()
    if reference is None:
        [[(target, _), *_]] = translator.n_best_ids([text])
        assert figure.target == translator.translate([text])[0]
    else:
        without = re.sub(" [☃☂]+|\x85", "", reference)
        [target] = translator.tokenizer.encode([without]).to_list()
        assert figure.target == reference
    notes = []
    if len(source) > 40:
        notes = [
            f"A sentence has {len(source) - 1} tokens, truncated to 39"
            f" ({text[:60]} ...)."
        ]
        source = [*source[:39], kt.EOS]
        assert "truncated to 39" in caplog.text
    if "☃" in text:
        notes = ["Not in the vocabulary, not read: ☃ (U+2603 SNOWMAN), ☃☂."]
    if target[-1] != kt.EOS:  # the model is hardly trained
        notes = [f"The translation is truncated to {len(target)} tokens."]
    assert figure.notes == notes
    expected = translator.model.attention_maps(
        {
            "source_ids": tf.constant([source]),
            "target_ids": tf.constant([[kt.BOS, *target[:-1]]]),
        }
    )
    for kind, weights in expected._asdict().items():
        assert_close(figure.maps[kind], weights[0])
    shown = [token.text for token in figure.tokens["source"]]
    plain = [pieces[i].replace("▁", "") or "␣" for i in source[:-1]]
    assert shown == [*plain, "EOS"]
    assert len(figure.tokens["written"]) == len(target)
    assert figure.forced == (reference is not None)


@pytest.mark.parametrize(
    "arguments, name", [((" ",), "text"), (("a", "\t"), "reference")]
)
def test_blank_sentences_are_refused(translator, arguments, name):
    with pytest.raises(ValueError, match=f"expected a word. Received: {name}="):
        kt.attention_figure(translator, *arguments)


def test_truncated_translations_are_noted(translator):
    short = translator.with_decoding(max_output_length=2, min_length=2)
    [[(ids, _), *_]] = short.n_best_ids(["a dog runs."])
    assert len(ids) == 2 and ids[-1] != kt.EOS
    figure = kt.attention_figure(short, "a dog runs.")
    assert figure.notes == ["The translation is truncated to 2 tokens."]
    figure = kt.attention_figure(short, "a dog runs.", "ein Hund rennt.")
    tokens = len(translator.tokenizer.to_ids(["ein Hund rennt."])[0]) - 1
    assert figure.notes == [
        f"A sentence has {tokens} tokens, truncated to 1 (ein Hund rennt. ...)."
    ]
