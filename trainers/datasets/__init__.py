"""The kinds of data sets, each a class in a file of its own.

`DATASETS` is the table of the kinds. To add a kind, write a file with a
subclass of `Dataset`, and add a row to the table. No other file names a kind.

    dataset        `Dataset`, the interface; `CorpusConfig`, the options
    files          line-aligned text files, tables, JSONL, TMX, catalogues, ...
    prepared       the output of kt-prepare
    tfds           TensorFlow Datasets
    phrasebook     built-in pairs of English and German
    imported       the unknown training data of an imported model
    trees          trees and their sentences, for parsers
    built_in       the files of the package
    constituency   trees, and the files of the Penn Treebank
    linearization  trees as sequences of tokens; repair of invalid sequences
"""

import typing


class Kind(typing.NamedTuple):
    """The facts about a kind that options need before its class is loaded."""

    path: str  # import path of the class
    # Help for `--dataset`; empty if the option does not accept this kind.
    help: str = ""
    # Help for `--train_files`; empty if this kind reads no such files. Pairs
    # from text files have `sizes`, one for each file, so they can be mixed and
    # have word links.
    train_files: str = ""
    # Whether the training pairs are ids of a given vocabulary.
    holds_ids: bool = False
    # Whether there may be several languages, or language tokens.
    has_directions: bool = False


DATASETS = {
    "phrasebook": Kind(
        "trainers.datasets.phrasebook.Phrasebook", help="built in"
    ),
    "files": Kind(
        "trainers.datasets.files.Files",
        help="parallel text files; CSV, TSV, XLSX, ODS, JSONL, Parquet, TMX,"
        " PO, MO, XLIFF, Qt's TS",
        train_files="PREFIX of PREFIX.en[.gz] and PREFIX.de[.gz], a file such"
        " as x.csv[.gz] or x.mo, a folder or pattern of them, a data set saved"
        " by `datasets`; or several, separated by commas",
        has_directions=True,
    ),
    "prepared": Kind(
        "trainers.datasets.prepared.Prepared",
        help="the output of kt-prepare",
        train_files="the directory",
        holds_ids=True,
    ),
    "tfds:NAME": Kind(
        "trainers.datasets.tfds.Tfds",
        help="TensorFlow Datasets, such as tfds:wmt14_translate/de-en",
    ),
    "imported": Kind("trainers.datasets.imported.ImportedData"),
    "trees": Kind("trainers.datasets.trees.Trees"),
}
OPTIONS = {name: kind for name, kind in DATASETS.items() if kind.help}
OF_FILES = tuple(name for name, kind in DATASETS.items() if kind.train_files)
OF_IDS = tuple(name for name, kind in DATASETS.items() if kind.holds_ids)
OF_TEXT_FILES = tuple(name for name in OF_FILES if name not in OF_IDS)


def find_kind(dataset: str) -> Kind:
    """Returns the kind of data set for a value of `--dataset`.

    Raises ValueError if the value is unknown.

    >>> find_kind("tfds:wmt14_translate/de-en").path
    'trainers.datasets.tfds.Tfds'
    """
    kind, _, name = dataset.partition(":")
    found = DATASETS.get(f"{kind}:NAME" if name else dataset)
    if found is None:
        *others, last = OPTIONS
        raise ValueError(
            f"dataset must be {', '.join(others)} or {last}."
            f" Received: dataset={dataset!r}"
        )
    return found
