"""The built-in treebank: what its splits share, and what its trees teach."""

import collections
import random

import pytest

from trainers.parsing.config import TreesConfig
from trainers.parsing.corpus import (
    find_symbols,
    make_pair,
    make_trees,
    read_split,
)
from trainers.parsing.grammar import TreeSampler
from trainers.parsing.lexicon import CARRIED, FRAMES, NOUNS, VERBS
from trainers.parsing.linearization import linearize
from trainers.parsing.trees import Leaf, Node, leaves, walk, write_tree
from trainers.phrasebook.drawing import SPLITS
from trainers.run.data_config import DataConfig


def words_of(tree):
    return " ".join(leaf.word for leaf in leaves(tree))


@pytest.fixture(scope="module")
def trees():
    """1,500 trees of training."""
    return make_trees("train", 1500)


def test_splits_share_no_sentence(trees):
    splits = {name: make_trees(name, 200) for name in SPLITS}
    assert splits["train"] == trees[:200]  # a larger request begins the same
    sentences = [words_of(t) for split in splits.values() for t in split]
    assert len(set(sentences)) == 600
    assert not {words_of(t) for t in trees} & set(sentences[200:])
    for name, number in (("train", 0), ("test", 100_001), ("dev", 1)):
        with pytest.raises(ValueError, match="must be"):
            make_trees(name, number)


def test_a_sentence_has_one_tree():
    sampler = TreeSampler(random.Random(5))
    found = collections.defaultdict(set)
    for _ in range(3000):
        tree = sampler.sentence()
        found[words_of(tree)].add(write_tree(tree))
    assert len(found) > 2500
    assert max(map(len, found.values())) == 1


def test_tags_do_not_decide_the_tree(trees):
    """Else nothing would have to be learned about words."""
    found = collections.defaultdict(set)
    for tree in trees:
        for event, phrase in walk(tree):
            if event == "open" and phrase.label == "VP":
                tags = " ".join(leaf.tag for leaf in leaves(phrase))
                found[tags].add(linearize(Node("TOP", (phrase,))))
    assert len(found["VBD DT NN IN DT NN"]) > 1
    assert sum(len(sequences) > 1 for sequences in found.values()) > 30


# Preposition, class of the verb, class of the noun after the preposition ->
# what the phrase belongs to: the verb, or its object.
ATTACHMENT = {
    ("with", "perceive", "optics"): "verb",
    ("with", "know", "optics"): "noun",
    ("with", "strike", "optics"): "noun",
    ("with", "draw", "optics"): "noun",
    ("with", "draw", "pen"): "verb",
    ("with", "know", "pen"): "noun",
    ("with", "know", "stick"): "noun",
    ("with", "perceive", "clothes"): "noun",
    ("with", "strike", "stick"): "verb",
    ("with", "perceive", "stick"): "noun",
    ("with", "eat", "cutlery"): "verb",
    ("with", "eat", "ingredient"): "noun",
    ("in", "strike", "place"): "verb",
    ("in", "know", "place"): "noun",
    ("in", "perceive", "place"): "noun",
    ("from", "buy", "person"): "verb",
    ("from", "know", "town"): "noun",
}


def classes_of(table):
    """Each word of a table -> its class."""
    return {
        word: name
        for name, entries in table.items()
        for entry in entries
        for word in entry.values()
    }


def noun_of(phrase):
    """The noun of a noun phrase, without what follows it; "" of a list."""
    while isinstance(phrase.children[-1], Node):
        phrase = phrase.children[0]
        if isinstance(phrase, Leaf):
            return ""
    return phrase.children[-1].word


def attachments(tree):
    """Yields the key of `ATTACHMENT`, and what the phrase belongs to."""
    verbs = classes_of({name: VERBS[name] for name in FRAMES})
    nouns = classes_of(NOUNS)
    for event, phrase in walk(tree):
        if event != "open" or phrase.label != "VP":
            continue
        verb, *others = phrase.children
        if not isinstance(verb, Leaf) or verb.word not in verbs or not others:
            continue
        thing = others[0]
        if getattr(thing, "label", "") != "NP":
            continue
        for owner, parts in (("verb", others[1:]), ("noun", thing.children)):
            for part in parts:
                if getattr(part, "label", "") == "PP":
                    preposition, noun_phrase = part.children
                    noun = nouns.get(noun_of(noun_phrase))
                    yield (preposition.word, verbs[verb.word], noun), owner


def test_words_decide_what_a_phrase_belongs_to(trees):
    """And often enough that a parser can learn it."""
    found = collections.defaultdict(collections.Counter)
    for tree in trees:
        for key, owner in attachments(tree):
            found[key][owner] += 1
    assert len(found) > 30 and max(map(len, found.values())) == 1
    assert all(found[key][owner] for key, owner in ATTACHMENT.items())
    telling = [
        found["with", kind, carried]["noun"]
        for kind in ("perceive", "strike", "draw", "know")
        for carried in CARRIED
    ]
    assert sum(telling) > 60


def test_the_splits_of_a_run(trees):
    """The built-in treebank as pairs; every token of a tree is a symbol."""
    data = TreesConfig(treebank_trees=40)
    pairs = read_split(data, "train")
    assert len(pairs) == 40
    assert pairs[3] == (words_of(trees[3]), linearize(trees[3]))
    symbols = find_symbols(data, [make_pair(tree) for tree in trees])
    assert {"(NP", ")NP", "(SBARQ", "XX", ".", "``"} <= set(symbols)
    assert not find_symbols(DataConfig(), pairs)
