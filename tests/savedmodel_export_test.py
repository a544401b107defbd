"""The commands: export and verify, from good and from bad work directories."""

import io
import json
import shutil
import subprocess
import sys

import commands
import exports
import pytest

from savedmodel import ctranslate2, export, verify


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
    number = export.NUM_SAMPLES + 1
    assert f"{number} of {number} translations identical" in printed
    assert [path.name for path in directory.iterdir()] == ["1"]
    description = verify.read_description(directory / "1")
    assert description["checkpoint"] == "averaged/ckpt-3"  # it may be moved


def test_foreign_directory(tmp_path, capsys):
    err = fails(arguments(tmp_path / "out", workdir=tmp_path), capsys)
    assert "expected a work directory made by trainers.wmt" in err
    assert not (tmp_path / "out").exists()


def test_unfinished_directory(run, tmp_path, capsys):
    shutil.rmtree(run / "averaged")
    err = fails(arguments(tmp_path / "out", workdir=run), capsys)
    assert "no usable checkpoint yet" in err


@pytest.mark.parametrize(
    "file", ["averaged/ckpt-3.data-00000-of-00001", "tokenizer.model"]
)
def test_damaged_directory(run, tmp_path, capsys, file):
    path = run / file
    path.write_bytes(path.read_bytes()[:100])
    fails(arguments(tmp_path / "out", workdir=run), capsys)
    assert not (tmp_path / "out").exists()


def test_missing_tokenizer(run, tmp_path, capsys):
    (run / "tokenizer.model").unlink()
    err = fails(arguments(tmp_path / "out", workdir=run), capsys)
    assert "tokenizer.model" in err


@pytest.mark.parametrize(
    "options, reason",
    [
        (["--format=pdf"], "format must be one of"),
        (["--precision=int8"], "precision must be one of float32"),
        (["--format=onnx", "--jit_compile"], "an option of format=saved_model"),
        (["--sampling"], "expected a search"),
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


def test_rounded_weights_may_differ_but_not_by_far():
    def compared(far, exact):
        return verify.Comparison(4, (), (1, 2, 3), far, exact)

    assert compared((), exact=False).passed
    assert compared((1, 2), exact=False).passed
    assert not compared((1, 2, 3), exact=False).passed
    assert not compared((), exact=True).passed


def test_an_export_is_replaced_only_if_told_to(tmp_path, capsys):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / export.DESCRIPTION).write_text("{}")
    assert "--overwrite" in fails(arguments(tmp_path), capsys)
    (tmp_path / "1" / export.DESCRIPTION).rename(tmp_path / "1" / "thesis.tex")
    err = fails(arguments(tmp_path, "--overwrite"), capsys)
    assert "it is no export" in err
    assert (tmp_path / "1" / "thesis.tex").is_file()


def test_what_is_replaced_goes_when_the_new_is_complete(tmp_path):
    target = tmp_path / "model"
    target.mkdir()
    (target / "old").touch()
    with pytest.raises(KeyError), export.whole_directory(target) as unfinished:
        (unfinished / "half").touch()
        raise KeyError
    assert [path.name for path in tmp_path.rglob("*")] == ["model", "old"]
    with export.whole_directory(target) as unfinished:
        (unfinished / "new").touch()
        assert (target / "old").is_file()
    assert [path.name for path in tmp_path.rglob("*")] == ["model", "new"]


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_wrong_export_is_not_kept(precision, tmp_path, monkeypatch, capsys):

    def break_the_norm(model, num_positions):
        spec = make_spec(model, num_positions)
        spec.decoder.layer_norm.gamma = -spec.decoder.layer_norm.gamma
        return spec

    make_spec = ctranslate2.make_spec
    monkeypatch.setattr(ctranslate2, "make_spec", break_the_norm)
    with pytest.raises(SystemExit, match="a wrong export") as status:
        export.main(
            arguments(
                tmp_path / "out",
                "--format=ctranslate2",
                f"--precision={precision}",
            )
        )
    assert status.value.code not in (0, 2)
    assert not any(tmp_path.iterdir())


def test_verify_names_the_lines_that_differ(tmp_path, capsys, monkeypatch):
    directory = exports.exported("saved_model")[0] / "1"
    text = tmp_path / "source.txt"
    text.write_text("one dog\n\ntwo red trees\n", encoding="utf-8")
    argv = [f"--workdir={exports.workdir()}", f"--export={directory}"]
    argv.append(f"--text={text}")
    verify.main(argv)
    assert capsys.readouterr().out == "3 of 3 translations identical\n"

    def run(directory, sentences, beam_size):
        wrong = {"ids": [5, 2], "score": -9.0}
        right = [h[0][0] for h in exports.translator().n_best_ids(sentences)]
        found = [{"ids": ids, "score": -1.0} for ids in right[:2]]
        return {"translations": [*found, wrong]}

    monkeypatch.setattr(verify, "run", run)
    with pytest.raises(SystemExit) as status:
        verify.main(argv)
    assert status.value.code == 1
    out = capsys.readouterr().out
    assert out == "2 of 3 translations identical; different: line 3\n"


def test_verify_of_what_is_no_export(tmp_path, capsys):
    text = tmp_path / "source.txt"
    text.write_text("one\n")
    argv = [f"--workdir={exports.workdir()}", f"--export={tmp_path}"]
    err = commands.fails(verify.main, [*argv, f"--text={text}"], capsys)
    assert "is no export" in err
    (tmp_path / export.DESCRIPTION).write_text('{"format": "onnx"}')
    err = commands.fails(verify.main, [*argv, f"--text={text}"], capsys)
    assert "without precision, checkpoint, max_source_length, decoding" in err


def test_the_reloading_process_does_not_know_this_package():
    directory = exports.exported("saved_model")[0] / "1"
    script = f"""
import runpy, sys
sys.modules["keras_transformer"] = sys
sys.argv[1:] = [{str(directory)!r}]
runpy.run_path({verify.reload.__file__!r}, run_name="__main__")
"""
    process = subprocess.run(
        [sys.executable, "-I", "-c", script],
        input=json.dumps(["one dog"]),
        capture_output=True,
        text=True,
    )
    assert process.returncode == 1
    assert "must run without this package" in process.stderr


def test_client_translates_what_a_server_serves(monkeypatch, capsysbinary):
    from savedmodel import client

    with serving(exports.exported("saved_model")[0] / "1") as address:
        options = client.ClientOptions(server=address)
        found = client.Client(options).predict("n_best", text=["one dog"])
        assert found["hypotheses"].shape == (1, exports.DECODING.beam_size)
        lines = io.BytesIO(b"one dog\n\n\xfftree\n")
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(lines))
        client.main([f"--server={address}", "--batch_size=2"])
    expected = exports.translator().translate(["one dog", "", "\ufffdtree"])
    out = capsysbinary.readouterr().out.decode()
    assert out == "".join(line + "\n" for line in expected)


def test_client_without_a_server(monkeypatch, capsys):
    from savedmodel import client

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\n")))
    argv = ["--server=localhost:1", "--timeout=20"]
    assert "UNAVAILABLE" in commands.fails(client.main, argv, capsys, code=1)


def serving(directory):
    """A gRPC server of a SavedModel, as TensorFlow Serving would be."""
    import contextlib
    from concurrent import futures

    import grpc
    import tensorflow as tf
    from tensorflow_serving.apis import (
        predict_pb2,
        prediction_service_pb2_grpc,
    )

    signatures = tf.saved_model.load(str(directory)).signatures

    class Service(prediction_service_pb2_grpc.PredictionServiceServicer):
        def Predict(self, request, context):
            inputs = {
                name: tf.constant(tf.make_ndarray(value))
                for name, value in request.inputs.items()
            }
            response = predict_pb2.PredictResponse()
            found = signatures[request.model_spec.signature_name](**inputs)
            for name, value in found.items():
                proto = tf.make_tensor_proto(value)
                response.outputs[name].CopyFrom(proto)
            return response

    @contextlib.contextmanager
    def run():
        server = grpc.server(futures.ThreadPoolExecutor(2))
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
            Service(), server
        )
        port = server.add_insecure_port("localhost:0")
        server.start()
        yield f"localhost:{port}"
        server.stop(None)

    return run()
