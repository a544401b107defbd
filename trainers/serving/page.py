"""The pages of the server, and their Content-Security-Policies."""

import base64
import functools
import hashlib
import pathlib
import re
import typing
from collections.abc import Sequence

from keras_transformer.figures.pages import render_page

ICON = pathlib.Path(__file__).with_name("icon.svg").read_bytes()
_POLICY = (
    "default-src 'none'; style-src {style}; img-src 'self'; base-uri 'none';"
    " frame-ancestors 'none'"
)
_PROGRAM = (
    "; script-src {script}; connect-src 'self'; frame-src 'self';"
    " form-action 'self'; require-trusted-types-for 'script'"
)


@functools.cache
def render() -> tuple[str, str]:
    """Renders the translation page, and makes its Content-Security-Policy.

    The policy allows only the page's own style sheet and script, by their
    hashes, and requests to its server: text that is inserted as HTML by mistake
    cannot run.
    """
    return _render("page.html", _POLICY + _PROGRAM)


def render_docs(description: dict[str, typing.Any]) -> tuple[str, str]:
    """Renders an OpenAPI document as a page, and makes its policy."""
    return _render("docs.html", _POLICY, **description)


def render_about(cards: Sequence[str]) -> tuple[str, str]:
    """Renders the cards of models as a page, and makes its policy."""
    return _render("about.html", _POLICY, cards=cards)


def _render(template, policy, **values):
    page = render_page(__package__, template, **values)
    tags = re.findall("{([^{}]*)}", policy)
    return page, policy.format(**{tag: _hash_of(page, tag) for tag in tags})


def _hash_of(page, tag):
    """Returns the policy source that allows the only element with a tag."""
    _, element = page.split(f"<{tag}>")
    content, _ = element.split(f"</{tag}>")
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
