"""Filters synthetic pairs, and adds noise to their sources."""

import collections
import itertools
import random
from collections.abc import Iterable, Sequence

import numpy as np

from keras_transformer.data import shards
from keras_transformer.data.files.pairs import Pairs
from trainers.preparing import cleaning
from trainers.preparing.cleaning import KEPT
from trainers.synthesis.plan import Filters

REASONS = {
    **shards.REASONS,
    "language": "a side in another language",
    "improbable": "an improbable translation",
    "unsure": "a translation with a low confidence",
}
# Trigrams are counted in at most this many pairs, spread over the corpus.
MAX_COUNTED = 200_000
# Edunov et al. 2018: shares of words, and the most places that a word moves.
DELETED, FILLED, MAX_SHIFT = 0.1, 0.1, 3
FILLER = "<BLANK>"
Pair = tuple[str, str]  # source and target


class PairFilter:
    """Judges synthetic pairs by text, lengths and probability.

    With `are_replaced`, distilled pairs replace the originals in training, and
    a pair that equals an original is kept.
    """

    def __init__(self, filters: Filters, originals: Pairs, are_replaced: bool):
        self._rules = filters.rules()
        self._min_log_prob = filters.min_log_prob
        self._min_confidence = filters.min_confidence
        self._originals = None
        if filters.clean and filters.drop_duplicates:
            known = () if are_replaced else originals
            self._originals = np.sort(cleaning.hash_pairs(known))
        self._typical = None
        if filters.clean and filters.check_language:
            step = -(-len(originals) // MAX_COUNTED)
            some = itertools.islice(originals, 0, None, step)
            self._typical = typical_trigrams(some)

    def judge(
        self,
        pairs: Sequence[Pair],
        lengths: np.ndarray,
        log_probs: np.ndarray,
        chances: np.ndarray,
    ) -> np.ndarray:
        """Returns why each pair is dropped, a key of `REASONS`, or `KEPT`.

        `judge_duplicates` finds duplicates. The result is object `[pairs]`.
        `lengths`, int `[2, pairs]`, are in tokens, EOS included. `log_probs`,
        float `[pairs]`, are means over the tokens of a translation. `chances`,
        float `[pairs]`, are the probabilities of translations, 1 if unknown.
        """
        reasons = np.array([self._judge_text(pair) for pair in pairs], object)
        checks = self._rules.judge_lengths(*lengths)
        if self._min_log_prob is not None:
            checks["improbable"] = log_probs < self._min_log_prob
        if self._min_confidence is not None:
            checks["unsure"] = chances < self._min_confidence
        for reason, drop in checks.items():
            reasons[(reasons == KEPT) & drop] = reason
        return reasons

    def judge_duplicates(self, reasons: np.ndarray, hashes: np.ndarray) -> None:
        """Marks pairs that equal an original or earlier pair as "duplicate".

        Changes `reasons`, results of `judge`. `hashes` are from `hash_pairs`.
        """
        if self._originals is not None:
            kept = np.flatnonzero(reasons == KEPT)
            new = cleaning.find_new(hashes[kept], self._originals)
            reasons[kept[~new]] = "duplicate"

    def _judge_text(self, pair: Pair) -> str:
        reason = self._rules.judge(*pair)
        if reason == KEPT and self._typical and is_foreign(pair, self._typical):
            return "language"
        return reason


def typical_trigrams(pairs: Iterable[Pair]) -> list[set[str]]:
    """Returns two sets: the trigrams that are more frequent on each side."""
    counts: tuple[collections.Counter, ...]
    counts = collections.Counter(), collections.Counter()
    for pair in pairs:
        for side, text in zip(counts, pair, strict=True):
            side.update(_trigrams(text))
    return [
        {trigram for trigram, number in own.items() if number > other[trigram]}
        for own, other in (counts, counts[::-1])
    ]


def is_foreign(pair: Pair, typical: Sequence[set[str]]) -> bool:
    """Returns whether most trigrams of a side are not typical of that side.

    >>> pairs = [("the cat", "die Katze"), ("a dog", "ein Hund")]
    >>> typical = typical_trigrams(pairs)
    >>> is_foreign(("the dog", "ein Hund"), typical)
    False
    >>> is_foreign(("the dog", "a cat"), typical)
    True
    """
    for text, own in zip(pair, typical, strict=True):
        found = _trigrams(text)
        if 2 * sum(trigram in own for trigram in found) < len(found):
            return True
    return False


def _trigrams(text: str) -> list[str]:
    """Returns all trigrams of characters, with a space before and after."""
    text = f" {text.lower()} "
    return [text[i : i + 3] for i in range(len(text) - 2)]


def add_noise(text: str, generator: random.Random) -> str:
    """Deletes, replaces and moves words of a text (Edunov et al. 2018).

    Words are separated by single spaces. If all would be deleted, none is.
    """
    words = text.split(" ")
    words = [w for w in words if generator.random() >= DELETED] or words
    words = [FILLER if generator.random() < FILLED else w for w in words]
    # Lample et al. 2018: a word can only pass words that are nearer than the
    # range of the random numbers.
    places = [
        place + generator.random() * (MAX_SHIFT + 1)
        for place in range(len(words))
    ]
    order = sorted(range(len(words)), key=places.__getitem__)
    return " ".join(words[place] for place in order)
