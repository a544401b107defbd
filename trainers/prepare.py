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
from keras_transformer.fields import Fields, hp, required, same_field
from trainers.preparing.rules import CleaningOptions
from trainers.run.data_config import DataConfig


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
        # First: a tokenizer with dataset=prepared would be refused, too.
        if self.dataset == "prepared":
            raise ValueError(
                "dataset must be text, which can be prepared. Received:"
                f" dataset={self.dataset!r}"
            )
        super().__post_init__()


@dataclasses.dataclass(frozen=True)
class Options(Fields):
    """The output."""

    output: str = required(
        "DIR", "Directory to write, new or from an earlier run."
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
