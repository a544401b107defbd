"""Laws of the batches of any corpus, including one that changes.

Batches depend on the options, the seed and the epoch, and on nothing else.
"""

import itertools

import pytest
from random_pairs import assert_equal, check_two_replicas, make_pairs, take

from keras_transformer.data.batches import make_batches
from keras_transformer.data.changing.mixture import Mixture, parse_mixture
from keras_transformer.data.changing.modifiers import (
    ModifiedCorpus,
    parse_modifiers,
)
from keras_transformer.data.changing.subword_sampling import SampledCorpus
from keras_transformer.data.corpus import encode_corpus
from keras_transformer.text.tokenization import Tokenizer

DROPPED = [("dog " * 70, "Hund"), ("", "Hund")]
PAIRS = [*make_pairs(40), *DROPPED, *make_pairs(50, seed=1)]
SIZES = [42, 50]
LINES = list(itertools.chain.from_iterable(make_pairs(300)))


@pytest.fixture(scope="module")
def tokenizer():
    lines = [*LINES, *(line.upper() for line in LINES[:100])]
    return Tokenizer.train(lines, vocab_size=110)


def plain(tokenizer, pairs=PAIRS):
    return encode_corpus(pairs, tokenizer, 60)


def sampled(tokenizer, seed=5, alpha=0.2):
    return SampledCorpus(iter(PAIRS), tokenizer, 60, alpha=alpha, seed=seed)


def modified(tokenizer, seed=5, text="UpperCase 0.3, Merge 0.2"):
    chances = parse_modifiers(text)
    return ModifiedCorpus(iter(PAIRS), tokenizer, 60, chances, seed, SIZES)


TEXT = "b 1, a 0.35, until 2; a 1, b 0.1, until 4; b 1"


def mixed(tokenizer, seed=5, text=TEXT, pairs=PAIRS):
    corpus = encode_corpus(pairs, tokenizer, 60)
    stages, names = parse_mixture(text, ["a", "b"])
    return corpus, Mixture(stages, names, SIZES, corpus.kept_of(SIZES), seed)


# How each is made, and other options of it.
CASES = {
    "plain": (plain, [{"pairs": [PAIRS[-1], *PAIRS[:-1]]}]),
    "sampled": (sampled, [{"alpha": 0.3}, {"seed": 6}]),
    "modified": (
        modified,
        [
            *(
                {"text": f"UpperCase 0.3, Merge {n}"}
                for n in ("0.1", "0.000001")
            ),
            {"text": "Merge 0.2, UpperCase 0.3"},
            {"seed": 6},
        ],
    ),
    "mixed": (
        mixed,
        [
            *({"text": TEXT.replace(n, "0.36")} for n in ("0.35", "0.1")),
            {"text": TEXT.replace("until 2", "until 3")},
            {"seed": 6},
            {"pairs": [*PAIRS[:-1], ("", "x")]},
        ],
    ),
}


@pytest.fixture(params=CASES)
def case(request, tokenizer):
    """Makes batches with options, and lists other options."""
    make, others = CASES[request.param]

    def batches(steps_per_call=1, **options):
        made = make(tokenizer, **options)
        corpus, mixture = made if isinstance(made, tuple) else (made, None)
        return make_batches(
            corpus,
            700,
            num_buckets=4,
            rows_multiple=2,
            seed=3,
            mixture=mixture,
            steps_per_call=steps_per_call,
        )

    return batches, others


def steps_of(batches, *args, **options):
    """Returns the batches of single steps, in order."""
    arrays = take(batches.arrays(*args, **options))
    return arrays if arrays[0].ndim < 3 else list(itertools.chain(*arrays))


def test_batches_depend_on_options_seed_and_epoch_alone(case):
    make, others = case
    batches = make()
    epochs = [steps_of(batches, start_epoch=n, epochs=n + 1) for n in range(6)]
    again = make()
    for epoch in (5, 2, 3):  # in another order
        found = steps_of(again, start_epoch=epoch, epochs=epoch + 1)
        assert_equal(found, epochs[epoch])
    assert again.order_id == batches.order_id
    order_ids = {batches.order_id}
    texts = {repr(epochs)}
    for options in others:
        other = make(**options)
        order_ids.add(other.order_id)
        texts.add(repr(steps_of(other, epochs=6)))
    assert len(order_ids) == len(texts) == 1 + len(others)


def test_they_are_not_the_batches_of_the_corpus_alone(case, tokenizer):
    make, _ = case
    order_id = make_batches(plain(tokenizer), 700, seed=3).order_id
    assert order_id != make().order_id


@pytest.mark.parametrize("steps_per_call", [1, 2])
def test_resumed_anywhere_it_continues_with_the_same_batches(
    case, steps_per_call
):
    make, _ = case
    batches = make(steps_per_call)
    unbroken = steps_of(batches, epochs=6)
    sizes = [batches.steps_of(epoch) for epoch in range(6)]
    assert len(unbroken) == sum(sizes)
    for epoch in range(5):
        for step in (0, 1, sizes[epoch] - 1, sizes[epoch]):
            again = make(steps_per_call)
            found = steps_of(again, step, start_epoch=epoch, end_step=step + 3)
            start = sum(sizes[:epoch]) + step
            assert_equal(found, unbroken[start : start + 3])


def test_two_replicas_share_the_batches_of_one(case):
    make, _ = case
    check_two_replicas(make(), start_epoch=1)
