"""Sentences that come alone: when XLA searches for them, and what it finds."""

import dataclasses
import functools

import exports
import pytest

import keras_transformer as kt
from keras_transformer.translation import adaptive
from keras_transformer.translation.adaptive import AdaptiveInference
from keras_transformer.translation.batching import BatchedInference
from keras_transformer.translation.requests import Request
from trainers.serving import pairs

SHORT = [line for line in exports.SENTENCES if line.strip()][:2]


@pytest.fixture
def searched(monkeypatch):
    """Whether XLA searched, for each batch of rows."""
    found, method = [], BatchedInference._search

    def search(self, rows, num_best):
        found.append((self.jit_compile, len(rows)))
        return method(self, rows, num_best)

    monkeypatch.setattr(BatchedInference, "_search", search)
    return found


def make(monkeypatch, xla_is_faster):
    """A translator with a clock that says which search is faster."""
    seconds = iter(([2.0] * 3 + [1.0 + 2 * (not xla_is_faster)] * 3) * 99)
    monkeypatch.setattr(adaptive, "_time", lambda *_: next(seconds))
    return kt.Translator.load(exports.workdir())


def test_a_faster_program_searches_for_a_sentence_alone(monkeypatch, searched):
    translator = make(monkeypatch, xla_is_faster=True)
    expected = exports.translator().n_best(SHORT, num_best=1)
    assert translator.n_best(SHORT[:1], num_best=1) == expected[:1]
    assert not any(by_xla for by_xla, _ in searched)  # none waits for XLA

    steps = translator.compile_steps(1)
    assert [length for length, _ in steps] == [8, 16]
    assert steps[0][1]() is True
    searched.clear()
    for line, wanted in zip(SHORT, expected, strict=True):
        [[(text, score)]] = translator.n_best([line], num_best=1)
        assert text == wanted[0][0]
        assert score == pytest.approx(wanted[0][1], abs=1e-5)
    lengths = [len(ids) for ids in translator.tokenizer.to_ids(SHORT)]
    assert searched == [(length <= 8, 1) for length in lengths]
    assert {by_xla for by_xla, _ in searched} == {True, False}

    searched.clear()
    translator.translate(SHORT[:1] * 2)  # not alone
    translator.n_best(SHORT[:1], num_best=2)  # another program
    translator.translate(SHORT[:1], prefixes=["ein"])
    translator.translate([Request(SHORT[0], terms=(("Hund",),))])
    translator.with_decoding(extra_length=5).translate(SHORT[:1])
    assert len(searched) >= 5 and not any(by_xla for by_xla, _ in searched)


def test_a_slower_program_is_not_used(monkeypatch, searched):
    translator = make(monkeypatch, xla_is_faster=False)
    assert translator.compile_steps(1)[0][1]() is False
    searched.clear()
    translator.translate(SHORT[:1])
    assert searched == [(False, 1)]


def test_what_is_compiled_anyway_or_not_at_all():
    translator = exports.translator()
    assert isinstance(translator._batched, AdaptiveInference)
    assert translator.with_decoding(sampling=True).compile_steps(1) == []
    for jit_compile in (False, True):
        same = kt.Translator(
            translator.tokenizer,
            translator.model,
            translator.decoding,
            translator.max_source_length,
            jit_compile=jit_compile,
        )
        assert same.compile_steps(1) == []
        assert same._batched.jit_compile is jit_compile


def test_a_server_compiles_last(monkeypatch):
    """When it is ready, and needs no program any more."""
    made = []
    translator = exports.translator().with_decoding(
        **dataclasses.asdict(exports.DECODING)
    )
    monkeypatch.setattr(
        AdaptiveInference,
        "compile_steps",
        lambda self, num_best, given: [
            (length, functools.partial(made.append, (num_best, length)))
            for length in (64, 80)
        ],
    )
    usual, late = pairs.Model(translator, 1).warm_up_steps()
    assert len(usual) + len(late) > 4
    for step in [*usual, *late[:-1]]:
        step()
    assert not made
    late[-1]()
    assert made == [(1, 64)]  # a usual length, and one hypothesis
