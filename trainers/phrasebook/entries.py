"""Lexical entries: the properties of each word, read from the tables."""

import dataclasses

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
    english_third_person,
    german_present,
)


@dataclasses.dataclass(frozen=True, eq=False)
class Noun:
    """A noun of both languages; `plural` is "" where there is none."""

    category: str
    english: str
    english_plural: str
    gender: str
    german: str
    german_plural: str
    pronoun: str
    is_weak: bool

    def decline(self, plural, case):
        """The German form in a case."""
        if plural:
            takes_n = case == DATIVE and self.german_plural[-1] not in "ns"
            return self.german_plural + ("n" if takes_n else "")
        oblique = self.is_weak and case != NOMINATIVE
        return self.german_plural if oblique else self.german


@dataclasses.dataclass(frozen=True, eq=False)
class Adjective:
    """An adjective of both languages and the nouns that it goes with."""

    english: str
    english_comparative: str
    german: str
    german_comparative: str
    german_stem: str
    categories: tuple[str, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Verb:
    """A verb of both languages.

    `english` is the whole entry ("pick up"): `base` is inflected, and `tail`
    follows it. The tuples `present` and `preterite` are indexed by person;
    `prefix` is the separable one. A prepositional verb governs `preposition`,
    as in `PLACES`, in `preposition_case`.
    """

    english: str
    base: str
    tail: str
    third: str
    past: str
    participle: str
    german_stem: str
    prefix: str
    present: tuple[str, ...]
    preterite: tuple[str, ...] | None
    perfect: str
    auxiliary: str
    categories: tuple[str, ...]
    preposition: tuple[str, str]
    preposition_case: str

    @property
    def infinitive(self):
        """The German infinitive: aufstehen."""
        return self.prefix + self.german_stem

    @property
    def zu_infinitive(self):
        """The German infinitive with `zu`: aufzustehen, zu stehen."""
        if self.prefix:
            return f"{self.prefix}zu{self.german_stem}"
        return f"zu {self.german_stem}"


@dataclasses.dataclass(frozen=True, eq=False)
class Modal:
    """A modal verb; `adverb` is set if German has an adverb instead.

    `tail` follows the English verb ("to", "allowed to"). Verb forms are indexed
    by person; a past that does not exist is None.
    """

    base: str
    present: tuple[str, ...]
    past: tuple[str, ...] | None
    tail: str
    german_present: tuple[str, ...] | None = None
    german_past: tuple[str, ...] | None = None
    adverb: str = ""

    @property
    def is_auxiliary(self):
        """Whether it needs no `do`: is not allowed, cannot."""
        return self.base in ("be", "can", "should")


def _categories(names):
    """The categories of a cell, with groups replaced by their members."""
    return tuple(" ".join(GROUPS.get(n, n) for n in names.split()).split())


def _rows(table, separator):
    """The cells of a table's lines."""
    for line in table.strip().splitlines():
        yield [cell.strip() for cell in line.split(separator)]


def _read_nouns(category, table):
    """The nouns of one category."""
    for english, german, marks in _rows(table, "|"):
        singular, plural = english.split()
        article, german_singular, german_plural = german.split()
        pronoun = "".join(m for m in marks.split() if m in ("he", "she"))
        yield Noun(
            category,
            singular,
            plural.strip("-"),
            GENDERS[article],
            german_singular,
            german_plural.strip("-"),
            pronoun,
            "weak" in marks.split(),
        )


def _read_adjectives(table):
    """The adjectives of a table."""
    for english, german, categories in _rows(table, "|"):
        word, comparative = english.split()
        if comparative == "-":
            comparative = f"more {word}"
        forms = german.split()
        stem = forms[2] if len(forms) == 3 else forms[0]
        yield Adjective(
            word, comparative, *forms[:2], stem, _categories(categories)
        )


def _read_verb(english, german, perfect, categories="", preposition=""):
    """The verb of one line of a table."""
    *words, past = english.split()
    infinitive, *changed_stem = german.split()
    prefix, _, stem = infinitive.rpartition("|")
    auxiliary, perfect = perfect.split()
    *prepositions, case = (preposition or "- - -").split()
    return Verb(
        english=" ".join(words),
        base=words[0],
        tail=" ".join(words[1:]),
        third=english_third_person(words[0]),
        past=past,
        participle=english_participle(words[0]),
        german_stem=stem,
        prefix=prefix,
        present=german_present(stem, *changed_stem),
        preterite=PRETERITE.get(infinitive),
        perfect=perfect,
        auxiliary={"hat": "haben", "ist": "sein"}[auxiliary],
        categories=_categories(categories),
        preposition=tuple(prepositions),
        preposition_case=case,
    )


def _read_modal(base, tail, present, past, german_present, german_past):
    """The modal verb of one line of the table."""
    forms = (present, past, german_present, german_past)
    present, past, german_present, german_past = (
        tuple(cell.split()) or None for cell in forms
    )
    return Modal(base, present, past, tail, german_present, german_past)


NOUNS = {c: tuple(_read_nouns(c, table)) for c, table in NOUN_TABLE.items()}
ADJECTIVES = tuple(_read_adjectives(ADJECTIVE_TABLE))
ADJECTIVES_OF = {
    category: tuple(a for a in ADJECTIVES if category in a.categories)
    for category in NOUNS
}
VERBS = {
    frame: tuple(_read_verb(*cells) for cells in _rows(table, ";"))
    for frame, table in VERB_TABLE.items()
}

(BE,) = VERBS["copula"]
(COST,) = VERBS["price"]
KNOW, *_ = VERBS["speech"]
BE_PRESENT = ("am", "are", "is", "are")
BE_PAST = ("was", "were", "was", "were")
WERDEN = IRREGULAR_PRESENT["werden"]

MODALS = tuple(_read_modal(*cells) for cells in _rows(MODAL_TABLE, ";"))
PAST_MODALS = tuple(modal for modal in MODALS if modal.past)
# German has an adverb: he likes to read, er liest gern.
LIKE = Modal(
    "like", ("like", "like", "likes", "like"), None, "to", adverb="gern"
)
