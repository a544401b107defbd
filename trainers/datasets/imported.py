"""The data of a model that another system has trained."""

from keras_transformer.data.files.pairs import Pairs
from trainers.datasets.dataset import CorpusConfig, Dataset

IMPORTED = "imported"  # the value of `dataset`


class ImportedData(Dataset[CorpusConfig]):
    """Sentence pairs that are not known."""

    def read(self, data: CorpusConfig, split: str) -> Pairs:
        raise ValueError(
            "the sentence pairs of an imported model are not known: expected"
            f" files of pairs, --{split}_files=PREFIX. Received:"
            f" dataset={data.dataset!r}"
        )
