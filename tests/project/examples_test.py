"""The examples do what they say, and stay short.

Code cells of notebooks run here, one after the other, on fewer sentences.
"""

import contextlib
import io
import json
import pathlib
from concurrent import futures

import exports
import grpc
import matplotlib.pyplot as plt
import numpy as np
import pytest
import sacrebleu
import tensorflow as tf
from commands import ROOT, load_script, write_pairs
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

import keras_transformer as kt
from keras_transformer.commands import flags
from keras_transformer.config import DecodingConfig
from savedmodel import export
from trainers.datasets import phrasebook

EXAMPLES = ROOT / "examples"
WITH_OUTPUTS = "annotated_transformer"  # and the site shows it


def read_notebook(name):
    return json.loads((EXAMPLES / f"{name}.ipynb").read_text("utf-8"))


def run_notebook(name, **parameters):
    """Runs a notebook's code cells. Returns the variables."""
    variables = {}
    for cell in read_notebook(name)["cells"]:
        if cell["cell_type"] != "code":
            continue
        source = "".join(cell["source"])
        exec(compile(source, f"{name}.ipynb", "exec"), variables)
        if "parameters" in cell["metadata"].get("tags", ()):
            assert parameters.keys() <= variables.keys()
            variables |= parameters
    return variables


def test_notebooks_are_stored_without_outputs():
    names = {path.stem for path in EXAMPLES.glob("*.ipynb")}
    assert names == {"layers", "quickstart", WITH_OUTPUTS}
    for name in names:
        notebook = read_notebook(name)
        assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
        for cell in notebook["cells"]:
            code = "".join(cell["source"])
            if "import keras\n" in code:  # TensorFlow then starts quietly
                ours = code.index("import keras_transformer")
                assert ours < code.index("import keras\n")
            if cell["cell_type"] == "code" and name != WITH_OUTPUTS:
                assert not cell["outputs"] and cell["execution_count"] is None


def test_stored_outputs_are_those_of_the_code():
    """The pictures of other pages are also those of the notebook."""
    notebooks = load_script("notebooks", ROOT / "docs/site")
    notebook, pictures = read_notebook(WITH_OUTPUTS), 0
    assert notebook["metadata"]["sources"] == notebooks.checksum(notebook)
    assert len(notebook["cells"]) <= 114
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":  # Colab has no other files
            assert "](.." not in "".join(cell["source"])
        tags = cell["metadata"].get("tags", ())
        folded = cell["metadata"].get("jupyter", {}).get("source_hidden", False)
        title = "".join(cell["source"]).startswith("# @title ")
        assert folded == title == ("hide-input" in tags)
        for tag in tags:
            if picture := notebooks.PICTURE.fullmatch(tag):
                stored = cell["outputs"][-1]["data"]["image/svg+xml"]
                path = ROOT / "docs" / picture["name"]
                assert path.read_text("utf-8") == "".join(stored)
                pictures += 1
    assert pictures == 5


@pytest.mark.slow("run")
def test_the_annotated_transformer_says_what_is_so(tmp_path):
    """Fewer steps; part 8 reads sentences of the phrasebook."""
    for name, number in (("train", 300), ("test_2016_flickr", 12)):
        write_pairs(tmp_path / name, phrasebook.read_split("train", number))
    found = run_notebook(
        WITH_OUTPUTS,
        copy_steps=150,
        num_pairs=600,
        rounds=5,
        steps_per_round=12,
        num_test=10,
        lengths=(16, 64),
        num_samples=2000,
        num_deep_layers=5,
        multi30k=str(tmp_path),
        multi30k_vocabulary=400,
        multi30k_steps=4,
    )
    plt.close("all")
    errors = {name: x for name, x in found.items() if name.endswith("_error")}
    assert len(errors) == 11
    assert max(errors.values()) < 1e-4, errors
    thing, action = found["masked_weights"]
    assert thing[2] > 0.9 and thing[3] == 0
    assert action.tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0])
    assert found["paths"] == {
        "recurrent": [7, 31, 127],
        "convolution, k = 3": [4, 16, 64],
        "dilated convolution, k = 3": [2, 4, 5],  # log_3 n
        "restricted attention, r = 9": [2, 8, 32],
        "self-attention": [1, 1, 1],
    }
    assert found["variances"] == pytest.approx(found["sizes"], rel=0.2)
    with_scale, without = (
        [derivative for _, derivative in found["saturation"][name]]
        for name in ("with", "without")
    )
    assert min(with_scale) > 0.15 and without[-1] < 0.05
    post, pre = found["norms"]["post-norm"], found["norms"]["pre-norm"]
    assert max(post) / min(post) > 2 * max(pre) / min(pre)
    assert found["count"](37000, 512, 2048, 6) == 63_045_632
    assert found["model"].count_params() == found["count"](1000, 128, 512, 2)
    assert found["losses_of_targets"][0] == min(found["losses_of_targets"])
    assert len(set(found["accuracies"])) == 1
    assert (np.diff(found["perplexities"]) > 0).all()
    assert found["copy_accuracies"][-1] > 0.9  # guessing gives 0.08
    left_out = {name: values[-1] for name, values in found["learned"].items()}
    assert left_out["no causal mask"] > 0.9  # it reads the answer
    assert max(left_out[f"no {part}"] for part in (
        "positions", "1 / sqrt(d_k)", "warm-up",
    )) < 0.6  # fmt: skip
    assert all(
        number == 0 for name, number in found["copied"].items() if "no " in name
    )
    # The reader's model learns, too, and its measures are those of the package.
    losses, *_ = zip(*found["history"], strict=True)
    assert losses[-1] < losses[0] - 0.5
    shares = list(found["padding_shares"].values())
    assert shares == sorted(shares, reverse=True)
    model = found["package_model"]
    model.compile(
        loss=kt.SmoothedCrossEntropy(0.1),
        metrics=[kt.TokenAccuracy(), kt.Perplexity()],
    )
    measured = model.evaluate(
        found["valid"].dataset(epochs=1), verbose=0, return_dict=True
    )
    for name in ("perplexity", "token_accuracy"):
        by_hand = found["averaged_" + name.removeprefix("token_")]
        assert by_hand == pytest.approx(measured[name], rel=1e-4)
    for weight, *others in zip(
        found["averaged"], *found["checkpoints"], strict=True
    ):
        np.testing.assert_allclose(weight, np.mean(others, axis=0), atol=1e-6)
    # The plain searches are those of the package.
    text, translator = found["sentence"], found["translator"]
    ids = found["tokenizer"].to_ids([text])[0]
    longest = len(ids) + 50  # BOS, not EOS
    written = found["greedy"](found["model"], ids, longest)
    [written] = found["tokenizer"].to_strings([written])
    assert written == translator.translate([text])[0]
    assert found["by_hand_score"] == pytest.approx(found["score"], abs=1e-4)
    assert found["winner"] in found["tree"] and found["winner"][0] == kt.BOS
    bleu = sacrebleu.corpus_bleu([found["hypothesis"]], [[found["reference"]]])
    assert found["bleu_by_hand"] == pytest.approx(bleu.score)
    assert found["real_bleu"] >= 0
    assert {*found["shipped"].languages.targets} >= {"de", "fr", "ru"}


@pytest.mark.slow("run")
def test_quickstart_learns_its_sentences(capsys):
    """It learns a few sentences, as all would take minutes."""
    found = run_notebook(
        "quickstart",
        num_pairs=20,
        vocab_size=160,
        d_model=64,
        num_buckets=1,
        epochs=120,
        warmup_steps=30,
    )
    sources, references = zip(*found["pairs"], strict=True)
    translations = found["translator"].translate(sources)
    learned = sum(map(str.__eq__, translations, references))
    assert learned >= 17  # rounding differs by CPU
    metrics = found["history"].history
    assert metrics["token_accuracy"][-1] > 0.5
    # The notebook translates other sentences, and shows how well.
    assert not set(sources) & set(found["sources"])
    out = capsys.readouterr().out
    assert f"{found['sources'][0]} -> {found['translations'][0]}\n" in out
    bleu = sacrebleu.BLEU().corpus_score(
        found["translations"], [found["references"]]
    )
    assert found["bleu"].score == bleu.score
    page = found["figure"]._repr_html_()
    assert page.startswith("<iframe") and found["figure"].forced is False
    assert found["figure"].source == found["sources"][0]


@pytest.mark.slow("run")
def test_layers_learn_more_than_guessing():
    found = run_notebook("layers")
    assert 0.5 < found["guessing"] < 0.9
    # Half of the way to no mistake.
    assert found["accuracy"] > (1 + found["guessing"]) / 2
    ids = found["encode"](found["test_sentences"])
    expected = found["model"].predict(ids, verbose=0)
    assert (found["loaded"].predict(ids, verbose=0) == expected).all()


@pytest.fixture
def made_exports(monkeypatch):
    """Makes export commands link to the shared export."""
    commands, there = [], exports.exported("saved_model")[0]

    def main(argv):
        arguments = flags.parse(argv, "", export.ExportOptions, DecodingConfig)
        options = arguments.build(export.ExportOptions)
        commands.append(options)
        pathlib.Path(options.output).symlink_to(there)

    monkeypatch.setattr(export, "main", main)
    return commands


@pytest.mark.slow("process")
def test_serve_answers_as_the_translator(tmp_path, made_exports, capsys):
    lines = ["one dog\n", "two red dogs\n", "the house is green\n"]
    output = str(tmp_path / "exported")
    serve = load_script("serve")
    for _ in range(2):  # the second finds what the first has exported
        serve.main(str(exports.workdir()), output, io.StringIO("".join(lines)))
    [options] = made_exports
    assert options.format == "saved_model"
    assert options.workdir == str(exports.workdir())
    answers = capsys.readouterr().out.splitlines()
    assert answers[:3] == answers[3:]
    expected = exports.translator().n_best([line[:-1] for line in lines])
    for answer, ((text, score), (second, _), *_) in zip(
        answers[:3], expected, strict=True
    ):
        translation, shown, other = answer.split("\t")
        assert (translation, other) == (text, second)
        assert float(shown) == pytest.approx(score, abs=1e-3)


def test_links_of_both_directions_become_one(tmp_path, capsys):
    """3-0 lies beside 2-1, as that beside 1-1; 3-6 comes too late for 3."""
    paths = tmp_path / "forward", tmp_path / "reverse"
    paths[0].write_text("0-0 2-1 4-4\n\n")
    paths[1].write_text("0-0 1-1 3-0 3-6\n1-1\n")
    load_script("symmetrize_links").main(*paths)
    assert capsys.readouterr().out == "0-0 1-1 2-1 3-0 4-4\n1-1\n"


@contextlib.contextmanager
def serving(directory, sizes):
    """Serves a SavedModel over gRPC, as TensorFlow Serving would."""
    signatures = tf.saved_model.load(str(directory)).signatures

    def predict(model, signature_name, inputs):
        assert model == "toy"
        sizes.append(len(inputs["text"]))
        found = signatures[signature_name](
            **{name: tf.constant(value) for name, value in inputs.items()}
        )
        # More than gRPC takes by default.
        return {"ballast": b"x" * (4 << 20), **found}

    class Service(prediction_service_pb2_grpc.PredictionServiceServicer):
        def Predict(self, request, context):
            inputs = {
                name: tf.make_ndarray(value)
                for name, value in request.inputs.items()
            }
            spec = request.model_spec
            response = predict_pb2.PredictResponse()
            for name, value in predict(
                spec.name, spec.signature_name, inputs
            ).items():
                response.outputs[name].CopyFrom(tf.make_tensor_proto(value))
            return response

    server = grpc.server(futures.ThreadPoolExecutor(2))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        Service(), server
    )
    port = server.add_insecure_port("localhost:0")
    server.start()
    try:
        yield f"localhost:{port}"
    finally:
        server.stop(None)


@pytest.mark.slow("process")
def test_a_client_translates_what_a_server_serves(monkeypatch):
    sizes = []  # of requests
    directory = exports.exported("saved_model")[0] / "1"
    client = load_script("grpc_client")
    monkeypatch.setattr(client, "LINES", 2)
    with serving(directory, sizes) as address:
        service = client.connect(address)
        found = client.predict(service, "toy", "n_best", text=["one dog"])
        assert found["hypotheses"].shape == (1, exports.DECODING.beam_size)
        lines, output = io.BytesIO(b"one dog\n\n\xfftree \t"), io.BytesIO()
        client.main(address, "toy", lines, output)
        assert sizes == [1, 2, 1]
    lines = ["one dog", "", "\ufffdtree \t"]
    expected = exports.translator().translate(lines)
    assert output.getvalue().decode().splitlines() == expected


def test_a_client_without_a_server_says_so(monkeypatch):
    client = load_script("grpc_client")
    with pytest.raises(SystemExit, match="localhost:1: UNAVAILABLE: "):
        client.main("localhost:1", "toy", io.BytesIO(b"one\n"), io.BytesIO())
