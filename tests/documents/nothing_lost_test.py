"""Each text is translated or counted: a law that knows no reader.

Another library finds the letters of a document. Each run of letters must be in
capitals in the translation, or in a text that is left and counted.
"""

import collections
import html
import io
import pathlib
import zipfile

import lxml.etree
import lxml.html
import markdown_it
import pytest
import regex
from capitals import align, capitals
from document_cases import marked
from documents_formats_test import MARKDOWN, PAGES, UNIT, UNITS, XLIFF
from documents_office_test import STYLES, TEXTS, WORDS, docx, odt

from keras_transformer import documents

DOCUMENTATION = pathlib.Path(__file__).parents[2].glob("docs/*.md")
SYSTEM = pathlib.Path("/usr/share/doc").glob("**/*.html")
INVISIBLE = regex.compile(r"[\u00ad\u200b\u2060]")
# What is no text: addresses, names in programs, codes of templates.
NO_TEXT = regex.compile(
    r"<[^<>]*>|&[\w-]+;|\[\[[^\[\]|]*|!!! \w+|@\w[^{}\n]*\{|:[a-z]+:"
    r"|\{[{%]?[^{}]*[%}]?\}|\S*[@\\/_$%#]\S*|\S*\w[.:]\w\S*|\[![A-Z]+\]",
    regex.DOTALL,
)
NO_TEXT_ELEMENTS = ("script", "style", "template", "rp")
# Attributes with words for programs.
PROGRAMS = regex.compile(
    r"aria-(?!label\b|desc\w+ion|\w*(?:text|placeholder)).*|id|class|style|href|src\w*|rel|type|name|for|role|(xml:)?lang|dir|translate|kind"
    r"|content|charset|http-equiv|data-[a-z]+|on\w+|xmlns.*|\w*align|border"
    r"|width|height|bgcolor|text|[av]?link|target|method|action|size|color|face"
    r"|rules|frame|cell\w+|scope|media|x|itemprop|start|profile|version"
)


def texts_of_page(data):
    """Yields the texts of an HTML page, and those of its attributes."""
    parser = lxml.html.HTMLParser(encoding="utf-8")
    for element in lxml.html.document_fromstring(data.encode(), parser).iter():
        is_text = isinstance(element.tag, str)
        if is_text and element.tag not in NO_TEXT_ELEMENTS:
            yield element.text
            for name, value in element.items():
                is_meta = element.tag == "meta" and name == "content"
                is_shown = not PROGRAMS.fullmatch(name) and value != name
                if name == "value":
                    types = ("submit", "button", "reset")
                    is_shown = element.get("type") in types
                if is_meta:
                    key = element.get("name") or element.get("property") or ""
                    is_shown = regex.search("title|description|keywords", key)
                if is_shown:
                    yield value
        yield element.tail


def texts_of_markdown(data):
    """Yields the texts of a Markdown document, with those of its HTML."""
    parser = markdown_it.MarkdownIt("commonmark").enable("table")
    for token in parser.parse(data):
        for each in [*(token.children or []), token]:
            if each.type == "html_block":
                yield from texts_of_page(f"<div>{each.content}</div>")
            elif each.type in ("text", "code_inline", "fence", "code_block"):
                yield each.content
            yield each.attrs.get("title")


def texts_of_xliff(data):
    """Yields the texts of the targets, or of the sources without one."""
    for unit in lxml.etree.fromstring(data).iter("{*}trans-unit", "{*}segment"):
        found = unit.find("{*}target")
        found = unit.find("{*}source") if found is None else found
        yield from found.itertext()


def texts_of_archive(data):
    """Yields the texts of all XML files of an office document."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for name in archive.namelist():
            if name.endswith(("content.xml", "styles.xml")) or (
                name.startswith("word/") and name.endswith(".xml")
            ):
                yield from lxml.etree.fromstring(archive.read(name)).itertext()


FINDERS = {
    "html": texts_of_page,
    "markdown": texts_of_markdown,
    "xliff": texts_of_xliff,
    "docx": texts_of_archive,
    "odt": texts_of_archive,
}


def runs(texts):
    """Counts the runs of letters of texts."""
    found = " ".join(INVISIBLE.sub("", text or "") for text in texts)
    return collections.Counter(regex.findall(r"\p{L}{2,}", found))


def lost(data, format):
    """Returns the runs of letters that are neither translated nor counted."""
    document = documents.parse(data, format, "en")
    found = documents.translate(document, capitals, align)
    written = found.data if isinstance(data, bytes) else found.text
    stay = runs(NO_TEXT.sub(" ", t or "") for t in FINDERS[format](written))
    left = runs(u.text + html.unescape(u.text) for u in document.left)
    return {run for run in stay - left if run != run.upper()}


def source(case):
    return marked(case[0])[0]


TABLES = (
    ("html", PAGES, "{}"),
    ("markdown", MARKDOWN, "{}"),
    ("xliff", UNITS, XLIFF.format(UNIT.format("<source>{}"))),
    ("docx", WORDS, "<w:p>{}</w:p>"),
    ("odt", TEXTS, "<text:p>{}</text:p>"),
)
MAKE = {"docx": docx, "odt": lambda body: odt(body, STYLES)}
# lxml does not know PHP, and the words of ICU's messages are no text.
CASES = [
    pytest.param(format, MAKE.get(format, str)(text), id=f"{format}: {name}")
    for format, table, around in TABLES
    for name, case in table.items()
    for text in [around.replace("{}", marked(case[0])[0])]
    if not regex.search(r"<\?|, (?:plural|select),", text)
] + [
    # Real files: of this repository, and of the system if it has any.
    pytest.param(format, path.read_text("utf-8", "replace"), id=path.name)
    for format, paths in (("markdown", DOCUMENTATION), ("html", SYSTEM))
    for path in [p for p in sorted(paths) if p.is_file()][:40]
    if path.stat().st_size < 20_000
]


@pytest.mark.parametrize(("format", "data"), CASES)
def test_each_text_is_translated_or_counted(format, data):
    assert not lost(data, format)
