"""Modifiers: their changes to a pair, how often, and the resulting ids."""

import collections
import itertools
import math
import re
from string import ascii_letters

import numpy as np
import pytest
from commands import TINY, check_resumed, train, write_pairs
from random_pairs import (
    ids_of,
    make_pairs,
    rows_of,
)

from keras_transformer.config import DecodingConfig, TransformerConfig
from keras_transformer.data.changing import modifiers
from keras_transformer.data.changing.modifiers import (
    MODIFIERS,
    Context,
    ModifiedCorpus,
    parse_modifiers,
)
from keras_transformer.data.corpus import encode_corpus, replace_rows
from keras_transformer.text.tokenization import Tokenizer, TokenizerPair
from trainers.datasets import phrasebook
from trainers.run.data_config import DataConfig
from trainers.run.training_config import Configuration, TrainingConfig

# ---------------------------------------------------- what a modifier does


def modify(name, source, target, other=None, seed=1):
    random = np.random.default_rng(seed)
    return MODIFIERS[name](
        (source, target), Context(random, other, list("abcd"))
    )


@pytest.mark.parametrize(
    "name, pair, expected",
    [
        ("UpperCase", ("heLLo äh", "straße 1"), ("HELLO ÄH", "STRASSE 1")),
        ("TitleCase", ("heLLo (dog) a", "äh 1a"), ("HeLLo (dog) A", "Äh 1a")),
        ("RemoveEndPunct", ("No dog .", "Kein Hund!"), None),
        ("RemoveEndPunct", ("No dog .", "Kein Hund."), ("No dog", "Kein Hund")),
        ("RemoveEndPunct", ("Dogs?!", "犬！"), ("Dogs?", "犬")),
        ("RemoveEndPunct", ("A dog.", "犬。"), ("A dog", "犬")),
        ("RemoveEndPunct", ("A dog?", "Σκύλος;"), ("A dog", "Σκύλος")),
        ("RemoveEndPunct", ("A dog", "Ein Hund"), None),
        ("RemoveEndPunct", ("A dog…", "Ein Hund."), ("A dog", "Ein Hund")),
        ("Merge", ("a", "b"), ("a c d", "b e")),
    ],
)  # fmt: skip
def test_what_a_modifier_makes_of_a_pair(name, pair, expected):
    assert modify(name, *pair, other=("c d", "e")) == (expected or pair)


@pytest.mark.parametrize("name", ["TitleCase", "RemoveEndPunct", "Typos"])
def test_white_space_and_nothing_have_no_words(name):
    """White space of Python that is text in a file, such as U+0085."""
    for text in ("\x85", ""):
        assert modify(name, text, text)[0] in ("\x85", "")


def test_a_pair_without_others_is_not_merged():
    assert modify("Merge", "a", "b") == ("a", "b")


def test_noise_is_the_same_words_on_both_sides():
    numbers, lengths = set(), set()
    for seed in range(300):
        source, target = modify("Noise", "a dog", "ein Hund", seed=seed)
        assert source == target and set(source) <= set("abcd ")
        words = source.split(" ")
        numbers.add(len(words))
        lengths.update(map(len, words))
    assert numbers == set(range(1, 7)) and lengths == set(range(2, 6))


def edits(word):
    """Returns all typos of a word by kind, from the words of the docs."""
    keys = {"d": "serfxc", "o": "ipkl", "g": "fhtyvb"}
    near = [keys.get(c.lower(), word) for c in word]
    near = [
        n.upper() if c.isupper() else n for c, n in zip(word, near, strict=True)
    ]
    cut = [(word[:i], word[i:]) for i in range(len(word))]
    cuts = list(zip(cut, near, strict=True))
    return {
        "replaced": {a + c + b[1:] for (a, b), n in cuts for c in n},
        "added": {a + b[0] + c + b[1:] for (a, b), n in cuts for c in n},
        "dropped": {a + b[1:] for a, b in cut if len(b) > 1},
        "swapped": {a + b[1] + b[0] + b[2:] for a, b in cut if len(b) > 1},
    }


@pytest.mark.parametrize("word", ["Dog", "öß", "x"])
def test_typos_of_a_word(word):
    random = np.random.default_rng(2)
    found = {modifiers._mistype(word, random) for _ in range(3000)}
    expected = edits(word)
    if word == "x":
        assert found == set("zsdc") | {"xz", "xs", "xd", "xc"}
    else:
        assert found == set().union(*expected.values())


def test_typos_are_in_the_source_and_in_one_word_of_ten():
    source = " ".join(["house"] * 40)
    changed = []
    for seed in range(300):
        found, target = modify("Typos", source, "Haus", seed=seed)
        assert target == "Haus" and len(found.split(" ")) == 40
        changed.append(sum(word != "house" for word in found.split(" ")))
    assert np.mean(changed) == pytest.approx(4, rel=0.1)
    one = [modify("Typos", "house", "Haus", seed=s)[0] for s in range(50)]
    assert "house" not in one


# ------------------------------------------------------------------ the text


def test_probabilities_of_a_text():
    found = parse_modifiers("UpperCase 0.05, Typos .1,Merge 1")
    expected = {"UpperCase": 0.05, "Typos": 0.1, "Merge": 1.0}
    assert list(found.items()) == list(expected.items())


@pytest.mark.parametrize(
    "text, message",
    [
        ("UpperCase", "modifiers must be NAME NUMBER"),
        ("UpperCase 0", "Received: 'UpperCase 0' in modifiers='UpperCase 0'"),
        ("UpperCase 0.1 Typos 0.1", "modifiers must be NAME NUMBER"),
        ("UpperCase 0.1, UpperCase 0.2", "each name once"),
        ("UpperCase 1.5", "at most 1. Received: 'UpperCase 1.5'"),
        ("Uppercase 0.5", "must be among UpperCase, TitleCase, RemoveEnd"),
    ],
)  # fmt: skip
def test_bad_texts_are_refused_in_one_line(text, message):
    with pytest.raises(ValueError, match="^modifiers") as error:
        DataConfig(modifiers=text)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_what_does_not_go_together_is_refused():
    text = {"modifiers": "Merge 0.1"}
    with pytest.raises(ValueError, match="modifiers excludes dataset=prep"):
        DataConfig(dataset="prepared", train_files=("x",), **text)
    with pytest.raises(ValueError, match="modifiers excludes subword_samp"):
        DataConfig(subword_sampling=0.1, **text)
    with pytest.raises(ValueError, match="guided_alignment excludes modif"):
        Configuration(
            TransformerConfig(vocab_size=90),
            DataConfig(dataset="files", train_files=("x",), **text),
            TrainingConfig(guided_alignment=("links",)),
            DecodingConfig(),
        )


# ---------------------------------------------------------------- the corpus

PAIRS = [(f"{s}.", f"{t}.") for s, t in make_pairs(1500)]
PAIRS[7:7] = [("", "x"), ("dog " * 400, "Hund")]
SIZES = [300, 2, 1200]
CHANCES = parse_modifiers(
    "UpperCase 0.05, TitleCase 0.04, RemoveEndPunct 0.1, Typos 0.08,"
    " Merge 0.06, Noise 0.02"
)


@pytest.fixture(scope="module")
def tokenizer():
    lines = list(itertools.chain.from_iterable(make_pairs(300)))
    lines += [f"{line.upper()} {ascii_letters}." for line in lines[:100]]
    return Tokenizer.train(lines, vocab_size=140)


def make_corpus(tokenizer, chances=CHANCES, max_length=90, seed=5):
    return ModifiedCorpus(
        iter(PAIRS), tokenizer, max_length, chances, seed, SIZES
    )


@pytest.fixture(scope="module")
def corpus(tokenizer):
    return make_corpus(tokenizer)


@pytest.fixture(scope="module")
def kept(tokenizer, corpus):
    return list(itertools.compress(PAIRS, corpus.canonical.selected))


def texts_of(corpus, tokenizer):
    """Returns the pairs of a corpus as text."""
    sides = (
        tokenizer.to_strings(rows_of(rows))
        for rows in (corpus.source, corpus.target)
    )
    return list(zip(*sides, strict=True))


def count_changed(first, second):
    """Counts the pairs of a corpus that have other ids in another."""
    rows = zip(ids_of(first), ids_of(second), strict=True)
    return sum(one != other for one, other in rows)


def test_each_pair_is_modified_with_the_probability(corpus, tokenizer):
    """Within four deviations of a binomial distribution, in each epoch."""
    assert len(corpus) == 1500 == corpus.counts.kept
    for name, chance in CHANCES.items():
        alone = make_corpus(tokenizer, {name: chance}, 300)
        for epoch in (0, 1):
            _, counts = alone._draw_epoch(epoch)
            assert len(counts) == 2
            mean = chance * len(alone)
            deviation = math.sqrt(mean * (1 - chance))
            assert abs(counts[name] - mean) < 4 * deviation, name
            unfit = sum(counts.values()) - counts[name]
            changed = count_changed(alone.of_epoch(epoch), alone.canonical)
            assert changed == counts[name] - unfit


def test_modifiers_are_independent_and_in_order(tokenizer, kept):
    """All pairs have both; and capitals come first, so `c d` stays small."""
    both = parse_modifiers("UpperCase 1, Merge 0.5")
    corpus = make_corpus(tokenizer, both, 300)
    small, merged = [pair[0] for pair in kept], 0
    texts = texts_of(corpus.first, tokenizer)
    for (source, _), before in zip(texts, small, strict=True):
        assert source.startswith(before.upper())
        rest = source.removeprefix(before.upper()).strip()
        merged += bool(rest)
        assert not rest or rest in small
    assert 0.4 < merged / len(kept) < 0.6


def test_merged_pairs_are_of_the_same_corpus(tokenizer, kept):
    corpus = make_corpus(tokenizer, {"Merge": 1.0}, 300)
    homes = np.repeat([0, 1, 2], [298, 2, 1200]).tolist()  # kept of SIZES
    places = collections.defaultdict(set)
    for home, pair in zip(homes, kept, strict=True):
        places[pair].add(home)
    texts = texts_of(corpus.first, tokenizer)
    others = [
        tuple(text.removeprefix(f"{b} ") for text, b in zip(*both, strict=True))
        for both in zip(texts, kept, strict=True)
    ]
    for home, other in zip(homes, others, strict=True):
        assert home in places[other]
    # The two pairs of the second corpus.
    assert others[298:300] == kept[299:297:-1]
    assert len(set(others)) > 500


def test_pairs_that_are_not_modified_keep_their_ids(corpus):
    canonical = ids_of(corpus.canonical)
    epochs = [ids_of(corpus.of_epoch(epoch)) for epoch in (0, 1, 2)]
    changed = [
        np.array([a != b for a, b in zip(rows, canonical, strict=True)])
        for rows in epochs
    ]
    # One minus the product of what stays.
    share = 1 - math.prod(1 - chance for chance in CHANCES.values())
    for of_epoch in changed:
        assert np.mean(of_epoch) == pytest.approx(share, abs=0.05)
    assert np.mean(changed[1] == changed[2]) < 0.8
    rest = (~changed[0]) & (~changed[1])
    assert rest.sum() > 500
    text = str(corpus)
    assert "times the tokens in the first epoch" in text
    assert " UpperCase, " in text


def test_pairs_that_become_too_long_or_empty_are_not_modified(tokenizer):
    pairs = [("dog the.", "Hund der."), (".", "."), ("dog", "Hund")]
    canonical = encode_corpus(pairs, tokenizer, 90)
    longest = int(canonical.longer_side.max())
    for name, fits in (("Merge", 0), ("RemoveEndPunct", 1)):
        corpus = ModifiedCorpus(pairs, tokenizer, longest, {name: 1.0}, 1)
        first = corpus.first
        assert first.longer_side.max() <= longest
        assert min(*first.source.lengths, *first.target.lengths) > 1
        counts = dict(corpus._counts[0])
        tried, [unfit] = counts.pop(name), counts.values()
        changed = count_changed(first, canonical)
        assert tried - unfit == changed and unfit >= 1
        assert changed == fits or name == "Merge"
        note = f"{unfit} not modified, since a side would be empty or"
        assert note in str(corpus)


def test_later_epochs_fit_the_shapes_of_the_first(corpus):
    assert corpus.longest == corpus.longer_side.max() <= 90
    for epoch in range(1, 6):
        assert corpus.of_epoch(epoch).longer_side.max() <= corpus.longest


def test_long_corpora_are_drawn_chunk_by_chunk(tokenizer, monkeypatch):
    monkeypatch.setattr(modifiers, "CHUNK_PAIRS", 100)
    corpus = make_corpus(tokenizer, {"UpperCase": 0.3}, 300)
    texts = texts_of(corpus.first, tokenizer)
    upper = [source.isupper() for source, _ in texts]
    chunks = np.reshape(upper, (15, 100))
    assert len({tuple(chunk) for chunk in chunks}) == 15
    assert all(10 < chunk.sum() < 55 for chunk in chunks)


def test_noise_has_characters_of_both_vocabularies():
    pair = TokenizerPair(
        Tokenizer.train(["abc abd"], vocab_size=10),
        Tokenizer.train(["bcx bcy"], vocab_size=10),
    )
    corpus = ModifiedCorpus([("abc", "bcx")] * 50, pair, 60, {"Noise": 1.0}, 1)
    source = pair.source.to_strings(rows_of(corpus.first.source))
    assert set("".join(source)) == set("bc ")
    assert source == pair.target.to_strings(rows_of(corpus.first.target))
    apart = TokenizerPair(
        pair.source, Tokenizer.train(["xyz xy"], vocab_size=10)
    )
    with pytest.raises(ValueError, match="Noise needs"):
        ModifiedCorpus([("abc", "xy")], apart, 60, {"Noise": 1.0}, 1)


def test_some_rows_replaced_by_others(corpus):
    rows = corpus.canonical.source
    numbers = np.array([0, 3, 1499])
    found = rows_of(replace_rows(rows, numbers, rows.take([5, 6, 7])))
    expected = rows_of(rows)
    for number, other in zip(numbers, expected[5:8], strict=True):
        expected[number] = other
    assert found == expected
    none = np.arange(0)
    assert rows_of(replace_rows(rows, none, rows.take(none))) == rows_of(rows)


# ------------------------------------------------------------- its batches


# ----------------------------------------------------------------- a training


@pytest.mark.slow("run")
def test_a_training_with_a_mixture_is_resumed(tmp_path):
    """It resumes from a checkpoint in the second epoch, as after a kill."""
    pairs = phrasebook.read_split("train", 90)
    original = write_pairs(tmp_path / "original", pairs[:40])
    back = write_pairs(tmp_path / "back", [*pairs[40:], ("", "leer")])
    argv = [
        *TINY,
        f"--train_files={original},{back}",
        "--mixture=original 1, back 1.5, until 1; back 1, original 1",
        "--modifiers=UpperCase 0.2, Typos 0.2, Merge 0.2",
        "--train_steps=9",
    ]
    log = train([*argv, f"--workdir={tmp_path}/whole"])
    assert (
        "mixture: original 40 pairs read, 40 kept; back 51 pairs read, 50 kept;"
        " epoch 1: 40 of original, 60 of back; epoch 2: 50 of original, 50 of"
        " back\n"
    ) in log
    counts = r"\d+ UpperCase, \d+ Typos, \d+ Merge, \d+ not modified, since"
    assert re.search(rf"\nmodifiers: 1\.\d\d times .* {counts}", log)
    begun = re.search(rf"\nepoch 2: 50 of original, 50 of back; {counts}", log)
    assert begun.start() < log.index("step 6 ")
    check_resumed(argv, tmp_path / "whole", 6, log)
