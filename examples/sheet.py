"""Makes a spreadsheet (.xlsx) of aligned text files, a column for each.

    python examples/sheet.py --columns=English,German corpus/train.en
        corpus/train.de > texts.xlsx

`--most=3000` takes the first 3,000 lines. Of a single file the sheet has one
column, such as the texts to translate.
"""

import argparse
import sys
import zipfile
from xml.sax.saxutils import escape, quoteattr

OFFICE = "http://schemas.openxmlformats.org/"
MAIN = f"{OFFICE}spreadsheetml/2006/main"
LINKS = f"{OFFICE}officeDocument/2006/relationships"
OF_PACKAGE = f"{OFFICE}package/2006/"
SHEET_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--columns", required=True, help="names, with commas")
    parser.add_argument("--most", type=int, help="rows; default: all")
    parser.add_argument("files", nargs="+")
    options = parser.parse_args()
    sides = []
    for path in options.files:
        with open(path, encoding="utf-8", newline="\n") as file:
            sides.append([line.rstrip("\n") for line in file][: options.most])
    rows = list(zip(*sides, strict=True))
    write(sys.stdout.buffer, [options.columns.split(","), *rows])


def write(file, rows):
    """Writes rows of texts as a workbook with one sheet."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts_of(rows).items():
            archive.writestr(name, f'<?xml version="1.0"?>{text}')


def parts_of(rows):
    """Returns the files in a workbook with one sheet."""
    table = "".join(f"<row>{''.join(map(cell, row))}</row>" for row in rows)
    return {
        "[Content_Types].xml": (
            f'<Types xmlns="{OF_PACKAGE}content-types">'
            '<Default Extension="rels" ContentType="application/vnd.'
            'openxmlformats-package.relationships+xml"/>'
            '<Override PartName="/xl/workbook.xml"'
            f' ContentType="{SHEET_TYPE}.sheet.main+xml"/>'
            '<Override PartName="/xl/worksheets/sheet1.xml"'
            f' ContentType="{SHEET_TYPE}.worksheet+xml"/></Types>'
        ),
        "_rels/.rels": link("officeDocument", "xl/workbook.xml"),
        "xl/workbook.xml": (
            f'<workbook xmlns="{MAIN}" xmlns:r="{LINKS}"><sheets>'
            '<sheet name="Texts" sheetId="1" r:id="r1"/></sheets></workbook>'
        ),
        "xl/_rels/workbook.xml.rels": link(
            "worksheet", "worksheets/sheet1.xml"
        ),
        "xl/worksheets/sheet1.xml": (
            f'<worksheet xmlns="{MAIN}"><sheetData>{table}</sheetData>'
            "</worksheet>"
        ),
    }


def link(kind, target):
    return (
        f'<Relationships xmlns="{OF_PACKAGE}relationships">'
        f'<Relationship Id="r1" Type="{LINKS}/{kind}"'
        f" Target={quoteattr(target)}/></Relationships>"
    )


def cell(text):
    return (
        '<c t="inlineStr"><is><t xml:space="preserve">'
        f"{escape(text)}</t></is></c>"
    )


if __name__ == "__main__":
    main()
