"""What a model tells of given translations: probabilities and links."""

import typing
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from keras_transformer.text.tokenization import Token
from keras_transformer.translation.alignment import (
    SpanLink,
    align_words,
    span_side,
    word_side,
    word_spans,
)
from keras_transformer.translation.requests import (
    Encoding,
    Request,
    Row,
    SentencePairs,
    encode_pairs,
    pair_requests,
    tokens_of,
)
from keras_transformer.translation.results import (
    Alignment,
    PairReading,
    PairScore,
    check_finite,
)
from keras_transformer.translation.search import Search


class Pair(typing.NamedTuple):
    """A pair as texts, and as ids."""

    request: Request
    target: str
    row: Row


class PairReader:
    """Reads pairs with the models of a search.

    The methods of `Translator` with these names have the arguments, results and
    errors.
    """

    def __init__(self, search: Search, encoding: Encoding):
        self._search, self._encoding = search, encoding

    def score(self, pairs: SentencePairs) -> list[PairScore]:
        """Computes the log-probability of each token."""
        read = self._read(pairs, self._search.score)
        return [_score(pair.row, log_probs) for pair, log_probs in read]

    def align(self, pairs: SentencePairs) -> list[Alignment]:
        """Links the words, by index."""
        return [
            Alignment(
                self._links(word_side, pair, attention), bool(pair.row.notes)
            )
            for pair, attention in self._read(pairs, self._search.attention)
        ]

    def align_spans(
        self, pairs: SentencePairs, least: float
    ) -> list[list[SpanLink]]:
        """Links words and signs, by position."""
        return [
            _span_links(
                self._links(span_side, pair, attention, least=least), pair
            )
            for pair, attention in self._read(pairs, self._search.attention)
        ]

    def read(self, pairs: SentencePairs) -> list[PairReading]:
        """Computes all of these in one pass."""
        return [
            self._reading(pair, *found)
            for pair, found in self._read(pairs, self._search.read)
        ]

    def _reading(self, pair, log_probs, attention):
        tokens = self._tokens(pair)
        words, spans = (
            self._links(side, pair, attention, tokens)
            for side in (word_side, span_side)
        )
        score = _score(pair.row, log_probs)
        return PairReading(
            score,
            _word_log_probs(pair.target, tokens[1], score.log_probs),
            Alignment(words, bool(pair.row.notes)),
            _span_links(spans, pair),
        )

    def _tokens(self, pair):
        """Returns the tokens of both sides of a pair."""
        of_text = self._encoding.tokenizer_of(pair.request)
        return (
            tokens_of(of_text.source, pair.request.text),
            tokens_of(of_text.target, pair.target),
        )

    def _links(self, make_side, pair, attention, tokens=None, least=0.0):
        """Links words of a pair; `make_side` makes a `Side` from tokens."""
        sources, targets = tokens or self._tokens(pair)
        row = pair.row
        end = len(row.target_ids) - 1
        return align_words(
            attention[row.num_given : end, row.tag_length :],  # without tags
            make_side(pair.request.text, sources),
            make_side(pair.target, targets),
            least,
        )

    def _read(
        self, pairs: SentencePairs, method: Callable
    ) -> Iterator[tuple[Pair, typing.Any]]:
        """Yields each pair, and what a method of the search finds in it."""
        rows = encode_pairs(pairs, self._encoding)
        for request, (_, target), row, found in zip(
            pair_requests(pairs), pairs, rows, method(rows), strict=True
        ):
            for numbers in found if isinstance(found, tuple) else [found]:
                check_finite(numbers, request.text)
            yield Pair(request, target, row), found


def _score(row: Row, log_probs: np.ndarray) -> PairScore:
    """Makes a `PairScore`, without tokens of padding and of the direction."""
    return PairScore(
        [*row.target_ids[row.num_given :]],
        log_probs[row.num_given : len(row.target_ids)].tolist(),
        [*row.notes],
    )


def _word_log_probs(
    text: str, tokens: Sequence[Token], log_probs: Sequence[float]
) -> list[float]:
    """Sums the log-probabilities of the tokens of each word of a text."""
    found = [0.0] * (len(text.split()) + 1)  # the last for white space
    # Without EOS; a translation may be longer than what can be scored.
    for token, log_prob in zip(tokens, log_probs, strict=False):
        found[token.word] += log_prob
    return found[:-1]


def _span_links(links: Sequence[tuple[int, int]], pair: Pair) -> list[SpanLink]:
    """Gives linked words their places in the texts, sorted by the target's."""
    sources, targets = word_spans(pair.request.text), word_spans(pair.target)
    found = [SpanLink(sources[i], targets[j]) for i, j in links]
    return sorted(found, key=lambda link: link.target)
