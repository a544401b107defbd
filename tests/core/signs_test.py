"""What the vocabulary cannot write stays, and changes nothing around it."""

import random
import re
import string
import time

import pytest
import translator_test

from keras_transformer.config import DecodingConfig
from keras_transformer.text.signs import INVISIBLE, Reading, read, restore
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.translation.alignment import SpanLink, word_spans
from keras_transformer.translation.limits import Limits
from keras_transformer.translation.requests import (
    Encoding,
    Request,
    encode,
    read_text,
)
from savedmodel.formats import save_vocabulary
from savedmodel.reload.tokenizer import load_vocabularies

KNOWN = set(string.ascii_letters + string.digits + " .,!?;:'-()")
# What is unread of a text, and the text that the model reads.
CASES = [
    ("The child sleeps. 😆 The dog runs.", ["😆"], 0),
    ("😆 The dog runs!", ["😆"], "The dog runs!"),
    ("It sleeps😂😂, then runs 👍🏽", ["😂😂", "👍🏽"], "It sleeps, then runs"),
    ("Hello 😆!", ["😆"], "Hello!"),
    ("on→off", ["→"], "on off"),
    ("◦ The dog runs.", ["◦"], "The dog runs."),
    ("(☐) done", ["☐"], "() done"),
    ("the 👩‍👩‍👧 family and 🇩🇪 🇫🇷", ["👩‍👩‍👧", "🇩🇪 🇫🇷"], "the family and"),
    ("1️⃣ First man2️⃣", ["1️⃣", "2️⃣"], "First man"),
    ("he 🤷‍x shrugs", ["🤷‍x"], "he shrugs"),
    ("Москва-City sleeps.", ["Москва-City"], "sleeps."),
    ("Красная площадь is red", ["Красная площадь"], "is red"),
    ("I eat 寿司 here", ["寿司"], "I eat here"),
    ("Łódź", ["Łódź"], ""),
    ("¿Qué?", ["¿Qué"], "?"),
    ("a\u2028b ☃", ["☃"], "a b"),
    (
        "steam\u00adboat \u2060and\ufeff sail\u200bing",
        [],
        "steamboat and sailing",
    ),
    ("", [], ""),
]


def has_no_picture(sign):
    return any(map(str.isalpha, sign)) or sign in "→◦"


def knows(text):
    return KNOWN.issuperset(text)


@pytest.mark.parametrize("text, signs, expected", CASES)
def test_what_is_unknown_is_not_read_and_comes_back(text, signs, expected):
    reading = read(text, knows)
    assert [sign.text for sign in reading.signs] == signs
    assert reading.text == (expected or re.sub(" 😆|Łódź", "", text))
    shown = re.sub(r"\s", " ", INVISIBLE.sub("", text))
    assert restore(reading.text, reading) == shown
    if reading.origins is not None:
        assert len(reading.origins) == len(reading.text)
        assert reading.origins == sorted(reading.origins)


def test_any_text_is_known_once_it_is_read():
    """Random texts: all is kept, in order, and each character has its place."""
    draw = random.Random(1)
    signs = ["😆", "→", "é", "寿", "\u200d", "\ufe0f", "\u0301", "\u00ad"]
    for _ in range(500):
        text = "".join(draw.choices([*"ab .-'", *signs], k=draw.randrange(15)))
        reading = read(text, knows)
        assert knows(reading.text)
        kept = re.sub(
            r"\s", "", reading.text + "".join(s for s, *_ in reading.signs)
        )
        assert sorted(kept) == sorted(re.sub("[\u00ad ]", "", text))
        for at, origin in zip(
            reading.text, reading.origins or (), strict=False
        ):
            assert at == " " or at == text[origin]
        restored = restore(reading.text, reading)
        assert restored.replace(" ", "") == re.sub("[\u00ad ]", "", text)


def test_a_sign_is_put_beside_the_words_that_are_linked():
    reading = read("the → red 😆 house", knows)
    links = [((0, 3), (0, 2)), ((4, 7), (9, 13)), ((8, 13), (3, 8))]
    assert reading.text == "the red house"
    found = restore("la casa rossa", reading, links)
    assert found == "la → casa rossa 😆"
    # Not inside of a compound, unless it was.
    reading, links = read("a foot ☃ player", knows), [((2, 6), (0, 4))]
    assert restore("Fuss-Spieler", reading, links) == "Fuss-Spieler ☃"
    reading = read("foot-☃player", knows)
    assert (
        restore("Fuss-Spieler", reading, [((0, 5), (0, 5))]) == "Fuss-☃Spieler"
    )


def test_a_sign_after_a_sentence_stays_after_it():
    reading = read("It is as good as it can be. 😆 Yes.", knows)
    expected = "Gut. 😆 Das ist es wirklich, wie gesagt."
    assert restore(expected.replace(" 😆", ""), reading) == expected
    assert restore("Gut.", reading) == "Gut. 😆"


def test_a_prefix_stays_at_the_beginning():
    reading, prefix = (read(t, knows) for t in ("😆 A dog.", "Ein ☃"))
    assert restore("Ein Hund.", reading, (), prefix) == "Ein ☃ 😆 Hund."
    assert restore("Hund.", reading, (), prefix) == "😆 Hund."
    # What the prefix has is not added again.
    twice = read("A dog ☃ ☺.", knows)
    one = read("A ☃ dog.", knows)
    assert restore("Ein Hund.", one, (), prefix) == "Ein ☃ Hund."
    assert "☺" in restore("Ein Hund.", twice, (), prefix)
    links = [((0, 1), (0, 1)), ((2, 5), (2, 3))]
    found = restore("⁇ ⁇", read("a dog", knows), links, read("⁇", "☃".__ne__))
    assert found == "⁇ dog"


def test_an_unknown_token_becomes_the_word_that_it_translates():
    reading = Reading("a fox runs")
    links = [((0, 1), (0, 3)), ((2, 5), (4, 5)), ((6, 10), (6, 11))]
    assert restore("ein ⁇ rennt", reading, links) == "ein fox rennt"
    assert restore("ein ⁇  rennt", reading, links) == "ein fox rennt"
    assert restore("ein ⁇ rennt", reading) == "ein ⁇ rennt"


def test_signs_of_a_sentence_change_no_other_word():
    translator = translator_test.make_translator()
    tokenizer = translator.tokenizer
    plain = translator_test.TEXT[0]
    text = plain.replace(" fox", " 😆 fox") + " Ж ☃"
    assert read_text(tokenizer, text).text == plain
    [found], [expected] = translator.search([text]), translator.search([plain])
    assert found.ids == expected.ids
    assert found.scores == pytest.approx(expected.scores)
    for one, other in zip(found.texts, expected.texts, strict=True):
        assert one.endswith("Ж ☃") and one.count("😆") == 1
        left = re.sub(" ?[😆Ж☃]", "", one)
        assert left.replace(" ", "") == other.replace(" ", "")
    assert found.notes == [
        "has 'Ж ☃', which the vocabulary cannot write. It was not translated"
    ]
    # Also where nothing else is in the text, and in a forced beginning.
    assert translator.translate(["😆 ☃"]) == ["😆 ☃"]
    [forced] = translator.translate([Request(plain, prefix="fox 😆")])
    assert forced.startswith("fox 😆")


def test_signs_are_placed_by_the_alignment(monkeypatch):
    translator = translator_test.make_translator()
    asked = []

    def align(pairs, least):
        """Links the source's second word to the first of the translation."""
        asked.extend(pairs)
        return [
            [SpanLink(word_spans(source.text)[1], word_spans(target)[0])]
            for source, target in pairs
        ]

    monkeypatch.setattr(translator, "align_spans", align)
    plain = "lazy dog jumps"
    [expected] = translator.translate([plain])
    [found] = translator.translate(["lazy ☃ dog jumps"])
    assert asked == [(Request(plain), expected)]
    assert found.startswith("☃") and found.replace("☃", "").strip() == expected


def test_words_are_aligned_in_the_text_as_it_was_given():
    """Signs have no links; words keep their numbers and positions."""
    translator = translator_test.make_translator()
    plain = "lazy dog", "quick fox"
    signed = "☃ lazy 😆 dog", "quick☃ ☃ fox"
    places = {0: 1, 1: 3}, {0: 0, 1: 2}
    [one], [other] = translator.align([plain]), translator.align([signed])
    assert other.links == [(places[0][i], places[1][j]) for i, j in one.links]
    spans = [translator.align_spans([pair])[0] for pair in (plain, signed)]
    for before, after in zip(*spans, strict=True):
        for side, text in enumerate(signed):
            word = plain[side][slice(*before[side])]
            assert text[slice(*after[side])] == word
    scored = [translator.score([pair])[0] for pair in (plain, signed)]
    assert scored[0].ids == scored[1].ids


def test_pictures_that_only_bytes_write_are_not_read(tmp_path):
    """Letters and signs of texts are: a model learns them by their bytes."""
    lines = ["The dog (it's here; yes?) runs: 3 + 4 times, on-off! a."] * 9
    tokenizer = Tokenizer.train(lines, 400, at_most=True, byte_fallback=True)
    save_vocabulary(tokenizer, tmp_path)
    [vocabulary, _] = load_vocabularies(tmp_path)
    encoding = Encoding(tokenizer, Limits([], DecodingConfig(), 300))
    for text, signs, expected in CASES:
        if any(map(has_no_picture, signs)):
            continue
        [row] = encode([Request(text)], encoding)
        for found in (
            row.reading,
            read_text(tokenizer, text),
            read(text, vocabulary.knows),
        ):
            assert [sign.text for sign in found.signs] == signs
            assert found.text == (expected or re.sub(" 😆", "", text))
    for text in (
        "寿司 ist Łódź, naïve?",
        "می\u200cخواهم",
        "The dog + 3!",
        "on→off (45°) ~2 × 3 ≤ 7 ◦",
    ):
        assert read_text(tokenizer, text).text == text
        assert vocabulary.knows(text)
        assert vocabulary.decode(vocabulary.encode(text)) == text


def test_a_tag_is_read():
    tokenizer = Tokenizer.train(["a dog"], 20, symbols=["<2de>"], at_most=True)
    assert read_text(tokenizer, "<2de> a ☃ dog").text == "<2de> a dog"


@pytest.mark.parametrize(
    "part", ["Ж-", "a☃ ", "a-☃-", " ", "☃. ", "a-a-", "Ж ", "a\u00ad☃b", "<2"]
)
def test_any_text_takes_linear_time(part):
    """At most 5 CPU seconds; in quadratic time it takes minutes."""
    text, begin = part * (160_000 // len(part)), time.process_time()
    reading = read(text, knows)
    restore("one two-three. " * 20, reading)
    restore(reading.text, reading, [((0, 1), (0, 1))])
    assert time.process_time() - begin < 5
