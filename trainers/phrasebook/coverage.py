"""Coverage of the grammar: its English words, constructions and limits."""

import random

from trainers.phrasebook.constituents import IT, NAMES, PRONOUNS
from trainers.phrasebook.entries import ADJECTIVES, LIKE, MODALS, NOUNS, VERBS
from trainers.phrasebook.morphology import DER_WORDS, EIN_WORDS
from trainers.phrasebook.phrases import (
    AT_HOME,
    CITIES,
    CONDITIONS,
    DAYS,
    DEGREES,
    FREQUENCIES,
    HOMEWARD,
    MANNERS,
    PERIODS,
    REASONS,
    THAT,
    WHEN,
    WHETHER,
)
from trainers.phrasebook.sampling import ClauseSampler
from trainers.phrasebook.sentences import CONSTRUCTIONS

EXAMPLES = 2  # of each construction
EXAMPLE_WORDS = 9  # of an English example, at most


def list_words():
    """The English words by kind: a dictionary of lists, without repetition.

    Numerals and clock times are not listed: they are too many.
    """
    times = [*DAYS.values(), *PERIODS.values(), FREQUENCIES]
    conjunctions = [*REASONS, *CONDITIONS, WHEN, THAT, WHETHER]
    kinds = {
        "nouns": [n.english for group in NOUNS.values() for n in group],
        "verbs": [
            f"{verb.english} {verb.preposition[0].strip('-')}".strip()
            for group in VERBS.values()
            for verb in group
        ],
        "modal verbs": [
            f"{modal.base} {modal.tail}".strip() for modal in (*MODALS, LIKE)
        ],
        "adjectives": [adjective.english for adjective in ADJECTIVES],
        "determiners": [*DER_WORDS, *EIN_WORDS],
        "pronouns": [*PRONOUNS, IT.english_forms[0]],
        "names": [name.name for name in NAMES] + list(CITIES),
        "times": [phrase.english for group in times for phrase in group],
        "manners": [p.english for group in MANNERS.values() for p in group]
        + [degree.english for degree in DEGREES if degree.english],
        "places": [AT_HOME.english, HOMEWARD.english],
        "conjunctions": [phrase.english for phrase in conjunctions],
    }
    return {kind: list(dict.fromkeys(words)) for kind, words in kinds.items()}


def list_examples():
    """Short examples by construction: lists of (English, German)."""
    sampler = ClauseSampler(random.Random(1))
    found = {}
    for name, template, _ in CONSTRUCTIONS:
        pairs = found.setdefault(name, [])
        while len(pairs) < EXAMPLES:
            *texts, mark = template(sampler)
            if texts[0].count(" ") < EXAMPLE_WORDS:
                pairs.append(tuple(_sentence(text, mark) for text in texts))
    return found


def _sentence(text, mark):
    """The text with a capital letter and its mark."""
    return text[0].upper() + text[1:] + mark


LIMITS = (
    f"The phrasebook is a small grammar: {len(list_words()['nouns'])} nouns,"
    f" {len(list_words()['verbs'])} verbs, {len(CONSTRUCTIONS)} constructions.",
    "A sentence with any other word or construction is translated into"
    " nonsense.",
    "To see all words and constructions: python -m trainers.phrasebook",
)
