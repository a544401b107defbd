"""The report of a run: its records, its translations, its page."""

import math
import pathlib
import platform
import re
import shutil
import sys
import types

import numpy as np
import pages
import pytest
import sacrebleu
import tensorflow as tf
from commands import fails, fails_without_room

import keras_transformer as kt
from keras_transformer.figures import plots
from trainers import report
from trainers.reporting import page as report_page
from trainers.reporting.records import Records, read_records
from trainers.run.experiment import Experiment
from trainers.run.progress import Reporter
from trainers.run.tensorflow_engine import TensorFlowDevices

FIXTURE = pathlib.Path(__file__).parent / "fixtures/workdir_0_2"


def record_run(logs, scale=1.0):
    """Records as a training writes them; its first session was killed."""
    logs.mkdir()
    for first, last in ((0, 30), (20, 60)):
        earlier = set(logs.iterdir())
        reporter = Reporter(logs, first, 60, is_chief=True)
        for step in range(first + 10, last + 1, 10):
            values = {
                "loss": scale * (100 + first) / step,
                "perplexity": math.inf if step == 10 else 900 / step,
                "learning_rate": 1e-5 * step,
                "tokens_per_second": 100.0 + step,
            }
            reporter.record(step, "train", values)
        reporter.record(
            last,
            "validation",
            {
                "loss": scale * 5.0,
                "perplexity": 80.0,
                "bleu": float(last),
                "wall_seconds": 6.0 * last,
            },
        )
        reporter.describe(
            first, {"host": f"host {last}", "versions": "1 <&> 2"}
        )
        reporter.close()
        # TensorBoard reads the files in the order of the seconds in their
        # names; these sessions had the same second.
        for path in set(logs.iterdir()) - earlier:
            name = re.sub(r"tfevents\.\d+", f"tfevents.{first}", path.name)
            path.rename(path.with_name(name))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two work directories with records."""
    directory = tmp_path_factory.mktemp("runs")
    for name, scale in (("one", 1.0), ("<two> & more", 2.0)):
        path = shutil.copytree(FIXTURE / "run", directory / name)
        record_run(path / "logs", scale)
    config = (path / "config.json").read_text()
    assert '"warmup_steps": 10' in config
    (path / "config.json").write_text(
        config.replace('"warmup_steps": 10', '"warmup_steps": 77')
    )
    return directory / "one", path


@pytest.fixture(scope="module")
def page(runs, tmp_path_factory):
    """A report of both, by the whole command."""
    output = tmp_path_factory.mktemp("report") / "report.html"
    one, two = runs
    report.main(
        [
            f"--workdir={one}",
            f"--compare={two}",
            f"--test_files={FIXTURE / 'pairs'}",
            "--samples=12",
            f"--output={output}",
        ]
    )
    return output.read_text("utf-8")


def test_records_are_what_was_recorded_each_step_once(runs):
    records = read_records(runs[0] / "logs")
    # Steps 10 and 20 are of the first session; 30 is of the second.
    expected = [
        (10, 10.0),
        (20, 5.0),
        *((s, 120 / s) for s in (30, 40, 50, 60)),
    ]
    assert records.curves["train/loss"] == [
        (step, pytest.approx(value, rel=1e-6)) for step, value in expected
    ]
    assert records.curves["validation/bleu"] == [(60, 60.0)]
    assert [s for s, _ in records.curves["train/perplexity"]] == [
        20,
        30,
        40,
        50,
        60,
    ]
    assert records.not_finite == 1
    assert records.last_step() == 60
    assert Records({"a": [(1, 0.5), (7, 0.5)]}, 0).last_step() == 7
    assert records.facts == {"host": "host 60", "versions": "1 <&> 2"}
    nothing = read_records(runs[0] / "none")
    assert nothing == Records({}, 0) and nothing.last_step() == 0


def summary_of(page):
    """The rows of the table at the top: name -> its values."""
    rows = re.findall(r"<tr><th>(.*?)</th>(.*?)</tr>", page)
    return {
        name: re.findall("<td>(.*?)</td>", cells)
        for name, cells in rows
        if "<td>" in cells
    }


def test_step_and_time_are_those_of_the_run(runs, page):
    found = summary_of(page)
    assert found["last step"] == ["6 in the newest checkpoint, 60 recorded"] * 2
    assert found["host"] == ["host 60"] * 2
    assert found["versions"] == ["1 &lt;&amp;&gt; 2"] * 2
    assert found["training data"] == ["not recorded"] * 2
    run = report.read_run(runs[0], "one")
    assert run.progress.step == 6 and 0 < run.progress.wall_seconds < 60
    run.progress.step = 64
    run.progress.wall_seconds, run.progress.train_seconds = 600.0, 480.0
    found = summary_of(report_page.make_page([run], ""))
    assert found["last step"] == ["64"]
    run.progress.step = 60
    assert summary_of(report_page.make_page([run], ""))["last step"] == ["60"]
    assert found["time"] == ["10.0 minutes, 8.0 of them training"]
    run.progress = None
    found = summary_of(report_page.make_page([run], ""))
    assert found["last step"] == ["60, as far as recorded"]
    assert found["time"] == ["6.0 minutes to step 60, validation included"]


def test_corrupt_checkpoints_cost_a_report_nothing_else(runs, tmp_path, caplog):
    path = shutil.copytree(runs[0], tmp_path / "run")
    [data] = (path / "checkpoints").glob("*.data*")
    data.write_bytes(b"")
    assert report.read_run(path, "one").progress is None
    assert "corrupt checkpoint" in caplog.text


def test_facts_name_the_machine_and_the_data():
    def batches(counts):
        return types.SimpleNamespace(
            corpus=types.SimpleNamespace(counts=counts)
        )

    parts = dict.fromkeys(
        ("configuration", "tokenizer", "metric", "valid_pairs")
    )
    made = Experiment(
        train_batches=batches("9 pairs read"),
        valid_batches=None,
        test_pairs=[("a", "b")] * 1200,
        devices=TensorFlowDevices("one_device"),
        **parts,
    )
    facts = made.facts()
    assert facts.keys() == set(report_page.FACTS)
    assert facts["training data"] == "9 pairs read"
    assert facts["validation data"] == "no pairs"
    assert facts["test data"] == "1,200 pairs"
    assert platform.node() in facts["host"]
    assert f"TensorFlow {tf.__version__}, Keras " in facts["versions"]


def test_noisy_curves_have_a_smooth_one():
    rng = np.random.default_rng(4)
    values = 3 + rng.normal(size=200)
    records = {
        name: [(10 * i, float(value)) for i, value in enumerate(values, 1)]
        for name in ("train/loss", "train/learning_rate", "validation/loss")
    }
    run = report.Run("one", {}, [], Records(records, 0))
    loss, _, rate, _ = report_page.CURVES
    raw, smooth, validation = report_page._series_of(loss, [run])
    assert raw.opacity < 0.5 < smooth.opacity == 1
    assert smooth.name == "training, mean of 9"
    assert validation.marked and not raw.marked and not smooth.marked
    assert raw.points == validation.points == records["train/loss"]
    steps, found = map(np.array, zip(*smooth.points, strict=True))
    np.testing.assert_array_equal(steps, 10 * np.arange(1, 201))
    mean = np.convolve(values, np.ones(9) / 9, "valid")
    np.testing.assert_allclose(found[4:-4], mean)
    np.testing.assert_allclose(
        found[[0, 1, -2, -1]],
        [
            values[0],
            values[:3].mean(),
            values[-3:].mean(),
            values[-1],
        ],
    )
    [only] = report_page._series_of(rate, [run])
    assert only.opacity == 1
    short = {"train/loss": records["train/loss"][:49]}
    run = report.Run("one", {}, [], Records(short, 0))
    assert len(report_page._series_of(loss, [run])) == 2


def test_the_mouse_reads_the_values_of_a_step():
    train = [(step, step / 7) for step in range(10, 2001, 10)]
    valid = [(995, 5.0), (2000, 1.0)]
    series = [
        report_page.Series("<training>", train),
        report_page.Series("validation", valid),
    ]
    strips = report_page._readings(series, 2000)
    assert 50 < len(strips) <= report_page.READINGS
    end = 0.0
    for strip in strips:
        start, end = end, end + strip["width"]
        first, second = strip["lines"][:2]
        step = int(first.removeprefix("step ").replace(",", ""))
        place = start + strip["width"] * strip["place"] / 100
        assert place == pytest.approx(step, abs=1)
        shown = float(re.match(r"<training>: (\S+)", second)[1])
        assert shown == pytest.approx(step / 7, rel=1e-3, abs=1)
    assert end == 2000
    with_validation = [one["lines"] for one in strips if len(one["lines"]) > 2]
    assert len(with_validation) == 2
    assert with_validation[0][2] == "validation: 5 (step 995)"
    assert with_validation[1][2] == "validation: 1"


def test_the_readings_are_where_the_steps_are(page):
    box, *strips = [
        attributes["style"]
        for _, attributes, _ in pages.Elements(page).of("div")
        if attributes.get("class", "").startswith("reading")
    ][:7]
    left, right = (float(x) for x in re.findall(r":([\d.]+)%", box))
    figure = plots.plot(
        [report_page.Series("", [(0, 1), (2, 2)])],
        label="",
        x_label="",
        y_label="",
        x_low=0,
        x_high=2,
    )
    start, end = figure.axes[0].transData.transform([(0, 1), (2, 1)])[:, 0]
    width = figure.bbox.width
    assert left == pytest.approx(100 * start / width, abs=0.01)
    assert right == pytest.approx(100 - 100 * end / width, abs=0.01)
    # Records at 10, 20, ... 60.
    widths = [float(re.match(r"flex:([\d.]+);", one)[1]) for one in strips]
    assert widths == [15, 10, 10, 10, 10, 5]
    text = "<p>step 10<br>one, training: 10<br>&lt;two&gt; &amp; more, training"
    assert text in page


@pytest.mark.parametrize("number", [0, 1, 9, 10, 19, 100, 101])
def test_listed_translations_are_spread_evenly(number):
    found = report_page._spread(number, 10)
    assert len(found) == len(set(found)) == min(number, 10)
    if found:
        assert found[0] == 0 and set(found) <= set(range(number))
        gaps = np.diff([*found, number])
        assert gaps.max() - gaps.min() <= 1


def test_the_page_asks_for_nothing_and_keeps_names_as_text(page):
    pages.assert_offline(page)
    elements = pages.Elements(page)
    assert not elements.of("script") and not elements.of("two")
    _, _, title = elements.of("title")[0]
    assert title == "Training of one and <two> & more"


def test_every_plot_is_in_the_page(page):
    elements = pages.Elements(page)
    captions = [text for _, _, text in elements.of("figcaption")]
    assert captions == [
        "Loss",
        "Perplexity",
        "Validation BLEU",
        "Learning rate",
        "Speed",
        "Length against BLEU",
    ]
    for curve, number in {"Loss": 2, "Speed": 2, "Validation BLEU": 0}.items():
        [svg] = re.findall(
            rf'aria-label="{curve} by step">(<svg.*?</svg>)', page, re.DOTALL
        )
        assert "currentColor" in svg
        one, two = "one, training", "<two> & more, training"
        assert ({one, two} <= set(pages.texts(svg))) == bool(number)
    assert "1 recorded values are infinite" in page


def test_curves_have_the_records_of_both_runs(runs, monkeypatch):
    figures = []
    monkeypatch.setattr(report_page, "_inline", figures.append)
    found = [report.read_run(path, path.name) for path in runs]
    curves = list(report_page._curves(found))
    assert [curve["title"] for curve in curves] == [
        "Loss",
        "Perplexity",
        "Validation BLEU",
        "Learning rate",
        "Speed",
    ]
    for figure in figures:
        assert figure.axes[0].get_xlim() == (0, 60)
    one, _, two, _ = figures[0].axes[0].lines
    np.testing.assert_allclose(
        one.get_xydata(), found[0].records.curves["train/loss"]
    )
    np.testing.assert_allclose(two.get_ydata(), 2 * one.get_ydata())
    assert one.get_color() != two.get_color()
    names = [figure.axes[0].get_yscale() for figure in figures]
    assert names == ["linear", "log", "linear", "linear", "linear"]
    assert figures[2].axes[0].get_ylim()[0] == 0
    assert curves[0]["numbers"][0] == ("one, training", "10", "10")


def test_the_recipe_shows_what_differs(page):
    rows = [
        text.split("\n")[0]
        for tag, attributes, text in pages.Elements(page).of("tr")
        if attributes.get("class") == "changed"
    ]
    assert rows == ["training.warmup_steps1077"]
    assert "--warmup_steps=10" in page  # flags.txt


def test_translations_are_scored_as_sacrebleu_scores(runs):
    run = report.read_run(runs[0], "one")
    data = report.DataConfig(**run.sections["data"])
    what, pairs = report.read_pairs(data, (str(FIXTURE / "pairs"),), 5)
    assert what == "5 of 18 test pairs"
    lines = (FIXTURE / "pairs.en").read_text().splitlines()
    assert [source for source, _ in pairs] == [
        lines[i] for i in (0, 3, 7, 10, 14)
    ]
    translator = Parrot(
        [one for _, one in pairs[:2]] + ["ein", "Hund rennt", ""]
    )
    report.translate(run, translator, pairs, "de")
    for one, (source, reference) in zip(run.translations, pairs, strict=True):
        assert (one.source, one.reference) == (source, reference)
        expected = sacrebleu.sentence_bleu(
            one.output, [reference], use_effective_order=True
        )
        assert one.bleu == pytest.approx(expected.score)
        assert one.length == len(source.split())
    assert run.translations[0].bleu == pytest.approx(100)
    outputs = [one.output for one in run.translations]
    assert run.scores["bleu"] == pytest.approx(
        sacrebleu.corpus_bleu(outputs, [[r for _, r in pairs]]).score
    )
    run.sections["data"]["target_language"] = "fa"
    page = report_page.make_page([run], what)
    directions = re.findall(r'<td dir="(\w+)" lang="(\w+)"', page)
    assert set(directions) == {("ltr", "en"), ("rtl", "fa")}
    for heading, best in (("Best by", 0), ("Worst by", 4)):
        after = page.split(f"<h3>{heading}")[1]
        shown = re.search(r"<td[^>]*>([^<]*)</td>", after)[1]
        assert shown == pairs[best][0]


class Parrot:
    """Says what it was told to; it stands for a `Translator`."""

    checkpoint = "run/averaged/ckpt-6"

    def __init__(self, outputs):
        self.outputs = outputs
        self.model = self.decoding = self.tokenizer = self.source = self

    sampling, beam_size, length_penalty = False, 4, 0.6

    def translate(self, sources):
        assert len(sources) == len(self.outputs)
        return self.outputs

    def to_ids(self, sources):
        return [[*map(len, source.split()), kt.EOS] for source in sources]

    def count_params(self):
        return 7


def test_groups_have_every_sentence_once():
    rng = np.random.default_rng(2)
    translations = [
        report.Translation("", str(i), str(i), 0.0, int(length))
        for i, length in enumerate(rng.integers(1, 9, 50))
    ]
    seen = []

    def score(outputs, references):
        assert outputs == references
        seen.extend(outputs)
        return float(len(outputs))

    groups = report.score_by_length(translations, score)
    assert sorted(seen) == sorted(one.output for one in translations)
    assert 1 < len(groups) <= 6
    for (_, high, _, _), (low, _, _, _) in zip(
        groups, groups[1:], strict=False
    ):
        assert high < low
    for low, high, number, bleu in groups:
        inside = [one for one in translations if low <= one.length <= high]
        assert len(inside) == number == bleu


def test_a_report_without_records_or_samples_says_so(tmp_path, capsys):
    output = tmp_path / "a.html"
    flags = [f"--workdir={FIXTURE}/run", "--samples=0", f"--output={output}"]
    report.main(flags)
    page = output.read_text("utf-8")
    assert "run: there are no records in its logs/." in page
    assert "<h2>Translations" not in page and "<svg" not in page
    assert capsys.readouterr().out == f"{output}\n"


def test_the_page_is_written_before_its_name(tmp_path, monkeypatch, capsys):
    page, parrot = tmp_path / "a.html", Parrot(["Hund"] * 2)
    monkeypatch.setattr(kt.Translator, "load", lambda *_, **__: parrot)
    argv = [f"--workdir={FIXTURE}/run", f"--test_files={FIXTURE}/pairs"]
    argv += ["--samples=2", f"--output={page}"]
    fails_without_room(report.main, argv, monkeypatch, capsys)
    assert "</html>" in page.read_text("utf-8")


def test_no_record_of_a_long_run_is_left_out(tmp_path):
    """TensorBoard's own reader keeps a sample of 500."""
    reporter = Reporter(tmp_path, 0, 510, is_chief=True)
    for step in range(1, 511):
        reporter.record(step, "train", {"loss": 1 / step})
    reporter.close()
    points = read_records(tmp_path).curves["train/loss"]
    assert [step for step, _ in points] == list(range(1, 511))


def test_records_that_cannot_be_read_are_told(runs, tmp_path, caplog):
    logs = shutil.copytree(runs[0] / "logs", tmp_path / "logs")
    read_records(logs)
    assert "corrupt" not in caplog.text
    path = max(logs.iterdir(), key=lambda path: path.stat().st_size)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    records = read_records(logs)
    assert re.search(f"{path} is corrupt after [1-9]\\d* records", caplog.text)
    assert records.last_step() > 0


def test_lines_of_flags_end_at_newlines_alone(tmp_path):
    path = shutil.copytree(FIXTURE / "run", tmp_path / "run")
    lines = ["--train_files=a\u2028b", "--beam_size=4"]
    (path / "flags.txt").write_text("\n".join([*lines, ""]), encoding="utf-8")
    assert report.read_run(path, "run").flag_lines == lines


@pytest.mark.parametrize(
    "flags, message",
    [
        ((), "expected --workdir=DIR"),
        (("--workdir=x",), "expected --output=FILE"),
        (("--workdir=x", "--output=a.svg"), "ends with .html. Received"),
        (("--workdir=x", "--output=a.html"), "made by trainers.wmt"),
        (
            ("--workdir=x", "--output=a.html", "--samples=0", "--test_files=p"),
            "test_files has no effect without samples.",
        ),
        (
            (
                "--workdir=x",
                "--compare=y",
                "--output=a.html",
                "--checkpoint=x/best/ckpt-1",
            ),
            "with compare, checkpoint must be one of averaged, best, latest",
        ),
        (("--workdir=x", "--output=/proc/a.html"), "cannot be written: /proc"),
        (
            (f"--workdir={FIXTURE}/run", "--output=a.html"),
            "expected pairs to translate: --test_files=PREFIX, or --samples=0",
        ),
    ],
)
def test_bad_input_is_one_line(flags, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert message in fails(report.main, flags, capsys)
    assert list(tmp_path.iterdir()) == []


def test_a_report_without_matplotlib_is_refused(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delattr(report, "load_tensorflow")  # refused before that
    message = fails(report.main, ("--workdir=x", "--output=a.html"), capsys)
    assert "a report needs the extra 'figures': pip install" in message


def test_runs_of_other_languages_are_not_compared(runs):
    one, two = (report.read_run(path, path.name) for path in runs)
    report.check_comparable([one, two])
    two.sections["data"]["target_language"] = "fr"
    with pytest.raises(ValueError, match="Received: en-de and en-fr"):
        report.check_comparable([one, two])
