"""Prepared corpora on disk: shards, index, checksums, batches from them."""

import json
import os
import zlib
from unittest import mock

import numpy as np
import pytest
from tolerance import assert_close

from keras_transformer.data import batches as batches_module
from keras_transformer.data import corpus as corpus_module
from keras_transformer.data import shards


def make_rows(num_rows, seed, longest=30):
    """Makes ids and lengths of random rows that end with 2."""
    random = np.random.default_rng(seed)
    lengths = random.integers(2, longest, num_rows).astype(np.uint16)
    ids = random.integers(4, 90, lengths.sum()).astype(np.uint16)
    ids[np.cumsum(lengths) - 1] = 2
    return ids, lengths


def write_corpus(folder, sizes, kind=np.uint16):
    """Writes a prepared corpus. Returns its sides as `(ids, lengths)`."""
    records, sides = [], ([], [])
    for number, size in enumerate(sizes):
        written = []
        for side, seed in enumerate((2 * number, 2 * number + 1)):
            ids, lengths = make_rows(size, seed)
            written.append((ids.astype(kind), lengths))
            sides[side].append(written[-1])
        path = folder / f"{number:05}.shard"
        records.append(shards.write_shard(path, *written))
    index = {
        "format_version": shards.FORMAT_VERSION,
        "source_language": "en",
        "target_language": "de",
        "vocab_size": 90,
        "tokenizer_sha256": "",
        "max_length": 30,
        "settings": {},
        "ids": np.dtype(kind).name,
        "read": sum(sizes) + 5,
        "kept": sum(sizes),
        "dropped": {"empty": 2, "duplicate": 3},
        "shards": records,
    }
    (folder / shards.INDEX).write_text(json.dumps(index))
    return [
        tuple(map(np.concatenate, zip(*side, strict=True))) for side in sides
    ]


@pytest.mark.parametrize("kind", [np.uint16, np.int32])
@pytest.mark.parametrize("sizes", [[7], [5, 1, 9]])
def test_what_is_written_is_read(tmp_path, sizes, kind):
    sides = write_corpus(tmp_path, sizes, kind)
    corpus = shards.read_prepared(tmp_path)
    assert len(corpus) == sum(sizes)
    for rows, (ids, lengths) in zip(
        (corpus.source, corpus.target), sides, strict=True
    ):
        assert len(rows.ids) == len(ids)
        found = rows.ids[np.arange(len(ids))]
        assert found.dtype == kind
        np.testing.assert_array_equal(found, ids)
        np.testing.assert_array_equal(rows.lengths, lengths)
    np.testing.assert_array_equal(
        corpus.longer_side, np.maximum(sides[0][1], sides[1][1])
    )
    assert str(corpus.counts) == (
        f"{sum(sizes) + 5} pairs read, {sum(sizes)} kept; dropped: 2 with an"
        " empty side, 3 with the same text as an earlier pair"
    )


def test_batches_are_those_of_the_same_corpus_in_memory(tmp_path):
    sides = write_corpus(tmp_path, [40, 3, 57])
    prepared = shards.read_prepared(tmp_path)
    rows = [
        corpus_module.TokenRows(
            ids, np.concatenate([[0], np.cumsum(lengths, dtype=int)])
        )
        for ids, lengths in sides
    ]
    corpus = corpus_module.Corpus(
        *rows, corpus_module.CorpusCounts(100, 100, 0, 0, 30)
    )
    for seed in (None, 3):
        batches, expected = (
            batches_module.make_batches(each, 200, num_buckets=3, seed=seed)
            for each in (prepared, corpus)
        )
        assert str(batches) == str(expected)
        orders = batches.epoch_order(1), expected.epoch_order(1)
        for one, other in zip(*orders, strict=True):
            assert_close(one, other)
            assert_close(batches.assemble(*one), expected.assemble(*other))


def test_ids_stay_on_disk(tmp_path):
    write_corpus(tmp_path, [5, 6])
    corpus = shards.read_prepared(tmp_path)
    for rows in (corpus.source, corpus.target):
        for array in rows.ids._arrays:
            while array.base is not None and not isinstance(array, np.memmap):
                array = array.base
            assert isinstance(array, np.memmap)


@pytest.mark.parametrize(
    "corrupt, reason",
    [
        (lambda path: path.unlink(), "No such file"),
        (lambda path: path.write_bytes(b""), "empty file"),
        (lambda path: os.truncate(path, path.stat().st_size - 2), "expected"),
        (lambda path: path.write_bytes(path.read_bytes() + b"x"), "expected"),
        (lambda path: flip_bit(path), "checksum"),
    ],
)
def test_a_corrupt_shard_is_named(tmp_path, corrupt, reason):
    write_corpus(tmp_path, [4, 5, 6])
    corrupt(tmp_path / "00001.shard")
    with pytest.raises(ValueError, match=rf"shard .*00001\.shard: .*{reason}"):
        shards.read_prepared(tmp_path)


def flip_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def test_without_an_index_it_is_not_finished(tmp_path):
    write_corpus(tmp_path, [4])
    (tmp_path / shards.INDEX).unlink()
    message = r"not a finished .*: no index\.json; run kt-prepare"
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(ValueError, match=message):
            shards.read_prepared(path)


@pytest.mark.parametrize(
    "text, reason",
    [
        ("{", "not JSON"),
        ('{"a": ' * 100_000, "not JSON"),
        ("\x00", "not JSON"),
        ('{"format_version": 9}', "9$"),
        ('{"shards": []}', "None$"),
        ("[]", "an object. Received: list$"),
    ],
)
def test_another_index_is_an_error(tmp_path, text, reason):
    (tmp_path / shards.INDEX).write_text(text)
    with pytest.raises(ValueError, match=rf"index\.json: .*{reason}"):
        shards.read_prepared(tmp_path)


RECORD = r"index\.json: shards\[0\]: .*"


@pytest.mark.parametrize(
    "record, change, message",
    [
        *((False, {name: None}, f"expected {name}, .*: {name}=None$")
          for name in shards.INDEX_KEYS),
        (False, {"shards": []}, r"a list with entries\. Received: shards=\[\]"),
        (False, {"shards": [1]}, f"{RECORD}expected file, text. Rec.*: file=N"),
        (False, {"shards": [{}]}, f"{RECORD}expected file, text"),
        (False, {"max_length": "9"}, "a whole number.*max_length='9'"),
        (False, {"max_length": True}, "a whole number.*max_length=True"),
        (False, {"read": -1}, "read, a whole number, 0 or more. Rec.*read=-1"),
        (False, {"ids": "float64"}, "uint16, int32. Received: ids='float64'"),
        (True, {"file": ""}, "corrupt shard .*: .*directory"),
        (True, {"pairs": 0}, r"00000\.shard: expected [0-9,]+ bytes"),
        (True, {"pairs": 5}, r"00000\.shard: expected [0-9,]+ bytes"),
        (True, {"source_tokens": 10**9}, r"00000\.shard: expected [0-9,]+ byt"),
        (True, {"file": "../x"}, f"{RECORD}beside it. Received: file='../x'"),
        (True, {"file": "/x"}, f"{RECORD}expected a file beside it.*'/x'"),
        (True, {"crc32": None}, f"{RECORD}crc32, a whole number.*crc32=None"),
    ],
)  # fmt: skip
def test_a_corrupt_index_is_one_clear_line(tmp_path, record, change, message):
    """The index itself is corrupt, or its first record."""
    write_corpus(tmp_path, [4])
    path = tmp_path / shards.INDEX
    index = json.loads(path.read_text())
    (index["shards"][0] if record else index).update(change)
    path.write_text(json.dumps(index))
    with pytest.raises(ValueError, match=message) as error:
        shards.read_prepared(tmp_path)
    assert "\n" not in str(error.value)


def test_the_checksum_is_of_the_contents(tmp_path):
    checksums = set()
    for name, sizes in (("a", [5, 1, 9]), ("b", [1, 5, 9]), ("c", [5, 1, 9])):
        (tmp_path / name).mkdir()
        write_corpus(tmp_path / name, sizes)
        checksums.add(shards.read_prepared(tmp_path / name).checksum)
    assert len(checksums) == 2
    # The same sizes and one other id.
    path = tmp_path / "a" / "00001.shard"
    flip_bit(path)
    index_path = tmp_path / "a" / shards.INDEX
    index = json.loads(index_path.read_text())
    index["shards"][1]["crc32"] = zlib.crc32(path.read_bytes())
    index_path.write_text(json.dumps(index))
    checksums.add(shards.read_prepared(tmp_path / "a").checksum)
    assert len(checksums) == 3


def test_a_stopped_writer_leaves_no_shard(tmp_path, monkeypatch):
    side = np.zeros(3, np.uint16), np.array([3], np.uint16)
    stop = mock.Mock(side_effect=KeyboardInterrupt)
    monkeypatch.setattr(shards.zlib, "crc32", stop)
    with pytest.raises(KeyboardInterrupt):
        shards.write_shard(tmp_path / "00000.shard", side, side)
    assert not (tmp_path / "00000.shard").exists()
