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


CASES_OF_SLOTS = {
    "subject": NOMINATIVE,
    "accusative": ACCUSATIVE,
    "dative": DATIVE,
}


def _spelled(clause, language, slot):
    """What is in a slot, in "english" or "german"; "" if that is nothing."""
    words = getattr(getattr(clause, slot), language, "")
    return words(CASES_OF_SLOTS[slot]) if callable(words) else words


def _behind(clause, language, *slots):
    """What is in each of the slots; "" if that is fronted."""
    return [
        "" if slot == clause.fronted else _spelled(clause, language, slot)
        for slot in slots
    ]


def join_words(words):
    """The words that are not empty, with spaces between them."""
    return " ".join(filter(None, words))


# Words that follow an English verb, but come after a pronoun: pick her up.
ENGLISH_PARTICLES = frozenset("up on off away along back".split())


def _english_rest(clause):
    """Everything after the English subject and verbs."""
    verb = clause.verb
    has_pronoun = getattr(clause.accusative, "is_pronoun", False)
    if verb in VERBS["dative_with_to"]:
        thing, recipient = _behind(clause, "english", "accusative", "dative")
        objects = [verb.tail, thing, "to", recipient]
    elif has_pronoun and verb.tail in ENGLISH_PARTICLES:
        objects = [*_behind(clause, "english", "accusative"), verb.tail]
    else:
        objects = _behind(clause, "english", "dative", "accusative")
        objects = [verb.tail, *objects]
    adjuncts = ("complement", "manner", "company", "place", "time")
    return objects + _behind(clause, "english", *adjuncts)


def _english_words(clause, is_question):
    """The clause without its fronted words; a question inverts its subject."""
    needs_auxiliary = is_question or clause.negated
    auxiliary, main = _english_verbs(clause, needs_auxiliary)
    if clause.negated:
        auxiliary = "cannot" if auxiliary == "can" else f"{auxiliary} not"
    beginning = [clause.subject.english(NOMINATIVE), auxiliary]
    if is_question:
        beginning.reverse()
    frequency = _spelled(clause, "english", "frequency")
    return [*beginning, frequency, main, *_english_rest(clause)]


def english_statement(clause, relative=False):
    """Subject, verb, objects, manner, place, time.

    A fronted adverbial comes before the subject, with a comma; so does a
    relative pronoun that is an object, without a comma.
    """
    words = _english_words(clause, is_question=False)
    if clause.fronted != "subject":
        comma = "" if relative else ","
        words = [_spelled(clause, "english", clause.fronted) + comma, *words]
    return join_words(words)


def english_question(clause):
    """Question word, if there is one; auxiliary, subject, main verb."""
    if clause.subject is WHO:
        return english_statement(clause)
    words = _english_words(clause, is_question=True)
    if clause.fronted != "subject":
        words = [_spelled(clause, "english", clause.fronted), *words]
    return join_words(words)


def english_infinitive(clause):
    """The clause without its subject: to buy a book."""
    return join_words(["to", clause.verb.base, *_english_rest(clause)])


def german_brackets(clause):
    """The two verbal positions that hold a German clause together.

    Returns:
        The finite verb; infinitive, participle or separable prefix; and whether
        that is a prefix of the finite verb, or "".

    >>> from trainers.phrasebook.constituents import PRONOUNS
    >>> up, *_ = VERBS["event"]
    >>> german_brackets(Clause(PRONOUNS["I"], up, "past"))
    ('bin', 'aufgestanden', False)
    """
    verb, modal, person = clause.verb, clause.modal, clause.subject.person
    is_past = clause.tense == "past"
    if modal and not modal.adverb:
        forms = modal.german_past if is_past else modal.german_present
        return forms[person], verb.infinitive, False
    if clause.tense == "future":
        return WERDEN[person], verb.infinitive, False
    if is_past and not verb.preterite:
        auxiliary = IRREGULAR_PRESENT[verb.auxiliary]
        return auxiliary[person], verb.perfect, False
    forms = verb.preterite if is_past else verb.present
    return forms[person], verb.prefix, True


def mittelfeld(clause, has_subject):
    """The German middle field: known information first, then new.

    Subject; pronouns; definite dative; frequency; definite accusative; time;
    `nicht`; indefinite objects; company, manner, place; parts of the
    verb.
    """
    negation = "nicht" if clause.negated else ""
    accusative = clause.accusative
    if negation and accusative and not accusative.is_definite:
        negation = ""  # "nicht ein" becomes "kein"
        accusative = accusative._replace(determiner="no")
        clause = clause._replace(accusative=accusative)
    objects = collections.defaultdict(list)
    for slot in ("dative", "accusative"):
        if nominal := getattr(clause, slot):
            place = slot if nominal.is_definite else "new"
            place = "pronouns" if nominal.is_pronoun else place
            objects[place] += _behind(clause, "german", slot)
    return join_words(
        [
            clause.subject.german(NOMINATIVE) if has_subject else "",
            *reversed(objects["pronouns"]),  # sie ihr: accusative first
            *objects["dative"],
            _spelled(clause, "german", "frequency"),
            clause.modal.adverb if clause.modal else "",
            *objects["accusative"],
            *_behind(clause, "german", "time"),
            negation,
            *objects["new"],
            *_behind(
                clause, "german", "company", "manner", "place", "complement"
            ),
        ]
    )


def german_verb_second(clause):
    """Main clause: Vorfeld, finite verb, Mittelfeld, right bracket."""
    left, right, _ = german_brackets(clause)
    vorfeld = _spelled(clause, "german", clause.fronted)
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
    opening = opening or _spelled(clause, "german", clause.fronted)
    return join_words(
        [opening, mittelfeld(clause, has_subject=in_middle), verbs]
    )


def german_zu_infinitive(clause):
    """Clause of purpose, without its subject: um ein Buch zu kaufen."""
    middle = mittelfeld(clause, has_subject=False)
    return join_words(["um", middle, clause.verb.zu_infinitive])
