"""Prepared corpora: ids on disk, in shards, read through memory maps.

    index.json        languages, settings, counts, and the shards with their
                      sizes and checksums; written last
    tokenizer.model   the vocabulary of the ids
    00000.shard ...   the pairs, in the order of the corpus

A shard is four arrays, little-endian, one after the other:

    source ids, target ids            uint16 or int32 [tokens]
    source lengths, target lengths    uint16 [pairs], EOS counted

`kt-prepare` writes them; `read_prepared` returns the corpus for
`make_batches`.
"""

import concurrent.futures
import dataclasses
import os
import pathlib
import zlib

import numpy as np
import tqdm

from keras_transformer.base.files import read_json
from keras_transformer.base.machine import count_cores
from keras_transformer.data.corpus import JoinedIds, SameEveryEpoch, TokenRows

FORMAT_VERSION = 1
INDEX = "index.json"
TOKENIZER = "tokenizer.model"
LENGTHS = np.dtype("<u2")
LONGEST = 2**16 - 1  # tokens of a row that a shard can hold
ID_DTYPES = ("uint16", "int32")
# Reasons to drop a pair, by their names in the index.
REASONS = {
    "empty": "an empty side",
    "unreadable": "control or replacement characters",
    "identical": "the same text on both sides",
    "long_word": "a word that is too long",
    "no_letter": "a side without a letter",
    "few_letters": "too few letters",
    "too_short": "too few tokens",
    "too_long": "too many tokens",
    "uneven": "sides of very different length",
    "duplicate": "the same text as an earlier pair",
}

# Required keys of the index and of each shard, besides format_version.
INDEX_KEYS = {
    "source_language": str,
    "target_language": str,
    "vocab_size": int,
    "tokenizer_sha256": str,
    "max_length": int,
    "ids": str,
    "read": int,
    "kept": int,
    "dropped": dict,
    "settings": dict,
    "shards": list,
}
SHARD_KEYS = {
    "file": str,
    "pairs": int,
    "source_tokens": int,
    "target_tokens": int,
    "crc32": int,
}
KIND_NAMES = {
    str: "text",
    int: "a whole number, 0 or more",
    dict: "an object",
    list: "a list with entries",
}


@dataclasses.dataclass(frozen=True)
class PreparedCounts:
    """The numbers of pairs that were read, kept and dropped."""

    read: int
    dropped: dict[str, int]  # by their reason in `REASONS`

    @property
    def kept(self):
        return self.read - sum(self.dropped.values())

    def __str__(self):
        dropped = ", ".join(
            f"{number:,} with {REASONS.get(reason, reason)}"
            for reason, number in self.dropped.items()
            if number
        )
        return (
            f"{self.read:,} pairs read, {self.kept:,} kept; dropped:"
            f" {dropped or 'none'}"
        )


@dataclasses.dataclass(frozen=True)
class PreparedCorpus(SameEveryEpoch):
    """The ids of a prepared corpus, for `make_batches`."""

    source: TokenRows  # with ids on disk
    target: TokenRows
    longer_side: np.ndarray  # tokens of each pair's longer side, uint16 [pairs]
    counts: PreparedCounts
    checksum: int  # of all shards, in order

    def __len__(self):
        return len(self.longer_side)


IdRows = tuple[np.ndarray, np.ndarray]  # flat ids, uint16 lengths


# ------------------------------------------------------------------- writing


def write_shard(
    path: str | os.PathLike, source: IdRows, target: IdRows
) -> dict:
    """Writes a shard atomically and returns its entry for the index."""
    path = pathlib.Path(path)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    (source_ids, source_lengths), (target_ids, target_lengths) = source, target
    size = checksum = 0
    with open(unfinished, "wb") as file:
        for array in (source_ids, target_ids, source_lengths, target_lengths):
            little_endian = array.dtype.newbyteorder("<")
            content = np.ascontiguousarray(array, little_endian).data
            checksum = zlib.crc32(content, checksum)
            size += file.write(content)
    os.replace(unfinished, path)
    return {
        "file": path.name,
        "pairs": len(source_lengths),
        "source_tokens": len(source_ids),
        "target_tokens": len(target_ids),
        "bytes": size,
        "crc32": checksum,
    }


# ------------------------------------------------------------------- reading


def read_index(directory: str | os.PathLike) -> dict:
    """Reads a prepared corpus' index. Raises ValueError if it is invalid."""
    path = pathlib.Path(directory) / INDEX
    try:
        index = read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(
            f"{directory} is not a finished prepared corpus: no {INDEX}; run"
            " kt-prepare"
        ) from None
    version = index.get("format_version")
    if version != FORMAT_VERSION:
        raise ValueError(
            f"{path}: expected format_version {FORMAT_VERSION}."
            f" Received: format_version={version!r}"
        )
    _check_keys(path, index, INDEX_KEYS)
    if index["ids"] not in ID_DTYPES:
        raise ValueError(
            f"{path}: expected ids, one of {', '.join(ID_DTYPES)}."
            f" Received: ids={index['ids']!r}"
        )
    for number, shard in enumerate(index["shards"]):
        _check_keys(f"{path}: shards[{number}]", shard, SHARD_KEYS)
        if pathlib.PurePath(shard["file"]).name != shard["file"]:
            raise ValueError(
                f"{path}: shards[{number}]: expected a file beside it."
                f" Received: file={shard['file']!r:.60}"
            )
    return index


def _check_keys(place, values, keys):
    """Raises ValueError unless an object has a valid value for each key."""
    for name, kind in keys.items():
        value = values.get(name) if isinstance(values, dict) else None
        if (
            type(value) is not kind
            or (kind is int and value < 0)
            or (kind is list and not value)
        ):
            raise ValueError(
                f"{place}: expected {name}, {KIND_NAMES[kind]}."
                f" Received: {name}={value!r:.60}"
            )


def read_prepared(directory: str | os.PathLike) -> PreparedCorpus:
    """Opens a prepared corpus.

    The size and checksum of every shard are checked, which reads the shards
    from disk into the page cache. The system can reclaim the memory of the ids
    at any time. The offsets of the rows and `longer_side` take 18 bytes a pair.

    Args:
        directory: The directory that `kt-prepare` wrote.

    Returns:
        The `PreparedCorpus`.

    Raises:
        ValueError: The directory is not a finished prepared corpus, its index
            is corrupt, or a shard is missing or corrupt; the message names it.
    """
    directory = pathlib.Path(directory)
    index = read_index(directory)
    dtype = np.dtype(index["ids"])
    with concurrent.futures.ThreadPoolExecutor(count_cores()) as threads:
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
        TokenRows.of_lengths(JoinedIds(source_ids), source_lengths),
        TokenRows.of_lengths(JoinedIds(target_ids), target_lengths),
        np.maximum(source_lengths, target_lengths),
        PreparedCounts(index["read"], index["dropped"]),
        _checksum_of(index["shards"]),
    )


def _open_shard(directory, shard, dtype):
    """Returns the arrays of a shard, in the order that the module describes.

    Ids stay on disk, lengths are in memory.
    """
    path = directory / shard["file"]
    ids = dtype.newbyteorder("<")
    parts = (
        (shard["source_tokens"], ids),
        (shard["target_tokens"], ids),
        (shard["pairs"], LENGTHS),
        (shard["pairs"], LENGTHS),
    )
    try:
        content = np.memmap(path, np.uint8, "r")
    except (OSError, ValueError) as error:
        raise ValueError(f"corrupt shard {path}: {error}") from None
    size = sum(count * kind.itemsize for count, kind in parts)
    if len(content) != size:
        raise ValueError(
            f"corrupt shard {path}: expected {size:,} bytes."
            f" Received: {len(content):,} bytes"
        )
    if zlib.crc32(content) != shard["crc32"]:
        raise ValueError(f"corrupt shard {path}: checksum mismatch")
    arrays, stop = [], 0
    for count, kind in parts:
        start, stop = stop, stop + count * kind.itemsize
        arrays.append(np.asarray(content[start:stop].view(kind)))
    source, target, *lengths = arrays
    return source, target, *(array.astype(np.uint16) for array in lengths)


def _checksum_of(records: list[dict]) -> int:
    """Computes a checksum of all shards from their index entries."""
    sizes = ("pairs", "source_tokens", "target_tokens", "crc32")
    contents = [[record[name] for name in sizes] for record in records]
    return zlib.crc32(repr(contents).encode())
