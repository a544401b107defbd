"""The interface of data sets, and the options of sentence pairs."""

import importlib
import pathlib
import typing
from collections.abc import Iterable

from keras_transformer.base.fields import check_values, hp, same_field
from keras_transformer.base.refusals import expect
from keras_transformer.data.files.pairs import Pairs, read_lines
from keras_transformer.data.languages import Languages, with_tag
from keras_transformer.translation.requests import Request
from trainers.datasets import DATASETS, OF_FILES, OPTIONS, find_kind
from trainers.datasets.built_in import PHRASEBOOK, BuiltIn

if typing.TYPE_CHECKING:
    from keras_transformer.data.batches import AnyCorpus
    from keras_transformer.text.tokenization import Tokenizer, TokenizerPair

# For each direction, pairs of a translator's input and its reference.
PairsToTranslate: typing.TypeAlias = dict[str, list[tuple[str | Request, str]]]
SPLITS = ("train", "valid", "test")
Options = typing.TypeVar("Options")  # `CorpusConfig`, or that of another task


class Dataset(typing.Generic[Options]):
    """A kind of data set: all that depends on the value of `--dataset`.

    Every kind defines `read`. The defaults of the other methods fit most kinds.
    """

    def check(self, data: Options) -> None:
        """Raises ValueError if the options do not fit this kind."""

    def read(self, data: Options, split: str) -> Pairs:
        """Reads the pairs of a split: "train", "valid" or "test".

        Returns no pairs if the data has none in this split, or has ids instead.

        Raises ValueError, with file and line, if the data cannot be used;
        OSError if a file cannot be read.
        """
        raise NotImplementedError

    def find_files(self, data: Options, split: str) -> list[pathlib.Path]:
        """Lists the files that `read` reads for a split."""
        return []

    def check_file(self, data: Options, path: pathlib.Path, split: str) -> None:
        """Raises ValueError or OSError if a file does not begin with data."""
        has_lines = any(True for _ in read_lines(path))  # reads one line
        expect(has_lines, "lines", "an empty file", where=path)

    def check_downloaded(self, data: Options) -> None:
        """Raises ValueError if `read` would have to download the data."""

    def symbols(self, data: Options, pairs: Pairs) -> tuple[str, ...]:
        """Returns the words of targets that must be one token each."""
        return ()

    def tokenizer(self, data: Options) -> str:
        """Returns the path of the vocabulary if the data has ids, else ""."""
        return ""

    def read_ids(
        self,
        data: Options,
        tokenizer: "Tokenizer | TokenizerPair",
        max_length: int,
    ) -> "AnyCorpus | None":
        """Opens the training pairs if the data has ids, else returns None.

        Raises ValueError if the ids do not fit the options or the vocabulary,
        or if a side may have more than `max_length` tokens.
        """
        return None

    def built_in(self, data: Options) -> BuiltIn | None:
        """Returns the built-in corpus that is read, or None."""
        return None

    def limits(self) -> list[str]:
        """Describes what a model trained on very limited data can translate.

        Returns lines that are shown when training ends.
        """
        return []


def implied_dataset(given: typing.Mapping[str, typing.Any]) -> dict[str, str]:
    """Returns the flag `dataset` if only `train_files` is given, else {}."""
    is_implied = "train_files" in given and "dataset" not in given
    return {"dataset": "files"} if is_implied else {}


def find_dataset(dataset: str) -> Dataset:
    """Returns the `Dataset` for a value of `--dataset`.

    Raises ValueError if the value is unknown.
    """
    module, _, name = find_kind(dataset).path.rpartition(".")
    return getattr(importlib.import_module(module), name)()


def read_split(data: typing.Any, split: str) -> Pairs:
    """Reads the pairs of a split, as `Dataset.read` of the data's kind does."""
    return find_dataset(data.dataset).read(data, split)


def to_translate(
    data: typing.Any, names: Iterable[str], pairs: Pairs
) -> PairsToTranslate:
    """Groups pairs by direction, as a translator and a metric take them.

    `names` are the directions of a `DirectionalMetric`; those without pairs are
    left out. With several target languages and tags, pairs with a blank source
    are left out, too, as they have no tag.
    """
    found: PairsToTranslate = {}
    if not pairs.directions:
        found |= {tag: with_tag(pairs, tag) for tag in names}
        return {tag: rows for tag, rows in found.items() if rows}
    for codes, part in pairs.by_direction():
        of = data.direction(*codes)
        found["-".join(codes)] = [
            (Request(source, direction=of), target) for source, target in part
        ]
    return found


def sources_of(pairs: PairsToTranslate) -> list[str | Request]:
    """Returns the sources of all directions in one list."""
    return [source for rows in pairs.values() for source, _ in rows]


class CorpusConfig(Languages):
    """The sentence pairs of a training."""

    source_language: str = same_field(Languages, "source_language", "en")
    target_language: str = same_field(Languages, "target_language", "de")
    dataset: str = hp(
        "phrasebook",
        "; ".join(f"{name}: {kind.help}" for name, kind in OPTIONS.items())
        + ". The work directory of an imported model says imported: it has no"
        " sentence pairs.",
        common=True,
    )
    train_files: tuple[str, ...] = hp(
        (),
        "Training pairs. "
        + "; ".join(f"{n}: {DATASETS[n].train_files}" for n in OF_FILES)
        + ".",
        needs={"dataset": OF_FILES},
        changeable=True,
        common=True,
    )
    columns: tuple[str, ...] = hp(
        (),
        "The two columns SOURCE,TARGET of files of records: their names, or"
        " numbers from 1 if a table has no names; for TMX, PO, MO, XLIFF and TS"
        " the languages. Default: source_language and target_language. See"
        " docs/training.md.",
        needs={"dataset": OF_FILES},
        changeable=True,
        common=True,
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
        # Checked first: other options need certain values of `dataset`.
        check_values(type(self), dataset=self.dataset)
        dataset = find_dataset(self.dataset)
        super().__post_init__()
        self._check_languages()
        for name in (name for name in vars(self) if name.endswith("columns")):
            columns = getattr(self, name)
            are_two = len(columns) == len({*columns}) == 2
            expect(
                not columns or (are_two and "0" not in columns),
                f"{name}, two names SOURCE,TARGET, or numbers from 1",
                f"{name}={','.join(columns)!r}",
            )
        dataset.check(self)

    def _check_languages(self) -> None:
        """Raises ValueError if languages are equal or do not fit `dataset`."""
        languages = self.targets
        names = {self.source_language, *languages}
        if self.language_tokens:
            are_distinct = bool(self.pairs)
        else:
            are_distinct = len(names) > len(languages)
        expect(
            are_distinct,
            "languages that differ",
            f"{self.source_language=}, {self.target_language=}",
        )
        if not self.tags and not self.language_tokens:
            return
        expect(
            all(code.split() == [code] for code in self.sources + languages),
            "language codes, separated by commas alone",
            f"{self.source_language=}, {self.target_language=}",
        )
        expect(
            len(self.sources) < 2 or self.language_tokens,
            "language_tokens with several source languages",
            f"{self.source_language=}",
        )
        kind = find_kind(self.dataset)
        is_imported = not kind.help
        if not kind.has_directions and not is_imported:
            kinds = [n for n, one in OPTIONS.items() if one.has_directions]
            raise ValueError(
                "several target languages, and language_tokens, need"
                f" dataset={' or '.join(kinds)}. Received:"
                f" target_language={self.target_language!r},"
                f" dataset={self.dataset!r}"
            )

    def files_of(self, split: str) -> tuple[str, ...]:
        """Returns the value of the option that names the files of a split."""
        return getattr(self, f"{split}_files")

    def columns_of(self, split: str) -> tuple[str, ...]:
        """Returns the columns of source and target in a split's records."""
        own = getattr(self, f"{split}_columns", ())
        languages = self.source_language, self.target_language
        return own or self.columns or languages
