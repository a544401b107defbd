"""Random clauses that make sense."""

from trainers.phrasebook import collocations, phrases
from trainers.phrasebook.clauses import Clause, join_words
from trainers.phrasebook.constituents import (
    IT,
    NAMES,
    PERSONAL,
    PRONOUNS,
    NounPhrase,
    Pronoun,
    prepositional_phrase,
)
from trainers.phrasebook.drawing import Sampler
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
)
from trainers.phrasebook.phrases import Phrase, filled

FULL_CLOCK = [(h, m) for h in range(1, 13) for m in (0, 30)]
MINUTES = (5, 10, 15, 20, 40, 45, 50, 55)


class ClauseSampler(Sampler):
    """Makes random clauses that make sense."""

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
            if (adjective.english, noun.english) in collocations.CLUMSY:
                adjective = None
        determiner = self._determiner(noun, plural)
        return NounPhrase(determiner, adjective, noun, plural)

    def _determiner(self, noun, plural):
        """A determiner that suits the noun."""
        category = noun.category
        if category == "relative":
            return self.pick(collocations.POSSESSIVES)
        draw = self._random()
        if category == "drink":
            return "" if draw < 0.7 else "the"
        if draw < 0.4 or (category in collocations.LOCATIONS and draw > 0.7):
            return "the"
        if draw < 0.6 and noun.english not in collocations.UNOWNED:
            return self.pick(collocations.POSSESSIVES)
        if draw < 0.68:
            return "this"
        if not plural:
            return "a"
        if category in collocations.COUNTED and draw > 0.8:
            return self.count()
        return ""

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
        return self.noun_phrase(collocations.PEOPLE)

    def affected(self, subject, categories=collocations.PEOPLE):
        """An object: a person or a thing that is not the subject."""
        while True:
            people = "relative" in categories
            if people and self.chance(0.25):
                other = self.pick(PERSONAL)
            elif people and self.chance(0.1):
                other = self.pick(NAMES)
            else:
                other = self.noun_phrase(categories)
            if collocations.may_meet(subject, other):
                return other

    def recipient(self, subject):
        """Who gets something; not a plural without a determiner."""
        while True:
            other = self.affected(subject)
            if other.person != PLURAL or other.is_definite:
                return other

    # Frames: a subject, a verb and its complements.

    def transitive(self, subject, verbs=VERBS["transitive"]):
        """A verb with an accusative object."""
        verb = self.pick(verbs)
        word = verb.english
        thing = self.affected(subject, verb.categories)
        clause = Clause(subject, verb, accusative=thing)
        if word in collocations.VERBS_WITH_PLACE and self.chance(0.2):
            clause = clause._replace(place=self.place())
        if word in collocations.VERBS_WITH_BENEFICIARY and self.chance(0.25):
            company = self.companion(subject, collocations.BENEFICIARY)
            return clause._replace(company=company)
        if verb.manners and self.chance(0.15):
            return clause._replace(manner=self.pick(verb.manners))
        return clause

    def with_dative(self, subject):
        """A verb whose only object is a dative."""
        verb = self.pick(VERBS["dative"])
        return Clause(subject, verb, dative=self.affected(subject))

    def ditransitive(self, subject):
        """A verb with a person in the dative and a thing."""
        has_to = self.chance(0.25)
        verb = self.pick(VERBS["dative_with_to" if has_to else "ditransitive"])
        recipient = self.recipient(subject)
        thing = self.noun_phrase(verb.categories)
        return Clause(subject, verb, dative=recipient, accusative=thing)

    def prepositional(self, subject):
        """A verb with a prepositional object."""
        verb = self.pick(VERBS["prepositional"])
        other = self.affected(subject, verb.categories)
        complement = prepositional_phrase(verb.preposition, other)
        return Clause(subject, verb, complement=complement)

    def activity(self, subject):
        """An intransitive verb with place, company, or manner."""
        verb = self.pick(VERBS["activity"])
        company = manner = None
        draw = self._random()
        if verb.english in collocations.VERBS_WITH_COMPANY and draw < 0.25:
            company = self.companion(subject)
        elif verb.manners and draw < 0.5:
            manner = self.pick(verb.manners)
        place = self.place() if self.chance(0.5) else None
        return Clause(
            subject, verb, company=company, manner=manner, place=place
        )

    def event(self, subject):
        """A verb without any object."""
        return Clause(subject, self.pick(VERBS["event"]))

    def motion(self, subject):
        """A verb with a destination."""
        verb = self.pick(VERBS["motion"])
        clause = Clause(subject, verb, complement=self.destination(subject))
        if verb.english in collocations.VERBS_WITH_COMPANY and self.chance(0.2):
            return clause._replace(company=self.companion(subject))
        if verb.manners and self.chance(0.3):
            return clause._replace(manner=self.pick(verb.manners))
        return clause

    def travel(self, subject):
        """A journey: where to, by what, with whom."""
        (verb,) = VERBS["travel"]
        city = self.pick(phrases.CITIES)
        goal = Phrase(f"to {city}", f"nach {city}")
        if self.chance(0.2):
            goal = phrases.HOMEWARD
        manner = self.pick(verb.manners) if self.chance(0.6) else None
        company = self.companion(subject) if self.chance(0.3) else None
        return Clause(
            subject, verb, complement=goal, manner=manner, company=company
        )

    def placing(self, subject):
        """Something is put somewhere: a direction, in the accusative."""
        verb = self.pick(VERBS["placing"])
        thing = self.noun_phrase(verb.categories)
        where = self.place(collocations.SPOTS, ACCUSATIVE)
        return Clause(subject, verb, accusative=thing, complement=where)

    # Adjuncts.

    def place(self, table=collocations.PLACES, case=DATIVE):
        """A place (dative), or a direction (accusative)."""
        if table is collocations.PLACES and self.chance(0.1):
            return phrases.AT_HOME
        english, german, categories = self.pick(table)
        noun_phrase = self.noun_phrase(categories, singular=True)
        return prepositional_phrase((english, german, case), noun_phrase)

    def destination(self, subject):
        """Where somebody goes."""
        draw = self._random()
        if draw < 0.15:
            return phrases.HOMEWARD
        if draw < 0.65:
            noun_phrase = self.noun_phrase(collocations.ENTERED, singular=True)
            return prepositional_phrase(("to", "in", ACCUSATIVE), noun_phrase)
        other = self.affected(subject, collocations.APPROACHED)
        return prepositional_phrase(("to", "zu", DATIVE), other)

    def companion(self, subject, relation=None):
        """With, without, or for whom."""
        relation = relation or self.pick(collocations.COMPANY)
        return prepositional_phrase(relation, self.affected(subject))

    def clock(self):
        """A time of the day."""
        if self.chance(0.6):
            return phrases.clock_time(*self.pick(FULL_CLOCK))
        return phrases.clock_time(self.number(1, 13), self.pick(MINUTES))

    def time(self, tense):
        """When it happens; English puts the hour first, German the day."""
        draw = self._random()
        if draw < 0.4 and phrases.DAYS[tense]:
            day = self.pick(phrases.DAYS[tense])
            if self.chance(0.6):
                return day
            return filled("{1} {0}", "{} {}", day, self.clock())
        if draw < 0.5 and tense != "progressive":
            return self.clock()
        if draw < 0.6 and tense in ("past", "future"):
            return self._around_event()
        if draw < 0.75 and tense in ("past", "future"):
            return self._distance(tense)
        return self.pick(phrases.PERIODS[tense])

    def _around_event(self):
        """Before or after something."""
        noun = self.pick(NOUNS["event"])
        english, german = self.pick((("before", "vor"), ("after", "nach")))
        determiner = self.pick(("the", "this"))
        noun_phrase = NounPhrase(determiner, None, noun)
        return prepositional_phrase((english, german, DATIVE), noun_phrase)

    def _distance(self, tense):
        """Three weeks ago, in three weeks."""
        number = phrases.NUMBERS[self.number(2, 13)]
        unit = self.pick(phrases.UNITS_OF_TIME)
        if tense == "past":
            return filled("{} {} ago", "vor {} {}", number, unit)
        return filled("in {} {}", "in {} {}", number, unit)

    def duration(self):
        """For three hours."""
        number = phrases.NUMBERS[self.number(2, 13)]
        unit = self.pick(phrases.DURATIONS)
        return filled("for {} {}", "{} {} lang", number, unit)

    # Clauses.

    def action(self, subject=None, tense=None, frame=None):
        """Somebody does something.

        Args:
            subject: The agent. Default: random.
            tense: A member of `TENSES`. Default: one that suits the verb.
            frame: A method of this class that makes a clause of a subject.
                Default: random.

        Returns:
            A `Clause`, not negated, nothing fronted.
        """
        subject = subject or self.subject()
        clause = (frame or self.pick(FRAMES))(self, subject)
        verb = clause.verb
        tenses = collocations.STATIVE_TENSES.get(verb.english)
        if tenses and tense and tense not in tenses:
            return self.action(subject, tense, frame)
        tense = tense or self.pick(tenses or collocations.TENSES)
        if tense == "habit" and collocations.is_ambiguous(subject, verb):
            tense = "future"
        clause = clause._replace(tense=tense)
        if tenses:  # of a state: its present has no adverb of time
            timed = tense != "habit" and self.chance(0.6)
            return clause._replace(time=self.time(tense)) if timed else clause
        modal = self._modal(tense)
        clause = clause._replace(modal=modal)
        if modal is LIKE:
            return clause
        if tense == "habit" and not modal and self.chance(0.35):
            return clause._replace(frequency=self.pick(phrases.FREQUENCIES))
        if verb in VERBS["activity"] and tense == "past" and self.chance(0.2):
            return clause._replace(time=self.duration())
        if self.chance(0.55):
            return clause._replace(time=self.time(tense))
        return clause

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
        return (
            clause._replace(negated=True)
            if collocations.is_negatable(clause)
            else clause
        )

    def position(self):
        """A thing lies or stands somewhere."""
        verb = self.pick(VERBS["position"])
        tense = self.pick(("progressive", "progressive", "past"))
        return Clause(
            self.noun_phrase(verb.categories),
            verb,
            tense,
            time=self.time(tense) if self.chance(0.3) else None,
            complement=self.place(collocations.SPOTS),
        )

    def weather(self, tense):
        """It rains or snows."""
        time = self.time(tense) if self.chance(0.4) else None
        return Clause(IT, self.pick(VERBS["weather"]), tense, time=time)

    def description(self):
        """Somebody or something is cold, too old, very heavy."""
        category = self.pick(collocations.DESCRIBED)
        adjective = self.pick(ADJECTIVES_OF[category])
        tense = self.pick(("habit", "past"))
        return self.quality(self.definite(category), adjective, tense)

    def quality(self, subject, adjective, tense):
        """A clause with a predicative adjective, which has no ending."""
        degree = self.pick(phrases.DEGREES)
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
            choices = collocations.POSSESSIVES
        elif noun.english not in collocations.UNOWNED:
            choices += collocations.POSSESSIVES
        return NounPhrase(self.pick(choices), None, noun)

    def comparison(self):
        """One is older than the other; both are in the nominative."""
        category = self.pick(collocations.DESCRIBED)
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
        number = phrases.NUMBERS[self.number(13, 100)]
        complement = filled("{} years old", "{} Jahre alt", number)
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
        number = phrases.NUMBERS[self.number(13, 100)]
        complement = filled("{} euros", "{} Euro", number)
        subject = self.definite(self.pick(COST.categories))
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
