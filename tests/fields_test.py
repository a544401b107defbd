"""What fields of a configuration say of themselves beside their values."""

import dataclasses

import pytest

from keras_transformer.config import (
    DecodingConfig,
    SearchConfig,
    TransformerConfig,
)
from keras_transformer.fields import Fields, hp, names_of, resolved
from trainers.parsing.config import ParserDecoding, TreesConfig
from trainers.run.config import TrainingConfig
from trainers.run.data_config import DataConfig


@pytest.mark.parametrize(
    ("section", "changeable", "names"),
    [
        (
            TransformerConfig,
            True,
            "dropout attention_dropout activation_dropout",
        ),
        (
            DataConfig,
            False,
            "dataset source_language target_language share_vocabulary",
        ),
        (
            TrainingConfig,
            False,
            "init_from init_checkpoint ema_decay freeze precision",
        ),
        (TreesConfig, False, ""),
        (DecodingConfig, False, ""),
        (ParserDecoding, False, ""),
    ],
)
def test_what_may_change_between_the_sessions_of_a_run(
    section, changeable, names
):
    assert names_of(section, changeable=changeable) == names.split()
    others = names_of(section, changeable=not changeable)
    assert len(others) + len(names.split()) == len(names_of(section))


def test_a_new_field_may_not_change_unless_it_says_so():
    @dataclasses.dataclass(frozen=True)
    class Config(Fields):
        """Some fields."""

        silent: int = hp(0, "It says nothing.")
        open: int = hp(0, "It says so.", changeable=True)

    assert names_of(Config, changeable=True) == ["open"]


def test_what_a_run_inherits():
    languages = ["source_language", "target_language"]
    assert names_of(DataConfig, inherited=True) == [
        "max_length",
        *languages,
        "share_vocabulary",
    ]
    assert names_of(TreesConfig, inherited=True) == ["max_length"]


def test_none_is_the_value_that_it_stands_for():
    config = TransformerConfig(d_model=24, num_heads=3, num_layers=2)
    expected = {
        "num_decoder_layers": 2,
        "d_key": 8,
        "d_value": 8,
        "max_positions": None,  # of sinusoids there is no limit
        "max_relative_position": None,
        "share_embeddings": "all",
    }
    others = set(names_of(config)) - set(names_of(config, resolved_by=None))
    assert {name: resolved(config, name) for name in others} == expected
    learned = TransformerConfig(positions="learned")
    assert resolved(learned, "max_positions") == 512
    relative = TransformerConfig(positions="relative")
    assert resolved(relative, "max_relative_position") == 20


def test_a_search_does_not_sample():
    sampling = set(names_of(DecodingConfig)) - set(names_of(SearchConfig))
    assert sampling == {"sampling", "temperature", "top_k", "top_p"}
