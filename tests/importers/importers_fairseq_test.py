"""Import of fairseq's models: logits, translations, what is refused."""

import pickle
import shutil

import numpy as np
import pytest
from commands import fails
from original_models import (
    FIXTURES,
    Original,
    check_logits,
    check_text,
    translate,
)

import keras_transformer as kt
from keras_transformer.importers import fairseq, find_format
from keras_transformer.importers.torch_pickle import read_torch
from trainers import import_model

MODELS = FIXTURES / "fairseq"
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]


def original_of(name):
    folder = MODELS / name
    pieces = []
    for language in ("en", "de"):
        lines = (folder / f"dict.{language}.txt").read_text("utf-8")
        words = [line.rpartition(" ")[0] for line in lines.splitlines()]
        pieces.append([*SPECIAL, *words])
    return Original(folder, (pieces[0], pieces[1]))


@pytest.fixture
def edit(monkeypatch):
    """Applies a function to checkpoints when they are read."""

    def edit_by(change):
        def read_edited(path, plain):
            state = read_torch(path, plain)
            return change(state) or state

        monkeypatch.setattr(fairseq, "read_torch", read_edited)

    return edit_by


@pytest.mark.parametrize("name", ["iwslt", "t2t", "learned"])
def test_models_have_the_logits_of_fairseq(name):
    imported = fairseq.read(MODELS / name)
    languages = imported.source_language, imported.target_language
    # The checkpoint has not their names: fairseq-train took them from its data.
    assert languages == (("", "") if name == "t2t" else ("en", "de"))
    assert len(imported.notes) == (name == "t2t")
    assert imported.decoding.beam_size == 5
    check_logits(original_of(name), imported)


@pytest.mark.slow("family")
def test_beam_search_is_that_of_fairseq():
    original = original_of("iwslt")
    found = translate(
        fairseq.read(original.folder),
        original.expected["sources"],
        max_output_length=35,
        beam_size=4,
    )
    # At the limit fairseq adds an EOS, which has its price there.
    pairs = [
        (ours, best)
        for ours, best in zip(found, original.expected["beam"], strict=True)
        if len(best["tokens"]) < 35
    ]
    assert len(pairs) > 30
    for (tokens, score), best in pairs:
        assert tokens == best["tokens"]
        np.testing.assert_allclose(score, best["score"], atol=1e-4)


@pytest.mark.slow("family")
def test_command_translates_a_model(tmp_path):
    original, workdir = original_of("iwslt"), tmp_path / "run"
    import_model.main([f"--source={original.folder}", f"--workdir={workdir}"])
    greedy = kt.DecodingConfig(beam_size=1, max_output_length=35, min_length=2)
    translator = kt.Translator.load(workdir, greedy)
    expected = original.expected
    found = translator.translate(expected["sources"])
    assert found == [best["text"] for best in expected["greedy"]]


def test_text_is_that_of_the_sentencepiece_model_alone():
    tokenizer = fairseq.read(MODELS / "iwslt").tokenizer.source
    for text in (">>de<< The boy", ">>The boy<< buys", "The boy buys it."):
        check_text(tokenizer, MODELS / "iwslt/spm.en.model", text)


def test_dictionaries_of_a_training_are_found(tmp_path, edit):
    folder, data = tmp_path / "model", tmp_path / "model/data-bin"
    shutil.copytree(MODELS / "iwslt", folder)
    expected = fairseq.read(folder).tokenizer.source.pieces
    inner = data / "wmt.en-de"
    for place in (data, inner):
        place.mkdir()
        for path in [*folder.glob("dict.*.txt"), *data.glob("dict.*.txt")]:
            path.rename(place / path.name)
        assert find_format(folder) == "fairseq"
        assert fairseq.read(folder).tokenizer.source.pieces == expected
    shutil.copytree(inner, data / "another")
    with pytest.raises(ValueError, match="Received: .*another, .*en-"):
        find_format(folder)
    for path in inner.glob("dict.*.txt"):
        path.unlink()
    (data / "another/dict.de.txt").unlink()
    with pytest.raises(ValueError, match="expected two dictionaries.*data-bin"):
        fairseq.read(folder)

    languages = {"source_lang": "en", "target_lang": "de"}
    edit(lambda state: state["cfg"].update(task=languages))
    with pytest.raises(
        ValueError, match=r"dict\.de\.txt, there or in data-bin"
    ):
        fairseq.read(folder)


def test_a_dictionary_has_lines_that_newlines_end(tmp_path):
    path = tmp_path / "dict.en.txt"
    path.write_bytes("a 3\n\u2028 2\r\nb\x85 1\n".encode())
    assert fairseq._read_symbols(path)[4:] == ("a", "\u2028", "b\x85")
    path.write_bytes(b"a 3\n\nb 1\n")
    with pytest.raises(ValueError, match="line 2: expected a subword and its"):
        fairseq._read_symbols(path)


REFUSED = [
    ({"arch": "transformer_lm"}, "--arch='transformer_lm' cannot be imported"),
    ({"decoder_attention_heads": 4}, "encoder_attention_heads is 2"),
    ({"adaptive_softmax_cutoff": "4,8"}, "--adaptive_softmax_cutoff='4,8'"),
    ({"decoder_layers_to_keep": "0"}, "--decoder_layers_to_keep='0'"),
    ({"activation_fn": "tanh"}, "--activation_fn='tanh'"),
    ({"quant_noise_pq": 0.1}, "--quant_noise_pq=0.1"),
    ({"decoder_output_dim": 8}, "expected decoder_embed_dim=16"),
    ({"encoder_layers": 2}, "no tensor encoder.layers.1.self_attn.q_proj"),
    ({"decoder_layers": 1}, "unexpected tensors"),
    ({"encoder_normalize_before": True}, "encoder_normalize_before is True"),
    ({"arch": None, "_name": "transformer_lm"}, "--arch='transformer_lm'"),
]


@pytest.mark.parametrize("changes, message", REFUSED)
def test_what_cannot_be_mapped_is_named(edit, changes, message):
    edit(lambda state: state["cfg"]["model"].state.update(changes))
    with pytest.raises(ValueError) as error:
        fairseq.read(MODELS / "iwslt")
    assert message in str(error.value) and "\n" not in str(error.value)


def test_options_of_old_versions_and_joined_projections(edit):
    """Before 0.10 options are `args`. Before 0.7 q, k and v are one matrix."""
    expected = fairseq.read(MODELS / "iwslt")

    def as_old(state):
        args = state["cfg"]["model"]
        args.state |= {"source_lang": "en", "target_lang": "de"}
        tensors = state["model"]
        for name in [n for n in tensors if ".q_proj." in n]:
            prefix, _, kind = name.partition(".q_proj.")
            parts = [tensors.pop(f"{prefix}.{c}_proj.{kind}") for c in "qkv"]
            tensors[f"{prefix}.in_proj_{kind}"] = np.concatenate(parts)
        return {"args": args, "model": tensors}

    edit(as_old)
    found = fairseq.read(MODELS / "iwslt")
    assert found.config == expected.config
    assert found.decoding == expected.decoding
    np.testing.assert_equal(found.weights, expected.weights)


def test_options_of_task_and_search_are_taken_over(edit):
    def change(state):
        cfg = state["cfg"]
        cfg["model"].state |= {
            "relu_dropout": 0.25,
            "max_source_positions": 64,
            "arch": None,
            "_name": "transformer_wmt_en_de",
        }
        cfg["task"] = dict(fairseq._attributes(cfg["task"], "file"))
        cfg["task"] |= {"source_lang": "en", "target_lang": "de"}
        cfg["generation"] = generation
        # A copy that version 0.12 keeps, and what other versions leave.
        weights = state["model"]
        weights["encoder.layers.0.fc1_weight"] = np.zeros(3)
        weights["encoder.layers.0.in_proj_weight"] = np.zeros((3, 2))
        weights["encoder.version"] = np.zeros(1)

    edit(change)
    generation = {"beam": 3, "lenpen": 2, "min_len": 4}
    generation["no_repeat_ngram_size"] = 5
    found = fairseq.read(MODELS / "t2t")
    assert (found.source_language, found.target_language) == ("en", "de")
    assert not found.notes
    assert (found.config.activation_dropout, found.max_length) == (0.25, 64)
    decoding = found.decoding
    assert (decoding.beam_size, decoding.length_penalty) == (3, 2.0)
    assert (decoding.min_length, decoding.no_repeat_ngram) == (5, 5)
    assert isinstance(found.tokenizer, kt.Tokenizer)
    generation["unnormalized"] = True
    assert fairseq.read(MODELS / "t2t").decoding.length_penalty == 0.0


def test_a_matrix_of_old_versions_and_tables_of_other_lengths(edit):
    def change(state):
        weights = state["model"]
        matrix = weights.pop("decoder.output_projection.weight")
        weights["decoder.embed_out"] = matrix
        rows = weights["decoder.embed_positions.weight"]
        weights["decoder.embed_positions.weight"] = rows[: len(rows) - cut]

    expected = fairseq.read(MODELS / "learned")
    assert expected.max_length == 64
    edit(change)
    cut = 0
    found = fairseq.read(MODELS / "learned").weights["softmax/matrix"]
    np.testing.assert_array_equal(found, expected.weights["softmax/matrix"])
    cut = 1
    with pytest.raises(
        ValueError, match="expected decoder.embed_positions.weight of sh"
    ):
        fairseq.read(MODELS / "learned")


@pytest.mark.parametrize(
    "model, name, message",
    [
        ("iwslt", "encoder.embed_tokens.weight", "expected a matrix encoder.e"),
        (
            "learned",
            "decoder.embed_positions.weight",
            r"of shape .* Received: \(\)",
        ),
        (
            "iwslt",
            "encoder.layers.0.self_attn.in_proj_weight",
            "self_attn.in_proj_weight: ",
        ),
        ("iwslt", 5, "expected tensors by name"),
    ],
)
def test_tensors_without_axes_are_named(edit, model, name, message):
    edit(lambda state: state["model"].update({name: np.zeros((), "f4")}))
    with pytest.raises(ValueError, match=message):
        fairseq.read(MODELS / model)


def test_files_that_do_not_fit_end_the_command(tmp_path, capsys):
    def refuse(message):
        argv = [f"--source={folder}", f"--workdir={tmp_path / 'run'}"]
        assert message in fails(import_model.main, argv, capsys)
        assert not (tmp_path / "run").exists()

    folder = shutil.copytree(MODELS / "iwslt", tmp_path / "model")
    assert find_format(folder) == "fairseq"
    (folder / "spm.en.model").rename(folder / "bpe.codes")
    (folder / "spm.de.model").rename(folder / "de")
    refuse("subword-nmt and fastBPE cannot be imported")
    (folder / "bpe.codes").rename(folder / "spm.en.model")
    (folder / "de").rename(folder / "spm.de.model")
    dictionary = folder / "dict.de.txt"
    text = dictionary.read_text("utf-8")
    dictionary.write_text(text + "more 1\n", encoding="utf-8")
    refuse("Expected dictionaries of 88 and 96 subwords")
    dictionary.write_text(text + "<s> 1\n", encoding="utf-8")
    refuse("occurs twice, or is a special one")
    dictionary.write_text(text + "no number\n", encoding="utf-8")
    refuse("expected a subword and its frequency. Received: 'no number'")
    dictionary.unlink()
    refuse("expected two dictionaries")
    checkpoint = folder / "checkpoint_last.pt"
    checkpoint.write_bytes(pickle.dumps(print))
    refuse("Received: builtins.print")
    checkpoint.rename(folder / "a.pt")
    shutil.copy(folder / "a.pt", folder / "b.pt")
    refuse(f"or one .pt in {folder}. Received: a.pt, b.pt")
    shutil.copy(folder / "a.pt", folder / "checkpoint_last.pt")
    (folder / "b.pt").write_bytes(b"")
    dictionary.write_text(text.replace("\n", " \n", 1), encoding="utf-8")
    shutil.copy(MODELS / "iwslt/checkpoint_last.pt", folder / "model.pt")
    assert fairseq.read(folder).config.vocab_size == 97
    for path in folder.glob("spm.*.model"):
        language = path.name.split(".")[1]
        path.rename(folder / f"sentencepiece.{language}.model")
    assert fairseq.read(folder).config.vocab_size == 97
    # As many subwords, and others: which is the source?
    english = (folder / "dict.en.txt").read_text("utf-8").splitlines()
    (folder / "dict.fr.txt").write_text(
        "\n".join(["other 1", *english[1:]]) + "\n", encoding="utf-8"
    )
    dictionary.unlink()
    refuse("does not say which language is the source")
