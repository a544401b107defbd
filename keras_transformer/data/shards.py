"""Prepared corpora: ids on disk, in shards, read through memory maps.

    index.json        languages, settings, counts, and the shards with their
                      sizes and checksums; written last
    tokenizer.model   the vocabulary the ids are of
    00000.shard ...   the pairs, in the order of the corpus

A shard is four arrays, little-endian, one after the other:

    source ids, target ids            uint16 or int32 [tokens]
    source lengths, target lengths    uint16 [pairs], end mark counted

`trainers.prepare` writes them; `read_prepared` gives what `make_batches` takes.
"""

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import zlib

import numpy as np
import tqdm

from keras_transformer.data.cleaning import REASONS
from keras_transformer.data.corpus import TokenRows

FORMAT_VERSION = 1
INDEX = "index.json"
TOKENIZER = "tokenizer.model"
LENGTHS = np.dtype("<u2")
LONGEST = 2**16 - 1  # tokens of a row that a shard can hold


@dataclasses.dataclass(frozen=True)
class PreparedCounts:
    """What became of the pairs that were read.

    Attributes:
        read: Pairs of the corpus.
        dropped: Pairs dropped, by their reason in `REASONS`.
    """

    read: int
    dropped: dict

    @property
    def kept(self):
        return self.read - sum(self.dropped.values())

    def __str__(self):
        dropped = ", ".join(
            f"{number:,} with {REASONS[reason]}"
            for reason, number in self.dropped.items()
            if number
        )
        return (
            f"{self.read:,} pairs read, {self.kept:,} kept; dropped:"
            f" {dropped or 'none'}"
        )


@dataclasses.dataclass(frozen=True)
class PreparedCorpus:
    """The ids of a prepared corpus; a `Corpus` to `make_batches`.

    Attributes:
        source: `TokenRows` of the source sentences, their ids on disk.
        target: The same of the target sentences.
        longer_side: Tokens of the longer side of each pair, uint16 `[pairs]`.
        counts: `PreparedCounts`.
        checksum: A number for the contents: all ids, in their order.
    """

    source: TokenRows
    target: TokenRows
    longer_side: np.ndarray
    counts: PreparedCounts
    checksum: int

    def __len__(self):
        return len(self.longer_side)


class JoinedIds:
    """Flat ids in several arrays, indexed as if they were one.

    Args:
        arrays: List of integers `[tokens]`, none of them empty.

    >>> JoinedIds([np.array([5, 6, 2]), np.array([7, 2])])[[3, 0, 4]]
    array([7, 5, 2])
    """

    def __init__(self, arrays):
        self._arrays = arrays
        self._ends = np.cumsum([len(array) for array in arrays])

    def __len__(self):
        return int(self._ends[-1])

    def __getitem__(self, positions):
        """The ids at some positions, integers `[N]`."""
        positions = np.asarray(positions)
        if len(self._arrays) == 1 or not len(positions):
            return self._arrays[0][positions]
        which = np.searchsorted(self._ends, positions, side="right")
        order = np.argsort(which.astype(np.uint16), kind="stable")
        counts = np.bincount(which, minlength=len(self._arrays))
        found = np.empty(len(positions), self._arrays[0].dtype)
        stop = 0
        for number in np.flatnonzero(counts):
            start, stop = stop, stop + counts[number]
            array, these = self._arrays[number], order[start:stop]
            first = self._ends[number] - len(array)
            found[these] = array[positions[these] - first]
        return found


# ------------------------------------------------------------------- writing


def write_shard(path, source, target):
    """Writes a shard, whole or not at all.

    Args:
        path: The file.
        source, target: `(ids, lengths)` of each side; each a list of arrays
            that are put one after the other.

    Returns:
        What the index says of the shard: a dictionary.
    """
    path = pathlib.Path(path)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    sides = (source, target)
    size = checksum = 0
    with open(unfinished, "wb") as file:
        for arrays in (*(ids for ids, _ in sides), *(n for _, n in sides)):
            for array in arrays:
                content = _little_endian(array).data
                checksum = zlib.crc32(content, checksum)
                size += file.write(content)
    os.replace(unfinished, path)
    return {
        "file": path.name,
        "pairs": sum(map(len, source[1])),
        "source_tokens": sum(map(len, source[0])),
        "target_tokens": sum(map(len, target[0])),
        "bytes": size,
        "crc32": checksum,
    }


def _little_endian(array):
    """The array as it is on disk."""
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<"))


# ------------------------------------------------------------------- reading


def read_index(directory):
    """The index of a prepared corpus, a dictionary.

    Raises:
        ValueError: The directory is not one, or not finished, or another
            version wrote it.
    """
    path = pathlib.Path(directory) / INDEX
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(
            f"{directory} is no prepared corpus, or not finished: no {INDEX};"
            " run trainers.prepare (again)"
        ) from None
    except ValueError as error:
        raise ValueError(f"{path}: not JSON: {error}") from None
    version = index.get("format_version") if isinstance(index, dict) else None
    if version != FORMAT_VERSION:
        raise ValueError(
            f"{path}: expected format_version {FORMAT_VERSION}."
            f" Received: format_version={version!r}"
        )
    return index


def read_prepared(directory):
    """The pairs of a prepared corpus.

    Every shard is held against its size and checksum, at the speed of the disk;
    what was read so is in the page cache when training begins. After that, the
    ids take no memory that the system could not have back; the lengths and
    beginnings of the rows take 18 bytes a pair.

    Args:
        directory: What `trainers.prepare` wrote.

    Returns:
        The `PreparedCorpus`.

    Raises:
        ValueError: The directory is not one, or not finished, or a shard is
            missing or damaged; it is named.
    """
    directory = pathlib.Path(directory)
    index = read_index(directory)
    dtype = np.dtype(index["ids"])
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
        shards = list(
            tqdm.tqdm(
                threads.map(
                    lambda shard: _open_shard(directory, shard, dtype),
                    index["shards"],
                ),
                "check",
                len(index["shards"]),
                disable=None,
                unit=" shards",
            )
        )
    source_ids, target_ids, *lengths = zip(*shards, strict=True)
    source_lengths, target_lengths = map(np.concatenate, lengths)
    return PreparedCorpus(
        TokenRows(JoinedIds(source_ids), _offsets(source_lengths)),
        TokenRows(JoinedIds(target_ids), _offsets(target_lengths)),
        np.maximum(source_lengths, target_lengths),
        PreparedCounts(index["read"], index["dropped"]),
        _checksum_of(index["shards"]),
    )


def open_shard(directory, shard, dtype):
    """The arrays of a shard, mapped; see the file's docstring for their order.

    Args:
        directory: Where it lies.
        shard: What the index says of it.
        dtype: Of the ids, as the index says.

    Raises:
        ValueError: It is missing or damaged.
    """
    path = pathlib.Path(directory) / shard["file"]
    ids, lengths = np.dtype(dtype).newbyteorder("<"), LENGTHS
    try:
        content = np.memmap(path, np.uint8, "r")
    except (OSError, ValueError) as error:
        raise ValueError(f"damaged shard {path}: {error}") from None
    if len(content) != shard["bytes"]:
        raise ValueError(
            f"damaged shard {path}: expected {shard['bytes']:,} bytes."
            f" Received: {len(content):,} bytes"
        )
    if zlib.crc32(content) != shard["crc32"]:
        raise ValueError(
            f"damaged shard {path}: its bytes do not give the checksum in the"
            " index"
        )
    arrays, stop = [], 0
    for count, kind in (
        (shard["source_tokens"], ids),
        (shard["target_tokens"], ids),
        (shard["pairs"], lengths),
        (shard["pairs"], lengths),
    ):
        start, stop = stop, stop + count * kind.itemsize
        arrays.append(content[start:stop].view(kind))
    return arrays


def _open_shard(directory, shard, dtype):
    """As `open_shard`, the lengths in memory and the ids as bare arrays."""
    source, target, *lengths = map(
        np.asarray, open_shard(directory, shard, dtype)
    )
    return source, target, *(array.astype(np.uint16) for array in lengths)


def _checksum_of(records):
    """A number for the contents of all shards, from what the index says."""
    sizes = ("pairs", "source_tokens", "target_tokens", "crc32")
    contents = [[record[name] for name in sizes] for record in records]
    return zlib.crc32(repr(contents).encode())


def _offsets(lengths):
    """Where rows of these lengths begin, and the end."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, dtype=np.int64, out=offsets[1:])
    return offsets
