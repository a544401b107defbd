"""Random clauses that make sense."""

from trainers.phrasebook.clauses import Clause, join_words
from trainers.phrasebook.collocations import (
    APPROACHED,
    BENEFICIARY,
    CLUMSY,
    COMPANY,
    COUNTED,
    DESCRIBED,
    ENTERED,
    LOCATIONS,
    PEOPLE,
    PLACES,
    POSSESSIVES,
    SPOTS,
    STATIVE_TENSES,
    TENSES,
    UNOWNED,
    VERBS_WITH_BENEFICIARY,
    VERBS_WITH_COMPANY,
    VERBS_WITH_PLACE,
    is_ambiguous,
    is_negatable,
    may_meet,
)
from trainers.phrasebook.constituents import (
    IT,
    NAMES,
    PERSONAL,
    PRONOUNS,
    NounPhrase,
    Pronoun,
    prepositional_phrase,
)
from trainers.phrasebook.entries import (
    ADJECTIVES_OF,
    BE,
    COST,
    LIKE,
    MODALS,
    NOUNS,
    PAST_MODALS,
    VERBS,
)
from trainers.phrasebook.morphology import (
    ACCUSATIVE,
    DATIVE,
    NOMINATIVE,
    PLURAL,
    english_number,
    german_number,
)
from trainers.phrasebook.phrases import (
    AT_HOME,
    CITIES,
    DAYS,
    DEGREES,
    DURATIONS,
    FREQUENCIES,
    HOMEWARD,
    MANNERS,
    PERIODS,
    UNITS_OF_TIME,
    Phrase,
    clock_time,
)

FULL_CLOCK = [(h, m) for h in range(1, 13) for m in (0, 30)]
MINUTES = (5, 10, 15, 20, 40, 45, 50, 55)


class ClauseSampler:
    """Makes random clauses that make sense.

    Args:
        generator: A `random.Random`.
    """

    def __init__(self, generator):
        self._random = generator.random

    def chance(self, probability):
        """True with the given probability."""
        return self._random() < probability

    def pick(self, choices):
        """One of the choices, evenly."""
        return choices[int(self._random() * len(choices))]

    # Nominals.

    def noun_phrase(self, categories, singular=False):
        """A noun phrase of one of the categories."""
        category = self.pick(categories)
        noun = self.pick(NOUNS[category])
        plural = bool(noun.english_plural) and self.chance(0.25)
        plural = plural and not singular
        adjective = None
        if ADJECTIVES_OF[category] and self.chance(0.35):
            adjective = self.pick(ADJECTIVES_OF[category])
            if (adjective.english, noun.english) in CLUMSY:
                adjective = None
        determiner = self._determiner(noun, plural)
        return NounPhrase(determiner, adjective, noun, plural)

    def _determiner(self, noun, plural):
        """A determiner that suits the noun."""
        category = noun.category
        if category == "relative":
            return self.pick(POSSESSIVES)
        draw = self._random()
        if category == "drink":
            return "" if draw < 0.7 else "the"
        if category in LOCATIONS and draw > 0.7:
            return "the"
        if draw < 0.4:
            return "the"
        if draw < 0.6 and noun.english not in UNOWNED:
            return self.pick(POSSESSIVES)
        if draw < 0.68:
            return "this"
        if not plural:
            return "a"
        if category in COUNTED and draw > 0.8:
            return self.count()
        return ""

    def number(self, low, high):
        """A whole number in [low, high)."""
        return low + int(self._random() * (high - low))

    def count(self):
        """A whole number from 2 to 99, small ones more often."""
        return self.number(2, 13 if self.chance(0.4) else 100)

    def subject(self, quantified=True):
        """Who acts: a pronoun, a name or a person.

        Args:
            quantified: Whether "every guest" and "no guest" are possible.
        """
        draw = self._random()
        if draw < 0.4:
            return self.pick(PERSONAL)
        if draw < 0.5:
            return self.pick(NAMES)
        if draw < 0.55 and quantified:
            noun = self.pick(NOUNS["person"])
            return NounPhrase(self.pick(("every", "no")), None, noun)
        return self.noun_phrase(PEOPLE)

    def affected(self, subject, categories=PEOPLE):
        """An object: a person or a thing that is not the subject."""
        while True:
            people = "relative" in categories
            if people and self.chance(0.25):
                other = self.pick(PERSONAL)
            elif people and self.chance(0.1):
                other = self.pick(NAMES)
            else:
                other = self.noun_phrase(categories)
            if may_meet(subject, other):
                return other

    def recipient(self, subject):
        """Who gets something; not a plural without a determiner."""
        while True:
            other = self.affected(subject)
            if other.person != PLURAL or other.is_definite:
                return other

    # Frames: a verb and its complements, as keyword arguments of `Clause`.

    def transitive(self, subject, verbs=VERBS["transitive"]):
        """A verb with an accusative object."""
        verb = self.pick(verbs)
        frame = {"verb": verb}
        frame["accusative"] = self.affected(subject, verb.categories)
        if verb.english in VERBS_WITH_PLACE and self.chance(0.2):
            frame["place"] = self.place()
        if verb.english in VERBS_WITH_BENEFICIARY and self.chance(0.25):
            frame["company"] = self.companion(subject, BENEFICIARY)
        elif verb.english in MANNERS and self.chance(0.15):
            frame["manner"] = self.pick(MANNERS[verb.english])
        return frame

    def with_dative(self, subject):
        """A verb whose only object is a dative."""
        verb = self.pick(VERBS["dative"])
        return {"verb": verb, "dative": self.affected(subject)}

    def ditransitive(self, subject):
        """A verb with a person in the dative and a thing."""
        has_to = self.chance(0.25)
        verb = self.pick(VERBS["dative_with_to" if has_to else "ditransitive"])
        return {
            "verb": verb,
            "dative": self.recipient(subject),
            "accusative": self.noun_phrase(verb.categories),
        }

    def prepositional(self, subject):
        """A verb with a prepositional object."""
        verb = self.pick(VERBS["prepositional"])
        other = self.affected(subject, verb.categories)
        complement = prepositional_phrase(
            verb.preposition, verb.preposition_case, other
        )
        return {"verb": verb, "complement": complement}

    def activity(self, subject):
        """An intransitive verb with place, company, or manner."""
        verb = self.pick(VERBS["activity"])
        frame = {"verb": verb}
        draw = self._random()
        if verb.english in VERBS_WITH_COMPANY and draw < 0.25:
            frame["company"] = self.companion(subject)
        elif verb.english in MANNERS and draw < 0.5:
            frame["manner"] = self.pick(MANNERS[verb.english])
        if self.chance(0.5):
            frame["place"] = self.place()
        return frame

    def event(self, subject):
        """A verb without any object."""
        return {"verb": self.pick(VERBS["event"])}

    def motion(self, subject):
        """A verb with a destination."""
        verb = self.pick(VERBS["motion"])
        frame = {"verb": verb, "complement": self.destination(subject)}
        if verb.english in VERBS_WITH_COMPANY and self.chance(0.2):
            frame["company"] = self.companion(subject)
        elif verb.english in MANNERS and self.chance(0.3):
            frame["manner"] = self.pick(MANNERS[verb.english])
        return frame

    def travel(self, subject):
        """A journey: where to, by what, with whom."""
        (verb,) = VERBS["travel"]
        city = self.pick(CITIES)
        frame = {
            "verb": verb,
            "complement": Phrase(f"to {city}", f"nach {city}"),
        }
        if self.chance(0.2):
            frame["complement"] = HOMEWARD
        if self.chance(0.6):
            frame["manner"] = self.pick(MANNERS["travel"])
        if self.chance(0.3):
            frame["company"] = self.companion(subject)
        return frame

    def placing(self, subject):
        """Something is put somewhere: a direction, in the accusative."""
        verb = self.pick(VERBS["placing"])
        return {
            "verb": verb,
            "accusative": self.noun_phrase(verb.categories),
            "complement": self.place(SPOTS, ACCUSATIVE),
        }

    # Adjuncts.

    def place(self, table=PLACES, case=DATIVE):
        """A place (dative), or a direction (accusative)."""
        if table is PLACES and self.chance(0.1):
            return AT_HOME
        english, german, categories = self.pick(table)
        noun_phrase = self.noun_phrase(categories, singular=True)
        return prepositional_phrase((english, german), case, noun_phrase)

    def destination(self, subject):
        """Where somebody goes."""
        draw = self._random()
        if draw < 0.15:
            return HOMEWARD
        if draw < 0.65:
            noun_phrase = self.noun_phrase(ENTERED, singular=True)
            return prepositional_phrase(("to", "in"), ACCUSATIVE, noun_phrase)
        other = self.affected(subject, APPROACHED)
        return prepositional_phrase(("to", "zu"), DATIVE, other)

    def companion(self, subject, relation=None):
        """With, without, or for whom."""
        english, german, case = relation or self.pick(COMPANY)
        other = self.affected(subject)
        return prepositional_phrase((english, german), case, other)

    def clock(self):
        """A time of the day."""
        if self.chance(0.6):
            return clock_time(*self.pick(FULL_CLOCK))
        return clock_time(self.number(1, 13), self.pick(MINUTES))

    def time(self, tense):
        """When it happens; English puts the hour first, German the day."""
        draw = self._random()
        if draw < 0.4 and DAYS[tense]:
            day = self.pick(DAYS[tense])
            if self.chance(0.6):
                return day
            clock = self.clock()
            return Phrase(
                f"{clock.english} {day.english}", f"{day.german} {clock.german}"
            )
        if draw < 0.5 and tense != "progressive":
            return self.clock()
        if draw < 0.6 and tense in ("past", "future"):
            return self._around_event()
        if draw < 0.75 and tense in ("past", "future"):
            return self._distance(tense)
        return self.pick(PERIODS[tense])

    def _around_event(self):
        """Before or after something."""
        noun = self.pick(NOUNS["event"])
        preposition = self.pick((("before", "vor"), ("after", "nach")))
        determiner = self.pick(("the", "this"))
        noun_phrase = NounPhrase(determiner, None, noun)
        return prepositional_phrase(preposition, DATIVE, noun_phrase)

    def _distance(self, tense):
        """Three weeks ago, in three weeks."""
        number = self.number(2, 13)
        unit = self.pick(tuple(UNITS_OF_TIME))
        english = f"{english_number(number)} {unit}"
        german = f"{german_number(number)} {UNITS_OF_TIME[unit]}"
        if tense == "past":
            return Phrase(f"{english} ago", f"vor {german}")
        return Phrase(f"in {english}", f"in {german}")

    def duration(self):
        """For three hours."""
        number = self.number(2, 13)
        unit = self.pick(tuple(DURATIONS))
        return Phrase(
            f"for {english_number(number)} {unit}",
            f"{german_number(number)} {DURATIONS[unit]} lang",
        )

    # Clauses.

    def action(self, subject=None, tense=None, frame=None):
        """Somebody does something.

        Args:
            subject: The agent. Default: random.
            tense: A member of `TENSES`. Default: one that suits the verb.
            frame: A method of this class that makes the frame. Default:
                random.

        Returns:
            A `Clause`, not negated, nothing fronted.
        """
        subject = subject or self.subject()
        slots = (frame or self.pick(FRAMES))(self, subject)
        verb = slots["verb"]
        tenses = STATIVE_TENSES.get(verb.english)
        if tenses and tense and tense not in tenses:
            return self.action(subject, tense, frame)
        tense = tense or self.pick(tenses or TENSES)
        if tense == "habit" and is_ambiguous(subject, verb):
            tense = "future"
        if tenses:
            return self._state(subject, tense, slots)
        modal = self._modal(tense)
        if modal is LIKE:
            return Clause(subject, tense=tense, modal=modal, **slots)
        frequency = time = None
        if tense == "habit" and not modal and self.chance(0.35):
            frequency = self.pick(FREQUENCIES)
        elif verb in VERBS["activity"] and tense == "past" and self.chance(0.2):
            time = self.duration()
        elif self.chance(0.55):
            time = self.time(tense)
        return Clause(
            subject,
            tense=tense,
            modal=modal,
            time=time,
            frequency=frequency,
            **slots,
        )

    def _state(self, subject, tense, slots):
        """A clause of a stative verb; its present has no adverb of time."""
        timed = tense != "habit" and self.chance(0.6)
        time = self.time(tense) if timed else None
        return Clause(subject, tense=tense, time=time, **slots)

    def _modal(self, tense):
        """A modal verb that has the tense, or None."""
        if tense == "future" and self.chance(0.55):
            return self.pick(MODALS)
        if tense == "past" and self.chance(0.2):
            return self.pick(PAST_MODALS)
        if tense == "habit" and self.chance(0.2):
            return LIKE
        return None

    def negated(self, clause):
        """The clause, negated if `is_negatable`."""
        return clause._replace(negated=True) if is_negatable(clause) else clause

    def position(self):
        """A thing lies or stands somewhere."""
        verb = self.pick(VERBS["position"])
        tense = self.pick(("progressive", "progressive", "past"))
        return Clause(
            self.noun_phrase(verb.categories),
            verb,
            tense,
            time=self.time(tense) if self.chance(0.3) else None,
            complement=self.place(SPOTS),
        )

    def weather(self, tense):
        """It rains or snows."""
        time = self.time(tense) if self.chance(0.4) else None
        return Clause(IT, self.pick(VERBS["weather"]), tense, time=time)

    def description(self):
        """Somebody or something is cold, too old, very heavy."""
        category = self.pick(DESCRIBED)
        adjective = self.pick(ADJECTIVES_OF[category])
        tense = self.pick(("habit", "past"))
        return self.quality(self.definite(category), adjective, tense)

    def quality(self, subject, adjective, tense):
        """A clause with a predicative adjective, which has no ending."""
        degree = self.pick(DEGREES)
        complement = Phrase(
            join_words([degree.english, adjective.english]),
            join_words([degree.german, adjective.german]),
        )
        return Clause(subject, BE, tense, complement=complement)

    def definite(self, category):
        """A definite singular noun phrase without an adjective."""
        noun = self.pick(NOUNS[category])
        choices = ("the", "the", "this")
        if category == "relative":
            choices = POSSESSIVES
        elif noun.english not in UNOWNED:
            choices += POSSESSIVES
        return NounPhrase(self.pick(choices), None, noun)

    def comparison(self):
        """One is older than the other; both are in the nominative."""
        category = self.pick(DESCRIBED)
        adjective = self.pick(ADJECTIVES_OF[category])
        first, second = self.definite(category), self.definite(category)
        if first.noun is second.noun:
            return self.comparison()
        english, german = second.english(NOMINATIVE), second.german(NOMINATIVE)
        complement = Phrase(
            f"{adjective.english_comparative} than {english}",
            f"{adjective.german_comparative} als {german}",
        )
        tense = self.pick(("habit", "habit", "past"))
        return Clause(first, BE, tense, complement=complement)

    def age(self):
        """Somebody is twenty-one years old."""
        number = self.number(13, 100)
        complement = Phrase(
            f"{english_number(number)} years old",
            f"{german_number(number)} Jahre alt",
        )
        draw = self.number(0, 3)
        if draw == 0:
            subject = self.pick(PERSONAL)
        elif draw == 1:
            subject = self.pick(NAMES)
        else:
            subject = self.definite("relative")
        return Clause(subject, BE, "habit", complement=complement)

    def price(self):
        """Something costs forty-two euros."""
        number = self.number(13, 100)
        complement = Phrase(
            f"{english_number(number)} euros", f"{german_number(number)} Euro"
        )
        category = self.pick(COST.categories)
        subject = self.definite(category)
        tense = self.pick(("habit", "past"))
        return Clause(subject, COST, tense, complement=complement)

    def same_person(self, subject):
        """A pronoun for the subject of another clause, or a random one."""
        if isinstance(subject, Pronoun):
            return subject
        determiner = getattr(subject, "determiner", "")
        if subject.pronoun and determiner not in ("every", "no"):
            return PRONOUNS[subject.pronoun]
        return self.pick(PERSONAL)


# A frame's probability is its share of this list.
FRAMES = (
    (ClauseSampler.transitive,) * 9
    + (ClauseSampler.with_dative,) * 2
    + (ClauseSampler.ditransitive,) * 3
    + (ClauseSampler.prepositional,) * 2
    + (ClauseSampler.activity,) * 3
    + (ClauseSampler.event,) * 2
    + (ClauseSampler.motion,) * 2
    + (ClauseSampler.travel,)
    + (ClauseSampler.placing,) * 2
)
OBJECT_FRAMES = (ClauseSampler.transitive, ClauseSampler.with_dative)
