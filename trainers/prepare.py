"""Cleans a corpus and writes its ids to disk, on all cores.

    python -m trainers.prepare --dataset=files --train_files=PREFIX \\
        --output=DIR [--flag=value ...]
    python -m trainers.wmt --dataset=prepared --train_files=DIR ...

The same command again goes on where it was stopped, and does nothing once all
is done. Each rule that drops pairs is counted.
"""

import collections
import dataclasses
import hashlib
import itertools
import json
import os
import pathlib
import shutil
import time

import numpy as np
import tqdm

from keras_transformer import flags
from keras_transformer.config import TransformerConfig
from keras_transformer.data import cleaning, shards
from keras_transformer.data.pairs import find_file
from keras_transformer.fields import Fields, hp
from keras_transformer.tokenization import Tokenizer
from keras_transformer.workdir import write_atomically
from trainers.config import DataConfig
from trainers.corpora import read_splits

PARTITION_PAIRS = 2**20  # held against each other at a time, for duplicates
ABANDONED = {}  # settings of what is being removed


def same_field(section, name):
    """A field like that of another dataclass, whose default is at home there.

    Args:
        section: The dataclass.
        name: Of the field.
    """
    field = next(f for f in dataclasses.fields(section) if f.name == name)
    return dataclasses.field(default=field.default, metadata=field.metadata)


@dataclasses.dataclass(frozen=True)
class CorpusOptions(Fields):
    """The sentence pairs and their vocabulary, as trainers.wmt has them."""

    dataset: str = same_field(DataConfig, "dataset")
    source_language: str = same_field(DataConfig, "source_language")
    target_language: str = same_field(DataConfig, "target_language")
    train_files: tuple[str, ...] = same_field(DataConfig, "train_files")
    data_dir: str = same_field(DataConfig, "data_dir")
    phrasebook_pairs: int = same_field(DataConfig, "phrasebook_pairs")
    tokenizer: str = same_field(DataConfig, "tokenizer")
    vocab_size: int = same_field(TransformerConfig, "vocab_size")
    vocabulary_pairs: int = hp(
        500_000,
        "Pairs, spread over the corpus, that a vocabulary is learned from, at"
        " most.",
        low=1,
    )

    def __post_init__(self):
        super().__post_init__()
        if self.dataset == "prepared":
            raise ValueError(
                "dataset must have text to prepare. Received:"
                f" dataset={self.dataset!r}"
            )


@dataclasses.dataclass(frozen=True)
class CleaningOptions(Fields):
    """Which pairs are dropped; tokens are counted with the end mark."""

    clean: bool = hp(
        True,
        "Apply the rules; if not, only pairs with an empty side or more than"
        " max_length tokens are dropped.",
    )
    drop_duplicates: bool = hp(
        True, "Drop a pair whose two sides were there before, together."
    )
    drop_identical: bool = hp(
        True, "Drop a pair whose sides are the same text."
    )
    min_length: int = hp(
        2, "Pairs with fewer tokens on a side are dropped.", low=2
    )
    max_length: int = same_field(DataConfig, "max_length")
    max_ratio: float = hp(
        3.0,
        "Pairs with more tokens on the longer side, for each of the shorter,"
        " are dropped; 0: any.",
        low=0.0,
    )
    max_word_length: int = hp(
        60,
        "Pairs with a word of more characters are dropped; in scripts without"
        " spaces (from U+0E00 on) a character is a word; 0: any.",
        low=0,
    )
    min_letter_share: float = hp(
        0.4,
        "Pairs with a smaller share of letters among a side's characters,"
        " spaces left out, are dropped, and those without one; 0: any.",
        low=0.0,
        high=1.0,
    )

    def __post_init__(self):
        super().__post_init__()
        if self.max_length > shards.LONGEST:
            raise ValueError(
                f"max_length must be at most {shards.LONGEST} in a shard."
                f" Received: max_length={self.max_length}"
            )
        if self.min_length > self.max_length:
            raise ValueError(
                "min_length must be at most max_length. Received:"
                f" min_length={self.min_length}, max_length={self.max_length}"
            )

    def text_rules(self):
        """The arguments of `TextRules`."""
        return {
            "drop_unreadable": self.clean,
            "drop_identical": self.clean and self.drop_identical,
            "max_word_length": self.clean * self.max_word_length,
            "min_letter_share": self.clean * self.min_letter_share,
        }

    def rules(self):
        """The arguments of `Cleaner`, but for the vocabulary."""
        return {
            **self.text_rules(),
            "min_length": self.min_length if self.clean else 2,
            "max_length": self.max_length,
            "max_ratio": self.clean * self.max_ratio,
        }


@dataclasses.dataclass(frozen=True)
class Options(Fields):
    """The output."""

    output: str = hp("", "Directory to write, new or begun. Required.")
    overwrite: bool = hp(
        False, "Begin anew, whatever the directory has been prepared with."
    )
    shard_pairs: int = hp(
        500_000,
        "Pairs read for a shard: what is held in memory, and is lost when the"
        " command is killed.",
        low=1,
    )
    workers: int | None = hp(
        None, "Processes that clean and tokenise; left out: one a core.", low=1
    )

    def __post_init__(self):
        super().__post_init__()
        if not self.output:
            raise ValueError("expected --output=DIR. Received: no output")


class Folder:
    """The output directory: what is finished, and what is on the way.

    Args:
        path: The directory; it need not exist.

    Attributes:
        index, tokenizer: Paths of what is finished.
        unfinished: Folder of what is on the way; its `settings` say for what.
    """

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.index = self.path / shards.INDEX
        self.tokenizer = self.path / shards.TOKENIZER
        self.unfinished = self.path / "unfinished"
        self.settings = self.unfinished / "settings.json"

    def part(self, number, ending):
        """A file of what is on the way to a shard."""
        return self.unfinished / f"{number:05}.{ending}"

    def publish(self, name):
        """Moves a file from what is on the way to what is finished."""
        if (self.unfinished / name).exists():
            os.replace(self.unfinished / name, self.path / name)

    def check(self, settings, overwrite):
        """Holds the settings against those it was begun with.

        Args:
            settings: A dictionary.
            overwrite: Whether they may differ.

        Returns:
            "new", "begun" or "finished".

        Raises:
            ValueError: They differ, or the directory has other files.
        """
        if self.index.exists():
            state, before = "finished", shards.read_index(self.path)["settings"]
        elif self.settings.exists():
            state, before = "begun", read_json(self.settings)
        else:
            others = set(map(str, self.path.glob("*"))) - {str(self.unfinished)}
            if others:
                raise ValueError(
                    f"{self.path} has other files: {sorted(others)[0]}"
                )
            return "new"
        if overwrite or before == ABANDONED:
            return "new"
        differences = [
            f"{name} was {before.get(name)!r} and is {settings.get(name)!r}"
            for name in sorted(before.keys() | settings.keys())
            if before.get(name) != settings.get(name)
        ]
        if differences:
            raise ValueError(
                f"{self.path} was prepared otherwise: {'; '.join(differences)}."
                " --overwrite begins anew"
            )
        return state

    def clear(self):
        """Removes what this command has written, and nothing else."""
        if not (self.index.exists() or self.settings.exists()):
            return
        # Killed from here on, it is begun, but for nobody.
        write_json(self.settings, ABANDONED)
        self.index.unlink(missing_ok=True)
        self.tokenizer.unlink(missing_ok=True)
        for path in self.path.glob("[0-9]*.shard"):
            path.unlink()
        self.remove_unfinished()

    def remove_unfinished(self):
        """Removes what was on the way; its settings go last."""
        if not self.unfinished.exists():
            return
        for path in self.unfinished.iterdir():
            if path != self.settings:
                path.unlink()
        shutil.rmtree(self.unfinished)


def read_json(path):
    """What a file of JSON says."""
    return json.loads(path.read_text(encoding="utf-8"))


def write_json(path, value):
    """Writes a file of JSON, whole or not at all."""
    write_atomically(path, json.dumps(value, indent=1) + "\n")


class Preparation:
    """The work on one corpus, stage by stage.

        encode             text -> parts: ids, hashes and counts
        find_duplicates    hashes of all parts -> which pairs came before
        write_shards       parts, but for duplicates -> shards
        finish             the index

    Each stage leaves its results on disk and skips what is there already.

    Args:
        folder: The `Folder`, its settings written.
        pairs: The pairs of the corpus; they have a length.
        tokenizer: The `Tokenizer`.
        cleaning_options, options: As the command line says.
    """

    def __init__(self, folder, pairs, tokenizer, cleaning_options, options):
        self.folder = folder
        self._pairs = pairs
        self._tokenizer = tokenizer
        self._cleaning = cleaning_options
        self._shard_pairs = options.shard_pairs
        self._workers = options.workers or os.cpu_count() or 1
        self.num_parts = -(-len(pairs) // options.shard_pairs)
        small = tokenizer.vocab_size <= 2**16
        self._ids = np.dtype(np.uint16 if small else np.int32)

    def parts_done(self):
        """Number of parts on disk; they are written in order."""
        return next(
            number
            for number in itertools.count()
            if not self.folder.part(number, "part.json").exists()
        )

    def encode(self):
        """Writes the parts that are not there yet.

        Returns:
            Number of pairs read for them.
        """
        first = self.parts_done()
        if first == self.num_parts:
            return 0
        with cleaning.open_workers(
            self._workers, self._tokenizer.model_bytes, self._cleaning.rules()
        ) as workers:
            results = workers.clean_chunks(self._read_chunks(first))
            for number, chunks in itertools.groupby(
                results, lambda result: result[0][0]
            ):
                self._write_part(number, list(chunks))
        return len(self._pairs) - first * self._shard_pairs

    def _read_chunks(self, first):
        """Yields `((part, pairs), sources, targets)` from a part on."""
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
        """Writes a part; what the index will say of it comes last."""
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
        hashes.tofile(self.folder.part(number, "hashes"))
        write_json(
            self.folder.part(number, "part.json"),
            {
                "read": sum(read for (_, read), _ in chunks),
                "dropped": {name: dropped[name] for name in cleaning.REASONS},
                "shard": record,
            },
        )

    def find_duplicates(self):
        """Whether each pair of the parts is the same as one before it.

        The hashes are compared in partitions by their value, so that only one
        of these has to fit into memory.

        Returns:
            bool `[pairs]`, in a file.
        """
        paths = [
            self.folder.part(number, "hashes")
            for number in range(self.num_parts)
        ]
        num_pairs = sum(path.stat().st_size for path in paths) // 8
        if not num_pairs:
            raise flags.CommandError(
                f"no pair is left. Received: {self._counts()}"
            )
        found = np.memmap(
            self.folder.unfinished / "duplicates", bool, "w+", shape=num_pairs
        )
        if not (self._cleaning.clean and self._cleaning.drop_duplicates):
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
            duplicates: Of the pairs of all parts, bool `[pairs]`.
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
        if keep.all():  # or it has been moved, and not been noted
            if part.exists():
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
            "tokenizer_sha256": sha256(self._tokenizer.model_bytes),
            "max_length": self._cleaning.max_length,
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
        """`PreparedCounts` of all parts, duplicates not yet among them."""
        parts = [self._part(number) for number in range(self.num_parts)]
        dropped = dict.fromkeys(cleaning.REASONS, 0)
        for part in parts:
            for reason, number in part["dropped"].items():
                dropped[reason] += number
        return shards.PreparedCounts(sum(p["read"] for p in parts), dropped)


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


def sha256(content):
    """The SHA-256 of bytes, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


# Opening: whatever is wrong is found here, before work begins


def read_options(argv):
    """The sections of a command line, and the tokenizer it names, if any."""
    arguments = flags.parse(
        argv, __doc__, Options, CorpusOptions, CleaningOptions
    )
    options = arguments.build(Options)
    cleaning_options = arguments.build(CleaningOptions)
    corpus, tokenizer = arguments.build(CorpusOptions), None
    if corpus.tokenizer:
        with flags.user_errors():
            tokenizer = Tokenizer.load(corpus.tokenizer)
        vocab_size = tokenizer.vocab_size
        corpus = arguments.build(CorpusOptions, vocab_size=vocab_size)
        if corpus.vocab_size != vocab_size:
            raise flags.CommandError(
                f"vocab_size must be {vocab_size}, the pieces of"
                f" {corpus.tokenizer}. Received:"
                f" vocab_size={corpus.vocab_size}"
            )
    return options, corpus, cleaning_options, tokenizer


def make_data_config(corpus):
    """The `DataConfig` that names the same pairs."""
    names = {field.name for field in dataclasses.fields(DataConfig)}
    values = dataclasses.asdict(corpus)
    return DataConfig(**{n: values[n] for n in values.keys() & names})


def describe(corpus, cleaning_options, options, tokenizer):
    """What decides over the output: a dictionary to compare.

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
    """The vocabulary of what was begun; else the one given; else a new one."""
    path = folder.unfinished / shards.TOKENIZER
    if folder.settings.exists():
        return Tokenizer.load(path if path.exists() else folder.tokenizer)
    tokenizer = given
    if tokenizer is None:
        step = -(-len(pairs) // corpus.vocabulary_pairs)
        print(
            f"training a vocabulary of {corpus.vocab_size:,} pieces from"
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


def open_preparation(argv):
    """The `Preparation` of a command line; None if all is done already."""
    options, corpus, cleaning_options, tokenizer = read_options(argv)
    folder = Folder(options.output)
    with flags.user_errors():
        data = make_data_config(corpus)
        settings = describe(corpus, cleaning_options, options, tokenizer)
        state = folder.check(settings, options.overwrite)
        if state == "finished":
            folder.remove_unfinished()
            print(f"{folder.path} is finished already")
            return None
        folder.path.mkdir(parents=True, exist_ok=True)
        pairs = read_splits(data, "train")
        if state == "new":
            folder.clear()
        tokenizer = open_vocabulary(
            folder, corpus, pairs, cleaning_options, tokenizer
        )
        if state == "new":
            write_json(folder.settings, settings)
    preparation = Preparation(
        folder, pairs, tokenizer, cleaning_options, options
    )
    if state == "begun":
        print(
            f"going on: {preparation.parts_done()} of"
            f" {preparation.num_parts} shards are encoded"
        )
    return preparation


def tell_counts(counts):
    """Prints a table of what was read, dropped and kept."""
    print(f"{counts.read:>15,} pairs read")
    for reason, number in counts.dropped.items():
        print(f"{-number:>15,} with {cleaning.REASONS[reason]} ({reason})")
    share = counts.kept / counts.read
    print(f"{counts.kept:>15,} pairs kept ({share:.1%})")


def main(argv=None):
    """Runs the command."""
    start = time.monotonic()
    with flags.exit_status("trainers.prepare"):
        preparation = open_preparation(argv)
        if preparation is None:
            return
        try:
            encoded = preparation.encode()
            preparation.write_shards(preparation.find_duplicates())
            counts = preparation.finish()
        except KeyboardInterrupt:
            print("stopped; the same command again goes on from here")
            raise SystemExit(130) from None
    seconds = time.monotonic() - start
    tell_counts(counts)
    print(
        f"{preparation.folder.path}: {encoded:,} pairs cleaned and encoded in"
        f" {seconds:.0f} s"
    )


if __name__ == "__main__":
    main()
