"""Columns of tables and of workbooks, translated into others."""

import io
import zipfile

import pytest

from keras_transformer import documents
from keras_transformer.data.files.records import read_parallel_files

INTO = [("English", "German")]
MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
LINKS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
WORKBOOK = {
    "[Content_Types].xml": "<Types/>",
    "xl/workbook.xml": (
        f'<workbook xmlns="{MAIN}" xmlns:r="{LINKS}"><sheets>'
        '<sheet name="Notes" r:id="r1"/><sheet name="Texts" r:id="r2"/>'
        "</sheets></workbook>"
    ),
    "xl/_rels/workbook.xml.rels": (
        '<Relationships><Relationship Id="r1" Target="worksheets/a.xml"/>'
        '<Relationship Id="r2" Target="/xl/worksheets/b.xml"/></Relationships>'
    ),
    # Rich text, what says how it is pronounced, and a code of a character.
    "xl/sharedStrings.xml": (
        f'<sst xmlns="{MAIN}"><si><t>English</t></si><si><r><t>One </t></r>'
        "<r><t>dog.</t></r><rPh><t>wan</t></rPh></si>"
        "<si><t>A_x000D_&lt;b</t></si></sst>"
    ),
    "xl/worksheets/a.xml": f'<worksheet xmlns="{MAIN}"/>',
    "xl/charts/chart1.xml": "<c:chart>stays</c:chart>",
}
SHEET = (
    f'<?xml version="1.0"?>\n<worksheet xmlns="{MAIN}"><dimension ref="A2:C6"/>'
    '<sheetData><row r="2"><c r="A2" t="s"><v>0</v></c>'
    '<c r="C2" t="inlineStr"><is><t>n</t></is></c>{head}</row>'
    '<row r="3" spans="1:3"><c r="A3" s="4" t="s"><v>1</v></c>'
    '<c r="C3"><v>7</v></c>{one}</row>'
    '<row r="5"><c r="A5" t="str"><f>A3</f><v>x</v></c>{two}</row>'
    '<row r="6"><c r="A6" t="s"><v>2</v></c>{three}</row><row r="7"/>'
    "</sheetData></worksheet>"
)
NEW = '<c r="D{}"{} t="inlineStr"><is><t xml:space="preserve">{}</t></is></c>'
ODS = (
    '<office:document-content xmlns:office="o" xmlns:table="t" xmlns:text="x">'
    "<table:table><table:table-row><table:table-cell><text:p>English</text:p>"
    "</table:table-cell>{head}<table:table-cell table:number-columns-repeated="
    '"{left}"/></table:table-row><table:table-row '
    'table:number-rows-repeated="2">'
    '<table:table-cell table:style-name="c"><text:p>a<text:s text:c="4"/>b'
    "</text:p><text:p>c &amp;</text:p></table:table-cell>{row}"
    '<table:table-cell table:number-columns-repeated="{left}"'
    ' table:style-name="e"/></table:table-row></table:table>'
    "</office:document-content>"
)
STRING = '<table:table-cell{} office:value-type="string"><text:p>{}</text:p>'


def archive(files):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as zipped:
        for name, text in files.items():
            zipped.writestr(name, text)
    return file.getvalue()


def members(data):
    with zipfile.ZipFile(io.BytesIO(data)) as zipped:
        return {name: zipped.read(name).decode() for name in zipped.namelist()}


def excel(sheet):
    return archive(WORKBOOK | {"xl/worksheets/b.xml": sheet})


EXCEL = excel(SHEET.format(head="", one="", two="", three=""))
OPEN = {"mimetype": "application/vnd.oasis.opendocument.spreadsheet"}
OPEN_DOCUMENT = archive(
    OPEN | {"content.xml": ODS.format(head="", row="", left=9)}
)


def shout(data, columns=INTO, **options):
    """Returns a table whose texts are in capitals, and its document."""
    document = documents.parse(
        data, **{"format": "auto", **options}, columns=columns
    )
    found = documents.translate(
        document,
        lambda sentences: [sentence.upper() for sentence in sentences],
        lambda pairs: [[] for _ in pairs],
    )
    return found.data, document


@pytest.mark.parametrize(
    "format, text, expected, lines",
    [
        (
            "csv",
            'id;English;n\r\n1;"A dog; one. It ran.";7\r\n\r\n3;x "y";\r\n',
            'id;English;n;German\r\n1;"A dog; one. It ran.";7;"A DOG; ONE.'
            ' IT RAN."\r\n\r\n3;x "y";;"X ""Y"""\r\n',
            [2, 2, 4],
        ),
        (
            "csv",  # what is there stays, as does the byte order mark
            '\ufeffsep=,\nGerman,English\n,a dog\nKatze,a cat\n,"a\nb"',
            '\ufeffsep=,\nGerman,English\nA DOG,a dog\nKatze,a cat\n"A\nB","a\n'
            'b"',
            [3, 5, 6],
        ),
        (
            "tsv",  # a quotation mark is a character like others
            'English\tx\n"a\t1\n\t2\n',
            'English\tx\tGerman\n"a\t1\t"A\n\t2\t\n',
            [2],
        ),
        (
            "csv",
            'English\tx\n"a\tb"\t1',
            'English\tx\tGerman\n"a\tb"\t1\t"A\tB"',
            [2, 2],
        ),
    ],
)
def test_a_table_has_another_column(format, text, expected, lines):
    data, document = shout(text.encode(), format=format)
    assert data.decode() == expected
    assert document.lines == lines


def test_columns_with_text_are_replaced_if_asked():
    text = "a,b,c\none,alt,\n"
    columns = [("a", "b"), ("a", "d"), ("b", "c")]
    assert shout(text.encode(), columns)[0] == b"a,b,c,d\none,alt,ALT,ONE\n"
    again, _ = shout(text.encode(), columns[:1], replace=True)
    assert again == b"a,b,c\none,ONE,\n"


def test_a_sheet_of_excel_has_another_column():
    """Every other byte stays, and so does the style of the source."""
    data, document = shout(EXCEL)
    expected = SHEET.replace("A2:C6", "A2:D6").format(
        head=NEW.format(2, "", "German"),
        one=NEW.format(3, ' s="4"', "ONE DOG."),
        two=NEW.format(5, "", "X"),
        three=NEW.format(6, "", "A\r&lt;B"),
    )
    assert members(data) == WORKBOOK | {"xl/worksheets/b.xml": expected}
    assert document.sentences == ["One dog.", "x", "A", "<b"]
    assert document.lines == [3, 5, 6, 7]


def test_an_empty_cell_between_others_is_filled():
    data, _ = shout(EXCEL, [("English", "n")])
    sheet = members(data)["xl/worksheets/b.xml"]
    assert '<c r="C3"><v>7</v></c>' in sheet
    assert '<c r="C5" t="inlineStr"><is><t xml:space="preserve">X<' in sheet
    data, _ = shout(EXCEL, [("n", "B")])
    assert '>7</v></c><c r="D3"' in members(data)["xl/worksheets/b.xml"]


@pytest.mark.parametrize(
    "has_more",
    [
        '<c r="D3"><f>A3</f></c>',
        '<c r="D3"><f>A3</f><v>old</v></c>',
        '<c r="D3"><annotation>Why?</annotation></c>',
    ],
)
def test_a_formula_or_a_comment_stays(has_more):
    head = NEW.format(2, "", "German")
    sheet = SHEET.format(head=head, one=has_more, two="", three="")
    data = archive(WORKBOOK | {"xl/worksheets/b.xml": sheet})
    for replace in (False, True):
        translated, document = shout(data, replace=replace)
        found = members(translated)["xl/worksheets/b.xml"]
        assert has_more in found
        assert ">X<" in found
        reasons = [unread.reason for unread in document.left]
        assert reasons == ["a formula or a comment"]


def test_a_sheet_of_opendocument_has_another_column():
    """Equal cells and rows that are stored once are divided as needed."""
    data, _ = shout(OPEN_DOCUMENT, [*INTO, ("English", "French")])
    end = "</table:table-cell>"
    row = STRING.format(' table:style-name="e"', "A@B</text:p><text:p>C &amp;")
    row = row.replace("@", ' <text:s text:c="3"/>')
    expected = ODS.format(
        head=STRING.format("", "German") + end + STRING.format("", "French")
        + end,
        row=(row + end) * 2,
        left=7,
    )  # fmt: skip
    assert members(data)["content.xml"] == expected


@pytest.mark.parametrize(
    "name, data", [("xlsx", EXCEL), ("ods", OPEN_DOCUMENT)]
)
def test_the_format_of_a_workbook(name, data):
    assert (
        documents.detect("", data) == documents.detect(f"a.{name}", b"") == name
    )
    with pytest.raises(
        ValueError, match="expected columns and into with a tab"
    ):
        documents.parse(data, "auto")
    with pytest.raises(ValueError, match="the columns Igbo, each once, in the"):
        documents.parse(data, "auto", columns=[("Igbo", "German")])


def test_pairs_of_a_workbook(tmp_path):
    row = '<c r="D{}" t="inlineStr"><is><t>{}</t></is></c>'.format
    sheet = SHEET.format(
        head=row(2, "de"), one=row(3, "Ein Hund."), two="", three=row(6, "B")
    )
    (tmp_path / "a.XLSX").write_bytes(excel(sheet))
    (tmp_path / "b.ods").write_bytes(OPEN_DOCUMENT)
    pairs = [("One dog.", "Ein Hund."), ("x", ""), ("A <b", "B")]
    for columns in (("English", "de"), ("1", "4")):
        path = str(tmp_path / "a.XLSX")
        found = list(read_parallel_files([path], "en", "de", columns))
        assert found[-3:] == pairs
        assert len(found) == 3 + columns[0].isdecimal()
    with pytest.raises(ValueError, match="b.ods: expected the columns en and"):
        read_parallel_files([str(tmp_path / "b.ods")], "en", "de")


@pytest.mark.parametrize(
    "old, new",
    [
        ('r="5"', 'r="999999999999"'),
        ("<v>1</v>", "<v>99</v>"),
        ("<v>1</v>", "<v>-2</v>"),
        ('r="3"', 'r="x"'),
        ("<sheetData>", "<sheetDat>"),
    ],
)
def test_a_broken_workbook_is_refused(old, new, tmp_path):
    sheet = SHEET.format(head="", one="", two="", three="").replace(old, new)
    with pytest.raises(ValueError):
        documents.parse(excel(sheet), "auto", columns=INTO)
    (tmp_path / "a.xlsx").write_bytes(excel(sheet))
    with pytest.raises(ValueError, match="a.xlsx: "):
        read_parallel_files([str(tmp_path / "a.xlsx")], "English", "German")


@pytest.mark.parametrize(
    "text, message",
    [
        ('English,b\n1,2\n"x,3\n', "line 3: broken quotes"),
        ("English,b\n1,2,3\n", "line 2: expected 2 columns. Received: 3"),
        ("English,English\n1,2\n", "English, each once"),
        (
            "",
            "the columns English, each once, in the first row. Received: none",
        ),
    ],
)
def test_a_broken_table_is_refused_with_its_line(text, message):
    with pytest.raises(ValueError, match=message):
        documents.parse(text, "csv", columns=INTO)
