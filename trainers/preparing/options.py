"""The options of `kt-prepare`."""

from keras_transformer.base.fields import Fields, hp, required, same_field
from keras_transformer.base.refusals import expect
from keras_transformer.config import TransformerConfig
from keras_transformer.data import shards
from trainers.datasets import OF_IDS
from trainers.datasets.dataset import CorpusConfig
from trainers.preparing import cleaning
from trainers.run.data_config import DataConfig


class CorpusOptions(CorpusConfig):
    """The sentence pairs and their vocabulary, as in kt-train."""

    tokenizer: str = same_field(DataConfig, "tokenizer")
    vocab_size: int = same_field(TransformerConfig, "vocab_size")
    case_marks: bool = same_field(DataConfig, "case_marks")
    byte_fallback: bool = same_field(DataConfig, "byte_fallback")
    split_digits: bool = same_field(DataConfig, "split_digits")
    normalization: str = same_field(DataConfig, "normalization")
    vocabulary_pairs: int = hp(
        500_000,
        "Maximum number of pairs, spread over the corpus, to train a vocabulary"
        " on.",
        low=1,
    )

    def __post_init__(self) -> None:
        # Checked first, as a tokenizer with dataset=prepared raises, too.
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


class CleaningOptions(Fields):
    """The rules that drop pairs. Token counts include EOS."""

    clean: bool = hp(
        True,
        "Apply all rules. Otherwise only pairs with an empty side or more than"
        " max_length tokens are dropped.",
        common=True,
    )
    drop_duplicates: bool = hp(
        True, "Drop pairs that repeat an earlier pair.", common=True
    )
    drop_identical: bool = hp(True, "Drop pairs whose two sides are identical.")
    min_length: int = hp(2, "Drop pairs with fewer tokens on a side.", low=2)
    max_length: int = same_field(DataConfig, "max_length")
    max_ratio: float = hp(
        3.0,
        "Maximum ratio of tokens, longer side to shorter side; pairs above it"
        " are dropped. 0 means no limit.",
        low=0.0,
    )
    max_word_length: int = hp(
        60,
        "Drop pairs with a word of more characters; characters of scripts"
        " without spaces (from U+0E00 on) do not count. 0 means no limit.",
        low=0,
    )
    min_letter_share: float = hp(
        0.4,
        "Drop pairs with a side without letters, or with a smaller share of"
        " letters among its characters, spaces not counted. 0 means no limit.",
        low=0.0,
        below=1.0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        longest = f"at most {shards.LONGEST} tokens in a shard"
        expect(
            self.max_length <= shards.LONGEST, longest, f"{self.max_length=}"
        )
        expect(
            self.min_length <= self.max_length,
            "min_length to be at most max_length",
            f"{self.min_length=}, {self.max_length=}",
        )

    def rules(self) -> cleaning.Rules:
        """Returns the options as `Rules`, which do not cover duplicates."""
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
