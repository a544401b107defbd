"""The engines of search, each found by its name.

    native        `Transformer`s, by `BatchedSearch`
    ctranslate2   an export of one, by `CTranslate2Search`

An engine is a module. What it lacks is a column of `abilities`. No other module
compares the name of an engine.
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
    """Work directories whose models are to be loaded."""

    directories: Sequence[WorkDirectory]
    checkpoint: str | None  # as in `Translator.load`
    tokenizer: Tokenizer | TokenizerPair
    limits: Limits
    options: EngineOptions
    num_threads: int | None


class Loaded(typing.NamedTuple):
    """Models in memory."""

    models: list
    prefixes: list[str]  # the path of each one's checkpoint
    # Batches that are searched at the same time, if the engine decides it.
    num_threads: int | None = None


class Engine(typing.Protocol):
    """A module that loads models and searches with them."""

    NAME: str
    NEEDS_KERAS: bool  # else it translates without a framework

    def check_machine(self, options: EngineOptions) -> None:
        """Raises ValueError for what is missing on this machine."""

    def load(self, opened: Opened) -> Loaded:
        """Loads the models of work directories."""

    def make_search(self, setup: Setup) -> Search:
        """Makes the search of models."""


def find_engine(name: str) -> Engine:
    """Finds an engine by its name; raises ValueError if there is none."""
    expect(
        name in ENGINES, f"engine={' or engine='.join(ENGINES)}", engine=name
    )
    return typing.cast(Engine, importlib.import_module(ENGINES[name]))


def column_of(name: str) -> str:
    """Returns the column of an engine in the table of abilities."""
    return f"engine={name}"


def check_engine(options: EngineOptions) -> Engine:
    """Returns the engine of options; raises ValueError if it lacks one."""
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
    """Changes a search to what the engine needs; fields in `given` stay.

    It logs the changes if `tell` is true.
    """
    changes = abilities.following(column_of(engine), decoding, given)
    if changes and tell:
        line = ", ".join(f"{name}={value}" for name, value in changes.items())
        logging.warning("engine %s: %s", engine, line)
    return changed_search(decoding, changes)
