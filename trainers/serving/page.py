"""The page of the translation server, and the policy that it is sent with."""

import base64
import functools
import hashlib
import re

from keras_transformer.figures.pages import render_page

_POLICY = (
    "default-src 'none'; style-src {style}; script-src {script};"
    " img-src data:; connect-src 'self'; frame-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none';"
    " require-trusted-types-for 'script'"
)


@functools.cache
def render() -> tuple[str, str]:
    """The page, and its Content-Security-Policy.

    The policy allows the page's own style sheet and program by their hashes,
    requests to the server that it came from, and nothing else: text that was
    inserted as HTML by mistake could not run.
    """
    page = render_page("trainers.serving", "page.html")
    hashes = {tag: _hash_of(page, tag) for tag in ("style", "script")}
    return page, _POLICY.format(**hashes)


def _hash_of(page, tag):
    """The source of a policy that allows the only element with a tag."""
    [content] = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
