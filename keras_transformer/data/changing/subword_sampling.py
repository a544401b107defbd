"""Sentence pairs that are segmented anew in every epoch (sec. 5.1).

Differs from the paper: there, a sentence has one segmentation. Sampling
regularizes the model (Kudo 2018 for unigram vocabularies, Provilkov et al. 2020
for byte-pair vocabularies).
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Sequence

import numpy as np

from keras_transformer.base.refusals import expect
from keras_transformer.data.changing.corpus import CHUNK_PAIRS, ChangingCorpus
from keras_transformer.data.changing.segmentation import Sampler, make_sampler
from keras_transformer.data.corpus import (
    Corpus,
    TokenRows,
    concatenate_rows,
    encode_corpus,
    replace_rows,
)
from keras_transformer.text.tokenization import Tokenizer, TokenizerPair
from keras_transformer.text.vocabulary import EOS, UNK

CHECKED_PAIRS = 1000  # pairs whose ids must decode to the canonical ids' text


class SampledCorpus(ChangingCorpus):
    """Sentence pairs whose segmentations are sampled anew for every epoch.

    A row that becomes too long keeps its canonical segmentation, from
    `Tokenizer.encode`, in that epoch.

    Args:
        pairs: Iterable of `(source, target)` strings, read once. The words of
            kept pairs stay in memory as numbers, four bytes each.
        tokenizer: The `Tokenizer`, or a `TokenizerPair`.
        max_length: Longest side of a kept pair, in tokens, `EOS` included.
        alpha: In (0, 1); see `segmentation.make_sampler`.
        seed: Non-negative.

    Raises:
        ValueError: No pair is left, or `make_sampler` does not support the
            vocabulary.
    """

    def __init__(
        self,
        pairs: Iterable[tuple[str, str]],
        tokenizer: Tokenizer | TokenizerPair,
        max_length: int,
        alpha: float,
        seed: int,
    ):
        expect(0 < alpha < 1, "a number above 0 and below 1", f"{alpha=}")
        samplers = {
            of_side: make_sampler(of_side, alpha)
            for of_side in {tokenizer.source, tokenizer.target}
        }
        pairs = list(pairs)
        canonical = encode_corpus(pairs, tokenizer, max_length)
        kept = itertools.compress(pairs, canonical.selected)
        sources, targets = zip(*kept, strict=True)
        source, target = tokenizer.source, tokenizer.target
        self._sides = (
            _Side(source, samplers[source], sources, canonical.source, 0),
            _Side(target, samplers[target], targets, canonical.target, 1),
        )
        self._model_type = tokenizer.source.model_type
        self._seed = seed
        self.alpha = alpha
        super().__init__(canonical)
        for side, rows in zip(
            self._sides, (self.source, self.target), strict=True
        ):
            side.check_texts(rows)

    def __str__(self):
        return (
            f"{self._model_type} vocabulary, alpha {self.alpha:g},"
            f" {self.growth:.2f} times the tokens in the first epoch, where"
            f" {self.describe(0)}; later epochs allow {self.longest} tokens"
        )

    def _draw_epoch(self, epoch: int) -> tuple[Corpus, dict[str, int]]:
        sides = [
            side.sample(self._seed, epoch, self.longest) for side in self._sides
        ]
        (source, target), num_long = zip(*sides, strict=True)
        what = (
            f"of {2 * len(self):,} rows have more than {self.longest} tokens"
            " and keep the canonical segmentation"
        )
        return Corpus(source, target, self.counts), {what: sum(num_long)}


class _Side:
    """The words of one side. `number` is 0 for the source, 1 for the target."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        sampler: Sampler,
        strings: Sequence[str],
        canonical: TokenRows,
        number: int,
    ):
        self._tokenizer = tokenizer
        self._canonical = canonical
        self._sampler = sampler
        self._number = number
        self._words, self._offsets = sampler.number_words(
            tokenizer.normalize(list(strings))
        )

    def sample(
        self, seed: int, epoch: int, longest: int
    ) -> tuple[TokenRows, int]:
        """Returns the `TokenRows` of an epoch, and how many are canonical.

        A row is canonical if the sampled row has more than `longest` tokens.
        """
        chunks, num_long = [], 0
        for start in range(0, len(self._offsets) - 1, CHUNK_PAIRS):
            random = np.random.default_rng([seed, epoch, start, self._number])
            rows = self._sample_chunk(start, random)
            long = np.flatnonzero(rows.lengths > longest)
            num_long += len(long)
            canonical = self._canonical.take(start + long)
            chunks.append(replace_rows(rows, long, canonical))
        return concatenate_rows(chunks), num_long

    def _sample_chunk(self, start, random):
        first = self._offsets[start : start + CHUNK_PAIRS + 1]
        ids, counts = self._sampler.sample(
            self._words[first[0] : first[-1]], random
        )
        ends = np.concatenate([[0], np.cumsum(counts)])  # where words end
        ids, offsets = _join_unknown(ids, ends[first - first[0]])
        ids = np.insert(ids, offsets[1:], EOS).astype(self._canonical.ids.dtype)
        return TokenRows(ids, offsets + np.arange(len(offsets)))

    def check_texts(self, sampled: TokenRows) -> None:
        """Raises ValueError unless sampled ids decode to their text."""
        texts, expected = map(self._texts, (sampled, self._canonical))
        wrong = sum(map(operator.ne, texts, expected))
        if wrong:
            raise ValueError(
                "sampled segmentations must decode to the same text. Received:"
                f" another text for {wrong} of {len(texts)} sentences"
            )

    def _texts(self, rows):
        ids = np.split(rows.ids, rows.offsets[1 : CHECKED_PAIRS + 1])[:-1]
        return self._tokenizer.to_strings(ids)


def _join_unknown(
    ids: np.ndarray, offsets: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Merges adjacent `UNK` of a row into one, as SentencePiece does."""
    again = np.zeros(len(ids), bool)
    again[1:] = (ids[1:] == UNK) & (ids[:-1] == UNK)
    begins = offsets[:-1]
    again[begins[begins < len(ids)]] = False
    dropped = np.concatenate([[0], np.cumsum(again)])
    return ids[~again], offsets - dropped[offsets]
