"""The work of `trainers.prepare`: opened, then done stage by stage.

The command itself, `prepare.py`, has the flags; this file is imported after
they are parsed, since it imports TensorFlow.
"""

import collections
import contextlib
import dataclasses
import itertools
import os

import numpy as np
import tqdm

from keras_transformer.commands.flags import CommandError, show
from keras_transformer.data import cleaning, shards
from keras_transformer.data.pairs import find_file
from keras_transformer.data.shards import read_json
from keras_transformer.machine import count_cores
from keras_transformer.tokenization import Tokenizer
from trainers.preparing.folder import write_json
from trainers.run.corpora import read_split, sha256

PARTITION_PAIRS = 2**20  # compared with each other at a time, for duplicates


def settings_of(corpus, cleaning_options, options, tokenizer):
    """Settings that determine the output: a dictionary to compare.

    Files are known by size and time of change, a tokenizer by its content.
    """
    settings = {
        **dataclasses.asdict(corpus),
        **dataclasses.asdict(cleaning_options),
        "shard_pairs": options.shard_pairs,
        "tokenizer": sha256(tokenizer.model_bytes) if tokenizer else "",
        "train_files": [],
    }
    for prefix in corpus.train_files:
        for language in (corpus.source_language, corpus.target_language):
            path = find_file(prefix, language)
            status = path.stat()
            settings["train_files"].append(
                f"{path} ({status.st_size} bytes, {status.st_mtime_ns})"
            )
    return settings


def open_vocabulary(folder, corpus, pairs, cleaning_options, given):
    """The vocabulary of an earlier run; else the one given; else a new one."""
    path = folder.unfinished / shards.TOKENIZER
    if folder.settings.exists():
        return Tokenizer.load(path if path.exists() else folder.tokenizer)
    tokenizer = given
    if tokenizer is None:
        step = -(-len(pairs) // corpus.vocabulary_pairs)
        show(
            f"training a vocabulary of {corpus.vocab_size:,} subwords on"
            f" {-(-len(pairs) // step):,} pairs"
        )
        judge = cleaning.TextRules(**cleaning_options.text_rules()).judge
        lines = (
            line
            for pair in itertools.islice(pairs, 0, None, step)
            if judge(*pair) == cleaning.KEPT
            for line in pair
        )
        tokenizer = Tokenizer.train(lines, corpus.vocab_size)
    folder.unfinished.mkdir(parents=True, exist_ok=True)
    tokenizer.save(path)
    return tokenizer


def open_preparation(
    folder, data, options, corpus, cleaning_options, tokenizer
):
    """The `Preparation` of a command line; None if all is done already.

    Bad input is found here, before work begins.

    Args:
        folder: The locked `Folder`.
        data: The `DataConfig` that names the pairs.
        options, corpus, cleaning_options: The sections of the command line.
        tokenizer: The `Tokenizer` that it names, or None.

    Raises:
        ValueError, OSError: The input is bad.
    """
    settings = settings_of(corpus, cleaning_options, options, tokenizer)
    state = folder.check(settings, options.overwrite)
    if state == "finished":
        folder.remove_unfinished()
        show(f"{folder.path} is finished already")
        return None
    pairs = read_split(data, "train")
    if state == "new":
        folder.clear()
    tokenizer = open_vocabulary(
        folder, corpus, pairs, cleaning_options, tokenizer
    )
    if state == "new":
        write_json(folder.settings, settings)
    preparation = Preparation(
        folder,
        pairs,
        tokenizer,
        cleaning_options.rules(),
        drop_duplicates=(
            cleaning_options.clean and cleaning_options.drop_duplicates
        ),
        shard_pairs=options.shard_pairs,
        num_processes=options.workers or count_cores(),
    )
    if state == "begun":
        preparation.check_vocabulary()
        show(
            f"resuming: {preparation.parts_done()} of"
            f" {preparation.num_parts} shards are encoded"
        )
    return preparation


class Preparation:
    """The work on one corpus, stage by stage.

        encode             text -> part files: ids, hashes and counts
        find_duplicates    hashes of all parts -> which pairs came before
        write_shards       parts without duplicates -> shards
        finish             the index

    Each stage writes its results to disk and skips existing ones.

    Args:
        folder: The `Folder`, its settings written.
        pairs: The pairs of the corpus; they have a length.
        tokenizer: The `Tokenizer`.
        rules: The arguments of `Cleaner`, except for the vocabulary.
        drop_duplicates: Whether to drop a pair that came before.
        shard_pairs: Pairs read for a shard.
        num_processes: Processes that clean.
    """

    def __init__(
        self,
        folder,
        pairs,
        tokenizer,
        rules,
        *,
        drop_duplicates,
        shard_pairs,
        num_processes,
    ):
        self.folder = folder
        self._pairs = pairs
        self._tokenizer = tokenizer
        self._tokenizer_sha256 = sha256(tokenizer.model_bytes)
        self._rules = rules
        self._drop_duplicates = drop_duplicates
        self._shard_pairs = shard_pairs
        self._num_processes = num_processes
        self.num_parts = -(-len(pairs) // shard_pairs)
        small = tokenizer.vocab_size <= 2**16
        self._ids = np.dtype(np.uint16 if small else np.int32)

    def run(self):
        """Runs the remaining stages.

        Returns:
            Number of pairs cleaned and encoded, and the `PreparedCounts`.

        Raises:
            CommandError: No pair is left; the directory is cleared.
        """
        encoded = self.encode()
        self.check_not_empty()
        self.write_shards(self.find_duplicates())
        return encoded, self.finish()

    def parts_done(self):
        """Number of parts on disk; they are written in order."""
        return next(
            number
            for number in itertools.count()
            if not self.folder.part(number, "part.json").exists()
        )

    def check_vocabulary(self):
        """The parts on disk must have ids of this vocabulary.

        Raises:
            ValueError: They have not: its file was replaced.
        """
        for number in range(self.parts_done()):
            # Version 0.1 did not write it.
            expected = self._part(number).get(
                "tokenizer_sha256", self._tokenizer_sha256
            )
            if expected != self._tokenizer_sha256:
                raise ValueError(
                    f"{self.folder.unfinished}: expected the vocabulary that"
                    f" part {number} was encoded with, of SHA-256 {expected}."
                    f" Received: {self._tokenizer_sha256}."
                    " --overwrite starts over"
                )

    def encode(self):
        """Writes the parts that are not there yet.

        Returns:
            Number of pairs read for them.
        """
        first = self.parts_done()
        if first == self.num_parts:
            return 0
        results = cleaning.clean_chunks(
            self._read_chunks(first),
            self._num_processes,
            self._tokenizer.model_bytes,
            self._rules,
        )
        with contextlib.closing(results):
            for number, chunks in itertools.groupby(
                results, lambda result: result[0][0]
            ):
                self._write_part(number, list(chunks))
        return len(self._pairs) - first * self._shard_pairs

    def _read_chunks(self, first):
        """Yields `((part, pairs), sources, targets)`, from part `first` on."""
        pairs = itertools.islice(self._pairs, first * self._shard_pairs, None)
        pairs = iter(
            tqdm.tqdm(
                pairs,
                "clean and encode",
                len(self._pairs),
                initial=first * self._shard_pairs,
                disable=None,
                unit=" pairs",
            )
        )
        for number in range(first, self.num_parts):
            left = self._shard_pairs
            while chunk := list(
                itertools.islice(pairs, min(cleaning.CHUNK_SIZE, left))
            ):
                left -= len(chunk)
                yield (number, len(chunk)), *map(list, zip(*chunk, strict=True))

    def _write_part(self, number, chunks):
        """Writes a part; its .json, which makes it count, comes last."""
        results = [result for _, result in chunks]
        dropped = collections.Counter()
        for result in results:
            dropped.update(result["dropped"])
        sides = [
            tuple(zip(*(result[side] for result in results), strict=True))
            for side in ("source", "target")
        ]
        record = shards.write_shard(self.folder.part(number, "part"), *sides)
        hashes = np.concatenate([result["hashes"] for result in results])
        # Not `tofile`, whose error on a full disk has no number.
        self.folder.part(number, "hashes").write_bytes(hashes.data)
        write_json(
            self.folder.part(number, "part.json"),
            {
                "tokenizer_sha256": self._tokenizer_sha256,
                "read": sum(read for (_, read), _ in chunks),
                "dropped": {name: dropped[name] for name in cleaning.REASONS},
                "shard": record,
            },
        )

    def check_not_empty(self):
        """At least one pair must be left.

        Raises:
            CommandError: None is; the directory is cleared.
        """
        counts = self._counts()
        if not counts.kept:
            self.folder.clear()
            raise CommandError(f"no sentence pair is left. Received: {counts}")

    def find_duplicates(self):
        """Which pairs of the parts are the same as an earlier one.

        The hashes are compared in partitions by their value, so that only one
        partition has to fit into memory.

        Returns:
            bool `[pairs]`, in a file.
        """
        paths = [
            self.folder.part(number, "hashes")
            for number in range(self.num_parts)
        ]
        num_pairs = sum(path.stat().st_size for path in paths) // 8
        found = _make_mask(self.folder.unfinished / "duplicates", num_pairs)
        if not self._drop_duplicates:
            return found
        num_partitions = 1
        while num_partitions * PARTITION_PAIRS < num_pairs:
            num_partitions *= 2
        for partition in tqdm.trange(
            num_partitions, desc="duplicates", disable=None
        ):
            hashes, indices = _select_hashes(paths, partition, num_partitions)
            # Stable: of equal pairs, the one that was read first comes first.
            order = np.argsort(hashes, kind="stable")
            equal = hashes[order[1:]] == hashes[order[:-1]]
            found[indices[order[1:][equal]]] = True
        return found

    def write_shards(self, duplicates):
        """Writes the shards that are not there yet.

        Args:
            duplicates: The result of `find_duplicates`.
        """
        start = 0
        for number in tqdm.trange(
            self.num_parts, desc="write shards", disable=None
        ):
            stop = start + self._part(number)["shard"]["pairs"]
            if not self.folder.part(number, "shard.json").exists():
                self._write_shard(number, ~duplicates[start:stop])
            start = stop

    def _write_shard(self, number, keep):
        """Writes the pairs of a part where `keep` is true."""
        part = self.folder.part(number, "part")
        path = self.folder.path / f"{number:05}.shard"
        record = self._part(number)["shard"]
        if keep.all():
            if part.exists():  # else moved before the command was killed
                os.replace(part, path)
            record = {**record, "file": path.name}
        else:
            source_ids, target_ids, *lengths = shards.open_shard(
                part.parent, record, self._ids
            )
            source, target = (
                ([ids[np.repeat(keep, rows)]], [rows[keep]])
                for ids, rows in zip(
                    (source_ids, target_ids), lengths, strict=True
                )
            )
            record = shards.write_shard(
                self.folder.part(number, "shard"), source, target
            )
            self.folder.publish(path.name)
        write_json(self.folder.part(number, "shard.json"), record)
        part.unlink(missing_ok=True)

    def finish(self):
        """Writes the index, which makes the directory a prepared corpus.

        Returns:
            `PreparedCounts`.
        """
        records = [
            read_json(self.folder.part(number, "shard.json"))
            for number in range(self.num_parts)
        ]
        counts = self._counts()
        kept = sum(record["pairs"] for record in records)
        counts.dropped["duplicate"] = counts.kept - kept
        for record in records:
            if not record["pairs"]:
                (self.folder.path / record["file"]).unlink(missing_ok=True)
        settings = read_json(self.folder.settings)
        self.folder.publish(shards.TOKENIZER)
        index = {
            "format_version": shards.FORMAT_VERSION,
            "source_language": settings["source_language"],
            "target_language": settings["target_language"],
            "vocab_size": self._tokenizer.vocab_size,
            "tokenizer_sha256": self._tokenizer_sha256,
            "max_length": self._rules["max_length"],
            "ids": self._ids.name,
            "read": counts.read,
            "kept": counts.kept,
            "dropped": counts.dropped,
            "settings": settings,
            "shards": [record for record in records if record["pairs"]],
        }
        write_json(self.folder.unfinished / shards.INDEX, index)
        self.folder.publish(shards.INDEX)
        self.folder.remove_unfinished()
        return counts

    def _part(self, number):
        return read_json(self.folder.part(number, "part.json"))

    def _counts(self):
        """`PreparedCounts` of all parts, without duplicates so far."""
        parts = [self._part(number) for number in range(self.num_parts)]
        dropped = dict.fromkeys(cleaning.REASONS, 0)
        for part in parts:
            for reason, number in part["dropped"].items():
                dropped[reason] += number
        return shards.PreparedCounts(sum(p["read"] for p in parts), dropped)


def _make_mask(path, size):
    """A new file of `size` booleans, all false, mapped into memory."""
    with open(path, "wb") as file:
        # Without room, a write to the mapped memory would kill the process.
        os.posix_fallocate(file.fileno(), 0, size)
    return np.memmap(path, bool, "r+", shape=size)


def _select_hashes(paths, partition, num_partitions):
    """The hashes of a partition, and the numbers of their pairs."""
    found, start = [], 0
    for path in paths:
        hashes = np.fromfile(path, "<u8")
        inside = np.flatnonzero(
            hashes & np.uint64(num_partitions - 1) == partition
        )
        found.append((hashes[inside], inside + start))
        start += len(hashes)
    return map(np.concatenate, zip(*found, strict=True))
