"""Corpora that come with the package, compressed, with one example per line.

They are fixed: no option changes an example, or the split that it is in.
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
    """A built-in corpus without duplicate sentences."""

    # Name in `FOLDER`. The file has the test split, the validation split and
    # the training split, in this order.
    file: str
    train_size: int  # examples of the training split
    option: str  # the option that sets how many training examples are read
    # Size of the largest vocabulary that can be trained on all training
    # examples, with the symbols of their targets.
    max_vocab_size: int
    recipe: str  # name of the recipe that trains on this corpus

    def read(self, split: str, size: int) -> list[str]:
        """Reads the first `size` examples of a split, each a line.

        Raises ValueError if the split is unknown or has fewer examples.
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
