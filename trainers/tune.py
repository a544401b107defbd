"""Chooses beam size and length penalty by the score of validation pairs.

    kt-tune --workdir=DIR
    kt-tune --workdir=DIR --beam_sizes=1,4,8 --save
    kt-tune --workdir=DIR --valid_files=PREFIX

The pairs are the validation pairs of the training, or --valid_files. The table
has the score of every combination. The last line is a JSON object with the best
combination. --save makes it the default of the work directory.
"""

from collections.abc import Sequence

from keras_transformer.base.fields import Fields, check_values, hp
from keras_transformer.commands import flags
from keras_transformer.config import DecodingConfig
from trainers.scoring import tuning
from trainers.scoring.options import MetricOptions
from trainers.translating.options import (
    LanguageOptions,
    TranslatorChoice,
    TranslatorOptions,
)

LENGTH_PENALTIES = tuple(tenths / 10 for tenths in range(0, 21, 2))


class TuneOptions(Fields):
    """The trials."""

    beam_sizes: tuple[str, ...] = hp(
        (),
        "Beam sizes to try. Default: the beam size of the search.",
        common=True,
    )
    length_penalties: tuple[str, ...] = hp(
        (), "Length penalties to try. Default: 0, 0.2, ... 2.", common=True
    )
    valid_files: tuple[str, ...] = hp(
        (),
        "Prefixes of validation pairs. Default: as in the training.",
        common=True,
    )
    save: bool = hp(
        False, "Make the choice the default of the work directory.", common=True
    )

    def __post_init__(self):
        super().__post_init__()
        self.grid()

    def grid(self) -> tuple[list[int], list[float]]:
        """Returns the beam sizes and length penalties to try.

        Raises ValueError if one is out of range.
        """
        beam_sizes = read_numbers("beam_sizes", self.beam_sizes, int)
        for beam_size in beam_sizes:
            check_values(DecodingConfig, beam_size=beam_size)
        penalties = read_numbers(
            "length_penalties", self.length_penalties, float
        )
        for length_penalty in penalties:
            check_values(DecodingConfig, length_penalty=length_penalty)
        return beam_sizes, penalties or list(LENGTH_PENALTIES)


def read_numbers(name: str, texts: Sequence[str], kind: type) -> list:
    """Parses the numbers in a list flag. Raises ValueError if one is wrong."""
    try:
        return [kind(text) for text in texts]
    except ValueError:
        what = "whole numbers" if kind is int else "numbers"
        raise ValueError(
            f"{name} must be {what}, separated by commas."
            f" Received: {name}={','.join(texts)!r}"
        ) from None


@flags.command(
    "kt-tune",
    __doc__,
    TranslatorOptions,
    LanguageOptions,
    TuneOptions,
    MetricOptions,
    DecodingConfig,
)
def main(arguments: flags.Arguments) -> None:
    """Runs the command."""
    translator = TranslatorChoice.of(arguments)
    options = arguments.build(TuneOptions)
    metric = arguments.build(MetricOptions)
    flags.check_streams("stdout")
    translator.options.prepare_process()
    valid_files, (beams, penalties) = options.valid_files, options.grid()
    tuning.run(translator, metric, valid_files, beams, penalties, options.save)


if __name__ == "__main__":
    main()
