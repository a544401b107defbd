"""The native engine, which searches with `Transformer`s.

Modules that need Keras are imported on first use, after options are checked.
"""

import importlib

from keras_transformer.base.machine import check_products
from keras_transformer.storage.checkpoints import named_weights
from keras_transformer.translation.abilities import EngineOptions
from keras_transformer.translation.around.samples import Consensus, Samples
from keras_transformer.translation.around.terms import Terms
from keras_transformer.translation.around.words import Words
from keras_transformer.translation.engines import Loaded, Opened
from keras_transformer.translation.search import Search, Setup

NAME = "native"
NEEDS_KERAS = True
MODEL = "keras_transformer.model"
BATCHED = "keras_transformer.translation.batched"


def check_machine(options: EngineOptions) -> None:
    """Raises ValueError if products in this precision would crash."""
    check_products(options.precision)


def load(opened: Opened) -> Loaded:
    """Makes models and restores their weights from checkpoints."""
    make = importlib.import_module(MODEL).model_to_be_read
    configs, precision = opened.limits.configs, opened.options.precision
    models = [make(config, precision) for config in configs]
    prefixes = [
        directory.restore_weights(named_weights(model), opened.checkpoint)
        for directory, model in zip(opened.directories, models, strict=True)
    ]
    return Loaded(models, prefixes)


def make_search(setup: Setup) -> Search:
    """Makes a search, and wraps it in the searches that its options need."""
    decoding = setup.decoding
    search: Search = importlib.import_module(BATCHED).make_batched(setup)
    if not decoding.sampling:
        return Words(Terms(search))
    search = Words(Samples(search))
    if decoding.consensus is None:
        return search
    to_strings = setup.tokenizer.target.to_strings
    return Consensus(
        search, decoding.num_samples, decoding.consensus, to_strings
    )
