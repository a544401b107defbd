"""Message catalogues of gettext (.po).

polib and babel do not give the position of a string, reformat the file, and
read `\\033` as four characters. So this module reads gettext's few tokens
itself. babel provides the plural forms of languages.
"""

import codecs
import functools
import gettext
from collections.abc import Iterator, Mapping

import regex

from keras_transformer.documents.items import ACCELERATOR, Split
from keras_transformer.documents.markup import plain_text
from keras_transformer.documents.messages import find_messages
from keras_transformer.documents.pieces import (
    Block,
    Checked,
    Label,
    Left,
    Piece,
    Written,
    declared,
    write,
)
from keras_transformer.documents.placeholders import (
    DECLARED,
    LISP,
    MESSAGES,
    C,
    count_placeholders,
    fits_format,
)
from keras_transformer.documents.placement import accelerator_sign
from keras_transformer.documents.text import line_items
from keras_transformer.documents.text import read as read_text

# Comments, and a keyword with its strings.
GAP = regex.compile(r"(?:\s++|\#[^\n]*+)*+")
STRING = r'"(?:[^"\\\n]++|\\[^\n])*+"'
FIELD = regex.compile(
    r"(?<keyword>domain|msgctxt|msgid_plural|msgid|msgstr(?:\s*\[\s*\d+\s*\])?)"
    rf"{GAP.pattern}(?<strings>(?:{GAP.pattern}{STRING})++)"
)
# C's escapes of bytes and of characters.
ESCAPE = regex.compile(
    r"(?:\\(?:[0-3]?[0-7]{1,2}|x[0-9A-Fa-f]{2}))+|\\[abfnrtv\\\"']"
)
WRITTEN = {
    **{number: f"\\{number:03o}" for number in (*range(32), 127)},
    **{ord(c): repr(c)[1:-1] for c in "\n\r\t\\"},
    **{number: "\\" + sign for number, sign in enumerate("ab", 7)},
    **{number: "\\" + sign for number, sign in enumerate("vf", 11)},
    ord('"'): '\\"',
}
FLAGS = regex.compile(r"^[ \t]*#,[^\r\n]*", regex.M)
FORMAT = regex.compile(
    r"(?<![\w+-])(?!no-|impossible-)(?:possible-)?([a-z0-9+-]{1,40}?)-format\b"
)
HEADER = regex.compile(
    r"^(Language|X-Source-Language|Plural-Forms):[ \t]*+(.*+)$", regex.M
)
# In a string of the header.
LANGUAGE = regex.compile(r'(?<=\\n|")Language:[ \t]*+(?<code>[^\\"\r\n]*+)')
PLURAL = regex.compile(r"nplurals\s*=\s*\d+\s*;\s*plural\s*=([^;]+)")


def read(
    text: str, split: Split, replace: bool = False, target: str = ""
) -> Iterator:
    """Yields a catalogue's pieces. New translations are marked as fuzzy.

    If `target` is given, the header of a translation has it as the language.

    The plural form of 1 translates the singular if it is only for 1, or if the
    singular has all placeholders of the plural. All others translate the
    plural. Raises ValueError, with the line, if `text` is not a catalogue.
    """
    singular, end = None, 0
    ending = "\r\n" if "\r\n" in text else "\n"
    for begin, fields, messages in entries(text):
        end = fields[-1].end()
        comments = text[begin : fields[0].start()]
        if is_header(messages):
            singular = singular or singular_form(messages.get("msgstr", ""))
            header, strings = text[begin:end], fields[-1].start("strings")
            args = strings - begin, target.replace("-", "_"), ending
            yield Label(header, _declare(header, *args) if target else header)
            continue
        pieces: list = []
        read_to = fields[0].start()
        kind = _declared(comments)
        split_as_declared = functools.partial(split, placeholders=kind)
        for field, (keyword, value) in zip(
            fields, messages.items(), strict=True
        ):
            if not keyword.startswith("msgstr"):
                continue
            strings = field["strings"].lstrip()
            pieces.append(text[read_to : field.end() - len(strings)])
            read_to = field.end()
            found: list | str = "already translated"
            message = message_of(keyword, messages, singular or (0, True))
            if not value or replace:
                found = translation_of(message, split_as_declared, kind)
            if isinstance(found, str):
                pieces.append(Left(strings, found))
                continue
            is_fit = functools.partial(fits, message, kind=kind)
            finish = functools.partial(_write_strings, ending=ending)
            pieces.append(Checked(found, finish, strings, is_fit, message))
        yield _Entry(
            [comments, *pieces], functools.partial(_mark_fuzzy, ending=ending)
        )
    yield text[end:]


class _Entry(Block):
    """An entry of comments and fields. A new translation makes it fuzzy."""

    def write(self, written: Written) -> str:
        before = [getattr(p, "source", p) for p in self.pieces[1:]]
        comments, *texts = write(self.pieces, written)
        comments = comments if texts == before else self._finish(comments)
        return "".join([comments, *texts])


def fits(message: str, translation: str, kind: regex.Pattern) -> bool:
    """Returns whether a translation keeps placeholders and accelerator key."""
    if any(find_messages(message)):  # their branches are translated
        return bool(translation.strip())
    items = plain_text(message, accelerators=kind is not LISP)[0](message)
    marks = [
        accelerator_sign(str(item.raw), item.name)
        for item in items
        if item.kind == ACCELERATOR
    ]
    return fits_format(message, translation, kind) and all(
        translation.count(mark) == message.count(mark) for mark in marks
    )


def entries(text: str) -> Iterator[tuple[int, list, dict[str, str]]]:
    """Yields the start of each entry, its fields, and their texts by keyword.

    An entry begins with its comments. Raises ValueError, with the line, if
    `text` is not a catalogue.
    """
    for begin, fields in _groups(text):
        messages = {
            regex.sub(r"\s", "", field["keyword"]): _text_of(field["strings"])
            for field in fields
        }
        if "msgid" not in messages or len(messages) < len(fields):
            _refuse(text, begin, "expected a message with msgid")
        yield begin, fields, messages


def is_header(messages: Mapping[str, str]) -> bool:
    """Returns whether the texts of an entry are the catalogue's header."""
    return not (messages["msgid"] or "msgctxt" in messages)


def _groups(text):
    """Yields the start of each entry, with its comments, and its fields."""
    begin, fields, position = 0, [], 0
    while (at := GAP.match(text, position).end()) < len(text):
        field = FIELD.match(text, at)
        if not field:
            _refuse(text, at, "expected a keyword or a string of a catalogue")
        is_translation = field["keyword"].startswith("msgstr")
        if fields and not is_translation:
            if fields[-1]["keyword"].startswith("msgstr"):
                yield begin, fields
                begin, fields = position, []
        fields.append(field)
        position = field.end()
    if fields:
        yield begin, fields


def _refuse(text, at, problem):
    raise ValueError(f"line {text.count(chr(10), 0, at) + 1}: {problem}")


def singular_form(header: str) -> tuple[int, bool]:
    """Returns the index of the plural form of 1, and whether only 1 has it.

    The index is -1 if 2 has the same form. Raises ValueError if the header's
    rule is invalid.
    """
    values = dict(HEADER.findall(header))
    rule = PLURAL.search(values.get("Plural-Forms", ""))
    try:
        form_of = gettext.c2py(rule[1] if rule else _plural_rule(values))
        first, *others = (
            form_of(number) for number in (1, 2, 0, *range(3, 200))
        )
    except (ValueError, ZeroDivisionError) as error:
        raise ValueError(f"Plural-Forms of the header: {error}") from error
    return -1 if first == others[0] else first, first not in others


def _plural_rule(values):
    """Returns the plural rule of a header's language, or the English rule."""
    from babel.core import Locale, UnknownLocaleError  # an extra
    from babel.messages.plurals import get_plural

    try:
        locale = Locale.parse(values.get("Language") or "en")
    except (ValueError, UnknownLocaleError):
        locale = Locale("en")
    return get_plural(locale)[1]


def message_of(
    keyword: str, messages: Mapping[str, str], singular: tuple[int, bool]
) -> str:
    """Returns the message that a form translates: singular or plural.

    `keyword` is the form's. `singular` is from `singular_form`.
    """
    form, is_only = singular
    message, plural = messages["msgid"], messages.get("msgid_plural")
    if plural is None:
        return message
    has_all = count_placeholders(plural) <= count_placeholders(message)
    is_singular = keyword == f"msgstr[{form}]" and (is_only or has_all)
    return message if is_singular else plural


def translation_of(
    message: str, split: Split, kind: regex.Pattern
) -> list[Piece] | str:
    """Returns the pieces of a message, or why it is not translated."""
    make_items, escape = plain_text(message, accelerators=kind is not LISP)
    if any(find_messages(message)):
        found = split(line_items(message, make_items), escape)
    else:
        found = list(read_text(message, split, make_items, escape))
    is_left = all(isinstance(piece, str) for piece in found)
    return "without words" if is_left else found


def _declared(comments):
    """Returns the kind of placeholders that an entry's flags declare."""
    flags = _flags(comments)
    found = FORMAT.search(flags[0].group()) if flags else None
    return DECLARED.get(found[1], C) if found else MESSAGES


def _flags(comments):
    """Finds lines with flags, except those of a preceding obsolete entry."""
    return list(FLAGS.finditer(comments, max(comments.rfind("#~"), 0)))


def is_fuzzy(comments: str) -> bool:
    """Returns whether the comments of an entry have the flag `fuzzy`."""
    return any(
        regex.search(r"\bfuzzy\b", flags.group()) for flags in _flags(comments)
    )


def _declare(header, strings, target, ending):
    """Writes the language into a header, whose texts begin at `strings`."""
    if found := LANGUAGE.search(header, strings):
        new = declared(found["code"].strip(), target)
        return (
            f"{header[: found.start()]}Language: {new}{header[found.end() :]}"
        )
    begin = GAP.match(header, strings).end()
    new = f'"Language: {target}\\n"'
    if header.startswith('""', begin):
        begin, new = begin + 2, ending + new
    else:
        new += ending
    return header[:begin] + new + header[begin:]


def _mark_fuzzy(comments, ending):
    flags = _flags(comments)
    if not flags:
        indent = regex.search(r"(?<![ \t])[ \t]*+\Z", comments).group()
        return f"{comments}#, fuzzy{ending}{indent}"
    if is_fuzzy(comments):
        return comments
    end = flags[0].end()
    return f"{comments[:end]}, fuzzy{comments[end:]}"


def _text_of(strings):
    parts = (match.group()[1:-1] for match in regex.finditer(STRING, strings))
    return ESCAPE.sub(_unescape, "".join(parts))


def _unescape(match):
    data, _ = codecs.escape_decode(match.group().encode())
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _write_strings(text, ending):
    """Writes a text as strings of a catalogue, one for each line."""
    lines = regex.findall(r"[^\n]*\n|[^\n]+", text)
    strings = [f'"{line.translate(WRITTEN)}"' for line in lines]
    return ending.join(strings if len(strings) == 1 else ['""', *strings])
