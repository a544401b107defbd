"""Sentence pairs from files with both languages: one reader for each format.

A reader yields the place of each record and its texts by name. In JSON, Parquet
and Arrow, the texts may be nested, as in the data sets of Hugging Face:
`{"translation": {"en": ..., "de": ...}}`.
"""

import collections
import contextlib
import csv
import functools
import glob
import importlib
import itertools
import json
import os
import pathlib
import reprlib
import typing
from collections.abc import Callable, Iterator, Sequence

from absl import logging

from keras_transformer.base.files import read_json, unique_names
from keras_transformer.commands.flags import how_to_install
from keras_transformer.data.files.pairs import (
    SEPARATOR,
    Pairs,
    read_aligned_files,
    whole_lines,
    with_bar,
    with_single_spaces,
)
from keras_transformer.data.files.tmx import LeftOut, read_tmx

Records = Iterator[tuple[str, typing.Any]]
PACKED = (".zip", ".tar", ".tgz", ".bz2", ".xz", ".zst", ".7z", ".rar")
SPREADSHEETS = (".xls", ".xlsb", ".numbers")
MOST_CHARACTERS = 2**31 - 1  # in a field of CSV
SAMPLE = 1000  # first rows, by which the delimiter is chosen
_SHORT = reprlib.Repr()  # works for values nested too deeply for `repr`, too
_SHORT.maxdict = 30


def read_table(
    path: pathlib.Path,
    columns: Sequence[str],
    delimiters: str,
    has_quotes: bool,
) -> Records:
    """Yields the place and the fields of each row, skipping blank lines.

    The first row has the names of the columns, by which the delimiter is
    chosen. If they have spaces after the delimiter (`en, de`), fields do, too.
    If `columns` are numbers, there are no names, and the delimiter is the one
    that divides the first rows into equally many columns. Excel's first line
    `sep=;` sets the delimiter in both cases. Raises ValueError for another
    table.
    """
    named = has_quotes and SEPARATOR.fullmatch(next(whole_lines(path), ""))
    delimiters = named[1] if named else delimiters
    are_numbers = all(column.isdecimal() for column in columns)
    judge = _count_alike if are_numbers else _count_wanted
    first: dict[str, list[list[str]]] = {d: [] for d in delimiters}
    for delimiter, table in first.items():
        with contextlib.suppress(ValueError):  # raised again below
            for _, row in _read_rows(path, delimiter, has_quotes):
                table.append(row)
                if len(table) == SAMPLE:
                    break
    ranks = {d: judge(table, columns) for d, table in first.items()}
    best, *others = sorted(ranks, key=ranks.__getitem__, reverse=True)
    is_clear = not others or ranks[best] > max(ranks[others[0]], (0, 0))
    if are_numbers and ranks[best][0] and not is_clear:
        raise ValueError(
            f"{path}: expected one delimiter, or a first row with names."
            f" Received: a table that {best!r} and {others[0]!r} divide"
        )
    names = first[best][0] if first[best] else []
    is_spaced = not are_numbers and all(n[:1] == " " for n in names[1:])
    rows = _read_rows(path, best, has_quotes, is_spaced)
    if are_numbers:
        names = [str(number) for number in range(1, len(names) + 1)]
    else:
        number, names = next(rows, (1, []))
        names = [name.strip() for name in names]
        _check_names(names, columns, f"{path}, line {number}: ")
    for number, row in rows:
        place = f"{path}, line {number}"
        if len(row) != len(names):
            raise ValueError(
                f"{place}: expected {len(names)} columns. Received: {len(row)}"
            )
        yield place, dict(zip(names, row, strict=True))


def _count_wanted(rows, columns):
    """Ranks a delimiter by how many of the columns the first row names."""
    names = [name.strip() for name in rows[0]] if rows else []
    return len({*columns} & {*names}), len(names)


def _count_alike(rows, columns):
    """Ranks a delimiter by how many of the first rows have equally many fields.

    A tie goes to the delimiter with fewer fields that begin with a space, as
    parts of sentences do.
    """
    sizes = [len(row) for row in rows]
    alike = list(itertools.takewhile(lambda size: size == sizes[0], sizes))
    if not sizes or sizes[0] < max(map(int, columns)):
        return 0, 0
    spaces = sum(x[:1] == " " for row in rows[: len(alike)] for x in row[1:])
    return len(alike), -spaces


def _check_names(names, columns, place=""):
    """Raises ValueError if a name is repeated or a wanted column is missing."""
    text = ", ".join(map(with_single_spaces, names)) or "none"
    received = f"Received: {text:.500}"
    if len(given := [name for name in names if name]) > len({*given}):
        raise ValueError(f"{place}expected each column once. {received}")
    if not {*columns} <= {*names}:
        raise ValueError(
            f"{place}expected the columns {' and '.join(columns)}; kt-train"
            f" and kt-prepare take others by --columns. {received}"
        )


def _read_rows(path, delimiter, has_quotes, is_spaced=False):
    """Yields the number of the first line and the fields of each row."""
    if not has_quotes:
        for number, line in enumerate(whole_lines(path), 1):
            if line := line.rstrip("\r\n"):
                yield number, line.split(delimiter)
        return
    csv.field_size_limit(MOST_CHARACTERS)
    rows = csv.reader(
        whole_lines(path),
        delimiter=delimiter,
        skipinitialspace=is_spaced,
        strict=True,
    )
    number = 1
    try:
        for row in rows:
            is_text = number > 1 or not SEPARATOR.fullmatch(delimiter.join(row))
            if row and is_text:
                yield number, row
            number = rows.line_num + 1
    except csv.Error as error:
        raise ValueError(
            f"{path}, line {number}: broken quotes ({error})"
        ) from error


def read_json_lines(path: pathlib.Path, columns: Sequence[str]) -> Records:
    """Yields the place and JSON value of each line, skipping blank lines."""
    for number, line in enumerate(whole_lines(path), 1):
        place = f"{path}, line {number}"
        try:
            record = line.strip() and json.loads(
                line, object_pairs_hook=unique_names
            )
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{place}: expected JSON ({error})") from error
        if line.strip():
            yield place, record


def read_arrow(path: pathlib.Path, columns: Sequence[str]) -> Records:
    """Yields the place and the values of each row of a Parquet or Arrow file.

    Arrow files are streams, as `datasets` saves them.
    """
    try:
        import pyarrow  # an extra
        from pyarrow import parquet
    except ImportError:
        raise ValueError(
            f"reading {path} needs pyarrow: {how_to_install('parquet')}"
        ) from None
    outer = [column.partition(".")[0] for column in columns]
    wanted = ["translation", *outer, *columns]
    number = 0
    try:
        with pyarrow.memory_map(str(path)) as file:
            if find_form(path) == ".parquet":
                reader = parquet.ParquetFile(file)
                names = reader.schema_arrow.names
                batches = reader.iter_batches(1024, columns=wanted)
            else:
                batches = pyarrow.ipc.open_stream(file)
                names = batches.schema.names
            # A name with a dot may name a column, or a value in one.
            tops = [
                c if c in names else o
                for c, o in zip(columns, outer, strict=True)
            ]
            _check_names(names, () if "translation" in names else tops)
            for batch in batches:
                batch = batch.select(
                    [n for n in batch.schema.names if n in wanted]
                )
                for start in range(len(batch)):
                    # Row by row, so that errors name the row. Only this check
                    # finds invalid UTF-8 and offsets outside the file.
                    one = batch.slice(start, 1)
                    one.validate(full=True)
                    (row,) = one.to_pylist()
                    number += 1
                    yield f"{path}, row {number}", dict.fromkeys(names) | row
    except Exception as error:  # a broken file raises many kinds of them
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{path}, row {number + 1}: {reason}") from error


def _find_text(record, column):
    """Finds a value of a record, in a column, `translation` or a path A.B."""
    for path in ((column,), ("translation", column), column.split(".")):
        value = record
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            break
    return value


def _read_catalogue(reader, path, languages):
    """Calls a reader in `documents.catalogues`, imported when first used."""
    shelf = importlib.import_module("keras_transformer.documents.catalogues")
    return getattr(shelf, reader)(path, languages)


def _read_workbook(path, columns):
    shelf = importlib.import_module("keras_transformer.documents.tables")
    return shelf.read_records(path, columns)


_read_csv = functools.partial(read_table, delimiters=",;\t", has_quotes=True)
# In TSV, a quote is an ordinary character, as in most corpora.
_read_tsv = functools.partial(read_table, delimiters="\t", has_quotes=False)
FORMS: dict[str, Callable[[pathlib.Path, Sequence[str]], Records]] = {
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".tab": _read_tsv,
    ".jsonl": read_json_lines,
    ".ndjson": read_json_lines,
    ".json": read_json_lines,
    ".tmx": read_tmx,
    ".po": functools.partial(_read_catalogue, "read_po"),
    ".mo": functools.partial(_read_catalogue, "read_mo"),
    ".xlf": functools.partial(_read_catalogue, "read_xliff"),
    ".xliff": functools.partial(_read_catalogue, "read_xliff"),
    ".ts": functools.partial(_read_catalogue, "read_ts"),
    ".xlsx": _read_workbook,
    ".xlsm": _read_workbook,
    ".ods": _read_workbook,
    ".parquet": read_arrow,
    ".arrow": read_arrow,
}


def find_form(path: str | pathlib.Path) -> str:
    """Returns the ending of a file's name if `FORMS` has it, or "".

    >>> find_form("a.tmx.gz"), find_form("corpus/train")
    ('.tmx', '')
    """
    ending = pathlib.Path(str(path).lower().removesuffix(".gz")).suffix
    return ending if ending in FORMS else ""


def find_record_files(name: str) -> list[pathlib.Path]:
    """Finds the files of `FORMS` that a name refers to.

    The name is that of a file, of a folder, of a data set that `datasets`
    saved, or a pattern such as `shards/*.jsonl`. Returns an empty list for the
    prefix of parallel text files.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The name is that of a spreadsheet, of a data set with
            several splits, or of a broken data set.
    """
    path = pathlib.Path(name)
    if path.suffix.lower() in PACKED:
        raise ValueError(f"expected text: unpack it first. Received: {path}")
    if path.suffix.lower() in SPREADSHEETS:
        raise ValueError(
            "expected a spreadsheet as .xlsx, .ods or CSV (UTF-8), with the"
            f" names of the columns as its first row. Received: {path}"
        )
    if glob.has_magic(name) and not path.exists():
        files = [
            pathlib.Path(p) for p in sorted(glob.glob(name, recursive=True))
        ]
        if not (found := [p for p in files if find_form(p) and p.is_file()]):
            raise FileNotFoundError(f"No such file: {path}")
        return found
    if find_form(path) and not path.is_dir():
        if not path.is_file():
            raise FileNotFoundError(f"No such file: {path}")
        return [path]
    if (path / "dataset_dict.json").is_file():
        splits = sorted(str(file.parent) for file in path.glob("*/state.json"))
        raise ValueError(
            f"expected one split: {' or '.join(splits)}. Received: {path}"
        )
    state = path / "state.json"  # written by the library `datasets`
    if not state.is_file():
        # PREFIX.en may be beside a directory PREFIX.
        beside = path.parent.glob(f"{glob.escape(path.name)}.*")
        is_folder = path.is_dir() and not any(p.is_file() for p in beside)
        inside = sorted(path.iterdir()) if is_folder else []
        return [p for p in inside if find_form(p) and p.is_file()]
    names: list[typing.Any]
    try:
        names = [file["filename"] for file in read_json(state)["_data_files"]]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{state}: expected _data_files") from error
    for file in names or [None]:
        is_name = isinstance(file, str) and file == pathlib.Path(file).name
        if not is_name or "\0" in file or find_form(file) != ".arrow":
            raise ValueError(
                f"{state}: expected _data_files, names of .arrow files beside"
                f" it. Received: filename={reprlib.repr(file)}"
            )
    return [path / file for file in names]


def read_records(
    path: pathlib.Path, columns: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yields the sentence pairs of a file, with single spaces for white space.

    Skips the pairs that `open_records` counts as left out.

    Raises:
        ValueError: A record is broken or lacks a sentence; the message has its
            place.
        OSError: The file cannot be read.
    """
    for pair in _read_pairs(path, columns):
        if not isinstance(pair, LeftOut):
            yield pair


def open_records(
    name: str, paths: Sequence[pathlib.Path], columns: Sequence[str]
) -> Pairs:
    """Opens files, and reads all of them once to check and count the pairs.

    Logs a warning with the number of pairs that are left out.

    Raises:
        ValueError, OSError: As in `read_records`; ValueError if there is no
            pair.
    """
    sizes = dict.fromkeys(paths, 0)
    reasons: collections.Counter[str] = collections.Counter()
    languages: set[str] = set()
    found = (
        (path, pair) for path in paths for pair in _read_pairs(path, columns)
    )
    for path, pair in with_bar(found, " pairs"):
        if isinstance(pair, LeftOut):
            reasons[pair.reason] += 1
            languages.update(pair.languages)
        else:
            sizes[path] += 1
    size, empty = sum(sizes.values()), [p for p in paths if not sizes[p]]
    left_out = ", ".join(f"{n:,} {why}" for why, n in reasons.most_common())
    if not size:
        received = ", ".join(sorted(languages)) or left_out or "none"
        raise ValueError(
            f"{name}: expected pairs of {' and '.join(columns)}."
            f" Received: {received}"
        )
    if empty:
        files = f"{len(empty):,} of {len(paths):,} files without a pair"
        left_out += f"{', ' * bool(left_out)}{files} ({empty[0]}, ...)"
    if left_out:
        logging.warning(
            "%s: %s pairs, left out: %s", name, f"{size:,}", left_out
        )
    return Pairs(
        lambda: (
            pair for path in paths for pair in read_records(path, columns)
        ),
        size,
    )


def read_parallel_files(
    prefixes: Sequence[str | os.PathLike],
    source_language: str,
    target_language: str,
    columns: Sequence[str] = (),
) -> Pairs:
    """Reads pairs from files, as `kt-train --train_files` does.

    A prefix names line-aligned files, `PREFIX.LANGUAGE` or their `.gz`. A file
    with an ending of `FORMS`, such as a table, has both languages. A folder or
    a pattern names several of these files. Only a newline ends a line. In a
    text, any run of ASCII white space becomes one space. All files are checked
    before the first pair is read.

    Args:
        prefixes: List of paths; the corpora are read one after the other.
        source_language: Language to translate from, as in `"en"`.
        target_language: Language to translate to, as in `"de"`.
        columns: Names of the source and the target in files with both
            languages. By default the names of the languages.

    Returns:
        `Pairs`, which read the files again in each iteration.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: Two files have different numbers of lines, a line is not
            UTF-8, a record is broken, or a corpus has no pair at all.
    """
    if isinstance(prefixes, str) or not prefixes:
        raise ValueError(
            f"prefixes must be a list of paths. Received: prefixes={prefixes!r}"
        )
    languages = source_language, target_language
    corpora: list[Pairs] = []
    for name in map(str, prefixes):
        if files := find_record_files(name):
            corpora.append(open_records(name, files, columns or languages))
        else:
            corpora.append(read_aligned_files([name], *languages))
    return Pairs.chain(corpora)


def _read_pairs(path, columns):
    """Yields the pairs of a file, and a `LeftOut` for each pair left out."""
    for place, record in FORMS[find_form(path)](path, columns):
        if isinstance(record, LeftOut):
            yield record
            continue
        texts = [_find_text(record, column) for column in columns]
        try:
            yield tuple(map(with_single_spaces, texts))
        except (AttributeError, UnicodeEncodeError) as error:
            raise ValueError(
                f"{place}: expected text in {' and '.join(columns)}, or other"
                f" --columns. Received: {_SHORT.repr(record)}"
            ) from error
