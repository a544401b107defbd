"""Code that depends on a field's choices handles all, without a default."""

import contextlib
import copy
import dataclasses
import importlib
import inspect
import pkgutil
from unittest.mock import Mock

import numpy as np
import pytest
from half_precision import DTYPES

import savedmodel
import trainers
from keras_transformer import importers
from keras_transformer.base.fields import Fields, check_values, kinds_of
from keras_transformer.commands.flags import CommandError
from keras_transformer.commands.startup import DeviceOptions
from keras_transformer.config import (
    PRESETS,
    DecodingConfig,
    SearchConfig,
    TransformerConfig,
)
from keras_transformer.data.languages import LANGUAGE_TOKENS, Languages
from keras_transformer.decoding.rules import length_penalty
from keras_transformer.decoding.stopping import STOPPING_RULES
from keras_transformer.documents import parse
from keras_transformer.figures import attention
from keras_transformer.layers import FeedForward, positional_encoding
from keras_transformer.model import Transformer
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.training.rematerialization import REMATERIALIZE
from keras_transformer.translation import conversion
from keras_transformer.translation.abilities import EngineOptions
from keras_transformer.translation.consensus import rank
from keras_transformer.translation.engines import check_engine
from keras_transformer.translation.inference import Inference
from keras_transformer.translator import Translator
from savedmodel import (
    export,
    formats,
    huggingface,
    onnx,
    reload,
    tflite,
)
from trainers import import_model, score, translate_document, visualize, wmt
from trainers.parse import ParseOptions
from trainers.preparing.options import CorpusOptions
from trainers.run import session, strategies
from trainers.run.data_config import DataConfig
from trainers.run.optimization import make_optimizer, make_schedule
from trainers.run.session import make_translation_metric
from trainers.run.training_config import Configuration, TrainingConfig
from trainers.scoring.options import MetricOptions
from trainers.serving.requests import TranslationRequest
from trainers.synthesis.plan import KINDS, StepOptions
from trainers.translating.options import (
    LanguageOptions,
    SearchDeviceOptions,
)

SMALL = TransformerConfig(
    vocab_size=5, d_model=4, d_ff=4, num_heads=2, num_layers=1
)
FIGURE = attention.AttentionFigure(
    "a",
    "b",
    ["a"],
    ["b"],
    dict.fromkeys(attention.KINDS, np.ones((1, 1, 1, 1))),
)
LINEAR = TrainingConfig(schedule="linear", learning_rate=1e-3)
PLOT = visualize.VisualizeOptions(
    workdir="nowhere", output="a.svg", plot="training"
)


def replaced(config, name, value):
    """Makes a configuration with a value that it would refuse."""
    config = copy.copy(config)
    object.__setattr__(config, name, value)
    return config


def fill_positions(value):
    """Writes the positions of a model for CTranslate2."""
    model = Transformer(replaced(SMALL, "positions", "learned"))
    object.__setattr__(model.config, "positions", value)
    conversion.make_spec(model, 8)


def make_metric(value):
    training = replaced(LINEAR, "bleu_tokenizer", value)
    make_translation_metric(
        Configuration(SMALL, DataConfig(), training, DecodingConfig())
    )


def draw_view(value):
    """Draws an attention as if its view were a valid one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "VIEWS", (*attention.VIEWS, "unheard"))
        FIGURE._draw(view=value)


def store_onnx(value):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnx, "make_model", Mock())
        translator = Mock(languages=Languages())
        onnx.write(
            formats.Export(translator, Mock(), Mock(precision=value), {}, [])
        )


def search_by_mean(value):
    decoding = replaced(DecodingConfig(), "ensemble", value)
    model = Transformer(SMALL)
    ids = np.array([[4, 2]], np.int32)
    Inference([model, model], decoding, 8).score_ids(ids, ids)


def optimize(value):
    make_optimizer(
        make_schedule(SMALL, LINEAR),
        replaced(LINEAR, "precision", value),
        Transformer(SMALL),
    )


# All places that depend on a field's choices, as functions of a value.
PLACES = {
    (TransformerConfig, "positions"): [
        lambda value: Transformer(replaced(SMALL, "positions", value)),
        fill_positions,
    ],
    (TransformerConfig, "activation"): [
        lambda value: FeedForward(4, activation=value),
        huggingface.ACTIVATIONS.__getitem__,
    ],
    (TransformerConfig, "sinusoids"): [
        lambda value: positional_encoding(3, 4, sinusoids=value),
    ],
    (TransformerConfig, "share_embeddings"): [
        lambda value: Transformer(replaced(SMALL, "share_embeddings", value)),
    ],
    (SearchConfig, "length_normalization"): [
        lambda value: length_penalty(
            replaced(DecodingConfig(), "length_normalization", value), [3]
        ),
        lambda value: reload.sentences.penalty(
            {"length_normalization": value, "length_penalty": 0.6}, 3
        ),
    ],
    (SearchConfig, "stopping"): [STOPPING_RULES.__getitem__],
    (DecodingConfig, "ensemble"): [search_by_mean],
    (score.ScoreOptions, "ensemble"): [],  # the same field
    (DecodingConfig, "glossary_mode"): [],  # compared with both
    (DecodingConfig, "consensus"): [lambda value: rank(["a"], value)],
    (Languages, "language_tokens"): [
        lambda value: value and LANGUAGE_TOKENS[value]
    ],
    (DataConfig, "normalization"): [
        lambda value: Tokenizer.train(["a"], 6, normalization=value),
    ],
    (CorpusOptions, "normalization"): [],  # the same field
    (TrainingConfig, "schedule"): [
        lambda value: make_schedule(SMALL, replaced(LINEAR, "schedule", value)),
    ],
    (TrainingConfig, "bleu_tokenizer"): [make_metric],
    (TrainingConfig, "strategy"): [strategies.make_strategy],
    (TrainingConfig, "precision"): [
        lambda value: Transformer(SMALL, dtype=value),
        optimize,
    ],
    (TrainingConfig, "remat"): [REMATERIALIZE.__getitem__],
    (DeviceOptions, "backend"): [session.ENGINES.__getitem__],
    (DeviceOptions, "device"): [],  # compared with the kinds of a backend
    (MetricOptions, "bleu_tokenizer"): [make_metric],
    (export.ExportOptions, "format"): [
        formats.load_exporter,
        lambda value: importlib.import_module(f"savedmodel.reload.{value}"),
    ],
    (export.ExportOptions, "precision"): [],  # below: each format has its own
    (export.ExportOptions, "verify"): [
        lambda value: value == "none" or export.SAMPLES[value],
    ],
    (import_model.ImportModelOptions, "format"): [importers._load],
    (translate_document.TranslateDocumentOptions, "format"): [
        lambda value: parse("a", value)
    ],
    (TranslationRequest, "format"): [lambda value: parse("a", value)],
    (SearchDeviceOptions, "precision"): [
        lambda value: Transformer(SMALL, dtype=value),
        lambda value: Translator.load("nowhere", precision=value),
    ],
    (SearchDeviceOptions, "engine"): [
        lambda value: Translator.load("nowhere", engine=value),
    ],
    (SearchDeviceOptions, "compute_type"): [
        lambda value: check_engine(
            EngineOptions("ctranslate2", compute_type=value)
        ),
    ],
    (StepOptions, "kind"): [KINDS.__getitem__],
    (StepOptions, "search"): [],  # beam, unless it samples or adds noise
    (visualize.VisualizeOptions, "plot"): [
        lambda value: visualize.draw(
            replaced(PLOT, "plot", value), {}, LanguageOptions()
        ),
    ],
    (visualize.VisualizeOptions, "kind"): [
        lambda value: FIGURE._draw(kind=value)
    ],
    (visualize.VisualizeOptions, "view"): [draw_view],
    (wmt.WmtOptions, "recipe"): [wmt.recipe_files],
    (wmt.WmtOptions, "preset"): [PRESETS.__getitem__],
    (ParseOptions, "recipe"): [wmt.recipe_files],
}
FORMATS = {
    "argos": None,  # as ctranslate2
    "ctranslate2": None,  # its own `optimize` refuses what it does not know
    "huggingface": huggingface.DTYPES.__getitem__,
    "onnx": store_onnx,
    "packed": None,  # it has one
    "saved_model": None,  # it has one
    "tflite": lambda value: tflite.convert("nowhere", value),
}
MISSING = (KeyError, NotImplementedError)


def all_sections():
    """Returns the dataclasses with `hp` fields of the three packages."""
    for package in (savedmodel, trainers):
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{module.name}")
    sections = [Fields]
    for section in sections:  # which grows
        sections += section.__subclasses__()
    return [s for s in sections[1:] if "_test" not in s.__module__]


def test_every_field_with_choices_is_in_the_table():
    assert set(PLACES) == {
        (section, name)
        for section in all_sections()
        for name in inspect.get_annotations(section)
        if section.__dataclass_fields__[name].metadata["choices"]
    }
    assert set(FORMATS) == set(formats.FORMATS)


def test_needs_and_excludes_name_fields_and_their_values():
    sections = [
        DataConfig,
        *(kind for kind, _ in kinds_of(Configuration).values()),
    ]
    for section in all_sections():
        for field in dataclasses.fields(section):
            for _, other, values in field.metadata["relations"]:
                known = [s for s in (section, *sections) if hasattr(s, other)]
                assert known, f"{section}.{field.name}: {other}"
                for value in values:
                    check_values(known[0], **{other: value})


@pytest.mark.parametrize(
    ("section", "name", "place"),
    [
        pytest.param(
            *key,
            place,
            # The choices are the product's: no literal here names a dtype.
            marks=[pytest.mark.computes(dtype) for dtype in DTYPES]
            if key[1] == "precision"
            else (),
        )
        for key, places in PLACES.items()
        for place in places
    ],
)
def test_all_choices_are_known_and_no_others(
    section, name, place, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    choices = section.__dataclass_fields__[name].metadata["choices"]
    for value in choices:
        # It may be refused here, for a reason that the error names.
        with contextlib.suppress(ValueError, OSError, CommandError):
            place(value)
    refusals = (*MISSING, ValueError, ImportError, OSError, CommandError)
    with pytest.raises(refusals) as error:
        place("unheard")
    assert "unheard" in str(error.value)


@pytest.mark.parametrize("name", [n for n, place in FORMATS.items() if place])
def test_a_format_knows_its_precisions_and_no_others(name):
    for value in formats.FORMATS[name].precisions:
        with contextlib.suppress(OSError, AttributeError, TypeError):
            FORMATS[name](value)  # there is no model
    with pytest.raises(MISSING, match="unheard"):
        FORMATS[name]("unheard")
