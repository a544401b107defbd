"""Makes docs/abilities.md from the table of abilities.

python docs/site/abilities.py > docs/abilities.md
"""

import itertools

from keras_transformer.config import DecodingConfig
from keras_transformer.translation import abilities
from keras_transformer.translation.abilities import ANY, COLUMNS
from keras_transformer.translation.requests import Request

TITLES = {
    "TransformerConfig": "The model",
    "DecodingConfig": "The search",
    "Request": "A sentence",
    "EngineOptions": "The translator",
}
# What a request to the server may set.
WITH_REQUESTS = (DecodingConfig, Request)
TOP = """\
# What works where

A row is an option of a model, a search, a sentence or a translator; a column is
a place where it may be used. Options with the same row share it.

- `any`: every value works.
- Values: only these work. If nobody set the option, `--engine=ctranslate2` uses
  the first of them, and one line says so.
- `no`: another value than the default is refused, in one line with the reason
  below the table.
- `-`: every value is accepted, and has no effect, for the reason below.

`native` is `--engine=native`, the default, under TensorFlow; `JAX` the same
with `--backend=jax`; `CTranslate2` is `--engine=ctranslate2`. An export is
named by its format: see [exports](exports.md). `request` is a request to the
[server](serving.md), whose fields set the option.

This page is made by `python docs/site/abilities.py > docs/abilities.md` from
`keras_transformer/translation/abilities.py`; so are the refusals.
"""
NAMES = {
    abilities.NATIVE: "native",
    "backend=jax": "JAX",
    abilities.CT2: "CTranslate2",
    abilities.SERVER: "request",
}


def title_of(column: str) -> str:
    """Returns the head of a column."""
    return NAMES.get(column) or f"`{column.partition('=')[2]}`"


EXPORTS = ", ".join(map(title_of, abilities.EXPORTS))


def sections() -> list[str]:
    """Returns the text of each part of the table."""
    found = []
    for section, rows in abilities.TABLE.items():
        columns = COLUMNS[: None if section in WITH_REQUESTS else -1]
        cells = {
            name: tuple(row[column] for column in columns)
            for name, row in rows.items()
        }
        free = [f"`{n}`" for n, row in cells.items() if {*row} == {ANY}]
        lines = [f"## {TITLES[section.__name__]}", ""]
        if free:
            lines += [f"Any value works everywhere: {', '.join(free)}.", ""]
        lines.append("| option | " + " | ".join(map(title_of, columns)) + " |")
        lines.append("|---" * (len(columns) + 1) + "|")
        reasons: dict[tuple[str, str], list[str]] = {}
        named = [item for item in cells.items() if {*item[1]} != {ANY}]
        for row, group in itertools.groupby(named, key=lambda item: item[1]):
            names = ", ".join(f"`{name}`" for name, _ in group)
            for cell in row:
                if cell.reason:
                    places = [
                        title_of(c)
                        for c, other in zip(columns, row, strict=True)
                        if other == cell
                    ]
                    where = ", ".join(places).replace(EXPORTS, "all exports")
                    given = reasons.setdefault((cell.reason, where), [])
                    given += [names] * (names not in given)
            lines.append(
                f"| {names} | {' | '.join(cell.shown for cell in row)} |"
            )
        if reasons:
            lines += ["", "Reasons:", ""]
            lines += [
                f"- {places}: {', '.join(names)}: {reason}."
                for (reason, places), names in reasons.items()
            ]
        found.append("\n".join(lines))
    return found


def page() -> str:
    """Returns the whole page."""
    return "\n\n".join([TOP.rstrip("\n"), *sections()]) + "\n"


if __name__ == "__main__":
    print(page(), end="")
