"""The sentence pairs of evaluation, scoring and alignment."""

import pathlib
from collections.abc import Sequence

from sacrebleu import utils as sacrebleu_sets
from sacrebleu.dataset import DATASETS

from keras_transformer.base.refusals import expect
from keras_transformer.data.files.pairs import Pairs, read_lines
from keras_transformer.data.languages import base_language
from keras_transformer.storage.workdir import WorkDirectory
from trainers.datasets.dataset import read_split
from trainers.run.data_config import DataConfig
from trainers.scoring.options import TestOptions
from trainers.translating.options import LanguageOptions


def read_test_pairs(data: DataConfig, options: TestOptions) -> Pairs:
    """Reads the test pairs that the options choose.

    If a test set has several references, the first one is used. Raises errors
    as `read_pairs` and `read_test_set` do.
    """
    if options.test_set:
        sources, references = read_test_set(data, options.test_set)
        return Pairs.of(list(zip(sources, references[0], strict=True)))
    return read_pairs(data, "test", options.test_files)


def read_pairs(data: DataConfig, split: str, files: tuple[str, ...]) -> Pairs:
    """Reads the pairs of `files`, or if empty, of a split of the data.

    The split is "train", "valid" or "test". Raises ValueError if there are no
    pairs, ValueError or OSError if they cannot be read.
    """
    pairs = read_split(data.with_files(files) if files else data, split)
    expect(pairs, f"--{split}_files=PREFIX", "none")
    return pairs


def read_references(
    data: DataConfig, options: TestOptions
) -> tuple[list[str], list[list[str]]]:
    """Reads the sources of the test pairs, and a list for each reference."""
    if options.test_set:
        return read_test_set(data, options.test_set)
    sources, references = zip(*read_test_pairs(data, options), strict=True)
    return list(sources), [list(references)]


def read_test_set(
    data: DataConfig, name: str
) -> tuple[list[str], list[list[str]]]:
    """Reads a test set of sacreBLEU in the languages of the data.

    Returns the sources and a list for each reference. Raises ValueError if
    sacreBLEU lacks the test set in these languages, or cannot download it.
    """
    languages = data.source_language, data.target_language
    known = DATASETS[name].langpairs if name in DATASETS else ()
    pair = "-".join(languages)
    if pair not in known:  # the model has codes such as deu_Latn or de_DE
        pair = "-".join(map(base_language, languages))
    if pair not in known:
        names = sacrebleu_sets.get_available_testsets_for_langpair(pair)
        raise ValueError(
            f"test_set must be one that sacreBLEU has for {pair}"
            f" ({', '.join(sorted(names)) or 'none'})."
            f" Received: test_set={name!r}"
        )
    try:
        source = sacrebleu_sets.get_source_file(name, pair)
        references = sacrebleu_sets.get_reference_files(name, pair)
    except (OSError, EOFError, SystemExit) as error:
        # sacreBLEU ends the process if a checksum or a certificate is wrong.
        raise ValueError(
            f"sacreBLEU cannot download {name} for {pair} into"
            f" {sacrebleu_sets.SACREBLEU_DIR}: {error}. Put it there, or use"
            " test_files"
        ) from error
    lines, *others = (read_text(path) for path in (source, *references))
    for path, stream in zip(references, others, strict=True):
        check_lines(path, stream, lines)
    return lines, others


def read_text(path: str) -> list[str]:
    """Reads the lines of a file, with white space reduced to single spaces.

    Raises ValueError if the file is not UTF-8, OSError if it cannot be read.
    """
    return list(read_lines(pathlib.Path(path)))


def check_lines(path: str, lines: Sequence, sources: Sequence) -> None:
    """Raises ValueError unless a file has a line for each source."""
    expect(
        len(lines) == len(sources),
        f"{len(sources):,} lines, one for each source",
        f"{len(lines):,} lines",
        where=path,
    )


def read_data(workdir: str, languages: LanguageOptions | None) -> DataConfig:
    """Reads the data options of a work directory, for the languages chosen."""
    data = WorkDirectory(workdir).read_section("data", DataConfig)
    return data.of_direction(**vars(languages or LanguageOptions()))
