"""What works where: one table of options and runtimes.

A row is an option: a field of the model, of the search or of a `Request`, or an
option of the translator. A column is a runtime, by the words with which a
message names it: an engine, a format of exports, a request to the server. A
cell says which values work there; a row names the cells that are not `ANY`.

Refusals, the values that follow an engine, the fields that a request may have,
and docs/abilities.md are made from this table. A new field needs a row.
"""

import dataclasses
import typing
from collections.abc import Callable, Collection, Mapping

from keras_transformer.config import (
    SEARCH_PRECISIONS,
    DecodingConfig,
    TransformerConfig,
)
from keras_transformer.translation.requests import Request

NATIVE, JAX = "engine=native", "backend=jax"  # native under TensorFlow, JAX
CT2 = "engine=ctranslate2"
# Exports with our search, and those that another program searches.
GRAPHS = ("format=saved_model", "format=tflite", "format=onnx")
ARGOS, MARIAN = "format=argos", "format=huggingface"
OF_CT2 = ("format=ctranslate2", ARGOS)
OTHERS = (*OF_CT2, MARIAN)
EXPORTS = (*GRAPHS, *OTHERS)
SERVER = "a request"
COLUMNS = (NATIVE, JAX, CT2, *EXPORTS, SERVER)


class Cell:
    """Any value works."""

    def lack(self, value: object, record: typing.Any) -> str | None:
        """Returns why a value of a record does not work; None if it does.

        In the text, `{name}` stands for the name of the option.
        """
        return None

    def __str__(self) -> str:
        return "any"


@dataclasses.dataclass(frozen=True)
class Values(Cell):
    """Some values work. Where nobody set the option, it is the first."""

    values: tuple
    # Whether any value works in a record.
    unless: Callable[[typing.Any], bool] = lambda record: False

    def lack(self, value, record):
        if value in self.values or self.unless(record):
            return None
        return f"needs {{name}}={' or '.join(map(str, self.values))}"

    def __str__(self):
        return ", ".join(f"`{value}`" for value in self.values)


@dataclasses.dataclass(frozen=True)
class Where(Cell):
    """A value works if its record passes a test."""

    words: str  # what the record must have
    test: Callable[[typing.Any], bool]

    def lack(self, value, record):
        return None if self.test(record) else f"needs {self.words}"

    def __str__(self):
        return self.words.removeprefix("{name}=")


@dataclasses.dataclass(frozen=True)
class No(Cell):
    """Only the default works."""

    reason: str

    def lack(self, value, record):
        return f"has no {{name}}: {self.reason}"

    def __str__(self):
        return "no"


@dataclasses.dataclass(frozen=True)
class Unused(Cell):
    """Any value is accepted, and has no effect."""

    reason: str

    def __str__(self):
        return "-"


ANY = Cell()
Row = Mapping[str, Cell]


def rows(
    names: str, cells: Mapping[str | tuple[str, ...], Cell] = {}
) -> dict[str, Row]:
    """Makes a row for each name; of a column's cells the last one counts."""
    row: dict[str, Cell] = {}
    for columns, cell in cells.items():
        columns = (columns,) if isinstance(columns, str) else columns
        row.update(dict.fromkeys(columns, cell))
    return dict.fromkeys(names.split(), row)


MODEL = {
    **rows("vocab_size d_model d_ff num_heads num_layers num_decoder_layers"),
    **rows("source_vocab_size", {ARGOS: Values((None,))}),
    **rows(
        "d_key",
        {
            (CT2, *OTHERS): Where(
                "{name}=d_model / num_heads",
                lambda c: c.key_size == c.d_model / c.num_heads,
            )
        },
    ),
    **rows(
        "d_value",
        {
            (CT2, *OTHERS): Where(
                "{name}=d_model / num_heads",
                lambda c: c.value_size == c.d_model / c.num_heads,
            )
        },
    ),
    **rows("dropout attention_dropout activation_dropout"),
    **rows("pre_norm embedding_norm", {MARIAN: Values((False,))}),
    **rows(
        "positions",
        {
            ARGOS: Values(("sinusoidal", "relative")),
            MARIAN: Values(("sinusoidal",)),
        },
    ),
    **rows("max_positions max_relative_position"),
    **rows("attention_window", {(CT2, *OTHERS): Values((None,))}),
    **rows("activation attention_bias scale_embeddings"),
    **rows(
        "layer_norm_epsilon",  # Marian has 1e-5, and no other
        {
            MARIAN: Where(
                "{name}=1e-05 or less",
                lambda config: config.layer_norm_epsilon <= 1e-5,
            )
        },
    ),
    **rows("sinusoids", {MARIAN: Values(("paper",))}),
    **rows("first_position", {MARIAN: Values((0,))}),
    **rows("share_embeddings logits_bias"),
    **rows("source_eos", {MARIAN: Values((True,))}),
}

_OF_SERVER = No("the server has it, and makes programs for it")
_CALLER = Unused("the program that runs the export chooses it")
_NO_SAMPLES = Unused("there is no sampling")
SEARCH = {
    **rows("beam_size length_penalty", {OTHERS: _CALLER}),
    **rows("length_normalization", {OTHERS: _CALLER, SERVER: _OF_SERVER}),
    **rows(
        "stopping",
        {
            CT2: Values(("fairseq",), unless=lambda s: s.beam_size == 1),
            OTHERS: _CALLER,
            SERVER: _OF_SERVER,
        },
    ),
    **rows(
        "extra_length max_output_length",
        {OTHERS: _CALLER, SERVER: _OF_SERVER},
    ),
    **rows(
        "min_length",
        {CT2: Values((0, 1)), OTHERS: _CALLER, ARGOS: Values((0,))},
    ),
    # CTranslate2 gives the probability of banned tokens to the others.
    **rows("no_repeat_ngram", {(CT2, *OTHERS): Values((0,))}),
    **rows("alignment_layer", {MARIAN: _CALLER, SERVER: _OF_SERVER}),
    **rows(
        "alignment_head",  # CTranslate2 returns the first head, or their mean
        {
            (CT2, *OF_CT2): Values((0, 1)),
            MARIAN: _CALLER,
            SERVER: _OF_SERVER,
        },
    ),
    **rows(
        "sampling",
        {
            CT2: No("its samples would depend on the other sentences"),
            EXPORTS: No("an export searches"),
        },
    ),
    **rows(
        "ensemble",
        {(CT2, *EXPORTS): Unused("there is one model"), SERVER: _OF_SERVER},
    ),
    **rows(
        "glossary_mode glossary_bonus",
        {(CT2, *EXPORTS): Unused("there are no terms"), SERVER: _OF_SERVER},
    ),
    **rows(
        "num_samples temperature top_k top_p epsilon consensus",
        {(CT2, *EXPORTS): _NO_SAMPLES},
    ),
}

_NO_TERMS = No("leave the glossary out, or use engine=native")
_NONE = No("exports have none")
_NO_INPUT = No("its graph has no such input")
# Each text of a request may have one.
EACH_TEXT = Where("split=false", lambda options: not options.split)
SENTENCE = {
    **rows("text"),
    **rows(
        "prefix",
        {
            GRAPHS[1:]: _NO_INPUT,
            OTHERS: _CALLER,
            ARGOS: _NO_INPUT,
            SERVER: EACH_TEXT,
        },
    ),
    **rows("terms", {CT2: _NO_TERMS, EXPORTS: _NONE}),
    **rows("avoid", {EXPORTS: _NONE}),
    **rows("seed", {(CT2, *EXPORTS): _NO_SAMPLES}),
    **rows("direction", {ARGOS: No("a package has one direction")}),
}


class EngineOptions(typing.NamedTuple):
    """How a translator is loaded; see `Translator.load`."""

    engine: str = "native"
    precision: str = "float32"
    compute_type: str = "default"
    device: str | None = None
    jit_compile: bool | None = None
    shortlist: bool = False
    models: int = 1  # their number


_OF_CT2 = No("it is an option of engine=ctranslate2")
_KERAS = No("use engine=native")
OPTIONS = {
    **rows("engine checkpoint max_source_length"),
    **rows("models", {(CT2, *EXPORTS): Values((1,))}),
    **rows(
        "precision",
        {(NATIVE, JAX): Values(SEARCH_PRECISIONS), CT2: No("use compute_type")},
    ),
    **rows("compute_type device", {(NATIVE, JAX, *EXPORTS): _OF_CT2}),
    **rows(
        "jit_compile",
        {
            JAX: Unused("JAX always compiles"),
            (CT2, *EXPORTS): No("it compiles nothing"),
            "format=saved_model": ANY,
        },
    ),
    **rows(
        "shortlist",
        {
            CT2: _KERAS,
            EXPORTS: No("it scores the whole vocabulary"),
            "format=ctranslate2": ANY,
        },
    ),
    **rows("glossary", {CT2: _NO_TERMS, EXPORTS: _NONE}),
    **rows("avoid", {EXPORTS: _NONE}),
    **rows("num_threads batch_tokens", {EXPORTS: _CALLER}),
    **rows("seed", {(CT2, *EXPORTS): _NO_SAMPLES}),
    # What a translator serves besides translations.
    **rows("score", {GRAPHS[1:]: _NO_INPUT, OTHERS: _CALLER}),
    **rows("align", {GRAPHS: _NO_INPUT, OTHERS: _CALLER}),
    **rows("attention_figure", {CT2: _KERAS, EXPORTS: _NONE, GRAPHS[0]: ANY}),
    **rows("adapter", {CT2: _KERAS, EXPORTS: _NONE}),
}

TABLE: dict[type, dict[str, Row]] = {
    TransformerConfig: MODEL,
    DecodingConfig: SEARCH,
    Request: SENTENCE,
    EngineOptions: OPTIONS,
}


def cell_of(column: str, name: str, section: type = EngineOptions) -> Cell:
    """Returns the cell of a runtime and an option.

    >>> str(cell_of("engine=ctranslate2", "min_length", DecodingConfig))
    '`0`, `1`'
    """
    return TABLE[section][name].get(column, ANY)


def check(column: str, *records: typing.Any) -> None:
    """Raises ValueError for an option that a runtime does not have.

    Each of the `records` has a class of `TABLE`.

    >>> check("engine=ctranslate2", DecodingConfig(no_repeat_ngram=3))
    Traceback (most recent call last):
    ValueError: engine=ctranslate2 needs no_repeat_ngram=0. Received:\
 no_repeat_ngram=3
    """
    for record in records:
        section = type(record)
        for name in TABLE[section]:
            if hasattr(record, name):
                value = getattr(record, name)
                check_value(column, name, value, section, record)


def check_value(
    column: str,
    name: str,
    value: object,
    section: type = EngineOptions,
    record: typing.Any = None,
) -> None:
    """Raises ValueError if a runtime does not have an option with a value."""
    cell = cell_of(column, name, section)
    default = getattr(section, "_field_defaults", vars(section)).get(name)
    if isinstance(cell, No) and (not value or value == default):
        return
    if lack := cell.lack(value, record):
        raise ValueError(
            f"{column} {lack.format(name=name)}. Received: {name}={value!r}"
        )


def has(column: str, name: str) -> bool:
    """Whether a runtime has an option of a translator at all."""
    return not isinstance(cell_of(column, name), No)


def following(
    column: str, search: DecodingConfig, given: Collection[str]
) -> dict[str, typing.Any]:
    """Returns the changes of a search to what a runtime needs.

    The fields in `given` stay as they are.
    """
    changes = {}
    for name in SEARCH:
        cell, value = (
            cell_of(column, name, DecodingConfig),
            getattr(search, name),
        )
        if isinstance(cell, Values) and name not in given:
            if cell.lack(value, search):
                changes[name] = cell.values[0]
    return changes


def names_with(column: str, section: type, cell: Cell = ANY) -> list[str]:
    """Returns the options that have a cell in the column of a runtime."""
    return [
        name
        for name in TABLE[section]
        if cell_of(column, name, section) is cell
    ]
