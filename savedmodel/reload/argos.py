"""Runs a package of Argos Translate."""

import pathlib
import shutil
import tempfile

from .ctranslate2 import load as load_model
from .sentences import Translate


def load(directory: pathlib.Path, description: dict) -> Translate:
    """Unpacks a package as Argos Translate does, and loads its model."""
    [package] = directory.glob("*.argosmodel")
    with tempfile.TemporaryDirectory() as folder:
        shutil.unpack_archive(package, folder, "zip")
        [root] = pathlib.Path(folder).iterdir()
        model = root / "model"
        (root / "sentencepiece.model").rename(model / "tokenizer.model")
        return load_model(model, description)
