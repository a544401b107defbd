"""Lists the words and the constructions of the phrasebook, with examples.

    python -m trainers.phrasebook

A model that is trained on the phrasebook translates sentences made of these.
"""

import textwrap

from keras_transformer.commands import flags
from trainers.phrasebook.coverage import LIMITS, list_examples, list_words


def main(argv=None):
    """Runs the command."""
    with flags.exit_status("trainers.phrasebook"):
        flags.parse(argv, __doc__)
        flags.check_streams("stdout")
        flags.show(*overview())


def overview():
    """Yields the lines of the command."""
    yield from LIMITS[:-1]
    for kind, words in list_words().items():
        text = f"{kind} ({len(words)}): {', '.join(words)}"
        yield ""
        yield textwrap.fill(text, 80, subsequent_indent="    ")
    yield ""
    yield "numbers from two to ninety-nine; clock times"
    for name, pairs in list_examples().items():
        yield ""
        yield name
        for pair in pairs:
            yield from (f"    {sentence}" for sentence in pair)


if __name__ == "__main__":
    main()
