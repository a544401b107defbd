"""Regular expressions that hostile texts reach are linear."""

import patterns
import pytest
import regex


def test_texts_repeat_what_a_pattern_begins_with():
    """They include the texts that made these patterns take quadratic time."""
    for pattern, text in (
        (r">[^<]*\p{L}", ">"),
        (r"<meta\b[^>]*?\bcharset", "<meta"),
        (r"alt\s*=\s*[\"']?[^\"'>]*\p{L}", "alt= "),
    ):
        repeated = {r for _, r in patterns.attacks(regex.compile(pattern))}
        assert text in repeated or text[-1] in repeated


def test_every_pattern_can_be_attacked():
    """The tests of `growth` measure, and are not part of CI."""
    for name, pattern in patterns.find_patterns().items():
        assert patterns.samples(pattern), name


@pytest.mark.parametrize("pattern", [r">[^<]*\p{L}", r"<meta\b[^>]*?\bcharset"])
@pytest.mark.growth
def test_what_is_not_linear_is_seen(pattern):
    ratio, *_ = patterns.worst(regex.compile(pattern), longest=80_000)
    assert ratio > patterns.MOST


@pytest.mark.growth
def test_every_pattern_is_linear():
    """A text of 8 times the length takes 8 times as long, not 64 times."""
    found = {
        name: worst
        for name, pattern in patterns.find_patterns().items()
        if (worst := patterns.worst(pattern, longest=80_000))[0] > patterns.MOST
    }
    assert not found
