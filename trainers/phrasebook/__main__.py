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
    """The lines of the command."""
    lines = [*LIMITS[:-1]]
    for kind, words in list_words().items():
        text = f"{kind} ({len(words)}): {', '.join(words)}"
        lines += ["", textwrap.fill(text, 80, subsequent_indent="    ")]
    lines += [
        "",
        "numbers from two to ninety-nine; clock times",
    ]
    for name, pairs in list_examples().items():
        lines += ["", name]
        for pair in pairs:
            lines += [f"    {sentence}" for sentence in pair]
    return lines


if __name__ == "__main__":
    main()
