"""The charset of a document: found in its bytes, kept in its translation."""

import codecs
import typing

import regex

SEARCHED = 1 << 16  # characters at the start that may declare the charset
# Python's text codecs that no files use.
NO_CHARSETS = (
    "idna punycode raw-unicode-escape undefined unicode-escape utf-7".split()
)
MARKS = (  # byte order marks; the longer ones first
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_XML = r"\A\s*+<\?xml\b[^<>]*?\bencoding\s*+=\s*+[\"'](?<name>[^\"']++)"
# Where each kind of format declares its charset.
XML_DECLARATION = regex.compile(_XML)
HTML_DECLARATION = regex.compile(
    rf"{_XML}|<meta\b[^<>]*?\bcharset\s*+=\s*+[\"']?+\s*+(?<name>[\w.:+-]++)",
    regex.I,
)
PO_DECLARATION = regex.compile(
    r'^(?:[^#\n"]++|"(?!Content-Type:))*+"Content-Type:[^"\n]*?charset=(?!CHARSET)(?<name>[^\s"\\;]++)',
    regex.M,
)


class Charset(typing.NamedTuple):
    """A document's charset: Python's name, and the pattern of declarations."""

    name: str
    declaration: regex.Pattern | None

    def encode(self, text: str) -> tuple[bytes, str]:
        """Encodes a text. Returns its bytes and the name of their charset.

        If the charset lacks a character, the bytes are UTF-8, and the text's
        declaration is changed to UTF-8.
        """
        try:
            return text.encode(self.name), self.name
        except UnicodeEncodeError:
            declared = _declared(self.declaration, text)
            if declared:
                begin, end = declared.span("name")
                text = f"{text[:begin]}UTF-8{text[end:]}"
            return text.encode(), "utf-8"


def decode(
    data: bytes, declaration: regex.Pattern | None, name: str = ""
) -> tuple[str, Charset]:
    """Decodes a document. Returns its text and its charset.

    The byte order mark, which stays in the text, determines the charset, else
    `name`, else the declaration. The default is UTF-8. Raises ValueError if the
    charset is unknown or does not fit the bytes; the message has the line.
    """
    declared = _declared(declaration, data[:SEARCHED].decode("latin-1"))
    label = name or (declared["name"] if declared else "utf-8")
    label = next((n for mark, n in MARKS if data.startswith(mark)), label)
    try:
        label = codecs.lookup(label).name
        if label.replace("_", "-") in NO_CHARSETS:
            raise LookupError
        "".encode(label)
    except LookupError as error:  # also if the codec is not for text
        raise ValueError(
            f"expected the name of a charset. Received: charset={label!r}"
        ) from error
    if declared and not name and label in ("utf-16", "utf-32"):
        label = "utf-8"  # in UTF-16, the declaration would not have matched
    if label == "iso8859-1" and regex.search(rb"[\x80-\x9f]", data):
        label = "cp1252"  # files labelled Latin-1 use its quotation marks
    try:
        return data.decode(label), Charset(label, declaration)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"line {line} is not {label.upper()} ({error.reason})"
        ) from error


def text_of(data: bytes, charset: str) -> str:
    """Decodes a document. Raises ValueError if it is binary (charset "")."""
    if not charset:
        raise ValueError(
            "expected a document that is a text; of others, take the bytes."
            f" Received: charset={charset!r}"
        )
    return data.decode(charset)


def _declared(declaration, text):
    return declaration and declaration.search(text, 0, SEARCHED)
