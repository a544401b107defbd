"""A search from its engine and its options, and what each of them lacks.

    native        `Transformer`s, by `BatchedSearch`
    ctranslate2   an export of one, by `CTranslate2Search`

Around it are the searches of `around/` that the options need. No other module
compares an engine's name. What needs Keras is imported by name, so that the
other engine does without it.
"""

import dataclasses
import importlib
import typing
from collections.abc import Collection, Sequence

from absl import logging

from keras_transformer.checkpoints import named_weights
from keras_transformer.config import (
    SEARCH_PRECISIONS,
    DecodingConfig,
    TransformerConfig,
    check_position_limit,
)
from keras_transformer.machine import check_products
from keras_transformer.tokenization import Tokenizer, TokenizerPair
from keras_transformer.translation import ctranslate2
from keras_transformer.translation.around.samples import Consensus, Samples
from keras_transformer.translation.around.terms import Terms, search_for_terms
from keras_transformer.translation.around.words import Words
from keras_transformer.translation.limits import Limits
from keras_transformer.translation.requests import Request
from keras_transformer.translation.search import Search
from keras_transformer.translation.shortlist import Shortlist
from keras_transformer.workdir import WorkDirectory

if typing.TYPE_CHECKING:
    from keras_transformer.model import Transformer

MODEL = "keras_transformer.model"
INFERENCE = "keras_transformer.translation.inference"
BATCHED = "keras_transformer.translation.batched"
SINGLE = "keras_transformer.translation.around.single"
CONVERSION = "keras_transformer.translation.conversion"

Model: typing.TypeAlias = "Transformer | ctranslate2.CTranslate2Model"


def runs_keras(engine: str) -> bool:
    """Whether an engine runs `Transformer`s, by a framework.

    Their weights may change, and their attention can be shown.
    """
    return engine != ctranslate2.NAME


def check_choice(
    engine: str,
    compute_type: str,
    device: str | None,
    num_models: int,
    precision: str,
    **others: object,
) -> None:
    """Raises ValueError for options that an engine lacks, or if it is missing.

    `others` are options of the native engine by name; `compute_type` and
    `device` are of the other one.
    """
    if precision not in SEARCH_PRECISIONS:
        raise ValueError(
            f"precision must be one of {', '.join(SEARCH_PRECISIONS)}."
            f" Received: {precision=}"
        )
    if not runs_keras(engine):
        ctranslate2.check_options(
            num_models, compute_type, device, precision=precision, **others
        )
    elif (engine, compute_type, device) != ("native", "default", None):
        raise ValueError(
            "expected engine=native, or engine=ctranslate2, which may have"
            f" compute_type and device. Received: {engine=},"
            f" {compute_type=}, {device=}"
        )
    else:
        check_products(precision)


def check_search(engine: str, decoding: DecodingConfig) -> None:
    """Raises ValueError for a search that the engine does not have."""
    if not runs_keras(engine):
        ctranslate2.check_search(decoding)


def check_terms(engine: str, received: str) -> None:
    """Raises ValueError if the engine has no terms of a glossary."""
    if not runs_keras(engine):
        raise ValueError(
            f"engine={engine} has no terms of a glossary: leave it out, or use"
            f" engine=native. Received: {received}"
        )


def check_request(engine: str, request: Request) -> None:
    """Raises ValueError for what the engine does not have in a sentence."""
    if request.terms:
        check_terms(engine, f"terms={request.terms}")


def fitted(
    engine: str,
    decoding: DecodingConfig,
    given: Collection[str] = (),
    tell: bool = True,
) -> DecodingConfig:
    """A search whose fields follow the engine, but for those that are given.

    It logs which have changed, if `tell` is true.
    """
    if runs_keras(engine):
        return decoding
    changes = ctranslate2.needed_changes(decoding, given)
    if changes and tell:
        line = ", ".join(f"{name}={value}" for name, value in changes.items())
        logging.warning("engine %s: %s", engine, line)
    return dataclasses.replace(decoding, **changes)


def check_models(
    tokenizer: Tokenizer | TokenizerPair,
    configs: Sequence[TransformerConfig],
    max_source_length: int,
    shortlist: Shortlist | None,
) -> None:
    """Raises ValueError for models that do not fit the other arguments."""
    if max_source_length < 2:
        raise ValueError(
            "max_source_length must be at least 2: a token and EOS."
            f" Received: {max_source_length=}"
        )
    for config in configs:
        for of_side, size in (
            (tokenizer.source, config.num_source_tokens),
            (tokenizer.target, config.vocab_size),
        ):
            if of_side.vocab_size != size:
                raise ValueError(
                    "Tokenizer and model must have the same vocabulary."
                    f" Received: {of_side.vocab_size} and {size} tokens"
                )
        if shortlist is not None:
            shortlist.check(config)
        check_position_limit(config, max_source_length=max_source_length)


def load_models(
    engine: str,
    directories: Sequence[WorkDirectory],
    checkpoint: str | None,
    tokenizer: Tokenizer | TokenizerPair,
    limits: Limits,
    *,
    precision: str,
    compute_type: str,
    device: str | None,
    num_threads: int | None,
) -> tuple[list[Model], list[str]]:
    """The models of work directories, and the path of each one's checkpoint.

    `limits` have their configurations; the others are as in `Translator.load`.
    """
    if not runs_keras(engine):
        [directory] = directories
        prefix = directory.choose_checkpoint(checkpoint)
        model = ctranslate2.CTranslate2Model.load(
            directory,
            prefix,
            tokenizer,
            limits,
            CONVERSION,
            compute_type=compute_type,
            device=device,
            num_threads=num_threads,
        )
        return [model], [prefix]
    models, prefixes = [], []
    for directory, config in zip(directories, limits.configs, strict=True):
        make = importlib.import_module(MODEL).model_to_be_read
        models.append(make(config, precision))
        weights = named_weights(models[-1])
        prefixes.append(directory.restore_weights(weights, checkpoint))
    return models, prefixes


def make_search(
    tokenizer: Tokenizer | TokenizerPair,
    models: Sequence[Model],
    decoding: DecodingConfig,
    max_source_length: int,
    batch_tokens: int,
    jit_compile: bool | None,
    num_threads: int,
    shortlist: Shortlist | None,
) -> tuple[typing.Any, Search]:
    """The limits of models of one engine, and their search; as `Translator`."""
    first = models[0]
    if isinstance(first, ctranslate2.CTranslate2Model):
        limits = ctranslate2.CTranslate2Limits(
            [first.config], decoding, max_source_length
        )
        return limits, Words(
            ctranslate2.CTranslate2Search(first, limits, batch_tokens)
        )
    inference = importlib.import_module(INFERENCE).Inference(
        models, decoding, max_source_length
    )
    batched = importlib.import_module(BATCHED).BatchedSearch(
        inference, batch_tokens, bool(jit_compile), num_threads, shortlist
    )
    search: Search = batched
    if decoding.sampling:
        search = Words(Samples(search))
        if decoding.consensus:
            search = Consensus(
                search,
                decoding.num_samples,
                decoding.consensus,
                tokenizer.target.to_strings,
            )
        return inference, search
    if (
        jit_compile is None
        and not batched.has_static_shapes  # of another backend, which compiles
        and shortlist is None  # with it, more shapes than lengths
        # Else results would depend on whether a sentence comes alone.
        and all(m.compute_dtype == "float32" for m in inference.models)
    ):
        search = importlib.import_module(SINGLE).Single(search)
    if search_for_terms(decoding) != decoding:
        search = Terms(search, decoding, batched.with_decoding)
    return inference, Words(search)
