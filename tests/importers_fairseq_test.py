"""Import of fairseq's models: logits, translations, what is refused."""

import pickle
import shutil

import numpy as np
import pytest
from original_models import FIXTURES, Original, check_logits, translate

import keras_transformer as kt
from trainers import import_model
from trainers.importers import fairseq, find_importer
from trainers.importers.torch_pickle import read_torch

MODELS = FIXTURES / "fairseq"
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]


def original_of(name):
    folder = MODELS / name
    pieces = []
    for language in ("en", "de"):
        lines = (folder / f"dict.{language}.txt").read_text("utf-8")
        words = [line.rpartition(" ")[0] for line in lines.splitlines()]
        pieces.append([*SPECIAL, *words])
    return Original(folder, (pieces[0], pieces[1]))


@pytest.mark.parametrize("name", ["iwslt", "t2t", "learned"])
def test_models_have_the_logits_of_fairseq(name):
    imported = fairseq.read(MODELS / name)
    languages = imported.source_language, imported.target_language
    assert languages == ("en", "de")
    assert imported.decoding.beam_size == 5
    check_logits(original_of(name), imported)


def test_beam_search_is_that_of_fairseq():
    original = original_of("t2t")
    imported = fairseq.read(original.folder)
    for name, alpha in (("beam", 1.0), ("beam_bare", 0.0)):
        found = translate(
            imported,
            original.expected["sources"],
            length_penalty=alpha,
            max_output_length=36,
            beam_size=4,
        )
        best = original.expected[name]
        assert [tokens for tokens, _ in found] == [b["tokens"] for b in best]
        assert len({b["text"] for b in best}) > 25
        np.testing.assert_allclose(
            [score for _, score in found],
            [b["score"] for b in best],
            atol=1e-4,
        )


def test_command_translates_a_model(tmp_path):
    original, workdir = original_of("iwslt"), tmp_path / "run"
    import_model.main([f"--source={original.folder}", f"--workdir={workdir}"])
    translator = kt.Translator.load(workdir, beam_size=1, max_output_length=36)
    expected = original.expected
    found = translator.translate(expected["sources"])
    assert found == [best["text"] for best in expected["greedy"]]
