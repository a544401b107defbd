"""Packed models, the package's models, and model cards."""

import dataclasses
import functools
import glob
import io
import json
import logging
import os
import pathlib
import re
import shutil
import sys
import tomllib
import types
import unittest.mock

import numpy as np
import pytest
import sharing
import yaml
from commands import ROOT, changed_config, fails, write_sides
from exports import make_pairs
from safetensors.numpy import load_file
from tolerance import assert_close

from keras_transformer.base.files import with_checksum
from keras_transformer.config import DecodingConfig, TransformerConfig
from keras_transformer.data.languages import Languages
from keras_transformer.model import Transformer
from keras_transformer.storage import box, card
from keras_transformer.storage.checkpoints import (
    Checkpoint,
    named_weights,
    quantized,
)
from keras_transformer.storage.workdir import WorkDirectory
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.translator import Translator
from savedmodel import export, verify
from trainers import (
    align,
    average,
    evaluate,
    score,
    serve,
    translate,
    translate_corpus,
    translate_document,
    tune,
    visualize,
    wmt,
)
from trainers.run.data_config import DataConfig
from trainers.run.training_config import TrainingConfig
from trainers.serving import server
from trainers.serving.pairs import load_pairs
from trainers.translating.options import join_workdirs

FACTS = """
name = "Numbers"
license = "mpl-2.0"
purpose = "numbers: one, two"
[[data]]
name = "Counting"
license = "CC0"
[[scores]]
test = "tens"
direction = "en-de"
bleu = 12.5
"""
MODELS = {
    "en-xx": ("en", "de,fr", ""),
    "xx-en": ("de,fr", "en", "m2m100"),
}
PAIRS = "en-de, en-fr, de-en, fr-en"
LINES = ["one dog", "two trees", "", "red house three"]


def make_workdir(path, source, target, tokens):
    """Makes a work directory with random weights."""
    languages, directory = (
        Languages(source, target, tokens),
        WorkDirectory(path),
    )
    tokenizer = Tokenizer.train(
        [line for pair in make_pairs(99) for line in pair],
        vocab_size=80,
        symbols=[*languages.tags.values()],
        controls=languages.tokens,
    )
    config = TransformerConfig(
        vocab_size=tokenizer.vocab_size,
        **{"d_model": 16, "d_ff": 24, "num_heads": 2, "num_layers": 1},
    )
    model, random = Transformer(config), np.random.default_rng(1)
    for weight in model.weights:
        if len(weight.shape) > 1:
            weight.assign(0.5 * random.normal(size=weight.shape))
    directory.path.mkdir(parents=True)
    directory.save_tokenizer(tokenizer)
    directory.write_config(
        model=config,
        decoding=DecodingConfig(beam_size=2, extra_length=4),
        data=DataConfig(
            dataset="files",
            train_files=("/secret/train",),
            max_length=20,
            **vars(languages),
        ),
        training=TrainingConfig(),
    )
    directory.latest.save({"weights": named_weights(model)}, step=3, keep=1)
    if source == "en":
        (directory.path / "card.toml").write_text(FACTS)
    (directory.path / "NOTICE").write_text("(c) Somebody\n")


@functools.cache
def made():
    """Returns a folder: `runs` has work directories, `box` the packed ones."""

    def make(path):
        for name, languages in MODELS.items():
            make_workdir(path / "runs" / name, *languages)
            run, output = path / "runs" / name, path / "box" / name
            pack(run, output)

    return sharing.make_once("box", make)


def pack(run, output, *more):
    argv = [f"--workdir={run}", f"--output={output}", "--format=packed"]
    export.main([*argv, *more])


@pytest.fixture
def models(monkeypatch):
    """The package's models, and the logged lines about them."""
    monkeypatch.setattr(box, "BOX", made() / "box")
    box.tell.cache_clear()
    return made() / "box"


def out_of(main, argv, capsys, monkeypatch, text="one dog\n"):
    """Runs a command; returns its output."""
    capsys.readouterr()
    buffer = io.TextIOWrapper(io.BytesIO(text.encode()), "utf-8")
    monkeypatch.setattr(sys, "stdin", buffer)
    main(argv)
    return capsys.readouterr().out


# Packed models


def test_a_matrix_has_integers_and_a_scale_for_each_row():
    run = WorkDirectory(made() / "runs/en-xx")
    packed = WorkDirectory(made() / "box/en-xx")
    before = Checkpoint(run.choose_checkpoint())
    after = Checkpoint(packed.choose_checkpoint())
    assert after.shapes == before.shapes
    kinds = set()
    for name in before.shapes:
        was, now = before.read(name), after.read(name)
        assert now.dtype == np.float32
        if was.ndim == 1:
            np.testing.assert_array_equal(was, now)
        else:
            scale = np.abs(was).max(-1, keepdims=True) / np.float32(127)
            expected = np.rint(was / scale).astype("int8") * scale
            np.testing.assert_array_equal(now, expected)
            assert np.abs(was - now).max() > 0
        kinds.add(was.ndim)
    assert kinds == {1, 2}
    stored = load_file(after.prefix + ".safetensors")
    for name in before.shapes:
        kind = np.float32 if len(before.shapes[name]) == 1 else np.int8
        assert stored[name].dtype == kind


def test_a_row_of_zeros_stays():
    weight = types.SimpleNamespace(numpy=lambda: np.zeros((2, 3)))
    found = quantized({"a": weight})
    assert found["weights"]["a"].dtype == np.int8
    assert not found["weights"]["a"].any()
    assert found["scales/weights"]["a"].tolist() == [[1], [1]]


def test_the_same_model_is_packed_into_the_same_bytes(tmp_path):
    pack(made() / "runs/en-xx", tmp_path / "again")
    first, again = (
        {
            path.relative_to(root): path.read_bytes()
            for path in root.rglob("*")
            if path.is_file()
        }
        for root in (made() / "box/en-xx", tmp_path / "again")
    )
    assert first == again
    assert {str(path) for path in first} == {
        *("NOTICE", "README.md", "averaged/ckpt-0.safetensors", "card.toml"),
        *("config.json", "export.json", "tokenizer.model"),
    }
    assert b"/secret" not in b"".join(again.values())


@pytest.mark.parametrize("engine", ["native", "ctranslate2"])
def test_all_engines_have_the_same_weights(engine, monkeypatch, tmp_path):
    """Scores of a float32 copy of the integers, to rounding."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    packed = WorkDirectory(made() / "box/xx-en")
    copied = shutil.copytree(made() / "runs/xx-en", tmp_path / "copy")
    integers = Checkpoint(packed.choose_checkpoint())
    weights = {n.partition("/")[2]: integers.read(n) for n in integers.shapes}
    WorkDirectory(copied).latest.save({"weights": weights}, step=9, keep=1)
    pairs = [("eins Hund", "one dog"), ("rot", "red tree")]
    found = [
        Translator.load(path, engine=name, source_language="de").score(pairs)
        for path, name in ((packed.path, engine), (copied, "native"))
    ]
    for own, expected in zip(*found, strict=True):
        assert own.ids == expected.ids
        assert_close(own.log_probs, expected.log_probs)
    made_in = [*(tmp_path / "cache").glob("keras_transformer/ctranslate2-*/")]
    assert len(made_in) == (engine == "ctranslate2")
    assert not (packed.path / "exports").exists()


@pytest.mark.slow("process")
def test_an_export_of_a_read_only_directory_is_in_the_cache(
    monkeypatch, tmp_path
):
    run = shutil.copytree(made() / "runs/xx-en", tmp_path / "run")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "access", lambda path, mode: path != run)
    Translator.load(run, engine="ctranslate2")
    assert not (run / "exports").exists()
    assert [*(tmp_path / "cache").glob("keras_transformer/ctranslate2-*/")]


def test_a_packed_model_is_verified_and_exported_again(tmp_path, capsys):
    packed = made() / "box/en-xx"
    text = tmp_path / "lines"
    text.write_text("<2de> one dog\n<2fr> two trees\n")
    argv = [f"--export={packed}", f"--text={text}"]
    capsys.readouterr()
    verify.main([f"--workdir={made() / 'runs/en-xx'}", *argv])
    assert capsys.readouterr().out.startswith("passed")
    argv = [f"--workdir={packed}", f"--output={tmp_path / 'a'}"]
    export.main([*argv, "--format=ctranslate2"])
    assert "4 of 4 sentences equal" in capsys.readouterr().out
    assert "CC0" in (tmp_path / "a/README.md").read_text()  # facts go on
    assert (tmp_path / "a/NOTICE").read_text() == "(c) Somebody\n"


def test_other_weights_are_no_packed_model_of_it(tmp_path):
    other = shutil.copytree(made() / "runs/en-xx", tmp_path / "run")
    directory = WorkDirectory(other)
    model = Translator.load(other).model
    for weight in model.weights:
        weight.assign(-2 * weight)
    directory.latest.save({"weights": named_weights(model)}, step=4, keep=1)
    translator = Translator.load(other)
    found = verify.compare(
        translator, made() / "box/en-xx", ["<2de> one dog", "<2fr> two"] * 2
    )
    assert not found.passed


def damaged(tmp_path, change):
    path = shutil.copytree(made() / "box/en-xx", tmp_path / "model")
    change(path)
    return path


def shorten(name):
    def change(path):
        data = (path / name).read_bytes()
        (path / name).write_bytes(data[:-9])

    return change


def newer(name, **fields):
    """Changes a file as a newer version would, with the right checksums."""

    def change(path):
        values = json.loads((path / name).read_text())
        (path / name).write_text(json.dumps(values | fields))
        description = json.loads((path / "export.json").read_text())
        description["sha256"] = export.sums_of(path)
        del description["sha256"]["export.json"]
        export.write_description(path, description)

    return change


def described(**fields):
    """Changes `export.json`."""

    def change(path):
        description = json.loads((path / "export.json").read_text())
        text = json.dumps({**with_checksum(description | fields), **fields})
        (path / "export.json").write_text(text)

    return change


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (shorten("averaged/ckpt-0.safetensors"), "ckpt-0.safetensors is corr"),
        (shorten("config.json"), "config.json"),
        (shorten("card.toml"), "card.toml is corrupt. Expected SHA-256"),
        (shorten("export.json"), "export.json: not JSON"),
        (lambda path: (path / "config.json").unlink(), "config.json is missi"),
        (lambda path: shutil.rmtree(path / "averaged"), "tensors is missing"),
        (lambda path: (path / "tokenizer.model").unlink(), "model is missing"),
        (newer("config.json", format_version=3), "made by a newer version"),
        (described(sha256={"../run/x": "0"}), "export.json: expected names of"),
        (described(sha256=7), "export.json: expected names of files"),
        (described(checksum="0"), "export.json: expected the checksum"),
    ],
)
def test_damage_is_one_line(change, part, tmp_path, capsys, monkeypatch):
    path = damaged(tmp_path, change)
    error = fails(translate.main, [f"--workdir={path}"], capsys)
    assert part in error and str(path) in error
    output = f"--output={tmp_path / 'out'}"
    argv = [f"--workdir={path}", output, "--format=ctranslate2"]
    assert part in fails(export.main, argv, capsys)
    argv = [f"--init_from={path}", f"--workdir={tmp_path / 'new'}"]
    assert part in fails(wmt.main, argv, capsys)
    monkeypatch.setattr(box, "BOX", tmp_path)
    error = fails(translate.main, ["--target_language=de"], capsys)
    assert part in error


def test_a_packed_model_is_never_changed(tmp_path, capsys):
    path = made() / "box/en-xx"
    part = "a packed model is never changed: expected another workdir, and"
    pairs = write_sides(tmp_path / "a", en=["a"], de=["b"], fr=["c"])
    files = f"--train_files={pairs}"
    argv = [f"--workdir={path}", "--dataset=files", files]
    languages = ["--source_language=en", "--target_language=de,fr"]
    assert part in fails(wmt.main, [*argv, *languages], capsys)
    argv = [f"--workdir={path}", f"--valid_files={pairs}", "--save"]
    assert part in fails(tune.main, argv, capsys)
    fails(average.main, [f"--workdir={path}"], capsys)
    WorkDirectory(path).check_package()


# The package's models


@pytest.mark.parametrize(
    ("languages", "expected"),
    [
        ((None, "de"), "en-xx"),
        (("en", "fr"), "en-xx"),
        (("en", None), "en-xx"),
        (("en", "fr,de"), "en-xx"),
        (("fr", None), "xx-en"),
        (("de", "en"), "xx-en"),
        ((None, "en"), "xx-en"),
        ((None, None), None),
        ((None, "ja"), None),
        (("de", "fr"), None),
    ],
)
def test_languages_choose_a_model(languages, expected, models):
    if expected:
        assert box.choose(*languages) == str(models / expected)
        return
    with pytest.raises(ValueError) as error:
        box.choose(*languages)
    assert f"package's models: {PAIRS}. Received" in str(error.value)
    for language in languages:
        assert f"_language={language!r}" in str(error.value)


def test_without_models_the_line_tells_what_to_do(
    monkeypatch, tmp_path, capsys
):
    """As in this repository until there are models."""
    monkeypatch.setattr(box, "BOX", tmp_path)
    (tmp_path / "README.md").touch()
    (tmp_path / "__pycache__").mkdir()
    for main in (translate.main, translate_document.main, serve.main):
        error = fails(main, [], capsys)
        assert "expected --workdir=DIR: this installation has no" in error
        assert str(tmp_path) in error
    (tmp_path / "half").mkdir()
    error = fails(translate.main, [], capsys)
    assert f"{tmp_path / 'half'}: expected a packed model" in error


def test_commands_use_the_package_s_models(
    models, capsys, monkeypatch, tmp_path, caplog
):
    caplog.set_level(logging.INFO, "keras_transformer")
    run = functools.partial(out_of, capsys=capsys, monkeypatch=monkeypatch)
    to_german, own = ["--target_language=de"], f"--workdir={models / 'en-xx'}"
    german = run(translate.main, to_german)
    assert german == run(translate.main, [*to_german, own]) != "\n"
    assert german != run(translate.main, ["--target_language=fr"])
    found = Translator.load(target_language="de").translate(["one dog"])
    assert found == [german.removesuffix("\n")]
    test = f"--test_files={write_sides(tmp_path / 'a', en=LINES, de=LINES)}"
    for main, more in (
        (translate_document.main, ["--format=text"]),
        (evaluate.main, [test]),
        (score.main, [test]),
        (align.main, [test, "--alignment_layer=1"]),
        (visualize.main, ["--text=one dog", f"--output={tmp_path}/a.html"]),
    ):
        outputs = [
            re.sub('"seconds": .*?[,}]', "", run(main, argv))
            for argv in ([*to_german, *more], [*to_german, *more, own])
        ]
        assert outputs[0] == outputs[1] != ""
    source = tmp_path / "a.en"
    output = f"--output={tmp_path / 'shards'}"
    run(translate_corpus.main, [*to_german, f"--input={source}", output])
    assert (tmp_path / "shards").exists()
    lines = [line for line in caplog.messages if "no --workdir" in line]
    assert lines == [
        "no --workdir: the package's model en-xx, for numbers: one, two"
        " (kt-translate --about)"
    ]


def test_a_missing_source_language_is_named(models, capsys):
    argv = ["--target_language=en"]
    error = fails(translate.main, argv, capsys)
    assert "expected source_language, one of de, fr" in error


def test_exports_use_them(models, tmp_path, capsys):
    output = f"--output={tmp_path / 'out'}"
    argv = ["--format=ctranslate2", output, "--source_language=fr"]
    export.main(argv)
    assert f"from {models / 'xx-en'}" in capsys.readouterr().out
    error = fails(export.main, [*argv, "--workdir=run"], capsys)
    assert "source_language excludes workdir" in error


def test_training_begins_with_them(models, tmp_path, capsys):
    pairs = write_sides(tmp_path / "a.de-en", de=LINES * 9, en=LINES * 9)
    argv = ["--init_from=box", "--source_language=de", "--target_language=en"]
    argv += [f"--train_files={pairs}", "--train_steps=1", "--warmup_steps=1"]
    argv += [f"--workdir={tmp_path / 'run'}", "--dataset=files"]
    wmt.main([*argv, "--batch_tokens=200"])
    training = WorkDirectory(tmp_path / "run").read_section(
        "training", TrainingConfig
    )
    assert training.init_from == str(models / "xx-en")
    assert f"initial weights: {models / 'xx-en'}" in capsys.readouterr().out


def test_the_server_has_all_their_directions(models, monkeypatch, tmp_path):
    """Also in a folder with a comma, which may be a model of an ensemble."""
    run = unittest.mock.Mock()
    monkeypatch.setattr(server, "run", run)
    there = tmp_path / "a,b"
    there.symlink_to(models)
    monkeypatch.setattr(box, "BOX", there)
    serve.main([])
    options = run.call_args.args[0]
    assert options.workdirs == tuple(str(there / name) for name in MODELS)
    same = [str(path / "en-xx") for path in (models, there)]
    two = dataclasses.replace(options, workdir=join_workdirs(same))
    assert [p.target for p in load_pairs(two, {}, 1)] == ["de", "fr"]
    found = load_pairs(options, {}, 1)
    assert [f"{p.source}-{p.target}" for p in found] == PAIRS.split(", ")
    models = dict.fromkeys(pair.model for pair in found)
    titles = [card.splitlines()[0] for one in models for card in one.cards]
    assert titles == ["# Numbers", "# Translation from de, fr into en"]


def test_package_data_has_every_file_of_a_model(models, tmp_path):
    text = (ROOT / "pyproject.toml").read_text()
    data = tomllib.loads(text)["tool"]["setuptools"]["package-data"]
    shutil.copytree(models, tmp_path / "box")
    found = {
        pathlib.Path(name)
        for pattern in data["keras_transformer"]
        for name in glob.glob(pattern, root_dir=tmp_path, recursive=True)
    }
    files = {p.relative_to(tmp_path) for p in tmp_path.rglob("*")}
    assert files <= found and len(files) > 14


# Model cards


def test_a_card_has_metadata_that_the_hub_reads():
    _, front, body = (
        (made() / "box/en-xx/README.md").read_text().split("---\n", 2)
    )
    metadata = yaml.safe_load(front)
    [index] = metadata.pop("model-index")
    assert metadata == {
        "library_name": "keras_transformer",
        "language": ["en", "de", "fr"],
        "pipeline_tag": "translation",
        "license": "mpl-2.0",
        "metrics": ["bleu"],
    }
    [result] = index["results"]
    assert index["name"] == "Numbers"
    assert result["task"]["type"] == "translation"
    assert result["dataset"]["name"] == "tens"
    assert result["metrics"] == [
        {"type": "bleu", "name": "BLEU", "value": 12.5}
    ]
    assert body.startswith(
        "\n# Numbers\n\n## Purpose\n\nFor numbers: one, two."
    )
    for part in (
        "From en into de, fr.",
        "1 encoder and 1 decoder layers of width 16",
        "\n- Counting, CC0\n",
        "\n| tens | en-de | 12.5 |  |\n",
        "## Held out\n\nUnknown",
        "(c) Somebody",
    ):
        assert part in body


def test_what_nobody_has_told_is_unknown(tmp_path):
    path = tmp_path / "run"
    make_workdir(path, *MODELS["en-xx"])
    (path / "card.toml").unlink()
    (path / "NOTICE").unlink()
    text = card.describe(WorkDirectory(path))
    assert text.count("Unknown: its maker has not told.") == 7
    card.write(WorkDirectory(path), tmp_path, tags=["onnx"])
    front = (tmp_path / "README.md").read_text().split("---\n")[1]
    assert yaml.safe_load(front) == {
        "tags": ["onnx"],
        "language": ["en", "de", "fr"],
        "pipeline_tag": "translation",
    }
    assert not (tmp_path / "NOTICE").exists()


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("license = ", "card.toml: Invalid value"),
        ("licence = 'MIT'", "unknown fields: licence"),
        ("a = " + "[" * 9999, "nested too deeply"),
        ("name = 3", "name must be text. Received: name=3"),
        ("data = 'x'", "[[data]] before each entry"),
        ("[[scores]]\nbleu = 101", "bleu must be at most 100"),
        ("[[scores]]\nbleu = '20'", "bleu must be a number"),
    ],
)
def test_a_wrong_card_is_one_line(text, part, tmp_path, capsys):
    path = shutil.copytree(made() / "runs/en-xx", tmp_path / "run")
    (path / "card.toml").write_text(text)
    argv = [f"--workdir={path}", f"--output={tmp_path / 'out'}"]
    error = fails(export.main, argv, capsys)
    assert part in error and str(path / "card.toml") in error
    argv = [f"--workdir={path}", "--about"]
    assert part in fails(translate.main, argv, capsys)


def test_about_shows_the_card(models, capsys, monkeypatch):
    run = functools.partial(out_of, capsys=capsys, monkeypatch=monkeypatch)
    own = run(translate.main, ["--about", f"--workdir={models / 'en-xx'}"])
    assert own.startswith("# Numbers\n")
    assert own == run(translate.main, ["--about", "--target_language=de"])
    both = run(translate.main, ["--about"])
    assert both.startswith(own) and len(both) > len(own)
    error = fails(translate.main, ["--about", "--beam_size=2"], capsys)
    assert "about without other flags. Received: beam_size" in error


def test_a_file_is_no_work_directory(tmp_path, capsys):
    file = made() / "box/en-xx/config.json"
    for argv in ([f"--workdir={file}"], ["--about", f"--workdir={file}"]):
        assert "which is a file" in fails(translate.main, argv, capsys)


def test_a_changed_config_is_found(tmp_path, capsys):
    path = shutil.copytree(made() / "box/en-xx", tmp_path / "model")
    with changed_config(path) as config:
        config["decoding"]["beam_size"] = 9
    error = fails(translate.main, [f"--workdir={path}"], capsys)
    assert "config.json is corrupt" in error
