"""The clause, and its two grammars: English and German word order.

German is written with the fields of its clause,

      Vorfeld   | left bracket | Mittelfeld             | right bracket
      Gestern   | hat          | er das Buch im Zug     | gelesen
                | weil         | er um sieben Uhr       | aufstehen muss
"""

from typing import NamedTuple

from trainers.phrasebook.constituents import (
    WHO,
    Name,
    NounPhrase,
    Pronoun,
)
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
    tense: str
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


class EnglishVerbs(NamedTuple):
    """The two parts of an English predicate: is | reading."""

    auxiliary: str  # "" if the main verb is finite
    main: str


def _english_verbs(clause, needs_auxiliary):
    """Inflects the English verbs; adds `do` if there is no auxiliary."""
    verb, modal, person = clause.verb, clause.modal, clause.subject.person
    is_past = clause.tense == "past"
    if modal:
        forms = modal.past if is_past else modal.present
        tail = f"{modal.tail} {verb.base}" if modal.tail else verb.base
        if modal.is_auxiliary:
            return EnglishVerbs(forms[person], tail)
        base, finite = f"{modal.base} {tail}", f"{forms[person]} {tail}"
    elif clause.tense == "future":
        return EnglishVerbs("will", verb.base)
    elif clause.tense == "progressive":
        return EnglishVerbs(BE_PRESENT[person], verb.participle)
    elif verb is BE:
        return EnglishVerbs((BE_PAST if is_past else BE_PRESENT)[person], "")
    else:
        present = verb.third if person == THIRD else verb.base
        base, finite = verb.base, verb.past if is_past else present
    if not needs_auxiliary:
        return EnglishVerbs("", finite)
    do = "does" if person == THIRD else "do"
    return EnglishVerbs("did" if is_past else do, base)


# Words that follow an English verb, but come after a pronoun: pick her up.
ENGLISH_PARTICLES = frozenset("up on off away along back".split())


def _english_objects(clause):
    """The words between the English verb and its adjuncts."""
    verb = clause.verb
    recipient, thing = (
        nominal.english(case) if nominal and clause.fronted != slot else ""
        for slot, nominal, case in (
            ("dative", clause.dative, DATIVE),
            ("accusative", clause.accusative, ACCUSATIVE),
        )
    )
    if verb in VERBS["dative_with_to"]:
        return [verb.tail, thing, "to", recipient]
    accusative = clause.accusative
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
    filler = getattr(clause, clause.fronted)
    words = getattr(filler, language)
    if isinstance(filler, Phrase):
        return words
    return words(CASES_OF_SLOTS[clause.fronted])


CASES_OF_SLOTS = {
    "subject": NOMINATIVE,
    "accusative": ACCUSATIVE,
    "dative": DATIVE,
}


def join_words(words):
    """The words that are not empty, with spaces between them."""
    return " ".join(filter(None, words))


def english_statement(clause, relative=False):
    """Subject, verb, objects, manner, place, time.

    A fronted adverbial comes before the subject, with a comma; so does a
    relative pronoun that is an object, without a comma.
    """
    words = _english_predicate(clause)
    if clause.fronted == "subject":
        return words
    opening = _fronted(clause, "english")
    comma = "" if relative else ","
    return f"{opening}{comma} {words}"


def _english_predicate(clause):
    """The statement without its fronted words."""
    auxiliary, main = _english_verbs(clause, needs_auxiliary=clause.negated)
    middle = clause.frequency.english if clause.frequency else ""
    subject = clause.subject.english(NOMINATIVE)
    if clause.negated:
        auxiliary = "cannot" if auxiliary == "can" else f"{auxiliary} not"
    return join_words(
        [subject, auxiliary, middle, main, *_english_rest(clause)]
    )


def english_question(clause):
    """Question word, if there is one; auxiliary, subject, main verb."""
    if clause.subject is WHO:
        return _english_predicate(clause)
    auxiliary, main = _english_verbs(clause, needs_auxiliary=True)
    asks = clause.fronted != "subject"
    return join_words(
        [
            _fronted(clause, "english") if asks else "",
            auxiliary,
            clause.subject.english(NOMINATIVE),
            clause.frequency.english if clause.frequency else "",
            main,
            *_english_rest(clause),
        ]
    )


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


def _german_object(clause, slot):
    """An object in its case."""
    nominal = getattr(clause, slot)
    if slot == "accusative" and _has_kein(clause):
        nominal = nominal._replace(determiner="no")
    return nominal.german(CASES_OF_SLOTS[slot])


class Objects(NamedTuple):
    """The German objects of a clause, by their position in the Mittelfeld."""

    pronouns: list[str]
    known_dative: list[str]
    known_accusative: list[str]
    new: list[str]


def _german_objects(clause):
    """The objects, except a fronted one."""
    objects = Objects([], [], [], [])
    for slot in ("dative", "accusative"):
        nominal = getattr(clause, slot)
        if not nominal or slot == clause.fronted:
            continue
        if nominal.is_pronoun:
            place = objects.pronouns
        elif not nominal.is_definite:
            place = objects.new
        elif slot == "dative":
            place = objects.known_dative
        else:
            place = objects.known_accusative
        place.append(_german_object(clause, slot))
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
            *reversed(objects.pronouns),  # sie ihr: accusative first
            *objects.known_dative,
            *frequency,
            clause.modal.adverb if clause.modal else "",
            *objects.known_accusative,
            *time,
            "nicht" if has_nicht else "",
            *objects.new,
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
