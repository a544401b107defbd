"""The framework as the engine: it searches with `Transformer`s.

What needs Keras is imported when it is used: options are checked before.
"""

import importlib
import typing
from collections.abc import Sequence

from keras_transformer.checkpoints import named_weights
from keras_transformer.machine import check_products
from keras_transformer.tokenization import Tokenizer, TokenizerPair
from keras_transformer.translation.abilities import EngineOptions
from keras_transformer.translation.around.samples import Consensus, Samples
from keras_transformer.translation.around.terms import Terms
from keras_transformer.translation.around.words import Words
from keras_transformer.translation.engines import Loaded
from keras_transformer.translation.limits import Limits
from keras_transformer.translation.search import Search, Setup
from keras_transformer.workdir import WorkDirectory

MODEL = "keras_transformer.model"
BATCHED = "keras_transformer.translation.batched"


class Native:
    """The engine; methods as in `Engine`."""

    name = "native"
    needs_keras = True

    def check_machine(self, options: EngineOptions) -> None:
        check_products(options.precision)

    def load(
        self,
        directories: Sequence[WorkDirectory],
        checkpoint: str | None,
        tokenizer: Tokenizer | TokenizerPair,
        limits: Limits,
        options: EngineOptions,
        num_threads: int | None,
    ) -> Loaded:
        make = importlib.import_module(MODEL).model_to_be_read
        models: list[typing.Any] = []
        prefixes = []
        for directory, config in zip(directories, limits.configs, strict=True):
            models.append(make(config, options.precision))
            weights = named_weights(models[-1])
            prefixes.append(directory.restore_weights(weights, checkpoint))
        return Loaded(models, prefixes)

    def make_search(self, setup: Setup) -> Search:
        """As in `Engine`, with the searches around it that the options need."""
        decoding = setup.decoding
        search: Search = importlib.import_module(BATCHED).make_batched(setup)
        if decoding.sampling:
            search = Words(Samples(search))
            if decoding.consensus:
                search = Consensus(
                    search,
                    decoding.num_samples,
                    decoding.consensus,
                    setup.tokenizer.target.to_strings,
                )
            return search
        return Words(Terms(search))


ENGINE = Native()
