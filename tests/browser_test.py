"""The pages in a real browser, by mouse and by keyboard.

    python -m pytest -m browser

They need Chromium (on Debian: apt-get install chromium), and are left out
otherwise. `figures_test.py` and `report_test.py` look at what is in the pages
without one.
"""

import itertools

import browser
import numpy as np
import pytest

from keras_transformer.figures.attention import AttentionFigure
from trainers import report_page
from trainers.records import Records
from trainers.report import Run

pytestmark = pytest.mark.browser

SOURCE = ["▁the", "▁small", "▁dog", "s", "▁run", "</s>"]
TARGET = ["▁die", "▁kleinen", "▁Hund", "e", "▁laufen", "▁los", "</s>"]
NUM_LAYERS, NUM_HEADS = 3, 4


@pytest.fixture(scope="module")
def figure():
    rng = np.random.default_rng(5)
    maps = {}
    for kind, shape in {
        "encoder": (6, 6),
        "decoder": (7, 7),
        "cross": (7, 6),
    }.items():
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
    """The attention page, as it is when it has been opened."""
    path = tmp_path / "attention.html"
    figure.save(path)
    chromium.leave()
    chromium.open(path)
    chromium.wait("document.body.dataset.ready === 'true'")
    yield chromium
    assert chromium.errors == []
    assert chromium.requests == [path.as_uri()]


def links(page):
    """Lines that are drawn: (row, column, head) -> opacity."""
    found = page.evaluate(
        "[...document.querySelectorAll('#links path')].map((path) =>"
        " [path.dataset.row, path.dataset.column, path.dataset.head,"
        " path.getAttribute('stroke-opacity')])"
    )
    return {tuple(map(int, key)): float(value) for *key, value in found}


def expected(figure, kind, layer, heads, row=None, column=None):
    """Lines that should be drawn."""
    weights = figure.maps[kind][layer]
    return {
        (i, j, head): weights[head, i, j]
        for head in heads
        for i, j in np.ndindex(weights.shape[1:])
        if row in (None, i)
        and column in (None, j)
        and weights[head, i, j] >= 0.004
    }


def assert_drawn(page, *arguments, **place):
    found, wanted = links(page), expected(*arguments, **place)
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        assert found[key] == pytest.approx(value, abs=0.001)


def token(side, number):
    return f"#{side} li:nth-child({number}) .token"


def text(page, selector):
    return page.evaluate(f"document.querySelector('{selector}').textContent")


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
    for (i, rows), (j, columns) in itertools.product(
        enumerate(groups), repeat=2
    ):
        value = weights[np.ix_(rows, columns)].sum() / len(rows)
        assert found.get((i, j, 0), 0) == pytest.approx(value, abs=0.005)
    assert text(page, token("queries", 3)) == "dogs"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_legible_in_both_schemes(page, scheme):
    page.prefer(scheme)
    colors = page.evaluate(
        "['color', 'backgroundColor'].map((name) =>"
        " getComputedStyle(document.body)[name].match(/\\d+/g).map(Number))"
    )
    ink, paper = (luminance(color) for color in colors)
    assert (ink < paper) == (scheme == "light")
    assert (max(ink, paper) + 0.05) / (min(ink, paper) + 0.05) > 7


def luminance(color):
    """Relative luminance as in WCAG 2."""
    parts = np.array(color) / 255
    linear = np.where(
        parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4
    )
    return linear @ [0.2126, 0.7152, 0.0722]


def test_nothing_sticks_out_of_a_narrow_window(page):
    page.resize(380, 700)
    for view in ("lines", "heat map"):
        page.click(f"input[name=view][value='{view}']")
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 380
    page.resize(1280, 900)


def test_the_report_opens(chromium, tmp_path):
    curves = {
        "train/loss": [(10, 5.0), (20, 4.0), (30, 3.5)],
        "validation/bleu": [(10, 3.0), (30, 9.0)],
    }
    runs = [
        Run(name, {"data": {"dataset": "files"}}, ["--x=1"], Records(curves, 0))
        for name in ("one", "two")
    ]
    path = tmp_path / "report.html"
    path.write_text(report_page.make_page(runs, ""), encoding="utf-8")
    chromium.open(path)
    # Drawn, and not only there.
    boxes = chromium.evaluate(
        "[...document.querySelectorAll('figure svg polyline')].map("
        "(line) => line.getBoundingClientRect().width)"
    )
    assert len(boxes) == 4 and min(boxes) > 100
    visible = "document.querySelector('details table').checkVisibility()"
    assert not chromium.evaluate(visible)
    chromium.click("summary")
    assert chromium.evaluate(visible)
    assert chromium.errors == [] and chromium.requests == [path.as_uri()]
