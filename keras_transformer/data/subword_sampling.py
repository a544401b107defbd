"""Sentence pairs that are segmented anew in every epoch (sec. 5.1).

Differs from the paper: there, a sentence has one segmentation. Sampling it
regularizes the model: Kudo 2018 for unigram vocabularies, Provilkov et al.
2020 for byte-pair ones.
"""

from __future__ import annotations

import concurrent.futures
import itertools
import operator
import threading
import typing
import zlib
from collections.abc import Iterable

import numpy as np
from absl import logging

from keras_transformer.data.corpus import (
    Corpus,
    TokenRows,
    concatenate_rows,
    encode_corpus,
)
from keras_transformer.data.segmentation import make_sampler
from keras_transformer.vocabulary import EOS, UNK

if typing.TYPE_CHECKING:  # a tokenizer is handed in: no TensorFlow here
    from keras_transformer.tokenization import Tokenizer, TokenizerPair

CHUNK_PAIRS = 2**15  # sampled under one seed; another size, other ids
CHECKED_PAIRS = 1000  # whose text must equal the text of the canonical ids


class SampledCorpus:
    """Sentence pairs whose ids are sampled anew for every epoch.

    The ids of an epoch depend on the pairs, the tokenizer, `alpha`, `seed` and
    the epoch, and on nothing else: a training that is resumed continues with
    the same ids. `make_batches` takes it as a `Corpus`; sequences have other
    lengths in every epoch, so the batches of an epoch are made when it begins.

    Which pairs are dropped is decided by the segmentation of
    `Tokenizer.encode`, once. The lengths of the first epoch decide the shapes
    of batches. A row that is too long for `max_length` or, after the first
    epoch, for these shapes keeps its canonical segmentation, that of
    `Tokenizer.encode`, in that epoch.

    Args:
        pairs: Iterable of `(source, target)` strings, read once. The numbers of
            the words of those that are kept stay in memory, four bytes each.
        tokenizer: The `Tokenizer`, or a `TokenizerPair`.
        max_length: Longest side that is kept, in tokens, `EOS` included.
        alpha: In (0, 1); see `segmentation.make_sampler`.
        seed: Non-negative.

    Attributes:
        canonical: `Corpus` of the ids of `Tokenizer.encode`.
        first: `Corpus` of the first epoch.
        counts: How many pairs were read, kept and dropped.
        source, target: `TokenRows` of the first epoch.
        longer_side: Tokens of the longer side of each pair, the maximum of the
            canonical ids and the first epoch, int64 `[pairs]`.
        longest: Maximum tokens of a sampled row, in later epochs.
        num_long: Rows of the first epoch that were longer than `max_length`.

    Raises:
        ValueError: No pair is left; or segmentations of this vocabulary cannot
            be sampled.
    """

    def __init__(
        self,
        pairs: Iterable[tuple[str, str]],
        tokenizer: Tokenizer | TokenizerPair,
        max_length: int,
        alpha: float,
        seed: int,
    ):
        if not 0 < alpha < 1:
            raise ValueError(
                f"alpha must be above 0 and below 1. Received: alpha={alpha}"
            )
        samplers = {
            of_side: make_sampler(of_side, alpha)
            for of_side in {tokenizer.source, tokenizer.target}
        }
        pairs = list(pairs)
        self.canonical = encode_corpus(pairs, tokenizer, max_length)
        self.counts = self.canonical.counts
        kept = itertools.compress(pairs, self.canonical.selected)
        sources, targets = zip(*kept, strict=True)
        source, target = tokenizer.source, tokenizer.target
        self._sides = (
            _Side(source, samplers[source], sources, self.canonical.source, 0),
            _Side(target, samplers[target], targets, self.canonical.target, 1),
        )
        self._model_type = tokenizer.source.model_type
        self._seed = seed
        self.alpha = alpha
        self._lock = threading.RLock()
        self._epochs: dict[int, concurrent.futures.Future] = {}
        self.longest = max_length
        self.first, self.num_long = self._sample_epoch(0)
        self.source, self.target = self.first.source, self.first.target
        for side, rows in zip(
            self._sides, (self.source, self.target), strict=True
        ):
            side.check_texts(rows)
        self.longer_side = np.maximum(
            self.canonical.longer_side, self.first.longer_side
        )
        self.longest = int(self.longer_side.max())

    def __len__(self):
        return self.counts.kept

    def __str__(self):
        growth = _num_tokens(self.first) / _num_tokens(self.canonical)
        return (
            f"{self._model_type} vocabulary, alpha {self.alpha:g},"
            f" {growth:.2f} times the tokens in the first epoch;"
            f" {self.num_long:,} rows of it had more than"
            f" {self.counts.max_length} tokens, and rows with more than"
            f" {self.longest} in a later one, keep the canonical segmentation"
        )

    @property
    def checksum(self) -> int:
        """A number for the contents: the ids of the first epoch.

        They show the text, the vocabulary, `alpha` and the seed; and a change
        of the samplers, too.
        """
        content = repr((self.canonical.checksum, self.first.checksum))
        return zlib.crc32(content.encode())

    def of_epoch(self, epoch: int) -> Corpus:
        """The corpus with the ids of an epoch, counted from 0.

        This epoch and the next stay in memory; see `prepare`.
        """
        if epoch == 0:
            return self.first
        with self._lock:
            self.prepare(epoch)
            made = self._epochs[epoch]
            for other in list(self._epochs):
                if other not in (epoch, epoch + 1):
                    del self._epochs[other]
        return made.result()

    def prepare(self, epoch: int) -> None:
        """Begins to sample the ids of an epoch, in the background."""
        with self._lock:
            if epoch in self._epochs:
                return
            future: concurrent.futures.Future = concurrent.futures.Future()
            self._epochs[epoch] = future
            # Ends with the process, even in the middle of an epoch's ids.
            threading.Thread(
                target=self._resolve,
                args=(future, epoch),
                name=f"epoch {epoch}",
                daemon=True,
            ).start()

    def _resolve(self, future, epoch):
        """Makes the `Corpus` of an epoch, or an error, a future's result."""
        try:
            corpus, num_long = self._sample_epoch(epoch)
        except BaseException as error:
            future.set_exception(error)
            return
        logging.info(
            "epoch %d: %d of %d rows have more than %d tokens and keep the"
            " canonical segmentation",
            epoch + 1,
            num_long,
            2 * len(self),
            self.longest,
        )
        future.set_result(corpus)

    def _sample_epoch(self, epoch):
        """The `Corpus` of an epoch, and how many of its rows are canonical."""
        sides = [
            side.sample(self._seed, epoch, self.longest) for side in self._sides
        ]
        (source, target), num_long = zip(*sides, strict=True)
        return Corpus(source, target, self.counts), sum(num_long)


class _Side:
    """The words of one side: `number` 0, the source, or 1, the target."""

    def __init__(self, tokenizer, sampler, strings, canonical, number):
        self._tokenizer = tokenizer
        self._canonical = canonical
        self._sampler = sampler
        self._number = number
        self._words, self._offsets = sampler.number_words(
            tokenizer.normalize(list(strings))
        )

    def sample(self, seed, epoch, longest):
        """`TokenRows` of an epoch, and how many rows are canonical.

        These would have more tokens than `longest`.
        """
        chunks, num_long = [], 0
        for start in range(0, len(self._offsets) - 1, CHUNK_PAIRS):
            random = np.random.default_rng([seed, epoch, start, self._number])
            rows = self._sample_chunk(start, random)
            long = np.flatnonzero(rows.lengths > longest)
            num_long += len(long)
            chunks.append(_replace_rows(rows, long, self._canonical, start))
        return concatenate_rows(chunks), num_long

    def _sample_chunk(self, start, random):
        """`TokenRows` of a chunk, sampled with a random generator."""
        first = self._offsets[start : start + CHUNK_PAIRS + 1]
        ids, counts = self._sampler.sample(
            self._words[first[0] : first[-1]], random
        )
        ends = np.concatenate([[0], np.cumsum(counts)])  # of the words
        ids, offsets = _join_unknown(ids, ends[first - first[0]])
        ids = np.insert(ids, offsets[1:], EOS).astype(self._canonical.ids.dtype)
        return TokenRows(ids, offsets + np.arange(len(offsets)))

    def check_texts(self, sampled):
        """Checks that sampled ids decode to the text they are sampled from.

        Raises:
            ValueError: It is not, for a vocabulary of a kind not thought of.
        """
        texts, expected = (
            self._tokenizer.to_strings(
                np.split(rows.ids, rows.offsets[1 : CHECKED_PAIRS + 1])[:-1]
            )
            for rows in (sampled, self._canonical)
        )
        wrong = sum(map(operator.ne, texts, expected))
        if wrong:
            raise ValueError(
                "segmentations of this vocabulary cannot be sampled. Received:"
                f" another text for {wrong} of {len(texts)} sentences"
            )


def _join_unknown(ids, offsets):
    """Makes neighbouring `UNK` of a row one, as SentencePiece does."""
    again = np.zeros(len(ids), bool)
    again[1:] = (ids[1:] == UNK) & (ids[:-1] == UNK)
    begins = offsets[:-1]
    again[begins[begins < len(ids)]] = False
    dropped = np.concatenate([[0], np.cumsum(again)])
    return ids[~again], offsets - dropped[offsets]


def _replace_rows(rows, numbers, others, start):
    """The rows of a chunk, some of them as in `others`, the whole corpus.

    Row 0 of the chunk is row `start` of the corpus.
    """
    if not len(numbers):
        return rows
    arrays = np.split(rows.ids, rows.offsets[1:-1])
    for number in numbers:
        first, end = others.offsets[start + number : start + number + 2]
        arrays[number] = others.ids[first:end]
    lengths = np.array([len(array) for array in arrays])
    return TokenRows.of_lengths(np.concatenate(arrays), lengths)


def _num_tokens(corpus):
    return len(corpus.source.ids) + len(corpus.target.ids)
