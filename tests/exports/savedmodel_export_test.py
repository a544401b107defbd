"""The commands: export and verify, from good and from bad work directories."""

import dataclasses
import errno
import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys
from unittest import mock

import commands
import exports
import pytest
import tensorflow as tf
from later import later

from keras_transformer.base.files import with_checksum
from keras_transformer.commands import flags
from keras_transformer.translation import conversion
from keras_transformer.translator import Translator
from savedmodel import export, reload, verify
from savedmodel.formats import FORMATS

PROGRAMS = pathlib.Path(__file__).parents[1] / "programs"


def fails(argv, capsys):
    return commands.fails(export.main, argv, capsys)


def arguments(output, *options, workdir=None):
    return [
        f"--workdir={workdir or exports.workdir()}",
        "--format=saved_model",
        f"--output={output}",
        *options,
    ]


@pytest.fixture
def run(tmp_path):
    """A copy of the work directory, to be damaged."""
    return shutil.copytree(exports.workdir(), tmp_path / "run")


def test_it_prints_what_it_wrote_and_how_it_verified():
    directory, printed = exports.exported("saved_model")
    assert printed.startswith(f"{directory / '1'}: saved_model, float32, from")
    assert "variables.data-00000-of-00001" in printed
    assert "\nverified: 4 of 4 sentences equal (--verify=quick)\n" in printed
    assert [path.name for path in directory.iterdir()] == ["1"]


@pytest.mark.parametrize(
    "file", ["averaged/ckpt-3.safetensors", "tokenizer.model"]
)
def test_damaged_directory(run, tmp_path, capsys, file):
    path = run / file
    path.write_bytes(path.read_bytes()[:100])
    fails(arguments(tmp_path / "out", workdir=run), capsys)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "options, reason",
    [
        (["--precision=int8"], "precision=float32 with format"),
        (["--format=onnx", "--precision=int16"], "float32 or float16 or int8"),
        (["--format=onnx", "--jit_compile"], "True needs format=saved_model"),
        (["--format=tflite", "--version=2"], "version needs format=saved"),
        (["--sampling"], "Unknown command line flag 'sampling'"),
        (["--temperature=0.5"], "Unknown command line flag 'temperature'"),
        (["--verify_text=/nowhere"], "/nowhere"),
        (["--version=0"], "version must be at least 1"),
    ],
)
def test_bad_flags(tmp_path, capsys, options, reason):
    assert reason in fails(arguments(tmp_path / "out", *options), capsys)


def test_an_output_that_cannot_be_made(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert "file" in fails(arguments(tmp_path / "file"), capsys)
    assert "file" in fails(arguments(tmp_path / "file" / "out"), capsys)


def test_nothing_to_verify_with(tmp_path, capsys):
    (tmp_path / "empty.txt").touch()
    option = f"--verify_text={tmp_path}/empty.txt"
    err = fails(arguments(tmp_path / "out", option), capsys)
    assert "expected sentences" in err and "empty.txt" in err
    assert not (tmp_path / "out").exists()


def test_sentences_end_with_line_feeds_only(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_bytes("one\u2028two\n\nthree\x0c\n".encode())
    assert verify.read_sentences(path) == ["one\u2028two", "", "three\x0c"]


def compared(**changes):
    values = {"number": 4, "ties": (), "different": (), "far": ()}
    return verify.Comparison(**{**values, "exact": True, **changes})


def test_quantized_weights_may_differ_but_not_by_far():
    """What does not pass is in the table below."""
    different = {"different": (1, 2, 3), "exact": False}
    assert compared(**different).passed
    assert compared(**different, far=(1, 2)).passed


@pytest.mark.parametrize(
    "comparison, verdict",
    [
        (compared(), "passed: 4 of 4 sentences equal"),
        (
            compared(ties=(2,), computed_in="float32"),
            "passed: 3 of 4 sentences equal, 1 not, computed in float32; other"
            " tokens of the same score (within 0.001): sentence 2",
        ),
        (
            compared(different=(1, 3), far=(3,)),
            "failed: 2 of 4 sentences equal, 2 not; other tokens, score within"
            " 0.25: sentence 1; other tokens, score 0.25 or more apart:"
            " sentence 3. Expected: only ties may differ: the weights are not"
            " quantized",
        ),
        (
            compared(different=(1, 2, 3), far=(1, 2, 3), exact=False),
            "failed: 1 of 4 sentences equal, 3 not; other tokens, score 0.25 or"
            " more apart: sentence 1, 2, 3. Expected: at most 2 may be 0.25"
            " or more apart",
        ),
        (
            compared(different=(2,), far=(2,), exact=False),
            "passed: 3 of 4 sentences equal, 1 not; other tokens, score 0.25"
            " or more apart: sentence 2. Limit: at most 2 may be 0.25 or more"
            " apart",
        ),
        (
            compared(texts=(2,), exact=False),
            "failed: 4 of 4 sentences equal; text does not match the"
            " tokens: sentence 2. Expected: the texts and answers of the"
            " translator",
        ),
        (
            compared(greedy=(1, 3)),
            "failed: 4 of 4 sentences equal; wrong answer of the greedy"
            " search: sentence 1, 3. Expected: the texts and answers of the"
            " translator",
        ),
    ],
)
def test_the_verdict_says_why(comparison, verdict):
    assert str(comparison) == verdict


@functools.cache
def with_beam_size(beam_size):
    """Returns the translator with another beam size. Its graph is made once."""
    return Translator.with_decoding(exports.translator(), beam_size=beam_size)


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.slow("format")
def test_both_searches_of_tflite_are_verified(precision, monkeypatch):
    directory, _ = exports.exported("tflite")
    lines = ["one dog", "", "two red trees"]
    description = verify.read_description(directory)
    description["precision"] = precision
    monkeypatch.setattr(verify, "read_description", lambda _: description)
    translator = exports.translator()
    monkeypatch.setattr(translator, "with_decoding", with_beam_size)
    asked, changes = [], {}

    def run(directory, sentences, beam_size):
        searching = translator if beam_size is None else with_beam_size(1)
        answers = [
            {
                "ids": found.ids[0],
                "score": found.scores[0],
                "text": found.texts[0],
            }
            for found in searching.search(sentences, num_best=1)
        ]
        for number, change in changes.items() if beam_size == 1 else ():
            answers[number].update(change)
        asked.append(beam_size)
        return {"translations": answers, "computed_in": None}

    monkeypatch.setattr(verify, "run", run)

    def verdict():
        return str(verify.compare(exports.translator(), directory, lines))

    assert verdict() == "passed: 3 of 3 sentences equal"
    assert asked == [None, 1]
    verify.compare(exports.translator(), directory, lines, both_searches=False)
    assert asked == [None, 1, None]

    changes[2] = {"text": "other"}
    assert "wrong answer of the greedy search: sentence 3." in verdict()

    [text] = exports.translator().tokenizer.to_strings([[5, 2]])
    changes.clear()
    changes[0] = {"ids": [5, 2], "score": -9.0, "text": text}
    exact = "; wrong answer of the greedy search: sentence 1."
    assert (exact in verdict()) == (precision == "float32")


def test_an_export_is_replaced_only_if_told_to(tmp_path, capsys):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "export.json").write_text("{}")
    assert "--overwrite" in fails(arguments(tmp_path), capsys)
    (tmp_path / "1" / "export.json").rename(tmp_path / "1" / "thesis.tex")
    err = fails(arguments(tmp_path, "--overwrite"), capsys)
    assert "is not an export" in err
    assert (tmp_path / "1" / "thesis.tex").is_file()


def test_bad_flags_are_refused_before_tensorflow_is_imported(tmp_path):
    output = f"--output={tmp_path / 'out'}"
    commands_given = [
        ["export", "--help"],
        ["export", "--format=pdf"],
        ["export", "--workdir=x", output, "--precision=int8"],
        ["export", "--workdir=x", output, "--verify_text=/nowhere"],
        ["verify", "--help"],
        ["verify", "--workdir=x"],
    ]
    process = run_without_frameworks(commands_given)
    lines = process.stderr.splitlines()
    statuses = [line for line in lines if line.isdecimal()]
    assert statuses == ["0", "2", "2", "2", "0", "2"]
    assert lines[-1] == "[]"
    assert "--beam_size" in process.stdout
    assert "temperature" not in process.stdout


def run_without_frameworks(commands_given):
    """Runs commands in one process that prints its imported frameworks."""
    return subprocess.run(
        [sys.executable, PROGRAMS / "bad_export_flags.py"],
        input="".join(json.dumps(argv) + "\n" for argv in commands_given),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )


def test_bad_directories_are_refused_before_tensorflow_is_imported(
    run, tmp_path
):
    with commands.changed_config(run) as config:
        config["model"]["pre_norm"] = False  # as huggingface needs it
    unfinished = shutil.copytree(run, tmp_path / "unfinished")
    shutil.rmtree(unfinished / "averaged")
    for name, section, field, value in (
        ("band", "model", "attention_window", 4),
        ("learned", "model", "positions", "learned"),
        ("unread", "decoding", "stopping", "never"),
    ):
        changed = shutil.copytree(run, tmp_path / name)
        with commands.changed_config(changed) as config:
            config[section][field] = value
    (shutil.copytree(run, tmp_path / "spoilt") / "tokenizer.model").unlink()
    (tmp_path / "taken" / "1").mkdir(parents=True)
    (tmp_path / "taken/thesis.tex").touch()
    (tmp_path / "taken/1/thesis.tex").touch()
    given, expected = [], []
    for format_name in FORMATS:
        cases = [
            (tmp_path / "nowhere", "", "expected a work directory made by"),
            (unfinished, "", "no usable checkpoint yet"),
            (run, "--checkpoint=best", "no best checkpoint yet"),
            (run, "--checkpoint=/no/ckpt-1", "no such checkpoint: expected"),
            (run, f"--output={tmp_path}/taken", "exists and is not an export"),
            (run, "--beam_size=0", "beam_size must be at least 1"),
            (run, "--alignment_layer=9", "alignment_layer of at most 2"),
            (tmp_path / "spoilt", "", "tokenizer.model"),
            (tmp_path / "unread", "", "stopping must be one of"),
        ]
        if FORMATS[format_name].own_search:
            cases += [
                (tmp_path / "band", "", "attention_window=None. Received: att"),
                (run, "--no_repeat_ngram=3", "needs no_repeat_ngram=0. Rece"),
            ]
        else:
            learned = tmp_path / "learned"
            cases.append((learned, "--max_source_length=999", "of at most max"))
        if format_name == "ctranslate2":
            cases.append((run, "--alignment_head=2", "needs alignment_head="))
        for workdir, option, message in cases:
            argv = [f"--workdir={workdir}", f"--output={tmp_path / 'out'}"]
            argv += [f"--format={format_name}", *filter(None, [option])]
            given.append(["export", *argv])
            expected.append(message)
    *lines, heavy = run_without_frameworks(given).stderr.splitlines()
    assert lines[1::2] == ["2"] * len(given)
    wrong = [
        (line, message)
        for line, message in zip(lines[::2], expected, strict=True)
        if message not in line
    ]
    assert wrong == []
    assert heavy == "[]"
    assert not (tmp_path / "out").exists()


def test_a_skipped_checkpoint_is_reported(run, tmp_path):
    shutil.copytree(run / "averaged", run / "best")
    data = run / "averaged/ckpt-3.safetensors"
    data.write_bytes(data.read_bytes()[:100])
    options = export.ExportOptions(workdir=str(run), output=str(tmp_path / "o"))
    source = export.load_source(options)
    description = export.make_description(source, options)
    assert description["checkpoint"] == "best/ckpt-3"
    assert any(
        "averaged" in line for line in description["checkpoint_warnings"]
    )


def test_a_checkpoint_that_is_removed_meanwhile_gives_way(
    run, tmp_path, monkeypatch
):
    shutil.copytree(run / "averaged", run / "best")

    def remove(*_, **__):
        shutil.rmtree(run / "averaged", ignore_errors=True)
        return mock.DEFAULT

    load_later = mock.Mock(wraps=Translator.load, side_effect=remove)
    monkeypatch.setattr(Translator, "load", load_later)
    options = export.ExportOptions(workdir=str(run), output=str(tmp_path / "o"))
    source = export.load_source(options)
    assert source.translator.checkpoint == str(run / "best/ckpt-3")
    shutil.rmtree(run / "best")
    with pytest.raises(ValueError, match="no usable checkpoint"):
        export.load_source(options)


def test_flags_override_the_work_directory(run, tmp_path, caplog):
    shutil.copytree(run / "averaged", run / "best")
    with commands.changed_config(run) as config:
        config["decoding"] |= {"sampling": True, "length_penalty": 0.9}
    argv = [f"--workdir={run}", f"--output={tmp_path / 'out'}"]
    argv += ["--checkpoint=best", "--max_source_length=9", "--beam_size=2"]
    given = flags.parse(argv, "", export.ExportOptions, export.SearchOptions)
    source = export.load_source(given.build(export.ExportOptions), given)
    translator = source.translator
    assert translator.max_source_length == 9
    assert translator.decoding == dataclasses.replace(
        exports.DECODING, beam_size=2, length_penalty=0.9
    )
    best = str(run / "best/ckpt-3")
    assert translator.checkpoint == best
    assert "says sampling=true; an export searches" in caplog.text
    # And the export is compared with that translator.
    options = given.build(export.ExportOptions)
    description = export.make_description(source, options)
    export.write_description(tmp_path, {**description, "sha256": {}})
    other = verify.load_translator(
        verify.VerifyOptions(workdir=str(run), export=str(tmp_path), text="t")
    )
    for name in ("checkpoint", "decoding", "max_source_length"):
        assert getattr(other, name) == getattr(translator, name)


def test_a_version_is_a_directory_of_its_own():
    for options, target in (
        ({"version": 12}, "out/12"),
        ({"format": "onnx"}, "out"),
    ):
        options = export.ExportOptions(workdir="run", output="out", **options)
        assert options.target == pathlib.Path(target)


def test_a_missing_extra_is_named(tmp_path, capsys, monkeypatch):
    without = dataclasses.replace(
        FORMATS["onnx"], requirements=("json", "no_onnx")
    )
    monkeypatch.setitem(FORMATS, "onnx", without)
    err = fails(arguments(tmp_path / "out", "--format=onnx"), capsys)
    assert "the extra 'onnx' for format=onnx: pip install 'keras" in err
    assert "no module ['no_onnx']" in err
    assert not any(tmp_path.iterdir())


# ---- What goes wrong while an export is written ------------------------------


@pytest.fixture
def exporter(monkeypatch):
    """Replaces the exporter: `write` gets an `Export` and makes nothing."""
    stub = mock.Mock()
    monkeypatch.setattr(export, "load_exporter", lambda name: stub)
    monkeypatch.setattr(export, "load_source", lambda *_: exports.source())
    return stub


def fail_with(error):
    """Writes something, then raises."""

    def write(export):
        (export.directory / "half").touch()
        raise error

    return write


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device", "/disk/model.onnx"),
        tf.errors.ResourceExhaustedError(
            None, None, "/disk/variables; No space left on device\nmore"
        ),
    ],
)
def test_a_full_disk_is_one_line_and_nothing_stays(
    exporter, error, tmp_path, capsys
):
    exporter.write = fail_with(error)
    argv = arguments(tmp_path / "deep" / "er")
    err = commands.fails(export.main, argv, capsys, code=1)
    assert f"cannot write {tmp_path / 'deep' / 'er' / '1'}: " in err
    assert "No space left on device" in err
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "a bug"),
        ValueError("a bug"),
        tf.errors.ResourceExhaustedError(None, None, "OOM"),
    ],
)
def test_a_bug_keeps_its_traceback(exporter, error, tmp_path):
    exporter.write = fail_with(error)
    with pytest.raises(type(error)):
        export.main(arguments(tmp_path / "deep" / "er"))
    assert not any(tmp_path.iterdir())


def test_what_appears_meanwhile_is_not_lost(
    exporter, tmp_path, monkeypatch, capsys
):
    def write(export):
        (tmp_path / "1").mkdir()
        (tmp_path / "1" / "thesis.tex").touch()

    exporter.write = write
    monkeypatch.setattr(verify, "compare", lambda *_: compared())
    err = commands.fails(export.main, arguments(tmp_path), capsys, code=1)
    assert "not empty" in err
    found = [path.name for path in tmp_path.rglob("*")]
    assert found == ["1", "thesis.tex"]


def test_it_verifies_with_the_sentences_of_the_flags(
    exporter, tmp_path, monkeypatch, capsys, caplog
):
    def compare(translator, directory, sentences, both_searches):
        compared_with.append((sentences, both_searches))
        return compared(number=len(sentences))

    compared_with = []
    monkeypatch.setattr(verify, "compare", compare)
    text = tmp_path / "lines.txt"
    text.write_text("one\ntwo dogs\n")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    export.main(arguments(tmp_path / "a", f"--verify_text={text}"))
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "-1"
    export.main(arguments(tmp_path / "a", "--overwrite"))
    export.main(arguments(tmp_path / "a", "--overwrite", "--verify=full"))
    given, quick, full = compared_with
    assert given == (["one", "two dogs"], False)
    assert quick[1:] == (False,) and full[1:] == (True,)
    for (made, _), number in ((quick, 4), (full, 32)):
        assert tuple(made[:2]) == export.OTHER_SAMPLES
        assert len(made) == number and all(made[1:])
    printed = capsys.readouterr().out
    assert "verified: 32 of 32 sentences equal (--verify=full)\n" in printed
    export.main(arguments(tmp_path / "b", "--verify=none"))
    assert len(compared_with) == 3
    assert "not verified: verify=none" in caplog.text
    assert "verified" not in capsys.readouterr().out
    path = tmp_path / "b" / "1" / "export.json"
    assert json.loads(path.read_text())["verification"] == "none"
    argv = arguments(tmp_path / "c", "--verify=none", f"--verify_text={text}")
    assert "verify_text needs verify=full or" in fails(argv, capsys)


@pytest.mark.parametrize("precision", ["float32", *later("options", "int8")])
def test_a_wrong_export_is_not_kept(precision, tmp_path, monkeypatch, capsys):

    def break_the_norm(model, num_positions):
        spec = make_spec(model, num_positions)
        spec.decoder.layer_norm.gamma = -spec.decoder.layer_norm.gamma
        return spec

    make_spec = conversion.make_spec
    monkeypatch.setattr(conversion, "make_spec", break_the_norm)
    options = (
        "--format=ctranslate2",
        f"--precision={precision}",
        "--verify=full",
    )
    argv = arguments(tmp_path / "out", *options)
    err = commands.fails(export.main, argv, capsys, code=1)
    assert "a wrong export: verification failed" in err
    assert not any(tmp_path.iterdir())


def test_verify_names_the_lines_that_differ(tmp_path, capsys, monkeypatch):
    directory, _ = exports.exported("ctranslate2")
    text = tmp_path / "source.txt"
    text.write_text("one dog\n\ntwo red trees\n", encoding="utf-8")
    argv = [f"--workdir={exports.workdir()}", f"--export={directory}"]
    argv.append(f"--text={text}")
    verify.main(argv)
    verdict = "passed: 3 of 3 sentences equal, computed in float32\n"
    assert capsys.readouterr().out == verdict

    def run(directory, sentences, beam_size):
        greedy = exports.translator().with_decoding(beam_size=beam_size)
        found = [list(t.ids[0]) for t in greedy.search(sentences)]
        found[2] = [5, 2]
        texts = greedy.tokenizer.to_strings(found)
        texts[1] = "one"
        answers = [
            {"ids": ids, "score": -9.0, "text": text}
            for ids, text in zip(found, texts, strict=True)
        ]
        return {"translations": answers, "computed_in": None}

    monkeypatch.setattr(verify, "run", run)
    with pytest.raises(SystemExit) as status:
        verify.main(argv)
    assert status.value.code == 1
    out = capsys.readouterr().out
    assert out.startswith("failed: 2 of 3 sentences equal")
    assert "0.25 or more apart: sentence 3" in out
    assert (
        "; text does not match the tokens: sentence 2. Expected: the te" in out
    )


def test_verify_names_the_work_directory_that_is_not_of_the_export(
    run, tmp_path, capsys
):
    directory, _ = exports.exported("ctranslate2")
    shutil.rmtree(run / "averaged")
    text = tmp_path / "source.txt"
    text.write_text("one dog\n")
    argv = [f"--workdir={run}", f"--export={directory}", f"--text={text}"]
    err = commands.fails(verify.main, argv, capsys)
    assert "no such checkpoint" in err
    assert f"Received: checkpoint='{run}/averaged/ckpt-" in err


def test_verify_of_what_is_no_export(tmp_path, capsys):
    text = tmp_path / "source.txt"
    text.write_text("one\n")
    argv = [f"--workdir={exports.workdir()}", f"--export={tmp_path}"]
    err = commands.fails(verify.main, [*argv, f"--text={text}"], capsys)
    assert "expected an export: a directory with export.json" in err
    path = tmp_path / "export.json"
    directory, _ = exports.exported("ctranslate2")
    other = json.loads((directory / "export.json").read_text())

    def of_another(**changes):
        return json.dumps(with_checksum(other | changes))

    for content, message in (
        ("{", f"{path}: not JSON: Expecting prop"),
        ('{"format": "onnx"}', "expected the checksum "),
        (json.dumps({**other, "format": "onnx"}), "expected the checksum "),
        # As of another version.
        (of_another(format="pdf"), "does not describe an export: 'pdf'"),
        (of_another(precision="int4"), "precision=float"),
        (of_another(decoding={"new": 1}), "unexpected keyword argument"),
        (of_another(decoding={"beam_size": "4"}), "beam_size must be a"),
    ):
        path.write_text(content)
        err = commands.fails(verify.main, [*argv, f"--text={text}"], capsys)
        assert message in err and str(tmp_path) in err


def test_an_export_that_cannot_be_run_is_named(tmp_path):
    (tmp_path / "export.json").write_text('{"format": "pdf"}')
    with pytest.raises(
        verify.ExportError, match="does not run: .* No module named .*pdf"
    ):
        verify.run(tmp_path, ["one"])


def test_a_corrupt_export_is_named(tmp_path):
    directory = tmp_path / "copy"
    shutil.copytree(exports.exported("ctranslate2")[0], directory)
    model = directory / "model.bin"
    model.write_bytes(model.read_bytes()[:-1] + b"x")
    for state in ("corrupt", "missing"):
        with pytest.raises(verify.ExportError, match=f"model.bin is {state}"):
            verify.compare(exports.translator(), directory, ["one"])
        model.unlink(missing_ok=True)


def test_the_greatest_version_is_taken(tmp_path):
    for version in ("2", "10", "9", "11.unfinished"):
        (tmp_path / version).mkdir()
        (tmp_path / version / reload.DESCRIPTION).touch()
    (tmp_path / "12").mkdir()  # no export
    assert reload.find_export(tmp_path) == tmp_path / "10"
    assert reload.find_export(tmp_path / "2") == tmp_path / "2"
    with pytest.raises(ValueError, match="expected an export"):
        reload.find_export(tmp_path / "12")


@pytest.mark.slow("process")
def test_reload_takes_what_was_given_as_output(monkeypatch):
    """The process may not see a GPU, which a training may use."""
    run = mock.Mock(wraps=subprocess.run)
    directory, _ = exports.exported("saved_model")
    monkeypatch.setattr(subprocess, "run", run)
    found = verify.run(directory, ["one dog", ""])
    [expected] = exports.best_ids(["one dog"])
    ids = [translation["ids"] for translation in found["translations"]]
    assert ids == [expected, []]
    assert run.call_args.kwargs["env"]["CUDA_VISIBLE_DEVICES"] == "-1"


def test_the_reloading_process_does_not_know_this_package():
    directory, _ = exports.exported("ctranslate2")
    program = PROGRAMS / "reload_beside_package.py"
    process = subprocess.run(
        [sys.executable, "-I", program, *reload.__path__, directory],
        input=json.dumps(["one dog"]),
        capture_output=True,
        text=True,
    )
    assert process.returncode == 1
    assert "must run without this package" in process.stderr
