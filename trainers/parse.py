"""Trains a parser of English constituency trees, or resumes its training.

    kt-parse --recipe=parse --workdir=DIR [--flag=value ...]
    kt-parse --train_trees=FILE --valid_trees=FILE \\
        --test_trees=FILE --workdir=DIR [--flag=value ...]

Without --train_trees, the parser is trained on the built-in treebank. The best
checkpoint is chosen by labeled bracketing F1, and F1 on the test trees is shown
when training ends. If training is killed, rerun the same command to resume.
"""

from keras_transformer.base.fields import hp
from keras_transformer.commands import flags
from keras_transformer.commands.startup import load
from keras_transformer.config import TransformerConfig
from trainers import wmt
from trainers.parsing.parser_config import ParserDecoding, TreesConfig
from trainers.run.training_config import Configuration, TrainingConfig


class ParseOptions(wmt.WmtOptions):
    """The run."""

    recipe: str | None = hp(
        None,
        "A flag file that is installed with the package. --flagfile and the"
        " command line override it.",
        choices=wmt.recipe_names(of_parsers=True),
        common=True,
    )


SECTIONS = (
    ParseOptions,
    TreesConfig,
    TransformerConfig,
    TrainingConfig,
    ParserDecoding,
)


def read_configuration(
    arguments: flags.Arguments, preset: str
) -> Configuration:
    """Builds the `Configuration` of a command line.

    Raises CommandError if a value is wrong, or a flag has no effect.
    """
    configuration = wmt.read_configuration(
        arguments, preset, TreesConfig, ParserDecoding
    )
    tokenizer = configuration.training.bleu_tokenizer
    if tokenizer != "auto":
        raise flags.CommandError(
            "bleu_tokenizer has no effect: trees are scored by F1. Received:"
            f" bleu_tokenizer={tokenizer!r}"
        )
    return configuration


def main(argv: list[str] | None = None) -> None:
    """Runs the command."""
    with flags.exit_status("kt-parse"):
        arguments, options = wmt.read_arguments(argv, __doc__, SECTIONS)
        wmt.prepare_process(arguments, TreesConfig.batch_tokens)
        configuration = read_configuration(arguments, options.preset)
        wmt.check_input(configuration, options.workdir)
        load("trainers.run.session").run(
            configuration,
            options.workdir,
            options.dry_run,
            options.device,
            load("trainers.parsing.metric").make_parsing_metric,
            fits_warmup=wmt.fits_warmup(arguments, options.recipe),
        )


if __name__ == "__main__":
    main()
