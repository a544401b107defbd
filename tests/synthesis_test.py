"""Synthetic pairs: the translations of `trainers.translate`, filtered."""

import gzip
import io
import json
import math
import random
import shlex
import sys

import exports
import numpy as np
import pytest
import yaml
from commands import fails, write_pairs

from keras_transformer.data.pairs import read_lines
from keras_transformer.tokenization import Tokenizer
from trainers import synthesize, translate, wmt
from trainers.synthesis import steps
from trainers.synthesis.pairs import FILLER, PairFilter, add_noise
from trainers.synthesis.plan import Filters, read_plan

GERMAN = {german: english for english, german in exports.WORDS.items()}


@pytest.fixture
def originals(tmp_path):
    """Flags of an original corpus: German to English, word for word."""
    pairs = [pair[::-1] for pair in exports.make_pairs(60)]
    for language, side in (("de", 0), ("en", 1)):
        lines = "".join(pair[side] + "\n" for pair in pairs)
        (tmp_path / f"train.{language}").write_text(lines, encoding="utf-8")
    return pairs


@pytest.fixture
def make_plan(tmp_path, originals):
    """Function that writes a plan: one step, whose fields it takes."""
    english = [" ".join(pair) for pair in exports.make_pairs(30)]
    english = [pair[0] for pair in exports.make_pairs(90)[60:]]
    lines = [*english[:5], "", *english]
    (tmp_path / "mono.en").write_text("\n".join(lines) + "\n")

    def make(filters=None, **fields):
        step = {
            "name": "back",
            "backward": [str(exports.workdir())],
            "text": [str(tmp_path / "mono.en")],
            **fields,
        }
        plan = {
            "source_language": "de",
            "target_language": "en",
            "train_files": [str(tmp_path / "train")],
            "output": str(tmp_path / "out"),
            "filters": {"clean": False, **(filters or {})},
            "steps": [step],
        }
        path = tmp_path / "plan.yaml"
        path.write_text(yaml.safe_dump(plan), encoding="utf-8")
        return str(path)

    return make


def run(plan):
    synthesize.main([f"--config={plan}"])


def lines_of(path):
    return gzip.open(path, "rt", encoding="utf-8").read().split("\n")[:-1]


def test_it(make_plan, tmp_path, capsys):
    run(make_plan())
    print(capsys.readouterr().out)
    print(lines_of(tmp_path / "out/back.de.gz")[:5])
    print((tmp_path / "out/report.json").read_text())
    assert 0
