"""What the benchmarks read of the peers, and the picture that they draw."""

import importlib.util
import json
import pathlib
import re

import numpy as np
import pytest

BENCHMARKS = pathlib.Path(__file__).parents[1] / "benchmarks"


def load(name):
    spec = importlib.util.spec_from_file_location(
        f"benchmarks_{name}", BENCHMARKS / f"{name}.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def peers():
    return load("peers")


def test_special_ids_become_ours(peers):
    # Theirs: unknown 0, padding 1, begin 2, end 3; ours: 3, 0, 1, 2.
    np.testing.assert_array_equal(
        peers.our_ids([0, 1, 2, 3, 4, 7999]), [3, 0, 1, 2, 4, 7999, 2]
    )


def test_corpus_keeps_pairs_and_ends_rows(peers, tmp_path):
    path = tmp_path / "train.ids.json"
    path.write_text(json.dumps([[[5, 0], [8]], [[9], [7, 6, 4]], [[4], [4]]]))
    corpus = peers.read_corpus(path, limit=2)
    assert len(corpus) == 2
    np.testing.assert_array_equal(corpus.source.ids, [5, 3, 2, 9, 2])
    np.testing.assert_array_equal(corpus.target.ids, [8, 2, 7, 6, 4, 2])
    np.testing.assert_array_equal(corpus.longer_side, [3, 4])


def test_a_missing_folder_is_named(peers, tmp_path):
    with pytest.raises(FileNotFoundError, match="common.py"):
        peers.load_reporter(tmp_path)


def test_learning_curve_is_that_of_the_notes():
    curve = load("learning_curve")
    picture = curve.PICTURE.read_text(encoding="utf-8")
    assert picture == curve.picture_of(curve.NOTES.read_text(encoding="utf-8"))


def test_learning_curve_goes_through_the_points_of_the_tables():
    curve = load("learning_curve")
    notes = "\n".join(
        [
            curve.VALIDATION_HEAD,
            "|---|---|---|---|---|---|",
            "| 1,000 | 1.9 | 0 | 4.049 | 25.7 | 45 |",
            "| 2,000 | 3.9 | 125 | 3.340 | 11.0 | 0 |",
            "",
            curve.TEST_HEAD,
            "|---|---|---|---|---|---|",
            "| 125 | 2,000 | 5 | **45** | 38.22 | 61.75 |",
        ]
    )
    picture = curve.picture_of(notes)
    left, right = curve.LEFT, curve.WIDTH - curve.RIGHT
    top, bottom = curve.TOP, curve.HEIGHT - curve.BOTTOM
    [points] = re.findall(r'points="([^"]*)"', picture)
    points = [tuple(map(float, p.split(","))) for p in points.split()]
    assert points == [(left, top), (right, bottom)]
    assert f'cx="{right:.1f}" cy="{top:.1f}"' in picture
