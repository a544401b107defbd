"""The sources of published figures: formulas, tables and pictures."""

import argparse
import dataclasses
import doctest
import importlib
import json
import pathlib
import re
import sys

import numpy as np
import pages
import pytest
import tensorflow as tf
from formulas import training_flops

import keras_transformer as kt
from keras_transformer.text.vocabulary import BOS, EOS, PAD, UNK

BENCHMARKS = pathlib.Path(__file__).parents[2] / "benchmarks"


def load(name):
    """Loads a module of the benchmarks. Some import each other by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        patch.syspath_prepend(str(BENCHMARKS / "peers"))
        return importlib.import_module(name)


def assert_same_picture(path, expected):
    """Checks a file's texts and positions. Versions of matplotlib differ."""
    found = path.read_text(encoding="utf-8")
    assert pages.texts(found) == pages.texts(expected)
    paths = [
        np.array(re.findall(r"[ML] ([\d.]+) ([\d.]+)", svg), float)
        for svg in (found, expected)
    ]
    np.testing.assert_allclose(*paths, atol=1)


def test_learning_curve_is_that_of_the_result():
    curve, results = load("learning_curve"), load("results")
    picture = curve.draw(
        results.read(curve.NAME)["tables"]["validation"],
        results.read("seeds")["tables"]["runs"],
    )
    assert_same_picture(curve.PICTURE, picture)


def test_validations_are_means_over_trainings(tmp_path):
    curve = load("learning_curve")
    for seed, values in enumerate([(1.0, 2.0), (2.0, 6.0), (3.0, 7.0)]):
        logs = tmp_path / f"{seed}/logs"
        with tf.summary.create_file_writer(str(logs)).as_default():
            for step, value in zip((10, 20), values, strict=True):
                tf.summary.scalar("validation/bleu", value, step=step)
    workdirs = [tmp_path / str(seed) for seed in range(3)]
    assert curve.read_validations(workdirs) == [
        {"step": 10, "BLEU": 2.0, "lowest": 1.0, "highest": 3.0},
        {"step": 20, "BLEU": 5.0, "lowest": 2.0, "highest": 7.0},
    ]


def test_bare_attention_is_equation_1():
    table1 = load("table1")
    x = np.random.default_rng(1).normal(size=(1, 9, 4)).astype("float32")
    layer, function = table1.self_attention(4)
    assert not layer.trainable_variables
    expected = kt.scaled_dot_product_attention(x, x, x)
    np.testing.assert_allclose(function(x), expected, rtol=1e-5)
    _, restricted = table1.restricted_attention(4)
    assert restricted(x).shape == (1, 9, 4)


def test_the_sweeps_of_table_1_let_its_term_dominate():
    """Operations are counted; their exponents are those that times can have."""
    table1 = load("table1")
    for kind in table1.KINDS:
        by_length = [kind.operations(n, kind.width) for n in kind.lengths]
        by_width = [kind.operations(kind.length, d) for d in kind.widths]
        counted = (
            table1.exponent(kind.lengths, by_length),
            table1.exponent(kind.widths, by_width),
        )
        np.testing.assert_allclose(counted, kind.exponents, atol=0.15)


def test_scaled_rows_of_table_3_differ_as_the_papers_do():
    table3 = load("table3")
    heads = [table3.scaled(kt.preset(row)) for row in table3.rows_of("a")]
    assert [config.num_heads for config in heads] == [4, 1, 2, 8, 16]
    for config in heads:
        assert config.num_heads * config.key_size == 128
        assert config.num_heads * config.value_size == 128
        assert (config.d_model, config.d_ff, config.num_layers) == (128, 512, 4)
    small = table3.scaled(kt.preset("table3_b1"))
    assert (small.num_heads, small.key_size, small.value_size) == (4, 8, 32)


def test_peers_train_the_presets():
    measurement = load("measurement")
    for name, shape in measurement.SHAPES.items():
        preset = dataclasses.asdict(kt.preset(name))
        assert shape == {field: preset[field] for field in shape}
        assert preset["source_eos"] and not preset["pre_norm"]
    ids = measurement.PAD, measurement.BOS, measurement.EOS, measurement.UNK
    assert ids == (PAD, BOS, EOS, UNK)


def test_busy_parts_do_not_count_where_others_are_quiet(capsys):
    measurement = load("measurement")

    def rates_of(*parts):
        names = "seconds", "foreign_cpus", "target_tokens"
        rows = [dict(zip(names, part, strict=True)) for part in parts]
        measurement.print_rates(rows, "numpy")
        return json.loads(capsys.readouterr().out)

    line = rates_of((2.0, 0.1, 10), (3.0, 0.3, 20), (2.0, 0.0, 30))
    assert line["target_tokens_per_second"] == 10
    assert (line["parts"], line["quiet_parts"]) == (3, 2)
    assert line["foreign_cpus"] == 0.133
    assert line["version"] == f"numpy {np.__version__}"
    line = rates_of((2.0, 0.9, 10), (3.0, 0.3, 20))
    assert line["target_tokens_per_second"] == 6


def test_the_clock_counts_the_cpus_of_others(monkeypatch):
    measurement = load("measurement")
    # Wall seconds, CPU seconds of all processes, and of this one.
    readings = iter([(10.0, 50.0, 3.0), (14.0, 57.0, 4.0), (15.0, 57.5, 5.0)])
    monkeypatch.setattr(
        measurement.Clock, "_read", staticmethod(lambda: next(readings))
    )
    clock = measurement.Clock()
    assert clock.lap() == {"seconds": 4.0, "foreign_cpus": 1.5}
    assert clock.lap() == {"seconds": 1.0, "foreign_cpus": 0.0}


def test_peers_read_the_ids_of_our_tokenizer(tmp_path, monkeypatch):
    prepare = load("prepare")
    monkeypatch.setattr(prepare.measurement, "VOCAB_SIZE", 40)
    lines = {"en": ["a dog runs", "dogs  run"], "de": ["ein Hund", "Hunde"]}
    for split in ("train", prepare.TEST_SET):
        for language, text in lines.items():
            prepare.measurement.write_lines(
                tmp_path / f"{split}.{language}", text
            )
    output = tmp_path / "data"
    flags = [f"--data={tmp_path}", f"--output={output}"]
    monkeypatch.setattr(sys, "argv", ["prepare.py", *flags])
    prepare.main()
    read = load("measurement").read_lines
    assert read(output / "train.en") == ["a dog runs", "dogs run"]
    pieces = read(output / "vocabulary.txt")
    assert len(pieces) == 40
    tokenizer = kt.Tokenizer.load(output / "tokenizer.model")
    for language, text in lines.items():
        rows = [
            [pieces.index(piece) for piece in line.split()]
            for line in read(output / f"train.pieces.{language}")
        ]
        assert [[*row, EOS] for row in rows] == tokenizer.to_ids(text)


def test_the_ceiling_counts_the_products_of_a_step(tmp_path):
    ceiling = load("ceiling")
    for language in ("en", "de"):  # 11 tokens on average, with EOS
        path = tmp_path / f"train.pieces.{language}"
        path.write_text("a " * 9 + "\n" + "a " * 11 + "\n", encoding="utf-8")
    config = kt.preset("base", vocab_size=8000)
    arguments = argparse.Namespace(data=tmp_path, size="base")
    assert ceiling.flops_per_token(arguments) == pytest.approx(
        training_flops(config, 1, batch_tokens=1, sentence_length=11)
    )


@pytest.fixture
def two_rounds(tmp_path):
    """A file of results: (round, row, system, rate or error)."""
    row, text = "train_base_fp32", "single_greedy"
    records = [
        (1, row, "ceiling", 2000.0),
        (1, row, "OpenNMT-tf", 1000.0),
        (1, row, "PyTorch", 500.0),
        (1, row, "this package", "out of memory"),
        (1, row, "this package", 1400.0),
        (2, row, "PyTorch", 700.0),
        (2, row, "OpenNMT-tf", 500.0),
        (2, row, "this package", 1600.0),
        (1, text, "this package", 60.0),
        (1, text, "this package, XLA", 160.0),
        (1, text, "this package, bfloat16", 240.03),
        (1, text, "CTranslate2", 200.0),
        (1, text, "CTranslate2 int8", 320.04),
        (2, "train_tiny_fp32", "JoeyNMT", "no such file"),
    ]
    found = [{"setting": {"machine": "some", "commit": "abc"}}]
    for number, row, system, rate in records:
        record = {"round": number, "row": row, "system": system, "time": 1.8e9}
        if isinstance(rate, str):
            found.append(record | {"error": rate})
            continue
        line = {"version": "some 1.2", "foreign_cpus": number / 100}
        line |= {"target_tokens_per_second": rate, "lines_per_second": rate}
        found.append(record | {"line": line})
    path = tmp_path / "results.jsonl"
    text = "".join(json.dumps(record) + "\n" for record in found)
    path.write_text(text + '{"round": 9, "row')  # killed while it wrote
    return path


def test_tables_have_medians_and_ratios_of_rounds(two_rounds):
    rows, tables = load("compare_rows"), load("compare_tables")
    results = tables.Results(two_rounds)
    assert results.errors == ["round 2: train_tiny_fp32: JoeyNMT: no such file"]
    found = tables.tables_of(results)
    # 1400 / 1000 and 1600 / 500; not the ratio of the medians, 2.
    assert found[rows.TRAINING.heading] == [
        {
            "training, target tokens/s": "train `base`, float32",
            "this package": 1500,
            "OpenNMT-tf": 750,
            "PyTorch": 600,
            "PyTorch, compiled": None,
            "JoeyNMT": None,
            "ceiling": 2000,
            "ratio": 2.3,
        }
    ]
    [line] = found[rows.TRANSLATION.heading]
    _, *numbers = line.values()
    assert numbers == [60.0, 160, 240, None, None, 200, 320, 0.75]
    columns = "ours", "peer", "ratio", "lowest", "highest"
    assert [[r[c] for c in columns] for r in found["ratios"]] == [
        ["this package", "OpenNMT-tf", 2.3, 1.4, 3.2],
        ["this package", "PyTorch", 2.54, 2.29, 2.8],
        ["this package", "ceiling", 0.7, 0.7, 0.7],
        ["this package, XLA", "CTranslate2", 0.8, 0.8, 0.8],
        # Rounded values are compared with rounded values only.
        ["this package, bfloat16", "CTranslate2 int8", 0.75, 0.75, 0.75],
    ]
    assert "at most 0.02." in tables.notes_of(results)


def test_each_kind_of_cpu_has_its_results(monkeypatch):
    """The best instructions count, unless they are switched off."""
    results = load("results")
    flags = {"flags": "fpu avx2 avx512f avx512_vnni", "model name": "X"}
    monkeypatch.setattr(results, "cpu_fields", lambda: flags)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    assert results.of_this_cpu("peers") == "peers_avx512_vnni"
    assert results.cpu_name() == "X (avx2, avx512f, avx512_vnni)"
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "avx2")
    assert results.of_this_cpu("peers") == "peers_avx2"
    assert results.cpu_name().endswith(", limited to AVX2")


def test_the_comparison_in_the_docs_is_the_recorded_one():
    """Nothing is checked before the first recording."""
    results, tables = load("results"), load("compare_tables")
    docs = BENCHMARKS.parent / "docs"
    text = (docs / "benchmarks.md").read_text(encoding="utf-8")
    for path in results.FOLDER.glob(f"{tables.NAME}_*.json"):
        found = results.read(path.stem)["tables"]
        for table in load("compare_rows").TABLES:
            if table.heading in found:
                assert results.markdown(found[table.heading]) in text
        expected = tables.draw(found[tables.RATIOS])
        if path.stem == "peers_avx512_bf16":
            assert_same_picture(docs / "benchmarks.svg", expected)


def test_students_are_compared_with_their_teacher():
    """Means of BLEU, medians of speeds, ratios seed by seed."""
    students = load("students")
    ours, others = students.SYSTEMS[:2]
    found = {
        ("teacher", 4, ours): [(30.0, 100.0), (33.0, 300.0), (30.0, 200.0)],
        ("teacher", 4, others): [(31.0, 200.0)] * 3,
        ("student", 1, ours): [(28.0, 400.0), (29.0, 600.0), (27.0, 1000.0)],
    }
    arguments = argparse.Namespace(models=[("teacher", "a"), ("student", "b")])
    rows = students.table_of(found, arguments)
    assert [list(row.values()) for row in rows] == [
        ["teacher", "beam 4", ours, 31.0, 30.0, 33.0, 200, 1.0],
        ["teacher", "beam 4", others, 31.0, 31.0, 31.0, 200, 1.0],
        ["student", "greedy", ours, 28.0, 27.0, 29.0, 600, 4.0],
    ]


def test_pages_are_filled_with_recorded_tables(tmp_path):
    results = load("results")
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- stopping: rules -->\n\n| b |\n|---|\n\nc\n")
    table = results.markdown(results.read("stopping")["tables"]["rules"])
    for _ in range(2):
        results.fill(page)
        expected = f"a\n<!-- stopping: rules -->\n\n{table}\nc\n"
        assert page.read_text() == expected


@pytest.mark.parametrize(
    "name",
    sorted(
        path.stem
        for path in BENCHMARKS.glob("*.py")
        if ">>>" in path.read_text(encoding="utf-8")
    ),
)
def test_examples_of_docstrings(name):
    found = doctest.testmod(load(name))
    assert found.attempted and not found.failed


# Scripts of results that are not measured again; docs/benchmarks.md names them.
REMOVED = {"growth", "products", "restricted_attention"}


def test_the_page_of_results_is_that_of_the_files():
    results = load("results")
    page = (results.FOLDER / results.PAGE).read_text(encoding="utf-8")
    assert page == results.page()
    for path in results.FOLDER.glob("*.json"):
        script = re.match(
            r"python (\S+\.py) ", results.read(path.stem)["command"]
        )
        if script and pathlib.Path(script[1]).stem not in REMOVED:
            assert (results.ROOT / script[1]).exists(), path


@pytest.mark.parametrize(
    "name", ["restricted_attention", "restricted_attention_step"]
)
def test_tables_of_the_docs_have_the_recorded_numbers(name):
    results = load("results")
    rows = results.read(name)["tables"]["lengths"]
    text = (BENCHMARKS.parent / "docs/positions.md").read_text("utf-8")
    shown = [
        [results.value(cell.strip()) for cell in line.strip("|").split("|")]
        for line in text.splitlines()
    ]
    for row in rows:
        cells = ["-" if value is None else value for value in row.values()]
        assert cells in shown, cells
