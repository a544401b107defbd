"""The search engines, by name.

    native        `BatchedSearch` of `Transformer`s
    ctranslate2   `CTranslate2Search` of an export of one

An engine is a module. Its column in `abilities` tells what it supports. No
other module compares names of engines.
"""

import importlib
import typing
from collections.abc import Collection, Sequence

from absl import logging

from keras_transformer.base.refusals import expect
from keras_transformer.config import DecodingConfig, changed_search
from keras_transformer.storage.workdir import WorkDirectory
from keras_transformer.text.tokenization import Tokenizer, TokenizerPair
from keras_transformer.translation import abilities
from keras_transformer.translation.abilities import EngineOptions
from keras_transformer.translation.limits import Limits
from keras_transformer.translation.search import Search, Setup

ENGINES = {
    "native": "keras_transformer.translation.native",
    "ctranslate2": "keras_transformer.translation.ctranslate2",
}


class Opened(typing.NamedTuple):
    """Work directories, and how to load their models."""

    directories: Sequence[WorkDirectory]
    checkpoint: str | None  # as in `Translator.load`
    tokenizer: Tokenizer | TokenizerPair
    limits: Limits
    options: EngineOptions
    num_threads: int | None


class Loaded(typing.NamedTuple):
    """Models in memory."""

    models: list
    prefixes: list[str]  # for each model, the path of its checkpoint
    # Number of batches searched in parallel, if the engine chooses it.
    num_threads: int | None = None


class Engine(typing.Protocol):
    """A module that loads models and searches with them."""

    NAME: str
    NEEDS_KERAS: bool  # whether it needs a framework to translate

    def check_machine(self, options: EngineOptions) -> None:
        """Raises ValueError if this machine lacks what the options need."""

    def load(self, opened: Opened) -> Loaded:
        """Loads the models of work directories."""

    def make_search(self, setup: Setup) -> Search:
        """Makes the search with loaded models."""


def find_engine(name: str) -> Engine:
    """Imports an engine. Raises ValueError if there is none of this name."""
    expect(
        name in ENGINES, f"engine={' or engine='.join(ENGINES)}", engine=name
    )
    return typing.cast(Engine, importlib.import_module(ENGINES[name]))


def column_of(name: str) -> str:
    """Returns the column of an engine in the table of abilities."""
    return f"engine={name}"


def check_engine(options: EngineOptions) -> Engine:
    """Returns the engine that the options name.

    Raises ValueError if engine or machine do not support an option.
    """
    engine = find_engine(options.engine)
    abilities.check(column_of(options.engine), options)
    engine.check_machine(options)
    return engine


def fitted(
    engine: str,
    decoding: DecodingConfig,
    given: Collection[str] = (),
    tell: bool = True,
) -> DecodingConfig:
    """Adapts a search to the engine, except for the fields in `given`.

    Logs the changes if `tell` is true.
    """
    changes = abilities.following(column_of(engine), decoding, given)
    if changes and tell:
        line = ", ".join(f"{name}={value}" for name, value in changes.items())
        logging.warning("engine %s: %s", engine, line)
    return changed_search(decoding, changes)
