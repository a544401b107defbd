"""Configuration of `trainers.parse`, in place of the one of translation."""

import dataclasses

from keras_transformer.config import DecodingConfig, LengthConfig
from keras_transformer.fields import GIVEN, hp, same_field
from trainers.run.built_in import TREEBANK, BuiltIn
from trainers.run.data_config import DataConfig

DATASET = "trees"  # the value of `TreesConfig.dataset`


@dataclasses.dataclass(frozen=True)
class TreesConfig(LengthConfig, changeable=True):
    """The trees, and how they become batches."""

    train_trees: tuple[str, ...] = hp(
        (),
        "Files of trees in the format of the Penn Treebank, or their .gz,"
        " separated by commas. Default: the built-in treebank, also for"
        " validation and test.",
    )
    valid_trees: tuple[str, ...] = hp(
        (),
        "Files of validation trees. Default: no validation.",
        needs={"train_trees": GIVEN},
    )
    test_trees: tuple[str, ...] = hp(
        (),
        "Files of test trees, parsed when training ends.",
        needs={"train_trees": GIVEN},
    )
    treebank_trees: int = hp(
        20000,
        "Training trees of the built-in treebank to read, at most"
        f" {TREEBANK.train_size:,}.",
        low=1,
    )
    tokenizer: str = hp(
        "",
        "A SentencePiece model that a parser was trained with. Default: train"
        " one on the training trees.",
    )
    batch_tokens: int = same_field(DataConfig, "batch_tokens")
    num_buckets: int = same_field(DataConfig, "num_buckets")

    # Fields of `DataConfig` that have one value here.
    dataset = DATASET
    share_vocabulary = True
    train_files = vocabulary_symbols = ()
    subword_sampling = 0.0
    modifiers = mixture = ""

    @property
    def tags(self) -> dict[str, str]:
        """As `DataConfig.tags`: trees have none."""
        return {}

    @property
    def built_in(self) -> BuiltIn | None:
        """As `DataConfig.built_in`."""
        return None if self.train_trees else TREEBANK

    @property
    def given_tokenizers(self) -> dict[str, str]:
        """As `DataConfig.given_tokenizers`."""
        return {"vocab_size": self.tokenizer}


@dataclasses.dataclass(frozen=True)
class ParserDecoding(DecodingConfig, changeable=True):
    """How a tree is searched for; the defaults are the paper's of sec. 6.3.

    Beam 21, length penalty 0.3, at most 300 tokens more than the sentence has.
    """

    beam_size: int = same_field(DecodingConfig, "beam_size", 21)
    length_penalty: float = same_field(DecodingConfig, "length_penalty", 0.3)
    extra_length: int = same_field(DecodingConfig, "extra_length", 300)
