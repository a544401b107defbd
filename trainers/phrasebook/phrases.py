"""Phrases with one fixed spelling: times, manners, conjunctions."""

from typing import NamedTuple

from trainers.phrasebook.morphology import ENGLISH_NUMBERS, GERMAN_NUMBERS


class Phrase(NamedTuple):
    """A constituent with one fixed spelling in each language."""

    english: str
    german: str


def filled(english, german, *parts):
    """A phrase of two templates, whose fields other phrases fill.

    >>> filled("{} and {}", "{} und {}", AT_HOME, Phrase("now", "jetzt"))
    Phrase(english='at home and now', german='zu Hause und jetzt')
    """
    return Phrase(
        english.format(*(part.english for part in parts)),
        german.format(*(part.german for part in parts)),
    )


def _phrases(table):
    """Phrases from "English: German" entries, between semicolons."""
    entries = (entry.split(":") for entry in table.split(";"))
    return tuple(Phrase(e.strip(), g.strip()) for e, g in entries)


NUMBERS = tuple(map(Phrase, ENGLISH_NUMBERS, GERMAN_NUMBERS))
WEEKDAYS = _phrases(
    "Monday: Montag; Tuesday: Dienstag; Wednesday: Mittwoch;"
    "Thursday: Donnerstag; Friday: Freitag; Saturday: Samstag; Sunday: Sonntag"
)
# In German the dative plural.
UNITS_OF_TIME = _phrases(
    "minutes: Minuten; hours: Stunden; days: Tagen; weeks: Wochen"
)
DURATIONS = _phrases("hours: Stunden; minutes: Minuten")

# Points in time, by tense. DAYS may carry a clock time, PERIODS may not.
DAYS = {
    "habit": _phrases("every day: jeden Tag")
    + tuple(Phrase(f"on {e}s", f"{g.lower()}s") for e, g in WEEKDAYS),
    "progressive": (),
    "past": _phrases("yesterday: gestern")
    + tuple(filled("last {}", "letzten {}", day) for day in WEEKDAYS),
    "future": _phrases("tomorrow: morgen; today: heute")
    + tuple(filled("on {}", "am {}", day) for day in WEEKDAYS),
}
PERIODS = {
    "habit": _phrases(
        "every morning: jeden Morgen; every evening: jeden Abend;"
        "every week: jede Woche; in summer: im Sommer; in winter: im Winter"
    ),
    "progressive": _phrases("now: jetzt; at the moment: im Moment"),
    "past": _phrases(
        "yesterday evening: gestern Abend; last week: letzte Woche;"
        "last month: letzten Monat; last year: letztes Jahr"
    ),
    "future": _phrases(
        "tonight: heute Abend; tomorrow morning: morgen früh;"
        "next week: nächste Woche; next month: nächsten Monat;"
        "next year: nächstes Jahr"
    ),
}
FREQUENCIES = _phrases(
    "always: immer; often: oft; sometimes: manchmal; never: nie"
)
# Manner: the adverbs that make sense with a verb.
MANNERS = {
    "work": _phrases("slowly: langsam; quickly: schnell"),
    "sleep": _phrases("well: gut; badly: schlecht"),
    "dance": _phrases("well: gut; slowly: langsam"),
    "sing": _phrases("quietly: leise; loudly: laut; well: gut"),
    "cry": _phrases("quietly: leise; loudly: laut"),
    "cook": _phrases("well: gut; badly: schlecht"),
    "play": _phrases("quietly: leise; loudly: laut"),
    "eat": _phrases("slowly: langsam; quickly: schnell"),
    "drink": _phrases("slowly: langsam; quickly: schnell"),
    "read": _phrases("slowly: langsam; quickly: schnell"),
    "travel": _phrases(
        "by train: mit dem Zug; by bus: mit dem Bus; by car: mit dem Auto;"
        "by bicycle: mit dem Fahrrad"
    ),
    "run": _phrases("slowly: langsam; quickly: schnell"),
}

CITIES = ("Berlin", "Hamburg", "London", "Paris")
AT_HOME = Phrase("at home", "zu Hause")
HOMEWARD = Phrase("home", "nach Hause")
QUARTER = Phrase("a quarter", "Viertel")  # of an hour
DEGREES = (Phrase("", ""), Phrase("very", "sehr"), Phrase("too", "zu"))

# Conjunctions, by the kind of clause that they open.
REASONS = _phrases("because: weil; although: obwohl")
CONDITIONS = _phrases("if: wenn; before: bevor; as soon as: sobald")
WHEN = Phrase("when", "als")  # of one event in the past
THAT = Phrase("that", "dass")
WHETHER = Phrase("whether", "ob")


def clock_time(hour, minute):
    """A time of the day on the twelve-hour clock, as in spoken language.

    English counts the half hour from the hour before, German to the hour after.

    >>> clock_time(7, 30)
    Phrase(english='at half past seven', german='um halb acht')
    """
    this_hour, next_hour = NUMBERS[hour], NUMBERS[hour % 12 + 1]
    if minute == 0:
        german = "um ein Uhr" if hour == 1 else "um {} Uhr"
        return filled("at {} o'clock", german, this_hour)
    if minute == 30:
        return filled("at half past {}", "um halb {1}", this_hour, next_hour)
    distance = minute if minute < 30 else 60 - minute
    span = QUARTER if distance == 15 else NUMBERS[distance]
    if minute < 30:
        return filled("at {} past {}", "um {} nach {}", span, this_hour)
    return filled("at {} to {}", "um {} vor {}", span, next_hour)
