"""Lists the words and the constructions of the phrasebook, with examples.

    kt-phrasebook

A model that is trained on the phrasebook translates sentences built from them.
"""

from keras_transformer.commands import flags
from trainers.datasets.phrasebook import overview


@flags.command("kt-phrasebook", __doc__)
def main(_: flags.Arguments) -> None:
    flags.check_streams("stdout")
    flags.show(*overview())


if __name__ == "__main__":
    main()
