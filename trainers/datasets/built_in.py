"""Corpora that come with the package, one example a line of a compressed file.

They are as they were written once: no option changes an example, or its split.
"""

import dataclasses
import itertools
import lzma
import pathlib

from keras_transformer.base.refusals import expect

FOLDER = pathlib.Path(__file__).parents[1] / "data"
HELD_OUT = 1000  # examples of the validation split, and of the test split


@dataclasses.dataclass(frozen=True)
class BuiltIn:
    """A corpus of the package; no sentence is in it twice."""

    # Name in `FOLDER`. The file has the test split, the validation split and
    # the training split, in this order.
    file: str
    train_size: int  # examples of the training split
    option: str  # the option that says how many of them are read
    # Size of the largest vocabulary that all of them, and the symbols of their
    # targets, can make.
    max_vocab_size: int
    recipe: str  # the recipe that trains on it

    def read(self, split: str, size: int) -> list[str]:
        """Reads the first examples of a split, each a line without its end.

        Raises ValueError: the split is unknown, or has fewer.
        """
        starts = {"test": 0, "valid": HELD_OUT, "train": 2 * HELD_OUT}
        expect(split in starts, "train, valid or test", f"{split=}")
        name, limit = "size", HELD_OUT
        if split == "train":
            name, limit = self.option, self.train_size
        if not 1 <= size <= limit:
            raise ValueError(
                f"{name} must be from 1 to {limit}, the {split} examples of"
                f" {self.file}. Received: {name}={size}"
            )
        start = starts[split]
        path = FOLDER / self.file
        with lzma.open(path, "rt", encoding="utf-8", newline="\n") as lines:
            wanted = itertools.islice(lines, start, start + size)
            return [line.removesuffix("\n") for line in wanted]


PHRASEBOOK = BuiltIn(
    "phrasebook.tsv.xz", 60_000, "phrasebook_pairs", 6469, "quickstart"
)
TREEBANK = BuiltIn("treebank.mrg.xz", 20_000, "treebank_trees", 2195, "parse")
