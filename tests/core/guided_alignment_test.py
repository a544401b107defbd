"""Guided alignment: from files of word links to a head that aligns words."""

import json
import random
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from commands import fails, write_pairs
from tolerance import assert_close

import keras_transformer as kt
from keras_transformer.commands.flags import CommandError
from keras_transformer.data import word_links
from keras_transformer.figures.attention import attention_figure
from keras_transformer.training import token_losses
from keras_transformer.training.step import TrainStep
from keras_transformer.training.token_losses import TokenLosses, alignment_loss
from keras_transformer.training.update import GuidedHead, StepOptions
from savedmodel import ctranslate2, export
from savedmodel.formats import Export, check_model
from trainers import align, wmt

# ------------------------------------------------------------------- the loss

RANDOM = np.random.default_rng(3)
ATTENTION = RANDOM.dirichlet(np.ones(5), (2, 4)).astype("float32")
LINKS = RANDOM.random((2, 4, 5)) < 0.4
LINKS[0, 1] = False


def numpy_loss(attention, links):
    """Computes -log A averaged over the links of each token."""
    loss = np.zeros(links.shape[:2])
    for row, token in np.ndindex(loss.shape):
        linked = attention[row, token, links[row, token]]
        loss[row, token] = -np.log(linked).mean() if linked.size else 0
    return loss


def test_loss_is_the_cross_entropy_of_evenly_spread_links():
    found = alignment_loss(ATTENTION, LINKS)
    np.testing.assert_allclose(found, numpy_loss(ATTENTION, LINKS), rtol=1e-3)
    assert found[0, 1] == 0  # no links
    nowhere = alignment_loss(np.eye(5, dtype="float16")[None], ~LINKS[:1, :1])
    assert np.isfinite(nowhere).all() and nowhere.dtype == "float32"


def pairs_of_ids(rows=6):
    """Makes pairs of ids with random links. The second half is short."""
    ids = RANDOM.integers(4, 19, (rows, 5)).astype("int32")
    labels = RANDOM.integers(4, 19, (rows, 4)).astype("int32")
    labels[rows // 2 :, 2:] = 0
    target_ids = np.concatenate([np.ones((rows, 1), "int32"), labels[:, :3]], 1)
    links = RANDOM.random((rows, 4, 5)) < 0.3
    return {"source_ids": ids, "target_ids": target_ids, "links": links}, labels


def guided_head(model):
    """Returns the second head of the first decoder layer."""
    return GuidedHead(model.decoder.blocks[0].cross_attention, 2, 0.7)


def losses_of(model, batch, is_guided=False, **options):
    """Returns a batch's losses and log-probabilities, guided or not."""
    if is_guided:
        options["guided_head"] = guided_head(model)
    return TokenLosses(model, StepOptions(0.1, **options))(*batch)


@pytest.fixture
def model():
    """A model with two decoder layers, one above that of the guided head."""
    return kt.Transformer(
        vocab_size=19,
        d_model=8,
        d_ff=12,
        num_heads=2,
        num_layers=1,
        num_decoder_layers=2,
        d_key=3,
        dropout=0.0,
    )


@pytest.mark.parametrize("r_drop", [0.0, 2.0])
def test_losses_include_that_of_the_guided_head(model, r_drop):
    inputs, labels = pairs_of_ids()
    losses, nll = losses_of(model, (inputs, labels), r_drop=r_drop)
    guided = losses_of(model, (inputs, labels), True, r_drop=r_drop)
    attention = model.attention_maps(inputs).cross[:, 0, 1].numpy()
    expected = losses + 0.7 * numpy_loss(attention, inputs["links"])
    np.testing.assert_allclose(guided[0], expected, rtol=1e-3)
    assert_close(guided[1], nll)


def test_its_gradient_passes_through_attention_alone(model):
    """Queries and keys of the head, and what they are made of."""
    batch = pairs_of_ids()
    variables = {v.path: v.value for v in model.trainable_variables}
    with tf.GradientTape() as tape:
        plain, both = (losses_of(model, batch, g)[0] for g in (False, True))
        term = tf.reduce_sum(both - plain)
    gradients = tape.gradient(term, variables)

    def size(name):
        [path] = [p for p in variables if f"/{name}/kernel" in p]
        found = tf.convert_to_tensor(gradients[path]).numpy()
        return np.abs(found).max(axis=0)

    for kind in ("query", "key"):
        of_heads = size(f"decoder/layer_0/cross_attention/{kind}").reshape(2, 3)
        assert of_heads[0].max() < 1e-5 < 1e-3 < of_heads[1].min()
    for after in (
        "layer_0/cross_attention/value",
        "layer_0/cross_attention/output",
        "layer_0/feed_forward/inner",
        "layer_1/self_attention/query",
    ):
        assert size(f"decoder/{after}").max() < 1e-5
    assert size("decoder/layer_0/self_attention/value").max() > 1e-4
    assert size("encoder/layer_0/self_attention/value").max() > 1e-4


def test_slices_and_micro_batches_add_up_to_the_whole(model):
    inputs, labels = pairs_of_ids()
    found = []
    for micro_batches, num_slices in ((1, 1), (3, 2)):
        step = TrainStep(
            model,
            keras.optimizers.SGD(0.1),
            StepOptions(0.1, micro_batches, guided_head=guided_head(model)),
            num_slices=num_slices,
        )
        found.append(step.gradients(inputs, labels))
    tf.nest.map_structure(
        lambda one, other: np.testing.assert_allclose(one, other, atol=1e-5),
        *found,
    )


def test_without_guidance_no_attention_is_recorded(model, monkeypatch):
    monkeypatch.setattr(token_losses, "recorded_weights", None)
    losses_of(model, pairs_of_ids())
    with pytest.raises(TypeError):
        losses_of(model, pairs_of_ids(), True)


# ----------------------------------------------- links of words, and of tokens

PAIRS = [
    ("the houses", "die Häuser"),
    ("too long " * 30, "zu lang"),
    ("two¨words", "a b c"),  # which the vocabulary divides in two
    ("he sees the dogs", "Hunde sieht er"),
]
LINES = ["0-0 1p1", "0-0", "0-0", "3-0 2-0 1-1 0-2"]


@pytest.fixture(scope="module")
def tokenizer():
    lines = [text for pair in PAIRS for text in pair]
    return kt.Tokenizer.train(lines, vocab_size=45)


@pytest.fixture
def read(tmp_path):
    """Reads a file of links for `PAIRS`."""

    def read(lines):
        path = tmp_path / "links.txt"
        path.write_text("".join(f"{line}\n" for line in lines))
        return word_links.read_links([(str(path), PAIRS)])

    return read


def test_all_tokens_of_linked_words_are_linked(read, tokenizer):
    corpora = [
        kt.encode_corpus(PAIRS, tokenizer, 30),
        kt.SampledCorpus(PAIRS, tokenizer, 30, alpha=0.3, seed=1),
    ]
    links = word_links.TokenLinks(read(LINES), corpora[0], tokenizer)
    assert str(links).startswith("6 links of 3 pairs; 1 pairs have no links")
    of_pair = {(0, 0), (1, 1)}, set(), {(3, 0), (2, 0), (1, 1), (0, 2)}
    other_tokens = []
    for corpus, epoch in ((corpora[0], 0), (corpora[1], 0), (corpora[1], 1)):
        batches = kt.make_batches(corpus, 100, num_buckets=1, links=links)
        [(indices, shape)] = batches.epoch_order(epoch)
        inputs, labels = batches.assemble(indices, shape, epoch)
        sides = inputs["source_ids"], inputs["target_ids"]
        for row, number in enumerate(indices):
            texts = [read_words(tokenizer, side[row]) for side in sides]
            found = {
                (source, target)
                for target, source in np.argwhere(inputs["links"][row])
            }
            assert found == {
                (i, j)
                for i, source in enumerate(texts[0])
                for j, target in enumerate(texts[1])
                if (source, target) in of_pair[number]
            }
        other_tokens.append(labels.tolist())
    assert len({str(labels) for labels in other_tokens}) == 3


def read_words(tokenizer, ids):
    """Returns each token's word, 99 for BOS, EOS and PAD, by piece."""
    words, word = [], -1
    for id in ids:
        piece = tokenizer.pieces[id]
        word += piece.startswith("\u2581")
        words.append(word if id > 2 else 99)
    return words


def test_canonical_words_are_those_of_the_tokenizer(tokenizer):
    for side, texts in enumerate(zip(*PAIRS, strict=True)):
        for text, tokens in zip(texts, tokenizer.tokens(texts), strict=True):
            if "¨" in text:
                continue
            ids = [token.id for token in tokens]
            words = [token.word for token in tokens]
            assert read_words(tokenizer, ids) == words, side


@pytest.mark.parametrize(
    "lines, message",
    [
        (LINES[:3], "line 4: expected a line of links for each of the 4 pairs."
         " Received: a file that ends before this line"),
        ([*LINES, ""], "line 5: .*: a file that has this line"),
        (["0-0 0:1", *LINES[1:]], "line 1: a link must look like .*: '0:1'"),
        ([*LINES[:3], "0-3"], "line 4: the pair has 4 and 3 words, .* 0 and 3"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused(lines, message, read):
    with pytest.raises(ValueError, match=f"links.txt, {message}"):
        read(lines)


def test_links_without_words_are_refused(read, tokenizer):
    corpus = kt.encode_corpus(PAIRS, tokenizer, 30)
    with pytest.raises(ValueError, match="expected links of words. Rec.*: 0 l"):
        word_links.TokenLinks(read([""] * 4), corpus, tokenizer)


# ------------------------------------------------------------------- the run

WORDS = "one two three four five six seven eight nine ten".split()
TOY = (
    "--dataset=files --vocab_size=50 --d_model=32 --d_ff=32 --num_heads=4"
    " --num_layers=1 --dropout=0 --batch_tokens=700 --num_buckets=1"
    " --schedule=constant --learning_rate=0.02 --train_steps=80"
    " --log_steps=80 --average_last=1 --beam_size=1 --cpu_threads=1"
).split()


def toy_pairs(number=120):
    """Makes pairs of distinct words, their capitals reordered, and links."""
    choose = random.Random(2)
    pairs, lines = [], []
    for _ in range(number):
        words = choose.sample(WORDS, choose.randint(3, 5))
        order = choose.sample(range(len(words)), len(words))
        target = [words[source].upper() for source in order]
        pairs.append((" ".join(words), " ".join(target)))
        links = sorted((source, target) for target, source in enumerate(order))
        lines.append(" ".join(f"{i}-{j}" for i, j in links))
    return pairs, lines


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The work directory of a toy run, its pairs and the path of its links."""
    folder = tmp_path_factory.mktemp("guided")
    pairs, lines = toy_pairs()
    prefix = write_pairs(folder / "train", pairs)
    links = folder / "links.txt"
    links.write_text("".join(f"{line}\n" for line in lines))
    workdir = folder / "run"
    argv = [*TOY, f"--train_files={prefix}", f"--workdir={workdir}"]
    argv += [f"--guided_alignment={links}", "--guided_alignment_weight=2"]
    wmt.main(argv)
    return workdir, pairs, links


@pytest.mark.slow("run")
def test_the_head_aligns_as_the_links_say(trained, capfdbinary):
    workdir, pairs, links = trained
    decoding = json.loads((workdir / "config.json").read_text())["decoding"]
    assert decoding["alignment_head"] == 1
    prefix = links.with_name("train")
    command = [f"--workdir={workdir}", f"--test_files={prefix}"]
    align.main([*command, f"--gold={links}"])
    summary = json.loads(capfdbinary.readouterr().out.splitlines()[-1])
    assert summary["aer"] < 0.05 and summary["criterion"] == "given"
    translator = kt.Translator.load(workdir)
    figure = attention_figure(translator, *pairs[0])
    assert "aligned by encoder-decoder attention of layer 1, head 1" in (
        " ".join(figure.notes)
    )
    with pytest.raises(ValueError, match="alignment_head of at most"):
        translator.with_decoding(alignment_head=5)


def test_ctranslate2_returns_the_attention_of_the_head(trained, tmp_path):
    from ctranslate2 import Translator

    translator = kt.Translator.load(trained[0])
    options = export.ExportOptions(
        workdir=str(trained[0]), format="ctranslate2", output=str(tmp_path)
    )
    ctranslate2.write(Export(translator, tmp_path, options, {}, []))
    pieces = translator.tokenizer.pieces
    sources = [source for source, _ in trained[1][:5]]
    rows = translator.tokenizer.to_ids(sources)
    found = Translator(str(tmp_path), device="cpu").translate_batch(
        [[pieces[id] for id in row[:-1]] for row in rows],
        beam_size=1,
        return_attention=True,
        return_end_token=True,
    )
    for row, result in zip(rows, found, strict=True):
        labels = [pieces.index(piece) for piece in result.hypotheses[0]]
        ours = translator.inference.alignment_ids(
            tf.constant([row]), tf.constant([labels])
        )[0, :, :-1]
        theirs = np.array(result.attention[0])[1:, : len(row) - 1]
        np.testing.assert_allclose(theirs, ours, atol=1e-4)
    other = translator.with_decoding(alignment_head=2)
    with pytest.raises(CommandError, match="=0 or 1. Received: alignment_"):
        check_model("ctranslate2", other.model.config, other.decoding)


@pytest.mark.parametrize(
    "flags, message",
    [
        ("--guided_alignment=a,b", "for each of train_files. Received:"),
        ("--guided_alignment=/no/such", "No such file"),
        ("--guided_alignment_weight=1", "weight needs guided_alignment."),
        ("--guided_alignment=a --remat=layers", "needs remat=none"),
        ("--guided_alignment=a --alignment_head=5", "at most num_heads=4"),
        ("--guided_alignment=a --dataset=phrasebook --train_files=", "needs d"),
    ],
)
def test_what_does_not_fit_is_refused(flags, message, trained, capsys):
    prefix = trained[2].with_name("train")
    argv = [*TOY, f"--train_files={prefix}", f"--workdir={prefix}.none"]
    assert re.search(message, fails(wmt.main, [*argv, *flags.split()], capsys))
