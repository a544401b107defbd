"""The phrasebook: English-German sentence pairs that come with the package.

    python -m trainers.phrasebook

lists the words and the constructions of its sentences, with examples. A model
that is trained on the phrasebook translates sentences made of these.
"""

from keras_transformer.commands import flags
from trainers.run.built_in import FOLDER, PHRASEBOOK


def read_split(name: str, num_pairs: int) -> list[tuple[str, str]]:
    """The first sentence pairs of a split; the splits share no sentence.

    Args:
        name: "train", "valid" or "test".
        num_pairs: How many: of "train" from 1 to 60,000, of the others to
            1,000.

    Returns:
        A list of (English, German). No English sentence is in it twice.

    Raises:
        ValueError: The name is unknown or `num_pairs` is out of range.

    >>> read_split("train", 6)[-1]
    ('The neighbors see them.', 'Die Nachbarn sehen sie.')
    """
    pairs = []
    for line in PHRASEBOOK.read(name, num_pairs):
        english, german = line.split("\t")
        pairs.append((english, german))
    return pairs


def overview() -> list[str]:
    """The words and the constructions; the first two lines sum them up."""
    return (FOLDER / "phrasebook.txt").read_text("utf-8").splitlines()


def limits() -> list[str]:
    """What a model that is trained on the phrasebook can translate."""
    return [
        *overview()[:2],
        "To see all words and constructions: python -m trainers.phrasebook",
    ]


def main(argv: list[str] | None = None) -> None:
    """Runs the command."""
    with flags.exit_status("trainers.phrasebook"):
        flags.parse(argv, __doc__)
        flags.check_streams("stdout")
        flags.show(*overview())


if __name__ == "__main__":
    main()
