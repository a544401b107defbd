"""The engines of search: which models each loads, how it searches.

    native        `Transformer`s, by `Inference` in `BatchedInference`
    ctranslate2   an export of one, by `CTranslate2Search`

What needs Keras is imported by name, so that the other engine does without it.
"""

import importlib
import typing
from collections.abc import Sequence

from keras_transformer.checkpoints import named_weights
from keras_transformer.config import DecodingConfig, SearchConfig
from keras_transformer.fields import unhandled
from keras_transformer.tokenization import Tokenizer, TokenizerPair
from keras_transformer.translation import ctranslate2
from keras_transformer.translation.limits import Limits
from keras_transformer.translation.requests import Request
from keras_transformer.translation.shortlist import Shortlist
from keras_transformer.workdir import WorkDirectory

if typing.TYPE_CHECKING:
    from keras_transformer.model import Transformer
    from keras_transformer.translation.batching import BatchedInference

MODEL = "keras_transformer.model"
INFERENCE = "keras_transformer.translation.inference"
BATCHING = "keras_transformer.translation.batching"
ADAPTIVE = "keras_transformer.translation.adaptive"

Model: typing.TypeAlias = "Transformer | ctranslate2.CTranslate2Model"
Search: typing.TypeAlias = "BatchedInference | ctranslate2.CTranslate2Search"


def check_choice(
    engine: str,
    compute_type: str,
    device: str | None,
    num_models: int,
    **others: object,
) -> None:
    """Raises ValueError for options that an engine lacks, or if it is missing.

    `others` are options of the native engine by name.
    """
    if engine == ctranslate2.NAME:
        ctranslate2.check_options(num_models, compute_type, device, **others)
    elif (engine, compute_type, device) != ("native", "default", None):
        raise ValueError(
            "expected engine=native, or engine=ctranslate2, which may have"
            f" compute_type and device. Received: {engine=},"
            f" {compute_type=}, {device=}"
        )


def check_search(engine: str, decoding: SearchConfig) -> None:
    """Raises ValueError for a search that the engine does not have."""
    if engine == ctranslate2.NAME:
        ctranslate2.check_search(decoding)


def check_request(engine: str, request: Request) -> None:
    """Raises ValueError for what the engine does not have in a sentence."""
    if engine == ctranslate2.NAME:
        ctranslate2.check_request(request)


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

    Args:
        engine: Its name.
        directories: One of each model.
        checkpoint: As in `Translator.load`.
        tokenizer: Of the models.
        limits: Their configurations, the search, and the longest source.
        precision, compute_type, device, num_threads: As in `Translator.load`.
    """
    if engine == ctranslate2.NAME:
        [directory] = directories
        prefix = directory.choose_checkpoint(checkpoint)
        model = ctranslate2.CTranslate2Model.load(
            directory,
            prefix,
            tokenizer,
            limits,
            compute_type,
            device,
            num_threads,
        )
        return [model], [prefix]
    models, prefixes = [], []
    for directory, config in zip(directories, limits.configs, strict=True):
        make = importlib.import_module(MODEL).Transformer
        models.append(make(config, dtype=precision))
        weights = named_weights(models[-1])
        prefixes.append(directory.restore_weights(weights, checkpoint))
    return models, prefixes


def engine_of(model: Model) -> str:
    """The name of the engine that a model belongs to."""
    is_export = isinstance(model, ctranslate2.CTranslate2Model)
    return ctranslate2.NAME if is_export else "native"


def make_search(
    models: Sequence[Model],
    decoding: DecodingConfig,
    max_source_length: int,
    batch_tokens: int,
    jit_compile: bool | None,
    num_threads: int,
    shortlist: Shortlist | None,
) -> tuple[typing.Any, Search]:
    """The limits of models with a search, and the search of their engine.

    Args:
        models: Of one engine.
        decoding, ...: As in `Translator`.
    """
    match engine_of(models[0]):
        case "native":
            inference = importlib.import_module(INFERENCE).Inference(
                models, decoding, max_source_length
            )
            if jit_compile is None:
                return inference, importlib.import_module(
                    ADAPTIVE
                ).AdaptiveInference(
                    inference, batch_tokens, num_threads, shortlist
                )
            return inference, importlib.import_module(
                BATCHING
            ).BatchedInference(
                inference, batch_tokens, jit_compile, num_threads, shortlist
            )
        case ctranslate2.NAME:
            [model] = models
            limits = ctranslate2.CTranslate2Limits(
                [model.config], decoding, max_source_length
            )
            return limits, ctranslate2.CTranslate2Search(
                model, limits, batch_tokens
            )
        case other:
            raise unhandled(engine=other)
