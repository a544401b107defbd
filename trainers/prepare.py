"""Cleans a corpus and writes its ids to disk, on all cores.

    python -m trainers.prepare --dataset=files --train_files=PREFIX \\
        --output=DIR [--flag=value ...]
    python -m trainers.wmt --dataset=prepared --train_files=DIR ...

If stopped or killed, rerun the same command to resume. The output reports how
many pairs each rule dropped.
"""

import dataclasses

from keras_transformer.commands import flags
from keras_transformer.commands.startup import load
from keras_transformer.config import TransformerConfig
from keras_transformer.data import cleaning, shards
from keras_transformer.fields import Fields, hp
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
        "Maximum number of pairs, spread over the corpus, to train a vocabulary"
        " on.",
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
        "Apply all rules. Otherwise only pairs with an empty side or more than"
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
        "Maximum ratio of tokens, longer side to shorter side; pairs above it"
        " are dropped. 0 means no limit.",
        low=0.0,
    )
    max_word_length: int = hp(
        60,
        "Pairs with a word of more characters are dropped; characters of"
        " scripts without spaces (from U+0E00 on) do not count. 0 means no"
        " limit.",
        low=0,
    )
    min_letter_share: float = hp(
        0.4,
        "Pairs are dropped if a side has no letter, or a smaller share of"
        " letters among its characters, spaces not counted. 0 means no limit.",
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

    def rules(self):
        """The `Rules` of `cleaning`; that for duplicates is not among them."""
        if not self.clean:
            return cleaning.Rules(self.max_length)
        return cleaning.Rules(
            drop_unreadable=True,
            drop_identical=self.drop_identical,
            max_word_length=self.max_word_length,
            min_letter_share=self.min_letter_share,
            min_length=self.min_length,
            max_length=self.max_length,
            max_ratio=self.max_ratio,
        )


@dataclasses.dataclass(frozen=True)
class Options(Fields):
    """The output."""

    output: str = hp(
        "", "Directory to write, new or from an earlier run. Required."
    )
    overwrite: bool = hp(
        False, "Start over, even if the directory was prepared differently."
    )
    shard_pairs: int = hp(
        500_000,
        "Pairs read for one shard. They are all in memory, and are read again"
        " if the command is killed.",
        low=1,
    )
    workers: int | None = hp(
        None,
        "Processes that clean and tokenize. Default: one per core.",
        low=1,
    )

    def __post_init__(self):
        super().__post_init__()
        if not self.output:
            raise ValueError("expected --output=DIR. Received: no output")


def main(argv: list[str] | None = None) -> None:
    """Runs the command."""
    with flags.exit_status("trainers.prepare"):
        arguments = flags.parse(
            argv, __doc__, Options, CorpusOptions, CleaningOptions
        )
        options = arguments.build(Options)
        cleaning_options = arguments.build(CleaningOptions)
        corpus = arguments.build(CorpusOptions)
        names = {field.name for field in dataclasses.fields(DataConfig)}
        values = dataclasses.asdict(corpus)
        with flags.user_errors():
            data = DataConfig(**{n: values[n] for n in values.keys() & names})
        load("trainers.preparing.preparation").run(
            data,
            options,
            corpus,
            cleaning_options,
            arguments.given.get("vocab_size"),
        )


if __name__ == "__main__":
    main()
