"""The clause, and its two grammars: English and German word order.

German is written with the fields of its clause,

      Vorfeld   | left bracket | Mittelfeld             | right bracket
      Gestern   | hat          | er das Buch im Zug     | gelesen
                | weil         | er um sieben Uhr       | aufstehen muss
"""

import collections
from typing import NamedTuple

from trainers.phrasebook.constituents import WHO, Name, NounPhrase, Pronoun
from trainers.phrasebook.entries import (
    BE,
    BE_PAST,
    BE_PRESENT,
    VERBS,
    WERDEN,
    Modal,
    Verb,
)
from trainers.phrasebook.morphology import (
    ACCUSATIVE,
    DATIVE,
    IRREGULAR_PRESENT,
    NOMINATIVE,
    THIRD,
)
from trainers.phrasebook.phrases import Phrase


class Clause(NamedTuple):
    """The structure that both languages spell out.

    `fronted` names the slot whose filler opens the clause. The adjuncts are
    already spelled; subject and objects get their case when they are spelled.
    """

    subject: Pronoun | Name | NounPhrase
    verb: Verb
    tense: str = "habit"
    modal: Modal | None = None
    negated: bool = False
    dative: Pronoun | Name | NounPhrase | None = None
    accusative: Pronoun | Name | NounPhrase | None = None
    time: Phrase | None = None
    frequency: Phrase | None = None
    manner: Phrase | None = None
    company: Phrase | None = None
    place: Phrase | None = None
    complement: Phrase | None = None
    fronted: str = "subject"


def _english_verbs(clause, needs_auxiliary):
    """The parts of an English predicate: is | reading; "" for no auxiliary."""
    verb, modal, person = clause.verb, clause.modal, clause.subject.person
    is_past = clause.tense == "past"
    if modal:
        forms = modal.past if is_past else modal.present
        tail = f"{modal.tail} {verb.base}" if modal.tail else verb.base
        if modal.is_auxiliary:
            return forms[person], tail
        base, finite = f"{modal.base} {tail}", f"{forms[person]} {tail}"
    elif clause.tense == "future":
        return "will", verb.base
    elif clause.tense == "progressive":
        return BE_PRESENT[person], verb.participle
    elif verb is BE:
        return (BE_PAST if is_past else BE_PRESENT)[person], ""
    else:
        present = verb.third if person == THIRD else verb.base
        base, finite = verb.base, verb.past if is_past else present
    if not needs_auxiliary:
        return "", finite
    do = "does" if person == THIRD else "do"
    return "did" if is_past else do, base


# Words that follow an English verb, but come after a pronoun: pick her up.
ENGLISH_PARTICLES = frozenset("up on off away along back".split())


def _english_objects(clause):
    """The words between the English verb and its adjuncts."""
    verb, accusative = clause.verb, clause.accusative
    recipient, thing = (
        nominal.english(case) if nominal and clause.fronted != case else ""
        for nominal, case in ((clause.dative, DATIVE), (accusative, ACCUSATIVE))
    )
    if verb in VERBS["dative_with_to"]:
        return [verb.tail, thing, "to", recipient]
    if accusative and accusative.is_pronoun and verb.tail in ENGLISH_PARTICLES:
        return [thing, verb.tail]
    return [verb.tail, recipient, thing]


# The order of the adjuncts at the end of a clause.
ENGLISH_ADJUNCTS = ("complement", "manner", "company", "place", "time")
GERMAN_ADJUNCTS = ("company", "manner", "place", "complement")


def _adjuncts(clause, *slots):
    """The adjuncts in these slots, except the fronted one."""
    fillers = [
        getattr(clause, slot) for slot in slots if slot != clause.fronted
    ]
    return [phrase for phrase in fillers if phrase]


def _english_rest(clause):
    """Everything after the English subject and verbs."""
    adjuncts = _adjuncts(clause, *ENGLISH_ADJUNCTS)
    return _english_objects(clause) + [phrase.english for phrase in adjuncts]


def _fronted(clause, language):
    """The words that open the clause, in "english" or "german"."""
    slot = clause.fronted
    words = getattr(getattr(clause, slot), language)
    if slot == "subject":
        return words(NOMINATIVE)
    return words(slot) if slot in (ACCUSATIVE, DATIVE) else words


def join_words(words):
    """The words that are not empty, with spaces between them."""
    return " ".join(filter(None, words))


def _english_words(clause, is_question):
    """The clause without its fronted words; a question inverts its subject."""
    needs_auxiliary = is_question or clause.negated
    auxiliary, main = _english_verbs(clause, needs_auxiliary)
    if clause.negated:
        auxiliary = "cannot" if auxiliary == "can" else f"{auxiliary} not"
    beginning = [clause.subject.english(NOMINATIVE), auxiliary]
    if is_question:
        beginning.reverse()
    frequency = _adjuncts(clause, "frequency")
    middle = [phrase.english for phrase in frequency]
    return [*beginning, *middle, main, *_english_rest(clause)]


def english_statement(clause, relative=False):
    """Subject, verb, objects, manner, place, time.

    A fronted adverbial comes before the subject, with a comma; so does a
    relative pronoun that is an object, without a comma.
    """
    words = _english_words(clause, is_question=False)
    if clause.fronted != "subject":
        comma = "" if relative else ","
        words = [_fronted(clause, "english") + comma, *words]
    return join_words(words)


def english_question(clause):
    """Question word, if there is one; auxiliary, subject, main verb."""
    if clause.subject is WHO:
        return english_statement(clause)
    words = _english_words(clause, is_question=True)
    if clause.fronted != "subject":
        words = [_fronted(clause, "english"), *words]
    return join_words(words)


def english_infinitive(clause):
    """The clause without its subject: to buy a book."""
    return join_words(["to", clause.verb.base, *_english_rest(clause)])


class Brackets(NamedTuple):
    """The two verbal positions that hold a German clause together."""

    left: str  # the finite verb
    right: str  # infinitive, participle or separable prefix
    is_simple: bool  # whether `right` is the prefix of `left`, or empty


def german_brackets(clause):
    """Inflects the German verbs.

    >>> from trainers.phrasebook.constituents import PRONOUNS
    >>> up, *_ = VERBS["event"]
    >>> german_brackets(Clause(PRONOUNS["I"], up, "past"))[:2]
    ('bin', 'aufgestanden')
    """
    verb, modal, person = clause.verb, clause.modal, clause.subject.person
    is_past = clause.tense == "past"
    if modal and not modal.adverb:
        forms = modal.german_past if is_past else modal.german_present
        return Brackets(forms[person], verb.infinitive, False)
    if clause.tense == "future":
        return Brackets(WERDEN[person], verb.infinitive, False)
    if is_past and not verb.preterite:
        auxiliary = IRREGULAR_PRESENT[verb.auxiliary]
        return Brackets(auxiliary[person], verb.perfect, False)
    forms = verb.preterite if is_past else verb.present
    return Brackets(forms[person], verb.prefix, True)


def _has_kein(clause):
    """Whether the negation is in the object: "nicht ein" becomes "kein"."""
    accusative = clause.accusative
    return clause.negated and accusative and not accusative.is_definite


def _german_objects(clause):
    """The objects, except a fronted one, by their place in the Mittelfeld.

    The places are "pronoun" and "new", and "dative" and "accusative" of what is
    known.
    """
    objects = collections.defaultdict(list)
    for case in (DATIVE, ACCUSATIVE):
        nominal = getattr(clause, case)
        if not nominal or case == clause.fronted:
            continue
        place = case if nominal.is_definite else "new"
        if nominal.is_pronoun:
            place = "pronoun"
        if case == ACCUSATIVE and _has_kein(clause):
            nominal = nominal._replace(determiner="no")
        objects[place].append(nominal.german(case))
    return objects


def mittelfeld(clause, has_subject):
    """The German middle field: known information first, then new.

    Subject; pronouns; definite dative; frequency; definite accusative; time;
    `nicht`; indefinite objects; company, manner, place; parts of the
    verb.
    """
    objects = _german_objects(clause)
    frequency, time, rest = (
        [phrase.german for phrase in _adjuncts(clause, *slots)]
        for slots in (("frequency",), ("time",), GERMAN_ADJUNCTS)
    )
    has_nicht = clause.negated and not _has_kein(clause)
    return join_words(
        [
            clause.subject.german(NOMINATIVE) if has_subject else "",
            *reversed(objects["pronoun"]),  # sie ihr: accusative first
            *objects[DATIVE],
            *frequency,
            clause.modal.adverb if clause.modal else "",
            *objects[ACCUSATIVE],
            *time,
            "nicht" if has_nicht else "",
            *objects["new"],
            *rest,
        ]
    )


def german_verb_second(clause):
    """Main clause: Vorfeld, finite verb, Mittelfeld, right bracket."""
    left, right, _ = german_brackets(clause)
    vorfeld = _fronted(clause, "german")
    middle = mittelfeld(clause, has_subject=clause.fronted != "subject")
    return join_words([vorfeld, left, middle, right])


def german_verb_first(clause):
    """Yes-no question, or main clause after a subordinate clause."""
    left, right, _ = german_brackets(clause)
    return join_words([left, mittelfeld(clause, has_subject=True), right])


def german_verb_last(clause, opening=""):
    """Subordinate clause: the finite verb closes the right bracket.

    Args:
        clause: The clause.
        opening: The conjunction; if empty, the fronted relative pronoun opens
            the clause.
    """
    left, right, is_simple = german_brackets(clause)
    verbs = right + left if is_simple else f"{right} {left}"
    in_middle = bool(opening) or clause.fronted != "subject"
    opening = opening or _fronted(clause, "german")
    return join_words(
        [opening, mittelfeld(clause, has_subject=in_middle), verbs]
    )


def german_zu_infinitive(clause):
    """Clause of purpose, without its subject: um ein Buch zu kaufen."""
    middle = mittelfeld(clause, has_subject=False)
    return join_words(["um", middle, clause.verb.zu_infinitive])
