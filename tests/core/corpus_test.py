"""The ids of a corpus: encoded, in order, dropped pairs counted."""

import functools
import itertools

import numpy as np
import pytest
from random_pairs import make_pairs, rows_of

from keras_transformer.data.corpus import (
    _encode_chunks,
    encode_corpus,
    encode_pairs,
)
from keras_transformer.text.tokenization import Tokenizer


@pytest.fixture(scope="module")
def tokenizer():
    lines = itertools.chain.from_iterable(make_pairs(300))
    return Tokenizer.train(lines, vocab_size=90)


def test_a_corpus_holds_the_ids_of_its_pairs(tokenizer):
    pairs = make_pairs(20)
    corpus = encode_corpus(iter(pairs), tokenizer, max_length=1000)
    assert len(corpus) == 20
    assert corpus.source.ids.dtype == np.uint16
    for side, strings in zip(
        (corpus.source, corpus.target), zip(*pairs, strict=True), strict=True
    ):
        rows = tokenizer.encode(list(strings)).to_list()
        assert rows_of(side) == rows


def test_chunks_keep_their_order(tokenizer):
    pairs = make_pairs(200)
    encode = functools.partial(encode_pairs, tokenizer=tokenizer)
    whole = _rows(_encode_chunks(pairs, encode))
    assert whole == _rows(_encode_chunks(pairs, encode, chunk_size=7))


def _rows(chunks):
    return [
        pair
        for source, target in chunks
        for pair in zip(rows_of(source), rows_of(target), strict=True)
    ]


def test_dropped_pairs_are_counted(tokenizer):
    pairs = [("the dog", "der Hund")] * 3 + [("", "der"), ("the", " ")]
    pairs += [("dog " * 50, "Hund"), ("the dog", "Hund " * 50), ("", "x " * 99)]
    corpus = encode_corpus(pairs, tokenizer, max_length=20)
    assert len(corpus) == len(corpus.source.lengths) == 3
    assert str(corpus.counts) == (
        "8 pairs read, 3 kept; dropped: 3 with an empty side,"
        " 2 with more than 20 tokens"
    )


def test_max_length_counts_eos(tokenizer):
    pair = ("the dog", "der Hund")
    longest = max(len(row) for row in tokenizer.encode(pair).to_list())
    corpus = encode_corpus([pair], tokenizer, longest)
    assert len(corpus) == corpus.counts.read == 1
    assert corpus.counts.too_long == 0
    with pytest.raises(ValueError, match="pair is left.*1 pairs read, 0"):
        encode_corpus([pair], tokenizer, longest - 1)


@pytest.mark.parametrize("pairs", [[], [("", "")]])
def test_an_empty_corpus_is_an_error(tokenizer, pairs):
    with pytest.raises(ValueError, match="no sentence pair is left"):
        encode_corpus(pairs, tokenizer, max_length=20)


def test_max_length_must_leave_room(tokenizer):
    with pytest.raises(ValueError, match="Received: max_length=1"):
        encode_corpus([("a", "b")], tokenizer, max_length=1)
