"""Exports packages for Argos Translate and LibreTranslate.

`translate-SOURCE_TARGET.argosmodel` is a zip file of one directory, which
`package.install_from_path` unpacks: `metadata.json`, `README.md`,
`sentencepiece.model`, and the export of `ctranslate2.py` in `model`.

Argos Translate calls CTranslate2 with its own options, which docs/exports.md
lists. It adds neither case marks nor language tokens to a sentence, and
truncates sources at 1,024 tokens, which is beyond learned positions. Models
that need any of these are refused. Argos Translate downloads the model that
splits text into sentences, so the package has none.
"""

import json
import pathlib
import shutil
import typing

from absl import logging

from keras_transformer.commands.flags import CommandError
from keras_transformer.data.languages import name_of
from keras_transformer.storage import card
from keras_transformer.storage.workdir import WorkDirectory
from keras_transformer.text.tokenization import SHARED_FILE
from keras_transformer.translator import Translator
from savedmodel import ctranslate2
from savedmodel.formats import Export, ExportOptions

ARGOS_VERSION = "1.11"  # the version that packages were tried with


def write(export: Export) -> None:
    """Writes the package; see `formats`."""
    description = export.description
    check(export.translator, description)
    if export.translator.tokenizer.target.training_options["byte_fallback"]:
        logging.warning(
            "Argos Translate shows bytes of rare characters as text: <0xC3>"
        )
    metadata = make_metadata(export.options, description)
    name = "translate-{from_code}_{to_code}".format_map(metadata)
    package = export.directory / name
    model = package / "model"
    model.mkdir(parents=True)
    ctranslate2.write(export._replace(directory=model))
    (model / SHARED_FILE).rename(package / "sentencepiece.model")
    (package / "metadata.json").write_text(json.dumps(metadata, indent=2))
    card.write(WorkDirectory(export.options.workdir), package)
    archive = shutil.make_archive(str(package), "zip", export.directory, name)
    pathlib.Path(archive).rename(export.directory / f"{name}.argosmodel")
    shutil.rmtree(package)


def make_metadata(
    options: ExportOptions, description: dict[str, typing.Any]
) -> dict[str, str]:
    """Returns the contents of `metadata.json`."""
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


def check(translator: Translator, description: dict[str, typing.Any]) -> None:
    """Raises CommandError unless a package can hold the model."""
    tokenizer = translator.tokenizer
    one_file = "a vocabulary of one SentencePiece model"
    rules = [  # a condition, what is needed, what is there instead
        (not description["language_places"], "no tokens of languages", "some"),
        (list(tokenizer.files) == [SHARED_FILE], one_file, "one of each side"),
        (not tokenizer.source.has_case_marks, one_file, "case marks"),
        (not tokenizer.source.has_table, one_file, "an imported one"),
    ]
    for name in ("source_language", "target_language"):
        code = description[name]
        is_one = bool(code) and "," not in code
        rules.append((is_one, f"one {name}", f"{name}={code!r}"))
    for holds, needed, received in rules:
        if not holds:
            raise CommandError(
                f"format=argos needs {needed}. Received: {received}"
            )
