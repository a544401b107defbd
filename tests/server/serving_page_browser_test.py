"""The page of the server in a real browser, by mouse and by keyboard.

python -m pytest -m browser
"""

import json
import re
import signal
import threading
import time

import browser
import exports
import numpy as np
import pages
import pytest
import scripted_server
from browser import text, texts

import keras_transformer as kt

pytestmark = pytest.mark.browser

TEXT = "a small dog runs"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    opened = browser.Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture
def server():
    with scripted_server.serving() as serving:
        yield serving


@pytest.fixture
def page(chromium, server):
    """The page in its state after it has opened."""
    chromium.leave()
    open_page(chromium, server)
    yield chromium
    assert_harmless(chromium, server.address)


def open_page(chromium, server):
    chromium.visit(server.address)
    chromium.wait("document.querySelector('#from').value === 'en'")


def assert_harmless(chromium, address):
    """Checks that nothing was forbidden, uncaught, or sent elsewhere."""
    failures = "Failed to load resource"  # which the page tells its reader
    errors = [text for text in chromium.errors if failures not in text]
    chromium.errors.clear()
    assert errors == []
    assert all(url.startswith(address) for url in chromium.requests)


def write(page, text):
    """Replaces the present text by a text."""
    page.evaluate("document.querySelector('#source').select()")
    page.type(text)


def wait_for(page, translation):
    page.wait(
        f"document.querySelector('#result').textContent === "
        f"{json.dumps(translation)} &&"
        " !document.querySelector('.stale')"
    )


def translate(page, source=TEXT, translation="RUNS DOG SMALL A"):
    """Types a text, and waits for its translation."""
    write(page, source)
    wait_for(page, translation)


def problem_of(page):
    """Waits for a problem, and returns it."""
    page.wait("!find('problem').hidden")
    return text(page, "#message")


def shown(page, selector):
    return page.evaluate(
        f"document.querySelector('{selector}').checkVisibility()"
    )


def place(page, selector):
    return page.evaluate(
        "(({x, y, width, height}) => [x, y, width, height])"
        f"(document.querySelector('{selector}').getBoundingClientRect())"
    )


def word(number, side="result"):
    return f"#{side} [data-word='{number}']"


def test_typing_translates(page, server):
    for part in ("a small", " dog", " runs"):
        page.type(part)
    wait_for(page, "RUNS DOG SMALL A")
    [asked] = server.asked  # once, after the last key
    assert asked == {
        "text": TEXT,
        "source": "en",
        "target": "de",
        "beam_size": 4,
        "length_penalty": 0.6,
        "n_best": 3,
        "details": True,
    }
    assert text(page, "#announcement") == "RUNS DOG SMALL A"
    assert text(page, "#counter") == "16 / 100"
    assert "may be wrong" in text(page, "#legend") and shown(page, "#legend")
    assert marked(page) == ["A"]  # 1/4; the others have 1, 1/2 and 1/3
    page.click("summary")
    page.click("#doubts")
    wait_until(lambda: marked(page) == [])
    assert not shown(page, "#legend")
    page.click("#doubts")
    assert shown(page, "#legend")
    translate(page, "a dog", "DOG A")  # of which it is sure
    assert not shown(page, "#legend")
    page.click("#clear")
    wait_for(page, "")
    assert not shown(page, "#reading") and not shown(page, "#choices")
    assert len(server.asked) == 2


def test_a_doubtful_sentence_has_a_line_and_its_reason(page, server):
    server.confidence = {
        "probability": 0.34,
        "reasons": ["number 12 is missing"],
        "words": [0.9, 0.8, 0.2, 0.7],
    }
    translate(page)
    reason = "Check sentence 1 (34 % probable): number 12 is missing."
    assert marked(page) == ["SMALL"]  # by calibrated probabilities
    assert lined(page) == ["RUNS DOG SMALL A"] and shown(page, "#lines")
    part = "document.querySelector('.unsure')"
    assert page.evaluate(f"[{part}.title, {part}.role]") == [reason, "group"]
    assert reason in text(page, "#announcement")
    page.press("Tab", "Tab")  # Copy, the first word
    expected = (
        f"“RUNS” translates “runs”. The model is 90 % sure of it. {reason}"
    )
    assert text(page, "#details") == expected
    page.click("summary")
    page.click("#doubts")
    assert lined(page) == [] and not shown(page, "#legend")
    page.click("#doubts")
    page.click("#alternatives [value='1']")  # it has no confidence
    assert lined(page) == [] and not shown(page, "#lines")
    server.confidence |= {"reasons": [], "words": []}
    translate(page, "a dog runs", "RUNS DOG A")
    assert lined(page) == [] and text(page, "#announcement") == "RUNS DOG A"


def lined(page):
    """Returns the sentences that have a wavy line."""
    return page.evaluate(
        "[...document.querySelectorAll('#result .sentence')].filter((node) =>"
        " getComputedStyle(node).textDecorationStyle === 'wavy')"
        ".map((node) => node.textContent)"
    )


def marked(page):
    """Returns the words of the translation that have a color."""
    return page.evaluate(
        "[...document.querySelectorAll('#result .word')].filter((node) =>"
        " getComputedStyle(node).backgroundColor !== 'rgba(0, 0, 0, 0)')"
        ".map((node) => node.textContent)"
    )


def test_a_word_shows_its_alignment_on_both_sides(page):
    translate(page)
    page.point(word(1))
    assert texts(page, "#result .active") == ["DOG"]
    assert texts(page, "#mirror .aligned") == ["dog"]
    assert text(page, "#details") == (
        "“DOG” translates “dog”. The model is 50 % sure of it."
    )
    page.point(word(1, "mirror"))  # in the text field, which lies above
    assert texts(page, "#mirror .active") == ["small"]
    assert texts(page, "#result .aligned") == ["SMALL"]
    assert text(page, "#details") == "“small” is translated by “SMALL”."
    page.leave()
    assert texts(page, ".active, .aligned") == []


def test_marks_lie_behind_the_words_that_are_typed(page):
    lines = ["word " * 30, "", "x" * 90 + " end", ""]
    page.evaluate("void (state.settings.charLimit = 10000)")
    write(page, "\n".join(lines))
    for width in (1400, 800, 390):
        page.resize(width, 900)
        heights = page.evaluate(
            "['source', 'mirror'].flatMap((id) => [find(id).clientWidth,"
            " find(id).scrollHeight, find(id).clientHeight])"
        )
        assert heights[:3] == heights[3:] and heights[1] == heights[2]
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.resize(1280, 900)


def test_nothing_moves_away_from_the_mouse(page):
    page.resize(390, 900)
    translate(page)
    page.point(word(1))
    before = place(page, "#ask button")
    page.leave()
    assert place(page, "#ask button") == before
    page.resize(1280, 900)


def test_the_cursor_chooses_a_word(page):
    translate(page)
    assert texts(page, ".active") == []
    page.press("Home", *["ArrowRight"] * 4)
    page.wait("document.querySelector('#mirror .active') !== null")
    assert texts(page, "#mirror .active") == ["small"]
    assert texts(page, "#result .aligned") == ["SMALL"]


def test_an_answer_that_comes_late_is_not_shown(page, server):
    server.gates["one"] = threading.Event()
    write(page, "one")
    wait_until(lambda: len(server.asked) == 1)
    translate(page, "one two", "TWO ONE")
    server.gates["one"].set()
    time.sleep(0.2)
    wait_for(page, "TWO ONE")
    # The old translation is not shown as one of the new text.
    server.gates["three"] = threading.Event()
    write(page, "three")
    assert page.evaluate("document.querySelector('.stale #result') !== null")
    assert page.evaluate("find('copy').disabled")
    server.gates["three"].set()
    wait_for(page, "THREE")


def wait_until(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_asked_again_when_it_says(page, server, status):
    server.failures = [(status, {"Retry-After": "1"}, "The server is full.")]
    write(page, "one")
    page.wait("document.querySelector('#countdown').textContent")
    asked = time.monotonic()
    assert text(page, "#status") == "The server is full."
    assert text(page, "#countdown") == "Trying again in 1 s."
    assert len(server.asked) == 1
    write(page, "one two")  # which is no reason to ask sooner
    wait_for(page, "TWO ONE")
    assert time.monotonic() - asked > 0.8
    assert [body["text"] for body in server.asked] == ["one", "one two"]
    assert text(page, "#status") == text(page, "#countdown") == ""


def test_an_error_is_shown_and_can_be_tried_again(page, server):
    translate(page)
    server.failures = [(500, {}, "It <b>fails</b>.")]
    write(page, "one")
    assert problem_of(page) == "It <b>fails</b>."
    assert page.evaluate("document.querySelector('#problem').role") == "alert"
    # What is still there is the translation of another text.
    page.click("#alternatives input[value='1']")
    assert len(texts(page, ".stale .word")) == 4
    assert page.evaluate("find('copy').disabled")
    page.click("#again")
    wait_for(page, "ONE")
    assert not shown(page, "#problem")


@pytest.mark.parametrize("status", [400, 403, 413])
def test_an_error_that_comes_again_is_not_tried_again(page, server, status):
    server.failures = [(status, {}, "It is wrong.")]
    write(page, "one")
    assert problem_of(page) == "It is wrong."
    assert not shown(page, "#again")


def test_a_server_that_is_gone_is_named(chromium):
    with scripted_server.serving() as server:
        open_page(chromium, server)
    server.server_close()
    write(chromium, "one")
    assert problem_of(chromium).startswith("The server cannot be reached (")
    assert shown(chromium, "#again")
    assert_harmless(chromium, server.address)


def test_text_stays_text(page, server):
    attack = "<img/src=x/onerror=alert(1)> <script>alert(2)</script> {{1}}"
    server.notes = [attack]
    elements = "document.querySelectorAll('img, script').length"
    before = page.evaluate(elements)
    write(page, attack)
    [hypothesis] = scripted_server.translated(attack)["hypotheses"]
    wait_for(page, hypothesis["text"])
    assert texts(page, "#mirror .word") == attack.split()
    assert texts(page, "#alternatives bdi")[0] == hypothesis["text"]
    assert notes_of(page) == [attack]
    page.point(word(0))
    assert "“{{1}}”" in text(page, "#details")
    assert page.evaluate(elements) == before


def notes_of(page):
    """Returns the notes that stand behind sentences."""
    return page.evaluate(
        "[...document.querySelectorAll('[data-note]')].map((node) =>"
        " getComputedStyle(node, '::after').content)"
        ".map((content) => JSON.parse(content))"
    )


def test_a_note_stands_at_its_sentence_in_plain_words(page, server):
    page.click("summary")
    page.click("#terms")
    page.type("teacher = Lehrerin\ndog = Hund|Köter")
    server.notes = ["lacks the term 'Lehrerin' in its translation: forced"]
    translate(page, "one", "ONE")
    words = "The translation does not use your term “Lehrerin” (teacher)."
    assert notes_of(page) == [words]
    assert text(page, "#announcement") == f"ONE\n{words}"
    server.notes = [
        "lacks the term 'Hund or Köter' in its translation",
        'lacks the term "d\'or" in its translation',  # of a glossary
        "may be broken by its terms: it has the score -9",
        "has 9 tokens, truncated to 2 (one)",
    ]
    translate(page, "one two", "TWO ONE")
    assert notes_of(page) == [
        "The translation does not use your term “Hund or Köter” (dog)."
        " The translation does not use your term “d'or”."
        " This sentence may be broken by its terms."
        " This sentence has 9 tokens, truncated to 2 (one)."
    ]
    server.notes = ["lacks the term 'WO!' in its translation"]
    translate(page, "wo", "WO")
    assert len(notes_of(page)) == 1
    page.click("#alternatives input[value='1']")
    assert notes_of(page) == []


def test_alternatives_by_mouse_and_by_keyboard(page):
    translate(page, "one two\nthree", "TWO ONE\nTHREE")
    assert text(page, "#heading") == "Alternatives for sentence 1 of 2"
    assert texts(page, "#alternatives label") == [
        "TWO ONEfirst choice",
        "TWO ONE!",
        "TWO ONE!!",
    ]
    page.click("#alternatives input[value='2']")
    wait_for(page, "TWO ONE!!\nTHREE")
    page.press("ArrowUp")
    wait_for(page, "TWO ONE!\nTHREE")
    page.click("#result [data-sentence='1']")
    assert text(page, "#heading") == "Alternatives for sentence 2 of 2"
    assert texts(page, ".current") == ["THREE"]
    page.click("#alternatives input[value='1']")
    wait_for(page, "TWO ONE!\nTHREE!")


def test_swap(page, server):
    translate(page)
    page.click("#swap")
    wait_for(page, "A SMALL DOG RUNS")
    assert page.evaluate("find('source').value") == "RUNS DOG SMALL A"
    turned = ["de", "en"]
    assert [server.asked[-1][side] for side in ("source", "target")] == turned
    shown_as = page.evaluate("[find('source').lang, find('result').lang]")
    assert shown_as == turned


def choose(page, select, value, event="change"):
    page.evaluate(
        f"find('{select}').value = '{value}',"
        f" find('{select}').dispatchEvent(new Event('{event}'))"
    )


@pytest.mark.parametrize("event", ["input", "change"])
def test_one_event_of_a_list_is_enough(page, server, event):
    translate(page)
    choose(page, "to", "he", event)
    wait_until(lambda: server.asked[-1]["target"] == "he")


def test_the_empty_pane_says_what_it_is_for(page):
    empty = "getComputedStyle(find('result'), '::before').content"
    assert "appears here" in page.evaluate(empty)
    translate(page)
    assert page.evaluate(empty) == "none"


def test_the_models_are_named_by_their_cards(page, server):
    assert not shown(page, "#model")
    server.settings["models"] = ["Texts 1", "Texts 2"]
    page.leave()
    open_page(page, server)
    page.wait("!find('model').hidden")
    assert text(page, "#model") == "Model: Texts 1, Texts 2"


def test_a_phone_is_told_what_one_does_with_a_finger(page):
    page.touch(True)
    try:
        translate(page)
        assert text(page, "#details").startswith("Tap a word")
        seen = page.evaluate("document.body.innerText")
        assert not re.search("Point|Tab|[Kk]eyboard|[Cc]lick", seen)
    finally:
        page.touch(False)


def test_a_language_that_is_written_from_right_to_left(page, server):
    page.type(TEXT)
    choose(page, "to", "he")
    wait_for(page, "RUNS DOG SMALL A")
    assert server.asked[-1]["target"] == "he"
    assert page.evaluate("find('swap').disabled")  # nothing from Hebrew
    assert page.evaluate("getComputedStyle(find('result')).direction") == "rtl"
    assert page.evaluate("getComputedStyle(find('source')).direction") == "ltr"
    page.evaluate(f'document.querySelector("{word(0)}").focus()')
    page.press("ArrowLeft")
    assert texts(page, ".active") == ["DOG"]


def test_everything_by_keyboard(page, server):
    translate(page)
    page.press("Tab", "Tab")  # Copy, the first word
    assert texts(page, ".active") == ["RUNS"]
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid"
    page.press("ArrowRight", "ArrowRight")
    assert texts(page, "#result .active") == ["SMALL"]
    assert texts(page, "#mirror .aligned") == ["small"]
    page.press("End")
    assert texts(page, "#result .active") == ["A"]
    page.press("Tab")  # the chosen alternative
    assert texts(page, ".active") == []
    page.press("ArrowDown")
    wait_for(page, "RUNS DOG SMALL A!")
    page.press("Tab", "Tab", "Tab", "Enter")  # over two buttons to settings
    assert shown(page, "#doubts") and not shown(page, "#beam_size")
    page.press("Tab", "Tab", "Tab", "Enter")  # over terms and doubts
    assert shown(page, "#beam_size")
    page.evaluate("document.querySelector('#ask button').focus()")
    page.press("Enter")
    wait_until(lambda: server.attention)


def test_settings_within_the_limits_of_the_server(page, server):
    write(page, "one")
    page.click("summary")
    page.click("#settings details summary")
    page.evaluate("find('beam_size').select()")
    page.type("2")
    wait_until(lambda: server.asked and server.asked[-1]["beam_size"] == 2)
    wait_for(page, "ONE")
    assert server.asked[-1]["n_best"] == 2
    page.evaluate("find('beam_size').select()")
    page.type("9")
    assert problem_of(page).startswith("Beam size: ")
    assert "8" in text(page, "#message")
    number = len(server.asked)
    page.evaluate("find('beam_size').select()")
    page.type("1")
    page.wait("find('problem').hidden")
    wait_for(page, "ONE")
    assert len(server.asked) == number + 1


def test_a_text_that_is_too_long_and_notes(page, server):
    write(page, "x" * 101)
    assert problem_of(page) == (
        "The server takes 100 characters at most. Received: 101."
    )
    assert text(page, "#counter") == "101 / 100"
    assert not server.asked
    server.notes = ["truncated <i>here</i>"]
    write(page, "\U0001d400" * 100)  # each of them two units of UTF-16
    page.wait("document.querySelector('[data-note]') !== null")
    assert notes_of(page) == ["This sentence truncated <i>here</i>."]
    assert text(page, "#counter") == "100 / 100"


def test_a_key_is_sent_where_the_server_requires_one(chromium, server):
    server.settings["keyRequired"] = True
    open_page(chromium, server)
    chromium.type("one")
    assert problem_of(chromium) == "The server requires an API key."
    chromium.click("#api_key")
    chromium.type("secret")
    wait_for(chromium, "ONE")
    assert [body["api_key"] for body in server.asked] == ["secret"]
    chromium.click("#ask button")
    wait_until(lambda: server.attention)
    assert server.attention["api_key"] == "secret"
    assert (
        chromium.evaluate("localStorage.length + document.cookie.length") == 0
    )
    assert_harmless(chromium, server.address)


def test_attention_of_the_chosen_translation(page, server):
    translate(page, "one two\nthree", "TWO ONE\nTHREE")
    assert not shown(page, "#key") and not shown(page, "#attention")
    page.click("#alternatives input[value='1']")
    page.click("#ask button")
    inside = "document.querySelector('iframe').contentDocument"
    page.wait(f"{inside}?.body?.textContent === 'attention'")
    assert server.attention == {
        "text": "one two",
        "translation": "TWO ONE!",
        "source": "en",
        "target": "de",
    }
    assert shown(page, "#attention")
    translate(page, "three", "THREE")
    assert not shown(page, "#attention")


def test_an_error_of_attention_is_words_and_not_a_frame(page, server):
    translate(page, "one", "ONE")
    server.gates["attention"] = threading.Event()
    page.click("#ask button")
    page.wait("find('drawing').checkVisibility()")
    server.failures = [(400, {}, "it is too long")]
    server.gates["attention"].set()
    assert problem_of(page) == "It is too long."
    assert not shown(page, "#attention") and not shown(page, "#drawing")
    page.click("#ask button")
    page.wait("find('attention').clientHeight > 100")
    assert not shown(page, "#problem") and not shown(page, "#drawing")


def test_what_a_server_does_not_have_is_not_shown(chromium, server):
    server.settings |= {"attention": False, "maxTerms": 0}
    server.settings["supportedFilesFormat"] = []
    open_page(chromium, server)
    translate(chromium, "one", "ONE")
    chromium.click("summary")
    assert shown(chromium, "#doubts") and shown(chromium, "#alternatives")
    for selector in ("#ask", "#terms", "#choose"):
        assert not shown(chromium, selector)
    assert_harmless(chromium, server.address)


# Sentences of five words; the third part of the text begins with the last one.
SENTENCE = "Many people walk through markets."
PAUSE = " \n\n\n "
LONG = "\n\n".join([" ".join([SENTENCE] * 13)] * 6)


@pytest.mark.parametrize("width,height", [(1280, 800), (390, 844)])
def test_a_long_text_keeps_to_the_window(page, server, width, height):
    page.evaluate("void (state.settings.charLimit = 10000)")
    page.resize(width, height)
    parts = page.evaluate(f"divided({json.dumps(LONG)})")
    assert "".join(parts) == LONG and len(parts) > 4
    # White space at the end of a part would be lost.
    block = " ".join([SENTENCE] * 12)
    found = page.evaluate(f"divided({json.dumps(block + PAUSE + block)})")
    assert "".join(found) == block + PAUSE + block
    assert all(part == part.rstrip() for part in parts + found)
    server.gates[parts[2]] = threading.Event()
    page.type(LONG)
    wait_until(lambda: len(server.asked) == 3)
    # What is done is shown, and how much it is, where one sees it.
    page.wait("find('status').textContent.endsWith('%')")
    share = round(100 * len(parts[0] + parts[1]) / len(LONG))
    assert text(page, "#status") == f"Translating … {share} %"
    assert len(texts(page, "#result .word")) == len(
        (parts[0] + parts[1]).split()
    )
    assert page.evaluate("find('copy').disabled")
    server.gates[parts[2]].set()
    page.wait("state.isWhole")
    assert [body["text"] for body in server.asked] == parts
    joined = page.evaluate("find('result').textContent")
    assert joined == page.evaluate("translation()")
    ends = r"\n+"
    assert re.findall(ends, joined) == re.findall(ends, LONG)
    assert len(joined.split()) == len(LONG.split())
    for pane in ("field", "result"):
        assert page.evaluate(
            f"find('{pane}').scrollHeight > find('{pane}').clientHeight"
        )
    _, top, _, _ = place(page, ".pane")
    _, below, _, high = place(page, "#target")
    assert below + high - top < height and place(page, "#copy")[1] >= 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # The word that belongs to a word is scrolled into view.
    page.evaluate("find('field').scrollTop = 1e6")
    page.point(word(0))
    _, y, _, _ = place(page, "#mirror .aligned")
    _, start, _, size = place(page, "#field")
    assert start <= y < start + size
    # Only what has changed is asked again.
    all_of_them = page.evaluate("state.sentences.length")
    assert text(page, "#heading").endswith(f" 1 of {all_of_them}")
    write(page, LONG + " End")
    wait_until(lambda: len(server.asked) == len(parts) + 1)
    assert server.asked[-1]["text"] == parts[-1] + " End"
    page.resize(1280, 900)


def test_a_text_is_divided_where_sentences_end(page):
    def divided(many):
        parts = page.evaluate(f"divided({json.dumps(many)})")
        assert "".join(parts) == many
        return parts

    wrapped = "A line that was wrapped by hand, as in mails.\n" * 20
    assert len(divided(wrapped)) == 1
    assert len(divided("It is evening in Rome. " * 40)) == 1  # may be short
    parts = divided("We met Prof. Miller and inspected everything. " * 40)
    assert len(parts) > 3
    assert all(part.rstrip().endswith("everything.") for part in parts)
    assert len(divided(("word " * 30 + "\n") * 20)) > 3


def give_file(page, name):
    page.evaluate(
        "(() => { const files = new DataTransfer();"
        f" files.items.add(new File(['content'], '{name}'));"
        " find('file').files = files.files;"
        " find('file').dispatchEvent(new Event('change')); })()"
    )


def test_a_file_comes_back_as_a_download(page, server, tmp_path):
    page.download_to(tmp_path)
    assert page.evaluate("find('file').accept") == ".docx,.txt"
    page.click("summary")
    page.click("#terms")
    page.type("dog = Hund")
    server.gates["file"], server.notes = threading.Event(), ["left: 1"]
    give_file(page, "a b.txt")
    page.wait("find('status').className === 'busy'")
    assert text(page, "#status") == "Translating a b.txt …"
    server.gates["file"].set()
    page.wait("!find('finished').hidden")
    assert text(page, "#finished") == "Download a b_de.txt"
    assert texts(page, "#notes p") == ["left: 1"]
    assert text(page, "#status") == ""
    path = tmp_path / "a b_de.txt"
    wait_until(path.exists)
    assert path.read_bytes() == scripted_server.TRANSLATED
    [form] = server.uploads
    for part in ('filename="a b.txt"', "content", '{"dog":"Hund"}'):
        assert part in form
    # An error is told, and the same file can be sent again.
    server.failures = [(500, {}, "the server has failed")]
    give_file(page, "a b.txt")
    assert problem_of(page) == "The server has failed."
    assert not shown(page, "#finished")
    page.click("#again")
    page.wait("!find('finished').hidden")
    page.click("#source")
    translate(page, "one", "ONE")
    assert not shown(page, "#finished")


@pytest.mark.parametrize(
    ("name", "failure", "words"),
    [
        ("a.PDF", None, "PDF cannot be translated; Word (.docx), OpenDoc"),
        ("README", None, "README cannot be translated; Word (.docx), "),
        ("b.docx", "expected an intact zip archive.", "b.docx is damaged."),
        (
            "c.txt",
            "line 2 is not UTF-8 (invalid start byte)",
            "c.txt is not in UTF-8: save it as UTF-8.",
        ),
    ],
)
def test_a_wrong_file_is_refused_in_plain_words(
    page, server, name, failure, words
):
    server.failures = [(400, {}, failure)] * bool(failure)
    drop(page, name)
    assert problem_of(page).startswith(words)
    assert not shown(page, "#again")
    assert len(server.uploads) == bool(failure)


def drop(page, name):
    """Drops a file on the page, which shows where it goes before that."""
    page.evaluate(
        "(() => { const files = new DataTransfer();"
        f" files.items.add(new File(['content'], '{name}'));"
        " const send = (kind) => document.body.dispatchEvent(new DragEvent("
        "kind, {dataTransfer: files, bubbles: true, cancelable: true}));"
        " const kept = [send('dragover'),"
        " document.body.classList.contains('dropping'), send('drop')];"
        " if (String(kept) !== 'false,true,false') throw kept; })()"
    )


def test_a_file_that_is_dropped_is_translated(page, server):
    drop(page, "a b.txt")
    page.wait("!find('finished').hidden")
    assert 'filename="a b.txt"' in server.uploads[0]
    assert not page.evaluate("document.body.classList.contains('dropping')")
    # A text that is dropped is for the text field.
    assert page.evaluate(
        "find('source').dispatchEvent(new DragEvent('drop', {bubbles: true,"
        " dataTransfer: new DataTransfer(), cancelable: true}))"
    )


def test_the_language_is_detected(page, server):
    choose(page, "from", "auto")
    assert page.evaluate("find('swap').disabled")
    page.click("#source")
    translate(page, "one two", "TWO ONE")
    assert server.asked[-1]["source"] == "auto"
    chosen = "find('from').selectedOptions[0].textContent"
    assert page.evaluate(chosen) == "Detect language (English)"
    assert page.evaluate("find('source').lang") == "en"
    page.click("#ask button")
    wait_until(lambda: server.attention)
    assert server.attention["source"] == "en"
    choose(page, "to", "en")
    wait_for(page, "one two")
    assert notes_of(page) == ["This is in English already."]
    assert not shown(page, "#choices") and not shown(page, "#reading")
    choose(page, "to", "de")
    wait_for(page, "TWO ONE")
    page.click("#swap")
    wait_for(page, "ONE TWO")
    assert server.asked[-1]["source"] == "de"


def test_the_address_has_text_and_languages(chromium, server):
    open_page(chromium, server)
    choose(chromium, "to", "he")
    translate(chromium, "a & b\n#1", "B & A\n#1")
    address = chromium.evaluate("location.href")
    chromium.visit(address)
    wait_for(chromium, "B & A\n#1")
    assert chromium.evaluate(
        "[find('source').value, find('from').value, find('to').value]"
    ) == ["a & b\n#1", "en", "he"]
    chromium.evaluate("void (location.hash = '#from=de&to=xx&text=one+two')")
    wait_for(chromium, "TWO ONE")
    assert server.asked[-1]["source"] == "de"
    assert server.asked[-1]["target"] == "en"
    told = "This server does not translate to “xx”, as the link asks."
    assert texts(chromium, "#notes p") == [told]
    translate(chromium, "one", "ONE")
    assert texts(chromium, "#notes p") == [told]
    choose(chromium, "from", "en")
    chromium.wait("!document.querySelector('#notes p')")
    assert_harmless(chromium, server.address)


def test_terms_that_are_typed(page, server):
    translate(page, "one", "ONE")
    page.click("summary")
    page.click("#terms")
    page.type("dog = Hund|Köter\n\n cat=Katze")
    wait_until(lambda: len(server.asked) == 2)
    terms = {"dog": "Hund|Köter", "cat": "Katze"}
    assert server.asked[-1]["glossary"] == terms
    page.type("\nbird")
    assert problem_of(page) == (
        "Your terms: expected a line such as “dog = Hund”. Received: “bird”."
    )
    assert len(server.asked) == 2


def test_all_is_in_landmarks_and_controls_have_room(page, server):
    server.settings["maxTerms"] = 0  # then nothing is above the box
    open_page(page, server)
    assert page.evaluate(
        "[...document.body.children].map((n) => n.localName)"
    ) == [
        "main",
        "footer",
        "script",
    ]
    page.click("summary")
    x, y, width, height = place(page, "#doubts")
    center = f"{x + width / 2}, {y + height / 2}"
    distances = page.evaluate(
        "[...document.querySelectorAll('summary, textarea')].map((node) =>"
        " node.getBoundingClientRect()).map((box) => ((x, y) => Math.hypot("
        "Math.max(box.left - x, 0, x - box.right),"
        f" Math.max(box.top - y, 0, y - box.bottom)))({center}))"
    )
    assert min(distances) >= 12  # pixels, so that a finger finds it


def test_copy(page):
    page.allow("clipboardReadWrite", "clipboardSanitizedWrite")
    translate(page, "one two\nthree", "TWO ONE\nTHREE")
    page.click("#copy")
    page.wait("find('copy').textContent === 'Copied'")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == "TWO ONE\nTHREE"
    # A page that came by plain HTTP has no clipboard.
    page.evaluate(
        "void Object.defineProperty(navigator, 'clipboard', {value: undefined})"
    )
    page.click("#copy")
    page.wait("find('copy').textContent.startsWith('Selected')")
    assert page.evaluate("getSelection().toString()") == "TWO ONE\nTHREE"


def test_a_trained_model(chromium, processes):
    started = processes.start(
        [f"--workdir={exports.workdir()}", "--port=0"], module="trainers.serve"
    )
    out = started.read_until("\nready\n")
    address = re.search(r"listening at (\S+?),", out)[1]
    translator = kt.Translator.load(exports.workdir())
    source = "two red dogs"
    [translation] = translator.translate([source])
    [alignment] = translator.align([(source, translation)])
    chromium.visit(f"{address}/")
    chromium.wait("document.querySelector('#from').value === 'en'")
    chromium.type(source)
    wait_for(chromium, translation)
    assert translation.split() == texts(chromium, "#result .word")
    for i, spelled in enumerate(translation.split()):
        chromium.point(word(i))
        assert texts(chromium, "#result .active") == [spelled]
        linked = [source.split()[s] for s, t in alignment.links if t == i]
        assert texts(chromium, "#mirror .aligned") == linked
        assert re.search(r"is \d+ % sure", text(chromium, "#details"))
    chromium.click("#ask button")
    inside = "document.querySelector('iframe').contentDocument"
    chromium.wait(f"{inside}?.body?.dataset.ready === 'true'")
    sentences = f"[...{inside}.querySelectorAll('.sentence bdi')]"
    assert chromium.evaluate(
        f"{sentences}.map((node) => node.textContent)"
    ) == [source, translation]
    assert chromium.evaluate(
        f"{inside}.querySelector('#cells').checkVisibility()"
    )
    assert_harmless(chromium, address)
    chromium.visit(f"{address}/docs/")
    assert chromium.evaluate("location.pathname") == "/docs"
    assert chromium.evaluate(
        "[...document.querySelectorAll('a')]"
        ".every((link) => link.getBoundingClientRect().height >= 24)"
    )
    started.send_signal(signal.SIGTERM)
    started.ends()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_is_legible_in_both_schemes(page, scheme):
    page.prefer(scheme)
    translate(page)
    variables = "paper raised ink soft doubtful link warning".split()
    style = (
        "getComputedStyle(document.documentElement).getPropertyValue('--{}')"
    )
    colors = {
        name: pages.rgb(page.evaluate(style.format(name)).strip())
        for name in variables
    }
    is_light = pages.luminance(colors["paper"]) > pages.luminance(colors["ink"])
    assert is_light == (scheme == "light")
    for ground in ("paper", "raised", "doubtful", "link", "warning"):
        assert pages.contrast(colors["ink"], colors[ground]) >= 4.5
    for ground in ("paper", "raised"):
        assert pages.contrast(colors["soft"], colors[ground]) >= 4.5
    page.evaluate("find('target').classList.add('stale')")
    page.wait("!find('result').getAnimations().length")
    share = float(page.evaluate("getComputedStyle(find('result')).opacity"))
    assert share < 1
    stale = np.array([colors["ink"], colors["paper"]]).T @ [share, 1 - share]
    assert pages.contrast(stale, colors["paper"]) >= 4.5
    page.prefer("light")
