"""The report of a run: its records, its translations, its page."""

import math
import pathlib
import re
import shutil

import numpy as np
import pages
import pytest
import sacrebleu
from commands import fails

from trainers import report, report_page
from trainers.progress import Reporter
from trainers.records import Records, read_records

FIXTURE = pathlib.Path(__file__).parent / "fixtures/workdir_0_1"


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
    nothing = read_records(runs[0] / "none")
    assert nothing == Records({}, 0) and nothing.last_step() == 0


def test_the_page_asks_for_nothing_and_keeps_names_as_text(page):
    pages.assert_offline(page)
    elements = pages.Elements(page)
    assert not elements.of("script") and not elements.of("two")
    _, _, title = elements.of("title")[0]
    assert title == "Training of one and <two> & more"


def test_curves_of_both_runs_share_their_axes(page):
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
    drawings = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    lines = [pages.drawing(svg).get("polyline", []) for svg in drawings]
    assert [len(found) for found in lines] == [2, 2, 0, 2, 2, 2]
    assert len({line["stroke"] for line, _ in lines[0]}) == 2
    # The loss of the second run is twice that of the first.
    heights = [
        [float(point.split(",")[1]) for point in line["points"].split()]
        for line, _ in lines[0]
    ]
    one, two = np.array(heights)
    assert len(one) == len(two) == 6
    slope = (two - two[0]) / (one - one[0] + 1e-9)
    np.testing.assert_allclose(slope[1:], 2, rtol=0.02)
    # Both speeds are the same, and so is the axis of steps in all plots.
    assert lines[4][0][0]["points"] == lines[4][1][0]["points"]
    places = [
        [point.split(",")[0] for point in found[0][0]["points"].split()]
        for found in (lines[0], lines[3], lines[4])
    ]
    assert places[0] == places[1] == places[2]
    assert "1 recorded values are infinite" in page


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
    report.translate(run, translator, pairs)
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
    html = report_page.make_page([run], what)
    for heading, best in (("Best by", 0), ("Worst by", 4)):
        after = html.split(f"<h3>{heading}")[1]
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

    def encode(self, sources):
        import tensorflow as tf

        return tf.ragged.constant([[*source.split(), ""] for source in sources])

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
    assert report.score_by_length([], score) == []


def test_a_report_without_records_or_samples_says_so(tmp_path, capsys):
    output = tmp_path / "a.html"
    flags = [f"--workdir={FIXTURE}/run", "--samples=0", f"--output={output}"]
    report.main(flags)
    page = output.read_text("utf-8")
    assert "run: there are no records in its logs/." in page
    assert "<h2>Translations" not in page and "<svg" not in page
    assert capsys.readouterr().out == f"{output}\n"


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
            (f"--workdir={FIXTURE}/run", "--output=a.html"),
            "expected pairs to translate: --test_files=PREFIX, or --samples=0",
        ),
    ],
)
def test_bad_input_is_one_line(flags, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert message in fails(report.main, flags, capsys)
    assert list(tmp_path.iterdir()) == []


def test_runs_of_other_languages_are_not_compared(runs):
    one, two = (report.read_run(path, path.name) for path in runs)
    report.check_comparable([one, two])
    two.sections["data"]["target_language"] = "fr"
    with pytest.raises(ValueError, match="Received: en-de and en-fr"):
        report.check_comparable([one, two])
