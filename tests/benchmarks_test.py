"""What the benchmarks read, compute and draw; times are not tested."""

import argparse
import importlib.util
import json
import pathlib
import re

import numpy as np
import pytest

import keras_transformer as kt

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


# Table 1


@pytest.fixture(scope="module")
def table1():
    return load("table1")


def test_the_loops_of_layers_are_counted(table1):
    for kind in table1.KINDS:
        if kind.sequential == "n":
            assert table1.count_iterations(kind.make, 5, 8) == 5
        elif kind.batch == 1 and "convolutional" not in kind.name:
            assert table1.count_iterations(kind.make, 5, 8) == 0


def test_bare_attention_is_equation_1(table1):
    x = np.random.default_rng(1).normal(size=(1, 9, 4)).astype("float32")
    layer, function = table1.self_attention(4)
    assert not layer.trainable_variables
    expected = kt.scaled_dot_product_attention(x, x, x)
    np.testing.assert_allclose(function(x), expected, rtol=1e-5)
    _, restricted = table1.restricted_attention(4)
    assert restricted(x).shape == (1, 9, 4)


def test_the_sweeps_of_table_1_let_its_term_dominate(table1):
    """Of the operations counted, and so of the exponents that they allow."""
    for kind in table1.KINDS:
        counted = (
            table1.exponent(
                kind.lengths,
                [kind.operations(n, kind.width) for n in kind.lengths],
            ),
            table1.exponent(
                kind.widths,
                [kind.operations(kind.length, d) for d in kind.widths],
            ),
        )
        np.testing.assert_allclose(counted, kind.exponents, atol=0.15)


def test_the_picture_of_table_1_has_the_points_and_the_slopes(table1):
    def sweep(sizes, theory):
        seconds = [1e-3 * (size / sizes[0]) ** theory for size in sizes]
        return {
            "sizes": sizes,
            "fixed": 64,
            "seconds": seconds,
            "theory": theory,
            "exponent": table1.exponent(sizes, seconds),
            "exponent_of_operations": theory,
        }

    layer = {"name": "a layer", "complexity": "n^2 d", "sequential": "1"}
    layer |= {"n": sweep([8, 32], 2), "d": sweep([8, 80], 1), "loops": [0, 0]}
    document = {"machine": "one & only", "layers": [layer]}
    picture = table1.draw(document)
    assert "One thread of one &amp; only" in picture
    assert "measured n^2.00 (theory 2) at d = 64, d^1.00" in picture
    points = re.findall(r'points="([^"]*)"', picture)
    assert len(points) == 2
    for (left, right), joined in zip(
        table1.PANELS.values(), points, strict=True
    ):
        first, last = (tuple(map(float, p.split(","))) for p in joined.split())
        assert (first[0], last[0]) == (left + 12, right - 12)
        assert first[1] == table1.BOTTOM  # 1e-3, the lowest power
        x1, y1, x2, y2 = re.findall(
            r'x1="(\S+)" y1="(\S+)" x2="(\S+)" y2="(\S+)"[^>]*dasharray',
            picture,
        )[points.index(joined)]
        # The times follow the theory, so its line is theirs.
        assert (float(x1), float(y1)) == first
        assert (float(x2), float(y2)) == last
    line = table1.table(document).splitlines()[-1]
    assert "| 2 | 2.00 | 8 to 32, 64 | 1 | 1.00 | 8 to 80, 64 | 1 |" in line


# Table 3


@pytest.fixture(scope="module")
def table3():
    return load("table3")


def test_the_rows_of_a_group(table3):
    heads = [f"table3_{row}" for row in ("base", "a1", "a2", "a3", "a4")]
    assert table3.rows_of("a") == heads
    assert table3.rows_of("b") == ["table3_base", "table3_b1", "table3_b2"]
    assert table3.rows_of("e") == ["table3_base", "table3_e"]


def test_scaled_rows_differ_as_the_papers_do(table3):
    heads = [table3.scaled(kt.preset(row)) for row in table3.rows_of("a")]
    assert [config.num_heads for config in heads] == [4, 1, 2, 8, 16]
    for config in heads:
        assert config.num_heads * config.key_size == 128
        assert config.num_heads * config.value_size == 128
        assert (config.d_model, config.d_ff, config.num_layers) == (128, 512, 4)
    small = table3.scaled(kt.preset("table3_b1"))
    assert (small.num_heads, small.key_size, small.value_size) == (4, 8, 32)


def test_results_of_table_3_are_kept_and_shown(table3, tmp_path):
    arguments = argparse.Namespace(
        data=pathlib.Path("DATA"), train_steps=7, flags=["--vocab_size=300"]
    )
    runs = [
        {
            "row": row,
            "configuration": table3.scaled_configuration(row, 3, arguments),
        }
        for row in ("table3_base", "table3_d4")
    ]
    smoothed = runs[1]["configuration"]
    assert smoothed.training.label_smoothing == 0.2
    assert smoothed.training.seed == 3 and smoothed.model.vocab_size == 300
    assert smoothed.data.train_files == ("DATA/train",)
    figures = {"parameters": 1234, "perplexity": 8.766, "valid_bleu": 30.06}
    results = [
        {**table3.as_json(run), **figures, "test_bleu": bleu}
        for run, bleu in zip(runs, (29.0, 31.0), strict=True)
    ]
    path = tmp_path / "table3_d.json"
    assert table3.read_result(path, runs[0]) is None
    path.write_text(json.dumps(results))
    for run, result in zip(runs, results, strict=True):
        assert table3.read_result(path, run) == result
    other = {**runs[0], "row": "table3_d1"}
    assert table3.read_result(path, other) is None
    last = table3.table("d", results).splitlines()[-1]
    assert last.startswith("| D4 | 4 | 128 | 512 | 4 | 32 | 32 | 1,234 | 1 |")
    assert last.endswith("| 8.77 | 30.1 | 31.0 | 8, 64, 64 | 5.47 | 25.7 |")
