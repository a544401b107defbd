"""Sentences that come alone: when the search uses XLA, and what it finds."""

import itertools

import exports
import pytest
import sharing
from tolerance import assert_close

import keras_transformer as kt
from keras_transformer.data.languages import Direction
from keras_transformer.translation import single
from keras_transformer.translation.batched import BatchedSearch
from keras_transformer.translation.requests import Request, encode
from trainers.serving import pairs, work

SHORT = [line for line in exports.SENTENCES if line.strip()][:2]


@pytest.fixture
def searched(monkeypatch):
    """Whether XLA searched, for each batch of rows."""
    found, method = [], BatchedSearch.search_batches

    def search(self, rows, num_best):
        found.append((self.jit_compile, len(rows)))
        return method(self, rows, num_best)

    monkeypatch.setattr(BatchedSearch, "search_batches", search)
    return found


def make(monkeypatch, xla_is_faster, **options):
    """Makes a translator with a clock that decides which search is faster."""
    seconds = itertools.cycle([2.0] * 3 + [1.0 if xla_is_faster else 3.0] * 3)
    monkeypatch.setattr(single, "_time", lambda *_: next(seconds))
    return kt.Translator.load(exports.workdir(), **options)


def single_steps(search, *given):
    """Returns the steps that make the programs of a single sentence."""
    steps = search.programs(1, *given)
    return [step.make for step in steps if step.is_single]


def test_a_faster_program_searches_for_a_sentence_alone(monkeypatch, searched):
    translator = make(monkeypatch, xla_is_faster=True)
    expected = exports.translator().n_best(SHORT, num_best=1)
    assert_close(translator.n_best(SHORT[:1], num_best=1), expected[:1])
    assert not any(by_xla for by_xla, _ in searched)  # no search compiles

    steps = single_steps(translator)
    assert len(steps) == 6  # three for sources of up to 8 and of 16 tokens
    assert [step() for step in steps[:3]] == [None, None, True]
    searched.clear()
    for line, wanted in zip(SHORT, expected, strict=True):
        assert_close(translator.n_best([line], num_best=1), [wanted])
    lengths = [len(ids) for ids in translator.tokenizer.to_ids(SHORT)]
    assert searched == [(length <= 8, 1) for length in lengths]
    assert {by_xla for by_xla, _ in searched} == {True, False}

    class Searched(Exception):
        pass

    def search(self, rows, num_best):
        raise Searched(self.jit_compile)

    monkeypatch.setattr(BatchedSearch, "search_batches", search)
    for use in (
        lambda: translator.translate(SHORT[:1] * 2),  # not alone
        lambda: translator.n_best(SHORT[:1], num_best=2),  # another program
        lambda: translator.translate(SHORT[:1], prefixes=["ein"]),
        lambda: translator.translate([Request(SHORT[0], terms=(("Hund",),))]),
        lambda: translator.with_decoding(extra_length=5).translate(SHORT[:1]),
    ):
        with pytest.raises(Searched, match="False"):
            use()


@pytest.mark.slow("backend")
def test_given_tokens_have_programs_of_their_own(monkeypatch, searched):
    """As of models that are told the target language by its first token."""
    translator = make(monkeypatch, xla_is_faster=True)
    [row] = encode([Request(SHORT[0])], translator.encoding)
    row = row._replace(target_ids=[7], num_given=1)
    for step in single_steps(translator._search, [9])[:3]:
        step()
    searched.clear()
    found = translator._search.search([row], 1)
    assert searched == [(True, 1)] and found[0].ids[0][0] == 7
    assert_close(found, exports.translator()._search.search([row], 1))
    longer = row._replace(target_ids=[7, 8])  # a prefix after it
    translator._search.search([longer], 1)
    assert searched[-1] == (False, 1)


def test_a_slower_program_is_not_used(monkeypatch, searched):
    translator = make(monkeypatch, xla_is_faster=False)
    search = BatchedSearch._search_batch
    monkeypatch.setattr(  # without compiling
        BatchedSearch,
        "_search_batch",
        lambda self, *a: None if self.jit_compile else search(self, *a),
    )
    steps = single_steps(translator)[:3]
    assert [step() for step in steps] == [None, None, False]
    searched.clear()
    translator.translate(SHORT[:1])
    assert searched == [(False, 1)]


def test_a_failure_of_xla_is_told_and_changes_nothing(monkeypatch, caplog):
    translator = make(monkeypatch, xla_is_faster=True)
    search = BatchedSearch._search_batch

    def fail(self, *arguments):
        if self.jit_compile:
            raise RuntimeError("no ptxas")
        return search(self, *arguments)

    monkeypatch.setattr(BatchedSearch, "_search_batch", fail)
    steps = single_steps(translator)[:3]
    assert [step() for step in steps] == [False, None, None]
    assert "XLA cannot compile the search: no ptxas" in caplog.text
    assert translator.translate(SHORT) == exports.translator().translate(SHORT)


def fresh_translator(**options):
    """Returns the translator of exports without its programs."""
    known = exports.translator()
    given = known.tokenizer, known.model, known.decoding
    return kt.Translator(*given, known.max_source_length, **options)


def test_what_is_compiled_anyway_or_not_at_all(monkeypatch):
    translator = exports.translator()
    assert single_steps(translator)
    assert single_steps(translator.with_decoding(sampling=True)) == []
    half = make(monkeypatch, xla_is_faster=True, precision="bfloat16")
    assert single_steps(half) == []
    for jit_compile in (False, True):
        same = fresh_translator(jit_compile=jit_compile)
        assert single_steps(same) == []
        assert sharing.engine_search(same).jit_compile is jit_compile


def test_a_server_compiles_last():
    usual, late, compiled = pairs.Model(exports.translator(), 1).warm_up_steps()
    # Score and align, the best and n-best lists; two lengths by XLA.
    assert (len(usual), len(late), len(compiled)) == (4, 0, 6)


def test_a_server_that_is_ready_has_made_what_its_page_asks_for():
    fresh = fresh_translator()
    model = pairs.Model(fresh, 1)
    for make in model.warm_up_steps()[0]:
        make()
    batched = sharing.engine_search(fresh)
    before = set(batched._programs)
    page = work.SearchWork(model, fresh.decoding, everything=True, details=True)
    request = Request("two red dogs", direction=Direction())
    found, _ = page([request, request])
    assert len(found.details) == len(found.translation.texts) > 1
    assert set(batched._programs) == before
