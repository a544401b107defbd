"""Features of each engine and export: each option has a row and a refusal."""

import dataclasses
import inspect

import pytest
from commands import ROOT, load_script

import keras_transformer as kt
from keras_transformer.config import DecodingConfig, TransformerConfig
from keras_transformer.translation import abilities, engines
from keras_transformer.translation.abilities import EngineOptions
from keras_transformer.translation.requests import Request
from savedmodel.formats import FORMATS
from trainers.translating.options import (
    EnsembleOptions,
    ShortlistOptions,
    TerminologyOptions,
)

BEAM = DecodingConfig(stopping="fairseq")


@pytest.mark.parametrize(
    "section", [TransformerConfig, DecodingConfig, Request]
)
def test_every_field_has_a_row(section):
    fields = [field.name for field in dataclasses.fields(section)]
    assert sorted(abilities.TABLE[section]) == sorted(fields)


def test_every_option_of_a_translator_has_a_row():
    flags = [
        field.name
        for group in (EnsembleOptions, ShortlistOptions, TerminologyOptions)
        for field in dataclasses.fields(group)
        if field.name not in ("workdir", "backend", "keep_programs")
    ]
    parameters = inspect.signature(kt.Translator).parameters
    own = [*parameters][4:-1]  # after the model, and before `about`
    assert own[0] == "batch_tokens"
    rows = abilities.TABLE[EngineOptions]
    assert {*flags, *own, *EngineOptions._fields} <= {*rows}


def test_every_engine_and_format_with_another_search_is_a_column():
    """Other formats have this package's search, unless a column says less."""
    columns = [engines.column_of(name) for name in engines.ENGINES]
    columns += [f"format={n}" for n, f in FORMATS.items() if f.own_search]
    assert {*columns} <= {*abilities.COLUMNS}
    for rows in abilities.TABLE.values():
        for row in rows.values():
            assert {*row} <= {*abilities.COLUMNS}


@pytest.mark.parametrize(
    "record, lack",
    [
        (DecodingConfig(), "needs stopping=fairseq"),
        (DecodingConfig(beam_size=1), None),  # a greedy search does not stop
        (BEAM, None),
        (dataclasses.replace(BEAM, min_length=2), "needs min_length=0 or 1"),
        (dataclasses.replace(BEAM, no_repeat_ngram=3), "needs no_repeat_ngram"),
        (dataclasses.replace(BEAM, alignment_head=2), "needs alignment_head"),
        (TransformerConfig(attention_window=3), "needs attention_window=None"),
        (dataclasses.replace(BEAM, sampling=True), "has no sampling: its"),
        (TransformerConfig(d_value=32), "needs d_value=d_model / num_heads"),
        (TransformerConfig(d_key=64), None),  # 512 / 8
        (Request("a", terms=(("b",),)), "has no terms: leave the glossary"),
        (Request("a", seed=3), None),
        (EngineOptions(models=2), "needs one model"),
        (EngineOptions(precision="bfloat16"), "has no precision: use compute"),
        (EngineOptions(compute_type="int8", device="cpu"), None),
    ],
)
def test_what_a_runtime_lacks_is_refused(record, lack):
    if lack is None:
        abilities.check(abilities.CT2, record)
        return
    with pytest.raises(
        ValueError, match=f"engine=ctranslate2 {lack}.*Received"
    ):
        abilities.check(abilities.CT2, record)


def test_only_fields_that_nobody_set_follow_an_engine():
    search = DecodingConfig(min_length=3, no_repeat_ngram=2, sampling=True)
    expected = {"stopping": "fairseq", "min_length": 0, "no_repeat_ngram": 0}
    assert abilities.following(abilities.CT2, search, ()) == expected
    given = ("min_length", "stopping")
    changes = abilities.following(abilities.CT2, search, given)
    assert changes == {"no_repeat_ngram": 0}
    assert abilities.following(abilities.NATIVE, search, ()) == {}


def test_the_page_is_made_from_the_table():
    page = load_script("abilities", ROOT / "docs/site").page()
    assert (ROOT / "docs/abilities.md").read_text("utf-8") == page
