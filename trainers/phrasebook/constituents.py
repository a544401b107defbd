"""Pronouns, names and noun phrases, and prepositions before them.

Every constituent that can be a subject or an object has `person`, `is_pronoun`,
`is_definite`, `english(case)` and `german(case)`.
"""

import dataclasses
from typing import NamedTuple

from trainers.phrasebook.entries import Adjective, Noun
from trainers.phrasebook.morphology import (
    CASES,
    FIRST,
    NOMINATIVE,
    PLURAL,
    SECOND,
    THIRD,
    adjective_ending,
    german_determiner,
    with_article,
)
from trainers.phrasebook.phrases import NUMBERS, Phrase


@dataclasses.dataclass(frozen=True, eq=False)
class Pronoun:
    """A pronoun: English subject and object form, German by case."""

    english_forms: tuple[str, str]
    german_forms: dict[str, str]
    person: int = THIRD
    is_pronoun = True
    is_definite = True

    def english(self, case):
        """The English form: he, him."""
        return self.english_forms[case != NOMINATIVE]

    def german(self, case):
        """The German form: er, ihn, ihm."""
        return self.german_forms[case]


def _pronoun(english, german, person=THIRD):
    """A pronoun from its two English and three German forms."""
    subject, *others = english.split()
    return Pronoun(
        (subject, others[0] if others else subject),
        dict(zip(CASES, german.split(), strict=True)),
        person,
    )


PRONOUNS = {
    "I": _pronoun("I me", "ich mich mir", FIRST),
    "you": _pronoun("you you", "du dich dir", SECOND),
    "he": _pronoun("he him", "er ihn ihm"),
    "she": _pronoun("she her", "sie sie ihr"),
    "we": _pronoun("we us", "wir uns uns", PLURAL),
    "they": _pronoun("they them", "sie sie ihnen", PLURAL),
}
PERSONAL = tuple(PRONOUNS.values())
IT = _pronoun("it", "es es ihm")  # of the weather
WHO = _pronoun("who whom", "wer wen wem")
WHAT = _pronoun("what", "was was -")

# The relative pronouns of people; things have "that" instead.
WHO_RELATIVE = {
    "masculine": _pronoun("who whom", "der den dem"),
    "feminine": _pronoun("who whom", "die die der"),
    "neuter": _pronoun("who whom", "das das dem"),
    "plural": _pronoun("who whom", "die die denen", PLURAL),
}

THAT_RELATIVE = {
    gender: dataclasses.replace(pronoun, english_forms=("that", "that"))
    for gender, pronoun in WHO_RELATIVE.items()
}


class Name(NamedTuple):
    """A person's name, the same in all cases of both languages."""

    name: str
    pronoun: str
    person = THIRD
    is_pronoun = False
    is_definite = True

    def english(self, case):
        """The name."""
        return self.name

    german = english


NAMES = (
    Name("Anna", "she"),
    Name("Maria", "she"),
    Name("Peter", "he"),
    Name("Thomas", "he"),
)


class NounPhrase(NamedTuple):
    """A noun with its determiner and an adjective.

    `determiner` is a key of `DER_WORDS` or `EIN_WORDS`, a number (of a plural),
    or "" for none.

    >>> from trainers.phrasebook.entries import ADJECTIVES, NOUNS
    >>> apple, *_ = NOUNS["food"]
    >>> phrase = NounPhrase("the", ADJECTIVES[0], apple)
    >>> phrase.english("accusative"), phrase.german("accusative")
    ('the old apple', 'den alten Apfel')
    """

    determiner: str | int
    adjective: Adjective | None
    noun: Noun
    plural: bool = False
    is_pronoun = False

    @property
    def person(self):
        """Agreement of the verb."""
        return PLURAL if self.plural else THIRD

    @property
    def is_definite(self):
        """Whether the phrase names something known."""
        determiner = self.determiner
        return determiner not in ("", "a", "no") and determiner.__class__ is str

    @property
    def pronoun(self):
        """The English pronoun that may stand for the phrase, or ""."""
        return "they" if self.plural else self.noun.pronoun

    @property
    def gender(self):
        """Gender, or "plural", in which German genders fall together."""
        return "plural" if self.plural else self.noun.gender

    def english(self, case):
        """The English phrase; it does not depend on the case."""
        noun = self.noun
        words = noun.english_plural if self.plural else noun.english
        if self.adjective:
            words = f"{self.adjective.english} {words}"
        determiner = self.determiner
        if determiner.__class__ is int:
            return f"{NUMBERS[determiner].english} {words}"
        if determiner == "a":
            return with_article(words)
        if determiner == "this" and self.plural:
            determiner = "these"
        return f"{determiner} {words}" if determiner else words

    def german(self, case):
        """The German phrase in a case."""
        gender, determiner = self.gender, self.determiner
        words = self.noun.decline(self.plural, case)
        if self.adjective:
            ending = adjective_ending(determiner, gender, case)
            words = f"{self.adjective.german_stem}{ending} {words}"
        if determiner.__class__ is int:
            return f"{NUMBERS[determiner].german} {words}"
        article = german_determiner(determiner, gender, case)
        return f"{article} {words}" if article else words


CONTRACTIONS = {
    "in dem": "im",
    "in das": "ins",
    "an dem": "am",
    "von dem": "vom",
    "zu dem": "zum",
    "zu der": "zur",
}


def prepositional_phrase(preposition, case, nominal):
    """A preposition and its noun phrase; `zu der` becomes `zur`.

    Args:
        preposition: The English and the German preposition.
        case: The case that the German preposition governs here.
        nominal: Noun phrase, name or pronoun.

    Returns:
        A `Phrase`.
    """
    english, german = preposition
    words = nominal.german(case)
    article, _, rest = words.partition(" ")
    contraction = CONTRACTIONS.get(f"{german} {article}")
    if contraction and nominal.determiner == "the":
        words = f"{contraction} {rest}"
    else:
        words = f"{german} {words}"
    return Phrase(f"{english} {nominal.english(case)}", words)
