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


SQUARE = (
    r">[^<]*\p{L}",
    r"<meta\b[^>]*?\bcharset",
    # It was cubic: each beginning, each of its ends, and each of theirs.
    r"<w:lang\b[^>]*>|<style:text-properties\b[^>]*\bfo:language=[^>]*>",
    r"<w:(?:listEntry|helpText|alias)\b[^<>]*\bw:(?:val|text)=[\"']\d*+\p{L}",
    r"<text:[\w-]*(?:index|toc)-mark\b[^<>]*\btext:key=",
    r"w:val=[\"']en(?:[-_]\w+)*[\"']",
    r"\s+fo:script=",
    r"[^,\n]*;",
    r"(?:a|b|ab)*c",
)


@pytest.mark.parametrize("pattern", SQUARE)
def test_what_is_not_linear_is_seen(pattern):
    assert patterns.growing(regex.compile(pattern))


@pytest.mark.parametrize("pattern", [r">[^<>]*+\p{L}", r"(?<!\s)\s++a"])
def test_what_is_linear_is_no_attack(pattern):
    assert not patterns.growing(regex.compile(pattern))


@pytest.mark.slow("run")
def test_every_pattern_is_linear():
    """All of the product, each unbounded part, without what ends it."""
    found = {
        name: text
        for name, pattern in patterns.find_patterns().items()
        if (text := patterns.growing(pattern))
    }
    assert not found
