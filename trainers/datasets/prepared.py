"""Corpora that `kt-prepare` has cleaned and encoded."""

import pathlib

from keras_transformer.data.files.pairs import Pairs
from keras_transformer.data.shards import (
    TOKENIZER,
    PreparedCorpus,
    read_index,
    read_prepared,
)
from keras_transformer.text.tokenization import Tokenizer, TokenizerPair
from trainers.datasets.dataset import CorpusConfig
from trainers.datasets.files import Files


class Prepared(Files):
    """Training pairs as ids, with parallel files for validation and test."""

    def check(self, data: CorpusConfig) -> None:
        if len(data.train_files) != 1:
            raise ValueError(
                "dataset=prepared needs train_files=DIR, one directory."
                f" Received: train_files={','.join(data.train_files)!r}"
            )

    def read(self, data: CorpusConfig, split: str) -> Pairs:
        return Pairs.of([]) if split == "train" else super().read(data, split)

    def find_files(self, data: CorpusConfig, split: str) -> list[pathlib.Path]:
        return [] if split == "train" else super().find_files(data, split)

    def tokenizer(self, data: CorpusConfig) -> str:
        (directory,) = data.train_files
        read_index(directory)  # raises if the corpus is incomplete
        return str(pathlib.Path(directory) / TOKENIZER)

    def read_ids(
        self,
        data: CorpusConfig,
        tokenizer: Tokenizer | TokenizerPair,
        max_length: int,
    ) -> PreparedCorpus:
        """Opens the corpus on disk.

        Raises ValueError if the corpus is corrupt, or has other languages,
        another vocabulary, or a larger `max_length` than the options.
        """
        (directory,) = data.train_files
        index = read_index(directory)
        for name in ("source_language", "target_language"):
            if getattr(data, name) != index[name]:
                raise ValueError(
                    f"{name} must be {index[name]!r}, as in {directory}."
                    f" Received: {name}={getattr(data, name)!r}"
                )
        if max_length < index["max_length"]:
            raise ValueError(
                f"max_length must be at least {index['max_length']}, as in"
                f" {directory}. Received: max_length={max_length}"
            )
        received = tokenizer.source.sha256
        if received != index["tokenizer_sha256"]:
            raise ValueError(
                f"{directory}: the ids are not of this vocabulary: expected a"
                f" tokenizer of SHA-256 {index['tokenizer_sha256']}."
                f" Received: {received}"
            )
        return read_prepared(directory)
