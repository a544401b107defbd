"""The modules that import TensorFlow, and those that work without it."""

import ast
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
# TensorFlow's own engine, readers of its files, and data sets.
IN_TRAINERS = {"run/strategies.py", "run/tensorflow_engine.py"}
# Modules of a run, and of what comes before and after it.
MODULES = """
trainers.run.session trainers.run.loop trainers.run.experiment
trainers.run.checkpoints trainers.run.progress trainers.run.validation
trainers.run.corpora trainers.run.optimization trainers.run.inheritance
trainers.run.freezing trainers.run.budget trainers.run.engine
trainers.run.vocabularies
keras_transformer.translation.metrics keras_transformer.storage.workdir
trainers.scoring.comparison trainers.scoring.test_sets trainers.scoring.tuning
trainers.preparing.preparation trainers.parsing.metric
trainers.importing.workdir trainers.figures.training
keras_transformer.translator keras_transformer.data.batches
""".split()
PROGRAM = """
import importlib, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tensorflow", "tensorflow_text"):
            raise ModuleNotFoundError(f"blocked: {name}")

sys.meta_path.insert(0, Blocker())
for module in sys.argv[1:]:
    importlib.import_module(module)
"""
# A run's own data and its batches, its records and its checkpoints' progress.
USE = """
import numpy as np
from keras_transformer.data.batches import make_batches
from keras_transformer.data.corpus import encode_corpus
from keras_transformer.text.tokenization import Tokenizer
from trainers.run.progress import Progress, Reporter

pairs = [("a rose is red", "eine Rose")] * 9
tokenizer = Tokenizer.train([line for pair in pairs for line in pair], 29)
batches = make_batches(encode_corpus(pairs, tokenizer, 50), 100, seed=1)
shapes = [labels.shape for _, labels in batches.arrays(epochs=1)]
reporter = Reporter("logs", 0, 10, is_chief=True)
reporter.record(3, "train", {"loss": 2.5})
reporter.close()
print(sum(rows for rows, _ in shapes), Progress(step=4).values()["step"])
"""


def imports_tensorflow(path, everywhere):
    """Tells whether a file imports TensorFlow, at its top or in functions."""
    tree = ast.parse(path.read_text("utf-8"))
    names = []
    for node in ast.walk(tree) if everywhere else tree.body:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module)
    return any(n.partition(".")[0].startswith("tensorflow") for n in names)


def test_which_trainers_import_tensorflow():
    folder = ROOT / "trainers"
    found = {
        str(path.relative_to(folder))
        for path in folder.rglob("*.py")
        if imports_tensorflow(path, everywhere=True)
    }
    assert found == IN_TRAINERS


def test_a_run_needs_no_tensorflow_but_its_engine(tmp_path):
    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-c", *arguments],
            env={**os.environ, "KERAS_BACKEND": "jax"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )

    done = run(PROGRAM + USE, *MODULES)
    assert done.returncode == 0, done.stderr
    rows, step = done.stdout.split()
    assert (int(rows) >= 9, step) == (True, "4")
    assert list((tmp_path / "logs").iterdir())
    refused = run(PROGRAM, "trainers.run.tensorflow_engine")
    assert "blocked: tensorflow" in refused.stderr
