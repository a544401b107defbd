"""A package of Argos Translate and LibreTranslate, which run CTranslate2.

`translate-SOURCE_TARGET.argosmodel` is a zip file of one directory, which
`package.install_from_path` unpacks: `metadata.json`, `README.md`,
`sentencepiece.model`, and the export of `ctranslate2.py` in `model`.

Argos Translate 1.11 calls CTranslate2 in its own way:

- It adds nothing to the pieces of `sentencepiece.model`: no marks, and no
  languages but `target_prefix`. A model that needs them is refused.
- It splits texts into sentences by MiniSBD, whose model of the source language
  it loads from the network once. A package can have such a model; ours has not.
- Beam 4 (`ARGOS_BEAM_SIZE`); score: log-probability / length ^ 0.2; at most
  256 tokens, without `min_length`. The options of the search are not used.
- Sources are truncated at 1,024 tokens, so positions must not end before.
- An unknown token becomes the source token with the greatest attention; an
  underscore becomes a space.
- It computes in the CPU's fastest type (`ARGOS_COMPUTE_TYPE`), which mostly is
  int8, whatever the precision of the weights.
"""

import json
import pathlib
import shutil
import typing

from keras_transformer.commands.flags import CommandError
from keras_transformer.data.languages import name_of
from keras_transformer.tokenization import SHARED_FILE
from keras_transformer.translator import Translator
from savedmodel import ctranslate2
from savedmodel.formats import ExportOptions

ARGOS_VERSION = "1.11"  # the one that these packages were tried with


def write(
    translator: Translator,
    directory: pathlib.Path,
    options: ExportOptions,
    description: dict[str, typing.Any],
    examples: list[str],
) -> None:
    """Writes the package; see `formats`."""
    check_languages(description)
    check_vocabulary(translator)
    metadata = make_metadata(options, description)
    name = "translate-{from_code}_{to_code}".format_map(metadata)
    package = directory / name
    model = package / "model"
    model.mkdir(parents=True)
    ctranslate2.write(translator, model, options, description, examples)
    (model / SHARED_FILE).rename(package / "sentencepiece.model")
    text = json.dumps(metadata, indent=2) + "\n"
    (package / "metadata.json").write_text(text)
    (package / "README.md").write_text(
        "# {from_name} - {to_name}\n\nA Transformer of keras_transformer"
        " {keras_transformer}, in CTranslate2's format.\n".format(
            **metadata, **description["versions"]
        )
    )
    archive = shutil.make_archive(str(package), "zip", directory, name)
    pathlib.Path(archive).rename(directory / f"{name}.argosmodel")
    shutil.rmtree(package)


def make_metadata(
    options: ExportOptions, description: dict[str, typing.Any]
) -> dict[str, str]:
    """The contents of `metadata.json`."""
    source = description["source_language"]
    target = description["target_language"]
    return {
        "package_version": f"{options.version}.0",
        "argos_version": ARGOS_VERSION,
        "from_code": source,
        "from_name": name_of(source),
        "to_code": target,
        "to_name": name_of(target),
    }


def check_languages(description: dict[str, typing.Any]) -> None:
    """Raises CommandError unless a model has one direction and knows it."""
    for name in ("source_language", "target_language"):
        if "," in (description[name] or ","):
            raise CommandError(
                f"format=argos needs one {name}."
                f" Received: {name}={description[name]!r}"
            )
    if places := description["language_places"]:
        raise CommandError(
            "format=argos needs a model that is told no language."
            f" Received: tokens of languages, {', '.join(places)} the text"
        )


def check_vocabulary(translator: Translator) -> None:
    """Raises CommandError unless one SentencePiece model is the vocabulary."""
    tokenizer = translator.tokenizer
    received = None
    if list(tokenizer.files) != [SHARED_FILE]:
        received = "a vocabulary of each side"
    elif tokenizer.source.has_case_marks:
        received = "case marks"
    elif tokenizer.source.has_table:
        received = "a table of ids, of an imported model"
    if received:
        raise CommandError(
            "format=argos needs one vocabulary that is a SentencePiece model"
            f" and nothing more. Received: {received}"
        )
