"""DOCX, the format of Word: WordprocessingML in a zip archive."""

import collections
import dataclasses
import functools
import posixpath
from collections.abc import Callable, Iterator

import regex

from keras_transformer.documents.charsets import XML_DECLARATION, decode
from keras_transformer.documents.html import read as read_html
from keras_transformer.documents.items import Item, Split, plain_items
from keras_transformer.documents.markup import escape
from keras_transformer.documents.office import (
    BEGIN,
    BREAK,
    STOP,
    Around,
    Format,
    Part,
    content_types,
    is_code_style,
    left_part,
    read_archive,
    read_parts,
)
from keras_transformer.documents.pieces import Block, Left
from keras_transformer.documents.text import read as read_text
from keras_transformer.documents.xml import parse_xml

BYTE_ORDER_MARK = "\ufeff"

_WORD = r"(?:wordprocessingml|ms-word)\."
MAIN = regex.compile(
    _WORD + r"(?:document|template)(?:\.macroEnabled(?:Template)?)?\.main\+xml"
)
TEXT_PART = regex.compile(
    _WORD + r"(?:header|footer|footnotes|endnotes|numbering)\+xml"
)
# Readers of documents inside the document, to which an `altChunk` refers.
CHUNKS: dict[str, Callable] = {
    "text/html": read_html,
    "application/xhtml+xml": read_html,
    "text/plain": read_text,
}
LEFT_PARTS = {
    "comments+xml": "comment",
    "glossary+xml": "building block",
    "chart+xml": "chart",
    "chartex+xml": "chart",
    "chartshapes+xml": "chart",
    "diagramData+xml": "diagram",
}
# Elements around the runs of a paragraph.
OUTER = "hyperlink ins moveTo smartTag customXml dir bdo sdt fldSimple".split()
SKIPPED = ("proofErr", "lastRenderedPageBreak")
BREAKS = ("tab", "ptab", "br", "cr")
SIGNS = {"noBreakHyphen": "-", "softHyphen": ""}
# Fields without a result: their instruction is visible elsewhere.
ENTRY = regex.compile(
    r"\s*(?:(?<index>XE|TC|TA)|MACROBUTTON|GOTOBUTTON)\b", regex.I
)
# The id of a style, which Word may translate, and its name.
STYLE = regex.compile(
    r"""<(?:\w+:)?style\s(?>[^<>]*?\bw:styleId=["'](?<id>[^"'<>]*+))[^<>]*+>
    \s*+<(?:\w+:)?name\s(?>[^<>]*?\bw:val=["'](?<name>[^"'<>]*+))""",
    regex.VERBOSE,
)
# Parts of a document: a field ends in the part where it begins.
STORIES = ("{*}footnote", "{*}endnote", "{*}txbxContent")
# Content controls whose text is chosen from a list or comes from elsewhere.
CONTROLS = tuple("}dataBinding }dropDownList }comboBox }date }checkbox".split())
TRANSLATED_FIELD = regex.compile(r"\A\s*+(?:HYPERLINK|TOC)\b", regex.I)
KEPT_SPACE = "{http://www.w3.org/XML/1998/namespace}space", "preserve"
# The properties of a run that no reader sees.
UNSEEN = regex.compile(r"</?(?:\w+:)?(?:lang|noProof|rPr)\b[^<>]*+>|\s++")


def read(
    data: bytes, split: Split, languages: tuple[str, str] = ("", "")
) -> tuple:
    """Returns the pieces of a Word document and the `finish` of `Document`.

    Raises ValueError if `data` is not a Word document.
    """
    files = read_archive(data)
    types = content_types(files)
    if not any(map(MAIN.search, types.values())):
        raise ValueError(
            "expected a Word document in the zip archive. Received:"
            f" {', '.join([*files][:4])}"
        )
    codes = {
        style["id"]
        for name, kind in types.items()
        if kind.endswith("wordprocessingml.styles+xml")
        for style in STYLE.finditer(decode(files[name], XML_DECLARATION)[0])
        if is_code_style(style["name"])
    }
    readers: dict[str, Callable[[str], Iterator]] = {}
    for name, kind in types.items():
        is_text = MAIN.search(kind) or TEXT_PART.search(kind)
        if is_text and not files[name].startswith(b"PK"):
            chunks = {
                key: target
                for key, target in _chunks(files, name)
                if types.get(target) in CHUNKS
            }
            readers[name] = functools.partial(_read_part, split, chunks, codes)
            for target in chunks.values():
                readers[target] = functools.partial(
                    _read_chunk, split, CHUNKS[types[target]]
                )
        elif reason := LEFT_PARTS.get(kind.rpartition(".")[2]):
            readers[name] = functools.partial(left_part, reason=reason)
    return read_parts(data, files, readers, languages)


def _chunks(files, name):
    """Yields the key and the file name of each `altChunk` of a part."""
    folder, _, base = name.rpartition("/")
    listed = files.get(f"{folder}/_rels/{base}.rels", b"<none/>")
    root, _, _ = parse_xml(decode(listed, XML_DECLARATION)[0])
    for element in root.iter("{*}Relationship"):
        if element.get("Type", "").endswith("/aFChunk"):
            target = posixpath.join(f"/{folder}", element.get("Target", ""))
            yield element.get("Id"), posixpath.normpath(target).lstrip("/")


def _read_part(split, chunks, codes, text):
    yield from _Part(text, split, chunks, codes).read()


def _read_chunk(split, read, text):
    yield BYTE_ORDER_MARK * text.startswith(BYTE_ORDER_MARK)
    yield from read(text.removeprefix(BYTE_ORDER_MARK), split)


class _Part(Part):
    PARAGRAPHS = ("p",)
    REASONS = {
        "del": "deleted text",
        "moveFrom": "deleted text",
        "ruby": "ruby",
        "oMath": "math",
        "oMathPara": "math",
    }

    def __init__(self, text, split, chunks, codes):
        super().__init__(text, split)
        self._chunks, self._code_styles = chunks, codes
        self._namespace = self.root.tag.rpartition("}")[0] + "}"
        root = self.events[self.spans[self.root][0]].name
        self._tag = "".join(root.rpartition(":")[:2]) + "t"
        self._fields: list[_Field] = []  # open fields, the innermost last
        self._field_signs = self._whole_fields()

    def _whole_fields(self):
        """Returns the `fldChar` elements of all fields that have an end."""
        found: set = set()
        opened: dict = collections.defaultdict(list)
        for sign in self.root.iter(f"{self._namespace}fldChar"):
            if any(map(self._is_deleted, sign.iterancestors())):
                continue
            fields = opened[next(sign.iterancestors(*STORIES), None)]
            kind = sign.get(f"{self._namespace}fldCharType")
            if kind == "begin":
                fields.append([])
            if fields:
                fields[-1].append(sign)
                if kind == "end":
                    found.update(fields.pop())
        return found

    def _is_deleted(self, element):
        return self.name(element) in ("del", "moveFrom")

    def name(self, element):
        namespace, _, name = element.tag.rpartition("}")
        is_own = namespace + "}" == self._namespace
        return name if is_own or name in ("oMath", "oMathPara") else ""

    def reason(self, element):
        name = self.name(element)
        if name in ("p", "r") and self._code_styles:
            style = element.find(f"{{*}}{name}Pr/{{*}}{name}Style")
            id = "" if style is None else style.xpath("string(@*)")
            return "code" if id in self._code_styles else ""
        if name == "sdt":
            kinds = element.iterfind("{*}sdtPr/{*}*")
            is_left = any(k.tag.endswith(CONTROLS) for k in kinds)
            return "content control" if is_left else ""
        if name == "altChunk":
            is_read = not self._chunks.keys().isdisjoint(element.values())
            return "" if is_read else "document inside the document"
        if name == "fldSimple":
            code = element.get(f"{self._namespace}instr", "")
            return "" if TRANSLATED_FIELD.match(code) else "field"
        return super().reason(element)

    def _left(self, element, reason):
        left = super()._left(element, reason)
        # Its words are in another file.
        is_chunk = reason and self.name(element) == "altChunk"
        return Left(left, reason) if is_chunk else left

    def drop_cap(self, element):
        frame = f"{self._namespace}pPr/{self._namespace}framePr"
        frame += f"[@{self._namespace}dropCap]"
        after = None if element is None else element.getnext()
        if after is None or element.find(frame) is None:
            return None
        inside = list(element.iterdescendants("{*}*"))
        texts = [e for e in inside if self.name(e) == "t"]
        is_plain = not any(
            self.reason(e) or self.name(e) == "p" for e in inside
        )
        is_cap = self.name(after) == "p" and after.find(frame) is None
        return texts[0] if len(texts) == is_plain == is_cap else None

    def write_text(self, text):
        text = escape(text)
        return f'<{self._tag} xml:space="preserve">{text}</{self._tag}>'

    def items(self, paragraph):
        items: list[Item] = []
        self._read(paragraph, items)
        return self._after_properties(paragraph), items

    def _after_properties(self, element):
        """Returns the index of the event after an element's properties."""
        after = self.spans[element][0] + 1
        for child in element.iterchildren("{*}*"):
            if not self.name(child).endswith("Pr"):
                break
            after = self.spans[child][1] + 1
        return after

    def _read(self, element, items):
        for child in element.iterchildren("{*}*"):
            name = self.name(child)
            content = next(child.iterchildren("{*}sdtContent"), child)
            if name == "r":
                if len(child):
                    self._read_run(child, items)
            elif name in OUTER and not self.reason(child) and len(content):
                begin, end = self.spans[child]
                first = self._after_properties(content)
                inside: list[Item] = []
                self._read(content, inside)
                closing = self.raw(self.spans[content][1], end + 1)
                opening = self.raw(begin, first)
                items.append(Around(opening, inside, closing))
            elif name.endswith(("Start", "End")):
                kind, is_begin, _ = name.partition("Start")
                kind = kind.removesuffix("End")
                items.append(
                    self.code(child)._replace(
                        kind=BEGIN if is_begin else STOP,
                        name=f"{kind} {child.get(f'{self._namespace}id')}",
                    )
                )
            elif not name.endswith("Pr") and name not in SKIPPED:
                items.append(self.code(child))

    def _read_run(self, run, items):
        """Adds the items of a run, which is text in one format."""
        first, last = self.spans[run]
        properties = self.raw(first + 1, self._after_properties(run))
        tags = self.events[first].raw, self.events[last].raw
        format = Format(tags[0] + properties, tags[1])
        look = UNSEEN.sub("", properties)
        shared = self.formats.setdefault(look, self.keep(format))
        code_style = self.reason(run)
        for child in run.iterchildren("{*}*"):
            name = self.name(child)
            if name.endswith("Pr") or name in SKIPPED:
                continue
            field = self._fields[-1] if self._fields else NO_FIELD
            is_left = bool(field.is_left or code_style)
            reason = code_style or "field" * (name == "t")
            if entry := field.in_code and ENTRY.match(
                field.code + (child.text or "")
            ):
                reason = "index entry" if entry["index"] else "field"
            code = self.code(child, format, reason)
            if name == "fldChar" and child in self._field_signs:
                self._read_field(child, code, items)
            elif field.in_code:
                field.code = (field.code + (child.text or ""))[:80]
                field.extend(items, code)
            elif name == "t" and not is_left:
                text = child.xpath("string()")
                if KEPT_SPACE not in child.items():
                    text = text.strip()
                items += [i._replace(name=shared) for i in plain_items(text)]
            elif name in SIGNS and not is_left:
                items.append(Item(code.raw, SIGNS[name]))
            else:
                is_break = name in BREAKS and not field.is_left
                items.append(code._replace(kind=BREAK) if is_break else code)

    def _read_field(self, element, code, items):
        """Adds the item of a `fldChar`: a field begins, divides or ends."""
        kind = element.get(f"{self._namespace}fldCharType")
        outer = self._fields[-1] if self._fields else NO_FIELD
        if kind == "begin":
            name = f"field {self.spans[element][0]}"
            self._fields.append(_Field(name, outer.is_left))
            raw = Block([code.raw])
            items.append(code._replace(raw=raw, kind=BEGIN, name=name))
        elif kind == "separate" and outer.in_code:
            is_translated = TRANSLATED_FIELD.match(outer.code)
            outer.is_left = outer.is_inside or not is_translated
            outer.in_code = False
            outer.extend(items, code)
        elif kind == "end" and self._fields:
            name = self._fields.pop().name
            items.append(code._replace(kind=STOP, name=name))
        else:
            items.append(code)


@dataclasses.dataclass
class _Field:
    """A field: its instruction, and whether its text stays untranslated."""

    name: str
    is_inside: bool  # whether it is in a field whose text is left
    code: str = ""  # the start of its instruction
    in_code: bool = True
    is_left: bool = True

    def extend(self, items: list[Item], code: Item) -> None:
        """Adds a code before the field's text, to the last item if possible."""
        last = items[-1].raw if items else ""
        if isinstance(last, Block) and items[-1].name == self.name:
            last.pieces.append(code.raw)
        else:
            items.append(code)


NO_FIELD = _Field("", False, in_code=False, is_left=False)
