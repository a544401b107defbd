"""Sampling of segmentations of words into subwords, many words at a time.

SentencePiece cannot sample reproducibly: since version 0.2.3 every process has
another seed, and `set_random_generator_seed` has no effect. So this module has
its two algorithms in NumPy, with a random generator as an argument.

A piece has a space only at its beginning, if at all. So the words of a sentence
are segmented independently. A word is `▁` with the text up to the next `▁` or
case mark.
"""

from __future__ import annotations

import math
import re

import numpy as np

from keras_transformer.base.refusals import expect
from keras_transformer.text.case_marks import MARKS
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.text.vocabulary import UNK

# A case mark is a word of its own.
WORD = re.compile(f"[{MARKS}]|▁[^▁{MARKS}]*|[^▁{MARKS}]+")
Pieces = dict[str, tuple[int, float]]  # piece -> its id and its score
UNKNOWN_PENALTY = 10.0  # below the worst piece: kUnkPenalty in SentencePiece


def make_sampler(tokenizer: Tokenizer, alpha: float) -> Sampler:
    """Makes the sampler for a byte-pair or a unigram vocabulary.

    `alpha`, in [0, 1), is the probability of skipping a merge of byte pairs,
    or the exponent of a segmentation's probability in a unigram model. Raises
    ValueError if these algorithms do not support the vocabulary.
    """
    expect(
        tokenizer.model_type in SAMPLERS,
        f"a model of type {' or '.join(SAMPLERS)}, to sample from",
        f"model_type={tokenizer.model_type!r}",
    )
    pieces: Pieces = {}
    for number, (piece, score, kind) in enumerate(tokenizer.entries):
        if kind in ("CONTROL", "UNKNOWN"):
            continue
        if kind == "BYTE":
            pieces[_as_byte(int(piece[1:-1], 16))] = number, score
            continue
        is_plain = kind == "NORMAL" and "▁" not in piece[1:]
        if not is_plain and piece not in MARKS:
            raise ValueError(
                "Segmentations are sampled from a model of plain pieces, with a"
                " space at most at their beginning. Received: the piece"
                f" {piece!r} of type {kind}"
            )
        pieces[piece] = number, score
    return SAMPLERS[tokenizer.model_type](pieces, len(tokenizer.entries), alpha)


def _as_byte(byte: int) -> str:
    """Returns a character that stands for a byte, and that no text has."""
    return chr(0xDC00 + byte)


class Sampler:
    """A sampler of segmentations of words, which `number_words` registers."""

    def __init__(self, pieces: Pieces, vocab_size: int, alpha: float):
        self.pieces = pieces
        self.vocab_size = vocab_size
        self.alpha = alpha
        self._numbers: dict[str, int] = {}
        self._lists: tuple[list, ...] = ()  # data of all words for `sample`
        self._arrays: tuple[np.ndarray, ...] = ()  # `_lists` as arrays

    def number_words(self, strings: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Numbers the words of strings that `Tokenizer.normalize` returned.

        Returns the number of each word, int32 `[words]`, and the index of each
        string's first word, then the end, int64 `[strings + 1]`.
        """
        numbers, ends = [], [0]
        for string in strings:
            for word in WORD.findall(string):
                number = self._numbers.get(word)
                if number is None:
                    number = self._numbers[word] = len(self._numbers)
                    self._add(self._with_bytes(word))
                numbers.append(number)
            ends.append(len(numbers))
        self._arrays = tuple(map(np.array, self._lists))
        return np.array(numbers, np.int32), np.array(ends, np.int64)

    def _with_bytes(self, word: str) -> str:
        """Replaces characters that are no pieces by bytes, if there are any."""
        if _as_byte(0) not in self.pieces:
            return word
        return "".join(
            c if c in self.pieces else "".join(map(_as_byte, c.encode()))
            for c in word
        )

    def sample(
        self, words: np.ndarray, random: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Samples a segmentation of each word; `words` are numbers, int `[N]`.

        Returns ids, int32 `[tokens]`, and their number in each word, int64
        `[N]`.
        """
        raise NotImplementedError

    def _add(self, word: str) -> None:
        """Appends the data of the next word to `_lists`."""
        raise NotImplementedError


class BytePairSampler(Sampler):
    """BPE dropout (Provilkov et al. 2020), as SentencePiece does it.

    A word begins as characters. Each step merges the pair of adjacent symbols
    that forms the best piece, the leftmost if there are several, until no pair
    forms a piece. Each new pair is skipped with probability `alpha` and then
    never merged.
    """

    def __init__(self, pieces: Pieces, vocab_size: int, alpha: float):
        super().__init__(pieces, vocab_size, alpha)
        # Characters that are not pieces have symbols from vocab_size on.
        self._symbols = {piece: pieces[piece][0] for piece in pieces}
        for character in set("".join(pieces)):
            self._symbol_of(character)
        # A pair of symbols -> its rank by score; the last is no merge.
        ranked = sorted(pieces, key=lambda piece: -pieces[piece][1])
        merges = {}
        for piece in ranked:
            for cut in range(1, len(piece)):
                left = self._symbols.get(piece[:cut])
                right = self._symbols.get(piece[cut:])
                if left is not None and right is not None:
                    merges[left << 32 | right] = piece
        scores = sorted({score for _, score in pieces.values()}, reverse=True)
        ranks = {score: rank for rank, score in enumerate(scores)}
        self._never = len(scores)
        self._keys = np.array([*sorted(merges), 2**63 - 1], np.int64)
        found = [pieces[merges[key]] for key in sorted(merges)]
        self._ranks = np.array(
            [*(ranks[score] for _, score in found), self._never], np.int32
        )
        self._merged = np.array([*(n for n, _ in found), UNK], np.int32)
        # The symbols of all words, and where each word starts, then the end.
        self._lists = [], [0]

    def _symbol_of(self, character: str) -> int:
        return self._symbols.setdefault(
            character, self.vocab_size + len(self._symbols)
        )

    def _add(self, word: str) -> None:
        characters, starts = self._lists
        characters += map(self._symbol_of, word)
        starts.append(len(characters))

    def sample(
        self, words: np.ndarray, random: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        characters, starts = self._arrays
        first, lengths = starts[words], np.diff(starts)[words]
        counts = np.zeros(len(words), np.int64)
        finished = []
        for length in np.unique(lengths):
            rows = np.flatnonzero(lengths == length)
            symbols = characters[first[rows][:, None] + np.arange(length)]
            finished += self._merge_all(rows, symbols, random)
        for rows, symbols in finished:
            counts[rows] = symbols.shape[1]
        begins = np.cumsum(counts) - counts
        ids = np.empty(counts.sum(), np.int32)
        for rows, symbols in finished:
            ids[begins[rows][:, None] + np.arange(symbols.shape[1])] = symbols
        ids[ids >= self.vocab_size] = UNK
        return ids, counts

    def _merge_all(
        self, rows: np.ndarray, symbols: np.ndarray, random: np.random.Generator
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Merges words of one length until nothing is left to merge.

        Every step merges one pair in each unfinished word, so these words have
        the same number of symbols. `rows` has the indices of the words, int
        `[N]`, and `symbols` their symbols, int `[N, L]`. Returns `(rows,
        symbols)` for each number of symbols that words ended with.
        """
        finished = []
        ranks, merged = self._look_up(symbols[:, :-1], symbols[:, 1:], random)
        while ranks.shape[1]:
            best = ranks.argmin(axis=1)  # the leftmost of the best
            on = ranks[np.arange(len(rows)), best] < self._never
            if not on.all():
                finished.append((rows[~on], symbols[~on]))
                rows, symbols, best = rows[on], symbols[on], best[on]
                ranks, merged = ranks[on], merged[on]
            if not len(rows):
                return finished
            index = np.arange(len(rows))
            symbols[index, best] = merged[index, best]
            symbols = _without(symbols, best + 1)
            ranks, merged = _without(ranks, best), _without(merged, best)
            for left in (best - 1, best):  # the pairs with the new symbol
                i = np.flatnonzero((left >= 0) & (left < ranks.shape[1]))
                at = left[i]
                ranks[i, at], merged[i, at] = self._look_up(
                    symbols[i, at], symbols[i, at + 1], random
                )
        return [*finished, (rows, symbols)]

    def _look_up(
        self, left: np.ndarray, right: np.ndarray, random: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns pairs' ranks, `_never` if not merged, and their pieces."""
        keys = left.astype(np.int64) << 32 | right
        found = np.searchsorted(self._keys, keys)
        known = self._keys[found] == keys
        if self.alpha:
            known &= random.random(keys.shape) >= self.alpha
        found[~known] = len(self._keys) - 1
        return self._ranks[found], self._merged[found]


class UnigramSampler(Sampler):
    """Subword regularization (Kudo 2018): forward filtering, backward sampling.

    A segmentation x of a word has a probability proportional to P(x) ^ alpha.
    Each position in a word is a state. Sampling begins at the end of the word
    and goes back, piece by piece, to the state where the piece starts.
    """

    def __init__(self, pieces: Pieces, vocab_size: int, alpha: float):
        super().__init__(pieces, vocab_size, alpha)
        self._longest = max(map(len, pieces))
        worst = min(score for _, score in pieces.values())
        self._unknown = UNK, worst - UNKNOWN_PENALTY
        # The state of each word's start, then the end. For each edge: its state
        # plus cumulative probability, the state that it leads to, its piece.
        self._lists = [0], [], [], []

    def _add(self, word: str) -> None:
        starts, sums, back, ids = self._lists
        first = starts[-1]
        forward = [0.0]  # log of the sum over all segmentations up to here
        for end in range(1, len(word) + 1):
            edges = []
            for start in range(max(0, end - self._longest), end):
                entry = self.pieces.get(word[start:end])
                if entry is None and start + 1 == end:
                    entry = self._unknown
                if entry is not None:
                    weight = forward[start] + self.alpha * entry[1]
                    edges.append((weight, start, entry[0]))
            top = max(edges)[0]
            total = math.fsum(math.exp(edge[0] - top) for edge in edges)
            forward.append(top + math.log(total))
            share = 0.0
            for weight, start, number in edges:
                share += math.exp(weight - top) / total
                sums.append(first + end + share)
                back.append(first + start)
                ids.append(number)
            sums[-1] = first + end + 1.0  # corrects rounding
        starts.append(first + len(word) + 1)

    def sample(
        self, words: np.ndarray, random: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        first, sums, back, ids = self._arrays
        rows, states = np.arange(len(words)), first[words + 1] - 1
        counts = np.zeros(len(words), np.int64)
        found = []
        while len(rows):
            edges = np.searchsorted(
                sums, states + random.random(len(rows)), side="right"
            )
            found.append((rows, ids[edges]))
            counts[rows] += 1
            states = back[edges]
            on = states > first[words[rows]]
            rows, states = rows[on], states[on]
        ends = np.cumsum(counts)
        tokens = np.empty(counts.sum(), np.int32)
        for step, (rows, numbers) in enumerate(found, 1):
            tokens[ends[rows] - step] = numbers  # the last piece came first
        return tokens, counts


def _without(array: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Removes one element from each row: [N, L] -> [N, L - 1]."""
    index = np.arange(array.shape[1] - 1)
    index = index + (index >= columns[:, None])
    return np.take_along_axis(array, index, axis=1)


SAMPLERS = {"bpe": BytePairSampler, "unigram": UnigramSampler}
