"""Line-aligned text files, and files of records with both languages."""

import pathlib

from keras_transformer.base.refusals import expect
from keras_transformer.data.files.pairs import Pairs, find_file, has_file
from keras_transformer.data.files.records import (
    find_form,
    find_record_files,
    read_parallel_files,
    read_records,
)
from keras_transformer.data.languages import read_directions
from trainers.datasets.dataset import CorpusConfig, Dataset

LEAST_DRAWN = 100  # validation pairs: the BLEU of fewer says nothing


class Files(Dataset[CorpusConfig]):
    """Files of pairs. With several target languages, sources have tags."""

    def check(self, data: CorpusConfig) -> None:
        expect(
            data.train_files, "train_files=PREFIX[,PREFIX] with dataset=files"
        )
        records = [name for name in data.train_files if find_form(name)]
        expect(
            not (records and (data.tags or data.language_tokens)),
            "prefixes, for a model that is told languages",
            f"{records[:1]} in train_files",
        )

    def read(self, data: CorpusConfig, split: str) -> Pairs:
        share = getattr(data, "valid_share", 0.0)
        if not share or split == "test":
            return self._read(data, split)
        pairs = self._read(data, "train")
        valid, train = pairs.divide(share)
        if len(valid) < LEAST_DRAWN:
            valid, train = Pairs.chain([]), pairs
        return valid if split == "valid" else train

    def _read(self, data, split):
        names = data.files_of(split)
        languages = data.source_language, data.target_language
        if (data.tags or data.language_tokens) and names:
            return read_directions(names, data)
        if not names:
            return Pairs.chain([])
        return read_parallel_files(names, *languages, data.columns_of(split))

    def find_files(self, data: CorpusConfig, split: str) -> list[pathlib.Path]:
        several = len(data.pairs) > 1  # a prefix need not have all languages
        languages = dict.fromkeys([*data.sources, *data.targets])
        paths: list[pathlib.Path] = []
        for name in data.files_of(split):
            paths += find_record_files(name) or [
                find_file(name, language)
                for language in languages
                if not several or has_file(name, language)
            ]
        return paths

    def check_file(
        self, data: CorpusConfig, path: pathlib.Path, split: str
    ) -> None:
        if find_form(path):
            next(read_records(path, data.columns_of(split)), None)
        else:
            super().check_file(data, path, split)
