"""Tables: CSV, TSV, and the sheets of Excel and of OpenDocument.

The cells of some columns are translated into other columns. All else stays:
libraries that write a workbook anew lose what they do not know.
"""

import functools
import pathlib
import posixpath
import typing
from collections.abc import Callable, Iterator, Sequence

import regex

from keras_transformer.base.refusals import expect
from keras_transformer.commands.flags import how_to_install
from keras_transformer.data.files.pairs import SEPARATOR, open_bytes
from keras_transformer.documents.charsets import XML_DECLARATION, decode
from keras_transformer.documents.items import Split
from keras_transformer.documents.markup import escape
from keras_transformer.documents.office import NO_XML, read_archive, read_parts
from keras_transformer.documents.pieces import Block, Left, Piece
from keras_transformer.documents.text import read as read_text
from keras_transformer.documents.xml import parse_root, parse_xml

# The names of a column and of the column of its translations.
Columns = Sequence[tuple[str, str]]
LINE_END = regex.compile(r"\r\n|[\r\n]")
CODE = regex.compile(r"_x([0-9A-F]{4})_")  # of a character, in Excel's texts
REPEATED = regex.compile(r"\s[\w-]++:number-columns-repeated=[\"']\d++[\"']")
STYLE = regex.compile(r"\s(?:s|[\w-]++:style-name)=[\"'][^\"'<>]*+[\"']")
MOST_COLUMNS, MOST_ROWS, MOST_SPACES = 2**14, 2**20, 999


def _find(
    names: Sequence[str], columns: Columns
) -> tuple[list[tuple[int, int]], list[str]]:
    """Returns the places of columns, and the names of those to be added."""
    names = [name.strip() for name in names]
    wanted = [source for source, _ in columns]
    expect(
        all(names.count(name) == 1 for name in wanted),
        f"the columns {' and '.join(wanted)}, each once, in the first row",
        ", ".join(filter(None, names)) or "none",
    )
    new = [target for _, target in columns if target not in names]
    every = [*names, *new]
    return [(names.index(s), every.index(t)) for s, t in columns], new


def _cell(
    texts: tuple[str, str],
    raw: str,
    write: Callable[[str], str],
    split: Split,
    replace: bool,
) -> Piece:
    """Returns a cell with the translation of a text.

    `texts` are the text to translate and that of the cell, which is `raw`.
    """
    source, old = texts
    if not source.strip():
        return raw
    if old.strip() and not replace:
        return Left(raw, "already translated")
    return Block([*read_text(source, split)], write, raw)


def _rows(
    text: str, delimiter: str, has_quotes: bool
) -> Iterator[tuple[int, list[str], str]]:
    """Yields each row's first line, its fields as they are, and its line end.

    Raises ValueError, with the line, if a quotation mark is missing.
    """
    sign = regex.escape(delimiter)
    quoted = r'"(?:[^"]|"")*+"|(?!")' if has_quotes else ""
    field = regex.compile(rf"({quoted}[^{sign}\r\n]*+)({sign}|\r\n|[\r\n]|\Z)")
    row: list[str] = []
    read, line, first = 0, 1, 1
    while read < len(text) or row:
        found = field.match(text, read)
        if not found:
            raise ValueError(f"line {line}: broken quotes")
        row.append(found[1])
        line += len(LINE_END.findall(found.group()))
        read = found.end()
        if found[2] != delimiter:
            yield first, row, found[2]
            row, first = [], line


def _plain(has_quotes: bool, field: str) -> str:
    is_quoted = field[:1] == '"' and has_quotes
    return field[1:-1].replace('""', '"') if is_quoted else field


def _write_field(delimiter: str, has_quotes: bool, like: str, new: str) -> str:
    """Writes a field, with quotation marks if needed, or if `like` has them."""
    if not has_quotes:
        return regex.sub(r"[\t\r\n]++", " ", new)
    if like[:1] != '"' and not regex.search(rf'["\r\n{delimiter}]', new):
        return new
    return '"' + new.replace('"', '""') + '"'


def read_csv(
    text: str,
    split: Split,
    columns: Columns,
    replace: bool,
    signs: str = ",;\t",
    has_quotes: bool = True,
) -> Iterator[Piece]:
    """Yields the pieces of a table. One of `signs` is the delimiter.

    Without `has_quotes`, a quotation mark is a character like others. Raises
    ValueError if the first row lacks a column, or a row has more or fewer.
    """
    start = regex.match(r"[^\r\n]*+(?:\r\n|[\r\n])?+", text).group()
    named = SEPARATOR.fullmatch(start)
    if named:
        yield start
        text, signs = text[len(start) :], named[1]

    plain = functools.partial(_plain, has_quotes)

    def count(delimiter: str) -> int:
        _, row, _ = next(_rows(text, delimiter, has_quotes), (0, [], ""))
        names = {plain(field).strip() for field in row}
        return len(names & {source for source, _ in columns})

    delimiter = max(signs, key=count)
    write_field = functools.partial(_write_field, delimiter, has_quotes)
    rows = _rows(text, delimiter, has_quotes)
    _, head, end = next(rows, (0, [], ""))
    places, new = _find([*map(plain, head)], columns)
    added = [write_field(head[0], name) for name in new]
    yield delimiter.join([*head, *added]) + end
    for line, row, end in rows:
        where = f"line {line + bool(named)}"
        if row == [""]:
            yield end
            continue
        expected = f"{len(head)} columns"
        expect(len(row) == len(head), expected, len(row), where=where)
        cells: list[Piece] = [*row, *("" for _ in new)]
        for source, target in places:
            field, raw = row[source], (row + [""] * len(new))[target]
            write = functools.partial(write_field, field)
            texts = plain(field), plain(raw)
            cells[target] = _cell(texts, raw, write, split, replace)
        for i, cell in enumerate(cells):
            yield delimiter * (i > 0)
            yield cell
        yield end


class _Cell(typing.NamedTuple):
    """A cell of a sheet, or several equal ones side by side."""

    element: typing.Any
    begin: int  # number of its column, from 0
    end: int
    text: str


class _Row(typing.NamedTuple):
    """A row of a sheet: its number, from 1, its element and its cells."""

    number: int
    element: typing.Any
    cells: list[_Cell]

    def texts(self) -> dict[int, str]:
        """Returns the texts by column."""
        return {
            n: cell.text
            for cell in self.cells
            if cell.text.strip()
            for n in range(cell.begin, min(cell.end, MOST_COLUMNS))
        }

    def has_more(self, column: int) -> bool:
        """Tells whether a cell has a formula or a comment, text or not."""
        more = "*[local-name()='f' or local-name()='annotation']"
        return any(
            cell.element.xpath(f"{more} | @*[local-name()='formula']")
            for cell in self.cells
            if cell.begin <= column < cell.end
        )

    def names(self) -> list[str]:
        """Returns the texts up to the last one."""
        texts = self.texts()
        return [texts.get(n, "") for n in range(max(texts, default=-1) + 1)]


class _Excel:
    """A workbook of Excel: SpreadsheetML."""

    def __init__(self, files: dict[str, bytes]):
        strings = _root(files.get("xl/sharedStrings.xml", b"<none/>"))
        self._shared = [*map(self._text, strings.iter("{*}si"))]
        links = _root(files.get("xl/_rels/workbook.xml.rels", b"<none/>"))
        targets = {e.get("Id"): e.get("Target", "") for e in links}
        book = _root(files.get("xl/workbook.xml", b"<none/>"))
        self.parts = []  # names of the sheets' files, in order
        for sheet in book.iter("{*}sheet"):
            keys = (v for key, v in sheet.items() if key.endswith("}id"))
            path = posixpath.join("/xl", targets.get(next(keys, ""), ""))
            self.parts.append(posixpath.normpath(path).lstrip("/"))

    def tables(self, root: typing.Any) -> list[list[_Row]]:
        """Returns the rows of each table in a file of sheets."""
        rows: list[_Row] = []
        for row in root.iter("{*}row"):
            number = int(row.get("r") or (rows[-1].number if rows else 0) + 1)
            expect(number <= MOST_ROWS, f"at most {MOST_ROWS:,} rows", number)
            rows.append(_Row(number, row, []))
            end = 0
            for cell in row.iterchildren("{*}c"):
                letters = regex.match("[A-Z]*", cell.get("r", "")).group()
                end = (_number(letters) if letters else end + 1) or 1
                own = _Cell(cell, end - 1, end, self._text_of(cell))
                rows[-1].cells.append(own)
        return [rows]

    def _text_of(self, cell):
        value = cell.findtext("{*}v") or ""
        if cell.get("t") != "s" or not value:
            return value or self._text(cell)
        is_known = value.isdecimal() and int(value) < len(self._shared)
        expect(is_known, f"one of {len(self._shared)} texts", value)
        return self._shared[int(value)]

    def _text(self, element):
        found = (
            t.text or ""
            for t in element.iter("{*}t")
            if not t.getparent().tag.endswith("}rPh")  # how it is pronounced
        )
        return CODE.sub(lambda m: chr(int(m[1], 16)), "".join(found))

    @staticmethod
    def write(p: str, style: str, column: int, row: int, new: str) -> str:
        """Returns the XML of a cell; `p` is the prefix of its names."""
        text = escape(NO_XML.sub("", new))
        return (
            f'<{p}c r="{_letters(column + 1)}{row}"{style} t="inlineStr">'
            f'<{p}is><{p}t xml:space="preserve">{text}</{p}t></{p}is></{p}c>'
        )

    @staticmethod
    def gap(p: str, width: int) -> str:
        """Returns the XML of empty cells."""
        return ""


class _OpenDocument:
    """A workbook of OpenDocument."""

    def __init__(self, files: dict[str, bytes]):
        self.parts = ["content.xml"]

    def tables(self, root: typing.Any) -> list[list[_Row]]:
        return [[*self._rows(table)] for table in root.iter("{*}table")]

    def _rows(self, table):
        number = 1
        for row in table.iter("{*}table-row"):
            end, cells = 0, []
            for cell in row.iterchildren(
                "{*}table-cell", "{*}covered-table-cell"
            ):
                begin, end = end, end + _count(cell, "columns-repeated")
                text = "\n".join(map(self._text, cell.iterchildren("{*}p")))
                cells.append(_Cell(cell, begin, end, text))
            yield _Row(number, row, cells)
            number = min(number + _count(row, "rows-repeated"), MOST_ROWS)

    def _text(self, paragraph):
        parts = [paragraph.text or ""]
        for child in paragraph.iterchildren("*"):
            name = child.tag.rpartition("}")[2]
            signs = {"tab": "\t", "line-break": "\n"}
            sign = signs.get(name, "")
            if name == "s":
                sign = " " * min(_count(child, "}c"), MOST_SPACES)
            is_text = name in ("span", "a")
            parts += [self._text(child) if is_text else sign, child.tail or ""]
        return "".join(parts)

    @staticmethod
    def write(p: str, style: str, column: int, row: int, new: str) -> str:
        text = regex.sub(
            " {2,}",
            lambda m: f' <text:s text:c="{len(m[0]) - 1}"/>',
            escape(NO_XML.sub("", new)),
        ).replace("\n", "</text:p><text:p>")
        return (
            f'<{p}table-cell{style} office:value-type="string"><text:p>{text}'
            f"</text:p></{p}table-cell>"
        )

    @staticmethod
    def gap(p: str, width: int) -> str:
        number = f'{p}number-columns-repeated="{width}"'
        return f"<{p}table-cell {number}/>" * (width > 0)


def _root(data: bytes) -> typing.Any:
    return parse_root(decode(data, XML_DECLARATION)[0])


def _count(element, ending):
    """Returns the number in an attribute, by default 1."""
    found = (v for key, v in element.items() if key.endswith(ending))
    return int(next(found, "1"))


def _number(letters: str) -> int:
    """Returns the number of a column, from 1.

    >>> _number("A"), _number("AB"), _letters(28)
    (1, 28, 'AB')
    """
    return functools.reduce(lambda n, c: n * 26 + ord(c) - 64, letters, 0)


def _letters(number: int) -> str:
    first, last = divmod(number - 1, 26)
    return (_letters(first) if first else "") + chr(65 + last)


def _open(data: bytes, wanted: Sequence[str]) -> tuple:
    """Opens a workbook, with its first sheet whose first row has some columns.

    If none has, that is the first sheet. Returns the files, the workbook, the
    name of the sheet's file, and the number of the sheet there.
    """
    files = read_archive(data)
    book = (_OpenDocument if "content.xml" in files else _Excel)(files)
    names = [name for name in book.parts if name in files]
    expect(names, "a spreadsheet in the zip archive", [*files][:4])
    for name in names:
        for i, rows in enumerate(book.tables(_root(files[name]))):
            first = next(filter(None, (row.names() for row in rows)), [])
            if first and {*wanted} <= {text.strip() for text in first}:
                return files, book, name, i
    return files, book, names[0], 0


def read_records(
    path: pathlib.Path, columns: Sequence[str]
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields the place and the texts by column of each row of a workbook.

    It reads the first sheet whose first row has the columns. If they are
    numbers, there are no names. Equal rows that OpenDocument stores once count
    once. Raises ValueError if no sheet has them or the file is broken.
    """
    are_numbers = all(column.isdecimal() for column in columns)
    with open_bytes(path) as file:
        data = file.read()
    try:
        files, book, part, i = _open(data, () if are_numbers else columns)
        tables = book.tables(_root(files[part]))
        rows = [row for row in (tables or [[]])[i] if row.texts()]
        names = [str(n) for n in range(1, MOST_COLUMNS)]
        if not are_numbers:
            names = [*map(str.strip, rows.pop(0).names() if rows else [])]
            _find(names, [(column, column) for column in columns])
    except ImportError:
        needs = f"lxml: {how_to_install('documents')}"
        raise ValueError(f"reading {path} needs {needs}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    for row in rows:
        texts, places = row.texts(), map(names.index, columns)
        found = {names[n]: texts.get(n, "") for n in places}
        yield f"{path}, row {row.number}", found


def read_sheet(
    data: bytes, split: Split, columns: Columns, replace: bool
) -> tuple:
    """Returns the pieces of a workbook and the `finish` of `Document`.

    The columns are in the first sheet whose first row has them; a row is a line
    of the document. Raises ValueError if no sheet has them, or `data` is no
    workbook.
    """
    files, book, part, i = _open(data, [source for source, _ in columns])
    sheet = _Sheet(book, i, split, columns, replace)
    readers: dict[str, Callable] = {part: sheet.read}
    return read_parts(data, files, readers, declare=lambda text, *_: text)


class _Sheet(typing.NamedTuple):
    """A sheet to be translated."""

    book: typing.Any
    number: int  # of the sheet in its file
    split: Split
    columns: Columns
    replace: bool

    def read(self, text: str) -> Iterator[Piece]:
        """Yields the pieces of the sheet's file."""
        root, events, spans = parse_xml(text)
        raws = [event.raw for event in events]
        # Events to replace, by the first one and the next after the last one.
        edits: list[tuple[int, int, list[Piece]]] = []
        places: list[tuple[int, int]] = []
        last = 1
        tables = self.book.tables(root) or [[]]
        rows = [row for row in tables[self.number] if row.texts()]
        if not rows:
            _find([], self.columns)
        for row in rows:
            begin, end = spans[row.element]
            texts, made = row.texts(), dict[int, Piece]()
            xml = _Xml(self.book, raws, spans, row)
            if row is rows[0]:
                places, new = _find(row.names(), self.columns)
                width = max(texts) + 1
                for n, name in enumerate(new, width):
                    made[n] = xml.write(n, width - 1, name)
                edits += xml.widened(root, width + len(new))
            for source, target in places * (row is not rows[0]):
                write = functools.partial(xml.write, target, source)
                both = texts.get(source, ""), texts.get(target, "")
                raw = xml.cell(target)
                if both[0].strip() and row.has_more(target):
                    made[target] = Left(raw, "a formula or a comment")
                    continue
                made[target] = _cell(both, raw, write, self.split, self.replace)
            lines = Block([], source="\n" * (row.number - last))
            edits += [(begin, begin, [lines]), *xml.edits(made, end)]
            last = row.number
        read = 0
        for begin, end, pieces in sorted(edits, key=lambda edit: edit[:2]):
            yield Block(["".join(raws[read:begin])], source="")
            yield from pieces
            read = end
        yield Block(["".join(raws[read:])], source="")


class _Xml(typing.NamedTuple):
    """The XML of a row: the file's events, and where its elements are."""

    book: typing.Any
    raws: Sequence[str]
    spans: dict
    row: _Row

    @property
    def prefix(self) -> str:
        tag = self.raws[self.spans[self.row.element][0]]
        return regex.match(r"<([\w-]+:)?+", tag)[1] or ""

    def cell(self, column: int, times: int = 1) -> str:
        """Returns the cell of a column, several times; "" if there is none."""
        found = [c for c in self.row.cells if c.begin <= column < c.end]
        if not found or not times:
            return ""
        begin, end = self.spans[found[0].element]
        raw = "".join(self.raws[begin : end + 1])
        if found[0].end - found[0].begin < 2:
            return raw
        tag = regex.match(r"<[^\s/>]++", raw).group()
        number = f' {self.prefix}number-columns-repeated="{times}"'
        return tag + number * (times > 1) + REPEATED.sub("", raw[len(tag) :], 1)

    def write(self, column: int, like: int, new: str) -> str:
        """Writes a cell in its style, or else in that of the column `like`."""
        tag = regex.match(
            "[^>]*+", self.cell(column) or self.cell(like)
        ).group()
        style = STYLE.search(tag)
        return self.book.write(
            self.prefix,
            style.group() if style else "",
            *(column, self.row.number, new),
        )

    def widened(
        self, root: typing.Any, width: int
    ) -> Iterator[tuple[int, int, list[Piece]]]:
        """Yields the edit of the tag that says which cells a sheet has."""
        for element in root.iter("{*}dimension"):
            at = self.spans[element][0]
            raw = regex.sub(
                ":([A-Z]+)",
                lambda m: f":{_letters(max(width, _number(m[1])))}",
                self.raws[at],
            )
            yield at, at + 1, [raw]

    def edits(
        self, made: dict[int, Piece], end: int
    ) -> Iterator[tuple[int, int, list[Piece]]]:
        """Yields the edits that put cells into their columns.

        `end` is the event that ends the row.
        """
        for cell in self.row.cells:
            own = sorted(n for n in made if cell.begin <= n < cell.end)
            pieces: list[Piece] = []
            read = cell.begin
            for n in own:
                pieces += [self.cell(n, n - read), made.pop(n)]
                read = n + 1
            if own:
                pieces.append(self.cell(cell.begin, cell.end - read))
                first, last = self.spans[cell.element]
                yield first, last + 1, pieces
        read = self.row.cells[-1].end
        for n in sorted(made):
            later = [c.element for c in self.row.cells if c.begin > n]
            at = self.spans[later[0]][0] if later else end
            yield at, at, [self.book.gap(self.prefix, n - read), made[n]]
            read = n + 1
