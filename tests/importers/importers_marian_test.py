"""Import of Marian's .npz: its logits, its translations, and refusals."""

import dataclasses
import itertools
import json
import shutil
import zipfile

import numpy as np
import original_models
import pytest
import sentencepiece
import yaml
from commands import fails
from original_models import FIXTURES, Original, check_logits
from readable import readable

import keras_transformer as kt
from keras_transformer.importers import find_format, marian
from keras_transformer.importers.vocabularies import make_tokenizers
from keras_transformer.text.tokenization import save_tokenizer
from keras_transformer.text.vocabulary import BOS, EOS, SPACE, UNK
from savedmodel.reload.tokenizer import load_vocabularies
from trainers import import_model

PACKAGE = FIXTURES / "marian_npz"
OPTIONS = "special:model.yml"
MATRIX = "decoder_ff_logit_out"


@pytest.fixture(scope="module")
def original():
    ids = yaml.safe_load((PACKAGE / "opus.vocab.yml").read_text("utf-8"))
    return Original(PACKAGE, (list(ids), list(ids)))


def test_package_has_the_logits_and_the_ids_of_marian(original):
    imported = marian.read(PACKAGE)
    check_logits(original, imported)
    # `y` is a piece of source.spm, and not of vocab.yml.
    tokenizer, pieces = imported.tokenizer, original.pieces[0]
    (row,) = tokenizer.source.encode(["They buy it."]).to_list()
    processor = sentencepiece.SentencePieceProcessor(
        str(PACKAGE / "source.spm")
    )
    made = processor.encode("They buy it.", out_type=str)
    assert "y" in made and "y" not in pieces
    expected = [piece if piece in pieces else "<unk>" for piece in made]
    found = [tokenizer.source.pieces[id] for id in row]
    assert found == [*expected, "</s>"]


def test_language_codes_are_those_of_the_table(tmp_path):
    folder = shutil.copytree(PACKAGE, tmp_path / "model")
    model = folder / "source.spm"
    unknown = ">>fra<< They buy it."
    original_models.check_text(
        marian.read(folder).tokenizer.source, model, unknown
    )
    # OPUS-MT's packages write a code before the pieces.
    vocabulary = folder / "opus.vocab.yml"
    ids = yaml.safe_load(vocabulary.read_text("utf-8"))
    piece = list(ids)[-1]
    ids[">>fra<<"] = ids.pop(piece)
    text = "".join(f"{json.dumps(p)}: {id}\n" for p, id in ids.items())
    vocabulary.write_text(text, encoding="utf-8")
    imported = marian.read(folder)
    tokenizer = imported.tokenizer.source
    (row,) = tokenizer.to_ids([unknown])
    (rest,) = tokenizer.to_ids(["They buy it."])
    assert row == [tokenizer.pieces.index(">>fra<<"), *rest]
    assert tokenizer.encode([unknown]).to_list() == [row]
    save_tokenizer(imported.tokenizer, tmp_path)
    vocabulary = load_vocabularies(tmp_path)[0]
    for text in (unknown, ">>deu<< They buy it.", "They buy it."):
        assert [[*vocabulary.encode(text), EOS]] == tokenizer.to_ids([text])
    original_models.check_text(tokenizer, model, ">>deu<< They buy it.")


def test_a_code_that_the_model_knows_is_its_own(tmp_path):
    """A vocabulary that is a SentencePiece model segments the whole line."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["they buy it", "it is a rose"] * 5),
        model_prefix=str(tmp_path / "vocab"),
        vocab_size=30,
        user_defined_symbols=[">>fra<<"],
        hard_vocab_limit=False,
        minloglevel=2,
    )
    path = (tmp_path / "vocab.model").rename(tmp_path / "vocab.spm")
    tokenizer = make_tokenizers([marian._read_spm_side(path)] * 2)
    text = ">>fra<< they buy it"
    original_models.check_text(tokenizer, path, text)
    assert SPACE in [tokenizer.pieces[id] for id in tokenizer.to_ids([text])[0]]
    save_tokenizer(tokenizer, tmp_path)
    (vocabulary, _) = load_vocabularies(tmp_path)
    assert [[*vocabulary.encode(text), EOS]] == tokenizer.to_ids([text])


def test_command_translates_as_marian_does(original, tmp_path, capsys):
    workdir = tmp_path / "run"
    import_model.main([f"--source={PACKAGE}", f"--workdir={workdir}"])
    out = capsys.readouterr().out
    assert "(marian)" in out and "never writes an unknown subword" in out
    decoding = kt.Translator.load(workdir).decoding
    assert (decoding.beam_size, decoding.stopping) == (4, "marian")
    decoding = dataclasses.replace(decoding, max_output_length=40)
    translator = kt.Translator.load(workdir, decoding)
    expected = original.expected
    read = readable(translator.tokenizer, expected["sources"])
    assert len(read) > 10
    found = translator.n_best([expected["sources"][i] for i in read])
    for ((text, score), *_), i in zip(found, read, strict=True):
        best = expected["beam"][i]
        assert text == best["text"]
        np.testing.assert_allclose(score, best["score"], atol=1e-4)
    assert len({best["text"] for best in expected["beam"]}) > 10


def marian_logits(arrays, options, source, target):
    """Computes the logits of a sentence like Marian's transformer.h."""
    width, heads = options["dim-emb"], options["transformer-heads"]

    def norm(x, prefix, suffix):
        scale, bias = (
            arrays[f"{prefix}_ln_{name}{suffix}"] for name in ("scale", "bias")
        )
        centered = x - x.mean(-1, keepdims=True)
        deviation = np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-6)
        return scale * centered / deviation + bias

    def process(operations, prefix, x, before=None, suffix=""):
        for operation in operations:
            if operation == "a":
                x = x + before
            if operation == "n":
                x = norm(x, prefix, suffix)
        return x

    def sublayer(name, prefix, x, function):
        y = process(options["transformer-preprocess"], prefix, x, suffix="_pre")
        return process(
            options["transformer-postprocess"], prefix, function(y), x
        )

    def attend(prefix, queries, keys, causal=False):
        def split(x, letter):
            y = (
                x @ arrays[f"{prefix}_W{letter}"]
                + arrays[f"{prefix}_b{letter}"]
            )
            return y.reshape(len(y), heads, -1).swapaxes(0, 1)

        q, k, v = split(queries, "q"), split(keys, "k"), split(keys, "v")
        scores = q @ k.swapaxes(1, 2) / np.sqrt(width // heads)
        if causal:
            scores = scores - 1e9 * np.triu(np.ones(scores.shape[1:]), 1)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        joined = (weights @ v).swapaxes(0, 1).reshape(len(queries), -1)
        return joined @ arrays[f"{prefix}_Wo"] + arrays[f"{prefix}_bo"]

    def transform(prefix, x):
        x = x @ arrays[f"{prefix}_W1"] + arrays[f"{prefix}_b1"]
        if options["transformer-ffn-activation"] == "relu":
            x = np.maximum(x, 0)
        else:
            x = x / (1 + np.exp(-x))
        return x @ arrays[f"{prefix}_W2"] + arrays[f"{prefix}_b2"]

    def embed(stack, rows):
        rates = np.exp(np.arange(width // 2) * -np.log(1e4) / (width / 2 - 1))
        angles = np.arange(len(rows))[:, None] * rates
        signal = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
        x = rows * np.sqrt(width) + signal
        operations = options["transformer-postprocess-emb"]
        return process(operations, f"{stack}_emb", x, suffix="_pre")

    def matrix(name):
        return arrays["Wemb" if "Wemb" in arrays else f"{name}_Wemb"]

    def layers(stack, x, memory=None):
        numbers = range(1, options[f"{stack[:3]}-depth"] + 1)
        if stack == "decoder":
            numbers = options["transformer-tied-layers"] or numbers
        for number in numbers:
            prefix = f"{stack}_l{number}"
            x = sublayer(
                "self",
                f"{prefix}_self_Wo",
                x,
                lambda y, p=prefix: attend(
                    f"{p}_self", y, y, memory is not None
                ),
            )
            if memory is not None:
                x = sublayer(
                    "context",
                    f"{prefix}_context_Wo",
                    x,
                    lambda y, p=prefix: attend(f"{p}_context", y, memory),
                )
            x = sublayer(
                "ffn",
                f"{prefix}_ffn_ffn",
                x,
                lambda y, p=prefix: transform(f"{p}_ffn", y),
            )
        top = options["transformer-postprocess-top"]
        return process(top, f"{stack}_top", x)

    memory = layers("encoder", embed("encoder", matrix("encoder")[source]))
    # The first embedding is zero.
    rows = np.zeros((len(target) + 1, width))
    rows[1:] = matrix("decoder")[target]
    x = layers("decoder", embed("decoder", rows), memory)
    output = arrays.get("decoder_ff_logit_out_Wt")
    if output is None:
        output = matrix("decoder")
    return x @ output.T + arrays.get("decoder_ff_logit_out_b", 0)


def write_variant(folder, sizes, left_out=(), **changes):
    """Makes a random model with other options: arrays and options."""
    with np.load(PACKAGE / "opus.npz") as archive:
        options = yaml.safe_load(archive[OPTIONS].tobytes().rstrip(b"\0"))
        known = {k: v for k, v in archive.items() if k != OPTIONS}
    width, random = options["dim-emb"], np.random.default_rng(5)
    options |= changes
    shapes = {
        name: array.shape
        for name, array in known.items()
        if name.startswith(("encoder_l", "decoder_l"))
    }
    if options["transformer-preprocess"] == "n":
        shapes = {
            f"{name}_pre" if "_ln_" in name else name: shape
            for name, shape in shapes.items()
        }
    for stack in ("encoder", "decoder"):
        for kind in ("scale", "bias"):
            if options["transformer-postprocess-top"] == "n":
                shapes[f"{stack}_top_ln_{kind}"] = 1, width
            if "n" in options["transformer-postprocess-emb"]:
                shapes[f"{stack}_emb_ln_{kind}_pre"] = 1, width
    if options["tied-embeddings-src"]:
        shapes["Wemb"] = sizes[1], width
    else:
        for stack, size in zip(("encoder", "decoder"), sizes, strict=True):
            shapes[f"{stack}_Wemb"] = size, width
    if not options["tied-embeddings"]:
        shapes["decoder_ff_logit_out_Wt"] = sizes[1], width
    written = {k: v for k, v in options.items() if k not in left_out}
    if not options["output-omit-bias"]:
        shapes["decoder_ff_logit_out_b"] = 1, sizes[1]
    arrays = {
        name: random.normal(size=shape, scale=0.5).astype("float32")
        for name, shape in shapes.items()
    }
    text = yaml.safe_dump(written).encode() + b"\0"
    stored = {**arrays, OPTIONS: np.frombuffer(text, np.int8)}
    np.savez(folder / "model.npz", **stored)
    return arrays, options


VARIANTS = {
    "pre-norm, own output matrix, no bias": {
        "transformer-preprocess": "n",
        "transformer-postprocess": "da",
        "transformer-postprocess-top": "n",
        "tied-embeddings": False,
        "tied-embeddings-src": False,
        "output-omit-bias": True,
        "transformer-ffn-activation": "relu",
    },
    "norm of embeddings, tied layers, own source": {
        "transformer-postprocess-emb": "nd",
        "transformer-tied-layers": [2, 2, 1],
        "dec-depth": 3,
        "tied-embeddings": True,
        "tied-embeddings-src": False,
    },
    "own output matrix": {
        "tied-embeddings": False,
        "tied-embeddings-src": True,
    },
    "tied one by one, options left out": {
        "tied-embeddings": True,
        "tied-embeddings-src": True,
        "transformer-postprocess": "dan",
        "transformer-dropout": 0.25,
        "transformer-dropout-attention": 0.125,
        "transformer-dropout-ffn": 0.0625,
    },
}
# Of the last one, what has these values if it is left out.
LEFT_OUT = ("transformer-postprocess", "transformer-postprocess-emb", "type")


@pytest.mark.parametrize("name", VARIANTS)
def test_other_options_have_the_logits_of_marians_formula(tmp_path, name):
    changes = {"tied-embeddings-all": False, **VARIANTS[name]}
    shared = changes["tied-embeddings-src"]
    names = ["target.spm"] * 2 if shared else ["source.spm", "target.spm"]
    for vocabulary in set(names):
        shutil.copy(PACKAGE / vocabulary, tmp_path)
    processors = [
        sentencepiece.SentencePieceProcessor(str(tmp_path / n)) for n in names
    ]
    sizes = [processor.get_piece_size() for processor in processors]
    left_out = LEFT_OUT if "left out" in name else ()
    arrays, options = write_variant(
        tmp_path, sizes, left_out, vocabs=names, **changes
    )
    if name == "own output matrix":  # as older versions of Marian have it
        with np.load(tmp_path / "model.npz") as archive:
            stored = dict(archive)
        stored[f"{MATRIX}_W"] = stored.pop(f"{MATRIX}_Wt").T
        np.savez(tmp_path / "model.npz", **stored)
    assert find_format(tmp_path) == "marian"
    imported = marian.read(tmp_path)
    decoding = imported.decoding  # without a decoder.yml, Marian's own
    assert (decoding.beam_size, decoding.length_penalty) == (12, 0.0)
    for field, part in (
        ("dropout", ""),
        ("attention_dropout", "-attention"),
        ("activation_dropout", "-ffn"),
    ):
        expected = changes.get(f"transformer-dropout{part}", 0.0)
        assert getattr(imported.config, field) == expected
    source, target = (
        processor.encode(text) + [processor.eos_id()]
        for processor, text in zip(
            processors, ("The boy buys a camera.", "Der Junge"), strict=True
        )
    )
    expected = marian_logits(arrays, options, source, target[:-1])
    places = []
    for processor, size in zip(processors, sizes, strict=True):
        # Ids here: PAD, BOS, EOS, UNK, then Marian's in their order.
        special = {processor.eos_id(): EOS, processor.unk_id(): UNK}
        others = itertools.count(4)
        places.append([special.get(i) or next(others) for i in range(size)])
    model = imported.make_model()
    logits = model(
        {
            "source_ids": np.array([[places[0][i] for i in source]], "int32"),
            "target_ids": np.array(
                [[BOS, *(places[1][i] for i in target[:-1])]], "int32"
            ),
        }
    )[0].numpy()
    np.testing.assert_allclose(logits[:, places[1]], expected, atol=1e-4)
    assert (logits[:, : BOS + 1] < -5e3).all(), "PAD and BOS are left out"


REFUSED = [
    ({"transformer-decoder-autoreg": "rnn"}, "--transformer-decoder-autoreg"),
    ({"type": "multi-transformer"}, "--type='multi-transformer'"),
    ({"transformer-ffn-activation": "gelu"}, "--transformer-ffn-activation"),
    ({"transformer-postprocess": "dhn"}, "--transformer-postprocess=dan"),
    ({"transformer-decoder-dim-ffn": 7}, "--transformer-decoder-dim-ffn=7"),
    ({"vocabs": ["a.yml", "b.yml", "c.yml"]}, "one source and one target"),
    ({"vocabs": ["a.fsv", "b.fsv"]}, "factored ones"),
    ({"transformer-heads": None}, "missing option --transformer-heads"),
    ({"transformer-tied-layers": [1]}, "--transformer-tied-layers=[1]"),
    ({"transformer-tied-layers": [[1], 2]}, "-layers=[[1], 2]"),
    ({"transformer-tied-layers": [1, 9]}, "no tensor decoder_l9_self_Wq"),
    ({"tied-embeddings-all": True}, "embeddings are shared, but EOS"),
    ({"ulr": 0}, "--ulr=0 cannot be imported"),
    ({"dec-depth": 3}, "no tensor decoder_l3_self_Wq"),
    ({"transformer-tied-layers": [True, 2]}, "--transformer-tied-layers=[T"),
]


@pytest.mark.parametrize("changes, message", REFUSED)
def test_what_cannot_be_mapped_is_named(tmp_path, changes, message):
    names = ["source.spm", "target.spm"]
    for name in names:
        shutil.copy(PACKAGE / name, tmp_path)
    options = {"vocabs": names, "tied-embeddings-all": False, **changes}
    write_variant(tmp_path, (70, 84), **options)
    with pytest.raises(ValueError) as error:
        marian.read(tmp_path)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_hostile_archives_end_the_command_with_one_line(tmp_path, capsys):
    def refuse(message):
        argv = [f"--source={folder}", f"--workdir={tmp_path / 'run'}"]
        argv.append("--format=marian")
        assert message in fails(import_model.main, argv, capsys)
        assert not (tmp_path / "run").exists()

    folder = shutil.copytree(PACKAGE, tmp_path / "model")
    path = folder / "opus.npz"
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    refuse("not an intact .npz")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.npy", bytes(1 << 20))
    refuse("expected at most 100 times the size")

    np.savez(path, a=np.ones(2))
    refuse("expected a model of Marian")
    path.write_bytes(content)
    vocabulary = folder / "opus.vocab.yml"
    text = vocabulary.read_text("utf-8")
    vocabulary.write_text(text + "another: 5\n", encoding="utf-8")
    refuse("expected each id below")

    vocabulary.write_text(text.replace("</s>:", "<end>:"), encoding="utf-8")
    refuse("</s>, which Marian needs")
    vocabulary.write_text(text + "more: -1\n", encoding="utf-8")
    refuse("expected each id below")
    vocabulary.write_text(text, encoding="utf-8")
    (folder / "target.spm").rename(tmp_path / "target.spm")
    refuse("expected the SentencePiece model that makes the pieces of")
    (tmp_path / "target.spm").rename(folder / "target.spm")
    with np.load(path) as archive:
        np.savez(path, Wpos=np.ones(2), **archive)
    refuse("1 unexpected tensors. Received: Wpos")
    path.write_bytes(content)
    edit_options(folder / "decoder.yml", models=["opus.npz", "b.npz"])
    refuse("it is an ensemble")
    (folder / "decoder.yml").rename(folder / "a.decoder.yml")
    shutil.copy(folder / "a.decoder.yml", folder / "b.decoder.yml")
    refuse("Received: a.decoder.yml, b.decoder.yml")


def edit_options(path, **changes):
    """Changes options of the decoder."""
    options = {**yaml.safe_load(path.read_text("utf-8")), **changes}
    path.write_text(yaml.safe_dump(options), encoding="utf-8")


def test_the_decoders_options_come_first(tmp_path):
    folder = shutil.copytree(PACKAGE, tmp_path / "model")
    # Names that Marian has changed, and files from validation.
    (folder / "opus.vocab.yml").rename(folder / "new.yml")
    shutil.copy(folder / "opus.npz", folder / "model.best.npz")
    shutil.copy(
        folder / "decoder.yml", folder / "model.npz.best-bleu.npz.decoder.yml"
    )
    changes = {
        "models": ["/elsewhere/opus.npz"],
        "vocabs": ["/elsewhere/new.yml"] * 2,
        "normalize": 0.5,
        "word-penalty": 0.1,
        "allow-unk": True,
    }
    edit_options(folder / "decoder.yml", **changes)
    imported, expected = marian.read(folder), marian.read(PACKAGE)
    assert imported.config == expected.config
    assert imported.decoding.length_penalty == 0.5
    assert imported.notes == ["the search here has no word-penalty"]


def test_options_of_a_validation_are_those_there_are(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "model")
    path = tmp_path / "model/decoder.yml"
    path.rename(path.with_name("opus.npz.best-bleu.npz.decoder.yml"))
    decoding = marian.read(tmp_path / "model").decoding
    assert decoding == marian.read(PACKAGE).decoding


def test_models_without_special_pieces_are_refused(tmp_path):
    names = ["source.spm", "target.spm"]
    for name in names:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(["a b c"] * 5),
            model_prefix=str(tmp_path / name),
            vocab_size=7,
            eos_id=-1,
            hard_vocab_limit=False,
            minloglevel=2,
        )
        (tmp_path / f"{name}.model").rename(tmp_path / name)
    write_variant(tmp_path, (7, 7), vocabs=names)
    with pytest.raises(ValueError, match="expected ids of EOS and UNK"):
        marian.read(tmp_path)
