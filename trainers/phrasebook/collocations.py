"""Which words can stand together, so that the sentences make sense."""

from trainers.phrasebook.constituents import PRONOUNS, Name, Pronoun
from trainers.phrasebook.entries import ADJECTIVES_OF, LIKE, NOUNS, VERBS
from trainers.phrasebook.morphology import THIRD

# The tenses to choose from: the past is twice as frequent.
TENSES = ("habit", "progressive", "past", "past", "future")
# Verbs of states: no progressive, no modal verb; the tenses that remain.
STATIVE_TENSES = {
    "know": ("habit",),
    "love": ("habit",),
    "trust": ("habit",),
    "lose": ("past",),
    "forget": ("past",),
    "find": ("past", "future"),
    "see": ("habit", "past", "future"),
    "hear": ("habit", "past"),
    "understand": ("habit", "past"),
    "need": ("habit", "past", "future"),
    "have": ("habit", "past"),
    "cost": ("habit", "past"),
}

# Of nouns and their determiners.
POSSESSIVES = ("my", "your", "his", "her", "our", "their")
# Nouns that take no possessive.
UNOWNED = frozenset(
    "man woman girl boy queen actress museum park city village forest station"
    " lake river bridge".split()
)
# Adjectives that repeat their noun: ein junger Junge.
CLUMSY = {("young", "boy"), ("friendly", "friend")}

# Categories of people, of places, of things with a number, and of nouns with
# adjectives.
PEOPLE = ("person", "relative")
LOCATIONS = ("room", "building", "area", "site", "furniture")
COUNTED = ("text", "food", "vessel", "small", "vehicle")
DESCRIBED = tuple(c for c in NOUNS if ADJECTIVES_OF[c])

# Prepositions: English, German, and the nouns that follow them.
PLACES = (
    ("in", "in", ("room", "building", "area")),
    ("in", "in", ("room", "building", "area")),
    ("at", "an", ("site",)),
    ("behind", "hinter", ("building",)),
    ("in front of", "vor", ("building",)),
)
SPOTS = (
    ("on", "auf", ("furniture",)),
    ("under", "unter", ("furniture",)),
    ("next to", "neben", ("furniture", "opening")),
)
# "To" is `in` with the accusative for a place that one enters, else `zu`.
ENTERED = ("room", "building", "area")
APPROACHED = ("site", "person", "relative")
# Prepositions before people, with the case that the German one governs.
COMPANY = (("with", "mit", "dative"), ("without", "ohne", "accusative"))
BENEFICIARY = ("for", "für", "accusative")

# Which verbs take which adjuncts.
VERBS_WITH_PLACE = frozenset(
    "buy read write eat drink see find lose meet work sleep dance"
    " sing cook play wait".split()
)
VERBS_WITH_COMPANY = frozenset(
    "eat work dance sing cook play wait travel go".split()
)
VERBS_WITH_BENEFICIARY = frozenset("buy order write".split())

# Purposes of going somewhere.
PURPOSES = ("buy", "sell", "visit", "meet", "read", "repair", "see")
PURPOSES += ("look for", "pick up", "bring back")
PURPOSE_VERBS = tuple(
    verb for verb in VERBS["transitive"] if verb.english in PURPOSES
)


def may_meet(subject, other):
    """Whether the two are different people: not "I see me"."""
    if isinstance(subject, Pronoun) or isinstance(other, Pronoun):
        speakers = (PRONOUNS["I"], PRONOUNS["we"])
        if subject in speakers:
            return other not in speakers
        return subject is not PRONOUNS["you"] or other is not subject
    if isinstance(subject, Name) or isinstance(other, Name):
        return subject != other
    return subject.noun is not other.noun


def is_ambiguous(subject, verb):
    """Whether present and past look alike in English: they put."""
    return verb.past == verb.base and subject.person != THIRD


def is_negatable(clause):
    """Whether the negation is unambiguous in both languages."""
    subject, dative, time = clause.subject, clause.dative, clause.time
    number = getattr(clause.accusative, "determiner", "")
    return not (
        not subject.is_definite
        or getattr(subject, "determiner", "") == "every"
        or (dative and not dative.is_definite)
        or isinstance(number, int)
        or (time and time.english.startswith("for "))
        or clause.frequency
        or clause.modal is LIKE
    )
