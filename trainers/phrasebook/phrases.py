"""Phrases with one fixed spelling: times, manners, conjunctions."""

from typing import NamedTuple

from trainers.phrasebook.morphology import (
    ENGLISH_ONES,
    GERMAN_ONES,
    english_number,
    german_number,
)


class Phrase(NamedTuple):
    """A constituent with one fixed spelling in each language."""

    english: str
    german: str


def _phrases(table):
    """Phrases from "English: German" entries, between semicolons."""
    entries = (entry.split(":") for entry in table.split(";"))
    return tuple(Phrase(e.strip(), g.strip()) for e, g in entries)


WEEKDAYS = {
    "Monday": "Montag",
    "Tuesday": "Dienstag",
    "Wednesday": "Mittwoch",
    "Thursday": "Donnerstag",
    "Friday": "Freitag",
    "Saturday": "Samstag",
    "Sunday": "Sonntag",
}
UNITS_OF_TIME = {  # English plural: German dative plural
    "minutes": "Minuten",
    "hours": "Stunden",
    "days": "Tagen",
    "weeks": "Wochen",
}
DURATIONS = {"hours": "Stunden", "minutes": "Minuten"}

# Points in time, by tense. DAYS may carry a clock time, PERIODS may not.
DAYS = {
    "habit": _phrases("every day: jeden Tag")
    + tuple(Phrase(f"on {e}s", f"{g.lower()}s") for e, g in WEEKDAYS.items()),
    "progressive": (),
    "past": _phrases("yesterday: gestern")
    + tuple(Phrase(f"last {e}", f"letzten {g}") for e, g in WEEKDAYS.items()),
    "future": _phrases("tomorrow: morgen; today: heute")
    + tuple(Phrase(f"on {e}", f"am {g}") for e, g in WEEKDAYS.items()),
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
    following = hour % 12 + 1
    this_hour = ENGLISH_ONES[hour], GERMAN_ONES[hour]
    next_hour = ENGLISH_ONES[following], GERMAN_ONES[following]
    if minute == 0:
        german_hour = "ein" if hour == 1 else GERMAN_ONES[hour]
        return Phrase(f"at {this_hour[0]} o'clock", f"um {german_hour} Uhr")
    if minute == 30:
        return Phrase(f"at half past {this_hour[0]}", f"um halb {next_hour[1]}")
    past = minute < 30
    distance = minute if past else 60 - minute
    english = "a quarter" if distance == 15 else english_number(distance)
    german = "Viertel" if distance == 15 else german_number(distance)
    hours = this_hour if past else next_hour
    return Phrase(
        f"at {english} {'past' if past else 'to'} {hours[0]}",
        f"um {german} {'nach' if past else 'vor'} {hours[1]}",
    )
