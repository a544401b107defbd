"""Model cards: what a model is for, what it was made of, how good it is.

A card is Markdown. In front of it, exports have metadata that the Hugging Face
Hub reads. Languages and sizes come from `config.json` of the work directory;
facts that only its user knows from `card.toml`, if there is one:

    name = "Software texts from English"
    license = "mpl-2.0"
    purpose = "software texts: menus, messages, help pages"
    held_out = "The help of Impress and Draw."
    limits = "It confuses du and Sie."
    recipe = "examples/software_texts"

    [[data]]
    name = "LibreOffice Help"
    license = "MPL-2.0"

    [[scores]]
    test = "help of Impress and Draw"
    direction = "en-de"
    bleu = 34.5
    chrf = 58.2

Whatever is not there, the card calls unknown. A file NOTICE belongs to a card.
"""

import dataclasses
import json
import pathlib
import re
import shutil
import tomllib
import typing

from keras_transformer import __version__
from keras_transformer.base.fields import Fields, from_values, hp
from keras_transformer.base.refusals import expect
from keras_transformer.config import TransformerConfig
from keras_transformer.data.languages import base_language
from keras_transformer.storage.workdir import WorkDirectory

CARD, FACTS, NOTICE = "README.md", "card.toml", "NOTICE"
UNKNOWN = "Unknown: its maker has not told."
METRICS = {"bleu": "BLEU", "chrf": "chrF"}  # fields of `Score`, and their names


class Corpus(Fields):
    """A corpus that a model was trained on."""

    name: str = hp("", "Its name.")
    license: str = hp("", "Its licence.")
    copyright: str = hp("", "Whose it is.")
    url: str = hp("", "Where it comes from.")


class Score(Fields):
    """The quality in one direction, on one test set."""

    test: str = hp("", "Name of the test set.")
    direction: str = hp("", "Both languages, as in en-de.")
    bleu: float | None = hp(None, "BLEU.", low=0, high=100)
    chrf: float | None = hp(None, "chrF.", low=0, high=100)


class Facts(Fields):
    """What the user tells of a model."""

    name: str = hp("", "Its name.")
    license: str = hp("", "Its licence, by the Hub's name.")
    purpose: str = hp("", "The texts that it is for.")
    held_out: str = hp("", "What was never in the training data.")
    limits: str = hp("", "What it cannot do.")
    recipe: str = hp("", "How to make it again.")


@dataclasses.dataclass(frozen=True)
class Card:
    """The facts in a `card.toml`, empty if there is none."""

    facts: Facts
    data: list[Corpus]
    scores: list[Score]


def read_card(workdir: WorkDirectory) -> Card:
    """Reads `card.toml`. Raises ValueError if it has anything else."""
    path = workdir.path / FACTS
    try:
        values = tomllib.loads(path.read_text("utf-8"))
        tables = {
            name: [from_values(kind, row) for row in _rows(values, name)]
            for name, kind in (("data", Corpus), ("scores", Score))
        }
        return Card(from_values(Facts, values), **tables)
    except FileNotFoundError:
        return Card(Facts(), [], [])
    except RecursionError:
        raise ValueError(f"{path}: nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _rows(values, name):
    rows = values.pop(name, [])
    is_table = isinstance(rows, list) and all(isinstance(r, dict) for r in rows)
    expect(is_table, f"[[{name}]] before each entry", rows)
    return rows


def describe(workdir: WorkDirectory) -> str:
    """Returns the card of a model, without the metadata."""
    languages, card = workdir.read_languages(), read_card(workdir)
    config = workdir.read_section("model", TransformerConfig)
    facts, pair = card.facts, (languages.sources, languages.targets)
    source, target = (", ".join(codes) or "unknown" for codes in pair)
    corpora = [
        "- " + ", ".join(filter(None, vars(corpus).values()))
        for corpus in card.data
    ]
    table = [
        *("| test | direction | BLEU | chrF |", "|---|---|---|---|"),
        *map(_row, card.scores),
    ]
    sections = {
        "Purpose": facts.purpose and f"For {facts.purpose}.",
        "Languages": f"From {source} into {target}.",
        "Model": f"A Transformer of {config.num_layers} encoder and"
        f" {config.decoder_depth} decoder layers of width {config.d_model}, and"
        f" a vocabulary of {config.vocab_size:,} tokens; keras_transformer"
        f" {__version__}.",
        "License": facts.license,
        "Training data": "\n".join(corpora),
        "Held out": facts.held_out,
        "Scores": "\n".join(table) if card.scores else "",
        "What it cannot do": facts.limits,
        "How to make it again": facts.recipe,
    }
    notice = workdir.path / NOTICE
    if notice.is_file():
        sections["Notice"] = notice.read_text("utf-8").strip()
    title = facts.name or f"Translation from {source} into {target}"
    parts = [
        f"## {name}\n\n{text or UNKNOWN}" for name, text in sections.items()
    ]
    return "\n\n".join([f"# {title}", *parts]) + "\n"


def write(
    workdir: WorkDirectory, directory: pathlib.Path, **metadata: typing.Any
) -> None:
    """Writes the card of a model, with `metadata` for the Hub, and its NOTICE.

    Metadata is JSON, which is YAML, too.
    """
    card, languages = read_card(workdir), workdir.read_languages()
    found = map(base_language, languages.sources + languages.targets)
    codes = [c for c in dict.fromkeys(found) if re.fullmatch("[a-z]{2,3}", c)]
    if codes:
        metadata |= {"language": codes, "pipeline_tag": "translation"}
    if card.facts.license:
        metadata["license"] = card.facts.license
    if card.scores:
        known = [n for n in METRICS if any(getattr(s, n) for s in card.scores)]
        metadata |= {"metrics": known, "model-index": [_index(card)]}
    lines = [
        f"{name}: {json.dumps(value, ensure_ascii=False)}\n"
        for name, value in metadata.items()
    ]
    text = f"---\n{''.join(lines)}---\n\n{describe(workdir)}"
    (directory / CARD).write_text(text, "utf-8")
    if (workdir.path / NOTICE).is_file():
        shutil.copy(workdir.path / NOTICE, directory)


def _index(card):
    """Returns the scores as an entry of the Hub's `model-index`."""
    results = [
        {
            "task": {
                "type": "translation",
                "name": f"Translation {s.direction}",
            },
            "dataset": {"type": s.test, "name": s.test},
            "metrics": [
                {"type": name, "name": shown, "value": getattr(s, name)}
                for name, shown in METRICS.items()
                if getattr(s, name) is not None
            ],
        }
        for s in card.scores
    ]
    return {"name": card.facts.name or "translation", "results": results}


def _row(score):
    """Returns the row of a table."""
    numbers = [getattr(score, name) for name in METRICS]
    shown = ["" if number is None else f"{number:.1f}" for number in numbers]
    return f"| {' | '.join([score.test, score.direction, *shown])} |"
