"""The work of `trainers.visualize --plot=attention`."""

import dataclasses
import typing
from collections.abc import Mapping

from keras_transformer.commands import flags
from keras_transformer.config import DecodingConfig
from keras_transformer.data.languages import tags_of
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
    data = workdir.read_config().get("data", {})
    target = data.get("target_language", "")
    tags = tags_of(target)
    translator = Translator.load(path, decoding, checkpoint)
    languages = {tag: language for language, tag in tags.items()}
    target = languages.get(text.split()[0], target)
    try:
        return attention_figure(
            translator.with_source_tags(list(tags.values())),
            text,
            reference or None,
            (data.get("source_language"), target or None),
        )
    except FloatingPointError as error:
        raise flags.RunError(str(error)) from error
