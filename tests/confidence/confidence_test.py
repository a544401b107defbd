"""Calibrated confidence: the regression, its file, and the commands."""

import dataclasses
import functools
import io
import json
import pathlib
import shutil
import sys
import types

import exports
import numpy as np
import pytest
import sharing
from commands import fails
from scipy import optimize, stats

import keras_transformer as kt
from keras_transformer.confidence import assessment, calibration, features
from keras_transformer.confidence.calibration import FEWEST
from keras_transformer.confidence.regression import (
    PENALTY,
    Regression,
    bins_of,
    calibration_error,
    rank_correlation,
)
from keras_transformer.confidence.report import Report
from keras_transformer.data.files.pairs import Pairs
from keras_transformer.storage.checkpoints import named_weights
from keras_transformer.storage.workdir import WorkDirectory
from keras_transformer.translation.metrics import make_metric, sentence_chrf
from savedmodel import export
from trainers import evaluate, import_model, translate
from trainers.run import validation
from trainers.run.data_config import DataConfig
from trainers.run.training_config import TrainingConfig

FIXTURES = pathlib.Path(__file__).parents[1] / "fixtures"
LINES = ["one dog", "", "the house is green", "two red dogs"]


def examples(number, seed=0):
    """Random features, and truths drawn by a known logistic function."""
    random = np.random.default_rng(seed)
    x = random.normal([0, 5, -1], [1, 3, 0.1], (number, 3))
    logits = 0.5 + 1.5 * x[:, 0] - 0.4 * (x[:, 1] - 5)
    chances = 1 / (1 + np.exp(-logits))
    return x, (random.random(number) < chances).astype(float), chances


# The regression


def test_the_fit_minimizes_the_penalized_loss():
    """Against a general minimizer, with features that are standardized."""
    x, truth, _ = examples(400)
    fitted = Regression.fit(x, truth)
    z = (x - x.mean(0)) / x.std(0)

    def loss(weights):
        logits = weights[0] + z @ weights[1:]
        nll = np.logaddexp(0, logits) - truth * logits
        return nll.sum() + PENALTY / 2 * (weights[1:] ** 2).sum()

    expected = optimize.minimize(loss, np.zeros(4), tol=1e-10).x
    np.testing.assert_allclose(fitted.weights, expected, atol=1e-4)
    assert fitted(x).mean() == pytest.approx(truth.mean(), abs=1e-6)
    logits = fitted.parts(x).sum(1)
    np.testing.assert_allclose(fitted(x), 1 / (1 + np.exp(-logits)))


def test_the_fit_finds_the_true_probabilities():
    x, truth, chances = examples(20_000)
    found = Regression.fit(x, truth)(x)
    assert abs(found - chances).mean() < 0.01
    assert calibration_error(bins_of(found, truth)) < 0.02


def test_a_constant_feature_changes_nothing():
    x, truth, _ = examples(300)
    constant = np.concatenate([x, np.ones((300, 1))], axis=1)
    np.testing.assert_allclose(
        Regression.fit(x, truth)(x),
        Regression.fit(constant, truth)(constant),
        atol=1e-6,
    )


def test_separable_examples_have_finite_weights():
    x = np.arange(40.0)[:, None]
    found = Regression.fit(x, (x[:, 0] > 19).astype(float))
    assert np.isfinite(found.weights).all()
    assert (np.diff(found(x)) > 0).all()


def test_calibration_error_and_correlation_are_the_textbooks():
    random = np.random.default_rng(4)
    chances, truth = random.random(57), random.random(57).round()
    expected = sum(
        len(part) / 57 * abs(chances[part].mean() - truth[part].mean())
        for part in np.array_split(np.argsort(chances, kind="stable"), 10)
    )
    bins = bins_of(chances, truth)
    assert calibration_error(bins) == pytest.approx(expected)
    assert sum(one.number for one in bins) == 57
    assert [one.low for one in bins] == sorted(one.low for one in bins)
    scores = random.integers(0, 9, 57)  # with ties
    assert rank_correlation(chances.round(1), scores) == pytest.approx(
        stats.spearmanr(chances.round(1), scores)[0]
    )


def test_the_report_counts_those_given_90_percent():
    chances, chrf = [0.95, 0.9, 0.92, 0.5], [100, 69.9, 70, 100]
    values = Report.of(chances, chrf).values
    assert values["share_of_90"] == 0.75
    assert values["acceptable_of_90"] == pytest.approx(2 / 3)
    assert values["acceptable"] == 0.75
    assert Report.of([0.1, 0.2], [1, 99]).values["acceptable_of_90"] is None


# The calibration of a model


@functools.cache
def pairs():
    """Sources with the model's own translation, or another one, in turns."""
    found = [source for source, _ in exports.make_pairs(300)]
    own = exports.translator().translate(found)
    return [
        (source, text if i % 3 else own[(i + 1) % 300])
        for i, (source, text) in enumerate(zip(found, own, strict=True))
    ]


@functools.cache
def calibrated():
    """Returns a calibrated work directory."""

    def make(path):
        shutil.copytree(exports.workdir(), path)
        kt.Translator.load(path).calibrate(pairs())

    return sharing.make_once("calibrated", make)


@pytest.fixture(params=["native", "ctranslate2"])
def translator(request):
    return kt.Translator.load(calibrated(), engine=request.param)


def test_the_measure_is_of_examples_that_were_not_fitted():
    """Random features have no worth, though a fit to them finds some."""
    random = np.random.default_rng(0)
    count = len(features.FEATURES)
    made = [
        features.Evidence("en-de", "a", random.normal(size=count), [-1.0], [])
        for _ in range(300)
    ]
    references = ["ab"[i % 2] for i in range(300)]
    fitted = calibration.fit(made, references, "ckpt-1")
    assert abs(fitted.measured["correlation"]) < 0.15
    chances, _ = fitted.of_sentences(made)
    chrf = [sentence_chrf("a", one) for one in references]
    assert Report.of(chances, chrf).values["correlation"] > 0.15
    assert fitted.measured["pairs"] == 300
    assert fitted.measured["acceptable"] == 0.5
    assert fitted.words is None  # too few


def test_few_pairs_or_one_kind_are_no_calibration():
    random = np.random.default_rng(0)
    count = len(features.FEATURES)

    def fit(number, reference):
        made = [
            features.Evidence(
                "en-de", "abc", random.normal(size=count), [-1.0], []
            )
            for _ in range(number)
        ]
        return calibration.fit(made, [reference] * number, "ckpt-1")

    with pytest.raises(ValueError, match="at least 200 .* Received: 199"):
        fit(199, "abc")
    with pytest.raises(ValueError, match="Received: 250 acceptable of 250"):
        fit(250, "abc")
    with pytest.raises(ValueError, match="Received: 0 acceptable of 250"):
        fit(250, "x")


def test_the_file_keeps_the_calibration(tmp_path):
    path = pathlib.Path(calibrated(), "confidence.json")
    found = calibration.Calibration.read(path)
    found.write(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == path.read_bytes()
    assert found.checkpoint == "ckpt-3"
    assert set(found.lengths) == {"", "en-de"}
    values = json.loads(path.read_text())
    values["lengths"][""] += 1
    (tmp_path / "a").write_text(json.dumps(values))
    with pytest.raises(ValueError, match="a: .*checksum|a: .*chang"):
        calibration.Calibration.read(tmp_path / "a")


def test_a_calibration_of_other_features_is_refused(tmp_path, monkeypatch):
    found = calibration.Calibration.read(calibrated() / "confidence.json")
    monkeypatch.setattr(calibration, "FEATURES", {"margin": "", "old": ""})
    found.write(tmp_path / "a")
    monkeypatch.undo()
    expected = "run kt-evaluate --calibrate again.*margin, old.*"
    with pytest.raises(ValueError, match=expected):
        calibration.Calibration.read(tmp_path / "a")


def test_engines_give_the_same_probabilities():
    both = [
        kt.Translator.load(calibrated(), engine=engine)
        for engine in ("native", "ctranslate2")
    ]
    sentences = [source for source, _ in pairs()[:40]]
    found = both[0].search(sentences, num_best=2)
    first, second = (one.assessor().assess(sentences, found) for one in both)
    for own, other in zip(first, second, strict=True):
        assert own.probability == pytest.approx(other.probability, abs=1e-3)
        assert own.words == pytest.approx(other.words, abs=1e-3)
        assert own.findings == other.findings
    assert len({round(own.probability, 3) for own in first}) > 5


def test_a_sentence_is_assessed_alone_as_among_others(translator):
    assessor = translator.assessor()
    found, together = assessor.search(LINES)
    assert [one.texts for one in found] == [
        [text] for text in translator.translate(LINES)
    ]
    for line, own in zip(LINES, together, strict=True):
        [[alone]] = [assessor.search([line])[1]]
        assert own.probability == pytest.approx(alone.probability, abs=1e-4)
    assert together[1] == assessment.Assessment(1.0, [], [])  # blank
    for one, text in zip(together, found, strict=True):
        assert len(one.words) in (0, len(text.texts[0].split()))
        assert 0 <= one.probability <= 1


def test_reasons_are_findings_or_else_the_doubt():
    make = functools.partial(assessment.Assessment, words=[], doubt="unsure")
    finding = assessment.Finding("number", "number 3 is missing")
    question = finding._replace(is_question=True)
    assert make(0.49, findings=[]).reasons == ["unsure"]
    assert make(0.5, findings=[]).reasons == []
    assert make(0.9, findings=[finding]).reasons == ["number 3 is missing"]
    assert make(0.9, findings=[question]).is_at_least(0.9)
    assert not make(0.9, findings=[finding]).is_at_least(0.9)
    assert not make(0.89, findings=[]).is_at_least(0.9)


def test_a_translator_without_a_calibration_says_how_to_make_one(tmp_path):
    with pytest.raises(ValueError, match="kt-evaluate --calibrate makes"):
        exports.translator().assessor()
    other = shutil.copytree(calibrated(), tmp_path / "a")
    weights = {"weights": named_weights(exports.translator().model)}
    WorkDirectory(other).averaged.save(weights, step=4, keep=1)
    with pytest.raises(ValueError, match="calibration of ckpt-4.* ckpt-3"):
        kt.Translator.load(other).assessor()
    ensemble = kt.Translator.load([calibrated(), exports.workdir()])
    with pytest.raises(ValueError, match="one model .* Received: 2 models"):
        ensemble.assessor()
    sampled = dataclasses.replace(
        exports.DECODING, beam_size=1, sampling=True, length_penalty=0.0
    )
    with pytest.raises(ValueError, match="without sampling"):
        kt.Translator.load(calibrated(), sampled).assessor()


def test_training_calibrates_at_its_end(tmp_path):
    run = shutil.copytree(exports.workdir(), tmp_path / "run")
    translator, lines = kt.Translator.load(run), []

    def finish(valid_pairs):
        experiment = types.SimpleNamespace(
            data=DataConfig(),
            metric=make_metric({"": "de"}, "auto"),
            valid_pairs=Pairs.of(valid_pairs),
        )
        validation.calibrate(experiment, translator, lines.append)

    finish([])
    finish(pairs()[:199])
    assert lines == [
        "confidence: not calibrated: expected at least 200 validation pairs to"
        " calibrate. Received: 199"
    ]
    assert not (run / "confidence.json").exists()
    finish(pairs())
    made = calibration.Calibration.read(run / "confidence.json")
    assert made.measured["pairs"] == 300
    assert made.checkpoint == "ckpt-3"
    error = f"calibration error {made.measured['calibration_error']:.3f}"
    assert error in lines[-1] and "300 validation pairs" in lines[-1]


# Commands


def test_lines_have_probability_and_reason(capsys, monkeypatch):
    text = "\n".join([*LINES, "three dogs 4711"])
    buffer = io.TextIOWrapper(io.BytesIO(text.encode()), "utf-8")
    monkeypatch.setattr(sys, "stdin", buffer)
    translate.main([f"--workdir={calibrated()}", "--confidence"])
    rows = [
        line.split(" ||| ") for line in capsys.readouterr().out.splitlines()
    ]
    assessor = kt.Translator.load(calibrated()).assessor()
    found, assessed = assessor.search(text.split("\n"))
    expected = [
        [of.texts[0], f"{one.probability:.2f}"]
        + ["; ".join(one.reasons)] * bool(one.reasons)
        for of, one in zip(found, assessed, strict=True)
    ]
    assert rows == expected
    assert rows[1] == ["", "1.00"]


def test_evaluate_calibrates_and_measures(capsys, tmp_path):
    run = shutil.copytree(exports.workdir(), tmp_path / "run")
    WorkDirectory(run).replace_section("training", TrainingConfig())
    for language, side in zip(
        ["en", "de"], zip(*pairs(), strict=True), strict=True
    ):
        (tmp_path / f"some.{language}").write_text("\n".join(side) + "\n")
    argv = [f"--workdir={run}", f"--test_files={tmp_path / 'some'}"]
    assert "kt-evaluate --calibrate" in fails(
        evaluate.main, [*argv, "--confidence"], capsys
    )
    evaluate.main([*argv, "--calibrate"])
    measured = json.loads(capsys.readouterr().out)
    made = calibration.Calibration.read(run / "confidence.json")
    assert made.measured == measured and measured["pairs"] == 300
    others = "--output=a --compare=a --score_command=a --confidence"
    for option in others.split():
        error = fails(evaluate.main, [*argv, "--calibrate", option], capsys)
        assert "calibrate=True excludes" in error
    wrong = [*argv, "--confidence", f"--confidence_plot={tmp_path / 'a.gif'}"]
    assert "ends with .svg or" in fails(evaluate.main, wrong, capsys)
    figure = tmp_path / "a.svg"
    evaluate.main([*argv, "--confidence", f"--confidence_plot={figure}"])
    *table, last = capsys.readouterr().out.splitlines()
    values = json.loads(last)["confidence"]
    sources, references = zip(*pairs(), strict=True)
    found, assessed = kt.Translator.load(run).assessor().search(sources)
    chrf = [
        sentence_chrf(of.texts[0], reference)
        for of, reference in zip(found, references, strict=True)
    ]
    report = Report.of([one.probability for one in assessed], chrf)
    assert table == report.table() and len(table) == 11
    assert values == pytest.approx(report.values, abs=1e-3)
    assert "probability, %" in figure.read_text()
    text = json.loads(last)
    assert text["sentences"] == 300


def test_a_model_from_several_languages_is_calibrated(tmp_path, capsys):
    """Without --source_language, each pair has the direction of its file."""
    run = tmp_path / "run"
    source = FIXTURES / "m2m100"
    import_model.main([f"--source={source}", f"--workdir={run}"])
    sources = [source for source, _ in exports.make_pairs(FEWEST)]
    own = kt.Translator.load(run).with_languages("en", "de")
    found = own.translate(sources)
    found[::3] = sources[::3]  # not acceptable
    for language, side in ("en", sources), ("de", found):
        (tmp_path / f"some.{language}").write_text("\n".join(side) + "\n")
    capsys.readouterr()
    argv = [f"--workdir={run}", f"--test_files={tmp_path / 'some'}"]
    evaluate.main([*argv, "--calibrate"])
    measured = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert measured["pairs"] == 2 * FEWEST  # in both directions
    made = calibration.Calibration.read(run / "confidence.json")
    assert {*made.lengths} == {"", "en-de", "de-en"}


def test_a_packed_model_keeps_its_calibration(tmp_path, capsys):
    run = shutil.copytree(calibrated(), tmp_path / "run")
    argv = [f"--workdir={run}", "--format=packed"]
    export.main([*argv, f"--output={tmp_path / 'a'}"])
    kt.Translator.load(tmp_path / "a").assessor()
    error = fails(
        evaluate.main, [f"--workdir={tmp_path / 'a'}", "--calibrate"], capsys
    )
    assert "a packed model" in error
