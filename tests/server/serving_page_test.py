"""The contents of the server's page, read without a browser.

`serving_page_browser_test.py` uses it.
"""

import base64
import hashlib
import re

import pages
import pytest

from keras_transformer import documents
from trainers.serving import page, requests


def test_the_policy_allows_what_is_in_the_page_and_nothing_else():
    html, policy = page.render()
    sources = dict(
        directive.strip().split(" ", 1) for directive in policy.split(";")
    )
    elements = pages.Elements(html)
    for tag in ("style", "script"):
        assert sources.pop(f"{tag}-src") == digest_of(elements, tag)
    assert sources == {
        "default-src": "'none'",
        "img-src": "'self'",
        "connect-src": "'self'",
        "frame-src": "'self'",
        "form-action": "'self'",
        "base-uri": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
    }
    # Which no hash allows.
    for _, attributes, _ in elements.found:
        assert not any(
            name == "style" or name.startswith("on") for name in attributes
        )


def digest_of(elements, tag):
    """Returns how a policy allows the only element with a tag."""
    [(_, attributes, text)] = elements.of(tag)
    assert attributes == {} and text.strip()
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest())
    return f"'sha256-{digest.decode()}'"


def test_every_color_is_defined():
    html, _ = page.render()
    used = set(re.findall(r"var\((--[\w-]+)", html))
    defined = set(re.findall(r"(--[\w-]+):", html))
    assert used <= defined


def test_the_page_names_no_other_address():
    html, _ = page.render()
    html = html.replace(pages.NAMESPACES[0], "")
    assert not re.search(r"https?:|\bsrc=|@import|url\(|import\(", html)
    addresses = re.findall(r'(?:href|action)="([^"]*)"', html)
    view = "#kind=cross&amp;view=heat+map&amp;unit=words"
    assert addresses == ["favicon.ico", f"v1/attention{view}", "about", "docs"]
    # Relative ones, so that a proxy may give the server a folder.
    assert re.findall(r'ask\("([^"]*)"', html) == [
        "v1/translate",
        "translate_file",
        "languages",
        "frontend/settings",
    ]


def test_the_program_and_the_style_use_elements_that_exist():
    html, _ = page.render()
    elements = pages.Elements(html)
    ids = [
        attributes["id"]
        for _, attributes, _ in elements.found
        if "id" in attributes
    ]
    assert len(ids) == len(set(ids))
    [(_, _, program)] = elements.of("script")
    [(_, _, style)] = elements.of("style")
    used = set(re.findall(r'find\("([^"]*)"\)', program))
    assert used <= set(ids) and len(used) > 15
    assert set(re.findall(r"#([a-z_]+)\b(?=[^;]*{)", style)) <= set(ids)
    described = {
        name
        for _, attributes, _ in elements.found
        for name in attributes.get("aria-describedby", "").split()
    }
    assert described <= set(ids)


def test_the_page_knows_the_errors_of_files():
    """It has plainer words for them."""
    html, _ = page.render()
    found = dict(re.findall(r"const (NOT_UTF8|DAMAGED) = /(.*)/i;", html))
    for name, data, kind in (
        ("NOT_UTF8", "Füße".encode("cp1252"), "text"),
        ("DAMAGED", b"PK\x03\x04 and no more", "docx"),
        ("DAMAGED", b"PK\x03\x04 and no more", "odt"),
    ):
        with pytest.raises(ValueError) as error:
            documents.parse(data, kind)
        assert re.match(found[name], str(error.value))
    named = {".docx", ".odt", ".txt", ".html", ".srt"}
    assert named <= set(requests.SUFFIXES)


def test_every_control_has_a_name():
    html, _ = page.render()
    labels = re.findall(r"<label.*?</label>", html, re.DOTALL)
    labeled = " ".join(labels)
    for tag, attributes, text in pages.Elements(html).found:
        if tag == "button":
            assert attributes.get("aria-label") or text
        if tag in ("select", "textarea", "input"):
            assert (
                attributes.get("type") == "hidden"
                or "aria-label" in attributes
                or f'id="{attributes["id"]}"' in labeled
            )
