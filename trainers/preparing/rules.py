"""The options of the rules that drop sentence pairs."""

from keras_transformer.data import cleaning, shards
from keras_transformer.fields import Fields, hp, same_field
from trainers.run.data_config import DataConfig


class CleaningOptions(Fields):
    """Which pairs are dropped; token counts include EOS."""

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

    def rules(self) -> cleaning.Rules:
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
