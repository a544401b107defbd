"""Low-rank adapters: mathematics, training, files, merging, the server."""

import json
import shutil

import numpy as np
import pytest
from commands import (
    changed_config,
    copy_of_run,
    fails,
    losses_in,
    open_trainer,
    tensors,
    train,
)
from tolerance import assert_close

import keras_transformer as kt
from keras_transformer.commands.flags import CommandError
from keras_transformer.config import DecodingConfig
from keras_transformer.figures.attention import attention_figure
from keras_transformer.kernels.layers import Linear
from keras_transformer.storage.adapters import SwitchedAdapters, read_factors
from keras_transformer.storage.checkpoints import (
    Checkpoint,
    Checkpoints,
    named_weights,
)
from keras_transformer.storage.workdir import WorkDirectory
from keras_transformer.translation.requests import Request
from trainers import average, wmt
from trainers.datasets import phrasebook
from trainers.run.data_config import DataConfig
from trainers.serving.options import ServeOptions
from trainers.serving.pairs import load_pairs
from trainers.serving.work import AlignSpans, DrawAttention, SearchWork
from trainers.translating.options import EnsembleOptions

RANK = 3
SENTENCES = ["the dog sees a house", "a cat", "red"]
A, B = "lora_kernel_a", "lora_kernel_b"


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A work directory with random weights, which are not trained."""
    directory = WorkDirectory(tmp_path_factory.mktemp("base") / "run")
    directory.path.mkdir()
    pairs = phrasebook.read_split("train", 300)
    tokenizer = kt.Tokenizer.train((t for pair in pairs for t in pair), 150)
    tokenizer.save(directory.tokenizer_path)
    config = kt.TransformerConfig(
        vocab_size=150, d_model=8, d_ff=12, num_heads=2, num_layers=1
    )
    decoding = DecodingConfig(beam_size=2, extra_length=3)
    directory.write_config(model=config, data=DataConfig(), decoding=decoding)
    weights = named_weights(kt.Transformer(config))
    random = np.random.default_rng(0)
    for weight in weights.values():
        if len(weight.shape) > 1:
            weight.assign(0.5 * random.normal(size=weight.shape))
    directory.averaged.save({"weights": weights}, step=1, keep=1)
    return directory.path


@pytest.fixture(scope="module")
def flags(train_files, base):
    """Flags of adapters for two of the matrices, with fast learning."""
    return [
        *(*train_files, f"--init_from={base}", f"--lora_rank={RANK}"),
        *("--num_buckets=2", "--batch_tokens=600", "--log_steps=1"),
        *("--strategy=one_device", "--extra_length=3", "--beam_size=2"),
        "--average_last=1",
        *("--schedule=constant", "--learning_rate=0.05", "--train_steps=4"),
        *("--checkpoint_steps=1", "--keep_checkpoints=9"),
    ]


@pytest.fixture(scope="module")
def run(flags, tmp_path_factory):
    """A work directory of adapters."""
    path = tmp_path_factory.mktemp("adapters") / "run"
    train([*flags, f"--workdir={path}"])
    return path


def merged_by_hand(base, run, checkpoint="averaged/ckpt-4"):
    """Computes W + A B for each weight, in NumPy."""
    weights = tensors(base / "averaged/ckpt-1")
    factors = tensors(run / checkpoint, "weights")
    for name in list(weights):
        stem = name.removesuffix("kernel")
        if stem + A in factors:
            weights[name] = (
                weights[name] + factors[stem + A] @ factors[stem + B]
            )
    return {n.removeprefix("weights/"): array for n, array in weights.items()}


@pytest.mark.parametrize("shape", [(5, 6), (2, 5, 6)])
@pytest.mark.parametrize("activation", [None, "relu"])
def test_a_layer_adds_the_product_of_its_factors(shape, activation):
    random = np.random.default_rng(1)
    layer = Linear(4, activation=activation)
    x = random.normal(size=shape).astype("float32")
    layer(x)
    for weight in layer.weights:
        weight.assign(random.normal(size=weight.shape))
    w, bias = (weight.numpy() for weight in layer.weights)
    before = layer(x).numpy()
    layer.enable_lora(RANK)
    assert_close(layer(x), before)  # B begins with zeros
    layer.lora_kernel_b.assign(random.normal(size=(RANK, 4)))
    a, b = layer.lora_kernel_a.numpy(), layer.lora_kernel_b.numpy()
    assert a.any()
    wanted = x @ (w + a @ b) + bias
    wanted = np.maximum(wanted, 0) if activation else wanted
    np.testing.assert_allclose(layer(x), wanted, rtol=1e-4, atol=1e-5)
    # As Keras' layer has it: what a saved model holds.
    np.testing.assert_allclose(layer.kernel, w + a @ b, rtol=1e-4, atol=1e-5)
    assert [v.name for v in layer.trainable_variables] == ["bias", A, B]


@pytest.mark.parametrize(
    "dtype, computed_in, alpha, tolerance",
    [
        ("bfloat16", "bfloat16", RANK, 0.05),
        ("mixed_bfloat16", "bfloat16", RANK, 0.05),
        ("float32", "float32", 2 * RANK, 1e-4),  # twice, by Keras' scale
    ],
)
def test_the_type_and_the_scale_of_an_adapter(
    dtype, computed_in, alpha, tolerance
):
    layer = Linear(4, dtype=dtype)
    x = np.ones((2, 6), "float32")
    before = layer(x)
    layer.enable_lora(RANK, lora_alpha=alpha)
    layer.lora_kernel_b.assign(np.ones((RANK, 4)))
    after = layer(x)
    assert after.dtype == before.dtype == computed_in
    product = x @ layer.lora_kernel_a.numpy() @ np.ones((RANK, 4))
    after, before = (y.numpy().astype("float32") for y in (after, before))
    added = alpha / RANK * product
    np.testing.assert_allclose(after - before, added, atol=tolerance)


def test_checkpoints_have_the_adapters_alone(base, run):
    saved = tensors(run / "checkpoints/ckpt-4")
    names = {n.removeprefix("weights/") for n in saved if "weights/" in n}
    assert names == {
        f"{stack}.layer_0.{attention}.{matrix}.{factor}"
        for stack, attention in (
            ("encoder", "self_attention"),
            ("decoder", "self_attention"),
            ("decoder", "cross_attention"),
        )
        for matrix in ("query", "value")
        for factor in (A, B)
    }
    # The optimizer has two moments of each, and two numbers.
    moments = [a for n, a in saved.items() if "optimizer/" in n and a.ndim]
    assert len(moments) == 2 * len(names)
    size = sum(a.size for n, a in saved.items() if "weights/" in n)
    assert sum(a.size for a in moments) == 2 * size
    assert json.loads((run / "config.json").read_text())["base"] == {
        "checkpoint": str(base / "averaged/ckpt-1"),
        "sha256": WorkDirectory(run).read_base().sha256,
    }


def test_a_translator_has_the_sum(base, run):
    translator = kt.Translator.load(run)
    wanted = merged_by_hand(base, run)
    found = named_weights(translator.model)
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)
    assert translator.checkpoint == str(run / "averaged/ckpt-4")
    before = kt.Translator.load(base)
    assert translator.translate(SENTENCES) != before.translate(SENTENCES)


@pytest.mark.slow("run")
def test_a_resumed_training_is_the_same(run, flags, tmp_path):
    """Losses and adapters are equal up to rounding, without init_from."""
    again = copy_of_run(run, 2, tmp_path / "again")
    out = train([*flags, f"--workdir={again}"])
    assert "adapters: query, value; 288 of" in out
    assert list(losses_in(out)) == [3, 4]
    wanted = tensors(run / "checkpoints/ckpt-4")
    found = tensors(again / "checkpoints/ckpt-4")
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-7)


def test_the_base_stays_as_it_is(base, flags, tmp_path):
    """It stays the same in memory, too, where it is not saved."""
    trainer = open_trainer([*flags, f"--workdir={tmp_path / 'run'}"])
    trainer.run()
    wanted = tensors(base / "averaged/ckpt-1")
    weights = named_weights(trainer.engine.model)
    assert len(weights) == len(wanted) + 12
    for name, weight in weights.items():
        if not name.endswith((A, B)):
            np.testing.assert_array_equal(
                weight.numpy(), wanted[f"weights/{name}"]
            )
        else:
            assert weight.numpy().any()


def test_merged_weights_need_nothing_else(base, run, tmp_path, capsys):
    copy = shutil.copytree(run, tmp_path / "copy")
    merged = tmp_path / "merged"
    average.main([f"--workdir={copy}", "--last=2", f"--merged={merged}"])
    assert f"{merged} has the merged weights" in capsys.readouterr().out
    wanted = merged_by_hand(base, copy)
    found = tensors(merged / "averaged/ckpt-4")
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[f"weights/{name}"], array)
    assert WorkDirectory(merged).read_base() is None
    assert kt.Translator.load(merged).translate(SENTENCES) == (
        kt.Translator.load(copy).translate(SENTENCES)
    )
    argv = [f"--workdir={base}", f"--merged={merged}", "--last=1"]
    message = f"does not exist yet. Received: merged={str(merged)!r}"
    assert message in fails(average.main, argv, capsys)


def test_the_base_must_be_the_same(base, run, tmp_path, capsys):
    copy = shutil.copytree(run, tmp_path / "copy")
    other = shutil.copytree(base, tmp_path / "base")
    prefix = str(other / "averaged/ckpt-1")
    with changed_config(copy) as config:
        config["base"]["checkpoint"] = prefix
    kt.Translator.load(copy)  # it may be elsewhere
    weights = tensors(prefix)
    weights["weights/embedding.embeddings"][0, 0] += 1
    WorkDirectory(other).averaged.save(
        {"weights": {n.split("/")[1]: a for n, a in weights.items()}}, 1, 1
    )
    with pytest.raises(ValueError, match="Received: other weights"):
        kt.Translator.load(copy)
    with pytest.raises(ValueError, match="expected adapters. Received: none"):
        kt.Translator.load(run, checkpoint=str(base / "averaged/ckpt-1"))
    shutil.rmtree(other)
    with pytest.raises(ValueError, match="Received: no such file"):
        kt.Translator.load(copy)


@pytest.mark.slow("backend")
def test_an_export_has_the_sum(base, run, tmp_path):
    """The one that CTranslate2 searches."""
    copy = shutil.copytree(run, tmp_path / "copy")
    decoding = DecodingConfig(beam_size=1)
    found = kt.Translator.load(copy, decoding, engine="ctranslate2")
    assert found.translate(SENTENCES) == (
        kt.Translator.load(run, decoding).translate(SENTENCES)
    )
    [score] = found.score([(SENTENCES[0], "der Hund")])
    for path, is_same in ((run, True), (base, False)):
        [wanted] = kt.Translator.load(path).score([(SENTENCES[0], "der Hund")])
        assert is_same == np.allclose(
            score.log_probs, wanted.log_probs, atol=1e-3
        )


def test_adapters_are_no_weights_to_begin_with(flags, run, tmp_path, capsys):
    argv = [f"--workdir={tmp_path / 'run'}", f"--init_from={run}"]
    error = fails(wmt.main, [*flags, *argv], capsys)
    assert "expected weights in init_from" in error
    for given, message in (
        (["--freeze=encoder"], "lora_rank excludes freeze"),
        (["--init_from="], "lora_rank needs init_from"),
        (
            ["--lora_targets=keys"],
            "expected lora_targets among query, key, value",
        ),
        (["--lora_rank=0", "--lora_targets=key"], "lora_targets needs lora_ra"),
    ):
        error = fails(wmt.main, [*flags, argv[0], *given], capsys)
        assert message in error


# ---- The server -------------------------------------------------------------


@pytest.mark.slow("run")
def test_a_server_has_several_adapters_over_one_model(
    base, run, flags, tmp_path
):
    """They have other ranks and matrices, and their batches alternate."""
    other = tmp_path / "other"
    argv = [*flags, f"--workdir={other}", "--lora_rank=5", "--train_steps=3"]
    train([*argv, "--lora_targets=key,inner", "--seed=3"])
    given = ServeOptions(adapter=(f"one={run}", f"two={other}"))
    options = EnsembleOptions(workdir=str(base))
    [pair] = load_pairs(options, {}, 2, given.adapters)
    model = pair.model
    wanted = {
        name: kt.Translator.load(path).search(SENTENCES)
        for name, path in (("", base), ("one", run), ("two", other))
    }
    decoding = model.translator.decoding
    requests = list(map(Request, SENTENCES))
    for name in ("one", "", "two", "one", "two", "two", ""):
        search = SearchWork(model, decoding, True, adapter=name)
        for found, expected in zip(search(requests), wanted[name], strict=True):
            assert found.translation.texts == expected.texts
            assert_close(found.translation.scores, expected.scores)
    texts = [[t.texts for t in one] for one in wanted.values()]
    assert texts[0] != texts[1] != texts[2] != texts[0]
    # Each is work of its own.
    assert SearchWork(model, decoding) != SearchWork(
        model, decoding, adapter="one"
    )
    links = AlignSpans(model, "one")
    assert links == AlignSpans(model, "one") != AlignSpans(model, "two")
    pairs = [(Request(SENTENCES[0]), "der Hund sieht")]
    expected = kt.Translator.load(run).align_spans(pairs)
    assert links(pairs) == expected
    item = (SENTENCES[0], "der Hund sieht")
    pages = [
        DrawAttention(pair, name)([item])[0] for name in ("two", "", "two")
    ]
    assert pages[0] == pages[2] != pages[1]
    drawn, wanted = (
        attention_figure(t, *item).maps
        for t in (pair.translator, kt.Translator.load(other))
    )
    for place in wanted:
        np.testing.assert_allclose(drawn[place], wanted[place], atol=1e-4)
    # The weights are there once.
    names = [n for n in named_weights(model.translator.model) if A in n]
    assert len(names) == 3 * 3 + 2


def test_an_adapter_that_cannot_be_used_leaves_no_half(base, run):
    translator = kt.Translator.load(base)
    model, weights = translator.model, Checkpoint(*translator.checkpoints)
    good = read_factors(str(run / "averaged/ckpt-4"), weights)
    others = {name: (2 * a, 2 * b) for name, (a, b) in good.items()}
    wrong = np.zeros((8, RANK)), np.zeros((RANK, 9))
    bad = {name: {**others, name: wrong} for name in good}
    switched = SwitchedAdapters(model, {"good": good, **bad})
    switched.use("good")
    wanted = [weight.numpy().copy() for weight in model.weights]
    for name in bad:
        with pytest.raises(ValueError):
            switched.use(name)
        switched.use("good")
        for weight, array in zip(model.weights, wanted, strict=True):
            np.testing.assert_array_equal(weight, array)


def test_adapters_are_whole_and_of_their_base(base, run, tmp_path):
    """No matrix is left out silently, and none is broadcast."""
    weights = Checkpoint(*kt.Translator.load(base).checkpoints)
    arrays = tensors(run / "averaged/ckpt-4")
    layer = min(arrays).removesuffix(f".{A}").removeprefix("weights/")
    a, b = (f"weights/{layer}.{factor}" for factor in (A, B))
    missing = {n: x for n, x in arrays.items() if n not in (a, b)}
    for bad in (
        {**missing, a: arrays[a]},
        {**missing, b: arrays[b]},
        missing,
        {**arrays, a: arrays[a][:1]},
        {**arrays, b: arrays[b][:, :1]},
        {**missing, f"weights/x.{A}": arrays[a], f"weights/x.{B}": arrays[b]},
    ):
        groups = {"weights": {n[8:]: x for n, x in bad.items()}}
        prefix = Checkpoints(tmp_path / "bad").save(groups, 1, 1)
        name = layer if bad.keys() <= arrays.keys() else f"({layer}|x)"
        with pytest.raises(ValueError, match=f"ckpt-1: .*Received: {name} of"):
            read_factors(prefix, weights)


def test_adapters_of_another_model_are_refused(base, run, tmp_path):
    options = EnsembleOptions(workdir=str(base))
    copy = shutil.copytree(run, tmp_path / "copy")
    with changed_config(copy) as config:
        config["base"]["sha256"] = "0"
    message = "expected adapters of .*/run/averaged/ckpt-1. Received"
    with pytest.raises(CommandError, match=message):
        load_pairs(options, {}, 2, [("one", str(copy))])
    options = EnsembleOptions(workdir=f"{base},{base}")
    with pytest.raises(CommandError, match="one work directory with adapter"):
        load_pairs(options, {}, 2, [("one", str(run))])
    for given in (("one=a", "one=b"), ("=a",)):
        with pytest.raises(ValueError, match="adapter as NAME=DIR"):
            ServeOptions(adapter=given)
