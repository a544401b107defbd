"""Sources of sentence pairs: parallel text files and TensorFlow Datasets."""

import codecs
import contextlib
import gzip
import io
import itertools
import os
import pathlib
import re
import typing
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence, Set

import tqdm

from keras_transformer.base.refusals import expect

# The delimiter in Excel's first line of a table, `sep=;`.
SEPARATOR = re.compile(r'"?sep=([^\w"\r\n])"?\s*', re.I)
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
Item = typing.TypeVar("Item")
ZIP = b"PK\3\4"
FIRST_BYTES = 4096  # a NUL among them shows that a file is binary


class Pairs:
    """Sentence pairs that can be read more than once.

    Args:
        read: Function without arguments that returns an iterator over pairs
            `(source, target)` of `str`.
        num_pairs: The number of pairs.
        sizes: The number of pairs in each corpus, in order. None means one
            corpus.
        directions: The source and target language of each corpus, if the model
            needs them.
    """

    def __init__(
        self,
        read: Callable[[], Iterator[tuple[str, str]]],
        num_pairs: int,
        sizes: Sequence[int] | None = None,
        directions: Sequence[tuple[str, str]] = (),
    ):
        self._read = read
        self._num_pairs = num_pairs
        self.sizes = [num_pairs] if sizes is None else sizes
        self.directions = directions

    @classmethod
    def of(cls, pairs: Sequence[tuple[str, str]]) -> "Pairs":
        """Wraps pairs that are in memory."""
        return cls(lambda: iter(pairs), len(pairs))

    @classmethod
    def chain(cls, corpora: Sequence["Pairs"]) -> "Pairs":
        """Joins corpora, one after the other."""
        sizes = [len(pairs) for pairs in corpora]
        chain = itertools.chain.from_iterable
        return cls(lambda: chain(corpora), sum(sizes), sizes)

    def noting(self, wanted: Set, found: set) -> "Pairs":
        """Returns the same pairs; those in `wanted` are added to `found`."""

        def read() -> Iterator[tuple[str, str]]:
            for pair in self:
                if pair in wanted:
                    found.add(pair)
                yield pair

        return Pairs(read, len(self), self.sizes, self.directions)

    def divide(self, share: float) -> tuple["Pairs", "Pairs"]:
        """Divides the pairs by checksums of their sources; reads them once.

        All pairs with the same source are on the same side. Returns those that
        are drawn, about `share` of all sources, and the others.
        """

        def is_drawn(pair: tuple[str, str]) -> bool:
            return zlib.crc32(pair[0].encode()) < share * 2**32

        rows = iter(self)
        drawn = [
            sum(map(is_drawn, itertools.islice(rows, size)))
            for size in self.sizes
        ]
        others = [a - b for a, b in zip(self.sizes, drawn, strict=True)]
        return (
            Pairs(
                lambda: filter(is_drawn, self),
                *(sum(drawn), drawn, self.directions),
            ),
            Pairs(
                lambda: itertools.filterfalse(is_drawn, self),
                *(sum(others), others, self.directions),
            ),
        )

    def in_memory(self) -> "Pairs":
        """Reads the pairs once and keeps them in memory."""
        pairs = list(self)
        return Pairs(
            lambda: iter(pairs), len(pairs), self.sizes, self.directions
        )

    def by_direction(self) -> Iterator[tuple[tuple[str, str], Iterator]]:
        """Yields each of `directions` with its pairs, to be read in order."""
        pairs = iter(self)
        for codes, size in zip(self.directions, self.sizes, strict=True):
            yield codes, itertools.islice(pairs, size)

    def __len__(self) -> int:
        return self._num_pairs

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return self._read()


def read_aligned_files(
    prefixes: Sequence[str | os.PathLike],
    source_language: str,
    target_language: str,
) -> Pairs:
    """Reads line-aligned files; see `read_parallel_files`."""
    languages = source_language, target_language
    corpora = [
        [find_file(prefix, language) for language in languages]
        for prefix in prefixes
    ]
    sizes = [_count_pairs(*paths) for paths in corpora]
    expect(
        sum(sizes), "lines in the corpus", f"prefixes={[*map(str, prefixes)]}"
    )

    def read() -> Iterator[tuple[str, str]]:
        for paths in corpora:
            yield from zip(*map(read_lines, paths), strict=True)

    return Pairs(read, sum(sizes), sizes)


def has_file(prefix: str | os.PathLike, language: str) -> bool:
    """Returns whether there is `PREFIX.LANGUAGE`, or its `.gz`."""
    return any(path.is_file() for path in _paths(prefix, language))


def find_file(prefix: str | os.PathLike, language: str) -> pathlib.Path:
    """Finds `PREFIX.LANGUAGE`, or else its `.gz`.

    Raises FileNotFoundError if there is neither.
    """
    plain, zipped = _paths(prefix, language)
    for path in (plain, zipped):
        if path.is_file():
            return path
    if pathlib.Path(prefix).is_file():
        raise FileNotFoundError(
            f"expected PREFIX of the files PREFIX.{language} or"
            f" PREFIX.{language}.gz, without the language, and a file for the"
            " other language; tables that end in .tsv or .csv are read, too."
            f" Received: {prefix}, which is a file"
        )
    is_name = language.istitle() and len(language) > 3  # English, not en
    hint = "; a language is a code, such as en" if is_name else ""
    raise FileNotFoundError(f"No such file: {plain} or {zipped}{hint}")


def _paths(prefix, language):
    plain = pathlib.Path(f"{prefix}.{language}")
    return plain, pathlib.Path(f"{plain}.gz")


def _count_pairs(source_path, target_path):
    """Counts the lines of two files. Raises ValueError if they differ."""
    source_lines, target_lines = (
        sum(1 for _ in with_bar(read_lines(path), " lines"))
        for path in (source_path, target_path)
    )
    expect(
        source_lines == target_lines,
        "as many lines in both files",
        f"{source_lines:,} in {source_path}, {target_lines:,} in {target_path}",
    )
    return source_lines


def with_bar(items: Iterator[Item], unit: str) -> Iterator[Item]:
    """Yields the items. On a terminal, a bar counts them after two seconds."""
    return tqdm.tqdm(items, "read", disable=None, unit=unit, delay=2)


def read_lines(path: pathlib.Path) -> Iterator[str]:
    """Yields the lines of a file, with single spaces for ASCII white space.

    Other white space is left to SentencePiece, as in translation.

    Raises ValueError and OSError as `whole_lines` does.
    """
    return map(with_single_spaces, whole_lines(path))


def whole_lines(path: pathlib.Path) -> Iterator[str]:
    """Yields the lines of a file as they are, with their ends.

    Raises ValueError if a line is not UTF-8, if a `.gz` file is corrupt, or as
    `text_lines` does. Raises OSError if the file cannot be read.
    """
    with open_bytes(path) as file:
        try:
            # Bytes are split into lines only at \n. Strings would also be split
            # at U+2028 and the like.
            for number, line in enumerate(text_lines(file, path), 1):
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}, line {number}: not UTF-8"
                f" ({error.reason}, byte {error.start + 1} of the line);"
                " iconv -f WINDOWS-1252 -t UTF-8 converts Excel's plain CSV"
            ) from error


@contextlib.contextmanager
def open_bytes(path: pathlib.Path) -> Iterator[io.BufferedIOBase]:
    """Opens a file. A `.gz` file is decompressed while it is read.

    Raises ValueError if a `.gz` file is corrupt. Raises OSError if the file
    cannot be read.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as file:
        try:
            yield file
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"{path}: corrupt gzip file ({error})") from error


def text_lines(file: Iterable[bytes], name: object) -> Iterator[bytes]:
    """Yields the lines of a file as they are.

    Raises ValueError if the file is a zip archive, begins with the byte order
    mark of UTF-16, or has a NUL byte in its first lines, as UTF-32 and UTF-16
    without the mark have.
    """
    size = 0
    for line in file:
        if not size and line.startswith(ZIP):
            raise ValueError(
                f"{name}: expected text in UTF-8. Received: a zip archive, such"
                " as a document, or a spreadsheet: save that as CSV"
            )
        is_marked = not size and line.startswith(UTF_16)
        if is_marked or (size < FIRST_BYTES and b"\0" in line):
            raise ValueError(
                f"{name}: expected text in UTF-8. Received: UTF-16, or no text;"
                " iconv -f UTF-16 -t UTF-8 converts it"
            )
        size += len(line)
        yield line


def with_single_spaces(text: str) -> str:
    r"""Strips ASCII white space, and replaces each inner run by one space.

    >>> with_single_spaces(" a\t b\x85c\n")
    'a b\x85c'
    """
    # Unlike strings, bytes are split at ASCII white space alone.
    return b" ".join(text.encode().split()).decode()


class MissingSplitError(ValueError):
    """The data set does not have the requested split."""


def check_prepared(name: str, data_dir: str | os.PathLike | None) -> None:
    """Raises ValueError if `read_tfds` would download a data set."""
    builder = _make_builder(name, data_dir)
    if not builder.data_path.is_dir():
        root = builder.data_dir_root
        raise ValueError(
            f"{name} is not in {root}, and a dry run does not download it;"
            f" tfds build {name} --data_dir={root} does"
        )


def _make_builder(name, data_dir):
    import tensorflow_datasets as tfds  # slow to import, and seldom needed

    try:
        return tfds.builder(name, data_dir=data_dir)
    except ValueError as error:  # further lines list all data sets
        reason = str(error).splitlines()[0]
        raise ValueError(f"No such data set: {name!r} ({reason})") from error


def read_tfds(
    name: str,
    split: str,
    source_language: str,
    target_language: str,
    data_dir: str | os.PathLike | None = None,
) -> Pairs:
    """Reads a translation data set of TensorFlow Datasets.

    Data that is not in `data_dir` is downloaded.

    Args:
        name: Name of the data set, as in `"wmt14_translate/de-en"`.
        split: Its split, as in `"train"` or `"train[:10%]"`.
        source_language: Feature to translate from, as in `"en"`.
        target_language: Feature to translate to, as in `"de"`.
        data_dir: Directory of prepared data sets. None means the default of
            TensorFlow Datasets, `~/tensorflow_datasets`.

    Returns:
        `Pairs`, which read the data set again in each iteration.

    Raises:
        MissingSplitError: The data set has no such split.
        ValueError: The data set, or one of the languages in it, is unknown.
    """
    builder = _make_builder(name, data_dir)
    features = builder.info.features
    languages = source_language, target_language
    for language in languages:
        if language not in features:
            raise ValueError(
                f"Languages of {name} must be among"
                f" {', '.join(sorted(features))}. Received: {language!r}"
            )
    builder.download_and_prepare()
    if split.split("[")[0] not in builder.info.splits:
        raise MissingSplitError(
            f"{name} has {', '.join(builder.info.splits)}. Received: {split=}"
        )
    dataset = builder.as_dataset(split=split).batch(1024)

    def read() -> Iterator[tuple[str, str]]:
        for examples in dataset.as_numpy_iterator():
            for pair in zip(*map(examples.get, languages), strict=True):
                source, target = (side.decode() for side in pair)
                yield with_single_spaces(source), with_single_spaces(target)

    return Pairs(read, builder.info.splits[split].num_examples)
