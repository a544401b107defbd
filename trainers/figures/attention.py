"""The work of `kt-visualize --plot=attention`."""

import typing
from collections.abc import Mapping

from keras_transformer.commands import flags
from keras_transformer.commands.startup import load
from trainers.translating.options import TranslatorChoice


def run(
    model: TranslatorChoice,
    text: str,
    reference: str,
    output: str,
    choice: Mapping[str, typing.Any],
) -> None:
    """Writes a page or a figure of a model's attention.

    `choice` has arguments of `AttentionFigure.save`. The other parameters are
    flags of kt-visualize.
    """
    with flags.user_errors():
        model.check()
        load_translator = load("keras_transformer.translator").Translator.load
        figures = load("keras_transformer.figures.attention")
        path, checkpoint = model.options.workdir, model.options.checkpoint
        translator = load_translator(path, model.read_search(), checkpoint)
        if model.languages is not None:
            translator = translator.with_languages(
                model.languages.source_language, model.languages.target_language
            )
        source, target = model.read_direction()
        target = translator.languages.directions.get(text.split()[0], target)
        figure = figures.attention_figure(
            translator,
            text,
            reference or None,
            (source or None, target or None),
        )
        figure.save(output, **choice)
    name = "reference:  " if reference else "translation:"
    flags.show(f"source:      {figure.source}", f"{name} {figure.target}")
