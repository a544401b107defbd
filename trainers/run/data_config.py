"""The configuration of a run's data: pairs, vocabulary and batches."""

import dataclasses
import typing

from keras_transformer.base.fields import GIVEN, hp
from keras_transformer.base.refusals import expect
from keras_transformer.config import LengthConfig
from keras_transformer.data.buckets import NUM_BUCKETS
from keras_transformer.data.changing.mixture import parse_mixture
from keras_transformer.data.changing.modifiers import MODIFIERS, parse_modifiers
from keras_transformer.data.languages import prefixes_with
from keras_transformer.text.vocabulary import FOLDING, NORMALIZATIONS
from trainers.datasets import OF_FILES, OF_IDS, OF_TEXT_FILES
from trainers.datasets.dataset import CorpusConfig, find_dataset


class RunData(typing.Protocol):
    """The data options that a run uses, with defaults for other tasks."""

    dataset: str
    max_length: int
    batch_tokens: int
    num_buckets: int
    share_vocabulary: bool = True
    case_marks: bool = False
    byte_fallback: bool = False
    split_digits: bool = False
    normalization: str = NORMALIZATIONS[0]
    subword_sampling: float = 0.0
    modifiers: str = ""
    mixture: str = ""
    language_tokens: str = ""
    language_temperature: float = 1.0
    train_files: tuple[str, ...] = ()
    valid_share: float = 0.0
    vocabulary_symbols: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()

    @property
    def tags(self) -> dict[str, str]:
        """`Languages.tags`; empty for a task without languages."""
        return {}

    def pairs_in(self, *prefixes: str) -> list[tuple[str, str]]:
        """`Languages.pairs_in`; empty for a task without languages."""
        return []

    @property
    def given_tokenizers(self) -> dict[str, str]:
        """`DataConfig.given_tokenizers`."""


class DataConfig(CorpusConfig, LengthConfig):
    """The sentence pairs, and how they become batches (sec. 5.1)."""

    valid_files: tuple[str, ...] = hp(
        (),
        "Validation pairs, as train_files; with prepared: as with files."
        " Without them, no validation.",
        needs={"dataset": OF_FILES},
        changeable=True,
        common=True,
    )
    valid_share: float = hp(
        0.0,
        "Share of train_files that becomes validation pairs, drawn by checksums"
        " of their sources, so that copies stay together; none if these are"
        " fewer than 100.",
        low=0.0,
        below=1.0,
        needs={"dataset": OF_TEXT_FILES},
        excludes={"valid_files": GIVEN, "guided_alignment": GIVEN},
        changeable=True,
        common=True,
    )
    test_files: tuple[str, ...] = hp(
        (),
        "Test pairs, as valid_files; they are translated when training ends.",
        needs={"dataset": OF_FILES},
        changeable=True,
        common=True,
    )
    valid_columns: tuple[str, ...] = hp(
        (),
        "The columns of valid_files. Default: columns.",
        needs={"dataset": OF_FILES},
        changeable=True,
    )
    test_columns: tuple[str, ...] = hp(
        (),
        "The columns of test_files, and of the files that other commands read.",
        needs={"dataset": OF_FILES},
        changeable=True,
    )
    share_vocabulary: bool = hp(
        True,
        "One vocabulary for both languages, as in sec. 5.1. If not, each"
        " language has its own, of source_vocab_size and vocab_size tokens.",
        excludes={"dataset": OF_IDS},
        inherited=True,
    )
    tokenizer: str = hp(
        "",
        "A SentencePiece model to use. Default: train one on the training"
        " pairs, or use the model of the prepared corpus.",
        needs={"share_vocabulary": True},
        excludes={"dataset": OF_IDS},
        changeable=True,
    )
    source_tokenizer: str = hp(
        "",
        "A SentencePiece model for the source. Default: train one.",
        needs={"share_vocabulary": False},
        changeable=True,
    )
    target_tokenizer: str = hp(
        "",
        "The same for the target.",
        needs={"share_vocabulary": False},
        changeable=True,
    )
    vocabulary_symbols: tuple[str, ...] = hp(
        (),
        "Words of the source that must be one token each, such as <BT>, the tag"
        " of back-translated text. A new vocabulary includes them; a given one"
        " must contain them.",
        changeable=True,
    )
    case_marks: bool = hp(
        False,
        "Whether the vocabulary is of text in lower case with marks for"
        " capital letters, so that a model also translates text in capitals. A"
        " given vocabulary must have such marks.",
        excludes={"normalization": FOLDING},
        inherited=True,
    )
    byte_fallback: bool = hp(
        False,
        "Whether a new vocabulary has 256 tokens for bytes, which write"
        " characters without a token: new ones, and the rarest of the corpus.",
        excludes={"dataset": OF_IDS},
        changeable=True,
    )
    split_digits: bool = hp(
        False,
        "Whether each digit is a token of a new vocabulary.",
        excludes={"dataset": OF_IDS},
        changeable=True,
    )
    normalization: str = hp(
        NORMALIZATIONS[0],
        "How a new vocabulary normalizes text, by SentencePiece's name; _cf:"
        " to lower case, also in translations.",
        choices=NORMALIZATIONS,
        excludes={"dataset": OF_IDS},
        changeable=True,
    )
    subword_sampling: float = hp(
        0.0,
        "Segments the training pairs anew in every epoch. With a byte-pair"
        " vocabulary, the probability of skipping a merge (BPE dropout; its"
        " paper: 0.1). With a unigram vocabulary, alpha, the exponent of the"
        " probability of a segmentation; smaller values vary more (subword"
        " regularization; its paper: 0.1 to 0.5). 0 disables it.",
        low=0.0,
        below=1.0,
        # The first holds ids, not text.
        excludes={"dataset": OF_IDS, "language_tokens": GIVEN},
        changeable=True,
    )
    modifiers: str = hp(
        "",
        "Changes of the training text, drawn anew in every epoch, each with the"
        " probability that a pair has it, such as 'UpperCase 0.05, Typos 0.1':"
        f" {', '.join(MODIFIERS)}; see docs/corpora.md.",
        excludes={
            "dataset": OF_IDS,
            "subword_sampling": GIVEN,
            "language_tokens": GIVEN,
        },
        changeable=True,
    )
    mixture: str = hp(
        "",
        "Weights and stages of train_files, such as 'original 0.5, back 0.5,"
        " until 10; original 1': until epoch 10, as many pairs of back as of"
        " original, see docs/corpora.md. Default: every pair once an epoch.",
        needs={"dataset": OF_TEXT_FILES},
        excludes={"language_tokens": GIVEN},
        changeable=True,
    )
    language_temperature: float = hp(
        1.0,
        "With several directions: the share of one with n pairs is proportional"
        " to n ** (1 / temperature) (Arivazhagan et al. 2019). 1: every pair"
        " once an epoch; higher values repeat the pairs of small directions.",
        low=1.0,
        changeable=True,
    )
    batch_tokens: int = hp(
        25000,
        "Maximum number of tokens on each side of a batch, padding included.",
        low=1,
        changeable=True,
        common=True,
    )
    num_buckets: int = hp(
        NUM_BUCKETS,
        "Maximum number of different batch shapes.",
        low=1,
        changeable=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for symbol in self.vocabulary_symbols:
            expect(
                symbol.split() == [symbol],
                "words without white space in vocabulary_symbols",
                repr(symbol),
            )
        if self.modifiers:
            parse_modifiers(self.modifiers)
        if self.mixture:
            parse_mixture(self.mixture, self.train_files)
        expect(
            not self.tags or not (self.mixture or self.modifiers),
            "neither modifiers nor mixture (but language_temperature) with"
            " several target languages",
            f"{self.target_language=}, {self.mixture=}, {self.modifiers=}",
        )
        expect(
            not self.valid_share or len(self.pairs) == 1,
            "valid_files instead of valid_share with several languages, which"
            " may have the same sentences",
            f"{self.target_language=}, {self.valid_share=}",
        )
        expect(
            len(self.pairs) != 1 or self.language_temperature == 1,
            "several languages with language_temperature",
            f"{self.target_language=}, {self.language_temperature=}",
        )

    def of_direction(
        self,
        source_language: str | None = None,
        target_language: str | None = None,
    ) -> "DataConfig":
        """Returns the data of one direction, without tags.

        By default, the languages are those of this data. The result keeps the
        validation and test files in the chosen languages.

        Raises ValueError if a language is unknown.
        """
        self.direction(source_language, target_language)  # checks both
        source = source_language or self.source_language
        target = target_language or self.target_language
        chosen = {source, target} - {self.source_language, self.target_language}
        if not chosen:
            return self
        valid_files, test_files = self.valid_files, self.test_files
        for language in chosen:
            valid_files = prefixes_with(valid_files, language)
            test_files = prefixes_with(test_files, language)
        return dataclasses.replace(
            self,
            source_language=source,
            target_language=target,
            valid_files=valid_files,
            test_files=test_files,
            language_temperature=1.0,
        )

    def with_files(self, files: tuple[str, ...]) -> "DataConfig":
        """Returns a copy that reads every split from the same files.

        `dataset` stays as it is if its files are text; otherwise it is "files".
        """
        return dataclasses.replace(
            self,
            dataset=self.dataset if self.dataset in OF_TEXT_FILES else "files",
            train_files=files,
            valid_files=files,
            test_files=files,
            valid_share=0.0,
            mixture="",  # it names other files
        )

    @property
    def given_tokenizers(self) -> dict[str, str]:
        """Paths of SentencePiece models, by the name of their size option.

        An empty path means that a new model is trained.
        """
        if not self.share_vocabulary:
            return {
                "source_vocab_size": self.source_tokenizer,
                "vocab_size": self.target_tokenizer,
            }
        path = self.tokenizer or find_dataset(self.dataset).tokenizer(self)
        return {"vocab_size": path}
