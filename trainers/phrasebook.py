"""Lists the words and the constructions of the phrasebook, with examples.

    python -m trainers.phrasebook

A model that is trained on the phrasebook translates sentences made of these.
"""

from keras_transformer.commands import flags
from trainers.datasets.phrasebook import overview


def main(argv: list[str] | None = None) -> None:
    """Runs the command."""
    with flags.exit_status("trainers.phrasebook"):
        flags.parse(argv, __doc__)
        flags.check_streams("stdout")
        flags.show(*overview())


if __name__ == "__main__":
    main()
