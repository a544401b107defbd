"""Files of programs' messages, each with a key: JSON, strings.xml and others.

Libraries write such files anew, without JSON's repeated keys or Apple's
comments. So values are found by their place, and only they change.
"""

import functools
import html
import itertools
import json
import typing
from collections.abc import Callable, Iterator

import regex

from keras_transformer.documents import po
from keras_transformer.documents.items import ALONE, Item, Split, separate
from keras_transformer.documents.markup import escape, plain_text
from keras_transformer.documents.office import NO_XML
from keras_transformer.documents.pieces import Checked, Label, Left
from keras_transformer.documents.placeholders import (
    MESSAGES,
    C,
    count_placeholders,
)
from keras_transformer.documents.text import line_items
from keras_transformer.documents.xml import parse_xml


class Value(typing.NamedTuple):
    """A value of a file."""

    span: tuple[int, int]
    text: str  # what it says
    write: Callable[[str], str]  # writes a text as a value
    reason: str = ""  # why it is left; LANGUAGE if it is the file's language
    is_markup: bool = False  # whether `text` is XML


LANGUAGE = "language"
LANGUAGES = ("@@locale", "locale", "lang", "language")
CODE = regex.compile(r"[a-z]{2,3}(?:[-_]\w+)*")
# A color, a file, a date, a name of a program.
NO_TEXT = regex.compile(
    r"#[0-9A-Fa-f]{3,8}|[\w/-]++\.[a-z0-9]{2,4}|\d{4}-\d\d-\d\dT[\d:.]++Z?"
    r"|[a-z0-9]++(?:_[a-z0-9]++)++"
)
SURROGATE = regex.compile(r"[\ud800-\udfff]")
# A string without an end extends to the end, so that nothing is read twice.
STRING = r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)'
JSON = regex.compile(rf"(?<string>{STRING})(?<key>\s*+:)?+|[{{}}\[\]]", regex.S)
# Messages of Chrome, FormatJS, Transifex and Go have a text; the others are for
# translators.
MESSAGE_KEYS = "message defaultMessage string translation".split()
# Signs that a file may write as escapes, and then does in translations, too.
ESCAPED = regex.compile(r"\\(?:[/:=#!]|u00(?:26|27|3[CEce]))")
PROPERTY = regex.compile(
    r"^[ \t\f]*+(?:[#!][^\r\n]*+|(?:\\(?:\r\n|.)|[^\s=:\\])++"
    r"(?:[ \t\f]|\\\r?\n)*+(?:[=:](?:[ \t\f]|\\\r?\n)*+)?+"
    r"(?<value>(?:\\(?:\r\n|.)|[^\\\r\n])*+))",
    regex.M | regex.S,
)
CONTINUED = regex.compile(r"\\\r?\n[ \t\f]*+")
GAP = r"(?:\s++|/\*(?:[^*]++|\*(?!/))*+\*/|//[^\r\n]*+)*+"
APPLE = regex.compile(
    rf"\G{GAP}(?:\Z|(?:{STRING}|[\w.$-]++){GAP}"
    rf"(?:={GAP}(?<value>{STRING}|[\w.$-]++){GAP})?+;)",
    regex.S,
)
ESCAPE = regex.compile(r"\\(?:[uU]([0-9A-Fa-f]{4})|(.))", regex.S)
SIGNS = {"n": "\n", "t": "\t", "r": "\r"}
# White space of Android counts as one space, but for that in quotation marks.
SPACES = regex.compile(r'"((?:[^"\\]++|\\.)*+)"|(\\.)|"|[ \t\r\n]++', regex.S)
ANDROID = {ord(s): f"\\{s}" for s in "\\'\""} | {9: "\\t", 10: "\\n"}
DOCTYPE = regex.compile(r"<!DOCTYPE\s+plist\b[^\[>]{0,500}+>")
RULES = ("NSStringFormatSpecTypeKey", "NSStringFormatValueTypeKey")
ARRAYS = ("plurals", "string-array", "array")
REFERENCE = regex.compile(r"\s*+[@?][\w+.:]*+/[\w./]++\s*+")  # of Android
LOCKED = regex.compile(
    r"<!--(?:(?!-->).){0,999}+-->"
    r"|<(\w++:g)\b[^<>]*+(?<!/)>(?:(?!</\1>).){0,300}+</\1>",
    regex.S,
)
# What YAML reads as the same text without quotes, and what precedes a scalar.
PLAIN = regex.compile(
    r"(?!(?:y|n|yes|no|on|off|true|false|null)\Z)"
    r"\p{L}(?:[^:#\s\[\]{},]|[:#](?=\w)|\ (?=[^\s:#]))*+",
    regex.I,
)
PROPERTIES = regex.compile(r"(?:[&!]\S*+\s++)*+")
# A sign that Fluent would read as its own.
FLUENT_SIGN = regex.compile(r"(\{[^{}\n]*+\})|[{}]|\n[ ]*+\K[\[*.]")
KEYS = ("accesskey", "commandkey", "key", "style")  # attributes of Fluent


def reader(find: Callable[[str], Iterator[Value]]) -> Callable:
    """Makes a format's `read` of a function that finds the file's values."""

    def read(text: str, split: Split, target: str = "") -> Iterator:
        read_to = 0
        for value in find(text):
            begin, end = value.span
            if value.text.strip():
                yield text[read_to:begin]
                yield _piece(value, text[begin:end], split, target)
                read_to = end
        yield text[read_to:]

    return read


def _piece(value, raw, split, target):
    """Makes the piece of a value, which `raw` is in the file."""
    message, found = value.text, value.reason
    if found == LANGUAGE:
        new = value.write(target.replace("_", "-"))
        return Label(raw, new if target else raw)
    if SURROGATE.search(message):
        found = "half of a surrogate pair"
    kinds = (count_placeholders(message, kind) for kind in (MESSAGES, C))
    # `{name}` and `%{name}` do not make `%` a sign of C.
    shared = next(kinds) & next(kinds)
    is_c = any(name[0] == "%" and name[1] != "{" for name in shared)
    kind = C if is_c else MESSAGES
    divide = functools.partial(split, placeholders=kind)
    if not found and value.is_markup:
        found = divide(list(_markup_items(message)), escape)
        if all(isinstance(piece, str) for piece in found):
            found = "without words"
    is_text = not NO_TEXT.fullmatch(message)
    found = found or po.translation_of(message * is_text, divide, kind)
    if isinstance(found, str):
        return Left(raw, found)
    fits = functools.partial(po.fits, message, kind=kind)
    return Checked(
        *(found, lambda new: raw if new == message else value.write(new)),
        *(raw, fits, message),
    )


def read_json(text: str) -> Iterator[Value]:
    """Yields the strings of JSON. What ARB's keys with "@" have is left.

    Raises ValueError, with the line, if the text is not JSON.
    """
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno}: {error.msg}") from error
    except RecursionError as error:
        raise ValueError("expected JSON with less nesting") from error
    is_list = isinstance(data, list)
    items = data if is_list else [*getattr(data, "values", list)()]
    wanted = [
        key
        for key in MESSAGE_KEYS
        if all(
            isinstance(i, dict) and isinstance(i.get(key), str) for i in items
        )
    ] * any(len(item) > 1 for item in items if isinstance(item, dict))
    is_ascii = text.isascii() and bool(regex.search(r"\\u(?!00[0-7])", text))
    # The key and the reason of each object and list.
    around = [("", "")]
    for token in JSON.finditer(text):
        raw, (key, reason) = token["string"], around[-1]
        if token.group() in ("{", "["):
            around.append((key, reason))
        elif raw is None:
            around.pop()
        elif token["key"]:
            key, outer = json.loads(raw), around[-2][1]
            if (len(around) == 3 and wanted and key not in wanted) or (
                key[:1] == "@" and key != "@@locale"
            ):
                outer = "metadata"
            around[-1] = key, outer
        else:
            if key in LANGUAGES and CODE.fullmatch(raw, 1, len(raw) - 1):
                reason = LANGUAGE
            write = functools.partial(_write_json, raw, is_ascii)
            yield Value(token.span("string"), json.loads(raw), write, reason)


def _write_json(raw, is_ascii, new):
    new = json.dumps(new, ensure_ascii=is_ascii)
    signs = {
        ord(json.loads(f'"{found}"') if found[1] in "u/" else found[1]): found
        for found in ESCAPED.findall(raw)
    }
    return new.translate(signs)


def _unescape(raw):
    """Reads escapes of Java, Apple, Android. Joins pairs of surrogates."""
    text = ESCAPE.sub(
        lambda m: chr(int(m[1], 16)) if m[1] else SIGNS.get(m[2], m[2]),
        CONTINUED.sub("", raw),
    )
    data = text.encode("utf-16", "surrogatepass")
    return data.decode("utf-16", "surrogatepass")


def read_properties(text: str) -> Iterator[Value]:
    """Yields the values of Java's properties."""
    for found in PROPERTY.finditer(text):
        raw = found["value"] or ""
        message = _unescape(raw)
        # In Java's MessageFormat, an apostrophe is doubled.
        is_format = bool(regex.search(r"\{\d", message)) and (
            "'" not in message.replace("''", "")
        )
        if is_format:
            message = message.replace("''", "'")
        write = functools.partial(
            _write_property, raw, is_format, text.isascii()
        )
        yield Value(found.span("value"), message, write)


def _write_property(raw, is_format, is_ascii, new):
    new = new.replace("'", "''") if is_format else new
    new = _write_json(raw, is_ascii, new)[1:-1].replace('\\"', '"')
    return "\\" * new.startswith(" ") + new


def read_strings(text: str) -> Iterator[Value]:
    """Yields the values of Apple's .strings.

    Raises ValueError, with the line, if the text is of another format.
    """
    read_to = 0
    while read_to < len(text):
        found = APPLE.match(text, read_to)
        if not found:
            at = regex.match(GAP, text, pos=read_to).end()
            line = text.count("\n", 0, at) + 1
            raise ValueError(f'line {line}: expected "key" = "value";')
        raw, read_to = found["value"] or "", found.end()
        message = _unescape(raw[1:-1] * (raw[:1] == '"'))
        write = functools.partial(json.dumps, ensure_ascii=False)
        yield Value(found.span("value"), message, write)


def _contents(text):
    """Maps elements inside of XML's root to the places of their contents."""
    blank = DOCTYPE.sub(lambda m: regex.sub(r"\S", " ", m.group()), text, 1)
    root, events, spans = parse_xml(blank)
    del spans[root]
    ends = [0, *itertools.accumulate(len(event.raw) for event in events)]
    return {e: (ends[i + 1], ends[j]) for e, (i, j) in spans.items() if i < j}


def _xml_value(text, span, reason="", decode=str, encode=str):
    """Makes the value of an element. Elements in it are markup."""
    raw = text[slice(*span)]
    if raw.startswith("<![CDATA[") and raw.find("]]>") == len(raw) - 3:
        return Value(
            *(span, decode(raw[9:-3])),
            lambda new: f"<![CDATA[{encode(new).replace(']]>', ']] >')}]]>",
            reason,
        )
    if "<" not in raw:
        return Value(
            *(span, decode(html.unescape(raw))),
            lambda new: NO_XML.sub("", escape(encode(new))),
            reason,
        )
    change = functools.partial(regex.sub, r"(?:\G|(?<=>))[^<>]++")
    return Value(
        *(span, change(lambda m: decode(m.group()), raw)),
        lambda new: change(lambda m: encode(m.group()), NO_XML.sub("", new)),
        *(reason, True),
    )


def _markup_items(xml):
    """Yields items of XML. The content of Android's `xliff:g` stays."""
    for part, code in separate(xml, LOCKED):
        yield from line_items(part, plain_text(xml)[0])
        if code:
            yield Item(code, "", ALONE)


def _read_android(part):
    return _unescape(
        SPACES.sub(lambda m: m[1] or m[2] or " " * m[0].isspace(), part)
    )


def _write_android(is_whole, new):
    new = "\\" * new.startswith(("@", "?")) + new.translate(ANDROID)
    return f'"{new}"' if is_whole and "" in new.split(" ") else new


def read_android(text: str) -> Iterator[Value]:
    """Yields the strings of Android's resources."""
    for element, (begin, end) in _contents(text).items():
        parent = element.getparent()
        is_item = element.tag == "item" and parent.tag in ARRAYS
        if not (is_item or "string" in (element.tag, element.get("type"))):
            continue
        raw = text[begin:end]
        span = end - len(raw.lstrip()), begin + len(raw.rstrip())
        locks = [e.get("translatable") for e in (element, parent)]
        yield _xml_value(
            *(text, span),
            "locked"
            if "false" in locks
            else "reference" * bool(REFERENCE.fullmatch(raw)),
            _read_android,
            functools.partial(_write_android, "<" not in raw),
        )


def read_resx(text: str) -> Iterator[Value]:
    """Yields the strings of .NET's resources. Comments are left."""
    for element, span in _contents(text).items():
        data = element.getparent()
        if element.tag in ("value", "comment") and data.tag == "data":
            is_other = data.get("type") or data.get("mimetype")
            if not is_other and not data.get("name", "").startswith(">>"):
                reason = "comment" * (element.tag == "comment")
                yield _xml_value(text, span, reason)


def read_stringsdict(text: str) -> Iterator[Value]:
    """Yields the strings of Apple's plural rules."""
    for element, span in _contents(text).items():
        key = element.getprevious()
        if element.tag == "string" and (key is None or key.text not in RULES):
            yield _xml_value(text, span)


def read_yaml(text: str) -> Iterator[Value]:
    """Yields the strings of YAML. A single root key may be the language.

    Raises ValueError, with the line, if the text is not YAML.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    parser = YAML(typ="safe", pure=True)
    parser.max_depth = 128
    try:
        nodes = list(parser.compose_all(text))
    except (YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}: " if mark else ""
        problem = getattr(error, "problem", "") or type(error).__name__
        raise ValueError(f"{line}expected YAML ({problem})") from error
    values: dict[int, Value] = {}  # by their place: aliases have the same
    seen = set[int]()
    for node in nodes:
        children = node.value if isinstance(node.value, list) else []
        if isinstance(node.value, str) and str(node.tag).endswith(":str"):
            values[node.start_mark.index] = _yaml_value(text, node)
        elif id(node) not in seen:
            pairs = [c if isinstance(c, tuple) else (None, c) for c in children]
            nodes += [value for _, value in pairs]
            (key, value), *others = pairs or [(None, None)]
            if not (seen or others) and key and isinstance(value.value, list):
                if CODE.fullmatch(str(key.value)):
                    found = _yaml_value(text, key)._replace(reason=LANGUAGE)
                    values[key.start_mark.index] = found
        seen.add(id(node))
    for place in sorted(values):
        yield values[place]


def _yaml_value(text, node):
    begin, end = node.start_mark.index, node.end_mark.index
    begin = PROPERTIES.match(text, begin, end).end()
    raw = text[begin:end]
    if node.style in ("|", ">"):
        raw = raw.rstrip()

    def write(new: str) -> str:
        if not node.style and PLAIN.fullmatch(new):
            return new
        if node.style == "'" and new.isprintable():
            return "'" + new.replace("'", "''") + "'"
        head, *lines = raw.split("\n")
        body = new.removesuffix("\n" * (head == "|"))
        if head in ("|", "|-") and body == body.strip():
            indent = regex.match(r"\s*", "".join(lines)).group()
            return "\n".join([head, *(indent + x for x in body.split("\n"))])
        return json.dumps(new, ensure_ascii=False)

    return Value((begin, begin + len(raw)), node.value, write)


def read_fluent(text: str) -> Iterator[Value]:
    """Yields the texts of Fluent; each variant is one. Keys are left.

    Raises ValueError, with the line, if the text is not Fluent.
    """
    from fluent.syntax import ast, parse

    quote = functools.partial(
        FLUENT_SIGN.sub, lambda m: m[1] or f'{{"{m.group()}"}}'
    )

    def values(pattern: typing.Any, reason: str) -> Iterator[Value]:
        spans = [[pattern.elements[0].span.start]]
        for element in pattern.elements:
            choice = getattr(element, "expression", None)
            if isinstance(choice, ast.SelectExpression):
                spans[-1].append(element.span.start)
                spans.append([element.span.end])
                for variant in choice.variants:
                    yield from values(variant.value, reason)
        spans[-1].append(pattern.elements[-1].span.end)
        for begin, end in spans:
            yield Value((begin, end), text[begin:end], quote, reason)

    try:
        entries = parse(text).body
    except RecursionError as error:
        raise ValueError("expected Fluent with less nesting") from error
    for entry in entries:
        if isinstance(entry, ast.Junk) and entry.span:
            line = text.count("\n", 0, entry.span.start) + 1
            problem = entry.annotations[0].message
            raise ValueError(f"line {line}: expected a message ({problem})")
        attributes = getattr(entry, "attributes", ())
        for part in (entry, *attributes):
            if isinstance(getattr(part, "value", None), ast.Pattern):
                is_term = isinstance(entry, ast.Term) and part is not entry
                is_key = is_term or part.id.name in KEYS
                found = values(part.value, "attribute" * is_key)
                yield from sorted(found, key=lambda value: value.span)
