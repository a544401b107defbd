"""What the benchmarks read, compute and draw; times are not tested."""

import argparse
import dataclasses
import doctest
import importlib
import itertools
import json
import pathlib
import re
import subprocess
import sys

import keras
import matplotlib
import numpy as np
import pages
import pytest
import tensorflow as tf
from formulas import training_flops
from matplotlib.colors import to_hex

import keras_transformer as kt
from keras_transformer.figures.colors import INK
from keras_transformer.figures.saving import STYLE
from keras_transformer.vocabulary import BOS, EOS, PAD, UNK

BENCHMARKS = pathlib.Path(__file__).parents[1] / "benchmarks"


def load(name):
    """A module of the benchmarks; some import each other by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        patch.syspath_prepend(str(BENCHMARKS / "peers"))
        return importlib.import_module(name)


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
    curve, results = load("learning_curve"), load("results")
    picture = curve.draw(
        results.read(curve.NAME)["tables"]["validation"],
        results.read("seeds")["tables"]["runs"],
    )
    assert_same_picture(curve.PICTURE, picture)


def test_learning_curve_goes_through_the_points_of_the_tables(monkeypatch):
    curve = load("learning_curve")
    rows = [
        {"step": 10, "BLEU": 4, "lowest": 2, "highest": 5},
        {"step": 20, "BLEU": 7, "lowest": 6, "highest": 9},
    ]
    run = {"setting": curve.SETTING, "steps": 20, "pairs": curve.TEST_SET}
    run |= {"BLEU": 30, "lowest": 28, "highest": 31}
    others = [run | {"steps": 10}, run | {"setting": "x"}, run | {"pairs": "x"}]
    figure = figure_of(curve, monkeypatch, rows, [run, *others])
    [axes] = figure.axes
    validation, test, published = axes.lines
    assert points_of(validation) == [(10, 4), (20, 7)]
    assert points_of(test) == [(20, 30)]
    assert set(published.get_ydata()) == {41.02}
    band, bar = axes.collections
    corners = {tuple(point) for point in band.get_paths()[0].vertices}
    assert corners == {(10, 2), (10, 5), (20, 6), (20, 9)}
    assert bar.get_segments()[0].tolist() == [[20, 28], [20, 31]]


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
        by_length = [kind.operations(n, kind.width) for n in kind.lengths]
        by_width = [kind.operations(kind.length, d) for d in kind.widths]
        counted = (
            table1.exponent(kind.lengths, by_length),
            table1.exponent(kind.widths, by_width),
        )
        np.testing.assert_allclose(counted, kind.exponents, atol=0.15)


def test_the_picture_of_table_1_has_the_points_and_the_slopes(
    table1, monkeypatch
):
    def sweep(sizes, theory):
        seconds = [1e-3 * (size / sizes[0]) ** theory for size in sizes]
        found = {"sizes": sizes, "fixed": 64, "seconds": seconds}
        found |= {"theory": theory, "exponent_of_operations": theory}
        return found | {"exponent": table1.exponent(sizes, seconds)}

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
    names = "compare", "compare_rows", "compare_tables"
    return [load(name) for name in names]


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


@pytest.mark.parametrize(
    "flags, calls", [([], ["abc"]), (["--single", "--limit=2"], ["a", "b"])]
)
def test_translations_are_timed_after_two_warm_ups(
    flags, calls, tmp_path, capsys
):
    measurement = load("measurement")
    path = tmp_path / "text"
    path.write_text("a\nb\nc\n", encoding="utf-8")
    parser = measurement.translation_parser("")
    made, output = [], tmp_path / "translations"

    def translate(lines):
        made.append("".join(lines))
        return [line.upper() for line in lines]

    measurement.measure_translation(
        translate,
        parser.parse_args([f"--text={path}", f"--output={output}", *flags]),
        "numpy",
    )
    assert made == calls * 3
    assert output.read_text().split() == list("".join(calls).upper())
    line = json.loads(capsys.readouterr().out)
    assert line["parts"] == 1 and line["lines_per_second"] > 0


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


def test_every_row_can_be_measured(comparison):
    compare, rows, _ = comparison
    sources = {
        path.stem: path.read_text() for path in compare.SCRIPTS.glob("*.py")
    }
    arguments = argparse.Namespace(
        folder="FOLDER", workdir="WORKDIR", small=True
    )
    for row in rows.ROWS.values():
        for name in row.systems:
            system = row.table.systems[name]
            folder = system.environment
            if folder is not None:
                assert (compare.SCRIPTS / f"{folder}.txt").is_file()
                assert f" {folder}" in (compare.ROOT / "Makefile").read_text()
            known = sources[system.script] + sources["measurement"]
            _, _, *options = compare.argv_of(row, name, arguments)
            for option in options:
                assert "{" not in option
                assert f'"{option.split("=")[0]}"' in known
    assert rows.ROWS.keys() > compare.choose("train,all_greedy").keys()


def write_results(path, records):
    """A file of results: (round, row, system, rate or error)."""
    found = [{"setting": {"machine": "one & only", "commit": "abc"}}]
    for number, row, system, rate in records:
        key = {"round": number, "row": row, "system": system}
        if isinstance(rate, str):
            found.append(key | {"time": 1.8e9, "error": rate})
            continue
        rates = "target_tokens_per_second", "lines_per_second"
        line = dict.fromkeys(rates, rate) | {"version": "some 1.2"}
        line["foreign_cpus"] = number / 100
        found.append(key | {"time": 1.8e9, "line": line})
    text = "".join(json.dumps(record) + "\n" for record in found)
    path.write_text(text + '{"round": 9, "row')  # killed while it wrote


@pytest.fixture
def two_rounds(tmp_path):
    path = tmp_path / "results.jsonl"
    row, text = "train_base_fp32", "single_greedy"
    write_results(
        path,
        [
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
        ],
    )
    return path


def test_tables_have_medians_and_ratios_of_rounds(comparison, two_rounds):
    _, rows, tables = comparison
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


def test_the_picture_of_results(comparison, two_rounds, monkeypatch):
    _, _, tables = comparison
    ratios = tables.tables_of(tables.Results(two_rounds))["ratios"]
    [axes] = figure_of(tables, monkeypatch, ratios).axes
    assert [bar.get_width() for bar in axes.patches] == [2.3, 2.54, 0.8, 0.75]
    colors = [to_hex(bar.get_facecolor()) for bar in axes.patches]
    assert colors == [tables.FASTER] * 2 + [tables.SLOWER] * 2
    np.testing.assert_allclose(
        axes.collections[0].get_segments()[0], [(1.4, 0), (3.2, 0)]
    )
    assert [text.get_text() for text in axes.texts][0] == "2.30"
    name = axes.get_yticklabels()[2].get_text()
    assert name == "one line at a time, greedy: CTranslate2"


def test_results_go_on_where_they_were(comparison, tmp_path, monkeypatch):
    compare, rows, _ = comparison
    setting = {"machine": "this"}
    monkeypatch.setattr(compare, "setting", lambda arguments: setting)
    for name in ("check_environments", "prepare"):
        monkeypatch.setattr(compare, name, lambda _: None)
    ran = []

    def run(argv, variables):
        ran.append(pathlib.Path(argv[1]).stem)
        if len(ran) == 3:
            raise KeyboardInterrupt
        if len(ran) == 4:
            return {"error": "busy"}
        return {"line": {}}

    monkeypatch.setattr(compare, "run", run)
    arguments = argparse.Namespace(
        rows=compare.with_systems(compare.choose("train_base"), []),
        rounds=2,
        folder=tmp_path / "new",
        workdir=None,
        small=False,
    )
    path = arguments.folder / "results.jsonl"
    with pytest.raises(KeyboardInterrupt):
        compare.measure(arguments, path)
    compare.measure(arguments, path)
    expected = ["train_ours", "train_opennmt_tf", "train_pytorch", "ceiling"]
    assert ran == [*expected[:3], *expected[2:], *expected]
    compare.measure(arguments, path)  # what failed is measured again
    assert ran[9:] == ["train_pytorch"]
    setting = {"machine": "another"}
    with pytest.raises(SystemExit, match="use another --folder"):
        compare.measure(arguments, path)


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--rows=train,other"], "expected names of rows"),
        ([], "rows of translation need --workdir"),
        (["--rows=train", "--small", "--record"], "a trial is no result"),
        (["--rows=train", "--systems", "other"], "expected systems of these"),
    ],
)
def test_comparisons_that_cannot_be_made(
    flags, message, comparison, monkeypatch, capsys
):
    compare, _, _ = comparison
    monkeypatch.setattr(sys, "argv", ["compare.py", "--data=DATA", *flags])
    with pytest.raises(SystemExit, match="2"):
        compare.parse_arguments()
    assert message in capsys.readouterr().err


def test_a_missing_environment_is_named(comparison, tmp_path, monkeypatch):
    compare, rows, _ = comparison
    monkeypatch.setattr(compare, "ENVIRONMENTS", tmp_path)
    with pytest.raises(SystemExit, match="OpenNMT-tf: run `make peers`"):
        compare.check_environments(rows.ROWS)


def test_a_script_that_fails_is_no_result(comparison, tmp_path):
    compare, _, _ = comparison
    script = tmp_path / "script.py"
    script.write_text("print('step 1')\nprint('{\"lines_per_second\": 2.5}')\n")
    line = compare.run([sys.executable, str(script)])
    assert line == {"line": {"lines_per_second": 2.5}}
    script.write_text("import os\nprint(os.environ['RATE'])\n")
    line = compare.run([sys.executable, str(script)], ["RATE=2.5"])
    assert line == {"line": 2.5}
    script.write_text("raise SystemExit('no memory')")
    line = compare.run([sys.executable, str(script)])
    assert line == {"error": "no memory\n"}


def test_systems_with_variables_are_measured_if_they_are_named(comparison):
    compare, rows, _ = comparison
    chosen = compare.choose("train_base,single_greedy")
    off = rows.WITHOUT_ONEDNN
    default = compare.with_systems(chosen, [])
    assert default.keys() == chosen.keys()
    assert off not in default["train_base_fp32"].systems
    assert "PyTorch" in default["train_base_fp32"].systems
    named = compare.with_systems(chosen, [off, "PyTorch"])
    assert named["train_base_fp32"].systems == (off, "PyTorch")
    assert named["single_greedy"].systems == (off,)
    named = compare.with_systems(chosen, ["PyTorch"])
    assert list(named) == ["train_base_fp32"]


def test_each_kind_of_cpu_has_its_results(results_folder, monkeypatch):
    """The best instructions count, unless they are switched off."""
    flags = {"flags": "fpu avx2 avx512f avx512_vnni", "model name": "X"}
    monkeypatch.setattr(results_folder, "cpu_fields", lambda: flags)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    assert results_folder.of_this_cpu("peers") == "peers_avx512_vnni"
    assert results_folder.cpu_name() == "X (avx2, avx512f, avx512_vnni)"
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "avx2")
    assert results_folder.of_this_cpu("peers") == "peers_avx2"
    assert results_folder.cpu_name().endswith(", limited to AVX2")


def test_recorded_comparisons_stay_complete(
    comparison, results_folder, two_rounds, monkeypatch
):
    _, rows, tables = comparison
    picture = results_folder.FOLDER / "benchmarks.svg"
    monkeypatch.setattr(tables, "PICTURE", picture)
    monkeypatch.setattr(results_folder, "cpu_kind", lambda: "avx9")
    tables.record(tables.Results(two_rounds))
    assert not picture.exists()
    partial = two_rounds.read_text()
    write_results(
        two_rounds,
        [
            (1, name, system, 10.0)
            for name, row in rows.ROWS.items()
            for system in row.systems
        ],
    )
    tables.record(tables.Results(two_rounds))
    document = results_folder.read("peers_avx9")
    assert document["commit"] == "abc" and document["date"] == "2027-01-15"
    assert document["machine"] == "one & only"
    assert document["versions"]["some"] == "1.2"
    assert document["tables"].keys() == {
        *(table.heading for table in rows.TABLES),
        tables.RATIOS,
    }
    expected = tables.draw(document["tables"]["ratios"])
    assert_same_picture(picture, expected)
    two_rounds.write_text(partial)
    with pytest.raises(SystemExit, match="no all lines at once, beam 4"):
        tables.record(tables.Results(two_rounds))


def test_the_comparison_in_the_docs_is_the_recorded_one(comparison):
    """Nothing is checked before the first recording."""
    _, _, tables = comparison
    results = load("results")
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


def test_ticks_are_round_and_few():
    plots = load("plots")
    for low, high in itertools.product((-3.7, 0, 0.013), (0.021, 9, 48211)):
        _, axes = plots.make_axes(390, 250, 70, 30, 48, 16)
        plots.draw_series(axes, plots.Series("", [(low, 0), (high, 1)]))
        found = [tick for tick in axes.get_xticks() if low <= tick <= high]
        assert 2 <= len(found) <= plots.NUM_TICKS + 1
        steps = np.diff(found)
        np.testing.assert_allclose(steps, steps[0])
        assert f"{steps[0]:.0e}"[0] in "125"


def test_a_transparent_plot_has_the_color_of_its_surroundings():
    plots = load("plots")
    with matplotlib.rc_context(STYLE):
        figure, _ = plots.make_axes(390, 250, 70, 30, 48, 16)
    svg = plots.transparent_svg(figure, "currentColor")
    assert svg.startswith("<svg ") and "currentColor" in svg
    assert INK not in svg and "#ffffff" not in svg and "<metadata" not in svg


def test_students_are_compared_with_their_teacher(monkeypatch):
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
    [axes] = figure_of(students, monkeypatch, rows).axes
    points = [points_of(line) for line in axes.get_lines()]
    assert [(200.0, 31.0)] in points and [(600.0, 28.0)] in points


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
    for name in ("code.py", "peers/some.txt"):
        path = tmp_path / "benchmarks" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("2")
        assert results.code_commit() == code + "-dirty"
        git("add", ".")
        git("commit", "-q", "-m", "more code")
        code = results.code_commit()


@pytest.fixture
def accelerator(tmp_path, monkeypatch):
    """The module; its stages run scripts in a folder."""
    module = load("accelerator")
    names = ("decoding", "training", "torch")
    stages = {name: (str(tmp_path / f"{name}.py"), 1) for name in names}
    monkeypatch.setattr(module, "STAGES", stages)
    return module


def test_rows_of_a_stage_that_fails_are_kept(
    accelerator, tmp_path, monkeypatch
):
    path = tmp_path / "results.json"
    row = "print('device: X', '[\"speed of NAME\", {\"ms\": 1}]', sep='\\n')\n"
    (tmp_path / "decoding.py").write_text(row.replace("NAME", "searches"))
    (tmp_path / "training.py").write_text(
        row.replace("NAME", "steps") + "raise SystemExit('no memory')"
    )
    (tmp_path / "torch.py").write_text("import time\ntime.sleep(600)")
    flags = ["accelerator.py", f"--results={path}", "--stages"]

    monkeypatch.setattr(sys, "argv", [*flags, "training", "decoding"])
    with pytest.raises(SystemExit, match="not complete: training"):
        accelerator.main()
    monkeypatch.setattr(sys, "argv", [*flags, "torch", "--minutes=0"])
    with pytest.raises(SystemExit, match="not complete: training, torch"):
        accelerator.main()

    tables = json.loads(path.read_text())["tables"]
    assert (
        tables["speed of searches"] == tables["speed of steps"] == [{"ms": 1}]
    )
    assert [row["outcome"] for row in tables["stages"]] == [
        "no memory",
        "done",
        "ended after its 1 s",
    ]


def test_another_checkout_has_tables_of_its_own(
    accelerator, tmp_path, monkeypatch
):
    script = tmp_path / "abc1234/benchmarks/before.py"
    script.parent.mkdir(parents=True)
    program = "import json, sys; stage = json.loads(sys.argv[1])['stage']\n"
    row = "print('device: X', json.dumps(['speed', {'of': stage}]), sep='\\n')"
    script.write_text(program + row)
    monkeypatch.setitem(accelerator.STAGES, "before", ("before.py", 1))
    arguments = argparse.Namespace(small=True, before=script.parents[1])
    tables = accelerator.run_stage("before", 600, arguments, {})
    assert tables.pop("speed, abc1234") == [{"of": "training"}]
    assert [row["outcome"] for row in tables.pop("stages")] == ["done"]
    assert not tables


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
