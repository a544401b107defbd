"""Strings to strings: every line is translated, alone or with others."""

import bisect
import dataclasses
import functools
import pickle
import threading
from unittest import mock

import numpy as np
import pytest
import sacrebleu
import sharing
import tensorflow as tf
from later import later
from tolerance import assert_close

from keras_transformer.config import (
    DecodingConfig,
    TransformerConfig,
    find_alignment_layer,
)
from keras_transformer.data.labels import shift_right
from keras_transformer.decoding import UNCONSTRAINED, Constraints, row_loop
from keras_transformer.decoding.rules import MAX_DRAW
from keras_transformer.model import Transformer
from keras_transformer.storage.checkpoints import named_weights
from keras_transformer.storage.workdir import WorkDirectory
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.text.vocabulary import EOS, PAD
from keras_transformer.translation import batched
from keras_transformer.translation.arrays import pad_rows
from keras_transformer.translation.batched import room
from keras_transformer.translation.draws import make_draws
from keras_transformer.translation.grouping import batches_of, padded_length
from keras_transformer.translation.inference import Inference
from keras_transformer.translation.limits import Limits
from keras_transformer.translation.requests import (
    Encoding,
    Request,
    encode,
    make_requests,
)
from keras_transformer.translator import Translator

TEXT = [
    "the quick brown fox jumps over the lazy dog",
    "pack my box with five dozen liquor jugs",
    "how quickly daft jumping zebras vex",
]
CONFIG = TransformerConfig(
    vocab_size=60, d_model=16, d_ff=16, num_heads=2, num_layers=1
)


def make_translator(seed=3, config=CONFIG, **options):
    """Makes a translator whose model knows nothing, but is confident."""
    beam_size = options.pop("beam_size", 2)
    decoding = DecodingConfig(
        beam_size=beam_size, extra_length=3, sampling=False
    )
    decoding = dataclasses.replace(decoding, **options.pop("decoding", {}))
    model = Transformer(config, dtype=options.pop("dtype", "float32"))
    random = np.random.default_rng(seed)
    for weight in model.trainable_weights:
        weight.assign(random.normal(size=weight.shape, scale=0.5))
    options = {"max_source_length": 30, **options}
    tokenizer = Tokenizer.train(TEXT, CONFIG.vocab_size)
    return Translator(tokenizer, model, decoding, **options)


def limited(translator, max_source_length):
    """Returns the translator with another limit."""
    return Translator(
        translator.tokenizer,
        translator.model,
        translator.decoding,
        max_source_length,
    )


@pytest.fixture(scope="module")
def translator():
    """A shared translator, as tracing is slow. Change it by `monkeypatch`."""
    return make_translator()


def test_same_answer_in_any_company(translator, monkeypatch):
    lines = [TEXT[0], "fox", TEXT[1], "the dog", "", TEXT[2], "fox"]
    together = translator.translate(lines)
    alone = [translator.translate([line])[0] for line in lines]
    assert together == alone and len(set(together)) > 3
    monkeypatch.setattr(translator, "batch_tokens", 16)
    assert translator.translate(lines) == together


def test_workers_give_the_same_answers_in_the_same_order(
    translator, monkeypatch
):
    """Two batches meet in the search, or none of the two would go on."""
    lines = [*TEXT, "fox", "", "the dog", *TEXT[::-1], "the lazy dog"]
    expected = translator.n_best(lines)
    search = sharing.engine_search(translator)
    monkeypatch.setattr(search, "batch_tokens", 16)
    monkeypatch.setattr(search, "num_threads", 2)
    graph, met = search.run, threading.Barrier(2, timeout=600)
    first = iter([True, True])

    def together(*arguments, **options):
        if next(first, False):
            met.wait()
        return graph(*arguments, **options)

    monkeypatch.setattr(search, "run", together)
    found = translator.n_best(lines)
    assert not met.broken and next(first, None) is None
    assert_close(found, expected)
    with pytest.raises(ValueError, match="num_threads=0"):
        make_translator(num_threads=0)


@pytest.mark.parametrize("num_threads", [1, 2])
def test_a_bar_counts_the_sentences_that_are_found(
    translator, monkeypatch, num_threads
):
    search = sharing.engine_search(translator)
    monkeypatch.setattr(search, "batch_tokens", 16)
    monkeypatch.setattr(search, "num_threads", num_threads)
    bars = mock.MagicMock()
    monkeypatch.setattr(batched.tqdm, "tqdm", bars)
    translator.translate(["fox", "", "the dog", "the lazy dog"])
    [made] = bars.call_args_list
    updates = bars.return_value.__enter__.return_value.update.call_args_list
    assert made.kwargs["total"] == sum(u.args[0] for u in updates) == 3
    assert len(updates) > 1 and made.kwargs["disable"] is None  # on terminals


def test_a_translator_is_loaded_where_it_works(translator):
    for copied in (translator, translator.with_decoding(beam_size=1)):
        with pytest.raises(TypeError, match="in each worker.*Translator.load"):
            pickle.dumps(copied)


def test_an_error_of_a_worker_is_raised(translator, monkeypatch):
    failing = mock.Mock(side_effect=FloatingPointError("line 3"))
    changes = {"num_threads": 2, "batch_tokens": 8, "run": failing}
    for name, value in changes.items():
        monkeypatch.setattr(sharing.engine_search(translator), name, value)
    with pytest.raises(FloatingPointError, match="line 3"):
        translator.translate(TEXT)


@pytest.mark.parametrize(
    "changes, num_best", [({}, 3), ({}, 0), ({"sampling": True}, 2)]
)
def test_hypotheses_that_are_not_found_are_refused(
    translator, changes, num_best
):
    translator = translator.with_decoding(**changes)
    message = f"expected num_best of at most .* Received: num_best={num_best}"
    if not num_best:
        message = "num_best must be a whole number of at least 1. Rec"
    for method in (translator.search, translator.n_best):
        with pytest.raises(ValueError, match=message):
            method([""], num_best=num_best)


def search_of_any_length(translator):
    spec = tf.TensorSpec([None, None], tf.int32)
    search = translator.inference.translate_ids
    return tf.function(search, input_signature=[spec], autograph=False)


def test_blank_lines_do_not_reach_the_model(translator, monkeypatch):
    monkeypatch.setattr(sharing.engine_search(translator), "run", None)
    assert translator.translate(["", "  ", "\t\n"]) == [""] * 3
    assert translator.translate([]) == []


def test_long_line_is_truncated_and_named(translator, caplog):
    translator = limited(translator, 4)
    [tokens] = translator.tokenizer.to_ids([TEXT[0]])
    ids = [[*tokens[:3], EOS]]
    found = translator.inference.translate_ids(tf.constant(ids))
    expected = translator.tokenizer.decode(found.ids[0]).numpy()[0].decode()
    truncated, short = translator.translate([TEXT[0], "fox"])
    assert truncated == expected
    assert short == translator.translate(["fox"])[0]
    told = f"sentence 1 has {len(tokens) - 1} tokens, truncated to 3"
    assert told in caplog.text
    assert "sentence 2" not in caplog.text


def test_n_best_is_ordered_and_starts_with_the_translation(translator):
    for line, hypotheses in zip(TEXT, translator.n_best(TEXT), strict=True):
        scores = [score for _, score in hypotheses]
        assert len(scores) == 2 and scores == sorted(scores, reverse=True)
        [[(best, _)]] = translator.n_best([line], num_best=1)
        assert translator.translate([line]) == [best] == [hypotheses[0][0]]
    assert translator.n_best([""]) == [[("", 0.0)]]


def test_learned_positions_limit_sources_and_outputs():
    """A batch is not padded beyond the last position."""
    config = dataclasses.replace(CONFIG, positions="learned", max_positions=13)
    decoding = {"min_length": 50, "extra_length": 5}
    with pytest.raises(ValueError, match="at most max_positions=13.*=14"):
        make_translator(config=config, max_source_length=14)
    translator = make_translator(
        config=config, decoding=decoding, max_source_length=13
    )
    longest, short = translator.n_best_ids([TEXT[1], "fox"])
    found = [len(hypotheses[0][0]) for hypotheses in (longest, short)]
    fox = len(translator.tokenizer.encode(["fox"])[0]) - 1
    assert found == [13, min(13, fox + 5)] and fox + 5 < 13
    assert translator.max_target_length == 13
    [score] = translator.score([("fox", TEXT[1])])
    assert score.truncated and len(score.ids) == 13
    [line] = translator.limits.warnings
    assert line.startswith("outputs end at max_positions=13 tokens")
    assert "would allow 18" in line
    assert not Limits([config], translator.decoding, 8).warnings
    assert not Limits([CONFIG], translator.decoding, 10**5).warnings


def test_output_is_at_most_extra_length_longer():
    translator = make_translator(decoding={"min_length": 50})
    rows = [[5, 6, 7, EOS], [5, EOS, PAD, PAD], [EOS, PAD, PAD, PAD]]
    found = translator.inference.translate_ids(tf.constant(rows))
    np.testing.assert_array_equal(found.lengths[:, 0], [3 + 3, 1 + 3, 0])


def test_unknown_length_and_known_length_agree(translator):
    rows = tf.constant([[5, 6, EOS, PAD], [9, 8, 7, EOS]])
    known = translator.inference.translate_ids(rows)
    unknown = search_of_any_length(translator)(rows)
    assert_close(known.scores, unknown.scores)
    length = known.ids.shape[-1]
    np.testing.assert_array_equal(known.ids, unknown.ids[..., :length])


def test_a_batch_holds_at_most_batch_tokens():
    lengths = [0, 3, 8, 9, 16, 3, 100, 7, 20, 5, 6, 2, 0, 33]
    batches = batches_of(lengths, 40)
    rows = sorted(i for batch in batches for i in batch)
    assert rows == [i for i, length in enumerate(lengths) if length]
    padded = [pad_rows([[5] * lengths[i] for i in b]).size for b in batches]
    too_large = [lengths[b[0]] for b in batches if padded.pop(0) > 40]
    assert too_large == [33, 100]  # alone, as no batch can be smaller


@pytest.mark.parametrize("num_threads", [1, 2, 5])
def test_few_rows_share_batches(num_threads):
    """They have similar lengths, and each is at most a thread's share."""
    lengths = [3, 9, 17, 4, 0, 12, 24, 40, 8]
    batches = batches_of(lengths, 2048, num_threads)
    rows = [i for batch in batches for i in batch]
    assert [lengths[i] for i in rows] == sorted(filter(None, lengths))
    for batch in batches:
        shortest, longest = lengths[batch[0]], lengths[batch[-1]]
        assert padded_length(longest) <= 2 * padded_length(shortest)
    assert max(map(len, batches)) <= -(-len(rows) // num_threads)
    assert len(batches) == {1: 2, 2: 3, 5: 4}[num_threads]


def test_few_graphs(translator):
    translator = translator.with_decoding()  # without the graphs of others
    translator.translate(["fox"] * 3 + TEXT)
    programs = sharing.engine_search(translator)._programs
    number = len(programs)
    searches = [p for p in programs if p.kind is Inference.translate_ids]
    # No source has more than 32 tokens, so one graph serves all lengths.
    assert len(searches) == len({room(n) for n in range(1, 31)}) == 1
    translator.translate(["dog", "the fox", *TEXT[::-1], "the lazy dog"])
    assert len(programs) == number


def test_ids_and_scores_are_those_of_the_texts(translator):
    lines = [TEXT[0], "", "the fox"]
    texts = translator.n_best(lines)
    for hypotheses, in_ids in zip(
        texts, translator.n_best_ids(lines), strict=True
    ):
        assert_close([s for _, s in in_ids], [s for _, s in hypotheses])
        ids = [ids for ids, _ in in_ids]
        decoded = translator.tokenizer.decode(ids).numpy()
        assert [text.decode() for text in decoded] == [h[0] for h in hypotheses]
    assert translator.n_best_ids([""]) == [[([], 0.0)]]
    best = translator.n_best_ids(lines)[2][0][0]
    longest = 3 + len(translator.tokenizer.encode(["the fox"])[0]) - 1
    assert EOS in best or len(best) == longest


def test_with_decoding_changes_a_copy_alone(translator, monkeypatch):
    unusual = {"checkpoint": "ckpt-1", "seed": 5, "batch_tokens": 99}
    for name, value in {**unusual, "jit_compile": True}.items():
        monkeypatch.setattr(translator, name, value)
    greedy = translator.with_decoding(beam_size=1)
    assert greedy.decoding == dataclasses.replace(
        translator.decoding, beam_size=1
    )
    assert translator.decoding.beam_size == 2
    kept = ("tokenizer", "model", "max_source_length", "batch_tokens")
    for name in (*kept, "jit_compile", "seed", "checkpoint"):
        assert getattr(greedy, name) is getattr(translator, name), name
    with pytest.raises(ValueError, match="beam_size=0"):
        translator.with_decoding(beam_size=0)


@pytest.mark.parametrize(
    "decoding", [{"beam_size": 1}, {"sampling": True, "num_samples": 2}]
)
def test_the_score_of_a_translation_is_what_the_search_found(
    translator, decoding
):
    lines = [TEXT[0], "fox", "the dog"]
    translator = translator.with_decoding(length_penalty=0.0, **decoding)
    # Not by way of text, which may be segmented otherwise.
    sources, ids, scores = zip(
        *(
            (source, *hypothesis)
            for source, found in zip(
                translator.tokenizer.to_ids(lines),
                translator.n_best_ids(lines),
                strict=True,
            )
            for hypothesis in found
        ),
        strict=True,
    )
    labels = pad_rows(ids)
    log_probs = translator.inference.score_ids(
        tf.constant(pad_rows(sources)), tf.constant(labels)
    ).numpy()
    assert log_probs.shape == labels.shape
    assert np.all((log_probs == 0) == (labels == PAD))
    np.testing.assert_allclose(
        log_probs.sum(1)[: len(scores)], scores, rtol=1e-4
    )


def test_scores_are_the_models_own(translator, monkeypatch):
    """Against logits of one pair alone, without padding."""
    pairs = [("the fox", "how quickly"), (TEXT[1], "dog"), ("dog", "")]
    monkeypatch.setattr(translator, "batch_tokens", 16)
    for (source, target), score in zip(
        pairs, translator.score(pairs), strict=True
    ):
        source_ids = translator.tokenizer.encode([source]).to_tensor()
        labels = translator.tokenizer.encode([target]).to_list()[0]
        logits = translator.model(
            {
                "source_ids": source_ids,
                "target_ids": np.array([[1, *labels[:-1]]]),
            }
        ).numpy()[0]
        logits = logits.astype("float64")
        log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        assert score.ids == labels and score.ids[-1] == EOS
        np.testing.assert_allclose(
            score.log_probs, log_probs[range(len(labels)), labels], atol=1e-4
        )
        assert score.truncated is False
    assert translator.score([]) == []


def test_long_pairs_are_scored_truncated_and_say_so(translator):
    # And 4 + 3 tokens of a translation.
    translator = limited(translator, 4)
    scores = translator.score(
        [("fox", "dog"), (TEXT[0], "dog"), ("fox", TEXT[0])]
    )
    assert [score.truncated for score in scores] == [False, True, True]
    assert len(scores[2].ids) == 7 and scores[2].ids[-1] == EOS
    assert scores[0].notes == []
    for score, length in zip(scores[1:], (3, 6), strict=True):
        [note] = score.notes
        assert note.startswith("has ") and f"truncated to {length} (" in note


def test_translations_begin_with_their_prefixes(translator, caplog):
    lines = ["the fox", "dog", "", "dog"]
    prefixes = ["how quickly", "", "vex", "box " * 40]
    found = translator.n_best(lines, prefixes=prefixes)
    assert [text for text, _ in found[0]][0].startswith("how quickly")
    free = translator.n_best(lines)
    assert_close(found[1][0], free[1][0])  # in one batch with a prefix
    assert found[2] == [("", 0.0)]
    # The output is as long as it may be, and all of it was forced.
    tokens = translator.tokenizer.encode([lines[3]])[0]
    limit = len(tokens) - 1 + translator.decoding.extra_length
    [ids, _], *_ = translator.n_best_ids(lines, prefixes=prefixes)[3]
    forced = translator.tokenizer.encode([prefixes[3]]).to_list()[0]
    assert ids == forced[:limit]
    assert f"only {limit} can be in the output" in caplog.text
    assert "sentence 3 has a prefix of 3 tokens, of which only 0" in caplog.text
    with pytest.raises(ValueError, match="for each string. Received: 1 and"):
        translator.translate(lines, prefixes=["a"])


def test_a_request_has_its_prefix(translator):
    lines, prefixes = ["the fox", "dog", ""], ["how quickly", "", "vex"]
    requests = make_requests(lines, prefixes)
    assert requests[:2] == [Request("the fox", "how quickly"), Request("dog")]
    expected = translator.search(lines, prefixes)
    assert_close(translator.search(requests), expected)
    mixed = [requests[0], "dog", requests[2]]
    assert_close(translator.search(mixed), expected)
    assert make_requests(requests, ["", "", "a"])[2] == Request("", "a")


def test_rows_with_prefixes_leave_the_batch_and_find_the_same(monkeypatch):
    """They match a program that keeps all rows, and each row alone."""
    translator = make_translator(decoding={"extra_length": 20})
    lines = [*TEXT, "fox", "the dog", "vex my box", "daft", "five zebras"] * 2
    prefixes = ["how", "", "vex the", "", "jumps", "", "fox", ""] * 2
    found = translator.n_best_ids(lines, prefixes)
    picks, run = [], row_loop.run

    def stay(*arguments, pick, **others):
        picks.append(pick)
        return run(*arguments, pick=None, **others)

    with monkeypatch.context() as patch:
        patch.setattr(row_loop, "run", stay)
        stayed = translator.with_decoding().n_best_ids(lines, prefixes)
    assert picks and None not in picks
    alone = [
        translator.n_best_ids([line], [prefix])[0]
        for line, prefix in zip(lines, prefixes, strict=True)
    ]
    assert_close(found, stayed)
    assert_close(found, alone)


# Alignment, and what is made of it


def make_two_layers(**changes):
    """Makes a translator with two decoder layers, to align by either."""
    config = dataclasses.replace(CONFIG, num_decoder_layers=2, **changes)
    return make_translator(5, config, beam_size=3)


@pytest.mark.parametrize("pre_norm", [False, True])
def test_alignment_is_of_what_the_decoder_reads_or_writes(pre_norm):
    """Against the maps of one pair alone, without padding."""
    read_or_written = slice(-1) if pre_norm else slice(1, None)
    two_layers = make_two_layers(pre_norm=pre_norm)
    default = two_layers.inference
    assert find_alignment_layer(two_layers.model.config, default.decoding) == (
        2 if pre_norm else 1
    )
    pairs = [(TEXT[0], "how the fox"), ("dog", "the box jugs")]
    rows = [
        [two_layers.tokenizer.encode([text]).to_list()[0] for text in pair]
        for pair in pairs
    ]
    found = {}
    for layer in (1, 2):
        translator = two_layers.with_decoding(alignment_layer=layer)
        attention = translator.inference.alignment_ids(
            *(tf.constant(pad_rows(side)) for side in zip(*rows, strict=True))
        ).numpy()
        for i, (source_ids, labels) in enumerate(rows):
            maps = translator.model.attention_maps(
                {
                    "source_ids": np.array([source_ids]),
                    "target_ids": shift_right(np.array([labels])),
                }
            )
            rows_of_maps = maps.cross.numpy()[0, layer - 1].mean(0)
            read = rows_of_maps[read_or_written, :-1]
            rows_found = attention[i, : len(labels) - 1]
            np.testing.assert_allclose(
                rows_found[:, : len(source_ids) - 1], read, atol=1e-5
            )
            assert not rows_found[:, len(source_ids) - 1 :].any()
        found[layer] = attention
    assert np.abs(found[1] - found[2]).max() > 0.01
    with pytest.raises(ValueError, match="at most 2, .*alignment_layer=3"):
        two_layers.with_decoding(alignment_layer=3)


def attend_to(translator, monkeypatch, choices):
    """Makes each target token attend only to one source token."""

    def attention(rows):
        found = []
        for row, choice in zip(rows, choices, strict=True):
            source, target = len(row.source_ids), len(row.target_ids)
            weights = np.full((target + 5, source + 7), 0.01)
            weights[:, source - 1 :] = 0
            weights[range(len(choice)), choice] = 0.4
            found.append(weights)
        return found

    monkeypatch.setattr(translator._search, "attention", attention)


def test_words_are_linked_by_the_attention_of_their_tokens(
    translator, monkeypatch
):
    pairs = [("jumps over fox", "lazy dog"), ("", "dog"), ("dog", "")]
    (source, target), *_ = [
        [[t.word for t in translator.tokenizer.tokens([x])[0]] for x in pair]
        for pair in pairs
    ]
    assert target.count(0) == 3 and source.count(0) >= 2
    first, last = 0, len(source) - 1
    # "lazy": two tokens to the last word's last token, one to the first word.
    # "dog" to the second word.
    choice = [last, first, last] + [source.index(1)] * target.count(1)
    attend_to(translator, monkeypatch, [choice, [], []])
    found = translator.align(pairs)
    assert found[0] == ([(1, 1), (2, 0)], False)
    assert found[1].links == found[2].links == []


def test_words_and_signs_are_linked_by_their_positions(translator, monkeypatch):
    tokenizer = Tokenizer.train([*TEXT, ",()"], CONFIG.vocab_size)
    translator = Translator(
        tokenizer, translator.model, translator.decoding, 30
    )
    source, target = "jumps,  over fox", "dog (lazy)"
    tokens = [translator.tokenizer.tokens([x])[0] for x in (source, target)]
    ends = [[5, 6, 12, 16], [3, 5, 9, 10]]  # of words and signs

    def unit(side, token):
        return bisect.bisect(ends[side], token.begin)

    firsts = [
        next(i for i, t in enumerate(tokens[0]) if unit(0, t) == number)
        for number in {unit(0, token) for token in tokens[0]}
    ]
    # Each sign or word of the target reads another one of the source.
    choice = [firsts[::-1][unit(1, token) % len(firsts)] for token in tokens[1]]
    attend_to(translator, monkeypatch, [choice])
    [links] = translator.align_spans([(source, target)])
    spans = {
        number: (end - length, end)
        for number, end, length in zip(
            range(4), ends[0], (5, 1, 4, 3), strict=True
        )
    }
    begins = [0, 4, 5, 9]
    read = sorted({unit(1, token) for token in tokens[1]})
    assert links == [
        (
            spans[unit(0, tokens[0][firsts[::-1][number % len(firsts)]])],
            (begins[number], ends[1][number]),
        )
        for number in read
    ]
    assert translator.fits(source) and not limited(translator, 3).fits(source)


def test_words_beyond_the_limit_have_no_links(translator, caplog):
    translator = limited(translator, 5)
    [alignment] = translator.align([(TEXT[0], TEXT[1] * 2)])
    assert alignment.truncated and not caplog.records
    tokens = translator.tokenizer.tokens([TEXT[0], TEXT[1]])
    sources = {token.word for token in tokens[0][:4]}
    targets = {token.word for token in tokens[1][: 5 + 3 - 1]}
    assert {source for source, _ in alignment.links} <= sources
    assert {target for _, target in alignment.links} == targets


def test_weights_that_are_no_numbers_raise(translator):
    weight = translator.model.trainable_weights[0]
    right = weight.numpy()
    weight.assign(np.nan * right)
    try:
        for call, argument in (
            (translator.translate, ["", "fox"]),
            (translator.n_best_ids, ["", "fox"]),
            (translator.score, [("fox", "dog")]),
        ):
            message = r"finite \(fox \.\.\."
            with pytest.raises(FloatingPointError, match=message):
                call(argument)
        assert translator.translate([""]) == [""]
    finally:
        weight.assign(right)


def test_a_huge_limit_and_a_huge_line_cost_what_they_hold(translator):
    def rows_of(strings, max_source_length):
        inference = translator.inference.for_sources_up_to(max_source_length)
        requests = make_requests(strings)
        encoding = Encoding(translator.tokenizer, inference.limits)
        return encode(requests, encoding)

    [row] = rows_of(["fox"], 10**9)
    assert row.source_ids == translator.tokenizer.encode(["fox"]).to_list()[0]
    assert not row.notes
    rows = rows_of(["fox " * 10**5] + ["a"] * 999, 5)
    assert [len(row.notes) for row in rows] == [1] + [0] * 999
    assert len(rows[0].source_ids) == 5 and rows[0].source_ids[-1] == EOS
    expected = translator.tokenizer.encode(["a"] * 999).to_list()
    assert [row.source_ids for row in rows[1:]] == expected


def test_a_graph_has_room_for_its_sources():
    translator = make_translator(beam_size=1, max_source_length=100)
    lines = ["fox", "fox " * 20]
    found = translator.translate(lines)
    rooms = {p.room for p in sharing.engine_search(translator)._programs}
    assert rooms == {32, 64}
    assert [translator.translate([line])[0] for line in lines] == found


@pytest.mark.slow("backend")
def test_xla_gives_the_same():
    lines = ["fox", "the dog"]
    plain = make_translator(beam_size=1)
    compiled = make_translator(beam_size=1, jit_compile=True)
    assert compiled.translate(lines) == plain.translate(lines)

    def graphs(translator):
        return [
            program.args[0].function_def.attr
            for program in sharing.engine_search(translator)._programs.values()
        ]

    assert all(attr["_XlaMustCompile"].b for attr in graphs(compiled))
    assert not any(attr["_XlaMustCompile"].b for attr in graphs(plain))


def test_few_steps_come_first_and_the_rest_is_searched_again(monkeypatch):
    """With XLA, caches would have room for outputs of impossible length."""
    lines = ["fox", TEXT[0], "", "the dog", *TEXT[1:]]
    options = {"beam_size": 2, "decoding": {"extra_length": 40}}
    expected = make_translator(**options).n_best(lines)
    translator = make_translator(**options, jit_compile=True)
    # XLA itself is another test's: here the same graphs, not compiled.
    search = sharing.engine_search(translator)
    monkeypatch.setattr(search, "jit_compile", False)
    run, limits = search.run, []

    def recorded(*arguments, **of_graph):
        limits.append(of_graph.get("max_steps"))
        return run(*arguments, **of_graph)

    monkeypatch.setattr(search, "run", recorded)
    found = translator.n_best(lines)
    assert_close(found, expected)
    assert limits[0] is not None and limits[-1] is None
    assert limits == sorted(limits, key=lambda limit: limit is None)


@pytest.mark.parametrize("jit_compile", [False, *later("backend", True)])
def test_samples_depend_on_sentence_and_seed_alone(jit_compile):
    """They do not depend on batch, threads, number of samples, or compiler.

    Scores do, by rounding.
    """
    sampling = {"sampling": True, "temperature": 3.0, "num_samples": 3}
    translator = make_translator(
        decoding=sampling, jit_compile=jit_compile, num_threads=2
    )
    found = translator.n_best_ids([*TEXT, "", TEXT[0]])
    assert found[-2] == [([], 0.0)]
    assert_close(found[-1], found[0])
    single = make_translator(decoding=sampling)
    for number, line in enumerate(TEXT):
        samples = [ids for ids, _ in found[number]]
        assert len(samples) == 3 and len(set(map(tuple, samples))) > 1
        [alone] = single.n_best_ids([line])
        assert_close(alone, found[number])
        [one] = translator.n_best_ids([line], num_best=1)
        assert_close(one, found[number][:1])
    other = translator.with_seed(5).n_best_ids(TEXT)
    for one, two in zip(other, found, strict=False):
        assert [ids for ids, _ in one] != [ids for ids, _ in two]
    asked = translator.n_best_ids([Request(line, seed=5) for line in TEXT])
    assert_close(asked, other)


@pytest.mark.parametrize("seed", [-1, 2**64, 0.5])
def test_a_number_that_is_no_seed_is_refused(seed):
    translator = make_translator(decoding={"sampling": True})
    with pytest.raises(ValueError, match=f"Received: {seed=}"):
        translator.with_seed(seed).translate(TEXT)


def test_draws_differ_by_seed_sentence_and_sample():
    """Each stream is uniform, and two agree no more often than by chance."""
    streams = [
        make_draws(seed, source_ids, sample, 4000) / MAX_DRAW
        for seed in (0, 1, 2**64 - 1)
        for source_ids in ([5, 2], [5, 5, 2], [2])
        for sample in (0, 1)
    ]
    for stream in streams:
        counts, _ = np.histogram(stream, 8, (0.0, 1.0))
        assert np.sum((counts - 500) ** 2 / 500) < 30  # 7 degrees of freedom
    correlation = np.corrcoef(streams) - np.eye(len(streams))
    assert np.abs(correlation).max() < 0.08


@pytest.mark.parametrize("metric", ["chrf", *later("options", "bleu")])
def test_consensus_chooses_among_all_samples(metric):
    sampling = {"sampling": True, "num_samples": 8, "temperature": 3.0}
    translator = make_translator(decoding=sampling)
    chosen = translator.with_decoding(consensus=metric)
    for line in TEXT:
        [samples] = translator.n_best([line])
        [ids] = translator.n_best_ids([line])
        texts = translator.tokenizer.to_strings([row for row, _ in ids])
        score = getattr(sacrebleu, f"sentence_{metric}")
        means = [
            np.mean([score(text, [other]).score for other in texts])
            for text in texts
        ]
        ranked = chosen.n_best([line])[0]
        assert sorted(ranked) == sorted(samples)
        by_text = dict(zip((text for text, _ in samples), means, strict=True))
        values = [by_text[text] for text, _ in ranked]
        np.testing.assert_allclose(values, sorted(means)[::-1], atol=1e-9)
        assert chosen.translate([line]) == [ranked[0][0]]
    assert chosen.translate([""]) == [""]


@pytest.mark.parametrize(
    "method, values",
    [
        ("translate", "a line"),
        ("translate", None),
        ("translate", [b"bytes"]),
        ("translate", ["a", None]),
        ("translate", {"a": 1}),
        ("score", "ab"),
        ("score", [("a", "b", "c")]),
        ("score", ["ab"]),
        ("score", [("a", None)]),
    ],
)
def test_wrong_types(method, values, translator):
    with pytest.raises(TypeError, match="expected a list of .*Received: "):
        getattr(translator, method)(values)


def test_wrong_arguments(translator):
    with pytest.raises(ValueError, match="max_source_length of at least 2"):
        make_translator(max_source_length=1)
    with pytest.raises(ValueError, match="Received: batch_tokens=0"):
        make_translator(batch_tokens=0)
    model = Transformer(dataclasses.replace(CONFIG, vocab_size=61))
    with pytest.raises(ValueError, match="60, 60. and .61, 61. tokens"):
        Translator(translator.tokenizer, model, DecodingConfig(), 9)


def test_padded_shapes():
    ids = pad_rows([[5, EOS], [6, 7, EOS], [5, 6, 7, 8, 9, 5, 6, 7, EOS]])
    assert ids.shape == (4, 16) and ids.dtype == np.int32
    assert ids[3].tolist() == [EOS] + [PAD] * 15
    assert ids[1].tolist() == [6, 7, EOS] + [PAD] * 13


# The work directory


def save(workdir, kind, step, translator):
    workdir.write_config(
        model=translator.model.config,
        data=DecodingConfig(),
        decoding=translator.decoding,
    )
    translator.tokenizer.save(workdir.tokenizer_path)
    groups = {"weights": named_weights(translator.model)}
    return getattr(workdir, kind).save(groups, step, keep=1)


def test_load_takes_averaged_then_best_then_latest(tmp_path):
    workdir = WorkDirectory(tmp_path)
    options = {"max_source_length": 30}
    expected, prefixes = {}, {}

    def is_of(loaded, kind):
        found = loaded.model.get_weights()
        return loaded.checkpoint == prefixes[kind] and all(
            map(np.array_equal, found, expected[kind])
        )

    for seed, kind in enumerate(("latest", "best", "averaged")):
        translator = make_translator(seed, beam_size=1)
        prefixes[kind] = prefix = save(workdir, kind, 9 - seed, translator)
        expected[kind] = translator.model.get_weights()
        loaded = Translator.load(tmp_path, **options)
        assert is_of(loaded, kind)
        assert loaded.decoding == translator.decoding
    assert loaded.translate(["the fox"]) == translator.translate(["the fox"])
    for checkpoint in ("best", "latest", prefix, prefix + ".safetensors"):
        loaded = Translator.load(tmp_path, checkpoint=checkpoint, **options)
        assert is_of(
            loaded, "averaged" if checkpoint.startswith(prefix) else checkpoint
        )
    decoding = DecodingConfig(beam_size=3)
    loaded = Translator.load(tmp_path, decoding, **options)
    assert loaded.decoding.beam_size == 3
    (tmp_path / "averaged/ckpt-7.safetensors").write_bytes(b"half")
    assert is_of(Translator.load(tmp_path, **options), "best")


@pytest.mark.slow("backend")
def test_load_in_bfloat16(tmp_path, translator):
    """Every weight is rounded, and so is what is computed."""
    workdir = WorkDirectory(tmp_path)
    save(workdir, "latest", 1, translator)
    load = functools.partial(Translator.load, tmp_path, max_source_length=30)
    assert load().model.dtype == "float32"
    rounded = load(precision="bfloat16")
    assert rounded.model.compute_dtype == "bfloat16"
    for weight, exact in zip(
        rounded.model.weights, translator.model.weights, strict=True
    ):
        assert weight.dtype == "bfloat16"
        np.testing.assert_array_equal(
            tf.cast(weight, "float32"),
            tf.cast(tf.cast(exact.value, "bfloat16"), "float32"),
        )
    pairs = [("the fox", "the dog"), (TEXT[1], TEXT[2])]
    for found, expected in zip(
        rounded.score(pairs), translator.score(pairs), strict=True
    ):
        assert found.log_probs != expected.log_probs
        np.testing.assert_allclose(
            found.log_probs, expected.log_probs, rtol=0.1, atol=0.1
        )
    assert len(rounded.translate(["the fox", "", "the dog"])) == 3
    with pytest.raises(
        ValueError, match="needs precision=float32 or bfloat16. Received"
    ):
        load(precision="int8")


def test_only_files_count_and_leftovers_go(tmp_path, translator):
    """As after a kill: a newer step that training did not come to again."""
    workdir = WorkDirectory(tmp_path)
    groups = {"weights": named_weights(translator.model)}
    for step in (2, 4, 6):
        workdir.latest.save(groups, step, keep=2)
    (tmp_path / "checkpoints/ckpt-8_4321").write_bytes(b"1")
    assert workdir.latest.find_intact().endswith("ckpt-6")
    workdir.latest.save(groups, 5, keep=2)
    names = {p.name.split(".")[0] for p in workdir.latest.directory.iterdir()}
    assert names == {"ckpt-4", "ckpt-5"}


@pytest.mark.parametrize(
    ("options", "leave", "is_prefixed"),
    [
        ({}, True, False),
        ({}, True, True),
        ({"shapes": "growing"}, False, True),
        ({"shapes": "static"}, False, False),
    ],
)
def test_when_sentences_leave(
    translator, options, leave, is_prefixed, monkeypatch
):
    picks = []
    run = row_loop.run

    def recorded(*arguments, pick, **others):
        picks.append(pick)
        return run(*arguments, pick=pick, **others)

    monkeypatch.setattr(row_loop, "run", recorded)
    ids = tf.TensorSpec([None, None], tf.int32)
    constraints = Constraints(ids) if is_prefixed else UNCONSTRAINED
    tf.function(
        functools.partial(translator.inference.translate_ids, **options),
        autograph=False,
    ).get_concrete_function(ids, constraints)
    assert [pick is not None for pick in picks] == [leave]
