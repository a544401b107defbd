"""Pronouns, names and noun phrases, and prepositions before them.

Every constituent that can be a subject or an object has `person`, `is_pronoun`,
`is_definite`, `english(case)` and `german(case)`.
"""

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


class Pronoun:
    """A pronoun, from its English subject and object and German case forms."""

    is_pronoun = True
    is_definite = True

    def __init__(self, english, german, person=THIRD):
        self.english_forms = english.split()
        self.german_forms = dict(zip(CASES, german.split(), strict=True))
        self.person = person

    def english(self, case):
        """The English form: he, him."""
        return self.english_forms[case != NOMINATIVE]

    def german(self, case):
        """The German form: er, ihn, ihm."""
        return self.german_forms[case]


PRONOUNS = {
    "I": Pronoun("I me", "ich mich mir", FIRST),
    "you": Pronoun("you you", "du dich dir", SECOND),
    "he": Pronoun("he him", "er ihn ihm"),
    "she": Pronoun("she her", "sie sie ihr"),
    "we": Pronoun("we us", "wir uns uns", PLURAL),
    "they": Pronoun("they them", "sie sie ihnen", PLURAL),
}
PERSONAL = tuple(PRONOUNS.values())
IT = Pronoun("it it", "es es ihm")  # of the weather
WHO = Pronoun("who whom", "wer wen wem")
WHAT = Pronoun("what what", "was was -")


def _relative_pronouns(english):
    """The relative pronouns, by the gender of the noun."""
    return {
        "masculine": Pronoun(english, "der den dem"),
        "feminine": Pronoun(english, "die die der"),
        "neuter": Pronoun(english, "das das dem"),
        "plural": Pronoun(english, "die die denen", PLURAL),
    }


WHO_RELATIVE = _relative_pronouns("who whom")  # of people
THAT_RELATIVE = _relative_pronouns("that that")  # of things


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


def prepositional_phrase(preposition, nominal):
    """A preposition and its noun phrase; `zu der` becomes `zur`.

    Args:
        preposition: The English one, the German one, and the case that this
            governs here.
        nominal: Noun phrase, name or pronoun.

    Returns:
        A `Phrase`.
    """
    english, german, case = preposition
    words = nominal.german(case)
    article, _, rest = words.partition(" ")
    contraction = CONTRACTIONS.get(f"{german} {article}")
    if contraction and nominal.determiner == "the":
        words = f"{contraction} {rest}"
    else:
        words = f"{german} {words}"
    return Phrase(f"{english} {nominal.english(case)}", words)
