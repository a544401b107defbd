"""The options of `kt-prepare`; `rules` has the cleaning's."""

from keras_transformer.config import TransformerConfig
from keras_transformer.fields import Fields, hp, required, same_field
from keras_transformer.refusals import expect
from trainers.datasets import OF_IDS
from trainers.datasets.dataset import CorpusConfig
from trainers.run.data_config import DataConfig


class CorpusOptions(CorpusConfig):
    """The sentence pairs and their vocabulary, as in kt-train."""

    tokenizer: str = same_field(DataConfig, "tokenizer")
    vocab_size: int = same_field(TransformerConfig, "vocab_size")
    case_marks: bool = same_field(DataConfig, "case_marks")
    vocabulary_pairs: int = hp(
        500_000,
        "Maximum number of pairs, spread over the corpus, to train a vocabulary"
        " on.",
        low=1,
    )

    def __post_init__(self) -> None:
        # First: a tokenizer with dataset=prepared would be refused, too.
        if self.dataset in OF_IDS:
            raise ValueError(
                "dataset must be text, which can be prepared. Received:"
                f" dataset={self.dataset!r}"
            )
        super().__post_init__()
        expect(
            not (self.tags or self.language_tokens),
            "one target language, and no language_tokens",
            f"{self.target_language=}, {self.language_tokens=}",
        )


class OutputOptions(Fields):
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
        common=True,
    )
