"""EPUB, the format of books: XHTML in a zip archive."""

import functools
import posixpath
import urllib.parse
from collections.abc import Callable, Iterator

import regex

from keras_transformer.base.refusals import expect
from keras_transformer.data.languages import base_language
from keras_transformer.documents import html
from keras_transformer.documents.charsets import XML_DECLARATION, decode
from keras_transformer.documents.items import Split
from keras_transformer.documents.office import read_archive, read_parts
from keras_transformer.documents.xml import parse_xml

CONTAINER = "META-INF/container.xml"
RIGHTS = "META-INF/encryption.xml"
# Fonts may be encrypted without a key: the standard's and Adobe's algorithm.
FONTS = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")
PAGES = ("application/xhtml+xml", "text/html")
CONTENTS = "application/x-dtbncx+xml"
# Where a page, or the package, says its language.
LANGUAGE = regex.compile(
    r"(?:<(?:html|package)\b|\G(?!\A))[^<>]*?\s(?:xml:)?lang\s*+=\s*+[\"']\K[\w-]++"
    r"|<dc:language\b[^<>]*+>\s*+\K[\w-]++",
)
# Elements with text for readers in the book's package and in its contents.
TEXTS = regex.compile(
    r"<(?:dc:(?:title|description|subject)|text)(?:\s[^<>]*+)?+>\K[^<]++(?=</)"
)


def read(
    data: bytes, split: Split, languages: tuple[str, str] = ("", "")
) -> tuple:
    """Returns the pieces of a book, and the `finish` of `Document`.

    Raises ValueError if `data` is not a book, or has a copy protection.
    """
    files = read_archive(data)
    root = _parse(files, RIGHTS)
    used = {e.get("Algorithm") for e in root.iter("{*}EncryptionMethod")}
    expect(used <= {*FONTS}, "a book without a copy protection", RIGHTS)
    roots = _parse(files, CONTAINER).iter("{*}rootfile")
    package = next((e.get("full-path", "") for e in roots), "")
    expect(package in files, "a book in the zip archive", f"{package=}")
    folder = posixpath.dirname(package)
    root = _parse(files, package)
    types, paths = dict[str, str](), dict[str, str]()
    for item in root.iter("{*}item"):
        path = urllib.parse.unquote(item.get("href", ""))
        path = posixpath.normpath(posixpath.join(folder, path))
        types[path] = item.get("media-type", "")
        paths[item.get("id", "")] = path
    spine = [paths.get(e.get("idref", "")) for e in root.iter("{*}itemref")]
    readers: dict[str, Callable] = {
        package: functools.partial(_read_texts, split=split)
    }
    for page in dict.fromkeys([*spine, *types]):
        kind = types.get(page or "", "")
        if page in files and kind in (*PAGES, CONTENTS):
            find = html.read if kind in PAGES else _read_texts
            readers[page] = functools.partial(find, split=split)
    # In the order of reading.
    ordered = {name: files[name] for name in readers} | files
    return read_parts(data, ordered, readers, languages, _with_language)


def _with_language(text, source, target):
    """Replaces the source language of a page or package by the target."""
    return LANGUAGE.sub(
        lambda m: (
            target.replace("_", "-")
            if target and base_language(m.group()) == base_language(source)
            else m.group()
        ),
        text,
    )


def _parse(files, name):
    """Returns the root of an XML file of the archive, or an empty one."""
    text, _ = decode(files.get(name, b"<none/>"), XML_DECLARATION)
    try:
        return parse_xml(regex.sub(r"<!DOCTYPE[^\[<>]*+>", "", text, 1))[0]
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _read_texts(text: str, split: Split) -> Iterator:
    """Yields the pieces of the package or the contents: texts are HTML."""
    read_to = 0
    for found in TEXTS.finditer(text):
        yield text[read_to : found.start()]
        yield from html.read(found.group(), split)
        read_to = found.end()
    yield text[read_to:]
