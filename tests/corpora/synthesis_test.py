"""Synthetic pairs: the translations of `kt-translate`, then filtered."""

import collections
import dataclasses
import gzip
import io
import itertools
import json
import math
import os
import random
import shlex
import shutil
import sys

import exports
import numpy as np
import pytest
import yaml
from commands import ROOT, fails, write_pairs

import keras_transformer as kt
from keras_transformer.config import DecodingConfig, TransformerConfig
from keras_transformer.data.files.pairs import Pairs
from keras_transformer.storage.workdir import WorkDirectory
from trainers import synthesize, translate, wmt
from trainers.datasets.dataset import read_split
from trainers.run.data_config import DataConfig
from trainers.run.training_config import Configuration, TrainingConfig
from trainers.run.vocabularies import open_tokenizer
from trainers.synthesis import steps
from trainers.synthesis.pairs import FILLER, PairFilter, add_noise
from trainers.synthesis.plan import (
    CorpusOptions,
    Filters,
    StepOptions,
    read_plan,
)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """The prefix of 60 original pairs of English and German."""
    prefix = tmp_path_factory.mktemp("corpus") / "train"
    return write_pairs(prefix, exports.make_pairs(60))


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A file of English lines. Some repeat, and one is blank."""
    lines = [pair[0] for pair in exports.make_pairs(90)[60:]]
    path = tmp_path_factory.mktemp("text") / "mono.en.gz"
    with gzip.open(path, "wt") as file:
        file.writelines(f"{line}\n" for line in [*lines[:5], "", *lines])
    return str(path)


@pytest.fixture(scope="module")
def distinct(text):
    with gzip.open(text, "rt") as file:
        return [line for line in dict.fromkeys(file.read().split("\n")) if line]


@pytest.fixture
def make_plan(tmp_path, original, text):
    """A function that writes a one-step plan from German to English."""

    def make(filters=None, languages=("de", "en"), **step):
        path = tmp_path / "plan.yaml"
        plan = {
            "source_language": languages[0],
            "target_language": languages[1],
            "train_files": [original],
            "output": str(tmp_path / "out"),
            "filters": filters or {"clean": False},
            "steps": [{"name": "made", **step}],
        }
        if "kind" not in step:
            back = {"backward": [str(exports.workdir())], "text": [text]}
            plan["steps"] = [{"name": "made", **back, **step}]
        path.write_text(yaml.safe_dump(plan, sort_keys=False))
        return [f"--config={path}"]

    return make


@pytest.fixture(scope="module")
def loaded():
    """Translators by options, since the first search of each takes seconds."""
    return {}


@pytest.fixture
def quick(monkeypatch, loaded):
    """Loads a translator once per search, and makes shards of 10 lines."""

    def load(choice):
        key = str(choice)
        if key not in loaded:
            loaded[key] = open_translator(choice)
        return loaded[key]

    open_translator = steps.open_translator
    monkeypatch.setattr(steps, "open_translator", load)
    monkeypatch.setattr(steps, "SHARD_LINES", 10)


def lines_of(path):
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        return file.read().split("\n")[:-1]


def translations(lines, monkeypatch, capsysbinary, *options):
    """Returns the translations of lines by `kt-translate`."""
    text = io.BytesIO("".join(f"{line}\n" for line in lines).encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(text))
    capsysbinary.readouterr()
    translate.main([f"--workdir={exports.workdir()}", *options])
    return capsysbinary.readouterr().out.decode().split("\n")[:-1]


def contents(directory):
    """Returns the bytes of the corpora in a directory."""
    return {p.name: p.read_bytes() for p in directory.glob("*.gz")}


# ---------------------------------------------------------------- translation


@pytest.mark.slow("run")
def test_back_translations_are_those_of_translate(
    make_plan, tmp_path, distinct, quick, monkeypatch, capsysbinary
):
    synthesize.main(make_plan(tag="<BT>", beam_size=2, length_penalty=1.1))
    assert lines_of(tmp_path / "out/made.en.gz") == distinct
    flags = ("--beam_size=2", "--length_penalty=1.1")
    expected = translations(distinct, monkeypatch, capsysbinary, *flags)
    found = lines_of(tmp_path / "out/made.de.gz")
    assert found == [f"<BT> {line}" for line in expected]
    assert len(list((tmp_path / "out/made/backward_1").glob("0*"))) == 3


@pytest.mark.slow("run")
def test_distillation_and_diversification_translate_the_corpus(
    make_plan, tmp_path, original, quick, monkeypatch, capsysbinary
):
    """The second model is the first one; its pairs are duplicates."""
    english, german = (
        list(dict.fromkeys(side))
        for side in zip(*read_split_of(original), strict=True)
    )
    expected = translations(english, monkeypatch, capsysbinary)
    models = [str(exports.workdir())] * 2
    step = {"kind": "distillation", "forward": models}
    synthesize.main(make_plan(languages=("en", "de"), **step))
    assert lines_of(tmp_path / "out/made.en.gz") == 2 * english
    assert lines_of(tmp_path / "out/made.de.gz") == 2 * expected

    other = tmp_path / "de_en"  # says that it translates German
    shutil.copytree(exports.workdir(), other)
    data = DataConfig(max_length=16, source_language="de", target_language="en")
    WorkDirectory(other).replace_section("data", data)
    step = {"kind": "diversification", "forward": models}
    rules = {"check_language": False, "drop_identical": False, "max_ratio": 0}
    plan = make_plan(
        rules, ("en", "de"), **step, name="both", backward=[str(other)]
    )
    synthesize.main(plan)
    originals = set(read_split_of(original))
    forward = set(zip(english, expected, strict=True)) - originals
    sides = (lines_of(tmp_path / f"out/both.{x}.gz") for x in ("en", "de"))
    found = list(zip(*sides, strict=True))
    assert set(found[: len(forward)]) == forward
    backward = found[len(forward) :]
    assert backward and {target for _, target in backward} <= set(german)
    report = json.loads((tmp_path / "out/report.json").read_text())
    record = report["steps"]["both"]
    made = 2 * len(english) + len(german)
    assert record["made"] == made and record["kept"] == len(found)
    dropped = made - len(found)
    assert sum(record["dropped"].values()) == dropped
    assert record["dropped"].keys() == {"empty", "duplicate"}
    assert dropped >= len(english) and record["settings"]["name"] == "both"


@pytest.mark.slow("family")
def test_a_teacher_may_be_an_ensemble(make_plan, tmp_path, quick, capsys):
    """The same model twice translates as once."""
    once = str(exports.workdir())
    step = {"kind": "distillation", "languages": ("en", "de")}
    synthesize.main(make_plan(**step, forward=[once]))
    expected = contents(tmp_path / "out")
    shutil.rmtree(tmp_path / "out")
    twice = f"{once},{once}"
    synthesize.main(make_plan(**step, forward=[twice], ensemble="log_linear"))
    found = contents(tmp_path / "out")
    assert lines_of(tmp_path / "out/made.de.gz")
    assert {name: gzip.decompress(data) for name, data in found.items()} == {
        name: gzip.decompress(data) for name, data in expected.items()
    }
    plan = make_plan(**step, forward=[f"{once},missing"])
    assert "missing/config.json" in fails(synthesize.main, plan, capsys)


def test_distillation_translates_more_text(
    make_plan, tmp_path, original, quick, monkeypatch, capsysbinary
):
    english = [source for source, _ in read_split_of(original)]
    text = [english[3], "a man and a small boy", "a boy", "a boy"]
    more = tmp_path / "more.en.gz"
    with gzip.open(more, "wt", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in text)
    step = {"kind": "distillation", "forward": [str(exports.workdir())]}
    argv = make_plan(languages=("en", "de"), **step, text=[str(more)])
    synthesize.main(argv)
    expected = list(dict.fromkeys(filter(None, english + text)))
    found = translations(expected, monkeypatch, capsysbinary)
    assert lines_of(tmp_path / "out/made.en.gz") == expected
    assert lines_of(tmp_path / "out/made.de.gz") == found


def read_split_of(prefix):
    return read_split(
        DataConfig(dataset="files", train_files=(prefix,)), "train"
    )


def test_samples_repeat_and_depend_on_the_step(
    make_plan, tmp_path, quick, capsys
):
    found = []
    for name in ("a", "b", "a"):
        synthesize.main(make_plan(name=name, search="sampling"))
        found.append(lines_of(tmp_path / f"out/{name}.de.gz"))
        shutil.rmtree(tmp_path / "out")
    synthesize.main(make_plan(name="a"))
    found.append(lines_of(tmp_path / "out/a.de.gz"))
    assert found[0] == found[2]
    assert len({tuple(lines) for lines in found}) == 3


# -------------------------------------------------------------------- filters

ENGLISH = "the dog runs on the green grass of the park".split()
DUTCH = "de hond rent over het groene gras van het park".split()


def make_originals(number):
    generator = random.Random(3)
    pairs = [
        tuple(" ".join(generator.choices(words, k=8)) for words in sides)
        for sides in [(ENGLISH, DUTCH)] * number
    ]
    return Pairs(lambda: iter(pairs), number)


def test_each_filter_counts_its_pairs():
    """Two pairs of each kind, but of what is kept three."""
    first, last, *_ = make_originals(9)
    english, dutch = ("the dog runs", "de hond rent")
    made = {
        "": [
            (english, dutch),
            ("the green park", dutch),
            ("the dog", "het gras"),
        ],
        "empty": [("", dutch), (english, "")],
        "identical": [(english, english), (dutch, dutch)],
        "few_letters": [("the 12345678", dutch), (english, "het 12345678")],
        "language": [(english, "the green grass"), ("het gras", dutch)],
        "uneven": [(english, " ".join(DUTCH)), (" ".join(ENGLISH), "het gras")],
        "improbable": [("the grass of the park", dutch), (english, "het park")],
        "unsure": [("the park of the grass", dutch), (english, "het gras")],
        "duplicate": [first, (english, dutch)],
    }
    rows = [(p, reason) for reason, pairs in made.items() for p in pairs]
    pairs, expected = zip(*rows, strict=True)
    lengths = np.array([[len(s.split()) + 1 for s in pair] for pair in pairs]).T
    log_probs = np.where(np.array(expected) == "improbable", -1.6, -1.5)
    chances = np.where(np.array(expected) == "unsure", 0.4, 0.5)

    def judged(filters, are_replaced):
        judge = PairFilter(filters, make_originals(9), are_replaced)
        reasons = judge.judge(list(pairs), lengths, log_probs, chances)
        judge.judge_duplicates(reasons, steps.cleaning.hash_pairs(pairs))
        return reasons.tolist()

    filters = Filters(max_ratio=2.5, min_log_prob=-1.5, min_confidence=0.5)
    assert judged(filters, are_replaced=False) == list(expected)
    # `first` is in no other corpus of the training then.
    expected = ["" if pair == first else r for pair, r in rows]
    assert judged(filters, are_replaced=True) == expected
    counts = collections.Counter(judged(Filters(clean=False), False))
    assert counts == {"": len(pairs) - 2, "empty": 2}


def test_the_threshold_is_a_log_probability_per_token(
    make_plan, tmp_path, distinct, quick
):
    """The value is `Translator.score`'s. Half of the pairs are below it."""
    synthesize.main(make_plan())
    outputs = lines_of(tmp_path / "out/made.de.gz")
    scored = exports.translator().score(
        list(zip(distinct, outputs, strict=True))
    )
    means = [np.mean(score.log_probs) for score in scored]
    limit = float(np.median(means)) - 1e-3
    rules = {"clean": False, "min_log_prob": limit}
    synthesize.main(make_plan(rules))
    left = [o for o, mean in zip(outputs, means, strict=True) if mean > limit]
    assert 3 < len(left) < len(outputs) - 3
    assert lines_of(tmp_path / "out/made.de.gz") == left
    record = json.loads((tmp_path / "out/made/record.json").read_text())
    dropped = len(outputs) - len(left)
    assert record["dropped"] == {"improbable": dropped}
    assert record["kept"] == len(left)
    tokens = sum(
        len(s.ids) for s, m in zip(scored, means, strict=True) if m > limit
    )
    assert record["source_tokens"] == tokens != record["target_tokens"]


def test_unsure_translations_are_dropped(
    make_plan, tmp_path, distinct, quick, capsys
):
    rules = {"clean": False, "min_confidence": 0.5}
    message = fails(synthesize.main, make_plan(rules), capsys)
    assert "which kt-evaluate --calibrate makes" in message
    assert not (tmp_path / "out").exists()
    run = tmp_path / "run"
    exports.calibrated(run)
    found, assessed = kt.Translator.load(run).assessor().search(distinct)
    chances = [one.probability for one in assessed]
    rules["min_confidence"] = limit = float(np.median(chances)) - 1e-4
    synthesize.main(make_plan(rules, backward=[str(run)]))
    left = [
        one.texts[0]
        for one, chance in zip(found, chances, strict=True)
        if chance > limit
    ]
    assert 3 < len(left) < len(found) - 3
    assert lines_of(tmp_path / "out/made.de.gz") == left
    record = json.loads((tmp_path / "out/made/record.json").read_text())
    assert record["dropped"] == {"unsure": len(found) - len(left)}


# ---------------------------------------------------------------------- noise


def test_noise_deletes_fills_and_moves():
    """Each share is within five standard deviations of its expected value."""
    words = [str(number) for number in range(20)]
    counts = collections.Counter()
    for seed in range(2000):
        found = add_noise(" ".join(words), random.Random(seed)).split()
        assert found == add_noise(" ".join(words), random.Random(seed)).split()
        numbers = [int(word) for word in found if word != FILLER]
        counts["kept"] += len(found)
        counts["filled"] += len(found) - len(numbers)
        counts["moved"] += numbers != sorted(numbers)
        if len(numbers) == len(words):
            shifts = [abs(n - place) for place, n in enumerate(numbers)]
            counts[max(shifts)] += 1
    total = 2000 * len(words)
    for share, found, number in (
        (0.9, counts["kept"], total),
        (0.1, counts["filled"], counts["kept"]),
    ):
        deviation = math.sqrt(number * share * (1 - share))
        assert abs(found - share * number) < 5 * deviation
    assert counts["moved"] > 1990
    assert counts[3] and not any(counts[n] for n in range(4, 20))
    short = {add_noise("a", random.Random(n)) for n in range(99)}
    assert short == {"a", FILLER}


def test_noise_is_that_of_the_line(make_plan, tmp_path, quick):
    synthesize.main(make_plan())
    clean = lines_of(tmp_path / "out/made.de.gz")
    synthesize.main(make_plan(search="noised_beam", tag="<N>"))
    noised = lines_of(tmp_path / "out/made.de.gz")
    assert noised == [
        f"<N> {add_noise(line, random.Random(f'made {number}'))}"
        for number, line in enumerate(clean)
    ]
    assert sum(f"<N> {a}" != b for a, b in zip(clean, noised, strict=True)) > 9
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert report["command"][-1] == f"--vocabulary_symbols={FILLER},<N>"


# ------------------------------------------------------------ resume and change


class Killed(BaseException):
    """An exception that stands for the death of the process."""


def test_a_killed_command_is_resumed(
    make_plan, tmp_path, quick, monkeypatch, capsys
):
    """Killed at each of its renames, and once more while it writes."""
    argv = make_plan(tag="<BT>", search="noised_beam")
    synthesize.main(argv)
    expected = contents(tmp_path / "out")
    assert set(expected) == {"made.en.gz", "made.de.gz"}
    for moment in itertools.count():
        shutil.rmtree(tmp_path / "out")
        left = itertools.count(moment, -1)
        with monkeypatch.context() as patch:
            for name in ("rename", "replace"):
                real = getattr(os, name)

                def rename(*paths, real=real, left=left):
                    if not next(left):
                        raise Killed
                    real(*paths)

                patch.setattr(os, name, rename)
            try:
                synthesize.main(argv)
            except Killed:
                pass
            else:
                break
        capsys.readouterr()
        synthesize.main(argv)
        out = capsys.readouterr().out
        assert contents(tmp_path / "out") == expected
        # The report is last, after lines, plan, three shards (each with a
        # record), both sides of the pairs, and their record.
        assert ("finished already" in out) == (moment == 11), moment
    assert moment == 12
    capsys.readouterr()
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("made*")}
    synthesize.main(argv)
    out = capsys.readouterr().out
    assert "finished already" in out and "shard" not in out
    assert before == {p: p.stat().st_mtime_ns for p in tmp_path.rglob("made*")}


def test_a_changed_plan(make_plan, tmp_path, quick, monkeypatch, capsys):
    """Another search is refused; filters and tags need no translation."""
    synthesize.main(make_plan())
    plain = lines_of(tmp_path / "out/made.de.gz")
    first = contents(tmp_path / "out")
    for change, message in (
        ({"beam_size": 2}, "beam_size was 3 and is 2"),
        ({"search": "sampling"}, "sampling was False and is True"),
    ):
        err = fails(synthesize.main, make_plan(**change), capsys)
        assert message in err and str(tmp_path / "out/made") in err
        assert contents(tmp_path / "out") == first
    capsys.readouterr()
    synthesize.main(make_plan({"max_length": 5}, tag="<T>"))
    out = capsys.readouterr().out
    assert "shard" not in out and "with too many tokens (too_long)" in out
    found = lines_of(tmp_path / "out/made.de.gz")
    assert 0 < len(found) < len(plain)
    assert set(found) < {f"<T> {line}" for line in plain}
    synthesize.main(make_plan())
    assert contents(tmp_path / "out") == first
    # Killed when only one of its files is new; then the plan is as it was.
    replace = os.replace

    def replace_one(source, target):
        if str(target).endswith("made.de.gz"):
            raise Killed
        replace(source, target)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(os, "replace", replace_one)
        synthesize.main(make_plan({"max_length": 5}))
    assert contents(tmp_path / "out") != first
    synthesize.main(make_plan())
    assert contents(tmp_path / "out") == first


def test_nothing_left_is_an_error(make_plan, tmp_path, quick, capsys):
    rules = {"clean": False, "min_log_prob": -1e-9}
    err = fails(synthesize.main, make_plan(rules), capsys)
    assert "step made: no pair is left" in err
    assert not contents(tmp_path / "out")


# ------------------------------------------------------------ training command


@pytest.mark.parametrize("kind", ["back_translation", "distillation"])
def test_the_command_trains_on_the_pairs(
    make_plan, tmp_path, original, quick, capsys, kind
):
    if kind == "distillation":
        step = {"kind": kind, "forward": [str(exports.workdir())]}
        argv = make_plan(languages=("en", "de"), **step)
    else:
        argv = make_plan(tag="<BT>")
    synthesize.main(argv)
    line = capsys.readouterr().out.splitlines()[-1]
    command = shlex.split(line)
    assert command[0] == "kt-train"
    arguments, options = wmt.read_arguments(command[1:])
    data = wmt.read_configuration(arguments, options.preset).data
    made = str(tmp_path / "out/made")
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert report["command"] == command
    kept = report["steps"]["made"]["kept"]
    if kind == "distillation":
        assert data.train_files == (made,) and not data.mixture
        assert len(read_split(data, "train")) == kept
        return
    assert data.train_files == (original, made)
    assert read_split(data, "train").sizes == [60, kept]
    assert kept < 60
    assert (
        data.mixture == f"{original} 60, {made} {kept}, until 10; {original} 60"
    )
    assert data.vocabulary_symbols == ("<BT>",)


def test_a_tag_is_one_token(tmp_path, original):
    """In a new vocabulary, of the source only if there are two."""
    pairs = [(f"<BT> {s}", t) for s, t in read_split_of(original)]
    for names, model in (
        (("source", "target"), TransformerConfig(vocab_size=60)),
        (
            ("source",),
            TransformerConfig(vocab_size=50, source_vocab_size=50),
        ),
    ):
        configuration = Configuration(
            model,
            DataConfig(
                dataset="files",
                train_files=(original,),
                vocabulary_symbols=("<BT>", FILLER),
                share_vocabulary=len(names) == 2,
            ),
            TrainingConfig(),
            DecodingConfig(),
        )
        tokenizer = open_tokenizer(
            WorkDirectory(tmp_path), configuration, pairs, print
        )
        text = f"<BT> {FILLER} dog"
        for name in ("source", "target"):
            side = getattr(tokenizer, name)
            (ids,) = side.to_ids([text])
            pieces = [side.pieces[i] for i in ids[:2]]
            is_whole = pieces == ["\u2581<BT>", f"\u2581{FILLER}"]
            assert is_whole == (name in names)
            if is_whole:
                assert side.to_strings([ids]) == [text]


def test_a_vocabulary_without_the_tag_is_refused(tmp_path, original, capsys):
    given = exports.workdir() / "tokenizer.model"
    argv = ["--dataset=files", f"--train_files={original}"]
    argv += [f"--workdir={tmp_path}/run", "--train_steps=1"]
    argv += ["--vocabulary_symbols=<BT>"]
    for flag in (f"--tokenizer={given}", f"--init_from={exports.workdir()}"):
        err = fails(wmt.main, [*argv, flag], capsys)
        assert "Received: none for <BT>" in err
    argv[-1] = "--vocabulary_symbols=a b"
    assert "without white space" in fails(wmt.main, argv, capsys)


# ------------------------------------------------------------------- bad plans


@pytest.mark.parametrize(
    "step, message",
    [
        ({"beam": 4}, "plan.yaml: step 1: unknown fields: beam"),
        ({"sampling": True}, "step 1: unknown fields: sampling"),
        ({"beam_size": 0}, "step 1: beam_size must be at least 1"),
        ({"name": ""}, "step 1: expected name"),
        ({"name": "a/b"}, "step 1: name must be one word"),
        ({"tag": "a b"}, "step 1: tag must be one word"),
        ({"text": []}, "step 1: expected text"),
        ({"text": "mono.en"}, "step 1: text must be a list"),
        ({"text": ["no.en"]}, "step 1: expected a file no.en"),
        ({"backward": ["no"]}, "step 1: expected a file no/config.json"),
        ({"forward": ["x"]}, "forward excludes kind=back_translation"),
        ({"search": "greedy"}, "step 1: search must be one of 'beam'"),
        ({"kind": "magic"}, "step 1: kind must be one of"),
        ({"kind": "distillation"}, "step 1: expected forward"),
        (
            {"kind": "diversification", "text": ["x"]}
            | {"forward": ["y"], "backward": ["y"]},
            "text excludes kind=diversification",
        ),
        (
            {"kind": "distillation", "forward": ["x"], "tag": "<BT>"},
            "tag needs kind=back_translation",
        ),
    ],
)
def test_a_bad_step_is_named(make_plan, tmp_path, capsys, step, message):
    assert message in fails(synthesize.main, make_plan(**step), capsys)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "change, message",
    [
        (
            {"filters": {"max_ration": 2}},
            "yaml: filters: unknown fields: max_r",
        ),
        ({"filters": [2]}, "filters: expected fields by name"),
        (
            {"filters": {"clean": False, "check_language": False}},
            "filters: check_language=False needs clean=True",
        ),
        (
            {"filters": {"min_log_prob": 1}},
            "filters: min_log_prob must be below",
        ),
        ({"train_files": ["no"]}, "plan.yaml: No such file: no.de"),
        ({"source_language": False}, "source_language must be text"),
        ({"output": ""}, "plan.yaml: expected output"),
        ({"output": "my corpus"}, "must not contain white space"),
        ({"target_language": "nl", "source_language": "nl"}, "must differ"),
        ({"seed": 2}, "plan.yaml: unknown fields: seed"),
        ({"steps": {}}, "plan.yaml: steps must be a list"),
        ({"steps": ["x"]}, "step 1: expected fields by name"),
        (
            {"source_language": "en", "target_language": "de"},
            "backward models that translate de to en. Received: ",
        ),
    ],
)
def test_a_bad_plan_is_named(make_plan, tmp_path, capsys, change, message):
    argv = make_plan()
    path = tmp_path / "plan.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | change))
    assert message in fails(synthesize.main, argv, capsys)
    assert not (tmp_path / "out").exists()


def test_steps_have_names_of_their_own(make_plan, tmp_path, capsys):
    argv = make_plan()
    path = tmp_path / "plan.yaml"
    plan = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump(plan | {"steps": plan["steps"] * 2}))
    message = "step 2: name must be new. Received: 'made'"
    assert message in fails(synthesize.main, argv, capsys)


def test_what_is_missing_is_one_line(make_plan, monkeypatch, capsys, tmp_path):
    assert "--config=FILE" in fails(synthesize.main, [], capsys)
    argv = make_plan()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "yaml", None)
        err = fails(synthesize.main, argv, capsys)
    assert "keras-transformer-nmt[import]" in err
    (tmp_path / "text").write_bytes(b"\n \n")
    argv = make_plan(text=[str(tmp_path / "text")])
    assert "expected lines. Received: none" in fails(
        synthesize.main, argv, capsys
    )
    (tmp_path / "text").write_bytes(b"a dog\n\xff\n")
    assert "line 2: not UTF-8" in fails(synthesize.main, argv, capsys)


def test_a_plan_of_several_steps_has_one_command(tmp_path, original):
    """Half of a mixed epoch is back-translated, while the pairs last."""
    plan = {
        "source_language": "de",
        "target_language": "en",
        "train_files": [original, f"{original}2"],
        "output": "out",
    }
    back = {"backward": [str(exports.workdir())], "text": [f"{original}.en"]}
    both = {"backward": back["backward"], "forward": back["backward"]}
    plan["steps"] = [
        {"name": "a", "tag": "<T>", "search": "noised_beam", **back},
        {"name": "b", "kind": "diversification", **both},
        {"name": "c", **back},
    ]
    for language in ("en", "de"):
        shutil.copy(f"{original}.{language}", f"{original}2.{language}")
    path = tmp_path / "plan.yaml"
    path.write_text(yaml.safe_dump(plan))
    records = {"a": {"kept": 900}, "b": {"kept": 81}, "c": {"kept": 5}}
    command = steps.training_command(read_plan(path), [60, 9], records)
    rest = f"{original} 60, {original}2 9, out/b 81"
    assert command[3:] == [
        f"--train_files={original},{original}2,out/b,out/a,out/c",
        "--source_language=de",
        "--target_language=en",
        f"--mixture={rest}, out/a 75, out/c 5, until 10; {rest}",
        f"--vocabulary_symbols={FILLER},<T>",
    ]


def test_the_page_names_every_field():
    page = (ROOT / "docs/synthesis.md").read_text(encoding="utf-8")
    for section in (CorpusOptions, StepOptions, Filters):
        for field in dataclasses.fields(section):
            assert f"`{field.name}`" in page, field.name


def test_the_summary_has_tokens_a_pair():
    record = {
        **{"minutes": 1.25, "made": 2000, "kept": 1500},
        **{"source_tokens": 15_000, "target_tokens": 18_150},
        "dropped": {"too_long": 500},
    }
    assert [" ".join(line.split()) for line in steps.table({"back": record})][
        1:
    ] == [
        "2,000 translations",
        "-500 with too many tokens (too_long)",
        "1,500 pairs kept, 10.0 source and 12.1 target tokens a line",
    ]
