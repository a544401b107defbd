"""Templates of sentences: statements, questions, sentences of two clauses.

Each template takes a `ClauseSampler` and returns both texts, without a capital
letter at the beginning and a mark at the end.
"""

from collections.abc import Callable
from typing import NamedTuple

from trainers.phrasebook import collocations, phrases
from trainers.phrasebook.clauses import (
    Clause,
    english_infinitive,
    english_question,
    english_statement,
    german_verb_first,
    german_verb_last,
    german_verb_second,
    german_zu_infinitive,
)
from trainers.phrasebook.constituents import (
    THAT_RELATIVE,
    WHAT,
    WHO,
    WHO_RELATIVE,
    NounPhrase,
)
from trainers.phrasebook.entries import (
    ADJECTIVES_OF,
    KNOW,
    MODALS,
    PAST_MODALS,
    VERBS,
)
from trainers.phrasebook.morphology import NOMINATIVE
from trainers.phrasebook.phrases import Phrase
from trainers.phrasebook.sampling import FRAMES, OBJECT_FRAMES, ClauseSampler


def _statement(clause):
    """A main clause."""
    return english_statement(clause), german_verb_second(clause)


def _question(clause):
    """A question that begins with a question word."""
    return english_question(clause), german_verb_second(clause)


def _with_subordinate(outer, conjunction, inner):
    """A main clause, a conjunction, and a subordinate clause."""
    english = english_statement(outer), english_statement(inner)
    main = german_verb_second(outer)
    subordinate = german_verb_last(inner, conjunction.german)
    return f" {conjunction.english} ".join(english), f"{main}, {subordinate}"


def _plain(sampler):
    """A statement; a time or place may come first (German: inversion)."""
    clause = sampler.action()
    if sampler.chance(0.2):
        clause = sampler.negated(clause)
    elif clause.time and sampler.chance(0.4):
        clause = clause._replace(fronted="time")
    elif clause.place and sampler.chance(0.3):
        clause = clause._replace(fronted="place")
    return _statement(clause)


def _descriptive(sampler):
    """A description: this newspaper is boring."""
    kinds = (
        sampler.description,
        sampler.comparison,
        sampler.age,
        sampler.price,
        sampler.position,
        sampler.position,
    )
    return _statement(sampler.pick(kinds)())


def _yes_no_question(sampler):
    """Did the cook buy an apple?"""
    clause = sampler.action(sampler.subject(quantified=False))
    return english_question(clause), german_verb_first(clause)


WHY = Phrase("why", "warum")
ADVERBS = (Phrase("when", "wann"), Phrase("where", "wo"), WHY)


def _adverbial_question(sampler):
    """When, where, why did the cook buy an apple?"""
    clause = sampler.action(sampler.subject(quantified=False))
    word = sampler.pick(ADVERBS)
    if word.english == "where":
        takes_place = clause.verb.english in collocations.VERBS_WITH_PLACE
        if takes_place and not clause.complement:
            clause = clause._replace(place=word, fronted="place")
        else:
            word = WHY
    if word.english == "when":
        clause = clause._replace(frequency=None, time=word, fronted="time")
    if word is WHY:
        clause = clause._replace(manner=word, fronted="manner")
    return _question(clause)


def _object_question(sampler):
    """What does the cook buy? Whom does the cook help?"""
    clause = sampler.action(
        sampler.subject(quantified=False), frame=sampler.pick(OBJECT_FRAMES)
    )
    slot = "dative" if clause.dative else "accusative"
    asked = getattr(clause, slot)
    is_person = not isinstance(asked, NounPhrase)
    is_person = is_person or asked.noun.category in collocations.PEOPLE
    word = WHO if is_person else WHAT
    clause = clause._replace(**{slot: word}, fronted=slot)
    return _question(clause)


def _subject_question(sampler):
    """Who buys an apple?"""
    return _question(sampler.action(subject=WHO))


def _reported(sampler):
    """I know that ... / he does not know whether ..."""
    inner = sampler.action()
    if sampler.chance(0.2):
        inner = sampler.negated(inner)
    speaker = sampler.subject(quantified=False)
    doubts = sampler.chance(0.3)
    verb = KNOW if doubts else sampler.pick(VERBS["speech"])
    outer = Clause(speaker, verb, negated=doubts)
    conjunction = phrases.WHETHER if doubts else phrases.THAT
    return _with_subordinate(outer, conjunction, inner)


STATES = tuple(
    adjective
    for adjective in ADJECTIVES_OF["person"]
    if adjective.english in ("old", "young", "strong", "tired", "sick")
)


def _reason(sampler, subject, tense):
    """A clause that may be the reason of another."""
    draw = sampler.number(0, 10)
    if draw < 2:
        return sampler.weather("past" if tense == "past" else "progressive")
    if draw < 5:
        tense = "past" if tense == "past" else "habit"
        state = sampler.pick(STATES)
        return sampler.quality(sampler.same_person(subject), state, tense)
    tense = "past" if tense == "past" else "future"
    clause = sampler.action(sampler.same_person(subject), tense, _dynamic_frame)
    modals = PAST_MODALS if tense == "past" else MODALS
    return clause._replace(modal=sampler.pick(modals))


def _dynamic_frame(sampler, subject):
    """A frame whose verb may follow a modal verb."""
    while True:
        clause = sampler.pick(FRAMES)(sampler, subject)
        if clause.verb.english not in collocations.STATIVE_TENSES:
            return clause


def _reasoned(sampler):
    """... because he is tired / although it is raining."""
    outer = sampler.action(frame=_dynamic_frame)._replace(time=None)
    inner = _reason(sampler, outer.subject, outer.tense)
    conjunction = sampler.pick(phrases.REASONS)
    return _with_subordinate(outer, conjunction, inner)


def _conditional(sampler):
    """If it rains tomorrow, ... / when the guest arrived, ..."""
    is_past = sampler.chance(0.4)
    conjunction = phrases.WHEN if is_past else sampler.pick(phrases.CONDITIONS)
    tense = "past" if is_past else "habit"
    inner = (
        sampler.weather(tense)
        if sampler.chance(0.2)
        else sampler.action(
            sampler.subject(quantified=False), tense, ClauseSampler.event
        )
    )
    inner = inner._replace(modal=None, frequency=None, time=None)
    outer = sampler.action(tense="past" if is_past else "future")
    outer = outer._replace(time=None)
    return (
        f"{conjunction.english} {english_statement(inner)},"
        f" {english_statement(outer)}",
        f"{german_verb_last(inner, conjunction.german)},"
        f" {german_verb_first(outer)}",
    )


def _presented(head, clause):
    """This is ..., these are ..., with a relative clause."""
    start = ("these are", "das sind") if head.plural else ("this is", "das ist")
    english = english_statement(clause, relative=True)
    return (
        f"{start[0]} {head.english(NOMINATIVE)} {english}",
        f"{start[1]} {head.german(NOMINATIVE)}, {german_verb_last(clause)}",
    )


def _subject_relative(sampler):
    """This is the man who works in the garden."""
    head = sampler.noun_phrase(("person",))._replace(determiner="the")
    clause = sampler.action(subject=WHO_RELATIVE[head.gender])
    return _presented(head, clause)


def _object_relative(sampler):
    """This is the book that my brother read; the man whom she helped."""
    while True:
        clause = sampler.action(frame=sampler.pick(OBJECT_FRAMES))
        slot = "dative" if clause.dative else "accusative"
        head = getattr(clause, slot)
        if isinstance(head, NounPhrase):
            break
    is_person = head.noun.category in collocations.PEOPLE
    pronoun = (WHO_RELATIVE if is_person else THAT_RELATIVE)[head.gender]
    clause = clause._replace(**{slot: pronoun}, fronted=slot)
    return _presented(head._replace(determiner="the"), clause)


def _purposeful(sampler):
    """... goes to the city to buy a book."""
    outer = sampler.action(
        frame=sampler.pick((ClauseSampler.motion, ClauseSampler.travel))
    )
    inner = sampler.transitive(outer.subject, collocations.PURPOSE_VERBS)
    if outer.time and sampler.chance(0.5):
        outer = outer._replace(fronted="time")
    return (
        f"{english_statement(outer)} {english_infinitive(inner)}",
        f"{german_verb_second(outer)}, {german_zu_infinitive(inner)}",
    )


class Construction(NamedTuple):
    """A kind of sentences, with its share of all."""

    name: str
    template: Callable
    share: int
    mark: str = "."

    def write(self, sampler):
        """A sentence in English and German."""
        return tuple(
            text[0].upper() + text[1:] + self.mark
            for text in self.template(sampler)
        )


CONSTRUCTIONS = tuple(
    Construction(*fields)
    for fields in (
        ("statements", _plain, 10),
        ("descriptions", _descriptive, 3),
        ("yes-no questions", _yes_no_question, 1, "?"),
        ("questions with when, where, why", _adverbial_question, 1, "?"),
        ("questions about the object", _object_question, 1, "?"),
        ("questions about the subject", _subject_question, 1, "?"),
        ("reported statements and doubts", _reported, 2),
        ("reasons with because, although", _reasoned, 2),
        ("conditions with if, before, as soon as, when", _conditional, 2),
        ("relative clauses about the subject", _subject_relative, 1),
        ("relative clauses about the object", _object_relative, 1),
        ("purposes with to", _purposeful, 1),
    )
)
