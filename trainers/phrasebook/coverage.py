"""Coverage of the grammar: its English words, constructions and limits."""

import random

from trainers.phrasebook import phrases
from trainers.phrasebook.constituents import IT, NAMES, PRONOUNS
from trainers.phrasebook.entries import ADJECTIVES, LIKE, MODALS, NOUNS, VERBS
from trainers.phrasebook.morphology import DER_WORDS, EIN_WORDS
from trainers.phrasebook.sampling import ClauseSampler
from trainers.phrasebook.sentences import CONSTRUCTIONS

EXAMPLES = 2  # of each construction
EXAMPLE_WORDS = 9  # of an English example, at most


def list_words():
    """The English words by kind: a dictionary of lists, without repetition.

    Numerals and clock times are not listed: they are too many.
    """
    kinds = {
        "nouns": _english(*NOUNS.values()),
        "verbs": [
            f"{verb.english} {verb.preposition[0].strip('-')}".strip()
            for group in VERBS.values()
            for verb in group
        ],
        "modal verbs": [
            f"{modal.base} {modal.tail}".strip() for modal in (*MODALS, LIKE)
        ],
        "adjectives": _english(ADJECTIVES),
        "determiners": [*DER_WORDS, *EIN_WORDS],
        "pronouns": [*PRONOUNS, IT.english_forms[0]],
        "names": [*(name.name for name in NAMES), *phrases.CITIES],
        "times": _english(
            *phrases.DAYS.values(),
            *phrases.PERIODS.values(),
            phrases.FREQUENCIES,
        ),
        "manners": _english(*phrases.MANNERS.values(), phrases.DEGREES),
        "places": _english((phrases.AT_HOME, phrases.HOMEWARD)),
        "conjunctions": _english(
            phrases.REASONS,
            phrases.CONDITIONS,
            (phrases.WHEN, phrases.THAT, phrases.WHETHER),
        ),
    }
    return {kind: list(dict.fromkeys(words)) for kind, words in kinds.items()}


def _english(*groups):
    """The English of all entries in groups; some degrees have none."""
    words = [entry.english for group in groups for entry in group]
    return [word for word in words if word]


def list_examples():
    """Short examples by construction: lists of (English, German)."""
    sampler = ClauseSampler(random.Random(1))
    found = {}
    for construction in CONSTRUCTIONS:
        pairs = found.setdefault(construction.name, [])
        while len(pairs) < EXAMPLES:
            pair = construction.write(sampler)
            if pair[0].count(" ") < EXAMPLE_WORDS:
                pairs.append(pair)
    return found


LIMITS = (
    f"The phrasebook is a small grammar: {len(list_words()['nouns'])} nouns,"
    f" {len(list_words()['verbs'])} verbs, {len(CONSTRUCTIONS)} constructions.",
    "A sentence with any other word or construction is translated into"
    " nonsense.",
    "To see all words and constructions: python -m trainers.phrasebook",
)
