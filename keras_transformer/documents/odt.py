"""ODT, the format of LibreOffice's Writer: OpenDocument in a zip archive."""

import functools

import regex

from keras_transformer.documents.items import (
    NARROW,
    SPACE,
    Item,
    Split,
    plain_items,
)
from keras_transformer.documents.office import (
    BEGIN,
    BREAK,
    PLAIN,
    STOP,
    Around,
    Format,
    Part,
    is_code_style,
    left_part,
    read_archive,
    read_parts,
)

MIMETYPE = regex.compile(
    rb"application/vnd\.oasis\.opendocument\.text(?:-template|-master)?\s*"
)
SIDES = {"start": BEGIN, "end": STOP}
BREAKS = ("tab", "line-break")
POINTS = ("bookmark", "reference-mark", "change", "change-start", "change-end")
OUTER = ("a", "meta", "meta-field")
PAGE_BREAK = "soft-page-break"
# Attributes of a style that no reader sees.
UNSEEN = regex.compile(r"rsid\Z|\}(?:\w+-)?(?:language|country|script)(?:-|\Z)")
STYLE = "{urn:oasis:names:tc:opendocument:xmlns:style:1.0}"
TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"


def read(
    data: bytes, split: Split, languages: tuple[str, str] = ("", "")
) -> tuple:
    """Returns the pieces of a text document and the `finish` of `Document`.

    Raises ValueError if `data` is not an OpenDocument text, or is encrypted.
    """
    files = read_archive(data)
    mimetype = files.get("mimetype", b"")
    if not MIMETYPE.fullmatch(mimetype) or "content.xml" not in files:
        raise ValueError(
            "expected a text document of OpenDocument in the zip archive."
            f" Received: mimetype={mimetype[:80].decode('latin-1')!r}"
        )
    if b"encryption-data" in files.get("META-INF/manifest.xml", b""):
        raise ValueError("expected a document without a password")
    readers = {}
    for name in files:
        if name in ("content.xml", "styles.xml"):
            readers[name] = lambda text: _Part(text, split).read()
        elif name.endswith("/content.xml"):
            readers[name] = functools.partial(left_part, reason="object")
    return read_parts(data, files, readers, languages)


class _Part(Part):
    PARAGRAPHS = (
        *("p", "h", "index-title-template", "index-entry-span"),
        "note-continuation-notice-forward",
        "note-continuation-notice-backward",
    )
    REASONS = {
        "tracked-changes": "deleted text",
        "annotation": "comment",
        "ruby": "ruby",
    }

    def __init__(self, text, split):
        super().__init__(text, split)
        styles = list(self.root.iter(f"{STYLE}style"))
        self._styles = {e.get(f"{STYLE}name"): _seen(e) for e in styles}
        self._code_styles = set[str]()
        for style in styles:  # the one that a style is based on comes first
            if self._is_code(style.get(f"{STYLE}parent-style-name", "")):
                self._code_styles.add(style.get(f"{STYLE}name"))

    def _is_code(self, style):
        return style in self._code_styles or is_code_style(style)

    def reason(self, element):
        is_styled = self.name(element) in ("p", "h", "span")
        style = element.get(f"{TEXT}style-name", "")
        is_code = is_styled and self._is_code(style)
        return "code" if is_code else super().reason(element)

    def name(self, element):
        namespace, _, name = element.tag.rpartition("}")
        is_comment = element.tag.startswith(f"{OFFICE}annotation")
        return name if namespace + "}" == TEXT or is_comment else ""

    def items(self, paragraph):
        items: list[Item] = []
        self._read(paragraph, items, ())
        return self.spans[paragraph][0] + 1, items

    def _read(self, element, items, spans):
        """Adds the items of an element's content, formatted by `spans`."""
        tags = [[self.events[i].raw for i in self.spans[s]] for s in spans]
        format = (
            Format(*map("".join, zip(*tags, strict=True))) if tags else PLAIN
        )
        names = (span.get(f"{TEXT}style-name") for span in spans)
        styles = (self._styles.get(name, name) for name in names)
        look = tuple(style for style in styles if style)
        code = self.keep(format if look else PLAIN)
        shared = self.formats.setdefault(look, code)

        def add_text(text: str | None) -> None:
            words = plain_items(text or "")
            items.extend(item._replace(name=shared) for item in words)

        add_text(element.text)
        for child in element.iterchildren():
            name = self.name(child) if child in self.spans else PAGE_BREAK
            begin, end = self.spans.get(child, (0, 0))
            if name == "span" and not self.reason(child):
                self._read(child, items, (*spans, child))
            elif name in OUTER and begin < end:
                inside: list[Item] = []
                self._read(child, inside, spans)
                opening, closing = (self.events[i].raw for i in (begin, end))
                items.append(Around(opening, inside, closing))
            elif name != PAGE_BREAK:
                items.append(self._code(child, name, format))
            add_text(child.tail)

    def _code(self, element, name, format):
        """Makes an item of an element that does not enclose text."""
        is_field = name != "" and (not len(element) or name == "drop-down")
        code = self.code(element, format, "field" * is_field)
        kind, _, side = name.rpartition("-")
        if name == "s":
            return code._replace(kind=SPACE, text=" ")
        if name in BREAKS:
            return code._replace(kind=BREAK)
        if name in POINTS:
            return code._replace(name=NARROW)
        if side in SIDES:
            range_id = next(iter(element.values()), "")
            return code._replace(kind=SIDES[side], name=f"{kind} {range_id}")
        return code


def _seen(style):
    """Returns the visible properties of a character style."""
    values = [
        item
        for element in style.iterdescendants("{*}*")
        for item in sorted(element.items())
        if not UNSEEN.search(item[0])
    ]
    return tuple(
        filter(None, [style.get(f"{STYLE}parent-style-name"), *values])
    )
