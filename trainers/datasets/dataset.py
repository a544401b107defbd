"""What every kind of data set can do, and the options of sentence pairs."""

import dataclasses
import importlib
import pathlib
import typing

from keras_transformer.data.languages import Languages
from keras_transformer.data.pairs import Pairs
from keras_transformer.fields import check_values, hp, same_field
from trainers.datasets import DATASETS, OF_FILES, OPTIONS, find_kind
from trainers.datasets.built_in import PHRASEBOOK, BuiltIn

if typing.TYPE_CHECKING:
    from keras_transformer.data.batches import AnyCorpus
    from keras_transformer.tokenization import Tokenizer, TokenizerPair

SPLITS = ("train", "valid", "test")
Options = typing.TypeVar("Options")  # `CorpusConfig`; other tasks have others


class Dataset(typing.Generic[Options]):
    """A kind of data set: all that depends on the value of `--dataset`.

    A kind that holds text defines `read`. The others have a meaning that fits
    most kinds.
    """

    def check(self, data: Options) -> None:
        """Raises ValueError if the options do not fit this kind."""

    def read(self, data: Options, split: str) -> Pairs:
        """The pairs of a split; none if it has none, or has ids instead.

        Raises:
            ValueError: The data cannot be used: with its file and line.
            OSError: It cannot be read.
        """
        raise NotImplementedError

    def find_files(self, data: Options, split: str) -> list[pathlib.Path]:
        """The files that `read` reads: a change in one is a change of data."""
        return []

    def check_downloaded(self, data: Options) -> None:
        """Raises ValueError if `read` would download the data first."""

    def symbols(self, data: Options, pairs: Pairs) -> tuple[str, ...]:
        """Words of the targets that must be one token each."""
        return ()

    def tokenizer(self, data: Options) -> str:
        """The path of the vocabulary of a kind that holds ids; else empty."""
        return ""

    def read_ids(
        self,
        data: Options,
        tokenizer: "Tokenizer | TokenizerPair",
        max_length: int,
    ) -> "AnyCorpus | None":
        """The training pairs of a kind that holds ids; else None.

        Raises:
            ValueError: They do not fit the options, or the vocabulary, or have
                more than `max_length` tokens on a side.
        """
        return None

    def built_in(self, data: Options) -> BuiltIn | None:
        """The corpus of the package that is read, if it is one."""
        return None

    def limits(self) -> list[str]:
        """What a model can translate that is trained on it, if that is little.

        The lines are shown when training ends.
        """
        return []


def find_dataset(dataset: str) -> Dataset:
    """The `Dataset` of a value of `--dataset`.

    Raises:
        ValueError: There is none.
    """
    module, _, name = find_kind(dataset).path.partition(".")
    found = importlib.import_module(f"trainers.datasets.{module}")
    return getattr(found, name)()


def read_split(data: typing.Any, split: str) -> Pairs:
    """The pairs of a split; see `Dataset.read`."""
    return find_dataset(data.dataset).read(data, split)


@dataclasses.dataclass(frozen=True)
class CorpusConfig(Languages):
    """The sentence pairs of a training."""

    source_language: str = same_field(Languages, "source_language", "en")
    target_language: str = same_field(Languages, "target_language", "de")
    dataset: str = hp(
        "phrasebook",
        "; ".join(f"{name}: {kind.help}" for name, kind in OPTIONS.items())
        + ". The work directory of an imported model says imported: it has no"
        " sentence pairs.",
    )
    train_files: tuple[str, ...] = hp(
        (),
        "Training pairs. "
        + "; ".join(f"{n}: {DATASETS[n].train_files}" for n in OF_FILES)
        + ".",
        needs={"dataset": OF_FILES},
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

    def __post_init__(self) -> None:
        # First: other options need certain values of it.
        check_values(type(self), dataset=self.dataset)
        dataset = find_dataset(self.dataset)
        super().__post_init__()
        self._check_languages()
        dataset.check(self)

    def _check_languages(self) -> None:
        """The languages differ, and are as many as the kind may have."""
        languages = self.targets
        names = {self.source_language, *languages}
        if self.language_tokens:
            are_distinct = bool(self.pairs)
        else:
            are_distinct = len(names) > len(languages)
        if not are_distinct:
            raise ValueError(
                "source_language and target_language must differ. Received:"
                f" source_language={self.source_language!r},"
                f" target_language={self.target_language!r}"
            )
        if not self.tags:
            return
        if any(language.split() != [language] for language in languages):
            raise ValueError(
                "target_language must be language codes, separated by commas"
                " alone. Received:"
                f" target_language={self.target_language!r}"
            )
        if not find_kind(self.dataset).has_directions:
            kinds = [n for n, kind in DATASETS.items() if kind.has_directions]
            raise ValueError(
                f"several target languages need dataset={' or '.join(kinds)}."
                f" Received: target_language={self.target_language!r},"
                f" dataset={self.dataset!r}"
            )

    def files_of(self, split: str) -> tuple[str, ...]:
        """The files of a split, as the options name them."""
        return getattr(self, f"{split}_files")
