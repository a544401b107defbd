"""The work of `kt-prepare`: cleaning and encoding a corpus part by part."""

import collections
import contextlib
import dataclasses
import itertools
import time
import typing

import numpy as np
import tqdm

from keras_transformer.base.files import read_json
from keras_transformer.base.machine import count_cores
from keras_transformer.commands import flags
from keras_transformer.data import shards
from keras_transformer.data.files.pairs import Pairs
from keras_transformer.text.tokenization import Tokenizer
from trainers.datasets.dataset import find_dataset, read_split
from trainers.preparing import cleaning
from trainers.preparing.folder import Folder
from trainers.preparing.options import (
    CleaningOptions,
    CorpusOptions,
    OutputOptions,
)
from trainers.run.data_config import RunData
from trainers.run.resuming import describe_file, run_errors, write_json
from trainers.run.vocabularies import (
    check_options,
    options_of,
    train_vocabulary,
)


def run(
    output: OutputOptions,
    corpus: CorpusOptions,
    cleaning_options: CleaningOptions,
    vocab_size: int | None,
) -> None:
    """Prepares a corpus, or resumes its preparation.

    A given tokenizer must have `vocab_size` entries, unless that is None.
    Raises CommandError for bad input, RunError for disk errors and lost
    processes.
    """
    start = time.monotonic()
    tokenizer, corpus = open_given_tokenizer(corpus, vocab_size)
    folder = Folder(output.output)
    with contextlib.ExitStack() as stack:
        with flags.user_errors(), run_errors(folder.path):
            stack.enter_context(folder.lock())
            preparation = open_preparation(
                folder, output, corpus, cleaning_options, tokenizer
            )
        if preparation is None:
            return
        try:
            with run_errors(folder.path):
                encoded = preparation.encode()
                counts = preparation.finish()
        except KeyboardInterrupt:
            flags.show("stopped; rerun the same command to resume")
            raise SystemExit(130) from None
    seconds = time.monotonic() - start
    flags.show(
        f"{counts.read:>15,} pairs read",
        *(
            f"{-number:>15,} with {shards.REASONS[reason]} ({reason})"
            for reason, number in counts.dropped.items()
        ),
        f"{counts.kept:>15,} pairs kept ({counts.kept / counts.read:.1%})",
        f"{folder.path}: {encoded:,} pairs cleaned and encoded in"
        f" {seconds:.0f} s",
    )


def open_given_tokenizer(
    corpus: CorpusOptions, vocab_size: int | None
) -> tuple[Tokenizer | None, CorpusOptions]:
    """Loads the given tokenizer, and returns it with the options.

    The options get its size as `vocab_size`. Without a given tokenizer, returns
    None and unchanged options.

    Raises CommandError if the tokenizer cannot be read, belongs to an imported
    model, or does not match `vocab_size` or the options of vocabularies.
    """
    if not corpus.tokenizer:
        return None, corpus
    with flags.user_errors():
        tokenizer = Tokenizer.load(corpus.tokenizer)
    if tokenizer.has_table:
        raise flags.CommandError(
            "expected a tokenizer trained here: the vocabulary of an imported"
            " model, which has a table of ids, cannot be prepared; train with"
            " --dataset=files instead."
            f" Received: tokenizer={corpus.tokenizer!r}"
        )
    if vocab_size not in (None, tokenizer.vocab_size):
        raise flags.CommandError(
            f"vocab_size must be {tokenizer.vocab_size}, the size of"
            f" {corpus.tokenizer}. Received: vocab_size={vocab_size}"
        )
    with flags.user_errors():
        check_options(tokenizer, options_of(corpus), corpus.tokenizer)
    corpus = dataclasses.replace(corpus, vocab_size=tokenizer.vocab_size)
    return tokenizer, corpus


def settings_of(
    corpus: CorpusOptions,
    cleaning_options: CleaningOptions,
    output: OutputOptions,
    tokenizer: Tokenizer | None,
) -> dict[str, typing.Any]:
    """Returns the settings that determine the output, for comparison.

    Files are described by size and time of change, a tokenizer by its content.
    """
    paths = find_dataset(corpus.dataset).find_files(corpus, "train")
    given, usual = options_of(corpus), options_of(RunData)
    del given["case_marks"]  # older
    return {
        **dataclasses.asdict(corpus),
        **dataclasses.asdict(cleaning_options),
        "columns": ",".join(corpus.columns) or None,
        # Corpora that were prepared before these options have none.
        **{name: None for name in given if given[name] == usual[name]},
        "shard_pairs": output.shard_pairs,
        "tokenizer": tokenizer.sha256 if tokenizer else "",
        "train_files": list(map(describe_file, paths)),
    }


def open_vocabulary(
    folder: Folder,
    corpus: CorpusOptions,
    pairs: Pairs,
    rules: cleaning.Rules,
    given: Tokenizer | None,
) -> Tokenizer:
    """Opens an earlier run's vocabulary or the given one, or trains one."""
    path = folder.unfinished / shards.TOKENIZER
    if folder.settings.exists():
        return Tokenizer.load(path if path.exists() else folder.tokenizer)
    tokenizer = given
    if tokenizer is None:
        step = -(-len(pairs) // corpus.vocabulary_pairs)
        flags.show(
            f"training a vocabulary of {corpus.vocab_size:,} subwords on"
            f" {-(-len(pairs) // step):,} pairs"
        )
        lines = (
            line
            for pair in itertools.islice(pairs, 0, None, step)
            if rules.judge(*pair) == cleaning.KEPT
            for line in pair
        )
        tokenizer = train_vocabulary(
            lines,
            corpus.vocab_size,
            flags.show,
            **options_of(corpus),
        )
    folder.unfinished.mkdir(parents=True, exist_ok=True)
    tokenizer.save(path)
    return tokenizer


def open_preparation(
    folder: Folder,
    output: OutputOptions,
    corpus: CorpusOptions,
    cleaning_options: CleaningOptions,
    tokenizer: Tokenizer | None,
) -> "Preparation | None":
    """Checks the input, and returns the work to do.

    Returns None if the corpus is finished. Raises ValueError or OSError if the
    input is bad.
    """
    settings = settings_of(corpus, cleaning_options, output, tokenizer)
    state = folder.check(settings, output.overwrite)
    if state == "finished":
        folder.remove_unfinished()
        flags.show(f"{folder.path} is finished already")
        return None
    pairs = read_split(corpus, "train")
    if state == "new":
        folder.clear()
    tokenizer = open_vocabulary(
        folder, corpus, pairs, cleaning_options.rules(), tokenizer
    )
    if state == "new":
        write_json(folder.settings, settings)
    preparation = Preparation(
        folder, pairs, tokenizer, output, cleaning_options
    )
    if state == "begun":
        preparation.check_vocabulary()
        flags.show(
            f"resuming: {preparation.parts_done()} of"
            f" {preparation.num_parts} shards are encoded"
        )
    return preparation


class Preparation:
    """The work on a corpus: a shard for each part of it, then the index.

    Each part is written to disk before the next one begins. Parts that exist
    are skipped. The folder must already contain the settings.
    """

    def __init__(
        self,
        folder: Folder,
        pairs: Pairs,
        tokenizer: Tokenizer,
        output: OutputOptions,
        cleaning_options: CleaningOptions,
    ):
        self.folder = folder
        self._pairs = pairs
        self._tokenizer = tokenizer
        self._drop_duplicates = (
            cleaning_options.clean and cleaning_options.drop_duplicates
        )
        self._rules = cleaning_options.rules()
        self._shard_pairs = output.shard_pairs
        self._num_processes = output.workers or count_cores()
        self.num_parts = -(-len(pairs) // output.shard_pairs)

    def parts_done(self) -> int:
        """Counts the parts on disk, which are written in order."""
        return next(
            number
            for number in itertools.count()
            if not self.folder.part(number, "json").exists()
        )

    def check_vocabulary(self) -> None:
        """Raises ValueError if a part has ids of another vocabulary.

        That happens if the vocabulary's file was replaced.
        """
        if not self.parts_done():
            return
        expected = self._part(0)["tokenizer_sha256"]
        if expected != self._tokenizer.sha256:
            raise ValueError(
                f"{self.folder.unfinished}: expected the vocabulary that part 0"
                f" was encoded with, of SHA-256 {expected}. Received:"
                f" {self._tokenizer.sha256}. --overwrite starts over"
            )

    def encode(self) -> int:
        """Writes the missing parts. Returns the number of pairs read."""
        first = self.parts_done()
        if first == self.num_parts:
            return 0
        hashes = [
            np.fromfile(self.folder.part(number, "hashes"), "<u8")
            for number in range(first)
        ]
        seen = np.sort(np.concatenate([np.empty(0, "<u8"), *hashes]))
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
                seen = self._write_part(number, list(chunks), seen)
        return len(self._pairs) - first * self._shard_pairs

    def _read_chunks(self, first):
        """Yields chunks of pairs, from part `first` on.

        A chunk is `((part, number of pairs), sources, targets)`.
        """
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

    def _write_part(self, number, chunks, seen):
        """Writes a part. Its .json comes last, and makes the part complete.

        `seen` has the sorted hashes of all earlier parts. Returns them merged
        with this part's.
        """
        results = [result for _, result in chunks]
        dropped = collections.Counter()
        for result in results:
            dropped.update(result["dropped"])
        hashes = np.concatenate([result["hashes"] for result in results])
        keep = np.ones(len(hashes), bool)
        if self._drop_duplicates:
            keep = cleaning.find_new(hashes, seen)
            dropped["duplicate"] = int(np.sum(~keep))
        sides = []
        for side in ("source", "target"):
            arrays = zip(*(result[side] for result in results), strict=True)
            ids, lengths = map(np.concatenate, arrays)
            sides.append(cleaning.select_rows(ids, lengths, keep))
        path = self.folder.part(number, "shard")
        record = shards.write_shard(path, *sides)
        if record["pairs"]:
            self.folder.publish(path.name)
        new = hashes[keep] if self._drop_duplicates else hashes[:0]
        # `tofile` would raise an error without errno on a full disk.
        self.folder.part(number, "hashes").write_bytes(new.data)
        write_json(
            self.folder.part(number, "json"),
            {
                "tokenizer_sha256": self._tokenizer.sha256,
                "read": sum(read for (_, read), _ in chunks),
                "dropped": {name: dropped[name] for name in shards.REASONS},
                "shard": record,
            },
        )
        seen = np.concatenate([seen, new])
        seen.sort(kind="stable")  # fast if most of the array is sorted
        return seen

    def finish(self) -> shards.PreparedCounts:
        """Writes the index, which completes the corpus, and returns its counts.

        If no pair is left, clears the directory and raises CommandError.
        """
        parts = [self._part(number) for number in range(self.num_parts)]
        counts = shards.PreparedCounts(
            sum(part["read"] for part in parts),
            {
                reason: sum(part["dropped"][reason] for part in parts)
                for reason in shards.REASONS
            },
        )
        if not counts.kept:
            self.folder.clear()
            raise flags.CommandError(
                f"no sentence pair is left. Received: {counts}"
            )
        settings = read_json(self.folder.settings)
        self.folder.publish(shards.TOKENIZER)
        index = {
            "format_version": shards.FORMAT_VERSION,
            "source_language": settings["source_language"],
            "target_language": settings["target_language"],
            "vocab_size": self._tokenizer.vocab_size,
            "tokenizer_sha256": self._tokenizer.sha256,
            "max_length": self._rules.max_length,
            "ids": self._tokenizer.id_dtype,
            "read": counts.read,
            "kept": counts.kept,
            "dropped": counts.dropped,
            "settings": settings,
            "shards": [p["shard"] for p in parts if p["shard"]["pairs"]],
        }
        write_json(self.folder.unfinished / shards.INDEX, index)
        self.folder.publish(shards.INDEX)
        self.folder.remove_unfinished()
        return counts

    def _part(self, number):
        return read_json(self.folder.part(number, "json"))
