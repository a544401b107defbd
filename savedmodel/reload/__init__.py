"""Runs an export without this package: a script for a separate process.

    python -I savedmodel/reload DIR [BEAM] < sentences.json > found.json

DIR is the --output of `kt-export`. This folder can be copied and renamed: it
imports the packages that the format needs, and nothing else from this
repository. A format needs `sentences`, `signs`, a file of its own with a
function `load` and, except for huggingface, `tokenizer` and `case_marks`. argos
also needs `ctranslate2`.

Input is a JSON list of sentences: strings, or objects with `text` and, for a
model of several languages, `source_language` and `target_language`. Output is a
JSON object with `translations`, a list of objects (ids, text, score, and
whether the source was truncated), and `computed_in`, the type that CTranslate2
computes in (null for other formats). BEAM is the beam size, for formats where
the caller chooses it: any size with ctranslate2; 1 or the export's with tflite.
"""

import importlib
import os
import pathlib

from .sentences import Sentence, Translate, text_of

DESCRIPTION = "export.json"  # beside each model: its format and its limits
BATCH_SIZE = 32  # sentences of about the same length translated together


def load(directory: pathlib.Path, description: dict) -> Translate:
    """Loads an export with the module named after its format.

    `description` is the content of the export's `export.json`.
    """
    module = importlib.import_module("." + description["format"], __name__)
    return module.load(directory, description)


def translate_all(
    translate: Translate, sentences: list[Sentence]
) -> list[dict]:
    """Translates sentences in batches of about the same length.

    `translate` is the result of `load`.
    """
    by_length = sorted(
        range(len(sentences)), key=lambda i: len(text_of(sentences[i]))
    )
    results: dict[int, dict] = {}
    for start in range(0, len(sentences), BATCH_SIZE):
        batch = by_length[start : start + BATCH_SIZE]
        translations = translate([sentences[i] for i in batch])
        results.update(zip(batch, translations, strict=True))
    return [results[i] for i in range(len(sentences))]


def find_export(output: str | os.PathLike) -> pathlib.Path:
    """Finds the directory of an export. `output` may be its parent.

    A SavedModel's output has a directory for each version. The highest version
    is used, as in TensorFlow Serving. Raises ValueError if there is no export.
    """
    output = pathlib.Path(output)
    if (output / DESCRIPTION).is_file():
        return output
    versions = [
        path.parent
        for path in output.glob(f"*/{DESCRIPTION}")
        if path.parent.name.isdecimal()
    ]
    if not versions:
        raise ValueError(
            f"expected an export: a directory with {DESCRIPTION}, or with"
            f" versions that have it. Received: {output}"
        )
    return max(versions, key=lambda path: int(path.name))
