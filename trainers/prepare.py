"""Cleans a corpus and writes its ids to disk, on all cores.

    python -m trainers.prepare --dataset=files --train_files=PREFIX \\
        --output=DIR [--flag=value ...]
    python -m trainers.wmt --dataset=prepared --train_files=DIR ...

If stopped or killed, rerun the same command to resume. The output reports how
many pairs each rule dropped.
"""

import contextlib
import dataclasses
import itertools
import os
import time

from keras_transformer import flags
from keras_transformer.config import TransformerConfig
from keras_transformer.data import cleaning, shards
from keras_transformer.data.pairs import find_file
from keras_transformer.fields import Fields, hp
from keras_transformer.tokenization import Tokenizer
from trainers.config import DataConfig, same_field
from trainers.corpora import read_split, sha256
from trainers.preparation import (
    Folder,
    Preparation,
    run_errors,
    write_json,
)


@dataclasses.dataclass(frozen=True)
class CorpusOptions(Fields):
    """The sentence pairs and their vocabulary, as in trainers.wmt."""

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
        "Greatest number of pairs, spread over the corpus, that a vocabulary is"
        " trained on.",
        low=1,
    )

    def __post_init__(self):
        super().__post_init__()
        if self.dataset == "prepared":
            raise ValueError(
                "dataset must be text, which can be prepared. Received:"
                f" dataset={self.dataset!r}"
            )


@dataclasses.dataclass(frozen=True)
class CleaningOptions(Fields):
    """Which pairs are dropped; token counts include EOS."""

    clean: bool = hp(
        True,
        "Apply all rules; if not, only pairs with an empty side or more than"
        " max_length tokens are dropped.",
    )
    drop_duplicates: bool = hp(
        True, "Drop a pair that is the same as an earlier one."
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
        "Pairs with more tokens on the longer side, for each token of the"
        " shorter, are dropped; 0: any.",
        low=0.0,
    )
    max_word_length: int = hp(
        60,
        "Pairs with a word of more characters are dropped; characters of"
        " scripts without spaces (from U+0E00 on) do not count; 0: any.",
        low=0,
    )
    min_letter_share: float = hp(
        0.4,
        "Pairs are dropped if a side has no letter, or a smaller share of"
        " letters among its characters, spaces not counted; 0: any.",
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
            "max_word_length": self.max_word_length if self.clean else 0,
            "min_letter_share": self.min_letter_share if self.clean else 0.0,
        }

    def rules(self):
        """The arguments of `Cleaner`, except for the vocabulary."""
        return {
            **self.text_rules(),
            "min_length": self.min_length if self.clean else 2,
            "max_length": self.max_length,
            "max_ratio": self.max_ratio if self.clean else 0.0,
        }


@dataclasses.dataclass(frozen=True)
class Options(Fields):
    """The output."""

    output: str = hp(
        "", "Directory to write, new or of an earlier run. Required."
    )
    overwrite: bool = hp(
        False, "Start over, whatever the directory was prepared with."
    )
    shard_pairs: int = hp(
        500_000,
        "Pairs read for a shard: as many are in memory, and are read again if"
        " the command is killed.",
        low=1,
    )
    workers: int | None = hp(
        None,
        "Processes that clean and tokenize; left out: one for each core.",
        low=1,
    )

    def __post_init__(self):
        super().__post_init__()
        if not self.output:
            raise ValueError("expected --output=DIR. Received: no output")


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
                f"vocab_size must be {vocab_size}, the size of"
                f" {corpus.tokenizer}. Received:"
                f" vocab_size={corpus.vocab_size}"
            )
    return options, corpus, cleaning_options, tokenizer


def make_data_config(corpus):
    """The `DataConfig` that names the same pairs."""
    names = {field.name for field in dataclasses.fields(DataConfig)}
    values = dataclasses.asdict(corpus)
    return DataConfig(**{n: values[n] for n in values.keys() & names})


def settings_of(corpus, cleaning_options, options, tokenizer):
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
    """The vocabulary of an earlier run; else the one given; else a new one."""
    path = folder.unfinished / shards.TOKENIZER
    if folder.settings.exists():
        return Tokenizer.load(path if path.exists() else folder.tokenizer)
    tokenizer = given
    if tokenizer is None:
        step = -(-len(pairs) // corpus.vocabulary_pairs)
        print(
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


def open_preparation(folder, options, corpus, cleaning_options, tokenizer):
    """The `Preparation` of a command line; None if all is done already.

    Bad input is found here, before work begins.
    """
    data = make_data_config(corpus)
    settings = settings_of(corpus, cleaning_options, options, tokenizer)
    state = folder.check(settings, options.overwrite)
    if state == "finished":
        folder.remove_unfinished()
        print(f"{folder.path} is finished already")
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
        num_processes=options.workers or os.cpu_count() or 1,
    )
    if state == "begun":
        print(
            f"resuming: {preparation.parts_done()} of"
            f" {preparation.num_parts} shards are encoded"
        )
    return preparation


def print_counts(counts):
    """Prints a table of what was read, dropped and kept."""
    print(f"{counts.read:>15,} pairs read")
    for reason, number in counts.dropped.items():
        print(f"{-number:>15,} with {cleaning.REASONS[reason]} ({reason})")
    share = counts.kept / counts.read
    print(f"{counts.kept:>15,} pairs kept ({share:.1%})")


def main(argv=None):
    """Runs the command."""
    start = time.monotonic()
    with flags.exit_status("trainers.prepare"), contextlib.ExitStack() as stack:
        options, *others = read_options(argv)
        folder = Folder(options.output)
        with flags.user_errors(), run_errors(folder.path):
            stack.enter_context(folder.lock())
            preparation = open_preparation(folder, options, *others)
        if preparation is None:
            return
        try:
            with run_errors(folder.path):
                encoded, counts = preparation.run()
        except KeyboardInterrupt:
            print("stopped; rerun the same command to resume")
            raise SystemExit(130) from None
    seconds = time.monotonic() - start
    print_counts(counts)
    print(
        f"{folder.path}: {encoded:,} pairs cleaned and encoded in"
        f" {seconds:.0f} s"
    )


if __name__ == "__main__":
    main()
