"""Consensus decoding: values of sacreBLEU, and the choice of a sample."""

import itertools
import random

import numpy as np
import pytest
import sacrebleu

from keras_transformer.translation import consensus

SCORES = {
    "chrf": lambda text, reference: sacrebleu.sentence_chrf(text, [reference]),
    "bleu": lambda text, reference: sacrebleu.sentence_bleu(text, [reference]),
}
# What metrics treat in ways of their own.
ALONE = [
    "",
    " ",
    "a",
    "ab",
    "abcdef",
    "abcdefg",
    ".",
    "a.",
    "a a a a a a a a",
    "aaaaaaaaaaaaaaaa",
    "ababababab",
    "彼は毎朝コーヒーを飲みます。",
    "彼は毎朝お茶を飲みます。",
    "👩‍👩‍👧 läuft 🏃🏃🏃",
    "🏃",
    "e\u0301 é",
    "\ud800 \U0010ffff",
    "3,5 - 4.5% &quot;x&amp;y&quot; <skipped>",
    "ab-\n",
    "a-\nb\u00a0c\u2028d\te ",
    "Ein Hund läuft .",
    "Ein Hund läuft.",
]
ALPHABETS = ("ab", "ab  ", "abc .,3", "猫犬鳥 。", "aä👍 -\n")


def expected(texts, metric):
    """Computes float64 [N, N] by sacreBLEU, pair by pair."""
    return np.array(
        [[SCORES[metric](a, b).score for b in texts] for a in texts]
    )


def random_texts(seed):
    """Makes texts of characters, and variations of sentences, some repeated."""
    random_ = random.Random(seed)
    alphabet = random_.choice(ALPHABETS)
    texts = [
        "".join(random_.choices(alphabet, k=random_.randint(0, 30)))
        for _ in range(6)
    ]
    words = [f"{c}{random_.choice(alphabet)}" for c in alphabet] + ["die", "."]
    sentence = random_.choices(words, k=random_.randint(1, 12))
    for _ in range(6):
        kept = [w for w in sentence if random_.random() < 0.8]
        texts.append(" ".join(kept + random_.choices(words, k=2)))
    return random_.sample(texts + texts[:2], 14)


@pytest.mark.parametrize("metric", consensus.METRICS)
def test_values_are_those_of_sacrebleu(metric):
    for texts in (ALONE, *map(random_texts, range(25))):
        np.testing.assert_allclose(
            consensus.utilities(texts, metric),
            expected(texts, metric),
            rtol=0,
            atol=1e-9,
            err_msg=repr(texts),
        )


@pytest.mark.parametrize("metric", consensus.METRICS)
def test_long_texts_in_blocks(metric, monkeypatch):
    """A text that repeats, one of many words, and few counts at once."""
    monkeypatch.setattr(consensus, "BLOCK", 50)
    random_ = random.Random(0)
    words = [str(random_.randint(0, 300)) for _ in range(600)]
    texts = ["la " * 700, "la " * 500 + "lo", " ".join(words), " ".join(words)]
    texts[3] = texts[3].replace("1", "7")
    np.testing.assert_allclose(
        consensus.utilities(texts, metric), expected(texts, metric), atol=1e-9
    )


@pytest.mark.parametrize("metric", consensus.METRICS)
def test_the_choice_has_the_highest_mean(metric):
    chosen = set()
    for seed in range(25):
        texts = random_texts(seed)
        means = expected(texts, metric).mean(axis=1)
        order = consensus.rank(texts, metric)
        assert sorted(order) == list(range(len(texts)))
        for one, other in itertools.pairwise(order):
            assert means[one] >= means[other] - 1e-9
            assert means[one] > means[other] + 1e-9 or one < other
        best = order[0]
        chosen.add(best)
    assert len(chosen) > 5


def test_of_equal_samples_the_first_is_chosen():
    for metric in consensus.METRICS:
        # Nothing in common, in any order.
        assert consensus.rank(["ab", "cd", "ef"], metric)[0] == 0
        assert consensus.rank(["x", "cd", "ab", "ab", "cd"], metric)[0] == 1
        assert consensus.rank(["", ""], metric)[0] == 0
        assert consensus.rank(["a"], metric)[0] == 0
        # An empty text agrees with nothing, not even with another one.
        assert consensus.rank(["", "", "a"], metric)[0] == 2
    # Their means differ by a rounding error.
    assert consensus.rank(["ab", "acb", "bca"], "chrf")[0] == 1


def test_what_cannot_be_compared_is_refused():
    for function in (consensus.rank, consensus.utilities):
        with pytest.raises(ValueError, match="expected samples. Received: no"):
            function([], "chrf")
        with pytest.raises(
            ValueError, match="expected chrf or bleu. Received: metric='ter'"
        ):
            function(["a"], "ter")
