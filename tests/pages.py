"""Helpers of the tests of pages, which read a page without a browser."""

import base64
import html.parser
import json
import re
import zlib
from xml.etree import ElementTree

import numpy as np
import tensorflow as tf

# Names, not addresses that a browser loads.
NAMESPACES = ("http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink")
# Text that makes a browser load something.
LOADING = re.compile(
    r"https?:|\bsrc\s*=|\bsrcset\s*=|<link|<base|@import|url\((?!#)|fetch\(|"
    r"XMLHttpRequest|WebSocket|EventSource|sendBeacon|import\(|<iframe|<object"
)


class Elements(html.parser.HTMLParser):
    """The elements of a page: (tag, attributes, inner text)."""

    def __init__(self, page):
        super().__init__()
        self.found, self._open = [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        element = [tag, dict(attributes), ""]
        self.found.append(element)
        self._open.append(element)

    def handle_startendtag(self, tag, attributes):
        self.found.append([tag, dict(attributes), ""])

    def handle_endtag(self, tag):
        while self._open and self._open.pop()[0] != tag:
            pass  # elements without end tags

    def handle_data(self, text):
        for element in self._open:
            element[2] += text

    def of(self, tag):
        """Returns the elements with a tag."""
        return [element for element in self.found if element[0] == tag]


def assert_offline(page):
    """Checks that a page loads nothing, and that its policy forbids it."""
    for name in NAMESPACES:
        page = page.replace(name, "")
    assert not LOADING.search(page), LOADING.search(page)
    [policy] = [
        attributes["content"]
        for _, attributes, _ in Elements(page).of("meta")
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none';")


def data_of(page):
    """Returns the data of an attention page's script.

    The weights, by kind, are float64 `[L, H, T, S]`.
    """
    [text] = [
        text
        for _, attributes, text in Elements(page).of("script")
        if attributes.get("type") == "application/json"
    ]
    data = json.loads(text)
    packed = zlib.decompress(base64.b64decode(data["weights"]))
    low, high = np.frombuffer(packed, np.uint8).reshape(2, -1).astype(int)
    numbers, weights = low + 256 * high, {}
    for kind in data["kinds"]:
        shape = (
            kind["layers"],
            kind["heads"],
            len(data["tokens"][kind["queries"]]),
            len(data["tokens"][kind["keys"]]),
        )
        size = int(np.prod(shape))
        weights[kind["name"]] = numbers[:size].reshape(shape) / data["whole"]
        numbers = numbers[size:]
    assert not numbers.size
    return data, weights


def texts(svg):
    """Returns the texts of an SVG."""
    root = ElementTree.fromstring(svg)
    return [node.text for node in root.iter() if node.tag.endswith("}text")]


def contrast(one, two):
    """Computes WCAG 2's contrast of two colors (red, green, blue; 0 to 255)."""
    darker, lighter = sorted(map(luminance, (one, two)))
    return (lighter + 0.05) / (darker + 0.05)


def luminance(color):
    """Computes WCAG 2's relative luminance."""
    parts = np.array(color) / 255
    linear = np.where(
        parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4
    )
    return linear @ [0.2126, 0.7152, 0.0722]


def rgb(code):
    """Returns the three numbers of a color such as `#ba516f`."""
    return [int(code[i : i + 2], 16) for i in (1, 3, 5)]


def images(svg):
    """Returns the pictures inside an SVG: int arrays `[height, width, 3]`."""
    uris = re.findall(r'"data:image/png;base64,([^"]*)"', svg)
    return [
        tf.io.decode_png(base64.b64decode(uri), 3).numpy().astype(int)
        for uri in uris
    ]
