"""Tests of `keras_transformer.decoding` on a scripted model.

The model is a table: the logits after a history are a row that depends on every
token of it and on the sentence. The history lives in the cache, so a cache that
is not reordered with its hypotheses gives other logits. The expected values
come from plain Python that knows no batches.
"""

import dataclasses
import itertools
import math

import keras
import numpy as np
import pytest
from keras import ops
from later import later
from tolerance import assert_close

from keras_transformer import decoding
from keras_transformer.config import DecodingConfig
from keras_transformer.decoding import row_loop
from keras_transformer.decoding.greedy import choose_sample
from keras_transformer.decoding.rules import (
    Rules,
    int32_prefix,
)
from keras_transformer.decoding.selection import blockwise_top_k
from keras_transformer.text.vocabulary import BOS, EOS, PAD

pytestmark = pytest.mark.filterwarnings("error")

VOCAB_SIZE = 7
FREE_IDS = tuple(range(EOS + 1, VOCAB_SIZE))  # all but PAD, BOS, EOS
MAX_LENGTH = 9  # T, unless a test wants another


class ScriptedModel:
    """A model with logits from a random table, for `step` and for Python."""

    config = None  # of no `Transformer`

    def __init__(self, seed, vocab_size=VOCAB_SIZE, sharpness=1.5):
        random = np.random.RandomState(seed)
        self.table = random.normal(0.0, sharpness, (997, vocab_size))
        self.table = self.table.astype("float32")
        self.weights = random.randint(1, 9999, (32,)).astype("int32")
        self.calls = 0

    def cache(self, sentences, max_length, beam_size=1):
        sentences = ops.repeat(sentences, beam_size)
        history = ops.zeros_like(sentences)[:, None] + np.zeros(
            max_length, "int32"
        )
        return {"sentence": sentences, "history": (history,)}

    def step(self, ids, cache, index):
        self.calls += 1
        history = cache["history"][0]  # [N, T]
        here = ops.arange(history.shape[1], dtype="int32") == index
        history = ops.where(here, ids[:, None], history)
        weights = self.weights[: history.shape[1]]
        keys = ops.sum(history * weights, axis=1) + 131 * cache["sentence"]
        logits = ops.take(ops.convert_to_tensor(self.table), keys % 997, axis=0)
        return logits, {**cache, "history": (history,)}

    def log_probs(self, sentence, ids):
        """Returns float64 [V] after a tuple of ids without BOS."""
        key = sum(
            int(weight) * token
            for weight, token in zip(self.weights, (BOS, *ids), strict=False)
        )
        row = self.table[(key + 131 * sentence) % 997].astype("float64")
        return row - np.log(np.sum(np.exp(row)))

    def log_prob(self, sentence, ids):
        """Returns the log-probability of a whole tuple of ids."""
        return sum(
            self.log_probs(sentence, ids[:position])[token]
            for position, token in enumerate(ids)
        )


def penalty(length, alpha):
    return ((5 + length) / 6) ** alpha


def ngrams(ids, size):
    return [ids[i : i + size] for i in range(len(ids) - size + 1)]


def allowed_ids(ids, min_length, prefix, no_repeat_ngram=0):
    """Returns the ids that may follow a tuple of ids."""
    position = len(ids)
    if position < len(prefix):
        return (prefix[position],)
    ends = position + 1 >= min_length
    allowed = (EOS, *FREE_IDS) if ends else FREE_IDS
    if not no_repeat_ngram:
        return allowed
    seen = ngrams(ids, no_repeat_ngram)
    return tuple(
        token
        for token in allowed
        if (*ids, token)[-no_repeat_ngram:] not in seen
    )


def expected_greedy(
    model, sentence, limit, alpha, min_length=0, prefix=(), no_repeat_ngram=0
):
    ids, log_prob = (), 0.0
    while len(ids) < limit and EOS not in ids:
        log_probs = model.log_probs(sentence, ids)
        allowed = allowed_ids(ids, min_length, prefix, no_repeat_ngram)
        best = max(allowed, key=lambda token: log_probs[token])
        ids, log_prob = (*ids, best), log_prob + log_probs[best]
    return [(log_prob / penalty(len(ids), alpha), log_prob, ids)]


def expected_beam(
    model,
    sentence,
    limit,
    beam_size,
    alpha,
    min_length=0,
    prefix=(),
    no_repeat_ngram=0,
):
    """Searches one sentence by a beam search that ends only at the limit."""
    live, finished = [(0.0, ())], []
    for _ in range(limit):
        candidates = []
        for log_prob, ids in live:
            log_probs = model.log_probs(sentence, ids)
            for token in allowed_ids(ids, min_length, prefix, no_repeat_ngram):
                candidates.append((log_prob + log_probs[token], (*ids, token)))
        candidates = sorted(candidates, reverse=True)[: 2 * beam_size]
        finished += [
            (log_prob / penalty(len(ids), alpha), log_prob, ids)
            for log_prob, ids in candidates
            if ids[-1] == EOS
        ]
        finished = sorted(finished, reverse=True)[:beam_size]
        live = [c for c in candidates if c[1][-1] != EOS][:beam_size]
    truncated = [
        (log_prob / penalty(len(ids), alpha), log_prob, ids)
        for log_prob, ids in live
    ]
    return (finished + sorted(truncated, reverse=True))[:beam_size]


def all_hypotheses(model, sentence, limit, alpha):
    """Returns every possible output: finished ones by score, then truncated."""
    finished, truncated = [], []
    for length in range(limit + 1):
        for free in itertools.product(FREE_IDS, repeat=length):
            ids = free if length == limit else (*free, EOS)
            log_prob = model.log_prob(sentence, ids)
            place = truncated if length == limit else finished
            place.append((log_prob / penalty(len(ids), alpha), log_prob, ids))
    return sorted(finished, reverse=True) + sorted(truncated, reverse=True)


def assert_hypotheses(result, sentence, expected):
    """Checks that a sentence's results are [(score, log_prob, ids), ...]."""
    ids = ops.convert_to_numpy(result.ids)[sentence]
    width, max_length = ids.shape
    missing = [(decoding.MISSING_SCORE,) * 2 + ((),)] * (width - len(expected))
    scores, log_probs, tokens = zip(*(expected + missing), strict=True)
    padded = [row + (PAD,) * (max_length - len(row)) for row in tokens]
    np.testing.assert_array_equal(ids, padded)
    np.testing.assert_allclose(
        result.scores[sentence], scores, rtol=2e-5, atol=1e-5
    )
    np.testing.assert_allclose(
        result.log_probs[sentence], log_probs, rtol=2e-5, atol=1e-5
    )
    lengths = ops.convert_to_numpy(result.lengths)[sentence]
    np.testing.assert_array_equal(lengths, [len(row) for row in tokens])


def assert_as_python(find, result, model, limits, *arguments, **options):
    """Checks that a result is what plain Python finds for each sentence."""
    for sentence, limit in enumerate(limits):
        expected = find(model, sentence, limit, *arguments, **options)
        assert_hypotheses(result, sentence, expected)


def assert_same(result, expected):
    """Checks that two results, or rows, have equal ids and close scores."""
    assert_close(list(result), list(expected))


def rows(result, index):
    return decoding.SearchResult(
        *(ops.convert_to_numpy(x)[index] for x in result)
    )


def assert_failed(result, sentence):
    """Checks that the search of one sentence failed visibly."""
    failed = rows(result, sentence)
    assert np.isnan(failed.scores).all() and np.isnan(failed.log_probs).all()
    assert not failed.ids.any() and not failed.lengths.any()


def config_of(options, **rules):
    """Moves the fields of a `DecodingConfig` from the options to it.

    Plain Python knows the rule `exact`.
    """
    rules = {"stopping": "exact", **rules}
    for field in dataclasses.fields(DecodingConfig):
        if field.name in options:
            rules[field.name] = options.pop(field.name)
    return DecodingConfig(**rules)


def run_search(model, sentences, limits, max_length, **options):
    config = config_of(options)
    width = 1 if config.sampling else config.beam_size
    if "prefix" in options:
        options |= prefixed(options.pop("prefix"))
    if "draws" in options:
        constraints = options.get("constraints", decoding.UNCONSTRAINED)
        constraints = constraints._replace(draws=options.pop("draws"))
        options["constraints"] = constraints
    return decoding.search(
        model.step,
        model.cache(sentences, max_length, width),
        limits,
        config,
        max_length=max_length,
        **options,
    )


def run_greedy(model, sentences, limits, max_length=MAX_LENGTH, **options):
    return run_beam(model, sentences, limits, 1, max_length, **options)


def run_beam(
    model, sentences, limits, beam_size, max_length=MAX_LENGTH, **options
):
    return run_search(
        model, sentences, limits, max_length, beam_size=beam_size, **options
    )


def search_constant(logits, limits, width, max_length, **options):
    """Runs a beam search with a model that always gives the same logits."""
    logits = ops.tile(logits, (width * len(limits), 1))
    return decoding.search(
        lambda ids, cache, index: (logits, cache),
        (),
        np.array(limits),
        config_of({"beam_size": width, "length_penalty": 0.0, **options}),
        max_length=max_length,
    )


def draws_of(seed, batch_size, max_length=MAX_LENGTH):
    """Draws int [batch_size, max_length] for sampling.

    A longer buffer begins with the same numbers.
    """
    random = np.random.RandomState(seed)
    return random.randint(0, 1 << 24, (64, batch_size))[:max_length].T


def run_sample(
    model, sentences, limits, max_length=MAX_LENGTH, draws=None, **options
):
    if draws is None:
        draws = draws_of(1, len(sentences), max_length)
    return run_search(
        model,
        sentences,
        limits,
        max_length,
        sampling=True,
        draws=draws,
        **options,
    )


def prefixed(prefix):
    return {"constraints": decoding.Constraints(prefix)}


def sentences_and_limits(batch_size, max_length=MAX_LENGTH):
    sentences = np.arange(batch_size, dtype="int32")
    return sentences, 1 + sentences % max_length


def test_public_searches_are_search_with_their_arguments_as_rules():
    model = ScriptedModel(4)
    sentences, limits = sentences_and_limits(12)
    prefix = np.where(sentences[:, None] % 2, 5, PAD)
    options = {"length_penalty": 1.5, "min_length": 4, **prefixed(prefix)}
    sampling = {"temperature": 0.7, "top_k": 3, "top_p": 0.9, "epsilon": 0.1}
    draws = keras.random.randint((12, MAX_LENGTH), 0, 1 << 24, "int32", 5)

    def reorder(cache, parents):
        rows = ops.reshape(np.arange(12)[:, None] * 3 + parents, (-1,))
        calls.append(len(rows))
        return row_loop.pick_rows(cache, rows)

    calls, beam = [], {"beam_size": 3}
    for public, run, width, others in (
        (decoding.greedy_search, run_greedy, 1, {}),
        (decoding.beam_search, run_beam, 3, beam),
        (decoding.beam_search, run_beam, 3, {**beam, "reorder": reorder}),
        (decoding.sample, run_sample, 1, {**sampling, "seed": 5}),
    ):
        found = public(
            model.step,
            model.cache(sentences, MAX_LENGTH, width),
            limits,
            max_length=MAX_LENGTH,
            **options,
            **others,
        )
        if others.pop("seed", None):
            others["draws"] = draws
        expected = run(model, sentences, limits, **options, **others)
        assert_same(found, expected)
    assert set(calls) == {36}


def tokens_of(result, sentence):
    """Returns the first hypothesis of a sentence as a tuple of tokens."""
    length = int(result.lengths[sentence, 0])
    ids = ops.convert_to_numpy(result.ids)[sentence, 0, : max(length, 0)]
    return tuple(ids.tolist())


# ---- Greedy search ----------------------------------------------------------


def spelling_step(word):
    """Makes a model that spells a word, whatever came before."""
    table = np.log(np.full((len(word), 32), 0.01, "float32"))
    table[np.arange(len(word)), word] = np.log(0.69)

    def step(ids, cache, index):
        row = ops.take(ops.convert_to_tensor(table), index, axis=0)
        return row + ops.zeros_like(ops.cast(ids, "float32"))[:, None], cache

    return step


@pytest.mark.parametrize("min_length", [0, 4])
def test_greedy_is_that_of_plain_python(min_length):
    model = ScriptedModel(0)
    sentences, limits = sentences_and_limits(30)
    result = run_greedy(model, sentences, limits, min_length=min_length)
    assert_as_python(expected_greedy, result, model, limits, 0.6, min_length)


def test_greedy_takes_the_lowest_of_equal_ids():
    zeros = np.zeros((1, 9), "float32")
    result = search_constant(zeros, [3], 1, 3, min_length=2)
    np.testing.assert_array_equal(result.ids[0, 0], [3, EOS, PAD])


# ---- Beam search ------------------------------------------------------------


@pytest.mark.parametrize(
    "alpha, limit", [(0.0, 3), (0.6, 3), (2.0, 3), (0.6, 1)]
)
def test_wide_beam_finds_every_hypothesis_in_order(alpha, limit):
    model = ScriptedModel(2)
    sentences, limits = np.arange(6, dtype="int32"), np.full(6, limit)
    # Two more than there are.
    beam_size = len(all_hypotheses(model, 0, limit, alpha)) + 2
    options = {"max_length": 4, "length_penalty": alpha}
    result = run_beam(model, sentences, limits, beam_size, **options)
    assert_as_python(all_hypotheses, result, model, limits, alpha)


@pytest.mark.parametrize(
    "beam_size, sharpness, alpha", [(2, 3, 0), (3, 1.5, 2), (5, 0.5, 0.6)]
)
def test_narrow_beam_is_that_of_plain_python(beam_size, sharpness, alpha):
    model = ScriptedModel(beam_size, sharpness=sharpness)
    sentences, limits = sentences_and_limits(90)
    result = run_beam(model, sentences, limits, beam_size, length_penalty=alpha)
    assert_as_python(expected_beam, result, model, limits, beam_size, alpha)


def searched_as(system, model, sentence, limit, beam_size, alpha):
    """Searches like another system. Returns triples as `expected_beam`.

    fairseq/sequence_generator.py, Marian's translator/beam_search.cpp and
    opennmt/utils/decoding.py, for one sentence.
    """

    def hypothesis(log_prob, ids):
        power = len(ids) ** alpha
        divisor = penalty(len(ids), alpha) if system == "opennmt_tf" else power
        return log_prob / divisor, log_prob, ids

    live, finished = [(0.0, 0.0, ())], []
    for _ in range(limit):
        candidates = sorted(
            (
                hypothesis(
                    log_prob + model.log_probs(sentence, ids)[token],
                    (*ids, token),
                )
                for _, log_prob, ids in live
                for token in (EOS, *FREE_IDS)
            ),
            key=lambda candidate: candidate[1],
            reverse=True,
        )
        if system == "opennmt_tf":  # finished ones are in the beam
            best = sorted([*finished, *candidates], reverse=True)[:beam_size]
            finished = [one for one in best if one[2][-1] == EOS]
            live = [one for one in best if one[2][-1] != EOS]
        elif system == "marian":  # they take their place with them
            best = candidates[: beam_size - len(finished)]
            finished += [one for one in best if one[2][-1] == EOS]
            live = [one for one in best if one[2][-1] != EOS]
        else:
            best = candidates[:beam_size]
            finished += [one for one in best if one[2][-1] == EOS]
            finished = finished[:beam_size]
            live = [one for one in candidates if one[2][-1] != EOS][:beam_size]
        if len(finished) == beam_size or not live:
            live = []
            break
    if system == "marian":  # at the limit all hypotheses are ranked together
        return sorted([*finished, *live], reverse=True)
    return [*sorted(finished, reverse=True), *sorted(live, reverse=True)]


@pytest.mark.parametrize("system", ["fairseq", "marian", "opennmt_tf"])
def test_searches_end_as_in_other_systems(system):
    alpha, beam_size, is_wu = 1.0, 4, system == "opennmt_tf"
    model = ScriptedModel(3, sharpness=1.0)
    sentences, limits = sentences_and_limits(60)
    rules = {"length_normalization": "wu" if is_wu else "power"}
    rules |= {"length_penalty": alpha, "stopping": system}
    result = run_beam(model, sentences, limits, beam_size, **rules)
    exact = run_beam(model, sentences, limits, beam_size, length_penalty=alpha)
    for sentence, limit in zip(sentences, limits, strict=True):
        if limit:
            expected = searched_as(
                system, model, sentence, limit, beam_size, alpha
            )
            num_found = int(ops.sum(result.lengths[sentence] > 0))
            assert num_found == min(len(expected), beam_size)
            assert_hypotheses(result, sentence, expected[:beam_size])
    assert (exact.ids[:, 0] != result.ids[:, 0]).numpy().any()


def test_early_stop_changes_nothing(monkeypatch):
    """The fewer hypotheses are wanted, the earlier; those are the same."""
    model = ScriptedModel(3, sharpness=3.0)
    sentences = np.arange(40, dtype="int32")
    limits = np.full(40, 20)
    stopped, calls = [], []
    for num_best in (1, 2, None):
        model.calls = 0
        stopped.append(
            run_beam(
                model, sentences, limits, 3, max_length=20, num_best=num_best
            )
        )
        calls.append(model.calls)
    monkeypatch.setattr(
        "keras_transformer.decoding.stopping.Exact.is_over",
        lambda self, state, limit_penalties: ops.zeros_like(state.done),
    )
    model.calls = 0
    full = run_beam(model, sentences, limits, 3, max_length=20)
    assert calls[0] < calls[2] < model.calls == 20
    for number, found in zip((1, 2, 3), stopped, strict=True):
        assert found.ids.shape[1] == number
        assert_same(
            found, decoding.SearchResult(*(v[:, :number] for v in full))
        )
    with pytest.raises(ValueError, match="num_best=4, beam_size=3"):
        run_beam(model, sentences, limits, 3, max_length=20, num_best=4)


def test_an_output_without_tokens_has_a_score_by_the_bare_length():
    options = {"length_penalty": 0.8, "length_normalization": "power"}
    result = run_beam(ScriptedModel(4), np.zeros(1, "int32"), [0], 3, **options)
    assert not ops.convert_to_numpy(result.ids).any()
    assert np.isfinite(result.scores[0, 0])


def transformers_beam(model, sentence, limit, beam_size, alpha):
    """Repeats `_beam_search` of transformers 5.23 for one sentence.

    `limit` is `max_length` - 2, since `max_length` also counts the start token
    and an EOS that it forces at no cost.
    """
    live, finished, going_on = [(0.0, ())], [], True
    for length in range(1, limit + 2):
        candidates = []
        for log_prob, ids in live:
            if length == limit + 1:
                candidates.append((log_prob, (*ids, EOS)))
                continue
            log_probs = model.log_probs(sentence, ids)
            for token in (*FREE_IDS, EOS):
                candidates.append((log_prob + log_probs[token], (*ids, token)))
        candidates = sorted(candidates, reverse=True)[: 2 * beam_size]
        finished += [
            (log_prob / length**alpha, log_prob, ids)
            for log_prob, ids in candidates[:beam_size]
            if ids[-1] == EOS
        ]
        finished = sorted(finished, reverse=True)[:beam_size]
        live = [c for c in candidates if c[1][-1] != EOS][:beam_size]
        worst = finished[-1][0] if len(finished) == beam_size else -np.inf
        going_on = live and live[0][0] / length**alpha > worst
        if not going_on:
            break
    return [
        (score, log_prob, ids[:limit] if len(ids) > limit else ids)
        for score, log_prob, ids in finished
    ]


@pytest.mark.parametrize("stopping", ["transformers", "marian"])
def test_no_hypothesis_has_two_places(stopping):
    """Where fewer than W exist at the limit: two, without EOS and PAD."""
    logits = np.log([[1e-9, 1e-9, 1e-9, 0.6, 0.4]]).astype("float32")
    options = {"length_penalty": 1.0, "min_length": 9, "stopping": stopping}
    result = search_constant(logits, [1], 4, 1, **options)
    assert ops.convert_to_numpy(result.ids)[0, :, 0].tolist() == [3, 4, 0, 0]
    assert ops.convert_to_numpy(result.lengths)[0].tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("alpha", [0.0, 1.0, 2.5])
def test_stopping_of_transformers(alpha):
    model = ScriptedModel(5, sharpness=1.0)
    sentences = np.arange(60, dtype="int32")
    limits = np.tile([3, 6, 9], 20)
    options = {"length_penalty": alpha, "length_normalization": "power"}
    result = run_beam(
        model, sentences, limits, 3, stopping="transformers", **options
    )
    assert_as_python(transformers_beam, result, model, limits, 3, alpha)
    exact = run_beam(model, sentences, limits, 3, **options)
    assert not np.array_equal(result.ids, exact.ids)


def test_search_stops_when_every_sentence_is_done():
    word = [20, EOS, 14, 14, 14, 14, 14, 14, 14]
    calls = []

    def step(ids, cache, index):
        calls.append(index)
        return spelling_step(word)(ids, cache, index)

    limits = np.array([9, 9])
    decoding.greedy_search(step, (), limits, max_length=9, length_penalty=0.6)
    assert len(calls) == 2
    decoding.greedy_search(
        step, (), np.array([1, 0]), max_length=9, length_penalty=0.6
    )
    assert len(calls) == 3


@pytest.mark.parametrize(
    "vocab_size, beam_size, min_length",
    [(40, 2, 4), (20 * 32, 2, 0), (8 * 32, 7, 4)],
)
def test_tokens_that_are_never_emitted_take_no_place(
    min_length, vocab_size, beam_size, monkeypatch
):
    """A vocabulary of which only the best are looked at, those among them.

    The larger ones are looked at by blocks, of all hypotheses at once: also
    where a hypothesis has fewer blocks than there are candidates.
    """
    size = vocab_size
    monkeypatch.setitem(globals(), "FREE_IDS", tuple(range(EOS + 1, size)))
    model = ScriptedModel(13, vocab_size=size)
    model.table[:, [PAD, BOS]] += 9.0
    model.table[:, EOS] += 3.0
    sentences, limits = sentences_and_limits(27)
    result = run_beam(
        model, sentences, limits, beam_size, min_length=min_length
    )
    arguments = beam_size, 0.6, min_length
    assert_as_python(expected_beam, result, model, limits, *arguments)


@pytest.mark.parametrize("k", [1, 7, 30])
def test_the_best_of_a_long_row_are_those_of_a_sort(k):
    """In blocks for a small k; of equal values the first, across blocks."""
    values = np.random.RandomState(0).randint(0, 500, (6, 41 * 53))
    values = values.astype("float32")
    values[0] = 3.0
    values[1, 5:] = -np.inf
    expected = np.argsort(-values, axis=-1, kind="stable")[:, :k]
    best, positions = blockwise_top_k(ops.convert_to_tensor(values), k)
    np.testing.assert_array_equal(positions, expected)
    np.testing.assert_array_equal(
        best, np.take_along_axis(values, expected, axis=-1)
    )


PREFIXES = [(), (5,), (3, 4, 6), (6, EOS), (BOS, 5)]


@pytest.mark.parametrize("width", [3, MAX_LENGTH])
def test_prefix_is_forced_and_counts(width):
    model = ScriptedModel(6)
    prefix = np.full((len(PREFIXES), width), PAD, "int32")
    for row, ids in enumerate(PREFIXES):
        prefix[row, : len(ids)] = ids
    sentences, limits = np.arange(5, dtype="int32"), np.array([7, 7, 7, 7, 2])
    greedy = run_greedy(model, sentences, limits, prefix=prefix, min_length=3)
    beam = run_beam(model, sentences, limits, 3, prefix=prefix, min_length=3)
    sampled = run_sample(
        model, sentences, limits, top_k=1, prefix=prefix, min_length=3
    )
    assert_same(sampled, greedy)
    for sentence, (limit, ids) in enumerate(zip(limits, PREFIXES, strict=True)):
        options = {"min_length": 3, "prefix": ids}
        assert_hypotheses(
            greedy,
            sentence,
            expected_greedy(model, sentence, limit, 0.6, **options),
        )
        assert_hypotheses(
            beam,
            sentence,
            expected_beam(model, sentence, limit, 3, 0.6, **options),
        )


def repeats(result, size):
    """Counts the hypotheses that have an n-gram twice."""
    found = 0
    for ids in ops.convert_to_numpy(result.ids).reshape(-1, MAX_LENGTH):
        these = ngrams(tuple(ids[ids != PAD].tolist()), size)
        found += len(these) > len(set(these))
    return found


@pytest.mark.parametrize("size", [1, 3])
def test_no_ngram_occurs_twice(size):
    model = ScriptedModel(6, sharpness=3.0)
    sentences, limits = np.arange(30, dtype="int32"), np.full(30, MAX_LENGTH)
    # Longer than there are tokens that differ: one must repeat.
    options = {"min_length": 3 if size == 1 else MAX_LENGTH}
    free = run_beam(model, sentences, limits, 3, **options)
    assert repeats(free, size) > 3
    options["no_repeat_ngram"] = size
    beam = run_beam(model, sentences, limits, 3, **options)
    greedy = run_greedy(model, sentences, limits, **options)
    sampled = run_sample(model, sentences, limits, temperature=0.3, **options)
    assert repeats(sampled, size) == repeats(beam, size) == 0
    assert_as_python(expected_beam, beam, model, limits, 3, 0.6, **options)
    assert_as_python(expected_greedy, greedy, model, limits, 0.6, **options)


def test_a_prefix_may_repeat_ngrams_and_counts_as_their_first():
    model, ids = ScriptedModel(6, sharpness=3.0), (3, 4, 3, 4, 3)
    sentences, limits = np.arange(9, dtype="int32"), np.full(9, MAX_LENGTH)
    options = {"no_repeat_ngram": 2, "min_length": 8}
    prefix = np.tile(np.array(ids, "int32"), (9, 1))
    for run, find, width in (
        (run_greedy, expected_greedy, ()),
        (run_beam, expected_beam, (3,)),
    ):
        result = run(model, sentences, limits, *width, prefix=prefix, **options)
        arguments = model, limits, *width, 0.6
        assert_as_python(find, result, *arguments, prefix=ids, **options)
        sixth = ops.convert_to_numpy(result.ids)[:, 0, 5]
        assert not np.isin(sixth, (4, EOS)).any()


def test_an_ngram_longer_than_the_output_is_no_rule():
    model = ScriptedModel(6)
    sentences, limits = sentences_and_limits(5)
    result = run_beam(model, sentences, limits, 3, no_repeat_ngram=99)
    assert_same(result, run_beam(model, sentences, limits, 3))


def test_rules_that_leave_no_token_leave_no_hypothesis():
    """Four tokens, each of them once, and no end before the eighth."""
    model, sentences = ScriptedModel(6), np.arange(3, dtype="int32")
    limits = np.full(3, MAX_LENGTH)
    options = {"no_repeat_ngram": 1, "min_length": 8}
    for result in (
        run_greedy(model, sentences, limits, **options),
        run_sample(model, sentences, limits, temperature=0.3, **options),
        run_beam(model, sentences, limits, 2, **options),
    ):
        assert not ops.convert_to_numpy(result.ids).any()
        assert not ops.convert_to_numpy(result.lengths).any()
        for values in (result.scores, result.log_probs):
            values = ops.convert_to_numpy(values)
            assert (values == np.float32(decoding.MISSING_SCORE)).all()


# ---- Independence of the batch ----------------------------------------------


@pytest.mark.parametrize("run", [run_greedy, run_beam, run_sample])
def test_neighbours_position_and_buffer_change_nothing(run):
    model = ScriptedModel(7)
    options = {"beam_size": 3} if run is run_beam else {}
    sentences, limits = sentences_and_limits(18)
    together = run(model, sentences, limits, **options)
    draws = draws_of(1, 18, 14)

    def run_some(chosen, **others):
        if run is run_sample:
            others["draws"] = draws[chosen]
        return run(model, sentences[chosen], limits[chosen], **others)

    for sentence in (0, 5, 8, 17):
        some = run_some(slice(sentence, sentence + 1), **options)
        assert_same(rows(some, -1), rows(together, sentence))
    order = np.random.RandomState(0).permutation(18)
    assert_same(run_some(order, **options), rows(together, order))
    roomy = run(model, sentences, limits, max_length=14, **options)
    np.testing.assert_array_equal(roomy.ids[:, :, MAX_LENGTH:], PAD)
    narrow = roomy._replace(ids=roomy.ids[:, :, :MAX_LENGTH])
    assert_same(narrow, together)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_limit_zero_is_an_empty_row(beam_size):
    model = ScriptedModel(8)
    sentences, limits = np.arange(3, dtype="int32"), np.array([6, 0, 40])
    result = run_beam(model, sentences, limits, beam_size)
    np.testing.assert_array_equal(result.ids[1], PAD)
    np.testing.assert_array_equal(result.lengths[1], 0)
    limits = np.array([6, 5, MAX_LENGTH])
    expected = run_beam(model, sentences, limits, beam_size)
    assert_same(rows(result, [0, 2]), rows(expected, [0, 2]))


# ---- Sampling ---------------------------------------------------------------


def truncated_distribution(log_probs, temperature, top_k, top_p, epsilon):
    """Computes the distribution to sample from in plain Python: float [V]."""
    weights = {
        token: math.exp(log_probs[token] / temperature)
        for token in (EOS, *FREE_IDS)
    }
    best = sorted(weights, key=weights.get, reverse=True)
    best = best[: top_k or len(best)]
    total = sum(weights[token] for token in best)
    kept, mass = [], 0.0
    for token in best:
        share = weights[token] / total
        if mass < top_p and (share >= epsilon or token == best[0]):
            kept.append(token)
        mass += share
    total = sum(weights[token] for token in kept)
    probs = np.zeros(len(log_probs))
    probs[kept] = [weights[token] / total for token in kept]
    return probs


@pytest.mark.parametrize(
    "temperature, top_k, top_p, epsilon",
    [
        (1.0, 0, 1.0, 0.0),
        (0.5, 0, 1.0, 0.0),
        (2.0, 3, 1.0, 0.0),
        (1.0, 0, 0.7, 0.0),
        (1.5, 4, 0.8, 0.0),
        (1.0, 0, 1e-6, 0.0),
        (1.0, 99, 1.0, 0.0),
        (1.0, 0, 1.0, 0.15),
        (2.0, 0, 1.0, 0.19),
        (1.0, 4, 0.95, 0.2),
        (1.0, 0, 1.0, 0.9),
    ],
)
def test_frequencies_are_those_of_the_distribution(
    temperature, top_k, top_p, epsilon
):
    model = ScriptedModel(9, sharpness=0.7)
    zeros, ones = np.zeros(4000, "int32"), np.ones(4000, "int32")
    options = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    result = run_sample(model, zeros, ones, epsilon=epsilon, **options)
    sampled = ops.convert_to_numpy(result.ids)[:, 0, 0]
    counts = np.bincount(sampled, minlength=VOCAB_SIZE)
    log_probs = model.log_probs(0, ())
    expected = 4000 * truncated_distribution(
        log_probs, epsilon=epsilon, **options
    )
    np.testing.assert_array_equal(counts > 0, expected > 0)
    seen = expected > 0
    distance = np.sum((counts - expected)[seen] ** 2 / expected[seen])
    assert distance < 21  # chi-square, 4 degrees of freedom: 0.03 % exceed it
    np.testing.assert_allclose(
        result.log_probs[:, 0], log_probs[sampled], rtol=1e-4
    )


def test_sampled_log_probs_are_the_models_own():
    model = ScriptedModel(10)
    sentences, limits = sentences_and_limits(20)
    result = run_sample(
        model, sentences, limits, temperature=0.7, top_k=3, min_length=3
    )
    for sentence in sentences:
        ids = tokens_of(result, sentence)
        length = len(ids)
        assert length == limits[sentence] or (length >= 3 and ids[-1] == EOS)
        log_prob = model.log_prob(sentence, ids)
        score = log_prob / penalty(length, 0.6)
        assert_hypotheses(result, sentence, [(score, log_prob, ids)])


def test_draws_are_the_samples():
    """The token is the one in whose part of the distribution the number is."""
    model = ScriptedModel(11, sharpness=0.5)
    sentences, limits = sentences_and_limits(20)
    draws = draws_of(3, 20)
    first = run_sample(model, sentences, limits, draws=draws)
    other = run_sample(model, sentences, limits, draws=draws_of(4, 20))
    assert not np.array_equal(other.ids, first.ids)
    for sentence, limit in enumerate(limits):
        ids = ()
        while len(ids) < limit and EOS not in ids:
            weights = np.exp(model.log_probs(sentence, ids))
            weights[[PAD, BOS]] = 0.0
            part = draws[sentence, len(ids)] / 2**24
            mass = np.cumsum(weights) / np.sum(weights)
            ids += (int(np.searchsorted(mass, part, side="right")),)
        assert tokens_of(first, sentence) == ids


@pytest.mark.parametrize("leaving", [False, True])
def test_samples_may_leave_the_batch(leaving):
    model = ScriptedModel(11, sharpness=0.5)
    sentences, limits = sentences_and_limits(40)
    options = {"pick": row_loop.pick_rows} if leaving else {"max_steps": 4}
    found = run_sample(model, sentences, limits, **options)
    stayed = run_sample(model, sentences, limits)
    ended = ops.convert_to_numpy(found.lengths)[:, 0] != decoding.UNFINISHED
    assert ended.all() == leaving and ended.any()
    for sentence in np.flatnonzero(ended):
        assert tokens_of(found, sentence) == tokens_of(stayed, sentence)


# ---- Sentences that end early, and those that take long ----------------------


def pick_hypotheses(beam_size, sizes):
    """Picks rows of sentences in a cache, and records how many are left."""

    def pick(cache, sentences):
        sizes.append(len(sentences))
        rows = sentences[:, None] * beam_size + np.arange(beam_size)
        return row_loop.pick_rows(cache, ops.reshape(rows, (-1,)))

    return pick


@pytest.mark.parametrize(
    "beam_size, stopping",
    [(1, "exact"), (3, "exact"), (3, "transformers"), (3, "marian")],
)
def test_sentences_that_leave_find_the_same(beam_size, stopping):
    model = ScriptedModel(3, sharpness=3.0)
    sentences, limits = sentences_and_limits(40, 20)
    limits[7] = 0
    options = {"max_length": 20, "stopping": stopping, "num_best": 1}
    stayed = run_beam(model, sentences, limits, beam_size, **options)
    sizes = []
    pick = pick_hypotheses(beam_size, sizes)
    left = run_beam(model, sentences, limits, beam_size, pick=pick, **options)
    assert_same(left, stayed)
    assert len(sizes) > 3 and sizes[-1] == 0
    previous = [40, *sizes]
    for before, after in zip(previous, sizes, strict=False):
        assert after <= 0.75 * before


@pytest.mark.parametrize("beam_size, no_repeat_ngram", [(1, 0), (3, 2)])
def test_sentences_that_leave_take_their_constraints_along(
    beam_size, no_repeat_ngram
):
    """The search equals one in which all stay, bit by bit, and plain Python."""
    model = ScriptedModel(6, sharpness=3.0)
    sentences, limits = sentences_and_limits(40)
    prefixes = [PREFIXES[i % 7] if i % 7 < 5 else () for i in sentences]
    # As a batch of rows has them: cut where the output ends.
    prefixes = [
        ids[:limit] for ids, limit in zip(prefixes, limits, strict=True)
    ]
    prefix = np.zeros((40, 3), "int32")
    for row, ids in enumerate(prefixes):
        prefix[row, : len(ids)] = ids
    rules = {"min_length": 3, "no_repeat_ngram": no_repeat_ngram}
    arguments = model, sentences, limits, beam_size
    stayed = run_beam(*arguments, prefix=prefix, **rules)
    sizes = []
    pick = pick_hypotheses(beam_size, sizes)
    left = run_beam(*arguments, prefix=prefix, pick=pick, **rules)
    assert_same(left, stayed)
    assert len(sizes) > 2 and sizes[0] < 40 and sizes[-1] == 0
    for sentence, (limit, ids) in enumerate(zip(limits, prefixes, strict=True)):
        find, width = expected_beam, (beam_size,)
        if beam_size == 1:
            find, width = expected_greedy, ()
        expected = find(
            model, sentence, limit, *width, 0.6, prefix=ids, **rules
        )
        assert_hypotheses(left, sentence, expected)


def test_sentences_without_output_leave_before_a_step():
    model, sizes = ScriptedModel(3), []
    sentences, limits = np.arange(4, dtype="int32"), np.zeros(4, "int32")
    pick = pick_hypotheses(2, sizes)
    found = run_beam(model, sentences, limits, 2, pick=pick)
    assert sizes == [0] and model.calls == 0
    assert_same(found, run_beam(model, sentences, limits, 2))


@pytest.mark.parametrize(
    "beam_size, max_steps", [(1, 4), (3, 1), (3, 4), (3, 20), (3, 30)]
)
def test_a_search_of_few_steps_says_what_has_ended(beam_size, max_steps):
    """Ended hypotheses are those of a search that goes on to the limits."""
    model = ScriptedModel(3, sharpness=3.0)
    sentences = np.arange(40, dtype="int32")
    limits = np.where(sentences < 30, 20, 3)
    full = run_beam(model, sentences, limits, beam_size, max_length=20)
    found = run_beam(
        model,
        sentences,
        limits,
        beam_size,
        max_length=20,
        max_steps=max_steps,
    )
    lengths = ops.convert_to_numpy(found.lengths)
    ended = (lengths != decoding.UNFINISHED).all(axis=1)
    assert (ended == (lengths != decoding.UNFINISHED).any(axis=1)).all()
    assert ended.all() == (max_steps >= 20)
    assert ended[30:].all() == (max_steps >= 3)
    assert max_steps == 1 or 5 < ended.sum()
    for few, all_ in zip(found[1:], full[1:], strict=True):
        np.testing.assert_array_equal(few[ended], all_[ended])
    length = found.ids.shape[-1]
    assert length == min(max_steps, 20)
    np.testing.assert_array_equal(
        found.ids[ended], full.ids[ended][..., :length]
    )


# ---- Graphs and XLA ---------------------------------------------------------


@pytest.mark.parametrize("jit_compile", [False, *later("backend", True)])
@pytest.mark.parametrize("run", [run_greedy, run_beam, run_sample])
def test_compiled_is_eager_for_any_batch(run, jit_compile):
    import tensorflow as tf  # here: the other tests run on any backend

    model = ScriptedModel(12)
    prefix = np.zeros((7, 2), "int32")
    prefix[3:5, 0] = 5
    options = {"min_length": 2, "no_repeat_ngram": 2}
    if run is run_beam:
        options["beam_size"] = 3
    if run is run_sample:
        options.update(top_k=5, top_p=0.9)

    def run_some(sentences, limits, prefix):
        others = {}
        if run is run_sample:
            draws = ops.convert_to_tensor(draws_of(1, 7))
            others["draws"] = draws[: ops.shape(sentences)[0]]
        return run(model, sentences, limits, prefix=prefix, **options, **others)

    @tf.function(
        autograph=False,
        jit_compile=jit_compile,
        input_signature=[
            tf.TensorSpec([None], tf.int32),
            tf.TensorSpec([None], tf.int32),
            tf.TensorSpec([None, None], tf.int32),
        ],
    )
    def compiled(sentences, limits, prefix):
        return run_some(sentences, limits, prefix)

    for batch_size in (7,) if jit_compile else (7, 1):
        sentences, limits = sentences_and_limits(batch_size)
        inputs = (sentences, limits.astype("int32"))
        some = prefix[:batch_size]
        expected = run_some(*inputs, some)
        assert_same(compiled(*inputs, some), expected)


def failing_step(kind, sentence, position, width=1):
    """Makes a model that spells a word, but fails once for one sentence."""
    # One token is enough, even one that is never emitted; not for -inf.
    tokens = [True] + [kind == -np.inf] * 31
    right = spelling_step([20, 9, 14, EOS])

    def step(ids, cache, index):
        logits, cache = right(ids, cache, index)
        rows = ops.arange(logits.shape[0], dtype="int32") // width
        # One of the sentence's hypotheses, the last, is enough.
        last = ops.arange(logits.shape[0], dtype="int32") % width == width - 1
        wrong = (rows == sentence) & last & (index == position)
        logits = ops.where(wrong[:, None] & np.array(tokens), kind, logits)
        return logits, cache

    return step


@pytest.mark.parametrize(
    "position, kind",
    [(0, np.nan), (2, np.nan), (2, np.inf), (2, -np.inf)],
)
def test_logits_that_are_no_numbers_fail_their_sentence_alone(position, kind):
    limits = np.array([4, 4, 4])
    common = {"max_length": 4, "length_penalty": 0.6}
    sampling = {"temperature": 1.0, "top_k": 1, "top_p": 1.0, "seed": 1}
    for search, width, options in (
        (decoding.greedy_search, 1, common),
        (decoding.sample, 1, common | sampling),
        (decoding.beam_search, 3, common | {"beam_size": 3}),
    ):
        right = spelling_step([20, 9, 14, EOS])
        expected = search(right, (), limits, **options)
        wrong = failing_step(kind, 1, position, width)
        result = search(wrong, (), limits, **options)
        assert_failed(result, 1)
        assert_same(rows(result, [0, 2]), rows(expected, [0, 2]))


def test_a_failure_counts_although_a_hypothesis_had_finished():
    table = np.zeros((4, 32), "float32")
    table[0, [EOS, 20]] = 9.0, 9.5  # EOS finishes one at once
    table[1:, EOS] = -50.0  # and is not among the best later
    table[1:, 31] = np.nan
    result = decoding.beam_search(
        lambda ids, cache, index: (
            ops.take(np.repeat(table[:, None], 2, 1), index, axis=0),
            cache,
        ),
        (),
        np.array([4]),
        max_length=4,
        beam_size=2,
        length_penalty=0.0,
    )
    assert_failed(result, 0)


@pytest.mark.parametrize("wrong", [VOCAB_SIZE, -1, 2**31 - 1, 2**32 + 5])
def test_prefix_outside_the_vocabulary_fails_its_sentence_alone(wrong):
    model = ScriptedModel(6)
    prefix = np.array([[5, PAD], [4, wrong], [PAD, PAD]])  # int64
    sentences, limits = np.arange(3, dtype="int32"), np.full(3, 6)
    right = np.where(prefix == wrong, PAD, prefix).astype("int32")
    for run, options in ((run_greedy, {}), (run_beam, {"beam_size": 3})):
        result = run(model, sentences, limits, prefix=prefix, **options)
        expected = run(model, sentences, limits, prefix=right, **options)
        assert_failed(result, 1)
        assert_same(rows(result, [0, 2]), rows(expected, [0, 2]))


@pytest.mark.parametrize("dtype", ["uint32", "int64", "uint64"])
def test_a_prefix_of_other_integers_keeps_its_wrong_ids_wrong(dtype):
    wrong = 2**31 + 5 if dtype == "uint32" else 2**32 + 5
    ids = ops.convert_to_tensor(np.array([[5, wrong]], dtype))
    np.testing.assert_array_equal(int32_prefix(ids), [[5, -1]])


def test_double_precision_models_are_searched():
    model = ScriptedModel(3)
    expected = run_beam(model, np.arange(9), np.full(9, 7), 3)
    model.table = model.table.astype("float64")
    keras.config.set_floatx("float64")
    try:
        result = run_beam(model, np.arange(9), np.full(9, 7), 3)
        sampled = run_sample(model, np.arange(9), np.full(9, 7), top_k=1)
        greedy = run_greedy(model, np.arange(9), np.full(9, 7))
    finally:
        keras.config.set_floatx("float32")
    assert_same(result, expected)
    assert_same(sampled, greedy)


def test_half_precision_logits_are_widened():
    result = search_constant(ops.zeros((1, 9), "bfloat16"), [2], 2, 2)
    np.testing.assert_allclose(
        result.scores[0], [-np.log(9.0), -2 * np.log(9.0)], rtol=1e-6
    )


def test_sums_of_xla_draw_no_token_that_is_dropped():
    """It sums in parallel: rounding changes sums where nothing is added."""
    import tensorflow as tf  # here: the other tests run on any backend

    @tf.function(jit_compile=True)
    def summed(weights):
        return ops.cumsum(weights, axis=-1)

    @tf.function(jit_compile=True)
    def choose(logits, draws):
        config = DecodingConfig(sampling=True, epsilon=1e-3)
        rules = Rules(config, ops.zeros((), "int32"), draw=draws)
        return choose_sample(logits, rules)[0]

    logits = np.random.default_rng(0).normal(0, 2, 8192).astype("float32")
    probs = np.exp(logits) / np.exp(logits).sum()
    weights = np.where(probs < 1e-3, 0, np.exp(logits - logits.max()))
    mass = summed(weights[None].astype("float32")).numpy()[0]
    grown = np.flatnonzero((np.diff(mass) > 0) & (weights[1:] == 0))
    assert grown.size
    numbers = np.round(mass[grown] / mass.max() * 2**24)
    numbers = np.ravel(numbers[:, None] + np.arange(-2, 3))
    draws = np.minimum(numbers, 2**24 - 1).astype("float32") / 2**24
    drawn = choose(np.tile(logits, (len(draws), 1)), draws).numpy()
    assert (weights[drawn] > 0).all()


@pytest.mark.slow("backend")
def test_other_backends_find_the_same():
    """Some of the laws above, in a process whose Keras runs on JAX."""
    from commands import ROOT, run_python  # which imports TensorFlow

    jax = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    out = run_python(ROOT / "tests/programs/search_laws.py", **jax)
    assert out.splitlines()[-1] == "jax"


# ---- Bad arguments ----------------------------------------------------------


@pytest.mark.parametrize(
    "options, message",
    [
        ({"beam_size": 0}, "Received: beam_size=0"),
        ({"length_penalty": -1.0}, "Received: length_penalty=-1.0"),
        ({"min_length": -1}, "Received: min_length=-1"),
        ({"no_repeat_ngram": -1}, "Received: no_repeat_ngram=-1"),
        ({"max_length": 0}, "Received: max_length=0"),
        ({"max_length": 4.5}, "Received: max_length=4.5"),
        ({"limits": np.ones((2, 1))}, r"Received: max_lengths.shape=\(2, 1\)"),
        (prefixed(np.ones(2)), r"Received: prefix.shape=\(2,\)"),
        (prefixed(np.ones((2, 3))), "Received: prefix of dtype float"),
        (prefixed(np.ones((2, 5))), r"Received: prefix.shape=\(2, 5\)"),
        ({"cache": np.ones((2, 3))}, r"6 rows, batch times.*shape \(2, 3\)"),
        ({"logits": np.ones(6)}, r"Received: logits.shape=\(6,\)"),
        ({"max_steps": 0}, "Received: max_steps=0"),
        ({"num_best": 0}, "Received: num_best=0"),
        (
            {"max_steps": 3, "pick": row_loop.pick_rows},
            "Received: max_steps=3",
        ),
    ],
)
def test_a_search_says_what_is_wrong(options, message):
    logits = options.pop("logits", np.zeros((6, 9), "float32"))
    limits = options.pop("limits", np.array([3, 4]))
    cache = options.pop("cache", np.zeros((6, 3)))
    options = {"beam_size": 3, "max_length": 4, **options}
    with pytest.raises(ValueError, match=message):
        decoding.search(
            lambda ids, cache, index: (logits, cache),
            cache,
            limits,
            config_of(options),
            **options,
        )


@pytest.mark.parametrize(
    "options, message",
    [
        ({"temperature": 0.0}, "Received: temperature=0.0"),
        ({"top_k": -1}, "Received: top_k=-1"),
        ({"top_p": 0.0}, "Received: top_p=0.0"),
        ({"top_p": 1.5}, "Received: top_p=1.5"),
        ({"epsilon": 1.0}, "Received: epsilon=1.0"),
        ({"draws": ()}, "expected draws .B, T. for sampling"),
        ({"draws": np.zeros((2, 3))}, r"draws.shape=\(2, 3\), T=9"),
        ({"draws": np.zeros(6)}, r"draws.shape=\(6,\), T=9"),
        ({"max_length": 0}, "Received: max_length=0"),
    ],
)
def test_sample_says_what_is_wrong(options, message):
    sentences, limits = sentences_and_limits(2)
    with pytest.raises(ValueError, match=message):
        run_sample(ScriptedModel(0), sentences, limits, **options)
