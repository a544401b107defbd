"""The phrasebook: English-German sentence pairs that come with the package.

A model trained on the phrasebook translates sentences that consist of its words
and constructions, which `overview` lists.
"""

from keras_transformer.base.refusals import expect
from keras_transformer.data.files.pairs import Pairs
from trainers.datasets.built_in import FOLDER, HELD_OUT, PHRASEBOOK, BuiltIn
from trainers.datasets.dataset import CorpusConfig, Dataset


class Phrasebook(Dataset[CorpusConfig]):
    """The phrasebook, in either direction."""

    def read(self, data: CorpusConfig, split: str) -> Pairs:
        languages = data.source_language, data.target_language
        expect(
            set(languages) == {"en", "de"},
            "English and German (en, de) with dataset=phrasebook",
            " and ".join(languages),
        )
        num_pairs = data.phrasebook_pairs if split == "train" else HELD_OUT
        pairs = read_split(split, num_pairs)
        if data.source_language == "de":
            pairs = [(german, english) for english, german in pairs]
        return Pairs.of(pairs)

    def built_in(self, data: CorpusConfig) -> BuiltIn:
        return PHRASEBOOK

    def limits(self) -> list[str]:
        return [
            *overview()[:2],
            "To see all words and constructions: kt-phrasebook",
        ]


def read_split(name: str, num_pairs: int) -> list[tuple[str, str]]:
    """Reads the first pairs (English, German) of a split; no pair occurs twice.

    "train" has 60,000 pairs, "valid" and "test" have 1,000 each.

    >>> read_split("train", 6)[-1]
    ('The neighbors see them.', 'Die Nachbarn sehen sie.')
    """
    pairs = []
    for line in PHRASEBOOK.read(name, num_pairs):
        english, german = line.split("\t")
        pairs.append((english, german))
    return pairs


def overview() -> list[str]:
    """Returns two lines of summary, then lines of words and constructions."""
    return (FOLDER / "phrasebook.txt").read_text("utf-8").splitlines()
