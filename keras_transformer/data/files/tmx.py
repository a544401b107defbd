"""Translation memories in TMX, the exchange format of translation tools.

A unit (`<tu>`) has a text (`<seg>`) for each of its languages. Formatting in a
text (`<bpt>`, `<ph>` and the like) is dropped; `is_apart` says where a space
takes its place. The file is read incrementally.
No DTD is loaded, and entities other than XML's own are refused.
"""

import codecs
import pathlib
import re
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from xml.parsers import expat

from keras_transformer.data.files.pairs import open_bytes

CHUNK = 2**16  # bytes read at once
NESTING = ["tu", "tuv", "seg"]  # each is allowed only inside the one before
CODES = ("bpt", "ept", "it", "ph", "ut")  # elements without text
# Elements, also of XLIFF and Qt, that separate two words, unless they are
# formatting. The halves of a range, `bpt` and `ept`, do not.
APART = ("it", "ph", "ut", "x", "byte")
FORMATTING = re.compile(
    r"</?(?:[biusa]|em|strong|su[bp]|span|font|small|big|tt|code)\b|\\[a-z]",
    re.I,
)
# Tabs and the ends of lines, paragraphs and cells, in RTF and XML.
BREAK = re.compile(
    r"\\(?:tab|line|par|page|cell|row|sect)(?![a-z])"
    r"|</?(?:\w+:)?(?:br|tab|line-break|p|div|li|[dou]l|d[dt]|t[dhr]|h[1-6r]"
    r"|table|tbody|thead|html|head|body|section|article|blockquote|pre|center)\b",
    re.I,
)
SPACELESS = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u9fff]")
ENCODING = re.compile(rb"<\?xml[^>]*?\sencoding\s*=\s*[\"']([\w.:-]+)")


class LeftOut(typing.NamedTuple):
    """The reason why a unit is not read as a pair, and the unit's languages."""

    reason: str
    languages: Sequence[str] = ()


def read_tmx(
    path: pathlib.Path, languages: Sequence[str]
) -> Iterator[tuple[str, Mapping[str, str] | LeftOut]]:
    """Yields the place of each unit, and its first text in each language.

    A variant of a language, such as EN-US, is read as `en` if there is no `en`.

    Raises ValueError, with the line, if the file is not valid TMX. Raises
    OSError if it cannot be read.
    """
    for place, texts in read_units(path, _Units(), "TMX"):
        yield place, pair_of(texts, languages)


def read_units(path: pathlib.Path, units: "Units", form: str) -> Iterator:
    """Yields the place and the content of each unit that `units` finds.

    Raises ValueError and OSError as `read_tmx` does.
    """
    parser = units.parser
    with open_bytes(path) as file:
        chunk, decode = b"", None
        while chunk or decode is None:
            chunk = file.read(CHUNK)
            try:
                decode = decode or _decoder(chunk)
                parser.Parse(decode(chunk, not chunk), not chunk)
            except (expat.ExpatError, ValueError, LookupError) as error:
                reason = str(error).partition(": line ")[0]
                raise ValueError(
                    f"{path}, line {parser.CurrentLineNumber}: expected {form}"
                    f" ({reason})"
                ) from error
            for line, unit in units.found:
                yield f"{path}, line {line}", unit
            units.found = []


def pair_of(
    texts: Mapping[str, str], languages: Sequence[str]
) -> dict[str, str] | LeftOut:
    """Returns the texts in two languages, or `LeftOut` if one is missing."""
    found = {name: _find(texts, name) for name in languages}
    if None in found.values():
        return LeftOut("without one of the languages", tuple(texts))
    return found


def _decoder(start):
    """Returns a decoder for an XML text, because expat knows few charsets."""
    declared = ENCODING.match(start.removeprefix(codecs.BOM_UTF8))
    if not declared or declared[1].lower() in (b"utf-8", b"utf-16"):
        return lambda chunk, final: chunk
    name = codecs.lookup(declared[1].decode()).name
    name = {"utf-8": "utf-8-sig"}.get(name, name)
    return codecs.getincrementaldecoder(name)().decode


def _find(texts, language):
    """Finds the text in a language, or else in its first variant."""
    wanted, found = f"{language}-".lower().replace("_", "-"), None
    for code, text in texts.items():
        code = re.sub("[_@]", "-", f"{code}-".lower())
        if code == wanted:
            return text
        if code.startswith(wanted) and found is None:
            found = text
    return found


class Units:
    """A collector of units. Its parser calls the methods as it reads."""

    def __init__(self, namespace_separator: str | None = None):
        self.found: list = []  # the line and the content of each unit
        self.parser = expat.ParserCreate(None, namespace_separator)
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._add
        self.parser.EntityDeclHandler = self._refuse
        self.parser.SkippedEntityHandler = self._refuse

    def _refuse(self, name, *_):
        raise ValueError(f"found the entity &{name};")

    def _start(self, name, attributes):
        raise NotImplementedError

    def _end(self, name):
        raise NotImplementedError

    def _add(self, text):
        raise NotImplementedError


class _Units(Units):
    """A collector of TMX units: their texts by language."""

    def __init__(self):
        super().__init__()
        self._texts, self._line, self._language = {}, 0, ""
        self._text = None  # parts of the segment that is open
        self._code = []  # the content of the last element of `CODES`
        self._codes = 0  # number of open elements of `CODES`
        self._open = []  # open elements of `NESTING`

    def _start(self, name, attributes):
        if name in NESTING:
            if self._codes or self._open != NESTING[: NESTING.index(name)]:
                raise ValueError(f"found <{name}> outside of its place")
            self._open.append(name)
        if name == "tu":
            self._texts, self._line = {}, self.parser.CurrentLineNumber
        elif name == "tuv":
            # Until version 1.3, the attribute has no prefix.
            language = attributes.get("xml:lang") or attributes.get("lang")
            if not language:
                raise ValueError("found <tuv> without xml:lang")
            self._language = language
        elif name == "seg":
            self._text = []
        self._codes += name in CODES
        if name in CODES:
            self._code = []

    def _end(self, name):
        if name == "tu":
            self.found.append((self._line, self._texts))
        elif name == "seg":
            self._texts.setdefault(self._language, joined(self._text))
            self._text = None
        elif name in CODES and self._text is not None:
            if is_apart(name, "".join(self._code)):
                self._text.append(None)
        if name in NESTING:
            self._open.pop()
        self._codes -= name in CODES

    def _add(self, text):
        if self._codes:
            self._code.append(text)
        elif self._text is not None:
            self._text.append(text)


def is_apart(name: str, content: str) -> bool:
    """Returns whether an element with a code separates two words.

    >>> is_apart("it", r"{\\tab}"), is_apart("it", r"{\\b"), is_apart("bpt", "")
    (True, False, False)
    """
    if BREAK.search(content):
        return True
    return name in APART and not FORMATTING.search(content)


def joined(parts: Iterable[str | None]) -> str:
    """Joins parts. A code (None) becomes a space between two words.

    Between letters of a script without spaces, the code is dropped.
    """
    texts, last, has_code = [], "", False
    for part in parts:
        if not part:
            has_code = True
            continue
        is_word = last in (*".,:;!?)",) and part[0].isalpha()
        if has_code and (is_word or (last + part[0]).isalnum() and last):
            texts.append(" " * (not SPACELESS.search(last + part[0])))
        texts.append(part)
        last, has_code = part[-1], False
    return "".join(texts)
