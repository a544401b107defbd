"""Makes a shortlist: the target tokens that translate each source token.

    kt-shortlist --workdir=DIR --train_files=PREFIX[,PREFIX...]

It writes DIR/shortlist.txt, from sentence pairs in the languages of the model.
With --shortlist, kt-evaluate and the translating commands then score each batch
against a few thousand tokens instead of the whole vocabulary. This is faster on
a CPU if the vocabulary has more than 16,000 tokens. See docs/training.md. The
last line is a JSON object.
"""

from keras_transformer.base.fields import hp
from keras_transformer.commands import flags
from trainers.scoring import shortlist
from trainers.translating.options import WorkdirOptions


class MakeShortlistOptions(WorkdirOptions):
    """The shortlist."""

    train_files: tuple[str, ...] = hp(
        (),
        "PREFIX of PREFIX.en[.gz] and PREFIX.de[.gz], or a file of both, such"
        " as train.csv; or several, separated by commas. Default: the training"
        " pairs of the model.",
    )
    max_pairs: int = hp(
        100_000,
        "Maximum number of pairs to read; a larger corpus is subsampled evenly."
        " Time and memory grow with their number and with the square of their"
        " length.",
        low=1,
    )
    max_length: int = hp(
        100, "Pairs with a longer side, in tokens, are skipped.", low=2
    )
    num_translations: int = hp(
        50,
        "Maximum number of translations of a source token, besides its copy.",
        low=1,
    )


@flags.command("kt-shortlist", __doc__, MakeShortlistOptions)
def main(arguments: flags.Arguments) -> None:
    """Runs the command."""
    options = arguments.build(MakeShortlistOptions)
    shortlist.run(**vars(options))


if __name__ == "__main__":
    main()
