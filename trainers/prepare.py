"""Cleans a corpus and writes its token ids to disk, using all cores.

    kt-prepare --dataset=files --train_files=PREFIX \\
        --output=DIR [--flag=value ...]
    kt-train --dataset=prepared --train_files=DIR ...

If kt-prepare is stopped or killed, rerun the same command to resume. The output
reports how many pairs each rule dropped.
"""

from keras_transformer.commands import flags
from trainers.datasets.dataset import implied_dataset
from trainers.preparing import preparation
from trainers.preparing.options import (
    CleaningOptions,
    CorpusOptions,
    OutputOptions,
)


@flags.command(
    "kt-prepare", __doc__, OutputOptions, CorpusOptions, CleaningOptions
)
def main(arguments: flags.Arguments) -> None:
    """Runs the command."""
    output = arguments.build(OutputOptions)
    cleaning_options = arguments.build(CleaningOptions)
    implied = implied_dataset(arguments.given)
    corpus = arguments.build(CorpusOptions, **implied)
    preparation.run(
        output, corpus, cleaning_options, arguments.given.get("vocab_size")
    )


if __name__ == "__main__":
    main()
