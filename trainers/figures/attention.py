"""The work of `trainers.visualize --plot=attention`."""

import dataclasses
import typing
from collections.abc import Mapping

from keras_transformer.commands import flags
from keras_transformer.config import DecodingConfig
from keras_transformer.figures.attention import (
    AttentionFigure,
    attention_figure,
)
from keras_transformer.translator import Translator
from keras_transformer.workdir import WorkDirectory


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
) -> AttentionFigure:
    """The figure; arguments as in `run`."""
    workdir = WorkDirectory(path)
    before = workdir.read_section("decoding", DecodingConfig)
    decoding = dataclasses.replace(before, **search)
    languages = workdir.read_languages()
    translator = Translator.load(path, decoding, checkpoint)
    target = languages.directions.get(
        text.split()[0], languages.target_language
    )
    try:
        return attention_figure(
            translator.with_source_tags(languages.choose_tags(None)),
            text,
            reference or None,
            (languages.source_language or None, target or None),
        )
    except FloatingPointError as error:
        raise flags.RunError(str(error)) from error
