"""Message catalogues of gettext (.po).

polib and babel do not say where a string is, write the file in their own way,
and read `\\033` as four characters. So gettext's few tokens are read here;
babel knows the plural forms of languages.
"""

import gettext
import typing
from collections.abc import Iterator

import regex

from keras_transformer.documents.markup import plain_text
from keras_transformer.documents.messages import find_messages
from keras_transformer.documents.pieces import Block, Left
from keras_transformer.documents.placeholders import count_placeholders
from keras_transformer.documents.sentences import Split
from keras_transformer.documents.text import line_items
from keras_transformer.documents.text import read as read_text

TOKEN = regex.compile(
    r"(?<space>\s++)|(?<comment>\#[^\n]*+)"
    r"|(?<keyword>domain|msgctxt|msgid_plural|msgid|msgstr"
    r"(?:[ \t]*+\[[ \t]*+\d++[ \t]*+\])?+)"
    r'|"(?<string>(?:[^"\\\n]++|\\[^\n])*+)"'
)
NUMBER = r"\\([0-7]{1,3})|\\x([0-9A-Fa-f]+)"
ESCAPE = regex.compile(
    r"\\(?<sign>[abfnrtv\\\"'?])"
    rf"|(?:{NUMBER})+"
)
SIGNS = dict(zip("abfnrtv", b"\a\b\f\n\r\t\v", strict=True))
UNSAFE = regex.compile(r'[\0-\x1f\x7f"\\]')
WRITTEN = {value: "\\" + sign for sign, value in SIGNS.items()}
HEADER = regex.compile(r"^(Language|Plural-Forms):\s*+(.*+)$", regex.M)
PLURAL = regex.compile(r"nplurals\s*=\s*(\d+)\s*;\s*plural\s*=([^;]+)")


class _Field(typing.NamedTuple):
    """A keyword of an entry and its strings.

    `begin` and `end` are of the strings in the catalogue.
    """

    keyword: str
    at: int
    text: str
    begin: int
    end: int


def read(text: str, split: Split, replace: bool = False) -> Iterator:
    """The pieces of a message catalogue.

    A translation is marked as fuzzy: nobody has read it yet. A plural form that
    is only for 1 translates the singular, all others the plural.

    Args:
        text, split: As of every reader.
        replace: Whether to translate messages that have a translation.

    Raises:
        ValueError: The text is no catalogue; the message has the line.
    """
    read_to, singular = 0, None
    for begin, fields in _entries(text):
        begin = max(text.rfind("\n", 0, begin) + 1, read_to)
        messages = {f.keyword: f.text for f in fields}
        if "msgid" not in messages:
            line = text.count("\n", 0, fields[0].at) + 1
            raise ValueError(f"line {line}: expected msgid")
        if not messages.get("msgid") and "msgctxt" not in messages:
            if singular is None:
                singular = _singular_form(messages.get("msgstr", ""))
            continue
        pieces, position = [], fields[0].at
        for field in fields:
            if not field.keyword.startswith("msgstr"):
                continue
            found = _translation(
                field, messages, singular or (0, True), split, replace
            )
            raw = text[field.begin : field.end]
            pieces.append(text[position : field.begin])
            position = field.end
            if isinstance(found, Left):
                pieces.append(Left(raw, found.reason))
            else:
                ending = "\r\n" if "\r\n" in text[begin:position] else "\n"
                pieces.append(
                    Block(found, lambda t, e=ending: _write_string(t, e), raw)
                )
        yield text[read_to:begin]
        comments = text[begin : fields[0].at]
        is_written = any(isinstance(piece, Block) for piece in pieces)
        yield _mark_fuzzy(comments, text) if is_written else comments
        yield from pieces
        read_to = position
    yield text[read_to:]


def _entries(text):
    """Yields where the comments of each entry begin, and its fields."""
    begin, fields, comment = 0, [], None
    keyword = None  # and where it is, its strings, and where these are
    at, strings, first, last = 0, [], 0, 0
    read = 0

    def refuse(problem):
        line = text.count("\n", 0, read) + 1
        raise ValueError(f"line {line}: {problem}")

    def end_field():
        if keyword and not strings:
            refuse(f"expected a string after {keyword}")
        if keyword:
            value = _unescape("".join(strings))
            fields.append(_Field(keyword, at, value, first, last))

    while read < len(text):
        token = TOKEN.match(text, read)
        if not token:
            refuse("expected a keyword or a string of a catalogue")
        if token["comment"] is not None and comment is None:
            comment = read
        if token["string"] is not None:
            if not keyword:
                refuse("expected a keyword before the string")
            first = first if strings else read
            strings.append(token["string"])
            last, comment = token.end(), None
        if token["keyword"]:
            end_field()
            keyword = regex.sub(r"\s", "", token["keyword"])
            has_translation = fields and fields[-1].keyword.startswith("msgstr")
            if has_translation and not keyword.startswith("msgstr"):
                yield begin, fields
                begin = read if comment is None else comment
                fields = []
            elif not fields:
                begin = read if comment is None else comment
            at, strings, comment = read, [], None
        read = token.end()
    end_field()
    if fields:
        yield begin, fields


def _singular_form(header):
    """The plural form of 1, and whether no other number has it.

    It is -1 if 2 has it, too.
    """
    from babel.core import Locale, UnknownLocaleError  # an extra
    from babel.messages.plurals import get_plural

    values = dict(HEADER.findall(header))
    rule = PLURAL.search(values.get("Plural-Forms", ""))
    if rule:
        expression = rule[2].strip()
    else:
        try:
            locale = Locale.parse(values.get("Language") or "en", sep="_")
        except (ValueError, UnknownLocaleError):
            locale = Locale("en")
        expression = get_plural(locale).plural_expr
    try:
        form_of = gettext.c2py(expression)
        first, *others = (form_of(n) for n in (1, 0, *range(2, 200)))
    except (ValueError, ZeroDivisionError) as error:
        raise ValueError(f"Plural-Forms of the header: {error}") from error
    return -1 if first == others[1] else first, first not in others


def _translation(field, messages, singular, split, replace):
    """The pieces that translate a field; or what is `Left`."""
    if field.text and not replace:
        return Left("", "already translated")
    message, plural = messages["msgid"], messages.get("msgid_plural")
    if plural is not None:
        form, is_only = singular
        has_all = count_placeholders(plural) <= count_placeholders(message)
        if field.keyword != f"msgstr[{form}]" or not (is_only or has_all):
            message = plural
    make_items, escape = plain_text(message, accelerators=True)
    if any(find_messages(message)):
        found = split(line_items(message, make_items), escape)
    else:
        found = list(read_text(message, split, make_items, escape))
    if all(isinstance(piece, str) for piece in found):
        return Left("", "without words")
    return found


def _mark_fuzzy(comments, text):
    """The comments of an entry, with the flag `fuzzy`."""
    obsolete = max(comments.rfind("#~"), 0)  # which has flags of its own
    flags = regex.compile(r"^[ \t]*#,[^\r\n]*", regex.M).search(
        comments, obsolete
    )
    if flags and regex.search(r"\bfuzzy\b", flags.group()):
        return comments
    if flags:
        return f"{comments[: flags.end()]}, fuzzy{comments[flags.end() :]}"
    ending = "\r\n" if "\r\n" in text else "\n"
    indent = regex.search(r"[ \t]*\Z", comments).group()
    return f"{comments}#, fuzzy{ending}{indent}"


def _unescape(string):
    """The text that a string of C stands for."""

    def replace(match):
        if match["sign"]:
            return chr(SIGNS.get(match["sign"], ord(match["sign"])))
        data = bytes(
            int(octal or hexadecimal, 8 if octal else 16) & 0xFF
            for octal, hexadecimal in regex.findall(NUMBER, match.group())
        )
        try:
            return data.decode()
        except UnicodeDecodeError:
            return data.decode("latin-1")

    return ESCAPE.sub(replace, string)


def _write_string(text, ending):
    """A text as strings of a catalogue: one for each line."""
    lines = [
        '"' + UNSAFE.sub(_write_sign, line) + '"'
        for line in regex.findall(r"[^\n]*\n|[^\n]+", text)
    ]
    if len(lines) > 1:
        lines.insert(0, '""')
    return ending.join(lines)


def _write_sign(match):
    sign = match.group()
    return WRITTEN.get(ord(sign)) or (
        "\\" + sign if sign in '"\\' else f"\\{ord(sign):03o}"
    )
