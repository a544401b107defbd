"""Exports of models that read their languages as tokens."""

import json
import shutil

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
from commands import fails
from later import later
from original_models import FIXTURES

import keras_transformer as kt
from keras_transformer.commands.flags import CommandError
from keras_transformer.importers import read_model
from keras_transformer.text.vocabulary import BOS, PAD
from keras_transformer.translation.requests import Request
from savedmodel import export, huggingface, search
from savedmodel.formats import Export
from savedmodel.saved_model import Signatures
from trainers import import_model

NAMES = ("nllb", "m2m100", "mbart50")
# More: the language behind the source; the target's before it, none forced; a
# decoder that starts with it.
FAMILIES = (*NAMES, "nllb_legacy", "small100", "mbart")


def original(family, tmp_path_factory):
    """Returns the folder of a family's model."""
    names = {"nllb_legacy": "nllb", "small100": "m2m100", "mbart": "mbart50"}
    if family in NAMES:
        return FIXTURES / family
    folder = shutil.copytree(
        FIXTURES / names[family], tmp_path_factory.mktemp("originals") / family
    )
    if family == "small100":
        (folder / "tokenization_small100.py").touch()
    else:
        change(
            folder / "tokenizer_config.json",
            tokenizer_class="MBartTokenizer" if family == "mbart" else "Nllb",
            legacy_behaviour=True,
        )
    if family == "mbart":
        tokens = json.loads((folder / "tokenizer.json").read_text("utf-8"))
        [start] = [
            t["id"] for t in tokens["added_tokens"] if t["content"] == "ro_RO"
        ]
        change(folder / "generation_config.json", decoder_start_token_id=start)
    return folder


def change(path, **values):
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.fixture(
    scope="module", params=[FAMILIES[0], *later("family", *FAMILIES[1:])]
)
def imported(request, tmp_path_factory):
    """A model's family, its folder, and its work directory."""
    workdir = tmp_path_factory.mktemp("runs") / request.param
    folder = import_family(request.param, workdir, tmp_path_factory)
    return request.param, folder, workdir


def sources(family):
    """Returns sentences, one of them blank and one too long."""
    folder = {"small100": "m2m100", "mbart": "mbart50", "nllb_legacy": "nllb"}
    path = FIXTURES / folder.get(family, family) / "expected.json"
    lines = json.loads(path.read_text())["sources"][:3]
    return [*lines, " ", "a dog " * 40]


def write(workdir, output, format_name, *flags):
    argv = [f"--workdir={workdir}", f"--output={output}"]
    export.main([*argv, f"--format={format_name}", *flags])


def import_family(family, workdir, tmp_path_factory):
    """Makes a work directory of a model. Returns the model's folder."""
    folder = original(family, tmp_path_factory)
    import_model.main([f"--source={folder}", f"--workdir={workdir}"])
    return folder


def write_huggingface(live, folder):
    options = export.ExportOptions(
        workdir=".", output=str(folder), format="huggingface"
    )
    huggingface.write(Export(live, folder, options, {}, []))


# ---- SavedModel -------------------------------------------------------------


def test_a_graph_has_the_directions_of_each_sentence(imported):
    """All signatures with text, by the search of the live translator."""
    family, _, workdir = imported
    live = kt.Translator.load(workdir)
    signatures = Signatures(live)
    texts = sources(family)
    pairs = live.languages.pairs
    pairs = [pairs[3 * i % len(pairs)] for i in range(len(texts))]
    requests = [
        Request(text, direction=live.languages.direction(*pair))
        for text, pair in zip(texts, pairs, strict=True)
    ]
    names = search.Directions(live).inputs
    told = {"small100": ["target_language"], "mbart": ["source_language"]}
    assert names == told.get(family, ["source_language", "target_language"])
    columns = dict(zip(search.LANGUAGES, zip(*pairs, strict=True), strict=True))
    inputs = {name: tf.constant(columns[name]) for name in names}
    inputs["text"] = tf.constant(texts)
    expected = live.search(requests)
    found = signatures.answer("n_best", **inputs)
    for number, one in enumerate(expected):
        assert [t.decode() for t in found["hypotheses"][number].numpy()][
            : len(one.texts)
        ] == one.texts
        ids = found["ids"][number, 0].numpy()
        assert ids[ids != PAD].tolist() == one.ids[0]
        np.testing.assert_allclose(
            found["scores"][number, 0], one.scores[0], atol=1e-5
        )
    truncated = found["truncated"].numpy().tolist()
    assert truncated == [bool(one.notes) for one in expected]
    assert truncated[-1] and not any(truncated[:-1])
    # A prefix follows the language, which is no part of a score.
    first = [text for text in texts if text.strip()][:1]
    one = {name: values[:1] for name, values in inputs.items()}
    prefix = tf.constant(["a"])
    forced = signatures.answer("forced", **one, target_prefix=prefix)
    [wanted] = live.search(
        [Request(first[0], "a", direction=requests[0].direction)]
    )
    assert forced["translation"][0].numpy().decode() == wanted.texts[0]
    scored = signatures.answer("score", reference=tf.constant(["a dog"]), **one)
    [score] = live.score([(requests[0], "a dog")])
    np.testing.assert_allclose(
        scored["log_probs"][0], score.log_probs, atol=1e-5
    )
    maps = signatures.answer(
        "attention_maps", **one, reference=tf.constant(["a dog"])
    )
    assert maps["translation"][0].numpy().decode() == "a dog"
    pieces = [p.decode() for p in maps["source_pieces"][0].numpy()]
    direction = requests[0].direction
    assert direction.before in ("", pieces[0])
    assert direction.after in ("", pieces[-1])


@pytest.mark.slow("family")
def test_a_wrong_language_is_an_error_of_the_graph():
    live = kt.Translator.from_pretrained(FIXTURES / "nllb")
    signature = Signatures(live).signature("serving_default")
    good = {
        "text": tf.constant(["a dog", "a rose"]),
        "source_language": tf.constant(["eng_Latn"] * 2),
        "target_language": tf.constant(["deu_Latn", "fra_Latn"]),
    }
    assert signature(**good)["translation"].shape == [2]
    bad = {**good, "target_language": tf.constant(["deu_Latn", "de"])}
    message = "target_language must be a language of the model: deu_Latn, eng"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message) as error:
        signature(**bad)
    assert "Received" in str(error.value) and "[de]" in str(error.value)
    bad = {**good, "target_language": tf.constant(["deu_Latn"])}
    with pytest.raises(tf.errors.InvalidArgumentError, match="same number of"):
        signature(**bad)
    # Of a model of one direction it is the direction of all.
    one = live.with_languages("eng_Latn", "deu_Latn")
    one.languages = type(live.languages)("eng_Latn", "deu_Latn", "nllb")
    signature = Signatures(one).signature("serving_default")
    [text] = signature(text=tf.constant(["a dog"]))["translation"].numpy()
    assert text.decode() == one.translate(["a dog"])[0]


# ---- Other formats ----------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "format_name"),
    [
        ("nllb", "ctranslate2"),
        *later("format", ("nllb", "tflite"), ("nllb_legacy", "onnx")),
        *later("family", ("nllb_legacy", "ctranslate2")),
    ],
)
def test_an_export_translates_in_all_directions(
    family, format_name, tmp_path, tmp_path_factory, capsys
):
    """Verified, in a process of its own, with directions by chance."""
    workdir = tmp_path / "run"
    import_family(family, workdir, tmp_path_factory)
    capsys.readouterr()
    output = tmp_path / "export"
    write(workdir, output, format_name, "--max_source_length=20")
    assert "4 of 4 sentences equal" in capsys.readouterr().out
    description = json.loads((output / "export.json").read_text())
    place = "before" if family == "nllb" else "after"
    assert description["language_places"] == {
        place: "source_language",
        "output": "target_language",
    }
    ids = description["language_ids"]
    vocabulary = kt.Tokenizer.load(output / "tokenizer.model")
    assert {vocabulary.pieces[id]: id for id in ids.values()} == ids


@pytest.mark.slow("backend")
def test_ctranslate2_as_the_engine_has_a_direction_for_each_sentence(
    tmp_path, tmp_path_factory
):
    """The model reads a language behind the source, and begins with one."""
    workdir = tmp_path / "run"
    import_family("nllb_legacy", workdir, tmp_path_factory)
    greedy = kt.DecodingConfig(beam_size=1)
    native, engine = (
        kt.Translator.load(workdir, greedy, engine=engine)
        for engine in ("native", "ctranslate2")
    )
    codes = ("eng_Latn", "deu_Latn"), ("deu_Latn", "eng_Latn")
    requests = [
        Request(text, direction=native.languages.direction(*pair))
        for text in sources("nllb_legacy")[:4]
        for pair in codes
    ]
    found, expected = engine.search(requests), native.search(requests)
    assert [one.ids for one in found] == [one.ids for one in expected]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.scores, other.scores, atol=1e-4)


def test_the_id_of_no_language_has_no_translation():
    """The graph cannot raise an error."""
    live = kt.Translator.from_pretrained(FIXTURES / "nllb")
    directions = search.Directions(live)
    ids = directions.ids["source_language"]
    run = search.make_search(live)
    [row] = live.tokenizer.to_ids(["a dog"])
    found = run(
        tf.constant([row, row]),
        tf.constant([ids["eng_Latn"], 7]),
        tf.constant([ids["deu_Latn"]] * 2),
    )
    assert np.isfinite(found["scores"][0, 0])
    assert np.isnan(found["scores"][1]).all()
    assert not found["lengths"][1].numpy().any()
    assert found["ids"][0, 0, 0] == ids["deu_Latn"]


# ---- Hugging Face -----------------------------------------------------------


def tensors_of(folder):
    return {
        name: array
        for path in folder.glob("*.safetensors")
        for name, array in safetensors.numpy.load_file(path).items()
    }


def test_an_export_is_the_original_again(imported, tmp_path):
    family, folder, workdir = imported
    output = tmp_path / "export"
    write(workdir, output, "huggingface", "--verify=none")
    expected, found = tensors_of(folder), tensors_of(output)
    assert found.keys() <= expected.keys()
    for name in expected.keys() - {"lm_head.weight"}:
        first = 2 if "embed_positions" in name else 0  # rows without a use
        again = found.get(name, expected["model.shared.weight"])
        assert np.array_equal(again[first:], expected[name][first:])
    if family in ("m2m100", "small100"):
        files = [
            json.loads((p / "vocab.json").read_text()) for p in (folder, output)
        ]
        assert files[0] == files[1]
    _, before = read_model(folder)
    _, after = read_model(output)
    assert after.config == before.config
    assert after.languages == before.languages
    pieces = [each.tokenizer.pieces[BOS + 1 :] for each in (before, after)]
    assert pieces[0] == pieces[1]
    assert after.decoding == before.decoding
    lines = sources(family)
    assert after.tokenizer.to_ids(lines) == before.tokenizer.to_ids(lines)
    for path, array in before.weights.items():
        assert np.array_equal(after.weights[path], array), path
    written = json.loads((output / "config.json").read_text())
    published = json.loads((folder / "config.json").read_text())
    for name in written.keys() - {
        "forced_eos_token_id",
        "decoder_start_token_id",
        "max_position_embeddings",
    }:
        assert written[name] == published[name], name


def test_the_start_of_outputs_may_have_learned(tmp_path):
    """After a training BOS is no other token: then it is the last id."""
    live = kt.Translator.from_pretrained(FIXTURES / "nllb")
    table = live.model.source_input.embedding.embeddings
    rows = table.numpy()
    rows[BOS] += 1.0
    table.assign(rows)
    write_huggingface(live, tmp_path)
    size = live.tokenizer.vocab_size
    assert len(tensors_of(tmp_path)["model.shared.weight"]) == size
    written = json.loads((tmp_path / "generation_config.json").read_text())
    assert written["decoder_start_token_id"] == size - 1
    assert written["bad_words_ids"] == [[1], [size - 1]]
    assert written["renormalize_logits"]
    _, again = read_model(tmp_path)
    assert np.array_equal(again.weights["embedding/embeddings"][BOS], rows[BOS])


def test_m2m100_has_no_bias_of_the_logits(tmp_path):
    live = kt.Translator.from_pretrained(FIXTURES / "m2m100")
    bias = live.model.softmax.logits_bias
    bias.assign(bias + 1.0)
    with pytest.raises(CommandError, match="needs logits_bias of 0"):
        write_huggingface(live, tmp_path)


def test_a_search_that_transformers_lacks_is_refused(
    imported, tmp_path, capsys
):
    family, _, workdir = imported
    if family == "nllb":
        argv = [f"--workdir={workdir}", f"--output={tmp_path / 'export'}"]
        argv += ["--format=huggingface", "--no_repeat_ngram=2"]
        assert "needs no_repeat_ngram=0" in fails(export.main, argv, capsys)
