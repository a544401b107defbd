"""The configuration of a corpus: its pairs, vocabulary and batches."""

import dataclasses
import pathlib

from keras_transformer.config import LengthConfig
from keras_transformer.data.buckets import NUM_BUCKETS
from keras_transformer.data.languages import (
    choose_tags,
    prefixes_with,
    tags_of,
)
from keras_transformer.data.mixture import parse_mixture
from keras_transformer.data.modifiers import MODIFIERS, parse_modifiers
from keras_transformer.data.shards import TOKENIZER
from keras_transformer.fields import GIVEN, check_values, hp
from trainers.run.built_in import PHRASEBOOK, BuiltIn

IMPORTED = "imported"  # the data set of a model from another system
OF_FILES = {"dataset": ("files", "prepared")}


@dataclasses.dataclass(frozen=True)
class DataConfig(LengthConfig):
    """The sentence pairs, and how they become batches (sec. 5.1)."""

    dataset: str = hp(
        "phrasebook",
        "phrasebook (built in), files, prepared (by trainers.prepare), or"
        " tfds:NAME such as tfds:wmt14_translate/de-en. The work directory of"
        " an imported model says imported: it has no sentence pairs.",
    )
    source_language: str = hp(
        "en", "Language to translate from.", inherited=True
    )
    target_language: str = hp(
        "de",
        "Language to translate into. With dataset=files, several may be given,"
        " separated by commas: see docs/multilingual.md.",
        inherited=True,
    )
    train_files: tuple[str, ...] = hp(
        (),
        "With files: PREFIX of PREFIX.en[.gz] and PREFIX.de[.gz], or several,"
        " separated by commas; with prepared: the directory.",
        needs=OF_FILES,
        changeable=True,
    )
    valid_files: tuple[str, ...] = hp(
        (),
        "Prefixes of the validation pairs. Without them, no validation.",
        needs=OF_FILES,
        changeable=True,
    )
    test_files: tuple[str, ...] = hp(
        (),
        "Prefixes of the test pairs, translated when training ends.",
        needs=OF_FILES,
        changeable=True,
    )
    data_dir: str = hp(
        "",
        "Directory of TFDS' prepared data. Default: TFDS' own.",
        changeable=True,
    )
    phrasebook_pairs: int = hp(
        40000,
        "With phrasebook: training pairs to read, at most"
        f" {PHRASEBOOK.train_size:,}.",
        low=1,
        changeable=True,
    )
    share_vocabulary: bool = hp(
        True,
        "One vocabulary for both languages, as in sec. 5.1. If not, each"
        " language has its own, of source_vocab_size and vocab_size tokens.",
        excludes={"dataset": "prepared"},
        inherited=True,
    )
    tokenizer: str = hp(
        "",
        "A SentencePiece model to use. Default: train one on the training"
        " pairs, or use the model of the prepared corpus.",
        needs={"share_vocabulary": True},
        excludes={"dataset": "prepared"},
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
    subword_sampling: float = hp(
        0.0,
        "Segments the training pairs anew in every epoch. With a byte-pair"
        " vocabulary, the probability of skipping a merge (BPE dropout; its"
        " paper: 0.1). With a unigram vocabulary, alpha, the exponent of the"
        " probability of a segmentation; smaller values vary more (subword"
        " regularization; its paper: 0.1 to 0.5). 0 disables it.",
        low=0.0,
        below=1.0,
        excludes={"dataset": "prepared"},  # which holds ids, not text
        changeable=True,
    )
    modifiers: str = hp(
        "",
        "Changes of the training text, drawn anew in every epoch, each with the"
        " probability that a pair has it, such as 'UpperCase 0.05, Typos 0.1':"
        f" {', '.join(MODIFIERS)}; see docs/corpora.md.",
        excludes={"dataset": "prepared", "subword_sampling": GIVEN},
        changeable=True,
    )
    mixture: str = hp(
        "",
        "Weights and stages of train_files, such as 'original 0.5, back 0.5,"
        " until 10; original 1': until epoch 10, as many pairs of back as of"
        " original, see docs/corpora.md. Default: every pair once an epoch.",
        needs={"dataset": "files"},
        changeable=True,
    )
    language_temperature: float = hp(
        1.0,
        "With several target languages: the share of a language with n pairs is"
        " proportional to n ** (1 / temperature) (Arivazhagan et al. 2019). 1:"
        " every pair once an epoch; higher values repeat the pairs of small"
        " languages.",
        low=1.0,
        changeable=True,
    )
    batch_tokens: int = hp(
        25000,
        "Maximum number of tokens on each side of a batch, padding included.",
        low=1,
        changeable=True,
    )
    num_buckets: int = hp(
        NUM_BUCKETS,
        "Maximum number of different batch shapes.",
        low=1,
        changeable=True,
    )

    def __post_init__(self):
        # First: other options need certain values of it.
        check_values(type(self), dataset=self.dataset)
        if self.dataset not in (
            "phrasebook",
            "files",
            "prepared",
            IMPORTED,
        ) and not (self.dataset.startswith("tfds:") and len(self.dataset) > 5):
            raise ValueError(
                "dataset must be phrasebook, files, prepared or tfds:NAME."
                f" Received: dataset={self.dataset!r}"
            )
        super().__post_init__()
        if self.dataset == "files" and not self.train_files:
            raise ValueError("dataset=files needs train_files=PREFIX[,PREFIX].")
        if self.dataset == "prepared" and len(self.train_files) != 1:
            raise ValueError(
                "dataset=prepared needs train_files=DIR, one directory."
                f" Received: train_files={','.join(self.train_files)!r}"
            )
        for symbol in self.vocabulary_symbols:
            if symbol.split() != [symbol]:
                raise ValueError(
                    "vocabulary_symbols must be words, without white space."
                    f" Received: {symbol!r}"
                )
        if self.modifiers:
            parse_modifiers(self.modifiers)
        if self.mixture:
            parse_mixture(self.mixture, self.train_files)
        self._check_languages()

    def _check_languages(self):
        """The languages differ; the options fit several target languages."""
        languages = self.target_language.split(",")
        distinct = {self.source_language, *languages}
        if len(distinct) <= len(languages):
            raise ValueError(
                "source_language and target_language must differ. Received:"
                f" source_language={self.source_language!r},"
                f" target_language={self.target_language!r}"
            )
        if not self.tags:
            if self.language_temperature != 1:
                raise ValueError(
                    "language_temperature needs several target languages."
                    f" Received: target_language={self.target_language!r},"
                    f" language_temperature={self.language_temperature:g}"
                )
            return
        if any(language.split() != [language] for language in languages):
            raise ValueError(
                "target_language must be language codes, separated by commas"
                " alone. Received:"
                f" target_language={self.target_language!r}"
            )
        if self.dataset != "files" or self.mixture or self.modifiers:
            raise ValueError(
                "several target languages need dataset=files, and exclude"
                " mixture, which language_temperature replaces, and modifiers,"
                " which would change the tags. Received:"
                f" target_language={self.target_language!r},"
                f" dataset={self.dataset!r}, mixture={self.mixture!r},"
                f" modifiers={self.modifiers!r}"
            )

    @property
    def tags(self) -> dict[str, str]:
        """The tag of each target language; empty if there is only one."""
        return tags_of(self.target_language)

    @property
    def directions(self) -> dict[str, str]:
        """The target language of each tag; of a single language, of ""."""
        languages = {tag: language for language, tag in self.tags.items()}
        return languages or {"": self.target_language}

    @property
    def built_in(self) -> BuiltIn | None:
        """The corpus of the package that is read, if it is one."""
        return PHRASEBOOK if self.dataset == "phrasebook" else None

    def into(self, language: str) -> "DataConfig":
        """The data of one target language, without tags.

        It has the validation and test files that have the language.

        Raises:
            ValueError: It is not a target language.
        """
        if not choose_tags(self.target_language, language):
            return self
        return dataclasses.replace(
            self,
            target_language=language,
            language_temperature=1.0,
            valid_files=prefixes_with(self.valid_files, language),
            test_files=prefixes_with(self.test_files, language),
        )

    @property
    def given_tokenizers(self) -> dict[str, str]:
        """Paths of the SentencePiece models to use, by the field of their size.

        An empty path means that a new model is trained.
        """
        if not self.share_vocabulary:
            return {
                "source_vocab_size": self.source_tokenizer,
                "vocab_size": self.target_tokenizer,
            }
        if self.dataset == "prepared":
            return {
                "vocab_size": str(pathlib.Path(self.train_files[0]) / TOKENIZER)
            }
        return {"vocab_size": self.tokenizer}
