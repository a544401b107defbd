"""Planted errors: how many of them the checks by rule find.

    python benchmarks/planted_errors.py --pairs=PREFIX[,PREFIX...] \\
        --languages=de,es,fr,it,pt,ru --workdir=DIR

Plants errors of each kind in the translations of PREFIX.en-XX.en and
PREFIX.en-XX.XX, at most --errors of a kind and language: a digit, a unit, a
letter of an address changed; a negation or a clause missing; a word repeated.
An error is found if the checks say something that they do not say of the
untouched translation. Two more tables have the share of untouched translations
of which they say anything, and of which each check does. The model in the work
directory makes the links.
"""

import argparse
import os
import pathlib
import random
import re

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

from results import add_flag, record

import keras_transformer as kt
from keras_transformer.confidence.checks import CHECKS, check
from keras_transformer.confidence.checks import UNITS as NAMES

ADDRESS = re.compile(r"(?:https?://|www\.)[^\s<>\"'`)\]]*\w")
WORD = re.compile(r"\w+(?:['’-]\w+)*")
# A number apart from names such as `{0}` and `MP3`.
NUMBER = re.compile(r"(?<![\w{%$#.,:/-])[0-9](?:[0-9.,:/ ]*[0-9])?(?![\w}])")
UNITS = (
    "km cm mm MB GB kB KB ms px pt % $ € °C Hz kHz dpi Bits Byte Bytes bits "
    "Ko Mo Go octets bytes byte км см мм МБ ГБ КБ мс пт бит байт Sekunden "
    "Minuten Stunden Tage secondes minutes heures jours segundos minutos horas "
    "días dias secondi minuti ore giorni секунд минут часов дней Pixel pixels "
    "píxeles pixel Zoll pouces pulgadas pollici polegadas"
).split()
UNIT = re.compile(
    rf"(?<![\w{{])([0-9]+[\s\u00a0\u202f]?)({'|'.join(map(re.escape, UNITS))})"
    r"(?!\w)"
)
# What is removed, or replaced.
NEGATIONS = {
    "de": {r"\bnicht ": "", r"\b([Kk])eine?([mnrs]?)\b": r"eine\2"},
    "fr": {r"\bne (\w+) pas\b": r"\1", r"\bn['’](\w+) pas\b": r"\1"},
    "es": {r"\b[Nn]o ": ""},
    "it": {r"\b[Nn]on ": ""},
    "pt": {r"\b[Nn]ão ": ""},
    "ru": {r"\b[Нн]е ": ""},
}


def main():
    arguments = parse_arguments()
    found, marked = [], []
    for language in arguments.languages.split(","):
        translator = kt.Translator.load(
            arguments.workdir, target_language=language
        )
        pairs = [
            pair
            for prefix in arguments.pairs.split(",")
            for pair in read_pairs(prefix, language)
        ]
        found += [
            row
            for kind in PLANTS
            for row in find(pairs, kind, language, translator, arguments)
        ]
        chance = random.Random(arguments.seed)
        some = chance.sample(pairs, min(len(pairs), arguments.untouched))
        marked.append(mark(some, language, translator))
        for row in (*found[-len(PLANTS) :], marked[-1]):
            print(row, flush=True)
    if arguments.record:
        record(
            "planted_errors",
            "Planted errors that checks by rule find",
            {
                "errors": by_error(found),
                "by language": found,
                "untouched": [
                    {name: row[name] for name in [*row][:4]} for row in marked
                ],
                "what marks them": [
                    {"language": row["language"]}
                    | {name: row[name] for name in [*row][4:]}
                    for row in marked
                ],
            },
            notes=arguments.notes,
        )


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--pairs", required=True, help="PREFIX of the files")
    parser.add_argument("--languages", default="de,es,fr,it,pt,ru")
    parser.add_argument("--workdir", required=True, help="from English")
    parser.add_argument("--errors", type=int, default=100)
    parser.add_argument("--untouched", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--notes", default="", help="recorded with the result")
    add_flag(parser)
    return parser.parse_args()


def read_pairs(prefix, language):
    """Reads pairs; there is no file for some languages."""
    sides = [
        pathlib.Path(f"{prefix}.en-{language}.{side}").read_text("utf-8")
        for side in ("en", language)
    ]
    return list(zip(*(s.split("\n")[:-1] for s in sides), strict=True))


# The errors. Each takes source, translation, language and a generator, and
# returns a changed translation, or None if this pair has no place for it.


def plant_digit(source, translation, language, chance):
    numbers = [
        m
        for m in NUMBER.finditer(ADDRESS.sub(_blank, translation))
        if m.group() in source
    ]
    if not numbers:
        return None
    number = chance.choice(numbers)
    at = chance.choice(
        [n for n in range(*number.span()) if translation[n].isdigit()]
    )
    other = chance.choice([d for d in "123456789" if d != translation[at]])
    return translation[:at] + other + translation[at + 1 :]


def plant_unit(source, translation, language, chance):
    places = [*UNIT.finditer(translation)]
    if not places:
        return None
    place = chance.choice(places)
    own = NAMES.get(place[2])  # МБ is MB, so MB is no error
    others = [u for u in UNITS[:13] if NAMES[u] != own]
    unit = chance.choice([u for u in others if u[0] != place[2][0]])
    return translation[: place.start(2)] + unit + translation[place.end() :]


def plant_address(source, translation, language, chance):
    places = [m for m in ADDRESS.finditer(translation) if m.group() in source]
    if not places:
        return None
    place = chance.choice(places)
    at = chance.randrange(place.start() + 8, place.end())
    while not translation[at].isalnum():
        at -= 1
    if chance.random() < 0.5:  # a letter is missing, or another one
        return translation[:at] + translation[at + 1 :]
    other = "x" if translation[at] != "x" else "k"
    return translation[:at] + other + translation[at + 1 :]


def plant_negation(source, translation, language, chance):
    if not re.search(r"\bnot\b|n['’]t\b|\bnever\b|\bcannot\b|\bno\b", source):
        return None
    for pattern, left in NEGATIONS[language].items():
        if len(re.findall(pattern, translation)) == 1:
            return re.sub(pattern, left, translation)
    return None


def plant_clause(source, translation, language, chance):
    ends = [m.end() for m in re.finditer(r"[,;:.!?](?=\s)", translation)]
    begins = [0, *ends]
    clauses = [*zip(begins, [*ends, len(translation)], strict=True)]
    words = [len(WORD.findall(translation[b:e])) for b, e in clauses]
    places = [
        clause
        for clause, own in zip(clauses, words, strict=True)
        if own >= 4 and sum(words) - own >= 3
    ]
    if not places:
        return None
    begin, end = chance.choice(places)
    return (translation[:begin] + translation[end:]).strip()


def plant_repetition(source, translation, language, chance):
    words = [m for m in WORD.finditer(translation) if m.group().isalpha()]
    if len(words) < 4:
        return None
    word = chance.choice(words)
    again = f" {word.group()}" * chance.randrange(1, 5)
    return translation[: word.end()] + again + translation[word.end() :]


def _blank(match):
    return " " * len(match.group())


PLANTS = {
    "digit": plant_digit,
    "unit": plant_unit,
    "address": plant_address,
    "negation": plant_negation,
    "clause": plant_clause,
    "repetition": plant_repetition,
}


def plant(pairs, kind, language, most, seed):
    """Returns at most so many `(source, translation, with the error)`."""
    chance = random.Random(f"{seed} {kind} {language}")
    found = []
    for source, translation in chance.sample(pairs, len(pairs)):
        changed = PLANTS[kind](source, translation, language, chance)
        if changed not in (None, translation):
            found.append((source, translation, changed))
        if len(found) == most:
            break
    return found


def find(pairs, kind, language, translator, arguments):
    """Yields a row: how many planted errors of a kind are found."""
    planted = plant(pairs, kind, language, arguments.errors, arguments.seed)
    before = check_all([p[:2] for p in planted], language, translator)
    after = check_all([(p[0], p[2]) for p in planted], language, translator)
    new = [
        [finding for finding in own if finding not in old]
        for own, old in zip(after, before, strict=True)
    ]
    if planted:
        yield {
            "language": language,
            "error": kind,
            "planted": len(planted),
            "found, %": percent(new, any),
            "as a question only, %": percent(
                new, lambda own: own and all(f.is_question for f in own)
            ),
        }


def by_error(rows):
    """Sums the rows of all languages."""
    totals = []
    for kind in PLANTS:
        own = [row for row in rows if row["error"] == kind]
        planted = sum(row["planted"] for row in own)
        totals.append({"error": kind, "planted": planted})
        for name in "found, %", "as a question only, %":
            number = sum(row["planted"] * row[name] for row in own)
            totals[-1][name] = round(number / planted, 2)
    return totals


def mark(pairs, language, translator):
    """Returns a row: of how many untouched pairs the checks say something."""
    findings = check_all(pairs, language, translator)
    return {
        "language": language,
        "pairs": len(pairs),
        "marked, %": percent(findings, any),
        "as a question only, %": percent(
            findings, lambda own: own and all(f.is_question for f in own)
        ),
    } | {
        f"{kind}, %": percent(
            findings, lambda own, kind=kind: kind in [f.kind for f in own]
        )
        for kind in CHECKS
    }


def check_all(pairs, language, translator):
    return [
        check(*pair, ("en", language), links)
        for pair, links in zip(
            pairs, translator.align_spans(pairs), strict=True
        )
    ]


def percent(rows, is_counted):
    return round(100 * sum(map(bool, map(is_counted, rows))) / len(rows), 2)


if __name__ == "__main__":
    main()
