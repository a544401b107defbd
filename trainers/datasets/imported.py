"""The data of a model that was trained by another system."""

from keras_transformer.data.files.pairs import Pairs
from trainers.datasets.dataset import CorpusConfig, Dataset

IMPORTED = "imported"  # the value of `dataset`


class ImportedData(Dataset[CorpusConfig]):
    """The unknown training data of an imported model."""

    def read(self, data: CorpusConfig, split: str) -> Pairs:
        raise ValueError(
            "the sentence pairs of an imported model are not known: expected"
            f" files of pairs, --{split}_files=PREFIX. Received:"
            f" dataset={data.dataset!r}"
        )
