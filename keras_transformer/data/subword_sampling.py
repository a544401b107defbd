"""Sentence pairs that are segmented anew in every epoch (sec. 5.1).

Differs from the paper: there, a sentence has one segmentation. Sampling it
regularizes the model: Kudo 2018 for unigram vocabularies, Provilkov et al.
2020 for byte-pair ones.
"""

from __future__ import annotations

import concurrent.futures
import itertools
import threading
import typing
import zlib
from collections.abc import Iterable

import numpy as np
from absl import logging

from keras_transformer.data.corpus import (
    Corpus,
    CorpusCounts,
    TokenRows,
    concatenate_rows,
    encode_and_select,
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
        samplers = self._make_samplers(tokenizer, alpha)
        pairs = list(pairs)
        self.canonical, kept = encode_and_select(pairs, tokenizer, max_length)
        sides = zip(*itertools.compress(pairs, kept), strict=True)
        self._sides = [
            _Side(of_side, sampler, list(strings))
            for of_side, sampler, strings in zip(
                (tokenizer.source, tokenizer.target),
                samplers,
                sides,
                strict=True,
            )
        ]
        self.alpha = alpha
        self._seed = seed
        self._lock = threading.RLock()
        self._epochs: dict[int, concurrent.futures.Future] = {}
        self.longest = max_length
        self.first, self.num_long = self._sample_epoch(0)
        self._check_texts()
        self.longer_side = np.maximum(
            self.canonical.longer_side, self.first.longer_side
        )
        self.longest = int(self.longer_side.max())

    @staticmethod
    def _make_samplers(tokenizer, alpha):
        """A sampler of each side; the same one, if it is one vocabulary."""
        sampler = make_sampler(tokenizer.source, alpha)
        if tokenizer.target is tokenizer.source:
            return sampler, sampler
        return sampler, make_sampler(tokenizer.target, alpha)

    @property
    def counts(self) -> CorpusCounts:
        return self.canonical.counts

    @property
    def source(self) -> TokenRows:
        return self.first.source

    @property
    def target(self) -> TokenRows:
        return self.first.target

    def __len__(self):
        return self.counts.kept

    def __str__(self):
        growth = _num_tokens(self.first) / _num_tokens(self.canonical)
        model_type = self._sides[0].tokenizer.model_type
        return (
            f"{model_type} vocabulary, alpha {self.alpha:g},"
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
            self._epochs[epoch] = concurrent.futures.Future()
            # Ends with the process, even in the middle of an epoch's ids.
            threading.Thread(
                target=_resolve,
                args=(self._epochs[epoch], self._make_epoch, epoch),
                name=f"epoch {epoch}",
                daemon=True,
            ).start()

    def _make_epoch(self, epoch):
        """The `Corpus` of an epoch after the first."""
        corpus, num_long = self._sample_epoch(epoch)
        logging.info(
            "epoch %d: %d of %d rows have more than %d tokens and keep the"
            " canonical segmentation",
            epoch + 1,
            num_long,
            2 * len(self),
            self.longest,
        )
        return corpus

    def _sample_epoch(self, epoch):
        """The `Corpus` of an epoch, and how many of its rows are canonical."""
        sides = [], []
        num_long = 0
        for start in range(0, len(self), CHUNK_PAIRS):
            for number, (side, rows, canonical) in enumerate(
                zip(
                    self._sides,
                    sides,
                    (self.canonical.source, self.canonical.target),
                    strict=True,
                )
            ):
                random = np.random.default_rng(
                    [self._seed, epoch, start, number]
                )
                sampled = side.sample(
                    start,
                    min(start + CHUNK_PAIRS, len(self)),
                    random,
                    canonical.ids.dtype,
                )
                long = np.flatnonzero(sampled.lengths > self.longest)
                num_long += len(long)
                rows.append(_replace_rows(sampled, long, canonical, start))
        source, target = map(concatenate_rows, sides)
        return Corpus(source, target, self.counts), num_long

    def _check_texts(self):
        """Checks that sampled ids decode to the text they are sampled from.

        Raises:
            ValueError: It is not, for a vocabulary of a kind not thought of.
        """
        for side, sampled, canonical in zip(
            self._sides,
            (self.first.source, self.first.target),
            (self.canonical.source, self.canonical.target),
            strict=True,
        ):
            texts = [
                side.tokenizer.to_strings(_first_rows(rows, CHECKED_PAIRS))
                for rows in (sampled, canonical)
            ]
            wrong = sum(a != b for a, b in zip(*texts, strict=True))
            if wrong:
                raise ValueError(
                    "segmentations of this vocabulary cannot be sampled."
                    f" Received: another text for {wrong} of"
                    f" {len(texts[0])} sentences"
                )


class _Side:
    """The words of one side of the pairs.

    Args:
        tokenizer: The `Tokenizer`.
        sampler: The `Sampler` of its vocabulary.
        strings: List of `str`.
    """

    def __init__(self, tokenizer, sampler, strings):
        self.tokenizer = tokenizer
        self._sampler = sampler
        self._words, self._offsets = sampler.number_words(
            tokenizer.normalize(strings)
        )

    def sample(self, start, stop, random, dtype):
        """`TokenRows` of some rows, sampled with a random generator."""
        first = self._offsets[start : stop + 1]
        ids, counts = self._sampler.sample(
            self._words[first[0] : first[-1]], random
        )
        ends = np.concatenate([[0], np.cumsum(counts)])  # of the words
        ids, offsets = _join_unknown(ids, ends[first - first[0]])
        ids = np.insert(ids, offsets[1:], EOS)
        return TokenRows(ids.astype(dtype), offsets + np.arange(len(offsets)))


def _join_unknown(ids, offsets):
    """Makes neighbouring `UNK` of a row one, as SentencePiece does.

    Args:
        ids: Integers `[tokens]`.
        offsets: Integers `[rows + 1]`, as of `TokenRows`.
    """
    again = np.zeros(len(ids), bool)
    again[1:] = (ids[1:] == UNK) & (ids[:-1] == UNK)
    begins = offsets[:-1]
    again[begins[begins < len(ids)]] = False
    dropped = np.concatenate([[0], np.cumsum(again)])
    return ids[~again], offsets - dropped[offsets]


def _first_rows(rows, number):
    """The first rows, a list of arrays."""
    number = min(number, len(rows.lengths))
    return np.split(rows.ids[: rows.offsets[number]], rows.offsets[1:number])


def _replace_rows(rows, numbers, others, start):
    """The `TokenRows` of a chunk with some rows of a corpus in their place.

    Args:
        rows: `TokenRows` of the chunk.
        numbers: Integers, which rows to replace.
        others: `TokenRows` of the corpus.
        start: The row of these that stands for the chunk's first.
    """
    if not len(numbers):
        return rows
    arrays = np.split(rows.ids, rows.offsets[1:-1])
    for number in numbers:
        first, end = others.offsets[start + number : start + number + 2]
        arrays[number] = others.ids[first:end]
    lengths = [len(array) for array in arrays]
    return TokenRows(
        np.concatenate(arrays), np.concatenate([[0], np.cumsum(lengths)])
    )


def _num_tokens(corpus):
    return len(corpus.source.ids) + len(corpus.target.ids)


def _resolve(future, function, *arguments):
    """Calls a function; its result or error becomes the future's."""
    try:
        future.set_result(function(*arguments))
    except BaseException as error:
        future.set_exception(error)
