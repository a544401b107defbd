"""Sentence pairs from catalogues: gettext (.po, .mo), XLIFF, Qt's .ts.

A reader yields the place of each translation, and its texts by language or the
reason why it is left out: fuzzy (not reviewed), untranslated, obsolete. Each
plural form is paired with the message that it translates, each segment of XLIFF
with its own. XML codes are dropped, as in TMX. XLIFF is read incrementally,
without lxml, which only the reader of documents needs, for the positions of
elements.
"""

import codecs
import pathlib
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from xml.etree.ElementTree import Element, TreeBuilder

from keras_transformer.base.refusals import expect
from keras_transformer.data.files.pairs import open_bytes
from keras_transformer.data.files.tmx import (
    APART,
    CODES,
    LeftOut,
    Units,
    is_apart,
    joined,
    pair_of,
    read_units,
)
from keras_transformer.documents import charsets, po
from keras_transformer.documents.markup import text_of
from keras_transformer.documents.messages import find_messages
from keras_transformer.documents.placeholders import count_placeholders
from keras_transformer.documents.xliff import UNTRANSLATED

Translations = Iterator[tuple[str, Mapping[str, str] | LeftOut]]
MAGIC = {b"\xde\x12\x04\x95": "<", b"\x95\x04\x12\xde": ">"}  # byte orders
CHARSET = re.compile(rb"charset=(?!CHARSET)([\w.:-]+)")
OBSOLETE = re.compile(r"^#~\s*msgid\s", re.M)
# The language in names such as app_de.ts, messages.zh_Hant.xlf, sr@latin.po.
NAMED = re.compile(
    r"(?:^|[._-])([a-z]{2,3}(?:[_-](?:[A-Z][A-Za-z]+|[0-9]{3}))?(?:@\w+)?)$"
)
DEEPEST = 50  # levels of nested elements
MOST_SHARED = 10  # how often a .mo may use its bytes, on average
# Attributes that count for all units inside an element.
INHERITED = frozenset(
    "source-language target-language srcLang trgLang sourcelanguage language"
    " restype translate".split()
)
# Messages of GNOME, KDE and Mozilla whose translation names the translators.
CREDITS = re.compile(
    r"translat(?:or|ion)s?[-_.](?:credits?|names?|e-?mails?)\b"
    r"|(?:credits?|names?|e-?mails?|roles?)[ _](?:of|for)[ _]translators\b"
    r"|^your (?:names|e-?mails|roles)$"
    r"|credits?[-_.]translat|langpack_contributors|em:contributor",
    re.I | re.M,
)
ADDRESS = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}+@[\w-]++(?:\.[\w-]++)++")
# Contexts inside of messages: "_: verb\nOpen" of KDE 3, "menu|Open" of GLib.
CONTEXT = re.compile(r"\A(?:_: [^\n]*+\n|[\w .:/-]++\|(?=[^\s|]))")
SEGMENTS = "//mrk[@mtype='seg']"
# Values of state-qualifier.
UNREVIEWED = re.compile("(?:mt|tm)-suggestion|leveraged-mt|fuzzy|rejected")


def read_po(path: pathlib.Path, languages: Sequence[str]) -> Translations:
    """Yields the translations in a gettext catalogue.

    Raises:
        ValueError: The file is not a valid catalogue; the message has the line.
        OSError: The file cannot be read.
    """
    with open_bytes(path) as file:
        data = file.read()

    def find_entries():
        text, _ = charsets.decode(data, charsets.PO_DECLARATION)
        text = text.removeprefix("\ufeff")
        line, read = 1, 0
        for begin, fields, messages in po.entries(text):
            at = fields[0].start()
            line, read = line + text.count("\n", read, at), at
            is_fuzzy = po.is_fuzzy(text[begin:at])
            yield f"{path}, line {line}", messages, "fuzzy" * is_fuzzy
        for _ in OBSOLETE.finditer(text):
            yield "", None, "obsolete"

    yield from _read_messages(path, find_entries(), languages)


def read_mo(path: pathlib.Path, languages: Sequence[str]) -> Translations:
    """Yields the translations in a compiled gettext catalogue.

    The standard library's reader drops the plurals of source messages.

    Raises:
        ValueError, OSError: As in `read_po`, with the number of the message.
    """
    with open_bytes(path) as file:
        data = file.read()

    def find_entries():
        order = MAGIC.get(data[:4])
        expect(order, "a catalogue of gettext (.mo)")
        charset, number, room = "utf-8", 0, MOST_SHARED * len(data)
        try:
            version, size, *tables = struct.unpack_from(f"{order}4I", data, 4)
            expect(version >> 16 < 2, "version 0 or 1", version >> 16)
            for number in range(size):
                source, target = (
                    _string(data, order, table + 8 * number) for table in tables
                )
                room -= len(source) + len(target)
                if room < 0:
                    raise struct.error("it shares too many texts with others")
                if not source:
                    declared = CHARSET.search(target)
                    charset = declared[1].decode() if declared else charset
                    charset = codecs.lookup(charset).name
                context, _, source = source.rpartition(b"\4")
                names = ["msgid", "msgid_plural"]
                texts = dict(zip(names, source.split(b"\0"), strict=False))
                if "msgid_plural" in texts:
                    for form, text in enumerate(target.split(b"\0")):
                        texts[f"msgstr[{form}]"] = text
                else:
                    texts["msgstr"] = target
                if context:
                    texts["msgctxt"] = context
                messages = {n: t.decode(charset) for n, t in texts.items()}
                yield f"{path}, message {number + 1}", messages, ""
            if version & 0xFFFF:
                # Messages with <inttypes.h>'s PRId64 have their own tables.
                size, table = struct.unpack_from(f"{order}2I", data, 36)
                if table + 4 * size > len(data):
                    raise struct.error(f"{size:,} others are not in the file")
                for _ in range(size):
                    yield "", None, "system-dependent"
        except (struct.error, UnicodeError, LookupError) as error:
            raise ValueError(f"message {number + 1}: {error}") from error

    yield from _read_messages(path, find_entries(), languages)


def _string(data, order, at):
    """Reads a string of a .mo file; its size and offset are stored at `at`."""
    size, begin = struct.unpack_from(f"{order}2I", data, at)
    if begin + size > len(data):
        raise struct.error("its text is outside of the file")
    return data[begin : begin + size]


def _read_messages(path, found, languages):
    """Yields the translations in `found`: places, texts by keyword, reasons."""
    header, singular = {}, (0, True)  # gettext's default rule
    try:
        for place, messages, reason in found:
            if messages is None:
                yield place, LeftOut(reason)
                continue
            if po.is_header(messages):
                text = messages.get("msgstr", "")
                header = header or dict(po.HEADER.findall(text))
                if po.PLURAL.search(header.get("Plural-Forms", "")):
                    singular = po.singular_form(text)
                continue
            is_plural = "msgid_plural" in messages
            codes = header.get("X-Source-Language"), header.get("Language")
            for keyword, text in messages.items():
                if keyword.startswith("msgstr"):
                    source = po.message_of(keyword, messages, singular)
                    args = path, (source, text), codes, languages, reason
                    context = messages.get("msgctxt", "")
                    yield place, _judge(*args, is_plural, context)
    except ValueError as error:
        at = "," if re.match("line|message", str(error)) else ":"
        raise ValueError(f"{path}{at} {error}") from error


def _judge(path, pair, codes, languages, reason, is_plural=False, context=""):
    """Returns a pair's texts by language, or why it is left out."""
    source, target = pair
    if CREDITS.search(f"{context}\n{source}") or (
        "@" in target
        and {*ADDRESS.findall(target)}.difference(ADDRESS.findall(source))
    ):
        reason = reason or "names or addresses of translators"
    elif any(find_messages(source)):
        reason = reason or "ICU messages"
    target = target.partition("|/|")[0]  # a script of KDE follows
    if "|" not in target and (inside := CONTEXT.match(source)):
        source = source[inside.end() :]
    source, target = text_of(source), text_of(target)
    source_code, target_code = codes
    if not source.strip():
        reason = "without a source"
    elif not target.strip():
        reason = "untranslated"
    elif is_plural and count_placeholders(source) - count_placeholders(target):
        reason = reason or "plural forms without a placeholder"
    if reason:
        return LeftOut(reason)
    if source_code in (None, "", "C"):
        source_code = "en"
    texts = {target_code or _code_of(path): target, source_code: source}
    return pair_of(texts, languages)


def _code_of(path):
    """Finds the language in the name of a file, or of its folder."""
    if path.parent.name.startswith("LC_"):  # gettext's folders
        return path.parent.parent.name
    name = NAMED.search(path.name.removesuffix(".gz").rpartition(".")[0])
    return name[1] if name else "unknown"


class _Elements(Units):
    """Finds elements by name, with what they inherit from those around them."""

    def __init__(self, *names):
        super().__init__("}")
        self._names = names
        self._around = [{}]
        self._tree = None
        self._depth = self._line = 0  # depth inside of the element

    def _start(self, name, attributes):
        name = name.rpartition("}")[2]
        if len(self._around) + self._depth > DEEPEST:
            raise ValueError(f"found more than {DEEPEST} elements in another")
        if self._tree is None and name in self._names:
            self._tree = TreeBuilder()
            self._line = self.parser.CurrentLineNumber
        if self._tree is None:
            own = {n: attributes[n] for n in INHERITED & attributes.keys()}
            self._around.append({**self._around[-1], **own})
            return
        self._depth += 1
        self._tree.start(name, attributes)

    def _end(self, name):
        if self._tree is None:
            self._around.pop()
            return
        self._tree.end(name.rpartition("}")[2])
        self._depth -= 1
        if not self._depth:
            found = self._around[-1], self._tree.close()
            self.found.append((self._line, found))
            self._tree = None

    def _add(self, text):
        if self._tree is not None:
            self._tree.data(text)


def read_xliff(path: pathlib.Path, languages: Sequence[str]) -> Translations:
    """Yields the translations in an XLIFF file: units of 1.2, segments of 2.

    Raises:
        ValueError, OSError: As in `read_po`.
    """
    units = _Elements("trans-unit", "segment")
    for place, (around, unit) in read_units(path, units, "XLIFF"):
        reason = _unread(unit, around)
        codes = (
            around.get("source-language") or around.get("srcLang") or "unknown",
            around.get("target-language") or around.get("trgLang"),
        )
        is_plural = around.get("restype") == "x-gettext-plurals"  # the group
        context = f"{unit.get('id')}\n{unit.get('resname')}"
        for pair in _segments(unit):
            texts = tuple(map(_text, pair))
            args = path, texts, codes, languages, reason, is_plural, context
            yield place, _judge(*args)


def _unread(unit, around):
    """Returns why a unit of XLIFF is left out, or ""."""
    holder = unit.find("target") if unit.tag == "trans-unit" else unit
    states = {} if holder is None else holder.attrib
    state = states.get("state", "")
    if {**around, **unit.attrib}.get("translate") == "no":
        return "locked"
    if state in UNTRANSLATED:
        return "untranslated"
    is_reviewed = state in ("final", "signed-off") or not (
        UNREVIEWED.match(states.get("state-qualifier", ""))
        or state.startswith("needs-")
        or (unit.get("approved") == "no" and not state)
    )
    return "" if is_reviewed else "fuzzy"


def _segments(unit):
    """Yields pairs of elements: of each segment, or else of the whole unit."""
    source, target = unit.find("source"), unit.find("target")
    read = "source" if unit.find("seg-source") is None else "seg-source"
    sources, targets = (
        {mark.get("mid"): mark for mark in unit.iterfind(f"{name}{SEGMENTS}")}
        for name in (read, "target")
    )
    if targets and targets.keys() <= sources.keys():
        for mid, segment in sources.items():
            yield segment, targets.get(mid)
    elif all(map(_text, targets.values())):
        yield source, target
    else:  # partly translated
        yield source, None


def read_ts(path: pathlib.Path, languages: Sequence[str]) -> Translations:
    """Yields the translations in a Qt Linguist file.

    If a translation has length variants, the first is used.

    Raises:
        ValueError, OSError: As in `read_po`.
    """
    reasons = dict(unfinished="fuzzy", obsolete="obsolete", vanished="obsolete")
    units = _Elements("message")
    for place, (around, message) in read_units(path, units, "Qt's TS"):
        source, context = map(
            _text, (message.find("source"), message.find("comment"))
        )
        codes = around.get("sourcelanguage"), around.get("language")
        for translation in message.findall("translation") or [Element("")]:
            reason = reasons.get(translation.get("type"), "")
            forms = translation.findall("numerusform")
            for form in forms or [translation]:
                shortest = form.find("lengthvariant")
                text = _text(form if shortest is None else shortest)
                args = path, (source, text), codes, languages, reason
                yield place, _judge(*args, bool(forms), context)


def _text(element):
    """Returns the text of an element, "" for None."""
    return "" if element is None else joined(_parts(element))


def _parts(element):
    """Yields the texts in an element, and None for a code between two words."""
    if element.text:
        yield element.text
    for child in element:
        if child.tag in (*APART, *CODES):
            if is_apart(child.tag, "".join(child.itertext())):
                yield None
        else:
            yield from _parts(child)
        if child.tail:
            yield child.tail
