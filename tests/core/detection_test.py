"""Tests of the language of a text."""

import importlib.util

import pytest

from trainers.translating import detection

GERMAN = "Der alte Lehrer liest ein Buch, weil er warten muss."
ENGLISH = "The old teacher reads a book because he has to wait."


@pytest.mark.parametrize(
    ("text", "sources", "expected"),
    [
        (GERMAN, ["en"], "de"),
        (GERMAN.upper(), ["eng_Latn", "fr"], "de"),
        (GERMAN, ["fr", "de-AT"], None),
        (ENGLISH, ["en_GB"], None),
        (ENGLISH, ["de"], "en"),
        (GERMAN, ["tlh"], None),  # may be what the detector does not know
        ("Guten Tag", ["en"], None),  # too short to be sure
        ("0a3f 9b1c 77de 11aa 93ff 0011 2233 4455 deadbeef", ["en"], None),
        ("", ["en"], None),
    ],
)
def test_another_language_is_found_if_it_is_sure(text, sources, expected):
    assert detection.other_language(text, sources) == expected


def test_one_line_warns_of_another_language(monkeypatch, caplog):
    lines = [ENGLISH, *[GERMAN] * 9]
    assert list(detection.watched(lines, ["en", "de"])) == lines
    assert list(detection.watched(lines[1:], ["fr", "en"])) == lines[1:]
    assert list(detection.watched([], ["fr"])) == []
    assert caplog.messages == [
        "the text looks like German, but the model translates from French or"
        " English"
    ]
    watched = detection.watched(map(str, [GERMAN, GERMAN, GERMAN]), ["en"])
    next(watched)  # as on a terminal, where the next line comes later
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert len(list(watched)) == 2  # without the extra
    assert len(caplog.messages) == 1
