"""The pages in a real browser, by mouse and by keyboard.

    python -m pytest -m browser

They need Chromium (on Debian: apt-get install chromium), and are left out
otherwise. `figures_test.py` looks at what is in the page without one.
"""

import itertools
import re

import browser
import numpy as np
import pages
import pytest
from browser import text, texts

from keras_transformer.figures.attention import AttentionFigure
from keras_transformer.figures.colors import head_color

pytestmark = pytest.mark.browser

SOURCE = ["▁the", "▁small", "▁dog", "s", "▁run", "</s>"]
TARGET = ["▁die", "▁kleinen", "▁Hund", "e", "▁laufen", "▁los", "</s>"]
NUM_LAYERS, NUM_HEADS = 3, 4


@pytest.fixture(scope="module")
def figure():
    rng = np.random.default_rng(5)
    maps = {}
    shapes = {"encoder": (6, 6), "decoder": (7, 7), "cross": (7, 6)}
    for kind, shape in shapes.items():
        weights = rng.random((NUM_LAYERS, NUM_HEADS, *shape)) ** 3
        if kind == "decoder":
            weights *= np.tri(7)
        maps[kind] = weights / weights.sum(-1, keepdims=True)
    return AttentionFigure(
        "the small dogs run",
        "die kleinen Hunde laufen los",
        SOURCE,
        TARGET,
        maps,
        ("en", "de"),
    )


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    opened = browser.Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture
def page(chromium, figure, tmp_path):
    """The attention page in its state after it has opened."""
    path = tmp_path / "attention.html"
    figure.save(path)
    chromium.leave()
    open_page(chromium, path)
    yield chromium
    assert chromium.errors == []
    assert chromium.requests == [path.as_uri()]


def test_all_is_in_landmarks(page):
    assert page.evaluate(
        "[...document.body.children].map((n) => n.localName)"
    ) == [
        *("header", "main", "footer"),
        *("noscript", "script", "script"),
    ]


def links(page):
    """Returns the drawn lines: (row, column, head) -> opacity."""
    found = page.evaluate(
        "[...document.querySelectorAll('#links path')].map((path) =>"
        " [path.dataset.row, path.dataset.column, path.dataset.head,"
        " path.getAttribute('stroke-opacity')])"
    )
    return {tuple(map(int, key)): float(value) for *key, value in found}


def expected(figure, kind, layer, heads, row=None, column=None):
    """Returns the lines to draw, as shares of the strongest."""
    weights = figure.maps[kind][layer]
    found = {
        (i, j, head): weights[head, i, j]
        for head in heads
        for i, j in np.ndindex(weights.shape[1:])
        if row in (None, i) and column in (None, j)
    }
    strongest = max(found.values())
    return {
        key: value / strongest
        for key, value in found.items()
        if value >= 0.01 * strongest
    }


def assert_drawn(page, *arguments, **place):
    found, wanted = links(page), expected(*arguments, **place)
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        assert found[key] == pytest.approx(value, abs=0.001)


def token(side, number):
    return f"#{side} li:nth-child({number}) .token"


def test_a_token_under_the_mouse_shows_its_lines(page, figure):
    heads = range(NUM_HEADS)
    assert_drawn(page, figure, "encoder", 2, heads)
    page.point(token("queries", 3))
    assert_drawn(page, figure, "encoder", 2, heads, row=2)
    strongest = figure.maps["encoder"][2].mean(0)[2].argmax()
    details = text(page, "#details")
    assert details.startswith("dog (3) attends to (mean over 4 heads):")
    word = ["the", "small", "dog", "s", "run", "EOS"][strongest]
    assert text(page, "#details tr td:nth-child(2)").startswith(word)
    page.point(token("keys", 5))
    assert_drawn(page, figure, "encoder", 2, heads, column=4)
    assert "is attended to by" in text(page, "#details")
    page.leave()
    assert_drawn(page, figure, "encoder", 2, heads)
    page.click(token("queries", 1))
    page.leave()
    assert_drawn(page, figure, "encoder", 2, heads, row=0)
    page.press("Escape")
    page.evaluate("document.activeElement.blur()")
    assert_drawn(page, figure, "encoder", 2, heads)


def test_kind_layer_and_heads_by_mouse(page, figure):
    page.click("input[name=kind][value=cross]")
    page.click("input[name=layer][value='0']")
    page.click("input[name=head][value='1']")
    page.leave()
    assert_drawn(page, figure, "cross", 0, [0, 2, 3])
    page.click("input[name=head][value='2']", times=2)
    assert_drawn(page, figure, "cross", 0, [2])
    page.click("#all")
    assert_drawn(page, figure, "cross", 0, range(NUM_HEADS))
    assert "layer 1 of 3" in text(page, "#note")
    tops = page.evaluate(
        "['#queries', '#keys'].map((id) =>"
        " document.querySelectorAll(`${id} .token`).length)"
    )
    assert tops == [7, 6]


def test_everything_by_keyboard(page, figure):
    page.press("Tab", "ArrowDown", "ArrowDown")  # kind
    page.press("Tab", "ArrowLeft")  # layer
    page.press("Tab", " ")  # the first head
    assert_drawn(page, figure, "cross", 1, [1, 2, 3])
    page.press("Tab", "Tab", "Enter")  # the third alone
    assert_drawn(page, figure, "cross", 1, [2])
    page.press("Tab", "Tab", "Enter")  # all
    page.press("Tab", "Tab", "Tab")  # view, unit, the first token
    assert_drawn(page, figure, "cross", 1, range(NUM_HEADS), row=0)
    page.press("ArrowDown", "ArrowDown")
    assert_drawn(page, figure, "cross", 1, range(NUM_HEADS), row=2)
    assert (
        page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        == "solid"
    )
    page.press("Enter", "End")
    assert_drawn(page, figure, "cross", 1, range(NUM_HEADS), row=6)
    page.press("ArrowRight")
    assert_drawn(page, figure, "cross", 1, range(NUM_HEADS), column=5)
    page.evaluate("document.activeElement.blur()")
    assert_drawn(page, figure, "cross", 1, range(NUM_HEADS), row=2)
    pressed = page.evaluate(
        "document.querySelectorAll('.token[aria-pressed=true]').length"
    )
    assert pressed == 1


def test_the_heat_map_by_mouse_and_by_keyboard(page, figure):
    page.click("input[name=view][value='heat map']")
    page.click("input[name=head][value='3']", times=2)
    assert page.evaluate("document.querySelector('#lines').hidden")
    weights = figure.maps["encoder"][2, 3]

    def shade(row, column):
        return page.evaluate(
            "(() => { const c = document.querySelector('#canvas');"
            f" return c.getContext('2d').getImageData({column * 24 + 9},"
            f" {row * 24 + 9}, 1, 1).data[3]; }})()"
        )

    for row, column in np.ndindex(weights.shape):
        share = weights[row, column] / weights.max()
        assert shade(row, column) == pytest.approx(255 * share, abs=2)
    page.point("#cells")
    assert "s (4) attends to s (4):" in text(page, "#details")
    page.evaluate("document.querySelector('#cells').focus()")
    page.press("ArrowUp", "ArrowRight", "Home", "ArrowRight")
    details = text(page, "#details")
    percent = 100 * weights[2, 1]
    shown = f"{percent:.0f}" if percent >= 9.95 else f"{percent:.1f}"
    assert f"dog (3) attends to small (2): {shown} %, head 4" in details
    active = page.evaluate(
        "[...document.querySelectorAll('#map li.active')].map("
        "(item) => item.textContent)"
    )
    assert active == ["small", "dog"]


def test_words_are_sums_and_means_of_their_tokens(page, figure):
    page.click("input[name=unit][value=words]")
    page.click("input[name=head][value='0']", times=2)
    weights = figure.maps["encoder"][2, 0]
    groups = [[0], [1], [2, 3], [4], [5]]
    found = links(page)
    values = {
        (i, j): weights[np.ix_(rows, columns)].sum() / len(rows)
        for (i, rows), (j, columns) in itertools.product(
            enumerate(groups), repeat=2
        )
    }
    strongest = max(values.values())
    for (i, j), value in values.items():
        share = value / strongest
        assert found.get((i, j, 0), 0) == pytest.approx(share, abs=0.011)
    assert text(page, token("queries", 3)) == "dogs"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_is_legible_in_both_schemes(page, scheme):
    page.prefer(scheme)
    ink, paper = page.evaluate(
        "['color', 'backgroundColor'].map((name) =>"
        " getComputedStyle(document.body)[name].match(/\\d+/g).map(Number))"
    )
    is_light = pages.luminance(ink) < pages.luminance(paper)
    assert is_light == (scheme == "light")
    assert pages.contrast(ink, paper) > 7
    for head in range(NUM_HEADS):  # whose contrast `figures_test.py` measures
        color = pages.rgb(head_color(head, NUM_HEADS, scheme == "dark"))
        page.wait(  # a page learns of another scheme with its next frame
            "[...document.querySelectorAll('#links path')].some((path) =>"
            f" getComputedStyle(path).stroke === 'rgb({color[0]}, {color[1]},"
            f" {color[2]})')"
        )


def test_faint_weights_of_a_long_sentence_are_visible(chromium, tmp_path):
    number = 120
    rng = np.random.default_rng(8)
    weights = rng.uniform(0.5, 1, (1, 2, number, number))
    weights /= weights.sum(-1, keepdims=True)
    pieces = [f"▁w{i}" for i in range(number)]
    path = tmp_path / "long.html"
    maps = dict.fromkeys(("encoder", "decoder", "cross"), weights)
    AttentionFigure("w", "w", pieces, pieces, maps).save(path)
    open_page(chromium, path)
    chromium.click(token("queries", 7))
    chromium.leave()
    found = links(chromium)
    strongest = weights[0, :, 6].max()
    assert len(found) == 2 * number and strongest < 0.02
    for (row, column, head), opacity in found.items():
        assert row == 6
        value = weights[0, head, row, column] / strongest
        assert opacity == pytest.approx(value, abs=0.002)
    shown = f"the strongest is {100 * strongest:.1f} %"
    assert shown in text(chromium, "#count")
    stripe = chromium.evaluate(
        "document.querySelector('#keys .token').style.backgroundImage"
    )
    assert "rgba(" in stripe and max(
        float(alpha) for alpha in re.findall(r", ([\d.]+)\)", stripe)
    ) == pytest.approx(0.75 * weights[0, :, 6, 0].max() / strongest, abs=0.005)


def open_page(chromium, path, hash=""):
    """Opens an attention page, and waits until it is ready."""
    chromium.open(path, hash)
    chromium.wait("document.body.dataset.ready === 'true'")
    assert chromium.errors == []


def test_words_of_languages_without_spaces(chromium, tmp_path):
    source = ["▁私", "は", "東", "京", "に行", "き", "ます", "</s>"]
    target = ["▁ש", "לום", "▁(", "Anna", ")", "</s>"]
    shapes = {"encoder": (8, 8), "decoder": (6, 6), "cross": (6, 8)}
    maps = {k: np.full((1, 1, *s), 1 / s[1]) for k, s in shapes.items()}
    path = tmp_path / "japanese.html"
    AttentionFigure(
        "私は東京に行きます",
        "Anna: שלום (Anna)",
        source,
        target,
        maps,
        ("ja", "he"),
    ).save(path)
    open_page(chromium, path)
    assert chromium.evaluate(
        "[...document.querySelectorAll('.sentence bdi')].map((bdi) =>"
        " getComputedStyle(bdi).direction)"
    ) == ["ltr", "rtl"]
    chromium.click("input[name=kind][value=cross]")
    chromium.click("input[name=unit][value=words]")
    words = texts(chromium, "#keys .token")
    # A token over the end of a word joins two: "に行".
    assert words == ["私", "は", "東京", "に行き", "ます", "EOS"]
    assert texts(chromium, ".special") == ["EOS", "EOS"]
    assert texts(chromium, "#queries .token") == ["שלום", "(Anna)", "EOS"]
    assert chromium.evaluate(
        "[...document.querySelectorAll('#queries bdi')].map((bdi) => bdi.dir)"
    ) == ["rtl", "rtl", "ltr"]
    # Without the browser's dictionary every token is a word.
    chromium.evaluate("void (Intl.Segmenter = undefined)")
    chromium.click("input[name=unit][value=subwords]")
    chromium.click("input[name=unit][value=words]")
    assert texts(chromium, "#keys .token")[:4] == ["私", "は", "東", "京"]


def test_the_overview_opens_a_head(page, figure):
    page.click("input[name=view][value=overview]")
    assert page.evaluate("document.querySelector('#heads').disabled")
    labels = page.evaluate(
        "[...document.querySelectorAll('#overview button')].map((button) =>"
        " button.getAttribute('aria-label'))"
    )
    assert labels == [
        f"Open layer {layer + 1}, head {head + 1}"
        for layer in range(NUM_LAYERS)
        for head in range(NUM_HEADS)
    ]
    shades = page.evaluate(
        "[...document.querySelectorAll('#overview canvas')].map((canvas) =>"
        " [...canvas.getContext('2d').getImageData(0, 0, canvas.width,"
        " canvas.height).data].filter((_, i) => i % 4 === 3))"
    )
    weights = figure.maps["encoder"].reshape(len(labels), -1)
    wanted = 255 * weights / weights.max(-1, keepdims=True)
    np.testing.assert_allclose(shades, wanted, atol=1)
    page.click("[aria-label='Open layer 2, head 3']")
    page.leave()
    assert_drawn(page, figure, "encoder", 1, [2])
    checked = "document.querySelector('input[name={}]:checked').value"
    assert page.evaluate(checked.format("layer")) == "1"
    assert page.evaluate(checked.format("view")) == "lines"
    # By keyboard: from the view's buttons to the first picture.
    page.press("ArrowRight", "ArrowRight", "Tab", "Tab")
    page.press("ArrowDown", "ArrowRight")
    focused = "document.activeElement.getAttribute('aria-label')"
    assert page.evaluate(focused) == "Open layer 2, head 2"
    page.press("End", "ArrowUp", "ArrowLeft", "Enter")
    assert_drawn(page, figure, "encoder", 1, [2])


def test_a_link_keeps_the_view(page, figure, tmp_path):
    page.click("input[name=kind][value=cross]")
    page.click("input[name=layer][value='0']")
    page.click("input[name=head][value='1']")
    page.click("input[name=unit][value=words]")
    page.click(token("keys", 2))
    link = page.evaluate("document.querySelector('#link').href")
    assert link == page.evaluate("location.href")
    shown = links(page)
    assert shown and {column for _, column, _ in shown} == {1}
    details = text(page, "#details")
    path = tmp_path / "attention.html"
    page.evaluate("void (location.hash = '')")  # which is noticed
    page.wait("document.querySelectorAll('#heads input:checked').length == 3")
    open_page(page, path)
    page.leave()
    assert_drawn(page, figure, "encoder", 2, range(NUM_HEADS))
    open_page(page, path, link.partition("#")[2])
    page.leave()
    assert links(page) == shown and text(page, "#details") == details


def test_the_frame_of_a_notebook_has_no_address(chromium, figure, tmp_path):
    path = tmp_path / "notebook.html"
    # A test may look into a frame of the same origin alone.
    frame = figure._repr_html_().replace(
        "allow-scripts", "allow-scripts allow-same-origin"
    )
    path.write_text(f"<!DOCTYPE html><meta charset=utf-8>{frame}", "utf-8")
    chromium.open(path)
    inside = "document.querySelector('iframe').contentDocument"
    chromium.wait(f"{inside}.body.dataset.ready === 'true'")
    chromium.evaluate(f"{inside}.querySelector('[value=overview]').click()")
    assert chromium.evaluate(
        f"{inside}.querySelectorAll('#overview canvas').length"
    ) == (NUM_LAYERS * NUM_HEADS)
    assert not chromium.evaluate(
        f"{inside}.querySelector('#link').checkVisibility()"
    )
    assert chromium.errors == []


@pytest.mark.parametrize(
    "address",
    [
        "kind=both&layer=9&heads=0+x+1.5&view=list&unit=<b>&token=keys+99",
        "layer=-1&heads=2&token=toString+1",
        "%",
    ],
)
def test_an_address_without_meaning_is_no_error(page, figure, address):
    page.evaluate(f"void (location.hash = {address!r})")
    page.leave()
    heads = {"kind": [], "laye": [1], "%": range(NUM_HEADS)}[address[:4]]
    page.wait(
        "document.querySelectorAll('#heads input:checked').length =="
        f" {len(heads)}"
    )
    if len(heads):
        assert_drawn(page, figure, "encoder", 2, heads)
    else:
        assert text(page, "#details") == "No head is chosen."


def test_nothing_sticks_out_of_a_narrow_window(page):
    page.resize(380, 700)
    for view in ("lines", "heat map", "overview"):
        page.click(f"input[name=view][value='{view}']")
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 380
    page.resize(1280, 900)
