"""Line-aligned text files: `PREFIX.en[.gz]` and `PREFIX.de[.gz]`."""

import pathlib

from keras_transformer.data.languages import read_directions
from keras_transformer.data.pairs import (
    Pairs,
    find_file,
    has_file,
    read_parallel_files,
)
from trainers.datasets.dataset import CorpusConfig, Dataset


class Files(Dataset[CorpusConfig]):
    """Parallel files; with several target languages, sources have tags."""

    def check(self, data: CorpusConfig) -> None:
        if not data.train_files:
            raise ValueError("dataset=files needs train_files=PREFIX[,PREFIX].")

    def read(self, data: CorpusConfig, split: str) -> Pairs:
        prefixes = data.files_of(split)
        if not prefixes:
            return Pairs.of([])
        if data.tags or data.language_tokens:
            return read_directions(prefixes, data)
        return read_parallel_files(
            prefixes, data.source_language, data.target_language
        )

    def find_files(self, data: CorpusConfig, split: str) -> list[pathlib.Path]:
        several = len(data.pairs) > 1  # of which a prefix may have some
        languages = dict.fromkeys([*data.sources, *data.targets])
        return [
            find_file(prefix, language)
            for prefix in data.files_of(split)
            for language in languages
            if not several or has_file(prefix, language)
        ]
