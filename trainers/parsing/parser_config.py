"""The configuration of `kt-parse`, which replaces that of translation."""

from keras_transformer.base.fields import hp, same_field
from keras_transformer.config import DecodingConfig, LengthConfig
from trainers.datasets.trees import TreeFiles
from trainers.run.data_config import DataConfig, RunData


class TreesConfig(TreeFiles, LengthConfig, RunData, changeable=True):
    """The trees, and how they are batched."""

    tokenizer: str = hp(
        "",
        "A SentencePiece model that a parser was trained with. Default: train"
        " one on the training trees.",
    )
    batch_tokens: int = same_field(DataConfig, "batch_tokens")
    num_buckets: int = same_field(DataConfig, "num_buckets")

    @property
    def given_tokenizers(self) -> dict[str, str]:
        return {"vocab_size": self.tokenizer}


class ParserDecoding(DecodingConfig, changeable=True):
    """The search for a tree, by default as in sec. 6.3 of the paper.

    Beam size 21, length penalty 0.3, at most 300 tokens more than the sentence.
    """

    beam_size: int = same_field(DecodingConfig, "beam_size", 21)
    length_penalty: float = same_field(DecodingConfig, "length_penalty", 0.3)
    extra_length: int = same_field(DecodingConfig, "extra_length", 300)
