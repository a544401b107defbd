"""Descriptions of the fields of a configuration, beside their values."""

import dataclasses

import pytest

from keras_transformer.base.fields import (
    GIVEN,
    Fields,
    check_options,
    hp,
    names_of,
    resolved,
    rules_of,
)
from keras_transformer.config import (
    DecodingConfig,
    TransformerConfig,
)
from trainers.parsing.parser_config import ParserDecoding, TreesConfig
from trainers.run.data_config import DataConfig
from trainers.run.training_config import TrainingConfig


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
            "source_language target_language language_tokens dataset"
            " share_vocabulary case_marks",
        ),
        (
            TrainingConfig,
            False,
            "init_from init_checkpoint ema_decay freeze lora_rank"
            " lora_targets precision",
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
    class Config(Fields):
        """Some fields."""

        silent: int = hp(0, "It says nothing.")
        open: int = hp(0, "It says so.", changeable=True)

    assert names_of(Config, changeable=True) == ["open"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().open = 1


def test_what_a_run_inherits():
    languages = ["source_language", "target_language", "language_tokens"]
    assert names_of(DataConfig, inherited=True) == [
        "max_length",
        *languages,
        "share_vocabulary",
        "case_marks",
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


class Bread(Fields):
    """What is baked."""

    flour: str = hp("rye", "Its grain.", choices=("rye", "oats", "wheat"))
    grams: int = hp(500, "Its weight.", low=1, high=900)
    water: float = hp(0.5, "Share of water.", low=0.0, below=1.0)
    seeds: str = hp("", "What is on it.", needs={"flour": ("oats", "wheat")})
    salted: bool = hp(True, "With salt.", needs={"flour": "rye"})
    glaze: str = hp("", "What it shines with.", excludes={"seeds": GIVEN})


class Oven(Fields):
    """Where it is baked."""

    stone: str = hp(
        "", "What it lies on.", needs={"door": True, "glaze": GIVEN}
    )
    steam: bool = hp(False, "With steam.", excludes={"flour": "oats"})
    door: bool = hp(False, "With a door.")


@pytest.mark.parametrize(
    ("field", "valid", "wrong", "message"),
    [
        ("grams", (1, 900), (0, 901), "at (least 1|most 900)"),
        ("water", (0, 0.999), (-0.001, 1), "(at least 0.0|below 1.0)"),
    ],
)
def test_bounds_are_inclusive_or_say_below(field, valid, wrong, message):
    for value in valid:
        assert getattr(Bread(**{field: value}), field) == value
    for value in wrong:
        expected = f"^{field} must be {message}. Received: {field}={value}$"
        with pytest.raises(ValueError, match=expected):
            Bread(**{field: value})


@pytest.mark.parametrize(
    ("bread", "oven", "rule"),
    [
        ({"seeds": "sesame"}, {}, "seeds needs flour=oats or wheat"),
        (
            {"salted": False, "flour": "oats"},
            {},
            "salted=False needs flour=rye",
        ),
        (
            {"flour": "oats", "seeds": "oats", "glaze": "egg"},
            {},
            "glaze excludes seeds",
        ),
        ({"flour": "oats"}, {"steam": True}, "steam=True excludes flour=oats"),
        ({"glaze": "egg"}, {"stone": "slate"}, "stone needs door=True"),
    ],
)
def test_what_an_option_needs_and_excludes(bread, oven, rule):
    """It is checked in a dataclass when made, in several by `check_options`."""
    with pytest.raises(
        ValueError, match=rf"^{rule}.*[.] Received: \w+=.*, \w+="
    ):
        check_options(Bread(**bread), Oven(**oven))


def test_a_default_needs_nothing_and_an_unknown_option_is_not_checked():
    wheat = Bread(flour="wheat", seeds="poppy")
    check_options(wheat, Oven(steam=True))
    check_options(Oven(steam=True))


def test_the_rules_of_a_field_are_sentences():
    fields = Bread.__dataclass_fields__
    assert {name: rules_of(field) for name, field in fields.items()} == {
        "flour": "",
        "grams": "At least 1. At most 900.",
        "water": "At least 0.0. Below 1.0.",
        "seeds": "Needs flour=oats or wheat.",
        "salted": "False needs flour=rye.",
        "glaze": "Excludes seeds.",
    }
