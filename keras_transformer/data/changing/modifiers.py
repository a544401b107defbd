"""Changes to the text of training pairs, drawn anew in every epoch.

Names and idea come from OpusTrainer (Bogoychev et al. 2023): a model
that has seen capitals, typos and the like translates such text better.
"""

from __future__ import annotations

import itertools
import typing
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from keras_transformer.base.fields import read_amounts
from keras_transformer.data.changing.corpus import CHUNK_PAIRS, ChangingCorpus
from keras_transformer.data.corpus import (
    Corpus,
    TokenRows,
    concatenate_rows,
    encode_corpus,
    encode_pairs,
    replace_rows,
)
from keras_transformer.text.case_marks import MARKS
from keras_transformer.text.tokenization import Tokenizer, TokenizerPair
from keras_transformer.text.vocabulary import SPACE

STREAM = 3  # seeds its random numbers; subword sampling has 0, 1, a mixture 2
# Kinds of final punctuation, after NFKC, each with its forms in many scripts.
PUNCTUATION = (".。।۔།။።։", "!՜", "?؟՞፧;", ",،、၊՝", ":፥·", ";؛፤")
# The keys beside each key of a keyboard, whose rows are half a key apart.
NEIGHBOURS = dict(
    zip(
        "qwertyuiopasdfghjklzxcvbnm",
        "wa qeas wrsd etdf ryfg tugh yihj uojk ipkl ol qwsz weadzx ersfxc"
        " rtdgcv tyfhvb yugjbn uihknm iojlm opk asx sdzc dfxv fgcb ghvn hjbm"
        " jkn".split(),
        strict=True,
    )
)
TYPO_SHARE = 0.1  # share of words with a typo, in a sentence with typos
NOISE_WORDS, NOISE_LENGTHS = (1, 6), (2, 5)
Pair = tuple[str, str]


def parse_modifiers(text: str) -> dict[str, float]:
    """Reads the probability of each modifier of `--modifiers`.

    Raises ValueError if a name is unknown or a probability is invalid.

    >>> parse_modifiers("UpperCase 0.05, Merge 0.1")
    {'UpperCase': 0.05, 'Merge': 0.1}
    """
    chances = read_amounts("modifiers", text)
    for name, chance in chances.items():
        if name not in MODIFIERS or chance > 1:
            raise ValueError(
                f"modifiers must be among {', '.join(MODIFIERS)}, with"
                " probabilities of at most 1. Received:"
                f" '{name} {float(chance):g}'"
            )
    return {name: float(chance) for name, chance in chances.items()}


class Context(typing.NamedTuple):
    """The data that a modifier may use besides the pair."""

    random: np.random.Generator
    other: Pair | None  # another pair of the corpus, not modified
    alphabet: Sequence[str]  # characters that both vocabularies have


def upper_case(pair: Pair, context: Context) -> Pair:
    """Puts both sides into upper case."""
    return pair[0].upper(), pair[1].upper()


def title_case(pair: Pair, context: Context) -> Pair:
    """Capitalizes each word of both sides."""
    source, target = (
        " ".join(word[0].upper() + word[1:] for word in side.split())
        for side in pair
    )
    return source, target


def remove_end_punct(pair: Pair, context: Context) -> Pair:
    """Removes the last characters if both are the same kind of punctuation."""
    ends = [unicodedata.normalize("NFKC", side[-1:])[-1:] for side in pair]
    if not any(all(end in kind for end in ends) for kind in PUNCTUATION):
        return pair
    return pair[0][:-1].rstrip(), pair[1][:-1].rstrip()


def add_typos(pair: Pair, context: Context) -> Pair:
    """Makes typos in at least one word of the source."""
    random = context.random
    words = pair[0].split()
    if not words:  # the source has only white space that files may have
        return pair
    number = max(1, random.binomial(len(words), TYPO_SHARE))
    for index in random.choice(len(words), number, replace=False):
        words[index] = _mistype(words[index], random)
    return " ".join(words), pair[1]


def _mistype(word: str, random: np.random.Generator) -> str:
    """Swaps two characters of a word, or drops, adds or replaces one.

    A new character is next to the old one on the keyboard, or comes from the
    word if the keyboard lacks the old one.
    """
    at = int(random.integers(len(word)))
    before, old, after = word[:at], word[at], word[at + 1 :]
    near = NEIGHBOURS.get(old.lower(), word)
    new = near[random.integers(len(near))]
    new = new.upper() if old.isupper() else new
    kinds = [before + new + after, before + old + new + after]
    if after:  # the last character is not dropped: it may be the only one
        kinds += [before + after, before + after[0] + old + after[1:]]
    return kinds[random.integers(len(kinds))]


def merge(pair: Pair, context: Context) -> Pair:
    """Appends another pair from the same corpus."""
    if context.other is None:
        return pair
    return f"{pair[0]} {context.other[0]}", f"{pair[1]} {context.other[1]}"


def make_noise(pair: Pair, context: Context) -> Pair:
    """Replaces both sides by the same random words."""
    random = context.random
    num_words = random.integers(*NOISE_WORDS, endpoint=True)
    lengths = random.integers(*NOISE_LENGTHS, num_words, endpoint=True)
    words = ("".join(random.choice(context.alphabet, n)) for n in lengths)
    noise = " ".join(words)
    return noise, noise


MODIFIERS = {
    "UpperCase": upper_case,
    "TitleCase": title_case,
    "RemoveEndPunct": remove_end_punct,
    "Typos": add_typos,
    "Merge": merge,
    "Noise": make_noise,
}


class ModifiedCorpus(ChangingCorpus):
    """Sentence pairs; each epoch modifies a random sample of them.

    Modifiers are applied one after the other, each with its own probability. A
    pair stays as it is in an epoch if a side would become too long or empty.
    The text of kept pairs stays in memory.

    `sizes` has the number of pairs of each corpus, for `Merge`; None means one
    corpus. `Noise` raises ValueError if the vocabulary lacks single characters.
    """

    def __init__(
        self,
        pairs: Iterable[Pair],
        tokenizer: Tokenizer | TokenizerPair,
        max_length: int,
        chances: dict[str, float],
        seed: int,
        sizes: Sequence[int] | None = None,
    ):
        pairs = list(pairs)
        canonical = encode_corpus(pairs, tokenizer, max_length)
        self._pairs = list(itertools.compress(pairs, canonical.selected))
        kept = canonical.kept_of(sizes or [len(pairs)])
        self._starts = np.cumsum([0, *kept])
        self._tokenizer = tokenizer
        self._chances = chances
        self._seed = seed
        source, target = (
            {piece for piece in side.pieces if len(piece) == 1}
            for side in (tokenizer.source, tokenizer.target)
        )
        self._alphabet = sorted((source & target) - {SPACE, *MARKS})
        if "Noise" in chances and not self._alphabet:
            raise ValueError("Noise needs a vocabulary with single characters")
        super().__init__(canonical)

    def __str__(self):
        return (
            f"{self.growth:.2f} times the tokens in the first epoch;"
            f" {self.describe(0)}"
        )

    @property
    def checksum(self) -> int:
        """As in `ChangingCorpus`, with the options.

        The ids of the first epoch may lack rare changes.
        """
        content = repr((super().checksum, self._chances, self._seed))
        return zlib.crc32(content.encode())

    def _draw_epoch(self, epoch: int) -> tuple[Corpus, dict[str, int]]:
        counts = dict.fromkeys(self._chances, 0)
        chunks = list(self._modify_chunks(epoch, counts))
        if not chunks:
            return self.canonical, counts
        numbers, *sides = zip(*chunks, strict=True)
        source, target = (
            replace_rows(rows, np.concatenate(numbers), concatenate_rows(new))
            for rows, new in zip(
                (self.canonical.source, self.canonical.target),
                sides,
                strict=True,
            )
        )
        return Corpus(source, target, self.counts), counts

    def _modify_chunks(
        self, epoch: int, counts: dict[str, int]
    ) -> Iterator[tuple[np.ndarray, TokenRows, TokenRows]]:
        """Yields the numbers of modified pairs, and both sides' new rows."""
        unfit = (
            "not modified, since a side would be empty or have more than"
            f" {self.longest} tokens"
        )
        counts[unfit] = 0
        for start in range(0, len(self), CHUNK_PAIRS):
            changed = self._modify_chunk(epoch, start, counts)
            if not changed:
                continue
            numbers = np.array(list(changed))
            source, target = encode_pairs(changed.values(), self._tokenizer)
            lengths = source.lengths, target.lengths
            fits = np.minimum(*lengths) > 1
            fits &= np.maximum(*lengths) <= self.longest
            counts[unfit] += int(np.sum(~fits))
            kept = np.flatnonzero(fits)
            yield numbers[kept], source.take(kept), target.take(kept)

    def _modify_chunk(self, epoch, start, counts):
        """Returns the modified pairs of a chunk by number. Updates `counts`."""
        random = np.random.default_rng([self._seed, epoch, start, STREAM])
        size = min(CHUNK_PAIRS, len(self) - start)
        drawn = random.random((size, len(self._chances)))
        drawn = drawn < list(self._chances.values())
        changed = {}
        for number in np.flatnonzero(drawn.any(axis=1)) + start:
            other = self._draw_other(number, random)
            context = Context(random, other, self._alphabet)
            pair = self._pairs[number]
            for name in itertools.compress(
                self._chances, drawn[number - start]
            ):
                before, pair = pair, MODIFIERS[name](pair, context)
                counts[name] += pair != before
            if pair != self._pairs[number]:
                changed[number] = pair
        return changed

    def _draw_other(self, number, random):
        """Draws another pair from the same corpus, or None if there is none."""
        corpus = np.searchsorted(self._starts, number, side="right")
        first, end = self._starts[corpus - 1 : corpus + 1]
        if end - first < 2:
            return None
        other = first + random.integers(end - first - 1)
        return self._pairs[other + (other >= number)]
