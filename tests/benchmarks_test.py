"""What the benchmarks read, compute and draw; times are not tested."""

import argparse
import asyncio
import dataclasses
import doctest
import importlib
import json
import pathlib
import re
import subprocess
import sys
import types

import exports
import keras
import numpy as np
import pages
import pytest
from matplotlib.colors import to_hex

import keras_transformer as kt
from keras_transformer.config import DecodingConfig
from trainers.experiments.formulas import training_flops

BENCHMARKS = pathlib.Path(__file__).parents[1] / "benchmarks"


def load(name):
    """A module of the benchmarks; some import each other by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        return importlib.import_module(name)


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


def figure_of(module, monkeypatch, *arguments):
    """The matplotlib figure that a script draws."""
    figures = []
    monkeypatch.setattr(
        module, "transparent_svg", lambda figure, ink: figures.append(figure)
    )
    module.draw(*arguments)
    return figures[0]


def points_of(line):
    """The points of a line, as tuples."""
    return list(map(tuple, line.get_xydata().tolist()))


def assert_same_picture(path, expected):
    """Checks a file's text and places; versions of matplotlib may differ."""
    found = path.read_text(encoding="utf-8")
    assert pages.texts(found) == pages.texts(expected)
    paths = [
        np.array(re.findall(r"[ML] ([\d.]+) ([\d.]+)", svg), float)
        for svg in (found, expected)
    ]
    np.testing.assert_allclose(*paths, atol=1)


def test_learning_curve_is_that_of_the_result():
    curve = load("learning_curve")
    picture = curve.draw(load("results").read(curve.NAME)["tables"])
    assert_same_picture(curve.PICTURE, picture)


def test_learning_curve_goes_through_the_points_of_the_tables(monkeypatch):
    curve = load("learning_curve")
    tables = {
        "training": [
            {"minutes": 0, "validation BLEU": 45},
            {"minutes": curve.MAX_MINUTES, "validation BLEU": 0},
        ],
        "test": [{"minutes": curve.MAX_MINUTES, "BLEU": 45}],
    }
    [axes] = figure_of(curve, monkeypatch, tables).axes
    validation, test, published = axes.lines
    assert points_of(validation) == [(0, 45), (curve.MAX_MINUTES, 0)]
    assert points_of(test) == [(curve.MAX_MINUTES, 45)]
    assert set(published.get_ydata()) == {41.02}


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


def test_the_picture_of_table_1_has_the_points_and_the_slopes(
    table1, monkeypatch
):
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
    layer |= {"batch": 3}
    layer |= {"n": sweep([8, 32], 2), "d": sweep([8, 80], 1), "loops": [0, 0]}
    document = {"machine": "one & only", "layers": [layer]}
    picture = table1.draw(document)
    assert "One thread of one &amp; only" in picture
    measured = "a layer, 3 rows: measured n^2.00 (theory 2) at d = 64, d^1.00"
    assert measured in picture
    figure = figure_of(table1, monkeypatch, document)
    for axes, sizes, seconds in zip(
        figure.axes, ([8, 32], [8, 80]), (0.016, 0.01), strict=True
    ):
        assert axes.get_xscale() == axes.get_yscale() == "log"
        # The times follow the theory, so its line is theirs.
        for line in axes.lines:
            expected = [(sizes[0], 1e-3), (sizes[1], seconds)]
            np.testing.assert_allclose(points_of(line), expected)
        styles = [line.get_linestyle() for line in axes.lines]
        assert styles == ["-", "--"]
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


# The comparison with the peers


@pytest.fixture(scope="module")
def comparison():
    """The modules of `compare.py`."""
    names = "compare", "compare_rows", "compare_results"
    return [load(name) for name in names]


def lines_of_peers(rates):
    """Lines of a training script: {variant: (all steps, quiet steps)}."""
    return [
        {
            "kind": "train_throughput",
            "variant": variant,
            "trg_tok_s": rate,
            "trg_tok_s_quiet": quiet,
            "gflop_s": rate / 10,
            "gflop_s_quiet": None,
        }
        for variant, (rate, quiet) in rates.items()
    ]


def write_results(path, records):
    """A file of results with {(round, command): lines or an error}."""
    machine = {"cpu": "one & only", "cores": 2, "commit": "abc"}
    machine["versions"] = {"python": "3.11", "ours": {"tensorflow": "2.21"}}
    found = [{"machine": machine}]
    for (number, command), lines in records.items():
        kind = "lines" if isinstance(lines, list) else "error"
        record = {"round": number, "command": command, kind: lines}
        found.append(record | {"time": 1.8e9, "foreign_cpus": 0.01 * number})
    text = "".join(json.dumps(record) + "\n" for record in found)
    path.write_text(text + '{"round": 9, "comm')  # killed while it wrote


@pytest.fixture
def two_rounds(tmp_path):
    path = tmp_path / "results.jsonl"
    write_results(
        path,
        {
            (1, "ceiling"): [
                {"kind": "ceiling", "type": "fp32", "gflop_s_median": 200.0},
                {"kind": "ceiling", "type": "bf16", "gflop_s_median": 400.0},
            ],
            (1, "base onmt"): lines_of_peers({"fp32": (900.0, 1000.0)}),
            (1, "base torch"): lines_of_peers(
                {"eager-bf16": (990.0, None), "eager-fp32": (500.0, None)}
            ),
            (1, "base fp32"): lines_of_peers({"fp32": (1400.0, None)}),
            (1, "base bf16"): "out of memory",
            (2, "base onmt"): lines_of_peers({"fp32": (500.0, None)}),
            (2, "base torch"): lines_of_peers(
                {"eager-fp32": (700.0, None), "eager-bf16": (9.0, None)}
            ),
            (2, "base fp32"): lines_of_peers({"fp32": (2000.0, 1600.0)}),
            (1, "base fp32 xla"): [],
        },
    )
    return path


def test_a_row_is_ours_beside_the_fastest_peer(comparison, two_rounds):
    _, rows, results = comparison
    row = rows.ROWS["train_base_fp32"]
    found = results.Results(two_rounds)
    compared = results.compare(row, found)
    # Medians: OpenNMT-tf (1000 + 500) / 2, PyTorch (500 + 700) / 2; the rates
    # of quiet steps count where there are any.
    assert compared.peer[0].label == "OpenNMT-tf"
    assert compared.peer[1] == {1: 1000.0, 2: 500.0}
    assert compared.ratios == [1400 / 1000, 1600 / 500]
    assert compared.ratio == pytest.approx(2.3)
    assert compared.shares == [140.0 / 200.0]  # the second has no ceiling
    assert results.is_met(row, compared) is False  # 70 % of 75 %
    reached = dataclasses.replace(row, share=0.7)
    assert results.is_met(reached, compared) is True
    aimless = dataclasses.replace(row, goal=None)
    assert results.is_met(aimless, compared) is None


def test_what_is_clearly_slower_is_measured_once(comparison, tmp_path):
    _, rows, results = comparison
    path = tmp_path / "results.jsonl"
    rates = {
        "tiny onmt": {"fp32": 1000.0},
        "tiny joey": {"fp32": 799.0},
        "tiny torch": {"eager-fp32": 100.0, "eager-bf16": 500.0},
        "tiny torch compiled": {"compile-fp32": 100.0, "compile-bf16": 399.0},
        "tiny fp32": {"fp32": 2000.0},
        "tiny fp32 xla": {"fp32-xla": 1601.0},
    }
    write_results(
        path,
        {
            (1, command): lines_of_peers(
                {variant: (rate, None) for variant, rate in found.items()}
            )
            for command, found in rates.items()
        },
    )
    found = results.Results(path)
    beaten = {
        name
        for name in rows.COMMANDS
        if results.is_beaten(name, rows.TRAINING_ROWS, found)
    }
    # Eager PyTorch is slow in float32, and the fastest in bf16; XLA has more
    # than 0.8 of the fastest, and what was not measured is not beaten.
    assert beaten == {"tiny joey", "tiny torch compiled"}


def test_rounds_leave_out_what_is_clearly_slower(
    comparison, tmp_path, monkeypatch
):
    compare, rows, results = comparison
    monkeypatch.setattr(compare, "describe_machine", lambda places: {"cpu": ""})
    rates = {
        rows.COMMANDS["base fp32"].argv: {"fp32": 2000.0},
        rows.COMMANDS["base onmt"].argv: {"fp32": 1000.0},
        rows.COMMANDS["base torch"].argv: {"eager-fp32": 700.0},
    }
    monkeypatch.setattr(
        compare,
        "run",
        lambda argv, places: {
            "lines": lines_of_peers(
                {name: (rate, None) for name, rate in rates[argv].items()}
            )
            if argv in rates
            else [],
            "foreign_cpus": 0.0,
            "time": 0,
        },
    )
    places = dict.fromkeys("peers environments data workdir".split(), tmp_path)
    arguments = argparse.Namespace(
        results=tmp_path / "results.jsonl", rounds=2, **places
    )
    compare.measure(compare.choose("train_base_fp32"), arguments)
    found = results.Results(arguments.results).lines
    both = {name for number, name in found if number == 2}
    assert both == {"ceiling", "base onmt", "base fp32"}
    assert {name for number, name in found if number == 1} - both == {
        "base torch"
    }


def test_results_belong_to_the_commit_of_the_code(tmp_path, monkeypatch):
    results = load("results")
    monkeypatch.setattr(results, "ROOT", tmp_path)

    def git(*words):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.check_call(["git", *identity, *words], cwd=tmp_path)

    git("init", "-q")
    for name in "keras_transformer trainers savedmodel benchmarks".split():
        (tmp_path / name).mkdir()
        (tmp_path / name / "code.py").write_text("1")
    git("add", ".")
    git("commit", "-q", "-m", "code")
    code = results.code_commit()
    (tmp_path / "README.md").write_text("words")
    (tmp_path / "benchmarks/results").mkdir()
    (tmp_path / "benchmarks/results/a.json").write_text("{}")
    assert results.code_commit() == code
    git("add", ".")
    git("commit", "-q", "-m", "words")
    assert results.code_commit() == code
    (tmp_path / "benchmarks/code.py").write_text("2")
    assert results.code_commit() == code + "-dirty"


def test_the_table_of_results(comparison, two_rounds):
    _, rows, results = comparison
    shown = {
        name: rows.ROWS[name] for name in ("train_base_fp32", "train_base_bf16")
    }
    found = results.Results(two_rounds)
    numbers = results.compare_all(shown, found)
    *_, first, second = results.table(shown, numbers).rstrip().splitlines()
    assert first == (
        "| train `base` fp32, target tokens/s | 1,500 (plain)"
        " | 750 (OpenNMT-tf) | 2.30, 70 % of the ceiling | 1.40 to 3.20"
        " | 1.35, 75 % of the ceiling |"
    )
    assert second == (
        "| train `base` bf16, target tokens/s | not measured |  |  | "
        " | 1.7, 68 % of the ceiling |"
    )
    row = shown["train_base_fp32"]
    shown = {"train_base_fp32": dataclasses.replace(row, share=0.7)}
    assert "| **2.30**, 70 % of" in results.table(shown, numbers)
    assert found.errors == ["round 1: base bf16: out of memory"]
    assert "2 cores of one & only; commit abc; 2 rounds" in results.describe(
        found
    )
    every = load("results").markdown(results.systems_of(shown, found))
    assert "| PyTorch | 600 | 500 | 700 | 2 | 0.02 |" in every
    assert "| ceiling fp32, GFLOP/s | matrix product | 200 |" in every


def test_the_picture_of_results(comparison, two_rounds, monkeypatch):
    _, rows, results = comparison
    found = results.Results(two_rounds)
    numbers = results.compare_all(rows.ROWS, found)
    [axes] = figure_of(results, monkeypatch, rows.ROWS, numbers).axes
    [bar] = axes.patches
    assert bar.get_width() == pytest.approx(2.3)
    assert to_hex(bar.get_facecolor()) == results.MISSED
    whisker, goal = (lines.get_segments()[0] for lines in axes.collections)
    np.testing.assert_allclose(whisker, [(1.4, 0), (3.2, 0)])
    assert goal[:, 0].tolist() == [1.35, 1.35]
    texts = [text.get_text() for text in axes.texts]
    assert texts == ["2.30", "1.35", "ratio", "goal"]
    [name] = axes.get_yticklabels()
    assert name.get_text() == "train base fp32"


def test_results_go_on_where_they_were(comparison, tmp_path, monkeypatch):
    compare, rows, results = comparison
    path = tmp_path / "results.jsonl"
    machine = {"cpu": "this", "versions": {}}
    monkeypatch.setattr(compare, "describe_machine", lambda places: machine)
    ran = []

    def run(argv, places):
        ran.append(argv)
        if len(ran) == 3:
            raise KeyboardInterrupt
        return {"lines": [], "foreign_cpus": 0.0, "time": 0}

    monkeypatch.setattr(compare, "run", run)
    arguments = argparse.Namespace(
        results=path,
        rounds=2,
        peers=tmp_path,
        environments=tmp_path,
        data=tmp_path,
        workdir=tmp_path,
    )
    chosen = compare.choose("train_base_bf16")
    names = compare.commands_of(chosen)
    assert names == ["ceiling", "base torch", "base bf16"]
    with pytest.raises(KeyboardInterrupt):
        compare.measure(chosen, arguments)
    compare.measure(chosen, arguments)
    expected = [rows.COMMANDS[name].argv for name in names]
    assert ran == [*expected, *expected[2:], *expected]
    machine = {"cpu": "another", "versions": {}}
    with pytest.raises(SystemExit, match="use another file"):
        compare.measure(chosen, arguments)
    with pytest.raises(SystemExit, match="expected names of rows"):
        compare.choose("train,other")


@pytest.fixture
def accelerator(tmp_path, monkeypatch):
    """The module; its stages run scripts in a folder."""
    module = load("accelerator")
    names = ("pipeline", "training", "torch")
    stages = {name: (str(tmp_path / f"{name}.py"), 1) for name in names}
    monkeypatch.setattr(module, "STAGES", stages)
    return module


def test_rows_of_a_stage_that_fails_are_kept(
    accelerator, tmp_path, monkeypatch
):
    path = tmp_path / "results.json"
    row = "print('device: X', '[\"speed of NAME\", {\"ms\": 1}]', sep='\\n')\n"
    (tmp_path / "pipeline.py").write_text(row.replace("NAME", "batches"))
    (tmp_path / "training.py").write_text(
        row.replace("NAME", "steps") + "raise SystemExit('no memory')"
    )
    (tmp_path / "torch.py").write_text("import time\ntime.sleep(600)")
    flags = ["accelerator.py", f"--results={path}", "--stages"]

    monkeypatch.setattr(sys, "argv", [*flags, "training", "pipeline"])
    with pytest.raises(SystemExit, match="not complete: training"):
        accelerator.main()
    monkeypatch.setattr(sys, "argv", [*flags, "torch", "--minutes=0"])
    with pytest.raises(SystemExit, match="not complete: training, torch"):
        accelerator.main()

    tables = json.loads(path.read_text())["tables"]
    assert tables["speed of batches"] == tables["speed of steps"] == [{"ms": 1}]
    assert [row["outcome"] for row in tables["stages"]] == [
        "no memory",
        "done",
        "ended after its 1 s",
    ]


def test_a_result_is_of_one_machine(accelerator, tmp_path, monkeypatch):
    path = tmp_path / "results.json"
    monkeypatch.setattr(
        sys, "argv", ["", f"--results={path}", "--stages", "torch"]
    )
    fields = accelerator.circumstances("abc1234") | {"machine": "another"}
    path.write_text(json.dumps(fields | {"tables": {}}))
    with pytest.raises(SystemExit, match="results of other commit, machine"):
        accelerator.main()


@pytest.fixture
def results_folder(tmp_path, monkeypatch):
    """benchmarks/results, empty."""
    results = load("results")
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "argv", ["/a/growth.py", "--only=a b", "--record"])
    return results


def test_rows_measured_again_replace_the_recorded_ones(
    comparison, results_folder, two_rounds
):
    _, rows, results = comparison
    found = results.Results(two_rounds)
    numbers = results.compare_all(rows.ROWS, found)
    assert results.recorded(rows.ROWS) == dict.fromkeys(rows.ROWS)
    results.record(rows.ROWS, numbers, found)
    again = results.recorded(rows.ROWS)
    assert results.table(rows.ROWS, again) == results.table(rows.ROWS, numbers)
    assert results.draw(rows.ROWS, again) == results.draw(rows.ROWS, numbers)
    document = results_folder.read("compare")
    assert document["commit"] == "abc" and document["date"] == "2027-01-15"
    assert document["versions"] == {"tensorflow (ours)": "2.21"}
    systems = len(document["tables"]["systems"])
    assert systems == 6  # three of base fp32, one of base bf16, two ceilings
    name = "train_base_fp32"
    faster = numbers[name]._replace(ratios=[5.0])
    found.machine["commit"] = "def"
    results.record({name: rows.ROWS[name]}, {name: faster}, found)
    tables = results_folder.read("compare")["tables"]
    [row] = tables["rows"]
    assert row["ratio"] == 5.0 and row["commit"] == "def"
    assert len(tables["systems"]) == systems


# The current results


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


def test_a_result_is_replaced_with_its_page(results_folder):
    row = {"n": 1024, "s": 0.5, "what": None}
    tables = {"a": [row, row | {"what": "much"}], "b": [{"x": 2}]}
    results_folder.record("some", "Old", tables)
    results_folder.record("some", "New", tables, notes="Idle.", commit="abc")
    folder = results_folder.FOLDER
    assert sorted(p.name for p in folder.iterdir()) == [
        "README.md",
        "some.json",
    ]
    document = json.loads((folder / "some.json").read_text())
    assert document["title"] == "New" and document["tables"] == tables
    command = "python benchmarks/growth.py '--only=a b'"
    assert document["command"] == command
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", document["date"])
    assert document["versions"]["keras"] == keras.__version__
    assert " cores of " in document["machine"]
    page = (folder / "README.md").read_text()
    assert page == results_folder.page()
    assert "\n## New\n" in page and "Old" not in page
    assert "; commit abc; " in page and ". Idle.\n" in page
    table = "| n | s | what |\n|---|---|---|\n| 1,024 | 0.5 |  |\n"
    assert f"### a\n\n{table}| 1,024 | 0.5 | much |\n" in page
    with pytest.raises(ValueError, match="same columns in a"):
        results_folder.record("some", "New", {"a": [row, {"n": 1}]})


def test_tables_become_rows(results_folder):
    parse = results_folder.parse_table
    text = "| n | s | what |\n|---|---|---|\n| 1,024 | **0.50** | 2 x 3 |\n"
    assert parse(text) == [{"n": 1024, "s": 0.5, "what": "2 x 3"}]
    assert parse(text + "| -1 | | no |")[1] == {"n": -1, "s": "", "what": "no"}
    with pytest.raises(ValueError, match="different names"):
        parse("| n | n |\n|---|---|\n| 1 | 2 |")


def test_the_page_of_results_is_that_of_the_files():
    results = load("results")
    page = (results.FOLDER / results.PAGE).read_text(encoding="utf-8")
    assert page == results.page()
    for path in results.FOLDER.glob("*.json"):
        script = re.match(
            r"python (\S+\.py) ", results.read(path.stem)["command"]
        )
        assert not script or (results.ROOT / script[1]).exists(), path


def test_the_comparison_in_the_docs_is_the_recorded_one(comparison):
    _, rows, results = comparison
    found = results.recorded(rows.ROWS)
    docs = BENCHMARKS.parent / "docs"
    table = results.table(rows.ROWS, found)
    assert table in (docs / "benchmarks.md").read_text(encoding="utf-8")
    assert_same_picture(docs / "benchmarks.svg", results.draw(rows.ROWS, found))


@pytest.mark.parametrize(
    "page, name, table",
    [
        ("positions", "restricted_attention", "lengths"),
        ("positions", "restricted_attention_step", "lengths"),
    ],
)
def test_tables_of_the_docs_have_the_recorded_numbers(page, name, table):
    results = load("results")
    rows = results.read(name)["tables"][table]
    text = (BENCHMARKS.parent / f"docs/{page}.md").read_text(encoding="utf-8")
    shown = [
        [results.value(cell.strip()) for cell in line.strip("|").split("|")]
        for line in text.splitlines()
    ]
    for row in rows:
        cells = ["-" if value is None else value for value in row.values()]
        assert cells in shown, cells


def test_every_figure_is_of_a_command(comparison):
    compare, rows, _ = comparison
    needed = {f.command for row in rows.ROWS.values() for f in row.figures}
    assert needed == rows.COMMANDS.keys()
    places = dict.fromkeys(
        "ours torch onmt joey peers data work workdir made".split(), "DIR"
    )
    for command in rows.COMMANDS.values():
        words = compare.fill(command.argv, places)
        assert not any("{" in word for word in words)
        if words[1].startswith("benchmarks/"):
            assert (BENCHMARKS.parent / words[1]).is_file()
        assert set(command.needs) <= rows.SETUPS.keys()
    for row in rows.ROWS.values():
        assert not row.work or len(row.work) == len(row.ours)


def test_what_a_process_prints_is_kept(comparison, tmp_path):
    compare, _, _ = comparison
    program = tmp_path / "program.py"
    program.write_text("print('step 1')\nprint('{\"a\": 1}')\n")
    places = {"ours": sys.executable, "work": tmp_path}
    record = compare.run(f"{{ours}} {program}", places)
    assert record["lines"] == [{"a": 1}] and record["time"] > 1e9
    program.write_text("raise SystemExit('no model')")
    assert "no model" in compare.run(f"{{ours}} {program}", places)["error"]


def test_the_reports_of_the_trainer_are_read():
    recipe = load("recipe_throughput")
    text = (
        "step 50 | lr 1e-3 | 18700 source+target tokens/s | 9 s\nvalidation\n"
        "step 100 | lr 1e-3 | 19000 source+target tokens/s | 12 s\n"
    )
    assert recipe.rates_of(text) == [18700.0, 19000.0]
    text += "  a step: 1,000 source and 3,000 target tokens on average, on 1"
    assert recipe.target_share(text) == 0.75


# Seeds


def test_a_row_has_the_mean_and_the_range_over_seeds(tmp_path):
    seeds = load("seeds")
    scores = {
        seed: {"val": {"bleu": bleu, "chrf": 60 + seed}}
        for seed, bleu in ((1, 34.0), (2, 35.5), (3, 34.3))
    }
    arguments = argparse.Namespace(setting="TensorFlow", train_steps=4000)
    assert seeds.row_of(arguments, "val", scores) == {
        "setting": "TensorFlow",
        "steps": 4000,
        "seeds": 3,
        "pairs": "val",
        "BLEU": 34.6,
        "lowest": 34.0,
        "highest": 35.5,
        "chrF": 62.0,
    }


def test_each_seed_is_trained_and_evaluated(monkeypatch, tmp_path):
    seeds = load("seeds")
    calls = []

    def call(command, workdir, *flags):
        calls.append((command, workdir, flags))
        return 'text\n{"bleu": 1.0, "chrf": 2.0}\n'

    monkeypatch.setattr(seeds, "call", call)
    arguments = argparse.Namespace(
        folder=tmp_path,
        setting="jax",
        train_steps=7,
        data=pathlib.Path("data"),
        flags=["--backend=jax"],
    )
    found = seeds.run(arguments, 2, ["val", "test"])
    assert found["test"] == {"bleu": 1.0, "chrf": 2.0}
    (trained, workdir, flags), *evaluated = calls
    assert trained == "wmt" and workdir == tmp_path / "jax_2"
    assert {"--seed=2", "--train_steps=7", "--backend=jax"} <= set(flags)
    assert evaluated == [
        ("evaluate", workdir, (f"--test_files=data/{name}", "--backend=jax"))
        for name in ("val", "test")
    ]


# The server under load


def test_answers_under_load_are_counted():
    serve_load = load("serve_load")
    answers = [
        serve_load.Answer(*fields)
        for fields in (
            (0, 200, "A", 0.1),
            (1, 200, "x", 0.3),
            (1, 200, "b", 0.2),
            (0, 429, None, 0.01),
            (1, 503, None, 0.01),
            (1, 500, None, 0.01),
            (0, None, None, None),
        )
    ]
    expected = types.SimpleNamespace(
        plain=["A", "B"], all=[{"A"}, {"B", "b"}].__getitem__
    )
    assert serve_load.summarize(answers, 6.0, expected) == {
        "requests": 7,
        "answers/s": 0.5,
        "p50, ms": 200.0,
        "p99, ms": 298.0,
        "rejected": 2,
        "lost": 2,
        "differ": 2,
        "wrong": 1,
    }
    none_expected = serve_load.summarize(answers, 6.0, None)
    assert none_expected["differ"] is None and none_expected["wrong"] is None


def test_requests_arrive_whether_or_not_others_are_answered():
    serve_load = load("serve_load")
    due, waiting = 50, []

    async def answer(reader, writer):
        """Answers nobody before all requests have arrived, and "no" never."""
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(re.search(rb"Content-Length: (\d+)", head)[1])
        line = json.loads(await reader.readexactly(length))["q"]
        waiting.append((line, writer))
        if len(waiting) == due:
            for line, writer in waiting:
                if line != "no":
                    body = json.dumps({"translatedText": line * 2})
                    writer.write(f"HTTP/1.1 200 OK\r\n\r\n{body}".encode())
                writer.close()

    async def run():
        async with await asyncio.start_server(answer, "127.0.0.1") as server:
            host, port = server.sockets[0].getsockname()
            url = f"http://{host}:{port}"
            loads = serve_load.Load(url, ["a", "no"], {}, seed=1)
            return await loads.arrive(rate=1e6, number=due)

    answers, _ = asyncio.run(run())
    assert {answer[:3] for answer in answers} == {
        (0, 200, "aa"),
        (1, None, None),
    }
    assert len(answers) == due


# Growth


def test_threads_of_real_text_are_those_of_the_commands():
    real_text = load("real_text")
    threads = [
        real_text.environment_of({"checkout": "here", **case}).get(
            "TF_NUM_INTRAOP_THREADS"
        )
        for case in (
            {"options": {"jit_compile": False}},
            {"options": {"jit_compile": True}},
            {"export": "there"},
        )
    ]
    assert threads == ["1", None, None]


def test_real_text_can_be_searched_as_ctranslate2_does():
    real_text = load("real_text")
    given = types.SimpleNamespace(length_penalty=None, as_ctranslate2=False)
    assert real_text.search_of(given) == {}
    given = types.SimpleNamespace(length_penalty=0.6, as_ctranslate2=True)
    decoding = DecodingConfig(beam_size=3, length_penalty=1.0)
    assert dataclasses.replace(
        decoding, **real_text.search_of(given)
    ) == DecodingConfig(
        beam_size=3,
        length_penalty=0.6,
        length_normalization="power",
        stopping="fairseq",
    )


@pytest.mark.parametrize("beam_size", [1, 3])
def test_real_text_has_the_translations_of_ctranslate2(beam_size, tmp_path):
    real_text = load("real_text")
    sources = [source for source, _ in exports.make_pairs(80)]
    sources = [source for source in sources if len(source) < 16]
    (tmp_path / "text").write_text("\n".join(sources))
    case = {
        "workdir": str(exports.workdir()),
        "text": str(tmp_path / "text"),
        "beam_size": beam_size,
        "single": False,
        "limit": None,
        "search": {"stopping": "fairseq", "length_normalization": "power"},
    }
    found = [
        real_text.measure({**case, **system})["lines"]
        for system in (
            {"options": {}},
            {
                "ctranslate2": str(exports.exported("ctranslate2")[0]),
                "workers": 1,
            },
        )
    ]
    for source, ours, theirs in zip(sources, *found, strict=True):
        assert ours == theirs, source
    assert len(set(found[0])) > 20
    assert real_text.count_others(found[0], found[0][::-1]) > 20


def test_exponents_above_those_of_theory_are_marked():
    growth = load("growth")
    sizes = (1, 2, 4, 8)
    points = [{"seconds": n**1.5, "bytes": 1e6 * n} for n in sizes]
    cells = growth.row_of("decode", "batch", sizes, points).split(" | ")
    assert cells[1] == "batch: 1 / 2 / 4 / 8"
    assert cells[3:5] == ["1.50", "1"] and cells[6:8] == ["1.00", "1"]
    assert cells[8] == "steeper: time |"
    assert growth.row_of("train", "length", sizes, points).endswith("| 2 |  |")


def test_cases_are_measured_once(tmp_path, monkeypatch):
    growth, processes = load("growth"), load("processes")
    point = growth.point_of("train", "depth", 16)
    assert point == {"task": "train", **growth.FIXED, "depth": 16}
    ran = []
    monkeypatch.setattr(
        processes, "measure_apart", lambda *words: ran.append(words) or len(ran)
    )
    cases = [point, {**point, "depth": 8}, point]
    for path, expected in ((tmp_path / "points", [1, 2, 1]), (None, [3, 4, 5])):
        found = [
            processes.measure_once("a.py", case, {}, path) for case in cases
        ]
        assert found == expected
    assert ran[:2] == [("a.py", case, {}) for case in cases[:2]]


# Programs for accelerators that are not there


@pytest.fixture(scope="module")
def compile_for():
    return load("compile_for")


@pytest.mark.parametrize(
    "needed, known, largest, most",
    [
        (lambda rows: 1 + 0.1376 * rows, [24], 104, 4),
        (lambda rows: 1 + 0.01 * rows, [24], 1472, 4),
        # The compiler computes values again where memory is scarce.
        (lambda rows: min(1 + 0.15 * rows, 14 + 0.01 * rows), [24], 168, 5),
        (lambda rows: 1 + 0.001 * rows**2, [24], 120, 8),
        (lambda rows: 9 + rows, [24], 0, 3),
        (lambda rows: 0.5 * rows, [24, 40], 24, 1),
        (lambda rows: 0.5 * rows, [8, 24, 32], 24, 0),
    ],
)
def test_the_largest_batch_is_found(compile_for, needed, known, largest, most):
    compiled = []

    def compile_rows(rows):
        compiled.append(rows)
        return needed(rows)

    sizes = {rows: needed(rows) for rows in known}
    found = compile_for.largest_rows(compile_rows, 15.75, 8, sizes)
    assert found == (largest, largest + 8)
    assert len({*known, *compiled}) == len(known) + len(compiled)
    assert len(compiled) <= most
    assert not any(rows % 8 for rows in compiled)


def test_the_row_of_the_largest_batch(compile_for, tmp_path, monkeypatch):
    """Eight chips; one program is known, and one that is another's."""
    gib, compiled = 2**30, []

    def measure(script, case, environment):
        compiled.append(case["rows"])
        if case["rows"] > 160:
            return {"error": "Out of memory. Used 16.10G of 15.75G hbm."}
        memory = {"weights": gib, "optimizer": 2 * gib, "batch": gib / 2}
        memory |= {"temporaries": case["rows"] / 8 * gib / 2}
        return {
            "memory": memory,
            "formula_flops": 197e12,
            "flops": 201e12,
            "bytes": 819e6,
            "all_reduce_bytes": 1e9,
            "compile_seconds": 60.4,
        }

    monkeypatch.setattr(load("processes"), "measure_apart", measure)
    case = {"recipe": "r", "target": "v5e-8", "length": 256}
    case |= {"precision": "float32", "remat": "layers", "rows": 96}
    path = tmp_path / "results"
    arguments = argparse.Namespace(largest=4, results=path)
    for known in ({**case, "rows": 32}, {**case, "remat": "none", "rows": 960}):
        compile_for.find(known, arguments)
    row = compile_for.find_largest(case, arguments)
    assert compiled == [32, 960, 64, 192, 160] and row == {
        "recipe": "r",
        "target": "v5e-8",
        "chips": 8,
        "remat": "layers",
        "rows x tokens": "160 x 256",
        "tokens a side, chip": 20 * 256,
        "weights GiB": 1,
        "optimizer GiB": 2,
        "temporaries GiB": 10,
        "other GiB": 0.5,
        "total GiB": 13.5,
        "HBM GiB": 15.75,
        "TFLOP, chip": 197,
        "compiler / formula": round(201 / 197, 3),
        "all-reduce MB": 1000,
        "products ms": 1000,
        "memory ms": 1,
        "links ms": 8.75,  # 7 / 8 of it twice, at 200 GB/s
        "compile s": 60,
        "refused": "192 x 256",
    }
    refused = compile_for.row_of(case, {"error": "Used 16.10G of 15.75G hbm."})
    assert refused.keys() == row.keys() - {"refused"}
    assert refused["total GiB"] == 16.11 and refused["products ms"] is None


def test_flops_of_a_search(compile_for):
    """A hypothesis more: its own products, but not those of the source."""
    config = kt.TransformerConfig(
        vocab_size=50, d_model=8, d_ff=16, num_heads=2, num_layers=3
    )
    flops = [compile_for.search_flops(config, w, 5, 7) for w in (1, 2, 3)]
    passes = training_flops(config, 1, 5 * 7, 7) / 3
    assert flops[0] == pytest.approx(passes)
    assert flops[2] - flops[1] == flops[1] - flops[0]
    # Projections of the token and to the memory; feed-forward; Q K^T and the
    # weighted sum, over target and source; logits.
    token = 3 * (6 * 8 * 8 + 2 * 8 * 16 + 4 * 7 * 8) + 8 * 50
    assert flops[1] - flops[0] == 2 * 5 * 7 * token


def test_chips_only_add_up(compile_for):
    with pytest.raises(ValueError, match="Received: all-gather"):
        compile_for.all_reduce_bytes("%a = f32[8]{0} all-gather-start(%b)")


@pytest.mark.parametrize(
    "argv, message",
    [
        (["--target=v5e-3"], "unknown target: v5e-3"),
        (["--target=v9-8"], "unknown target: v9-8"),
        (["--search=64"], "a search is on one chip. Received: v5e-8"),
        (["--remat=all"], "none or layers. Received: all"),
    ],
)
def test_what_cannot_be_compiled(
    compile_for, argv, message, capsys, monkeypatch
):
    monkeypatch.setattr(sys, "argv", ["compile_for.py", *argv])
    with pytest.raises(SystemExit):
        compile_for.parse_arguments()
    assert message in capsys.readouterr().err
