"""A table of the options that each runtime supports.

A row is an option: a field of the model, of the search or of a `Request`, or an
option of the translator. A column is a runtime, named as in messages: an
engine, an export format, or a request to the server. A cell is a key of
`CELLS`, which defines the values that work there.

From this table come the error messages, the options that are adapted to an
engine, the fields that a request may have, and docs/abilities.md. A new field
needs a row.
"""

import typing
from collections.abc import Callable, Collection

from keras_transformer.config import (
    SEARCH_PRECISIONS,
    DecodingConfig,
    TransformerConfig,
)
from keras_transformer.translation.requests import Request

NATIVE, CT2, SERVER = "engine=native", "engine=ctranslate2", "a request"
EXPORTS = (
    *("format=saved_model", "format=tflite", "format=onnx"),  # our search
    *("format=ctranslate2", "format=argos", "format=huggingface"),  # others'
)
COLUMNS = (NATIVE, "backend=jax", CT2, *EXPORTS, SERVER)


def _always(value: object, record: object, default: object) -> bool:
    return True


class Cell(typing.NamedTuple):
    """The values of an option that work; texts name the option `{name}`."""

    shown: str  # the text in docs/abilities.md
    lack: str = ""  # the end of the error message for other values
    # Tells from value, record and default whether the value works.
    works: Callable[[typing.Any, typing.Any, typing.Any], bool] = _always
    values: tuple = ()  # an option that is not set is adapted to the first one
    reason: str = ""


def _only(*values: object, unless: Callable = lambda record: False) -> Cell:
    """Makes a cell for `values`; if `unless(record)`, any value works."""
    return Cell(
        ", ".join(f"`{value}`" for value in values),
        f"needs {{name}}={' or '.join(map(str, values))}",
        lambda value, record, default: value in values or unless(record),
        values,
    )


def _where(words: str, works: Callable[[typing.Any, typing.Any], bool]) -> Cell:
    """Makes a cell for values described by `words` and tested by `works`."""
    shown = words.removeprefix("{name}=")
    return Cell(shown, f"needs {words}", lambda v, record, _: works(v, record))


def _no(reason: str) -> Cell:
    """Makes a cell in which only the default and false values work."""
    return Cell(
        "no",
        f"has no {{name}}: {reason}",
        lambda value, record, default: not value or value == default,
        reason=reason,
    )


def _unused(reason: str) -> Cell:
    """Makes a cell in which any value works but has no effect."""
    return Cell("-", reason=reason)


ANY = Cell("any")
EACH_TEXT = _where("split=false", lambda value, options: not options.split)
CELLS = {
    ".": ANY,
    "0": _only(0),
    "one": _where("one model", lambda value, _: value == 1),
    "0,1": _only(0, 1),
    "None": _only(None),
    "No": _only(False),
    "Yes": _only(True),
    "sin": _only("sinusoidal"),
    "rel": _only("sinusoidal", "relative"),
    "pap": _only("paper"),
    "fair": _only("fairseq", unless=lambda search: search.beam_size == 1),
    "prec": _only(*SEARCH_PRECISIONS),
    "head": _where(  # None means this size
        "{name}=d_model / num_heads",
        lambda value, c: value in (None, c.d_model / c.num_heads),
    ),
    "eps": _where("{name}=1e-05 or less", lambda value, _: value <= 1e-5),
    "text": EACH_TEXT,
    "own": _no("it is an option of engine=ctranslate2"),
    "type": _no("use compute_type"),
    "nat": _no("use engine=native"),
    "term": _no("leave the glossary out, or use engine=native"),
    "rand": _no("its samples would depend on the other sentences"),
    "srch": _no("an export searches"),
    "none": _no("exports have none"),
    "inp": _no("its graph has no such input"),
    "all": _no("it scores the whole vocabulary"),
    "comp": _no("it compiles nothing"),
    "pair": _no("a package has one direction"),
    "srv": _no("the server has it, and makes programs for it"),
    "-run": _unused("the program that runs the export chooses it"),
    "-jax": _unused("JAX always compiles"),
    "-one": _unused("there is one model"),
    "-smp": _unused("there is no sampling"),
    "-trm": _unused("there are no terms"),
}


class EngineOptions(typing.NamedTuple):
    """The options with which a translator is loaded; see `Translator.load`."""

    engine: str = "native"
    precision: str = "float32"
    compute_type: str = "default"
    device: str | None = None
    jit_compile: bool | None = None
    shortlist: bool = False
    models: int = 1  # number of models


# Columns are in the order of `COLUMNS`; a row without cells has `.` everywhere.
_ROWS: dict[type, str] = {
    TransformerConfig: """
                    native jax  ct2  saved tfl  onnx ct2  argos hugg request
vocab_size
source_vocab_size   .      .    .    .     .    .    .    None  .    .
d_model
d_ff
num_heads
num_layers
num_decoder_layers
d_key               .      .    head .     .    .    head head  head .
d_value             .      .    head .     .    .    head head  head .
dropout
attention_dropout
activation_dropout
pre_norm            .      .    .    .     .    .    .    .     No   .
positions           .      .    .    .     .    .    .    rel   sin  .
max_positions
max_relative_position
attention_window    .      .    None .     .    .    None None  None .
activation
attention_bias
layer_norm_epsilon  .      .    .    .     .    .    .    .     eps  .
embedding_norm      .      .    .    .     .    .    .    .     No   .
scale_embeddings
sinusoids           .      .    .    .     .    .    .    .     pap  .
first_position      .      .    .    .     .    .    .    .     0    .
share_embeddings
logits_bias
source_eos          .      .    .    .     .    .    .    .     Yes  .
""",
    DecodingConfig: """
                    native jax  ct2  saved tfl  onnx ct2  argos hugg request
beam_size           .      .    .    .     .    .    -run -run  -run .
length_penalty      .      .    .    .     .    .    -run -run  -run .
length_normalization .     .    .    .     .    .    -run -run  -run srv
stopping            .      .    fair .     .    .    -run -run  -run srv
extra_length        .      .    .    .     .    .    -run -run  -run srv
max_output_length   .      .    .    .     .    .    -run -run  -run srv
min_length          .      .    0,1  .     .    .    -run 0     -run .
no_repeat_ngram     .      .    0    .     .    .    0    0     0    .
alignment_layer     .      .    .    .     .    .    .    .     -run srv
alignment_head      .      .    0,1  .     .    .    0,1  0,1   -run srv
sampling            .      .    rand srch  srch srch srch srch  srch .
ensemble            .      .    -one -one  -one -one -one -one  -one srv
glossary_mode       .      .    -trm -trm  -trm -trm -trm -trm  -trm srv
glossary_bonus      .      .    -trm -trm  -trm -trm -trm -trm  -trm srv
num_samples         .      .    -smp -smp  -smp -smp -smp -smp  -smp .
temperature         .      .    -smp -smp  -smp -smp -smp -smp  -smp .
top_k               .      .    -smp -smp  -smp -smp -smp -smp  -smp .
top_p               .      .    -smp -smp  -smp -smp -smp -smp  -smp .
epsilon             .      .    -smp -smp  -smp -smp -smp -smp  -smp .
consensus           .      .    -smp -smp  -smp -smp -smp -smp  -smp .
""",
    Request: """
                    native jax  ct2  saved tfl  onnx ct2  argos hugg request
text
prefix              .      .    .    .     inp  inp  -run inp   -run text
terms               .      .    term none  none none none none  none .
avoid               .      .    .    none  none none none none  none .
seed                .      .    -smp -smp  -smp -smp -smp -smp  -smp .
direction           .      .    .    .     .    .    .    pair  .    .
""",
    EngineOptions: """
                    native jax  ct2  saved tfl  onnx ct2  argos hugg request
engine
checkpoint
max_source_length
models              .      .    one  one   one  one  one  one   one  .
precision           prec   prec type .     .    .    .    .     .    .
compute_type        own    own  .    own   own  own  own  own   own  .
device              own    own  .    own   own  own  own  own   own  .
jit_compile         .      -jax comp .     comp comp comp comp  comp .
shortlist           .      .    nat  all   all  all  .    all   all  .
glossary            .      .    term none  none none none none  none .
avoid               .      .    .    none  none none none none  none .
num_threads         .      .    .    -run  -run -run -run -run  -run .
batch_tokens        .      .    .    -run  -run -run -run -run  -run .
seed                .      .    -smp -smp  -smp -smp -smp -smp  -smp .
score               .      .    .    .     inp  inp  -run -run  -run .
align               .      .    .    inp   inp  inp  -run -run  -run .
confidence          .      .    .    none  none none none none  none .
attention_figure    .      .    nat  .     none none none none  none .
adapter             .      .    nat  none  none none none none  none .
""",
}


def _read(text):
    """Parses the rows of a table into option -> column -> cell."""
    table = {}
    for name, *keys in map(str.split, text.strip("\n").splitlines()[1:]):
        cells = [CELLS[key] for key in keys or "." * len(COLUMNS)]
        table[name] = dict(zip(COLUMNS, cells, strict=True))
    return table


TABLE: dict[type, dict[str, dict[str, Cell]]] = {
    section: _read(text) for section, text in _ROWS.items()
}


def cell_of(column: str, name: str, section: type = EngineOptions) -> Cell:
    """Returns the cell of a runtime and an option.

    A runtime that is not in the table supports everything.

    >>> cell_of("engine=ctranslate2", "min_length", DecodingConfig).shown
    '`0`, `1`'
    """
    return TABLE[section][name].get(column, ANY)


def check(column: str, *records: typing.Any) -> None:
    """Raises ValueError if a runtime does not support an option's value.

    Each of the `records` is an instance of a class in `TABLE`.

    >>> check("engine=ctranslate2", DecodingConfig(stopping="exact"))
    Traceback (most recent call last):
    ValueError: engine=ctranslate2 needs stopping=fairseq. Received:\
 stopping='exact'
    """
    for record in records:
        for name in TABLE[type(record)]:
            if hasattr(record, name):
                value = getattr(record, name)
                check_value(column, name, value, type(record), record)


def check_value(
    column: str,
    name: str,
    value: object,
    section: type = EngineOptions,
    record: object = None,
) -> None:
    """Raises ValueError if a runtime does not support an option's value."""
    cell = cell_of(column, name, section)
    default = getattr(section, "_field_defaults", vars(section)).get(name)
    if not cell.works(value, record, default):
        raise ValueError(
            f"{column} {cell.lack.format(name=name)}."
            f" Received: {name}={value!r}"
        )


def has(column: str, name: str) -> bool:
    """Tells whether a runtime supports an option of `EngineOptions` at all."""
    return cell_of(column, name).shown != "no"


def following(
    column: str, search: DecodingConfig, given: Collection[str]
) -> dict[str, typing.Any]:
    """Returns the changes that adapt a search to a runtime.

    The fields in `given` do not change.
    """
    changes = {}
    for name in TABLE[DecodingConfig]:
        cell = cell_of(column, name, DecodingConfig)
        if (
            name not in given
            and cell.values
            and not cell.works(getattr(search, name), search, None)
        ):
            changes[name] = cell.values[0]
    return changes


def names_with(cell: Cell, column: str, section: type) -> list[str]:
    """Returns the options of a section that have this cell in a column."""
    return [n for n, row in TABLE[section].items() if row[column] == cell]
