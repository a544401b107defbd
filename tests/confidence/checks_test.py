"""Checks by rule: a table of good and bad translations for each kind."""

import time

import patterns
import pytest

from keras_transformer.confidence.checks import (
    CHECKS,
    NEGATIONS,
    Finding,
    check,
)
from keras_transformer.translation.alignment import SpanLink, word_spans

# Kind: rows of languages, source, translation, and the texts of findings.
ROWS = {
    "number": [
        ("en-de", "It costs 12.5 euros.", "Es kostet 12,5 Euro.", []),
        ("en-de", "1,000 files", "1.000 Dateien", []),
        ("en-fr", "1,000,000.25", "1\u202f000\u202f000,25", []),
        ("de-de", "1'000 Dateien", "1000 Dateien", []),
        ("en-de", "On 12/31/2024", "Am 31.12.2024", []),
        ("en-de", "On 2024-12-05", "Am 5. Dezember 2024", []),
        ("en-ru", "At 5:30 PM", "В 17:30", []),
        ("en-en", "At 5 pm", "At 5 p.m.", []),
        ("en-de", "3 dogs", "drei Hunde", []),
        ("en-de", "a cat", "1 Katze", []),
        ("en-ar", "25 files", "٢٥ ملفًا", []),
        ("en-hi", "25 files", "२६ फ़ाइलें", ["25 is missing", "२६ is added"]),
        ("en-de", "100,200,300", "100, 200, 300", []),
        ("en-it", "It costs 12.5 euros.", "Costa.", ["12.5 is missing"]),
        ("en-de", "3 dogs", "4 Hunde", ["3 is missing", "4 is added"]),
        (
            "en-de",
            "in 21 days",
            "in 12 Tagen",
            ["21 is missing", "12 is added"],
        ),
        ("en-pt", "a file", "64 arquivos", ["64 is added"]),
        (
            "en-fr",
            "up to 4,096",
            "4 906",
            ["4,096 is missing", "4 906 is added"],
        ),
        ("en-de", "7" * 5000, "7" * 4999 + "8", ["missing", "added"]),
    ],
    "unit": [
        ("en-de", "5 km or 5 miles", "5 Kilometer oder 5 Meilen", []),
        ("en-ru", "5 km, 3 MB", "5 км, 3 МБ", []),
        ("en-fr", "10 kB, 20%", "10 Ko, 20 %", []),
        ("en-es", "$5", "5 dólares", []),
        ("en-de", "5 km away", "5 entfernt", []),
        (
            "en-fr",
            "Convert %1 to 5 polygons in 3 s",
            "Convertir %1 en 5 en 3 s",
            [],
        ),
        ("en-de", "5 km", "5 Meilen", ["km is mi"]),
        ("en-de", "$5", "5 €", ["$ is €"]),
        ("en-ru", "Size: 4 MB", "Размер: 4 КБ", ["MB is kB"]),
        ("en-pt", "10 °C", "10 °F", ["°C is °F"]),
        ("en-it", "{0} minutes ago", "{0} ore fa", ["min is h"]),
        ("en-es", "3 px", "3 puntos", ["px is pt"]),
        ("en-it", "all 8 near pixels", "gli 8 pixel vicini", []),
        ("en-it", "all 8 near pixels", "gli 8 km vicini", ["km is added"]),
        ("en-pt", "Ten minutes", "10 GB", ["GB is added"]),
        ("en-ru", "Wind in 2d", "Ветер на 2 день", []),
    ],
    "address": [
        ("en-de", "See https://a.org/b.", "Siehe https://a.org/b.", []),
        (
            "en-de",
            "the (https://a.org/#b) page",
            "(https://a.org/#b)-Seite",
            [],
        ),
        (
            *("en-de", "See https://a.org/b.", "Siehe https://a.org/c."),
            ["https://a.org/b is missing", "https://a.org/c is added"],
        ),
        ("en-fr", "Mail a.b@c.org now", "Écrivez", ["a.b@c.org is missing"]),
    ],
    "placeholder": [
        ("en-de", "{name} has %d files", "%d Dateien hat {name}", []),
        ("en-de", "%PRODUCTNAME macros", "%PRODUCTNAME-Makros", []),
        ("en-it", "{=COLUMN(A1)}", "{=COLONNA(A1)}", []),
        ("en-de", "It costs $5.", "Es kostet 5 $.", []),
        (
            "en-ru",
            "Open {file}",
            "Открыть {0}",
            ["{file} is missing", "{0} is added"],
        ),
        ("en-pt", "%s of %s", "%s", ["%s is missing"]),
    ],
    "bracket": [
        ("en-de", "a (b) c [d]", "a (b) c [d]", []),
        ("en-de", "a) one, b) two", "a) eins, b zwei", []),
        ("en-de", "one (two)", "eins (zwei", ["( stands alone"]),
        ("en-ru", "one [two]", "один два]", ["] stands alone"]),
    ],
    "quotation": [
        ("en-de", 'the "File" menu', "das Menü „Datei“", []),
        ("en-fr", 'a 3.5" disk', 'un disque de 3,5"', []),
        ("en-fr", 'the "File" menu', "le menu « Fichier", ["« stands alone"]),
    ],
    "repetition": [
        ("en-de", "The man who sees the child", "Der, der das sieht", []),
        ("en-de", "flowers that the sun", "Blumen, die die Sonne", []),
        ("en-fr", "We meet", "Nous nous voyons", []),
        ("en-it", "Insert - Note - Note", "Inserisci - Nota - Nota", []),
        ("en-de", "bye bye", "tschüss tschüss", []),
        ("en-ja", "Various people", "人人", []),
        ("en-de", "Save the file", "Die Datei Datei sichern", ["'Datei'"]),
        ("en-de", "the sun", "die die die Sonne", ["'die'"]),
        (
            "en-es",
            "the file",
            "el archivo de el archivo de",
            ["'el archivo de'"],
        ),
        ("en-ru", "yes", "данетнетнетнетнетнетнет", ["'нет'"]),
        ("en-de", "hahahahahahahaha!", "Hahahahahahaha!", []),
        ("en-de", "aaaaaaah", "aaaaaaaaaaaah", ["'a'"]),  # longer
        ("en-de", "a - b", "a - b - b - b", ["'- b'"]),
    ],
    "untranslated": [
        ("en-de", "LibreOffice Basic IDE", "LibreOffice Basic IDE", []),
        ("en-de", "Run `git log in the shell`", "`git log in the shell`", []),
        ("en-de", "jpg, gif, png, tif or bmp", "jpg, gif, png, tif, bmp", []),
        ("en-en", "the file is not here", "the file is not here", []),
        ("en-es", "apt-cache policy my_name", "apt-cache policy tu_nombre", []),
        ("en-de", "Save the file", "Save the file", ["all of it"]),
        (
            *(
                "en-it",
                "You can open the file here.",
                "Si può open the file here.",
            ),
            ["'open the file here'"],
        ),
    ],
    "negation": [
        ("en-de", "It does not run.", "Es läuft nicht.", []),
        ("en-de", "It is not known.", "Es ist unbekannt.", []),
        ("en-de", "It is not known.", "Es ist uns bekannt.", ["'not' has"]),
        ("en-de", "You can never see it", "Du siehst es", ["'never' has"]),
        ("en-fr", "Don’t do it.", "Faites-le.", ["'Don’t' has"]),
        ("en-fr", "Don't do it.", "Ne le faites pas.", []),
        ("en-es", "However, it runs.", "No obstante, funciona.", []),
        ("en-es", "It runs.", "No funciona.", ["'No' is added"]),
        ("en-it", "It cannot run.", "È impossibile eseguirlo.", []),
        ("en-pt", "There is no file.", "O arquivo está lá.", ["'no' has"]),
        ("ru-en", "Это не работает.", "It works.", ["'не' has"]),
        ("ru-en", "Это не работает.", "It fails.", []),
        ("en-ru", "whether it runs or not", "работает ли он или нет", []),
        ("en-pt", "whether it runs or not", "se funciona ou não", []),
        ("en-fr", "before it ends", "avant qu’il ne se termine", []),
        ("en-de", "no matter which", "gleich welche", []),
        ("en-xx", "It does not run.", "Zzz.", []),
    ],
}
CASES = [(kind, *row) for kind, rows in ROWS.items() for row in rows]


def test_each_kind_has_rows():
    assert set(ROWS) | {"clause", "term"} == set(CHECKS)


@pytest.mark.parametrize(
    ("kind", "languages", "source", "translation", "expected"), CASES
)
def test_check(kind, languages, source, translation, expected):
    found = [
        finding
        for finding in check(source, translation, tuple(languages.split("-")))
        if finding.kind == kind
    ]
    assert len(found) == len(expected), found
    for finding, text in zip(found, expected, strict=True):
        assert text in finding.text
    assert all(f.is_question == (kind == "negation") for f in found)
    # What it says of a text and itself: nothing.
    assert all(
        f.kind in ("bracket", "quotation")
        for f in check(translation, translation, (languages[3:],) * 2)
    )


SOURCE = "If the file is there, open it and read all of its lines."


def linked(source, translation, num_words):
    """Links each word of a translation to one of the source's first words."""
    sources, targets = word_spans(source)[:num_words], word_spans(translation)
    return [
        SpanLink(sources[n % len(sources)], span)
        for n, span in enumerate(targets)
    ]


@pytest.mark.parametrize(
    ("translation", "num_words", "is_found"),
    [
        ("Wenn die Datei da ist.", 6, True),
        ("Wenn die Datei da ist.", 99, True),  # of which 6 have links
        ("Wenn die Datei da ist.", 0, False),  # no links are known
        # Only one of both limits is exceeded.
        ("Ist sie da, öffne sie und lies alle Zeilen der Datei.", 6, False),
        ("如果文件存在，请打开它。", 6, False),
    ],
)
def test_a_clause(translation, num_words, is_found):
    links = linked(SOURCE, translation, num_words) if num_words else ()
    found = check(SOURCE, translation, ("en", "de"), links)
    expected = "'open it and read all of its lines' has no counterpart"
    if num_words == 6:
        assert found == [Finding("clause", expected)] * is_found
    assert [f.kind for f in found] == ["clause"] * is_found


def test_a_short_translation_with_all_links_has_its_clauses():
    translation = "Ist sie da, dann lies"
    spans = word_spans(SOURCE)
    links = [SpanLink(span, (0, 3)) for span in spans]
    assert not check(SOURCE, translation, ("en", "de"), links)


@pytest.mark.parametrize("number", [3, 4])
def test_a_clause_has_at_least_four_words(number):
    words = "one two three four five six seven eight"
    spans = word_spans(words)
    links = [SpanLink(span, (0, 3)) for span in spans[: 8 - number]]
    found = check(words, "eins", ("en", "de"), links)
    kinds = [finding.kind for finding in found]
    assert kinds == ["clause"] * (number == 4)


def test_the_lengths_of_languages_differ():
    """The same translation is short for a source of a longer language."""
    words = "one two three four five six seven eight"
    links = [SpanLink(word_spans(words)[0], (0, 5))]
    text = words[: int(0.7 * len(words))]
    assert check(words, text, ("en", "fr"), links)[-1].kind == "clause"
    assert not [
        f for f in check(words, text, ("fr", "en"), links) if f.kind == "clause"
    ]


def test_terms():
    terms = [("Betrieb", "Betriebs"), ("Haus",)]
    assert check("in use", "des Betriebs", ("en", "de"), terms=terms) == [
        Finding("term", "term 'Haus' is missing")
    ]


HOSTILE = "a a1 1, { ` `a a. @a a's % 12: 1p a- n't {a1 www.a".split()


@pytest.mark.slow("run")
@pytest.mark.parametrize("text", [*HOSTILE, "a ", "1 ", "`a ", "{a1 "])
def test_time_is_linear(text):
    """Eight times the text takes about eight times the time, not 64 times."""

    def seconds(size):
        long = text * (size // len(text))
        begin = time.process_time()
        check(long, long[1:] + "b", ("en", "de"), terms=[[long]])
        return time.process_time() - begin

    assert seconds(16_000) < 30 * max(
        min(seconds(2_000), seconds(2_000)), 0.005
    )


@pytest.mark.parametrize("language", NEGATIONS)
def test_patterns_of_negation_are_linear(language):
    for pattern in NEGATIONS[language]:
        assert not patterns.growing(pattern)
