"""Links between the words of training pairs, and between their tokens.

A file of links has a line for each pair, such as `0-0 1-2`. There, source word
1 and target word 2 are translations of each other. Words are separated by white
space and counted from 0 (the Pharaoh format).
"""

from __future__ import annotations

import array
import dataclasses
import itertools
import pathlib
import re
import typing
from collections.abc import Iterator, Sequence

import numpy as np

from keras_transformer.base.refusals import expect
from keras_transformer.data.corpus import Corpus
from keras_transformer.data.files.pairs import Pairs, read_lines
from keras_transformer.text.case_marks import END, MARKS
from keras_transformer.text.tokenization import Tokenizer, TokenizerPair
from keras_transformer.text.vocabulary import EOS, PAD, SPACE


class Link(typing.NamedTuple):
    """A source word and a target word; `sure` unless written like `0p0`."""

    source: int
    target: int
    sure: bool


def parse_links(
    line: str, num_words: Sequence[int], place: str
) -> Iterator[Link]:
    """Yields the links of a line such as `"0-0 1p2"`.

    Raises ValueError, with `place`, if a link is malformed or beyond the words
    of its pair: `num_words` has the number of source and target words.

    >>> list(parse_links("1p0", (2, 1), "links.txt, line 1"))
    [Link(source=1, target=0, sure=False)]
    """
    for link in line.split():
        match = re.fullmatch(r"(\d+)([-p])(\d+)", link)
        if not match:
            raise ValueError(
                f"{place}: a link must look like 0-0 or 0p0. Received: {link!r}"
            )
        source, target = int(match[1]), int(match[3])
        if source >= num_words[0] or target >= num_words[1]:
            raise ValueError(
                f"{place}: the pair has {num_words[0]} and {num_words[1]}"
                " words, counted from 0. Received: a link of"
                f" {source} and {target}"
            )
        yield Link(source, target, match[2] == "-")


@dataclasses.dataclass(frozen=True)
class WordLinks:
    """The links of sentence pairs, one after the other in a flat array."""

    links: np.ndarray  # int32 [links, 2], source word and target word
    counts: np.ndarray  # int64 [pairs], number of links of each pair
    num_words: np.ndarray  # int32 [pairs, 2], words of source and target


def read_links(corpora: Sequence[tuple[str, Pairs]]) -> WordLinks:
    """Reads files of links, each with its corpus. Treats all links as sure.

    Raises ValueError if a file has more or fewer lines than its corpus has
    pairs, is not UTF-8, or has an invalid link.
    """
    links, counts, num_words = (array.array("i") for _ in range(3))
    for path, pairs in corpora:
        lines = read_lines(pathlib.Path(path))
        for number, (line, pair) in enumerate(
            itertools.zip_longest(lines, pairs), 1
        ):
            if line is None or pair is None:
                raise ValueError(
                    f"{path}, line {number}: expected a line of links for each"
                    f" of the {len(pairs):,} pairs. Received: a file that"
                    f" {'ends before' if line is None else 'has'} this line"
                )
            sizes = [len(text.split()) for text in pair]
            place = f"{path}, line {number}"
            before = len(links)
            for source, target, _ in parse_links(line, sizes, place):
                links.extend((source, target))
            counts.append((len(links) - before) // 2)
            num_words.extend(sizes)
    return WordLinks(
        np.array(links, np.int32).reshape(-1, 2),
        np.array(counts, np.int64),
        np.array(num_words, np.int32).reshape(-1, 2),
    )


class TokenLinks:
    """The links of a corpus' words, as links of tokens in batches.

    All tokens of linked words are linked. The ids show where words begin, since
    SentencePiece marks it, so ids may be sampled anew in every epoch. In a few
    pairs, the vocabulary's normalization changes white space and so the words.
    These pairs have no links.

    `corpus` is the result of `encode_corpus` for all pairs of `words`, or the
    canonical corpus of a sampled one. Raises ValueError if no link is left.
    """

    def __init__(
        self,
        words: WordLinks,
        corpus: Corpus,
        tokenizer: Tokenizer | TokenizerPair,
    ):
        self._source = _Words(tokenizer.source)
        self._target = _Words(tokenizer.target)
        found = np.stack(
            [
                self._source.count(corpus.source),
                self._target.count(corpus.target),
            ],
            axis=1,
        )
        kept = np.flatnonzero(corpus.selected)
        same = (found == words.num_words[kept]).all(axis=1)
        counts = np.zeros_like(words.counts)  # only links that are used
        counts[kept[same]] = words.counts[kept[same]]
        self._links = words.links[np.repeat(counts > 0, words.counts)]
        self._offsets = np.concatenate([[0], np.cumsum(counts[kept])])
        self._summary = (
            f"{len(self._links):,} links of {len(same):,} pairs;"
            f" {np.sum(~same):,} pairs have no links, because normalization"
            " changes their words"
        )
        expect(len(self._links), "links of words", self)

    def __str__(self):
        return self._summary

    def of_batch(
        self, pairs: np.ndarray, source_ids: np.ndarray, labels: np.ndarray
    ) -> np.ndarray:
        """Returns which tokens are linked: bool `[B, T, S]`.

        Target tokens are those that the decoder reads: the label of position t
        is at position t + 1. There may be fewer than B `pairs`.
        """
        source = self._source.of(source_ids)
        target = self._target.of(labels)
        target = np.pad(target[:, :-1], ((0, 0), (1, 0)), constant_values=-1)
        counts = self._offsets[np.add(pairs, 1)] - self._offsets[pairs]
        links = self._links[
            np.repeat(self._offsets[pairs], counts)
            + np.arange(counts.sum())
            - np.repeat(np.cumsum(counts) - counts, counts)
        ]
        rows = np.arange(len(labels))
        # One more than there are words, for the word -1 of other tokens.
        size = 2 + max(source.max(), target.max(), links.max(initial=0))
        of_words = np.zeros((len(rows), size, size), bool)
        of_words[np.repeat(rows[: len(counts)], counts), *links.T] = True
        return of_words[
            rows[:, None, None], source[:, None, :], target[:, :, None]
        ]


class _Words:
    """Finds the words that the tokens of one side belong to.

    A case mark before a word belongs to it, except `END`.
    """

    def __init__(self, tokenizer: Tokenizer):
        pieces = tokenizer.pieces
        self._begins = np.array([p.startswith(SPACE) for p in pieces])
        self._opens = np.array([p in MARKS.replace(END, "") for p in pieces])

    def count(self, rows):
        """Counts the words of each row of `TokenRows`, int `[rows]`."""
        begin, first = self._begins[rows.ids], rows.offsets[:-1]
        begin[first] = ~self._opens[rows.ids[first]]  # even without a space
        return np.add.reduceat(begin, first, dtype=np.int32)

    def of(self, ids: np.ndarray) -> np.ndarray:
        """Returns each token's word, int `[B, T]`; -1 for `EOS` and `PAD`."""
        begin, opens = self._begins[ids], self._opens[ids]
        begin[:, 0] = ~opens[:, 0]
        words = np.cumsum(begin, axis=1) - 1
        words[:, :-1] += opens[:, :-1] & begin[:, 1:]
        return np.where((ids == EOS) | (ids == PAD), -1, words)
