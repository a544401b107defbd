"""DOCX and ODT: runs, fields, marks, and hostile archives."""

import functools
import io
import random
import re
import zipfile

import lxml.etree
import pytest
from capitals import align, capitals
from document_cases import any_links, marked, takes_linear_time

from keras_transformer import documents

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
STRICT = "http://purl.oclc.org/ooxml/wordprocessingml/main"
MATH = "http://schemas.openxmlformats.org/officeDocument/2006/math"
TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.{}+xml"
CONTENT_TYPES = (
    '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types'
    '"><Default Extension="xml" ContentType="application/xml"/>{}</Types>'
)
DOCUMENT = (
    '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\r\n<w:document'
    ' xmlns:w="{}" xmlns:m="' + MATH + '"><w:body>{}<w:sectPr/></w:body>'
    "</w:document>"
)
OPEN_DOCUMENT = "application/vnd.oasis.opendocument.text"
CONTENT = "<office:document-content {}>{}</office:document-content>".format(
    " ".join(
        f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
        for name in ("office", "style", "text", "draw", "table")
    ),
    "<office:automatic-styles>{}</office:automatic-styles><office:body>"
    "<office:text>{}</office:text></office:body>",
)
MEDIA = bytes(range(256)) * 8


def archive(files):
    """Makes a zip archive. ODT's mimetype is not compressed."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as written:
        for name, content in files.items():
            stored = zipfile.ZIP_STORED if name == "mimetype" else None
            written.writestr(name, content, stored)
    return file.getvalue()


def docx(body, namespace=WORD, files=(), **parts):
    """Makes a Word document. `parts`: kind and text of other parts."""
    kinds = {"document": "document.main", **{kind: kind for kind in parts}}
    types = "".join(
        f'<Override PartName="/word/{name}.xml"'
        f' ContentType="{TYPE.format(kind)}"/>'
        for name, kind in kinds.items()
    )
    return archive(
        {
            "[Content_Types].xml": CONTENT_TYPES.format(types),
            "_rels/.rels": "<Relationships/>",
            "word/media/a.bin": MEDIA,
            "word/document.xml": DOCUMENT.format(namespace, body),
            **{f"word/{k}.xml": DOCUMENT.format(WORD, parts[k]) for k in parts},
            **dict(files),
        }
    )


def odt(body, styles="", **files):
    return archive(
        {
            "mimetype": OPEN_DOCUMENT,
            "Pictures/a.bin": MEDIA,
            "content.xml": CONTENT.format(styles, body),
            **files,
        }
    )


def read(data):
    with zipfile.ZipFile(io.BytesIO(data)) as opened:
        return {i: opened.read(i) for i in opened.infolist()}


def contents(data):
    return {info.filename: content for info, content in read(data).items()}


def body(data):
    files = contents(data)
    text = files.get("word/document.xml") or files["content.xml"]
    text = text.decode()
    pattern = r"<w:body>(.*)<w:sectPr/>|<office:text>(.*)</office:text>"
    return next(filter(None, re.search(pattern, text, re.S).groups()))


def translate(data):
    format = documents.detect("", data)
    document = documents.parse(data, format)
    assert document.write_bytes(document.sentences)[0] == data
    found = documents.translate(document, capitals, align)
    assert found.charset == ""
    before, after = read(data), read(found.data)
    # The files are the same, but for those that were translated.
    for (old, content), (new, written) in zip(
        before.items(), after.items(), strict=True
    ):
        for field in ("filename", "compress_type", "date_time", "extra"):
            assert getattr(old, field) == getattr(new, field)
        if old.filename.endswith(".xml"):
            lxml.etree.fromstring(written)
        else:
            assert content == written
    return document, found


def run(words, properties=""):
    properties = properties and f"<w:rPr>{properties}</w:rPr>"
    text = f'<w:t xml:space="preserve">{words}</w:t>'
    return f"<w:r>{properties}{text}</w:r>"


def char(kind):
    return f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>'


def code(words):
    return f"<w:r><w:instrText>{words}</w:instrText></w:r>"


BOLD, ITALIC = "<w:b/>", "<w:i/>"
FIELD = char("begin") + code(" PAGE ") + char("separate") + run("No 3")
FIELD += char("end")
LINK = char("begin") + code(" HYPERLINK ") + code('"u"') + char("separate")
LINK_END = char("end")
BOX = "<w:r><w:pict><v:box xmlns:v='v'>{}</v:box></w:pict></w:r>"
NOTE = '<w:r><w:footnoteReference w:id="2"/></w:r>'
DATE = f"<w:sdt><w:sdtPr><w:date/></w:sdtPr><w:sdtContent>{run('May')}"
DATE += "</w:sdtContent></w:sdt>"
IMAGE = '<w:r><w:drawing><x descr="A cat"/></w:drawing></w:r>'
FORM = '<w:r><w:fldChar w:fldCharType="begin"><w:ffData><w:ddList><w:listEntry'
FORM += ' w:val="Red"/></w:ddList></w:ffData></w:fldChar></w:r>'
FORM += code(" FORMDROPDOWN ") + char("end")
MARKED = '<w:bookmarkStart w:id="1"/>{}<w:bookmarkStart w:id="2"/>{}'
MARKED += '<w:bookmarkEnd w:id="2"/>{}<w:bookmarkEnd w:id="1"/>' + run(".")
# The content of a paragraph with marked words, its sentences, and reasons.
WORDS = {
    "runs that look the same": (
        '«<w:r w:rsidR="1"><w:t>The ch</w:t></w:r><w:proofErr w:type="a"/>'
        '<w:r w:rsidR="2"><w:rPr><w:lang w:val="en"/></w:rPr><w:t>ild.</w:t>'
        "</w:r><w:r/><w:r><w:lastRenderedPageBreak/></w:r>→"
        '<w:r w:rsidR="1"><w:t xml:space="preserve">THE CHILD.</w:t></w:r>»',
        ["The child."],
        [],
    ),
    "formats": (
        "<w:pPr><w:jc/></w:pPr>"
        + run("«A →A»", BOLD)
        + run("«man &amp; a woman → MAN &amp; A WOMAN »")
        + f"«{run('read', ITALIC)}{run(' ')}{run('well', ITALIC)}"
        + f"→{run('READ WELL', ITALIC)}»"
        + run(". ")
        + run("«Go.»", BOLD),
        ["A man & a woman read well.", "Go."],
        [],
    ),
    "elements around words": (
        run("«See »")
        + f'<w:hyperlink w:id="1">{run("«the page»", "<w:u/>")}</w:hyperlink>'
        + f"«→{run(' ')}»"
        + f'<w:ins w:id="3">{run("« now→NOW »", BOLD)}{run("« or→OR»")}</w:ins>'
        + f"«→{run(' ')}»<w:sdt><w:sdtPr/><w:sdtContent>{run('« go→GO»')}"
        + "</w:sdtContent></w:sdt>",
        ["See the page now or go"],
        [],
    ),
    "what ends a sentence": (
        "<w:hyperlink>«<w:r><w:t>Name</w:t><w:tab/><w:t>page</w:t></w:r>"
        f"→{run('NAME')}<w:r><w:tab/></w:r>{run('PAGE')}»</w:hyperlink>"
        f"{run('«a»')}<w:r><w:br/></w:r>{run(' «b» ')}",
        ["Name", "page", "a", "b"],
        [],
    ),
    "fields": (
        run("«See page »")
        + FIELD
        + run(" «of» ")
        + LINK
        + run("«the book»")
        + LINK_END
        + run(".")
        + f'<w:fldSimple w:instr="DATE">{run("May")}</w:fldSimple>',
        ["See page of the book."],
        ["field", "field"],
    ),
    "marks, signs, notes": (
        MARKED.format(
            run("«A wo»"),
            run("«rd»"),
            "«<w:r><w:t>e</w:t><w:noBreakHyphen/><w:t>m</w:t><w:softHyphen/>"
            f"<w:t>ail</w:t></w:r>→{run('E-MAIL')}»{NOTE}{run(' «is»')}",
        ),
        ["A worde-mail is."],
        [],
    ),
    "ends of ranges inside words": (
        f"{run('«wo»')}<w:bookmarkEnd w:id='7'/>{run('«rd»')}",
        ["word"],
        [],
    ),
    "a mark before a link": (
        MARKED.format(
            "", "", f"<w:hyperlink>{run('«the page»')}</w:hyperlink>"
        ).removesuffix(run(".")),
        ["the page"],
        [],
    ),
    "messages of ICU": (
        f"«{run('{n, plural, one {')}→»"
        + run("«x→{n, plural, one {x}}»", BOLD)
        + run("«}}→» «dogs»"),
        ["{n, plural, one {x}} dogs"],
        [],
    ),
    "code": (
        run("«Open »")
        + run("/etc/fstab", '<w:rStyle w:val="C1"/>')
        + run("« now »")
        + run("«or go»", '<w:rStyle w:val="C2"/>'),
        ["Open now or go"],
        ["code"],
    ),
    "what is left": (
        run("«One »")
        + f"<w:del>{run('old')}</w:del>"
        + run("«two »")
        + "<m:oMath><m:r><m:t>x</m:t></m:r></m:oMath>"
        + run(" «three»")
        + IMAGE
        + DATE,
        ["One two three"],
        ["deleted text", "math", "text of an image", "content control"],
    ),
    "text boxes": (
        run("«A »")
        + BOX.format(f"<w:p>{run('«b »')}{FIELD}</w:p><w:p/>")
        + run(" «cat. Dog»"),
        ["A cat.", "b", "Dog"],
        ["field"],
    ),
    "tags inside a word": (
        run("«Add m»")
        + run("2", BOLD)
        + run(" «to the 1»")
        + run("«st»", ITALIC),
        ["Add m2 to the 1st"],
        [],
    ),
    "a field that a deletion ends": (
        FIELD.replace("No", "«No»").removesuffix(char("end"))
        + f"<w:del>{char('end')}</w:del>",
        ["No 3"],
        [],
    ),
    "tooltips and tables": (
        f'<w:hyperlink w:tooltip="No">{run("«a»")}</w:hyperlink>'
        f"<w:r><w:br/></w:r>{char('begin')}"
        + code(' HYPERLINK "u" \\o "No"')
        + char("separate")
        + run("«b»")
        + LINK_END
        + BOX.format('<w:tblPr><w:tblCaption w:val="No"/></w:tblPr>'),
        ["a", "b"],
        ["tooltip", "tooltip", "text of a table"],
    ),
    "entries and forms": (
        run("«a»")
        + char("begin")
        + code(' XE "valve"')
        + char("end")
        + FORM
        + '<w:fldSimple w:instr=" TC &quot;b&quot; "/>',
        ["a"],
        ["index entry", "form field", "index entry"],
    ),
}


def becomes(text, sentences, reasons, make, *arguments):
    """Checks the document that `make` builds from a text with marked words."""
    source, expected = marked(text)
    document, found = translate(make(source, *arguments))
    assert document.sentences == sentences
    assert [unread.reason for unread in document.left] == reasons
    assert body(found.data) == expected


WORD_STYLES = "".join(
    f'<w:style w:styleId="{id}"><w:name w:val="{name}"/></w:style>'
    for id, name in {
        "C1": "Source Text",
        "C2": "Plain Text",
        "C3": "HTML Preformatted",
    }.items()
)


@pytest.mark.parametrize("namespace", [WORD, STRICT])
@pytest.mark.parametrize("case", WORDS.values(), ids=WORDS)
def test_a_word_document_becomes(case, namespace):
    make = functools.partial(docx, styles=WORD_STYLES)
    becomes(f"<w:p>{case[0]}</w:p>", *case[1:], make, namespace)


def test_parts_tables_and_fields_of_several_paragraphs():
    paragraphs = [f"<w:p>{run(words)}</w:p>" for words in ("a", "b", "c")]
    toc = char("begin") + code("TOC") + char("separate") + run("d")
    left = char("begin") + code("INDEX") + char("separate") + run("e")
    source = (
        f"<w:tbl><w:tr><w:trPr><w:del/></w:trPr><w:tc>{paragraphs[0]}</w:tc>"
        f"</w:tr></w:tbl><w:p>{toc}</w:p>{paragraphs[1]}<w:p>{char('end')}</w:p>"
        f"<w:p>{left}</w:p>{paragraphs[2]}<w:p>{char('end')}{run('f')}</w:p>"
    )
    comment = f"<w:comment>{paragraphs[0]}</w:comment>"
    parts = {
        "header": paragraphs[0],
        "footer": paragraphs[1],
        "footnotes": f"<w:footnote>{paragraphs[2]}</w:footnote>",
        "endnotes": paragraphs[0],
        "comments": comment,
        "settings": paragraphs[0],
    }
    document, found = translate(docx(source, **parts))
    assert document.sentences == ["a", "d", "b", "f", "a", "b", "c", "a"]
    # A line is a paragraph.
    assert [(unread.line, unread.reason) for unread in document.left] == [
        (5, "field"),
        (6, "field"),
        (12, "comment"),
    ]
    files = contents(found.data)
    for kind in ("comments", "settings"):
        assert run("a") in files[f"word/{kind}.xml"].decode()
    assert run("C") in files["word/footnotes.xml"].decode()


CHUNK = '<w:altChunk xmlns:r="r" r:id="{}"/>'
RELATIONS = "<Relationships>{}</Relationships>".format(
    "".join(
        f'<Relationship Id="{name}" Type="x/aFChunk" Target="{target}"/>'
        for name, target in (
            ("a", "a.htm"),
            ("b", "/word/b.xhtml"),
            ("c", "../c.txt"),
            ("d", "d.rtf"),
        )
    )
)
CHUNKS = {
    "[Content_Types].xml": CONTENT_TYPES.format(
        '<Default Extension="htm" ContentType="text/html"/><Default Extension='
        '"xhtml" ContentType="application/xhtml+xml"/><Default Extension="txt"'
        ' ContentType="text/plain"/><Default Extension="rtf" ContentType="x"/>'
        '<Override PartName="/word/document.xml"'
        f' ContentType="{TYPE.format("document.main")}"/>'
    ),
    "word/_rels/document.xml.rels": RELATIONS,
    "word/a.htm": "<meta charset=latin1><p>Café.".encode("latin-1"),
    "word/b.xhtml": "\ufeff<html><p>A cat.</p></html>",
    "c.txt": "A dog.",
    "word/d.rtf": "{\\rtf No.}",
}


def test_documents_inside_a_word_document():
    data = docx("".join(map(CHUNK.format, "abcd")), files=CHUNKS)
    document = documents.parse(data, "docx")
    assert document.sentences == ["Café.", "A cat.", "A dog."]
    assert [unread.reason for unread in document.left] == [
        "document inside the document"
    ]
    found = contents(documents.translate(document, capitals, align).data)
    assert found["word/a.htm"].endswith("<p>CAFÉ.".encode("latin-1"))
    assert "<p>A CAT.</p>" in found["word/b.xhtml"].decode()
    assert found["c.txt"] == b"A DOG."


def test_words_around_numbers_are_translated():
    levels = '<w:lvlText w:val="«Chapter» %1:"/><w:lvlText w:val="o"/>'
    levels += "<w:lvlText w:val='«Bob&apos;s→BOB&#x27;S» %1'/>"
    levels += (
        '<w:lvlText w:val="%1.%2)"/><w:lvlText w:val="«第%1章 a→第%1章 A»"/>'
    )
    source, expected = marked(levels)
    document, found = translate(docx("", numbering=source))
    assert document.sentences == ["Chapter %1:", "Bob's %1", "第%1章 a"]
    assert document.left == []
    assert expected in contents(found.data)["word/numbering.xml"].decode()
    styles = (
        '<text:list-level-style-number style:num-prefix="«Part» "'
        ' style:num-suffix="."/>'
    )
    index = "<text:index-title-template>«Contents»</text:index-title-template>"
    source, expected = marked(styles)
    document, found = translate(odt(marked(index)[0], source))
    assert document.sentences == ["Part", "Contents"]
    assert expected in contents(found.data)["content.xml"].decode()
    assert body(found.data) == marked(index)[1]


CAP = '<w:pPr><w:framePr w:dropCap="drop"/></w:pPr>'


def test_a_drop_cap_is_in_the_word_that_it_begins():
    mark = '<w:bookmarkStart w:id="1"/>'
    becomes(
        f"<w:p>{CAP}{run('“«o»')}</w:p><w:p>{mark}{run('«nce »')}"
        f"{run('«the»', BOLD)}{run('« child.»')}</w:p><w:p>{CAP}"
        f"{run('«a»')}</w:p><w:p>{FIELD}{run('« man.»')}</w:p>",
        ["“once the child.", "a man."],
        ["field"],
        docx,
    )


STYLES = "".join(
    f'<style:style style:name="{name}" style:family="text">'
    f"<style:text-properties {values}/></style:style>"
    for name, values in {
        "T1": 'fo:font-weight="bold" xmlns:fo="f"',
        "T2": 'officeooo:rsid="1" xmlns:officeooo="o"',
        "T3": 'fo:font-weight="bold" style:rsid="2" xmlns:fo="f"',
    }.items()
)
for name, parent in {
    "T4": "User_20_Entry",
    "P1": "Preformatted_20_Text",
}.items():
    STYLES += f'<style:style style:name="{name}"'
    STYLES += f' style:parent-style-name="{parent}"/>'
STYLES += '<style:style style:name="P2" style:parent-style-name="P1"/>'


def span(style, words):
    return f'<text:span text:style-name="{style}">{words}</text:span>'


NOTES = (
    '<text:note text:id="1"><text:note-citation>1</text:note-citation>'
    "<text:note-body><text:p>{}</text:p></text:note-body></text:note>"
)
COMMENT = "<office:annotation><text:p>no</text:p></office:annotation>"
LEFT = '<text:date text:fixed="true">May</text:date>' + COMMENT
LEFT += "<draw:frame><draw:image/></draw:frame><text:ruby>q</text:ruby>"
MARK = '<text:bookmark-{} text:name="m"/>'
PAGE_BREAK = "<text:soft-page-break/>"
SPACES = "<text:s text:c='2'/>"
META = "<text:meta-field>{}</text:meta-field>"
MARKS = (
    '<text:alphabetical-index-mark text:string-value="cat, old"/>'
    '<text:drop-down text:name="x"><text:label text:value="Red"/>Blue'
    "</text:drop-down>"
)
TEXTS = {
    "spans that look the same": (
        f"«The {span('T2', 'ch')}ild {span('T1', 're')}{span('T3', 'ads')}→"
        f"THE CHILD {span('T1', 'READS')}».",
        ["The child reads."],
        [],
    ),
    "spans in spans, space": (
        f"«{span('A', 'a' + span('B', ' b') + SPACES + 'c')}<!-- x -->→"
        f"{span('A', 'A ')}{span('A', span('B', 'B'))}{span('A', ' C ')}»"
        f"« &lt;{PAGE_BREAK}d→&lt;D»",
        ["a b c <d"],
        [],
    ),
    "links, notes, marks": (
        f'«Go to» <text:a office:name="u">«the →THE»{span("A", "«page→ PAGE»")}'
        f"</text:a>{NOTES.format('«a note»')} {MARK.format('start')}«now»"
        f"{MARK.format('end')}.",
        ["Go to the page now.", "a note"],
        [],
    ),
    "marks inside words": (
        "«wo»<text:bookmark text:name='m'/>«rd»",
        ["word"],
        [],
    ),
    "a mark before a link": (
        "<text:bookmark text:name='m'/><text:a>«the page»</text:a>",
        ["the page"],
        [],
    ),
    "what ends a sentence": (
        f"«a{span('A', '<text:tab/>b')}→"
        f"A{span('A', '<text:tab/>')}{span('A', 'B')}»<text:line-break/>«c»",
        ["a", "b", "c"],
        [],
    ),
    "code": (
        f"«Open» {span('Source_20_Text', '/etc/fstab')}, {span('T4', 'a')}"
        f" {span('Sourcery', '«or go»')}",
        ["Open, or go"],
        ["code", "code"],
    ),
    "what is left": (
        f"«In» {LEFT} «we go»",
        ["In we go"],
        ["field", "comment", "ruby"],
    ),
    "fields and marks": (
        f"«The» {META.format('«old»')} {MARKS}«cat.»",
        ["The old cat."],
        ["index entry", "field"],
    ),
}


def test_names_with_backslashes_are_those_that_word_opens():
    files = contents(docx(f"<w:p>{run('a b')}</w:p>"))
    renamed = {name.replace("/", "\\"): data for name, data in files.items()}
    renamed["[Content_Types].xml"] = renamed.pop("[Content_Types].xml")
    _, found = translate(archive(renamed))
    [text] = (v for k, v in contents(found.data).items() if "document" in k)
    assert b"A B" in text


def test_the_languages_of_a_document_are_those_of_its_translation():
    source = '<w:lang w:val="en-US" w:eastAsia="x"/>'
    french = '<w:b/><w:lang w:val="fr-FR"/>'
    data = docx(f"<w:p>{run('a b', source)}{run('c', french)}</w:p>")
    for target, changed in (
        ("pt_BR", source.replace("en-US", "pt-BR")),
        ("deu_Latn", source.replace("en-US", "de")),
        ("ja", source.replace('"x"', '"ja"')),
        ("de,fr", source),
        ("", source),
    ):
        document = documents.parse(data, "docx", "en", target=target)
        assert document.write_bytes(document.sentences)[0] == data
        written = body(documents.translate(document, capitals, align).data)
        assert written == (
            f"<w:p>{run('A B', changed)}{run('C', french)}</w:p>"
        )
    style = (
        '<style:text-properties xmlns:fo="f" fo:language="{}" fo:country="{}"/>'
    )
    serbian, english = ('sr" fo:script="Latn', "RS"), ("en", "US")
    for source, before, target, after in (
        ("en", english, "de", ("de", "none")),
        ("en", english, "sr_Latn", ('sr" fo:script="Latn', "none")),
        ("en", english, "sr-Cyrl-RS", ('sr" fo:script="Cyrl', "RS")),
        ("en", english, "es_419", ("es", "419")),
        ("en", english, "ca-valencia", ("ca", "none")),
        # The script is not kept in another language.
        ("sr_Latn", serbian, "de", ("de", "none")),
    ):
        styles = f"<style:style>{style.format(*before)}</style:style>"
        data = odt("<text:p>a</text:p>", styles)
        document = documents.parse(data, "odt", source, target=target)
        found = documents.translate(document, capitals, align).data
        written = contents(found)["content.xml"].decode()
        assert style.format(*after) in written, target


@pytest.mark.parametrize("case", TEXTS.values(), ids=TEXTS)
def test_a_text_document_becomes(case):
    becomes(f"<text:p>{case[0]}</text:p>", *case[1:], odt, STYLES)


def test_paragraphs_of_code_are_left():
    paragraph = '<w:p><w:pPr><w:pStyle w:val="{}"/></w:pPr>{}</w:p>'
    word = [paragraph.format(f"C{n}", run(f"«cd{n}»")) for n in (2, 3)]
    text = [
        f'<text:p text:style-name="{name}">«cd»</text:p>' for name in ("P2", "")
    ]
    for lines, make in (
        (word, functools.partial(docx, styles=WORD_STYLES)),
        (text[::-1], lambda body: odt(body, STYLES)),
    ):
        code = lines[1].replace("«", "").replace("»", "")
        becomes(
            lines[0] + code,
            [re.search("«(.*)»", lines[0])[1]],
            ["code"],
            make,
        )


def test_lists_headers_and_changes_of_a_text_document():
    changes = (
        "<text:tracked-changes><text:p>old</text:p></text:tracked-changes>"
    )
    page = CONTENT.format("", "<style:header><text:p>a</text:p></style:header>")
    data = odt(
        f"{changes}<text:h>b</text:h><text:list><text:list-item><text:p>c"
        "</text:p></text:list-item></text:list><text:p/>",
        **{"styles.xml": page, "Object 1/content.xml": page},
    )
    document, found = translate(data)
    assert document.sentences == ["b", "c", "a"]
    assert [(unread.line, unread.reason) for unread in document.left] == [
        (1, "deleted text"),
        (5, "object"),
    ]
    assert b"<text:p>A</text:p>" in contents(found.data)["styles.xml"]
    assert changes in body(found.data)
    assert data[30:].startswith(b"mimetype" + OPEN_DOCUMENT.encode())
    assert found.data[:70] == data[:70]


def test_no_alignment_breaks_an_office_document():
    """The words come in another order, with any alignment."""
    chosen = random.Random(0)
    parts = [marked(text)[0] for text, *_ in WORDS.values()]
    spans = [marked(text)[0] for text, *_ in TEXTS.values()]

    def shuffled(sentences):
        lists = [chosen.sample(s.split(), len(s.split())) for s in sentences]
        return [" ".join([*words, "\x01\x05end\ufffe"]) for words in lists]

    for _ in range(60):
        chosen.shuffle(parts)
        chosen.shuffle(spans)
        for data in (
            docx(f"<w:p>{''.join(parts)}</w:p>", styles=WORD_STYLES),
            odt(f"<text:p>{''.join(spans)}</text:p>", STYLES),
        ):
            document = documents.parse(data, documents.detect("", data))
            found = documents.translate(document, shuffled, any_links(chosen))
            before, after = (
                [
                    e.tag
                    for e in part_of(d).iter("{*}*")
                    if not re.search(
                        r"\}(r|t|span|rPr|rStyle|b|i|u|lang|s|\w*Hyphen|pPr|jc|proofErr|\S*reak)$",
                        e.tag,
                    )
                ]
                for d in (data, found.data)
            )
            assert sorted(before) == sorted(after)


def part_of(data):
    files = contents(data)
    return lxml.etree.fromstring(
        files.get("word/document.xml") or files["content.xml"]
    )


ENCRYPTED = bytearray(odt("a"))
for start in (b"PK\x03\x04", b"PK\x01\x02"):
    at = ENCRYPTED.index(start) + (6 if start[2] == 3 else 8)
    ENCRYPTED[at] |= 1
DOCTYPE = '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'
SHEET = CONTENT_TYPES.format(
    '<Override PartName="/a.xml" ContentType="spreadsheetml.sheet.main+xml"/>'
)
MANIFEST = {"META-INF/manifest.xml": "<m:encryption-data/>"}
REFUSED = {
    "no archive": ("docx", b"PK\x03\x04" + b"a" * 99, "an intact zip archive"),
    "old": ("docx", b"\xd0\xcf\x11\xe0\xa1", "an encrypted document"),
    "truncated": ("odt", odt("a")[:-30], "an intact zip archive"),
    "changed": ("odt", odt("a").replace(b".text", b".xxxx"), "intact"),
    "password": ("odt", bytes(ENCRYPTED), "without a password"),
    "a password of ODT": ("odt", odt("", **MANIFEST), "without a password"),
    "a sheet": ("docx", archive({"[Content_Types].xml": SHEET}), "a Word doc"),
    "a table": (
        "docx",
        archive({"xl/workbook.xml": b""}),
        r"a Word document in the zip archive\. Received: xl/workbook\.xml",
    ),
    "another type": ("odt", archive({"mimetype": "a/b"}), "mimetype='a/b'"),
    "no content": ("odt", archive({"mimetype": OPEN_DOCUMENT}), "text docu"),
    "absolute": ("odt", odt("", **{"/a": ""}), "relative names.* '/a'"),
    "parent": ("odt", odt("", **{"a/../b": ""}), "relative names"),
    "bomb": ("odt", odt("", a=b"0" * (1 << 25)), "at most .* 33,55"),
    "DOCTYPE": ("odt", odt("", **{"styles.xml": DOCTYPE}), "s.xml: line 1"),
    "not XML": ("docx", docx("<w:p>"), "word/document.xml: line 2: Opening"),
    "bytes": ("odt", odt("", **{"styles.xml": b"\xff"}), "is not UTF-8"),
    "deep": ("docx", docx("<w:p>" * 300 + "</w:p>" * 300), "Excessive depth"),
    "a text": ("docx", "a", "format docx: bytes.* Received: a text"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_an_archive_that_is_refused(case):
    format, data, message = case
    with pytest.raises(ValueError, match=message):
        documents.parse(data, format)


def test_a_document_with_macros_whose_type_is_by_its_ending():
    main = "application/vnd.ms-word.document.macroEnabled.main+xml"
    kinds = CONTENT_TYPES.format("").replace("application/xml", main)
    files = contents(docx(f"<w:p>{run('a')}</w:p>"))
    files |= {"[Content_Types].xml": kinds, "word/vbaProject.bin": MEDIA}
    assert translate(archive(files))[0].sentences == ["a"]


def test_names_twice_and_charsets():
    with pytest.warns(UserWarning, match="Duplicate"):
        file = io.BytesIO(odt("a"))
        with zipfile.ZipFile(file, "a") as opened:
            opened.writestr("mimetype", OPEN_DOCUMENT)
    with pytest.raises(ValueError, match="each once.* 'mimetype'"):
        documents.parse(file.getvalue(), "odt")
    with pytest.raises(ValueError, match="Received: charset='utf-8'"):
        documents.parse(odt(""), "odt", charset="utf-8")
    # A part in another charset keeps it.
    wide = DOCUMENT.replace("UTF-8", "UTF-16").format(
        WORD, f"<w:p>{run('é')}</w:p>"
    )
    data = docx("", header="")
    files = contents(data) | {"word/document.xml": wide.encode("utf-16")}
    _, found = translate(archive(files))
    assert "É" in contents(found.data)["word/document.xml"].decode("utf-16")


@pytest.mark.parametrize("data", [docx("<w:p/>"), odt("<text:p/>")])
def test_an_archive_is_no_text(data):
    document = documents.parse(data, "auto")
    found = documents.translate(document, capitals, align)
    for text_of in (lambda: found.text, lambda: document.write([])):
        with pytest.raises(ValueError, match=r"a text; .* charset=''\Z"):
            text_of()


@pytest.mark.parametrize(
    ("name", "data", "format"),
    [
        ("a.DOCX", b"", "docx"),
        ("a.ott", b"", "odt"),
        ("", odt("a"), "odt"),
        ("", docx("a"), "docx"),
        ("", archive({"a": ""}), "docx"),  # which says what is missing
    ],
)
def test_the_format_of_an_archive(name, data, format):
    assert documents.detect(name, data) == format
    assert format not in documents.TEXT_FORMATS
    assert "text" in documents.TEXT_FORMATS


LONG = 4000
HOSTILE = {
    "runs": docx(f"<w:p>{(run('a ') + run('b ', BOLD)) * LONG}</w:p>"),
    "marks": docx(f"<w:p>{'<w:xStart/>' * LONG}{'<w:yEnd/>' * LONG}</w:p>"),
    "fields": docx(f"<w:p>{char('begin') * LONG}{run('a')}</w:p>"),
    "ends": docx(f"<w:p>{(char('end') + run('a')) * LONG}</w:p>"),
    "codes": docx(f"<w:p>{char('begin')}{code('HYPERLINK') * LONG}</w:p>"),
    "links": docx(
        f"<w:p>{'<w:hyperlink>' * 99}{run('a ') * LONG}"
        f"{'</w:hyperlink>' * 99}</w:p>"
    ),
    "boxes": docx("<w:p><w:r><w:pict>" * 80 + "</w:pict></w:r></w:p>" * 80),
    "spans": odt(
        f"<text:p>{'<text:span>' * 99}{'a<text:s/>' * LONG}"
        f"{'</text:span>' * 99}</text:p>"
    ),
    "text": odt(f"<text:p>{'[{%s &amp;' * LONG}</text:p>"),
    "styles": docx(
        f"<w:p>{run('a')}</w:p>", styles="<style:text-properties " * LONG
    ),
    "comment": docx(
        f"<w:p>{run('a')}</w:p><!--{'<style:text-properties ' * LONG}-->"
    ),
    "language": docx(
        f"<w:p>{run('a')}</w:p>", styles=f"<w:lang w:val='en{'_a' * LONG}!'>"
    ),
    "help": docx(f"<w:helpText a='{'w:val=&quot;1' * LONG}'/>"),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_office_document_takes_linear_time(data):
    takes_linear_time(data, documents.detect("", data))


def epub(**files):
    """Makes a book. The spine reads page two first."""
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="urn:dc">'
        "<metadata><dc:title>«The dog»</dc:title>"
        "<dc:language>«en→de»</dc:language></metadata><manifest>"
        '<item id="a" href="one%201.xhtml" media-type="application/xhtml+xml"/>'
        '<item id="b" href="two.xhtml" media-type="application/xhtml+xml"/>'
        '<item id="n" href="toc.ncx" media-type="application/x-dtbncx+xml"/>'
        '</manifest><spine><itemref idref="b"/><itemref idref="a"/></spine>'
        "</package>"
    )
    page = (
        '<?xml version="1.0"?><!DOCTYPE html><html xml:lang="«en→de»"'
        ' xmlns="http://www.w3.org/1999/xhtml"><body><p>{}</p></body></html>'
    )
    parts = {
        "META-INF/container.xml": '<container><rootfile full-path="x/p.opf"/>'
        "</container>",
        "x/one 1.xhtml": page.format("«One» &amp; <b>«only»</b>."),
        "x/two.xhtml": page.format("«Two.»"),
        "x/p.opf": package,
        "x/toc.ncx": "<ncx><docTitle><text>«The dog»</text></docTitle></ncx>",
        "x/other.xml": "<a>stays</a>",
        **files,
    }
    found = []
    for side in (0, 1):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as book:
            book.writestr("mimetype", "application/epub+zip", 0)
            for name, text in parts.items():
                book.writestr(name, marked(text)[side])
        found.append(file.getvalue())
    return found


def test_a_book_is_read_in_the_order_of_its_spine():
    source, expected = epub()
    assert documents.detect("", source) == "epub"
    document = documents.parse(source, "auto", "en", target="de")
    same = documents.parse(source, "epub").write_bytes(document.sentences)
    assert same == (source, "")
    assert document.sentences[:3] == ["The dog", "Two.", "One & only."]
    written = documents.translate(document, capitals, align).data
    books = [zipfile.ZipFile(io.BytesIO(b)) for b in (written, expected)]
    texts = [{n: book.read(n) for n in book.namelist()} for book in books]
    assert texts[0] == texts[1] and list(texts[0]) == list(texts[1])
    first = books[0].infolist()[0]
    assert (first.filename, first.compress_type) == ("mimetype", 0)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "META-INF/encryption.xml",
            '<e><EncryptionMethod Algorithm="aes128-cbc"/></e>',
            "without a copy protection",
        ),
        ("META-INF/container.xml", "<container/>", "a book in the zip"),
        ("x/p.opf", "<package>", "x/p.opf: line 1"),
    ],
)
def test_books_that_are_refused(name, text, message):
    with pytest.raises(ValueError, match=message):
        documents.parse(epub(**{name: text})[0], "epub")
    font = (
        '<e><EncryptionMethod Algorithm="http://ns.adobe.com/pdf/enc#RC"/></e>'
    )
    fonts = epub(**{"META-INF/encryption.xml": font})[0]
    assert documents.parse(fonts, "epub").sentences
