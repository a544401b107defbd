"""Cleans a corpus and writes its ids to disk, on all cores.

    python -m trainers.prepare --dataset=files --train_files=PREFIX \\
        --output=DIR [--flag=value ...]
    python -m trainers.wmt --dataset=prepared --train_files=DIR ...

If stopped or killed, rerun the same command to resume. The output reports how
many pairs each rule dropped.
"""

import contextlib
import dataclasses
import time

from keras_transformer import flags
from keras_transformer.config import TransformerConfig
from keras_transformer.data import cleaning, shards
from keras_transformer.fields import Fields, hp
from keras_transformer.startup import load_tensorflow
from trainers.run.config import DataConfig, same_field


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
        "Greatest ratio of tokens, longer side to shorter side; pairs above it"
        " are dropped. 0: no limit.",
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
        "Pairs read for one shard. All of them are in memory, and read again if"
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


def table(counts):
    """The lines of a table of what was read, dropped and kept."""
    share = counts.kept / counts.read
    return [
        f"{counts.read:>15,} pairs read",
        *(
            f"{-number:>15,} with {cleaning.REASONS[reason]} ({reason})"
            for reason, number in counts.dropped.items()
        ),
        f"{counts.kept:>15,} pairs kept ({share:.1%})",
    ]


def make_data_config(corpus):
    """The `DataConfig` that names the same pairs."""
    names = {field.name for field in dataclasses.fields(DataConfig)}
    values = dataclasses.asdict(corpus)
    return DataConfig(**{n: values[n] for n in values.keys() & names})


def open_given_tokenizer(arguments):
    """The tokenizer that the flags name, or None; and the `CorpusOptions`.

    Raises:
        CommandError: It cannot be read, or is that of an imported model, or
            has not as many entries as vocab_size says.
    """
    corpus = arguments.build(CorpusOptions)
    if not corpus.tokenizer:
        return None, corpus
    # Imported here for the same reason as in `main`.
    from keras_transformer.tokenization import Tokenizer

    with flags.user_errors():
        tokenizer = Tokenizer.load(corpus.tokenizer)
    if tokenizer.has_table:
        raise flags.CommandError(
            "expected a tokenizer trained here: the vocabulary of an imported"
            " model, which has a table of ids, cannot be prepared; train with"
            " --dataset=files instead."
            f" Received: tokenizer={corpus.tokenizer!r}"
        )
    vocab_size = tokenizer.vocab_size
    corpus = arguments.build(CorpusOptions, vocab_size=vocab_size)
    if corpus.vocab_size != vocab_size:
        raise flags.CommandError(
            f"vocab_size must be {vocab_size}, the size of"
            f" {corpus.tokenizer}. Received: vocab_size={corpus.vocab_size}"
        )
    return tokenizer, corpus


def main(argv=None):
    """Runs the command."""
    start = time.monotonic()
    with flags.exit_status("trainers.prepare"), contextlib.ExitStack() as stack:
        arguments = flags.parse(
            argv, __doc__, Options, CorpusOptions, CleaningOptions
        )
        options = arguments.build(Options)
        cleaning_options = arguments.build(CleaningOptions)
        with flags.user_errors():
            data = make_data_config(arguments.build(CorpusOptions))
        load_tensorflow()
        # Imported here, since they import TensorFlow, which takes seconds:
        # wrong flags are refused, and help is shown, before.
        from trainers.preparing.folder import Folder, run_errors
        from trainers.preparing.preparation import open_preparation

        tokenizer, corpus = open_given_tokenizer(arguments)
        folder = Folder(options.output)
        with flags.user_errors(), run_errors(folder.path):
            stack.enter_context(folder.lock())
            preparation = open_preparation(
                folder, data, options, corpus, cleaning_options, tokenizer
            )
        if preparation is None:
            return
        try:
            with run_errors(folder.path):
                encoded, counts = preparation.run()
        except KeyboardInterrupt:
            flags.show("stopped; rerun the same command to resume")
            raise SystemExit(130) from None
        seconds = time.monotonic() - start
        flags.show(
            *table(counts),
            f"{folder.path}: {encoded:,} pairs cleaned and encoded in"
            f" {seconds:.0f} s",
        )


if __name__ == "__main__":
    main()
