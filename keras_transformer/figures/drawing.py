"""SVG and HTML from their elements; nothing here knows what is drawn."""

import base64
import html
import re
import struct
import typing
import unicodedata
import zlib
from collections.abc import Iterable

import numpy as np

# The first that there is; the last one is any.
FONTS = "Noto Sans, DejaVu Sans, Liberation Sans, Arial, sans-serif"
# Legible on white and on black.
COLORS = ("#3987e5", "#e07b39", "#3aa17e", "#b565c9")
# What XML 1.0 cannot hold, however it is written.
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
NARROW = frozenset("fijlrtI.,:;'|!()[] ")
RIGHT_TO_LEFT = frozenset(
    "acm ajp apc ar ara arb arc ars ary arz azb ckb dv div fa fas he heb iw ji"
    " ks lrc mzn nqo pbt pes pnb prs ps pus sd snd syr ug uig ur urd yi"
    " yid".split()
)
RIGHT_TO_LEFT_SCRIPTS = frozenset("adlm arab hebr nkoo rohg syrc thaa".split())


class Theme(typing.NamedTuple):
    """The colors of a drawing.

    Attributes:
        ink: Of text and axes.
        background: None: that of whatever is behind the drawing.
    """

    ink: str
    background: str | None


PAPER = Theme(ink="#1a1a1a", background="#ffffff")
# Inside a page, whose style sheet says what the current color is.
PAGE = Theme(ink="currentColor", background=None)


def escape(text: str) -> str:
    """Text as it stands in SVG and HTML, in elements and in attributes.

    >>> escape('a < "b"\\0')
    'a &lt; &quot;b&quot;\ufffd'
    """
    return html.escape(NOT_XML.sub("\ufffd", text))


def element(
    tag: str, content: str | None = None, **attributes: typing.Any
) -> str:
    """One element.

    Args:
        tag: Its name.
        content: What is inside, already escaped; None: it has no end tag.
        **attributes: Values by name, with `_` for `-`, and after a name that
            Python reserves; None: no such attribute.

    >>> element("text", escape("a & b"), x=1.5, text_anchor="end", class_="c")
    '<text x="1.5" text-anchor="end" class="c">a &amp; b</text>'
    """
    shown = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(_spell(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    if content is None:
        return f"<{tag}{shown}/>"
    return f"<{tag}{shown}>{content}</{tag}>"


def _spell(value):
    """An attribute's value; a number with two digits after the point."""
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return str(value)


def document(
    width: float, height: float, body: Iterable[str], label: str, theme: Theme
) -> str:
    """A whole SVG drawing.

    Args:
        width, height: In pixels.
        body: Its elements.
        label: What it shows, for those who cannot see it.
        theme: The `Theme`.
    """
    background = []
    if theme.background:
        background = [
            element("rect", width=width, height=height, fill=theme.background)
        ]
    return element(
        "svg",
        "\n".join(["", *background, *body, ""]),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_spell(float(width))} {_spell(float(height))}",
        width=width,
        height=height,
        font_family=FONTS,
        font_size=13,
        role="img",
        aria_label=label,
    )


def line(
    x1: float, y1: float, x2: float, y2: float, stroke: str, **more: typing.Any
) -> str:
    """A straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=stroke, **more)


def text(
    x: float,
    y: float,
    words: str,
    fill: str,
    anchor: str = "start",
    **more: typing.Any,
) -> str:
    """A line of text; `anchor` is where (x, y) is: start, middle or end."""
    return element(
        "text", escape(words), x=x, y=y, fill=fill, text_anchor=anchor, **more
    )


def is_wide(character: str) -> bool:
    """Whether a character is as wide as high, as Chinese and Japanese are."""
    return unicodedata.east_asian_width(character) in "WF"


def direction(language: str | None) -> str:
    """The value of HTML's `dir` for text in a language: rtl, ltr or auto.

    A browser that has to find out (auto) takes the first letter's direction:
    of a Hebrew sentence that begins with a Latin name, the wrong one.

    Args:
        language: A language code, which may name a script; None: not known.

    >>> direction("he"), direction("az_Arab"), direction("de"), direction(None)
    ('rtl', 'rtl', 'ltr', 'auto')
    """
    if not language:
        return "auto"
    name, *others = language.lower().replace("_", "-").split("-")
    scripts = [part for part in others if len(part) == 4 and part.isalpha()]
    if scripts:
        return "rtl" if scripts[0] in RIGHT_TO_LEFT_SCRIPTS else "ltr"
    return "rtl" if name in RIGHT_TO_LEFT else "ltr"


def text_width(words: str, size: float) -> float:
    """About the width of a text in pixels, rather too much than too little.

    Args:
        words: The text.
        size: Of the font, in pixels.
    """
    width = 0.0
    for character in words:
        if unicodedata.combining(character):
            continue
        if is_wide(character):
            width += 1.0
        elif character in NARROW:
            width += 0.4
        else:
            width += 0.85 if character.isupper() or character in "mwMW" else 0.6
    return width * size


def image_uri(pixels: np.ndarray) -> str:
    """A picture as a PNG in a `data:` address.

    Args:
        pixels: uint8 `[height, width, 3]`, red, green, blue.
    """
    height, width, _ = pixels.shape
    # Each row begins with the number of its filter: 0, none.
    rows = np.pad(pixels.reshape(height, width * 3), [(0, 0), (1, 0)])

    def chunk(name, content):
        checksum = zlib.crc32(name + content)
        length = struct.pack(">I", len(content))
        return length + name + content + struct.pack(">I", checksum)

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    content = (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows.tobytes(), 9))
        + chunk(b"IEND", b"")
    )
    return "data:image/png;base64," + base64.b64encode(content).decode()


def fill_template(template: str, **values: str) -> str:
    """A page: `{{name}}` in a template becomes the value of that name.

    What stands in a value is not read again.

    Raises:
        KeyError: The template names a value that is not given.

    >>> fill_template("<p>{{a}}</p>", a="{{b}}")
    '<p>{{b}}</p>'
    """
    return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], template)
