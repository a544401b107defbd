"""Scores given translations: their log-probabilities under the model.

    kt-score --workdir=DIR --test_files=PREFIX[,PREFIX...]
    kt-score --workdir=DIR --test_files=PREFIX --tokens

It writes one line for each pair: the natural logarithm of the translation's
probability, a tab, and its number of tokens, EOS included. --tokens adds two
columns: the tokens and their log-probabilities, both separated by spaces. The
last line is a JSON object with the perplexity per token.
"""

from keras_transformer.base.fields import Fields, hp, same_field
from keras_transformer.commands import flags
from keras_transformer.config import DecodingConfig
from trainers.scoring import log_probs
from trainers.scoring.options import TestOptions
from trainers.translating.options import (
    EnsembleOptions,
    LanguageOptions,
    TranslatorChoice,
)


class ScoreOptions(Fields):
    """The output."""

    tokens: bool = hp(
        False,
        "Show the tokens of each pair, and their log-probabilities.",
        common=True,
    )
    ensemble: str = same_field(DecodingConfig, "ensemble")


@flags.command(
    "kt-score",
    __doc__,
    EnsembleOptions,
    LanguageOptions,
    TestOptions,
    ScoreOptions,
)
def main(arguments: flags.Arguments) -> None:
    """Runs the command."""
    translator = TranslatorChoice.of(arguments, EnsembleOptions)
    options = arguments.build(ScoreOptions)
    test = arguments.build(TestOptions)
    flags.check_streams("stdout")
    translator.options.choose_backend()
    log_probs.run(translator, test, options.tokens)


if __name__ == "__main__":
    main()
