"""Terms and forbidden phrases in `keras_transformer.decoding`.

The expected values enumerate every output of a scripted model in plain Python.
`CASES=500 pytest tests/core/phrases_test.py -k best_output` tries more random
cases than the suite does: terms, forbidden phrases, ensembles with both.
"""

import itertools
import os
import random

import keras
import numpy as np
import pytest
from decoding_test import FREE_IDS, ScriptedModel, penalty
from keras import ops
from tolerance import assert_close

from keras_transformer import decoding
from keras_transformer.config import DecodingConfig
from keras_transformer.decoding.beam import gather_nest
from keras_transformer.decoding.rules import MISSING_SCORE, Constraints
from keras_transformer.text.vocabulary import BOS, EOS, PAD
from keras_transformer.translation.arrays import stack
from keras_transformer.translation.automaton import make_automaton
from keras_transformer.translation.inference import Inference

LENGTH = 3  # T: the outputs are few enough to enumerate
CASES = int(os.environ.get("CASES", "6"))
EVERYTHING = 90  # hypotheses: more than there are outputs of LENGTH tokens


class ScriptedEnsemble(ScriptedModel):
    """Scripted models that search by the mean of an ensemble."""

    def __init__(self, seed, number, how):
        super().__init__(seed)
        self.members = [ScriptedModel((seed, n)) for n in range(number)]
        self.how = how
        decoding = DecodingConfig(ensemble=how)
        self.mean = Inference(self.members, decoding, LENGTH)._mean

    def step(self, ids, cache, index):
        stepped = [member.step(ids, cache, index) for member in self.members]
        # The history is that of the ids, the same in all.
        return self.mean([logits for logits, _ in stepped]), {
            **cache,
            "history": stepped[0][1]["history"],
        }

    def log_probs(self, sentence, ids):
        rows = np.array([m.log_probs(sentence, ids) for m in self.members])
        if self.how == "linear":
            return np.log(np.mean(np.exp(rows), axis=0))
        mean = np.mean(rows, axis=0)
        return mean - np.log(np.sum(np.exp(mean)))


def contains(ids, phrase):
    """Tells whether a phrase is in ids."""
    return any(
        tuple(ids[i : i + len(phrase)]) == tuple(phrase)
        for i in range(len(ids) - len(phrase) + 1)
    )


def met_by(ids, terms):
    """Tells for each term whether one of its forms is in ids."""
    return [any(contains(ids, phrase) for phrase in term) for term in terms]


def outputs(length):
    """Yields every output of up to `length` tokens, finished or truncated."""
    for size in range(length):
        for ids in itertools.product(FREE_IDS, repeat=size):
            yield (*ids, EOS)
    yield from itertools.product(FREE_IDS, repeat=length)


def best(model, sentence, config, length, terms, forbidden):
    """Returns the best finished output with the terms, or None."""
    found = []
    for ids in outputs(length):
        if any(contains(ids, phrase) for phrase in forbidden):
            continue
        met = met_by(ids, terms)
        value = model.log_prob(sentence, ids)
        if config.glossary_mode == "prefer":
            value += config.glossary_bonus * bonus(ids, terms, met)
        elif not all(met):
            continue
        value /= penalty(len(ids), config.length_penalty)
        found.append((ids[-1] == EOS, value, ids))
    return max(found, default=None)


def bonus(ids, terms, met):
    """Counts the tokens of terms in an output as the search does."""
    whole = sum(
        max(map(len, term))
        for term, is_met in zip(terms, met, strict=True)
        if is_met
    )
    parts = [
        size
        for term, is_met in zip(terms, met, strict=True)
        for phrase in term
        for size in range(1, len(phrase))
        if not is_met and tuple(ids[-size:]) == tuple(phrase[:size])
    ]
    return whole + max(parts, default=0)


def random_case(seed, most=2):
    """Draws terms and forbidden phrases of a few sentences."""
    random_ = random.Random(seed)

    def phrase():
        return tuple(random_.choices(FREE_IDS, k=random_.randint(1, most)))

    sentences = []
    for _ in range(3):
        terms = [
            [phrase() for _ in range(random_.randint(1, 2))]
            for _ in range(random_.randint(0, 2))
        ]
        forbidden = [phrase() for _ in range(random_.randint(0, 2))]
        sentences.append((terms, forbidden))
    return sentences


def run(model, config, sentences, length, draws=(), **options):
    """Returns the `SearchResult` of sentences with their terms."""
    automata = [make_automaton(*sentence) for sentence in sentences]
    numbers = np.arange(len(sentences), dtype="int32")
    return decoding.search(
        model.step,
        model.cache(numbers, length, config.num_hypotheses),
        np.full(len(sentences), length, "int32"),
        config,
        max_length=length,
        constraints=Constraints(phrases=stack(automata), draws=draws),
        **options,
    )


def random_cases(seeds):
    """Draws the cases of several seeds for one search."""
    return [sentence for seed in seeds for sentence in random_case(seed)]


@pytest.mark.parametrize("first", range(0, CASES, 6))
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("mode", ["force", "prefer"])
def test_a_wide_beam_finds_the_best_output(mode, number, first):
    """As wide as all outputs, the search is an enumeration.

    Of one model, or of two or three.
    """
    seeds = range(first + number - 1, first + 6, 3)
    model = ScriptedModel(first + number)
    if number > 1:
        how = ("linear", "log_linear")[(number + len(mode)) % 2]
        model = ScriptedEnsemble(first, number, how)
    config = DecodingConfig(
        beam_size=EVERYTHING,
        stopping="exact",
        glossary_mode=mode,
        glossary_bonus=1.5,
    )
    sentences = random_cases(seeds)
    # As soon as no better one can come, the search ends.
    found = run(model, config, sentences, LENGTH, num_best=1)
    for i, (terms, forbidden) in enumerate(sentences):
        expected = best(model, i, config, LENGTH, terms, forbidden)
        ids = [t for t in ops.convert_to_numpy(found.ids)[i, 0] if t != PAD]
        score = float(found.scores[i, 0])
        if expected is None:
            assert not all(met_by(ids, terms))
            continue
        assert tuple(ids) == expected[2], sentences[i]
        np.testing.assert_allclose(score, expected[1], rtol=1e-5, atol=1e-5)


def tokens_of(found, sentence, rank=0):
    """Returns the ids of a hypothesis, EOS included."""
    ids = ops.convert_to_numpy(found.ids)[sentence, rank]
    return tuple(int(token) for token in ids if token != PAD)


@pytest.mark.parametrize("beam_size", [1, 2, 4, 8])
def test_every_beam_has_the_terms(beam_size):
    """Every finished hypothesis has them, with the model's own score."""
    model = ScriptedModel(0)
    config = DecodingConfig(
        beam_size=beam_size, stopping="exact", glossary_mode="force"
    )
    sentences = random_cases(range(4))
    length = 12  # the terms have room
    found = run(model, config, sentences, length)
    for i, (terms, forbidden) in enumerate(sentences):
        allowed = [
            [x for x in term if not any(contains(x, y) for y in forbidden)]
            for term in terms
        ]
        for rank in range(beam_size):
            ids = tokens_of(found, i, rank)
            if float(found.scores[i, rank]) <= MISSING_SCORE:
                assert not ids
                continue
            assert not any(contains(ids, phrase) for phrase in forbidden)
            # A term that is forbidden itself cannot be there.
            if all(allowed):
                assert all(met_by(ids, terms))
            score = model.log_prob(i, ids) / penalty(
                len(ids), config.length_penalty
            )
            np.testing.assert_allclose(found.scores[i, rank], score, rtol=1e-4)


def test_terms_that_do_not_fit_end_the_search():
    """The output is truncated, and lacks the term: no endless search."""
    model = ScriptedModel(3)
    config = DecodingConfig(
        beam_size=2, stopping="exact", glossary_mode="force"
    )
    long = tuple(FREE_IDS[:2]) * 3
    found = run(model, config, [([[long]], [])], 4)
    ids = tokens_of(found, 0)
    assert len(ids) == 4 and EOS not in ids


@pytest.mark.parametrize("mode", ["force", "prefer"])
@pytest.mark.parametrize("length_normalization", ["wu", "power"])
def test_sentences_without_terms_do_not_change(mode, length_normalization):
    """They are equal bit by bit beside others with terms, for any beam."""
    model = ScriptedModel(5, vocab_size=331)  # so that blocks are searched
    config = DecodingConfig(
        beam_size=3,
        stopping="exact",
        glossary_mode=mode,
        length_normalization=length_normalization,
    )
    mixed = run(model, config, [([], []), ([[(7, 8)]], []), ([], [])], 9)
    numbers = np.arange(3, dtype="int32")
    plain = decoding.search(
        model.step,
        model.cache(numbers, 9, 3),
        np.full(3, 9, "int32"),
        config,
        max_length=9,
    )
    for sentence in (0, 2):
        assert_close([x[sentence] for x in mixed], [x[sentence] for x in plain])
    with_term = tokens_of(mixed, 1)
    if mode == "force":
        assert contains(with_term, (7, 8))


@pytest.mark.parametrize("sampling", [False, True])
def test_forbidden_phrases_never_come(sampling):
    """In greedy search and samples they would come without the rule."""
    model = ScriptedModel(2)
    config = DecodingConfig(beam_size=1, sampling=sampling)

    def outputs_with(forbidden):
        draws = np.random.RandomState(1).randint(0, 1 << 24, (20, 9))
        sentences = [([], phrases) for phrases in forbidden]
        found = run(model, config, sentences, 9, draws if sampling else ())
        return [tokens_of(found, i) for i in range(len(forbidden))]

    free = outputs_with([[(0, 0)]] * 20)
    # Two tokens: what bans the second is the state after the first.
    forbidden = [[ids[:2]] if EOS not in ids[:2] else [] for ids in free]
    again = outputs_with(forbidden)
    for ids, phrases in zip(again, forbidden, strict=True):
        assert not any(contains(ids, x) for x in phrases if x)
    assert again != free


def test_rows_take_their_phrases_along():
    """Rows that leave a batch find what they find when all stay."""
    model = ScriptedModel(4)
    config = DecodingConfig(beam_size=3, stopping="exact")
    sentences = [*random_case(1), *random_case(2), *random_case(3)]
    stay = run(model, config, sentences, 9)
    # The default, given so that the cache is not checked.
    options = {"reorder": gather_nest, "pick": pick(3)}
    leave = run(model, config, sentences, 9, **options)
    assert_close(list(leave), list(stay))


def pick(beam_size):
    """Returns a `pick` for a cache with a row for each hypothesis."""

    def of_rows(cache, rows):
        rows = rows[:, None] * beam_size + np.arange(beam_size, dtype="int32")
        rows = ops.reshape(rows, (-1,))
        return keras.tree.map_structure(
            lambda x: ops.take(x, rows, axis=0), cache
        )

    return of_rows


def test_an_automaton_is_the_definition():
    """After any tokens: the terms that were there, and what is forbidden."""
    random_ = random.Random(0)
    for seed in range(200):
        [(terms, forbidden), *_] = random_case(seed, most=3)
        automaton = make_automaton(terms, forbidden)
        state, met = 0, set()
        ids = []
        for _ in range(16):
            token = random_.choice(FREE_IDS)
            is_banned = any(
                tuple([*ids, token][-len(x) :]) == x for x in forbidden
            )
            state = automaton.next(state, token)
            assert automaton.bans[state] == is_banned
            ids.append(token)
            met |= automaton.ends[state]
            assert met == set(np.flatnonzero(met_by(ids, terms)))
            begun = {
                number: max(
                    (
                        size
                        for x in term
                        for size in range(1, len(x))
                        if tuple(ids[-size:]) == x[:size]
                    ),
                    default=0,
                )
                for number, term in enumerate(terms)
            }
            parts = automaton.parts[state]
            assert begun == {n: parts.get(n, 0) for n in begun}


def test_a_preferred_term_that_is_worth_it_later_is_waited_for():
    """The first token of the term costs more than its bonus; the whole pays."""
    probable = {BOS: {EOS: 0.9, 3: 0.001}, 3: {4: 0.9}, 4: {EOS: 0.9}}
    table = np.full((5, 5), 1e-6, "float32")
    for token, row in probable.items():
        table[token, list(row)] = list(row.values())
    config = DecodingConfig(
        beam_size=3,
        stopping="exact",
        length_penalty=0.0,
        glossary_mode="prefer",
        glossary_bonus=5.0,
    )
    found = decoding.search(
        lambda ids, cache, index: (
            ops.take(ops.convert_to_tensor(np.log(table)), ids, axis=0),
            cache,
        ),
        (),
        np.array([4], "int32"),
        config,
        max_length=4,
        constraints=Constraints(
            phrases=stack([make_automaton([[(3, 4)]], [])])
        ),
        num_best=1,
    )
    assert tokens_of(found, 0) == (3, 4, EOS)
