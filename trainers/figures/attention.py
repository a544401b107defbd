"""The work of `trainers.visualize --plot=attention`."""

import typing
from collections.abc import Mapping

from keras_transformer.commands import flags
from keras_transformer.commands.startup import load
from keras_transformer.workdir import WorkDirectory
from trainers.run.options import TranslatorChoice, TranslatorOptions

if typing.TYPE_CHECKING:
    from keras_transformer.figures.attention import AttentionFigure


def run(
    workdir: str,
    text: str,
    reference: str,
    checkpoint: str | None,
    search: Mapping[str, typing.Any],
    output: str,
    choice: Mapping[str, typing.Any],
) -> None:
    """Writes the attention of the model in a work directory.

    `search` overrides the work directory's `DecodingConfig`, `choice` are
    arguments of `AttentionFigure.save`, the rest is as the flags.
    """
    with flags.user_errors():
        figure = make_figure(workdir, text, reference, checkpoint, search)
        figure.save(output, **choice)
    name = "reference:  " if figure.forced else "translation:"
    flags.show(f"source:      {figure.source}", f"{name} {figure.target}")


def make_figure(
    path: str,
    text: str,
    reference: str,
    checkpoint: str | None,
    search: Mapping[str, typing.Any],
) -> "AttentionFigure":
    """The figure; arguments as in `run`."""
    options = TranslatorOptions(workdir=path, checkpoint=checkpoint)
    choice = TranslatorChoice(options, search)  # of one direction, or tags
    choice.check()
    load_translator = load("keras_transformer.translator").Translator.load
    attention_figure = load("keras_transformer.figures.attention")
    languages = WorkDirectory(path).read_languages()
    translator = load_translator(path, choice.read_search(), checkpoint)
    target = languages.directions.get(
        text.split()[0], languages.target_language
    )
    try:
        return attention_figure.attention_figure(
            translator,
            text,
            reference or None,
            (languages.source_language or None, target or None),
        )
    except FloatingPointError as error:
        raise flags.RunError(str(error)) from error
