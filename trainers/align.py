"""Aligns the words of sentence pairs by attention, and chooses the layer.

    kt-align --workdir=DIR --test_files=PREFIX [--gold=FILE]

It writes one line for each pair: the links of its words, source-target, counted
from 0, as in 0-0 1-2 (the Pharaoh format, which fast_align also writes). The
last line is a JSON object. A model that was trained with --guided_alignment has
a layer and a head for this. For other models, without --alignment_layer and
--alignment_head, the command tries every decoder layer and chooses the best:

- with --gold, the layer with the lowest alignment error rate (Och and Ney
  2003);
- without --gold, the layer that links the most anchors: words that occur once
  in the source and once in the target, such as names and numbers.

Pass the chosen layer to other commands as --alignment_layer.
"""

from keras_transformer.base.fields import Fields, hp, same_field
from keras_transformer.commands import flags
from keras_transformer.config import DecodingConfig
from trainers.scoring import alignment
from trainers.scoring.options import TestOptions
from trainers.translating.options import (
    LanguageOptions,
    TranslatorChoice,
    TranslatorOptions,
)


class AlignOptions(Fields):
    """The alignment."""

    alignment_layer: int | None = same_field(DecodingConfig, "alignment_layer")
    alignment_head: int = same_field(DecodingConfig, "alignment_head")
    gold: str | None = hp(
        None,
        "File with the correct links of each pair: 0-0 is a sure link, 0p0 a"
        " possible one.",
        common=True,
    )


@flags.command(
    "kt-align",
    __doc__,
    TranslatorOptions,
    LanguageOptions,
    TestOptions,
    AlignOptions,
)
def main(arguments: flags.Arguments) -> None:
    """Runs the command."""
    translator = TranslatorChoice.of(arguments)
    options = arguments.build(AlignOptions)
    test = arguments.build(TestOptions)
    flags.check_streams("stdout")
    translator.options.choose_backend()
    alignment.run(translator, test, options.alignment_layer, options.gold)


if __name__ == "__main__":
    main()
