"""Lexical entries: the properties of each word, read from the tables."""

from trainers.phrasebook.lexicon import (
    ADJECTIVE_TABLE,
    GROUPS,
    MODAL_TABLE,
    NOUN_TABLE,
    VERB_TABLE,
)
from trainers.phrasebook.morphology import (
    DATIVE,
    GENDERS,
    IRREGULAR_PRESENT,
    NOMINATIVE,
    PRETERITE,
    english_participle,
    english_s_form,
    german_present,
)
from trainers.phrasebook.phrases import MANNERS


class Noun:
    """A noun of both languages, from a line of `NOUN_TABLE`.

    The plurals are "" where there are none.
    """

    def __init__(self, category, english, german, marks):
        self.category = category
        self.english, self.english_plural = _words(english)
        article, self.german, self.german_plural = _words(german)
        self.gender = GENDERS[article]
        self.is_weak = "weak" in marks
        self.pronoun = marks.removesuffix("weak").strip()

    def decline(self, plural, case):
        """The German form in a case."""
        if plural:
            takes_n = case == DATIVE and self.german_plural[-1] not in "ns"
            return self.german_plural + ("n" if takes_n else "")
        oblique = self.is_weak and case != NOMINATIVE
        return self.german_plural if oblique else self.german


class Adjective:
    """An adjective of both languages, from a line of `ADJECTIVE_TABLE`."""

    def __init__(self, english, german, categories):
        self.english, comparative = _words(english)
        self.english_comparative = comparative or f"more {self.english}"
        self.german, self.german_comparative, *stem = german.split()
        self.german_stem = stem[0] if stem else self.german
        self.categories = _categories(categories)


class Verb:
    """A verb of both languages, from a line of `VERB_TABLE`.

    `english` is the whole entry ("pick up"): `base` is inflected, and `tail`
    follows it. The tuples `present` and `preterite` are indexed by person;
    `prefix` is the separable one, and `preposition` that of a prepositional
    verb: the English one, the German one and its case, or "-".
    """

    def __init__(
        self, english, german, perfect, categories="", preposition="- - -"
    ):
        *words, self.past = english.split()
        self.english = " ".join(words)
        self.base, _, self.tail = self.english.partition(" ")
        self.third = english_s_form(self.base)
        self.participle = english_participle(self.base)
        infinitive, *changed_stem = german.split()
        self.prefix, _, stem = infinitive.rpartition("|")
        self.infinitive = self.prefix + stem  # aufstehen
        to = "zu" if self.prefix else "zu "
        self.zu_infinitive = self.prefix + to + stem  # aufzustehen
        self.present = german_present(stem, *changed_stem)
        self.preterite = PRETERITE.get(infinitive)
        auxiliary, self.perfect = perfect.split()
        self.auxiliary = {"hat": "haben", "ist": "sein"}[auxiliary]
        self.categories = _categories(categories)
        self.manners = MANNERS.get(self.english, ())
        self.preposition = preposition.split()


class Modal:
    """A modal verb, from a line of `MODAL_TABLE`, or a German adverb for one.

    `tail` follows the English verb ("to", "allowed to"). The lists of verb
    forms are indexed by person, and empty where there are none.
    """

    def __init__(self, base, tail, *forms, adverb=""):
        self.base, self.tail, self.adverb = base, tail, adverb
        self.present, self.past, self.german_present, self.german_past = (
            cell.split() for cell in forms
        )
        # Whether it needs no `do`: is not allowed, cannot.
        self.is_auxiliary = base in ("be", "can", "should")


def _words(cell):
    """The words of a cell; "" for each that is missing."""
    return [word.strip("-") for word in cell.split()]


def _categories(names):
    """The categories of a cell, with groups replaced by their members."""
    return tuple(" ".join(GROUPS.get(n, n) for n in names.split()).split())


def _rows(table, separator):
    """The cells of a table's lines."""
    for line in table.strip().splitlines():
        yield [cell.strip() for cell in line.split(separator)]


NOUNS = {
    category: tuple(Noun(category, *cells) for cells in _rows(table, "|"))
    for category, table in NOUN_TABLE.items()
}
ADJECTIVES = tuple(Adjective(*cells) for cells in _rows(ADJECTIVE_TABLE, "|"))
ADJECTIVES_OF = {
    category: tuple(a for a in ADJECTIVES if category in a.categories)
    for category in NOUNS
}
VERBS = {
    frame: tuple(Verb(*cells) for cells in _rows(table, ";"))
    for frame, table in VERB_TABLE.items()
}

(BE,) = VERBS["copula"]
(COST,) = VERBS["price"]
KNOW, *_ = VERBS["speech"]
BE_PRESENT = ("am", "are", "is", "are")
BE_PAST = ("was", "were", "was", "were")
WERDEN = IRREGULAR_PRESENT["werden"]

MODALS = tuple(Modal(*cells) for cells in _rows(MODAL_TABLE, ";"))
PAST_MODALS = tuple(modal for modal in MODALS if modal.past)
# German has an adverb: he likes to read, er liest gern.
LIKE = Modal("like", "to", "like like likes like", "", "", "", adverb="gern")
