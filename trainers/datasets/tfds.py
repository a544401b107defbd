"""Data sets of TensorFlow Datasets: `tfds:NAME`."""

from keras_transformer.commands.startup import (
    ending_on_interrupt,
    load_tensorflow,
)
from keras_transformer.data.files.pairs import (
    MissingSplitError,
    Pairs,
    check_prepared,
    read_tfds,
)
from trainers.datasets.dataset import CorpusConfig, Dataset


class Tfds(Dataset[CorpusConfig]):
    """A translation data set. Its validation and test split may be missing."""

    def check_downloaded(self, data: CorpusConfig) -> None:
        check_prepared(
            data.dataset.removeprefix("tfds:"), data.data_dir or None
        )

    def read(self, data: CorpusConfig, split: str) -> Pairs:
        load_tensorflow()
        try:
            with ending_on_interrupt():  # a download has threads
                return read_tfds(
                    data.dataset.removeprefix("tfds:"),
                    {"valid": "validation"}.get(split, split),
                    data.source_language,
                    data.target_language,
                    data_dir=data.data_dir or None,
                )
        except MissingSplitError:
            if split == "train":
                raise
            return Pairs.of([])
