"""The phrasebook: hand-checked German, and the laws of the corpus."""

import itertools
import random
import re
import zlib

import pytest

from trainers.phrasebook import (
    LIMITS,
    clauses,
    coverage,
    make_split,
    morphology,
    sentences,
)
from trainers.phrasebook import __main__ as phrasebook_command
from trainers.phrasebook.clauses import Clause
from trainers.phrasebook.constituents import (
    IT,
    NAMES,
    PRONOUNS,
    WHAT,
    WHO,
    WHO_RELATIVE,
    NounPhrase,
    prepositional_phrase,
)
from trainers.phrasebook.corpus import draw_pairs
from trainers.phrasebook.drawing import SPLITS
from trainers.phrasebook.entries import (
    ADJECTIVES,
    BE,
    LIKE,
    MODALS,
    NOUNS,
    VERBS,
)
from trainers.phrasebook.morphology import ACCUSATIVE, CASES, DATIVE
from trainers.phrasebook.phrases import CITIES, NUMBERS, Phrase, clock_time

# ------------------------------------------------ short names for structures

NOUN = {noun.english: noun for group in NOUNS.values() for noun in group}
ADJECTIVE = {adjective.english: adjective for adjective in ADJECTIVES}
MODAL = {modal.base: modal for modal in MODALS}
ME, YOU, HE, SHE, WE, THEY = PRONOUNS.values()
ANNA, MARIA, PETER, THOMAS = NAMES


def np(determiner, *words):
    """A noun phrase: np("the", "old", "dog"); a plural noun is plural."""
    *adjectives, word = words
    adjective = ADJECTIVE[adjectives[0]] if adjectives else None
    if word in NOUN:
        return NounPhrase(determiner, adjective, NOUN[word])
    (noun,) = (n for n in NOUN.values() if n.english_plural == word)
    return NounPhrase(determiner, adjective, noun, plural=True)


def verb(english, frame="transitive"):
    """The verb of an English entry."""
    (found,) = (v for v in VERBS[frame] if v.english == english)
    return found


def in_(nominal, case=DATIVE):
    return prepositional_phrase(("in", "in", case), nominal)


def to(nominal):
    return prepositional_phrase(("to", "zu", DATIVE), nominal)


def do(subject, english, tense="habit", frame="transitive", **slots):
    return Clause(subject, verb(english, frame), tense, **slots)


YESTERDAY = Phrase("yesterday", "gestern")
TOMORROW = Phrase("tomorrow", "morgen")
OFTEN = Phrase("often", "oft")
BUY_BOOK = {"accusative": np("a", "book")}
HALF_PAST_SEVEN = clock_time(7, 30)

# A clause and the main clause in both languages, checked by hand.
STATEMENTS = [
    # Case, gender, number.
    (
        do(np("the", "man"), "buy", accusative=np("the", "apple")),
        "the man buys the apple",
        "der Mann kauft den Apfel",
    ),
    (
        do(np("a", "woman"), "buy", accusative=np("a", "red", "coat")),
        "a woman buys a red coat",
        "eine Frau kauft einen roten Mantel",
    ),
    (
        do(np("the", "boy"), "see", accusative=np("the", "student")),
        "the boy sees the student",
        "der Junge sieht den Studenten",
    ),
    (
        do(SHE, "help", frame="dative", dative=np("my", "old", "neighbor")),
        "she helps my old neighbor",
        "sie hilft meinem alten Nachbarn",
    ),
    (
        do(WE, "help", frame="dative", dative=np("the", "children")),
        "we help the children",
        "wir helfen den Kindern",
    ),
    (
        do(THEY, "drink", accusative=np("", "cold", "water")),
        "they drink cold water",
        "sie trinken kaltes Wasser",
    ),
    (
        do(HE, "have", accusative=np(21, "new", "keys")),
        "he has twenty-one new keys",
        "er hat einundzwanzig neue Schlüssel",
    ),
    (
        do(PETER, "read", accusative=np("this", "boring", "novels")),
        "Peter reads these boring novels",
        "Peter liest diese langweiligen Romane",
    ),
    (
        do(np("no", "guest"), "eat", accusative=np("a", "egg")),
        "no guest eats an egg",
        "kein Gast isst ein Ei",
    ),
    # Two objects; pronouns before, indefinite after.
    (
        do(
            np("the", "teacher"),
            "give",
            frame="ditransitive",
            dative=np("the", "child"),
            accusative=np("a", "apple"),
            time=TOMORROW,
        ),
        "the teacher gives the child an apple tomorrow",
        "der Lehrer gibt dem Kind morgen einen Apfel",
    ),
    (
        do(
            ME,
            "read",
            "past",
            "dative_with_to",
            dative=HE,
            accusative=np("the", "story"),
        ),
        "I read the story to him",
        "ich habe ihm die Geschichte vorgelesen",
    ),
    (
        do(
            ANNA,
            "show",
            "past",
            "ditransitive",
            dative=np("a", "doctor"),
            accusative=np("the", "picture"),
            time=YESTERDAY,
        ),
        "Anna showed a doctor the picture yesterday",
        "Anna hat das Bild gestern einem Arzt gezeigt",
    ),
    # Separable verbs.
    (
        do(ME, "get up", frame="event", time=clock_time(7, 0)),
        "I get up at seven o'clock",
        "ich stehe um sieben Uhr auf",
    ),
    (
        do(YOU, "get up", "past", "event", time=HALF_PAST_SEVEN),
        "you got up at half past seven",
        "du bist um halb acht aufgestanden",
    ),
    (
        do(HE, "pick up", accusative=SHE),
        "he picks her up",
        "er holt sie ab",
    ),
    (
        do(HE, "invite", accusative=np("his", "aunts")),
        "he invites his aunts",
        "er lädt seine Tanten ein",
    ),
    (
        do(THEY, "listen to", "past", "dative", dative=WE),
        "they listened to us",
        "sie haben uns zugehört",
    ),
    (
        do(SHE, "watch television", "progressive", "activity"),
        "she is watching television",
        "sie sieht fern",
    ),
    # Modal verbs and the future.
    (
        do(
            YOU,
            "open",
            "future",
            modal=MODAL["have"],
            accusative=np("the", "door"),
        ),
        "you have to open the door",
        "du musst die Tür aufmachen",
    ),
    (
        do(
            SHE,
            "work",
            "past",
            "activity",
            modal=MODAL["be"],
            place=in_(np("the", "garden")),
        ),
        "she was allowed to work in the garden",
        "sie durfte im Garten arbeiten",
    ),
    (
        do(WE, "visit", "future", accusative=np("our", "uncle")),
        "we will visit our uncle",
        "wir werden unseren Onkel besuchen",
    ),
    (
        do(HE, "read", modal=LIKE, accusative=np("", "books")),
        "he likes to read books",
        "er liest gern Bücher",
    ),
    # Negation.
    (
        do(HE, "buy", negated=True, accusative=np("a", "new", "car")),
        "he does not buy a new car",
        "er kauft kein neues Auto",
    ),
    (
        do(
            HE,
            "buy",
            "past",
            negated=True,
            accusative=np("the", "car"),
            time=YESTERDAY,
        ),
        "he did not buy the car yesterday",
        "er hat das Auto gestern nicht gekauft",
    ),
    (
        do(ME, "drink", negated=True, accusative=np("", "hot", "coffee")),
        "I do not drink hot coffee",
        "ich trinke keinen heißen Kaffee",
    ),
    (
        do(
            SHE,
            "sleep",
            "future",
            "activity",
            negated=True,
            modal=MODAL["can"],
            place=in_(np("this", "small", "room")),
        ),
        "she cannot sleep in this small room",
        "sie kann nicht in diesem kleinen Zimmer schlafen",
    ),
    (
        Clause(
            THOMAS,
            BE,
            "past",
            negated=True,
            complement=Phrase("tired", "müde"),
        ),
        "Thomas was not tired",
        "Thomas war nicht müde",
    ),
    # Direction, place, time, manner.
    (
        do(
            ME,
            "travel",
            "future",
            "travel",
            complement=Phrase("to Berlin", "nach Berlin"),
            manner=Phrase("by train", "mit dem Zug"),
            company=prepositional_phrase(
                ("with", "mit", DATIVE), np("my", "sister")
            ),
            time=TOMORROW,
        ),
        "I will travel to Berlin by train with my sister tomorrow",
        "ich werde morgen mit meiner Schwester mit dem Zug nach Berlin fahren",
    ),
    (
        do(
            SHE,
            "go",
            "past",
            "motion",
            complement=prepositional_phrase(
                ("to", "in", ACCUSATIVE), np("the", "museum")
            ),
        ),
        "she went to the museum",
        "sie ist ins Museum gegangen",
    ),
    (
        do(HE, "run", frame="motion", complement=to(np("the", "bridge"))),
        "he runs to the bridge",
        "er läuft zur Brücke",
    ),
    (
        do(
            HE,
            "go",
            frame="motion",
            complement=to(np("the", "old", "doctor")),
            frequency=OFTEN,
        ),
        "he often goes to the old doctor",
        "er geht oft zum alten Arzt",
    ),
    (
        Clause(
            MARIA,
            VERBS["placing"][1],
            "past",
            accusative=np("the", "cup"),
            complement=prepositional_phrase(
                ("on", "auf", ACCUSATIVE), np("the", "table")
            ),
        ),
        "Maria put the cup on the table",
        "Maria hat die Tasse auf den Tisch gestellt",
    ),
    (
        do(
            np("the", "letters"),
            "lie",
            "progressive",
            "position",
            complement=prepositional_phrase(
                ("under", "unter", DATIVE), np("a", "chair")
            ),
        ),
        "the letters are lying under a chair",
        "die Briefe liegen unter einem Stuhl",
    ),
    (
        do(
            THEY,
            "wait",
            "past",
            "prepositional",
            complement=prepositional_phrase(
                ("for", "auf", ACCUSATIVE), np("their", "friend")
            ),
        ),
        "they waited for their friend",
        "sie haben auf ihren Freund gewartet",
    ),
    # Verb second: what is fronted pushes the subject behind the verb.
    (
        do(
            np("the", "cook"),
            "cook",
            "past",
            "activity",
            time=YESTERDAY,
            fronted="time",
        ),
        "yesterday, the cook cooked",
        "gestern hat der Koch gekocht",
    ),
    (
        do(
            np("the", "birds"),
            "sing",
            "progressive",
            "activity",
            place=in_(np("the", "forest")),
            fronted="place",
        ),
        "in the forest, the birds are singing",
        "im Wald singen die Vögel",
    ),
    (
        do(IT, "rain", "past", "weather"),
        "it rained",
        "es hat geregnet",
    ),
]

# A clause and its question.
QUESTIONS = [
    (
        do(np("the", "cook"), "buy", "past", **BUY_BOOK),
        "did the cook buy a book",
        "hat der Koch ein Buch gekauft",
    ),
    (
        do(YOU, "call", "progressive", accusative=HE),
        "are you calling him",
        "rufst du ihn an",
    ),
    (
        do(
            YOU,
            "read",
            accusative=WHAT,
            fronted="accusative",
        ),
        "what do you read",
        "was liest du",
    ),
    (
        do(
            np("your", "son"),
            "thank",
            "past",
            "dative",
            dative=WHO,
            fronted="dative",
        ),
        "whom did your son thank",
        "wem hat dein Sohn gedankt",
    ),
    (
        do(
            YOU,
            "read",
            "past",
            "dative_with_to",
            dative=WHO,
            accusative=np("the", "story"),
            fronted="dative",
        ),
        "whom did you read the story to",
        "wem hast du die Geschichte vorgelesen",
    ),
    (
        do(ANNA, "meet", "future", accusative=WHO, fronted="accusative"),
        "whom will Anna meet",
        "wen wird Anna treffen",
    ),
    (
        do(WHO, "open", accusative=np("the", "window")),
        "who opens the window",
        "wer macht das Fenster auf",
    ),
    (
        do(
            WE,
            "leave",
            "future",
            "event",
            modal=MODAL["should"],
            time=Phrase("when", "wann"),
            fronted="time",
        ),
        "when should we leave",
        "wann sollten wir weggehen",
    ),
]

# A clause, what opens it, and its verb-last order.
SUBORDINATES = [
    (
        do(ME, "get up", frame="event", time=clock_time(7, 0)),
        "weil",
        "weil ich um sieben Uhr aufstehe",
    ),
    (
        do(ME, "get up", "past", "event", modal=MODAL["have"]),
        "weil",
        "weil ich aufstehen musste",
    ),
    (
        do(SHE, "arrive", "past", "event", time=YESTERDAY),
        "dass",
        "dass sie gestern angekommen ist",
    ),
    (
        do(HE, "buy", "future", negated=True, **BUY_BOOK),
        "ob",
        "ob er kein Buch kaufen wird",
    ),
    (do(IT, "rain", frame="weather"), "wenn", "wenn es regnet"),
    (
        Clause(ME, BE, "past", complement=Phrase("young", "jung")),
        "obwohl",
        "obwohl ich jung war",
    ),
    (
        do(
            np("my", "brother"),
            "help",
            "past",
            "dative",
            dative=WHO_RELATIVE["plural"],
            fronted="dative",
        ),
        "",
        "denen mein Bruder geholfen hat",
    ),
    (
        do(
            WHO_RELATIVE["masculine"],
            "work",
            "progressive",
            "activity",
            place=in_(np("a", "office")),
        ),
        "",
        "der in einem Büro arbeitet",
    ),
]


@pytest.mark.parametrize("clause, english, german", STATEMENTS)
def test_statement(clause, english, german):
    assert clauses.english_statement(clause) == english
    assert clauses.german_verb_second(clause) == german


@pytest.mark.parametrize("clause, english, german", QUESTIONS)
def test_question(clause, english, german):
    asks_word = clause.fronted != "subject" or clause.subject is WHO
    spell = (
        clauses.german_verb_second if asks_word else clauses.german_verb_first
    )
    assert clauses.english_question(clause) == english
    assert spell(clause) == german


@pytest.mark.parametrize("clause, opening, german", SUBORDINATES)
def test_verb_stands_last_in_subordinate_clause(clause, opening, german):
    assert clauses.german_verb_last(clause, opening) == german


def test_infinitive_of_purpose():
    fetch = do(HE, "pick up", accusative=np("the", "children"))
    read = do(HE, "read", accusative=np("a", "book"))
    assert (
        clauses.english_infinitive(fetch),
        clauses.german_zu_infinitive(fetch),
    ) == ("to pick up the children", "um die Kinder abzuholen")
    assert clauses.german_zu_infinitive(read) == "um ein Buch zu lesen"


# ------------------------------------------------------------------ paradigms

# Nominative, accusative, dative, as in any German grammar.
PARADIGMS = {
    ("the", "old dog"): "der alte Hund, den alten Hund, dem alten Hund",
    ("the", "old cat"): "die alte Katze, die alte Katze, der alten Katze",
    ("the", "old horse"): "das alte Pferd, das alte Pferd, dem alten Pferd",
    ("the", "old dogs"): "die alten Hunde, die alten Hunde, den alten Hunden",
    ("a", "old dog"): "ein alter Hund, einen alten Hund, einem alten Hund",
    ("a", "old cat"): "eine alte Katze, eine alte Katze, einer alten Katze",
    ("a", "old horse"): "ein altes Pferd, ein altes Pferd, einem alten Pferd",
    ("", "old dogs"): "alte Hunde, alte Hunde, alten Hunden",
    ("my", "old dogs"): (
        "meine alten Hunde, meine alten Hunde, meinen alten Hunden"
    ),
    ("our", "old dog"): (
        "unser alter Hund, unseren alten Hund, unserem alten Hund"
    ),
    ("no", "old cats"): (
        "keine alten Katzen, keine alten Katzen, keinen alten Katzen"
    ),
    (3, "old horses"): "drei alte Pferde, drei alte Pferde, drei alten Pferden",
    ("this", "tired boy"): (
        "dieser müde Junge, diesen müden Jungen, diesem müden Jungen"
    ),
    ("every", "child"): "jedes Kind, jedes Kind, jedem Kind",
    ("", "hot coffee"): "heißer Kaffee, heißen Kaffee, heißem Kaffee",
    ("", "cold milk"): "kalte Milch, kalte Milch, kalter Milch",
    ("", "fresh water"): "frisches Wasser, frisches Wasser, frischem Wasser",
    ("a", "expensive car"): (
        "ein teures Auto, ein teures Auto, einem teuren Auto"
    ),
    ("the", "dark kitchen"): (
        "die dunkle Küche, die dunkle Küche, der dunklen Küche"
    ),
    ("", "radios"): "Radios, Radios, Radios",
    ("their", "sister"): "ihre Schwester, ihre Schwester, ihrer Schwester",
}


@pytest.mark.parametrize("determiner, words", PARADIGMS)
def test_declension(determiner, words):
    phrase = np(determiner, *words.split())
    forms = [phrase.german(case) for case in CASES]
    assert ", ".join(forms) == PARADIGMS[determiner, words]


@pytest.mark.parametrize(
    "infinitive, changed, expected",
    [
        ("kaufen", "", "kaufe kaufst kauft kaufen"),
        ("arbeiten", "", "arbeite arbeitest arbeitet arbeiten"),
        ("finden", "", "finde findest findet finden"),
        ("laden", "läd", "lade lädst lädt laden"),
        ("lesen", "lies", "lese liest liest lesen"),
        ("essen", "iss", "esse isst isst essen"),
        ("nehmen", "nimm", "nehme nimmst nimmt nehmen"),
        ("regnen", "", "regne regnest regnet regnen"),
        ("räumen", "", "räume räumst räumt räumen"),
        ("tanzen", "", "tanze tanzt tanzt tanzen"),
        ("wissen", "", "weiß weißt weiß wissen"),
        ("sein", "", "bin bist ist sind"),
    ],
)
def test_conjugation(infinitive, changed, expected):
    forms = morphology.german_present(infinitive, changed)
    assert " ".join(forms) == expected


@pytest.mark.parametrize(
    "base, third, participle",
    [
        ("buy", "buys", "buying"),
        ("carry", "carries", "carrying"),
        ("wash", "washes", "washing"),
        ("go", "goes", "going"),
        ("have", "has", "having"),
        ("get", "gets", "getting"),
        ("put", "puts", "putting"),
        ("lie", "lies", "lying"),
        ("see", "sees", "seeing"),
        ("write", "writes", "writing"),
        ("eat", "eats", "eating"),
        ("open", "opens", "opening"),
        ("show", "shows", "showing"),
        ("travel", "travels", "traveling"),
    ],
)
def test_english_verb_forms(base, third, participle):
    assert morphology.english_s_form(base) == third
    assert morphology.english_participle(base) == participle


@pytest.mark.parametrize(
    "base, past",
    [
        ("watch", "watched"),
        ("close", "closed"),
        ("try", "tried"),
        ("stay", "stayed"),
        ("spot", "spotted"),
        ("visit", "visited"),
        ("travel", "traveled"),
    ],
)
def test_english_regular_past(base, past):
    assert morphology.english_past(base) == past


@pytest.mark.parametrize(
    "singular, plural",
    [("dog", "dogs"), ("box", "boxes"), ("city", "cities"), ("key", "keys")],
)
def test_english_regular_plural(singular, plural):
    assert morphology.english_s_form(singular) == plural


@pytest.mark.parametrize(
    "number, english, german",
    [
        (2, "two", "zwei"),
        (12, "twelve", "zwölf"),
        (16, "sixteen", "sechzehn"),
        (17, "seventeen", "siebzehn"),
        (30, "thirty", "dreißig"),
        (21, "twenty-one", "einundzwanzig"),
        (67, "sixty-seven", "siebenundsechzig"),
        (76, "seventy-six", "sechsundsiebzig"),
        (99, "ninety-nine", "neunundneunzig"),
    ],
)
def test_number(number, english, german):
    assert NUMBERS[number] == (english, german)


@pytest.mark.parametrize(
    "hour, minute, english, german",
    [
        (1, 0, "at one o'clock", "um ein Uhr"),
        (7, 0, "at seven o'clock", "um sieben Uhr"),
        (7, 30, "at half past seven", "um halb acht"),
        (12, 30, "at half past twelve", "um halb eins"),
        (1, 15, "at a quarter past one", "um Viertel nach eins"),
        (12, 45, "at a quarter to one", "um Viertel vor eins"),
        (6, 10, "at ten past six", "um zehn nach sechs"),
        (6, 40, "at twenty to seven", "um zwanzig vor sieben"),
    ],
)
def test_clock_time(hour, minute, english, german):
    assert clock_time(hour, minute) == (english, german)


def test_lexicon_is_well_formed():
    for noun in NOUN.values():
        assert noun.german[0].isupper()
        assert bool(noun.english_plural) == bool(noun.german_plural)
    for group in VERBS.values():
        for entry in group:
            assert entry.perfect.startswith(entry.prefix)
            assert set(entry.categories) <= set(NOUNS)
    for adjective in ADJECTIVES:
        assert set(adjective.categories) <= set(NOUNS)


def test_two_german_verbs_of_put_share_no_object():
    first, second = VERBS["placing"]
    assert not set(first.categories) & set(second.categories)


# --------------------------------------------------------------------- corpus


@pytest.fixture(scope="module")
def pairs():
    return make_split("train", 50_000)


def test_same_arguments_same_pairs():
    assert make_split("valid", 500) == make_split("valid", 500)


def test_more_pairs_begin_with_fewer():
    assert make_split("test", 30)[:10] == make_split("test", 10)


def test_english_sentences_are_distinct(pairs):
    assert len({english for english, _ in pairs}) == len(pairs) == 50_000


def test_equal_english_means_equal_german(pairs):
    german_of = dict(pairs)
    others = draw_pairs(random.Random(2))
    for english, german in itertools.islice(others, len(pairs)):
        assert german_of.setdefault(english, german) == german


def test_splits_share_no_sentence():
    splits = {name: make_split(name, 1500) for name in SPLITS}
    sentences = {english for split in splits.values() for english, _ in split}
    assert list(splits) == ["train", "valid", "test"]
    assert len(sentences) == 3 * 1500


def test_split_of_a_sentence_never_changes():
    splits = {name: dict(make_split(name, 200)) for name in SPLITS}
    for name, percentiles in SPLITS.items():
        for english in splits[name]:
            assert zlib.crc32(english.encode()) % 100 in percentiles


def test_sentences_are_spelled_cleanly(pairs):
    shape = re.compile(r"[A-ZÄÖÜ][a-zäöüßA-ZÄÖÜ',-]*( [\wäöüß',-]+)*[.?]")
    for pair in pairs:
        assert all(shape.fullmatch(text) for text in pair), pair
        assert pair[0][-1] == pair[1][-1]
        assert not any(",," in text or " ," in text for text in pair)
    lengths = [english.count(" ") + 1 for english, _ in pairs]
    assert 3 <= min(lengths) and max(lengths) <= 18


def test_article_of_english_fits_its_noun(pairs):
    wrong = re.compile(r"\b([Aa] [aeiou]|[Aa]n [^aeiou])")
    assert not [english for english, _ in pairs if wrong.search(english)]


def test_every_word_of_the_lexicon_is_used(pairs):
    english = " ".join(english for english, _ in pairs).lower()
    words = set(re.findall(r"[a-z'-]+", english))
    for noun in NOUN.values():
        assert noun.english in words
        assert not noun.english_plural or noun.english_plural in words
    for adjective in ADJECTIVES:
        assert adjective.english in words
    for group in VERBS.values():
        for entry in group:
            assert words & {entry.base, entry.third, entry.past}, entry.english
    names = {name.name.lower() for name in NAMES}
    cities = {city.lower() for city in CITIES}
    assert names | cities <= words


PHENOMENA = {
    "dative plural": r"\b(den|meinen|diesen) (Kindern|Männern|Ärzten)\b",
    "weak noun": r"\b(den|dem) (Jungen|Studenten|Nachbarn|Kollegen)\b",
    "inversion": r"^Gestern (hat|ist|haben|habe|hast) ",
    "separable main clause": r"\bsteht .*\bauf\.$",
    "separable subordinate": r", (dass|ob|weil|obwohl|wenn) .* aufsteht\.$",
    "separable participle": r"\baufgestanden\b",
    "separable zu-infinitive": r", um .*\babzuholen\.$",
    "perfect with sein": r"\b(ist|sind|bin|bist) .*\bgefahren\.$",
    "modal past": r"\b(musste|wollte|durfte)\b",
    "subordinate modal": r", weil .* (muss|musst|müssen)\.$",
    "future": r"\b(wird|werden|werde|wirst)\b",
    "kein": r"\bkeinen \w+\b",
    "nicht": r"\bnicht\b",
    "half hours": r"\bum halb eins\b",
    "quarter hours": r"\bum Viertel (vor|nach)\b",
    "numbers": r"[a-z]+und(zwanzig|dreißig|vierzig)\b",
    "contraction": r"\b(im|am|ins|zum|zur)\b",
    "strong adjective": r"\b(heißen Kaffee|kaltes Wasser|frische Milch)\b",
    "relative dative": r", denen .*\.$",
    "verb first behind a clause": r"^Wenn .*, (wird|muss|will|kann|darf) ",
    "when in the past": r"^Als .*, (hat|ist|musste|war)",
    "ago": r"\bvor drei Wochen\b",
    "duration": r"\b(Stunden|Minuten) lang\b",
    "wem": r"^Wem .*\?$",
    "gern": r"\bgern\b",
    "comparative": r"\b(älter|größer|teurer) als\b",
    "placing": r"\bauf (den|das|die) \w+ (gestellt|gelegt)\.",
}


@pytest.mark.parametrize("phenomenon", PHENOMENA)
def test_phenomenon_is_frequent(pairs, phenomenon):
    pattern = re.compile(PHENOMENA[phenomenon])
    count = sum(bool(pattern.search(german)) for _, german in pairs)
    assert count >= 10


@pytest.mark.parametrize(
    "name, size",
    [("train", 0), ("valid", -1), ("train", 800_001), ("test", 100_001)],
)
def test_impossible_sizes_are_refused(name, size):
    with pytest.raises(ValueError, match=f"Received: {name} of size {size}"):
        make_split(name, size)


def test_unknown_split_is_refused():
    with pytest.raises(ValueError, match="Received: name='dev'"):
        make_split("dev", 10)


# ------------------------------------------------------------------ coverage


def test_the_command_lists_words_and_constructions(capsys):
    phrasebook_command.main([])
    out = capsys.readouterr().out
    listed = " ".join(out.split())
    for entry in (*NOUN.values(), *ADJECTIVE.values()):
        assert f" {entry.english}," in listed or f" {entry.english} " in listed
    for group in VERBS.values():
        for entry in group:
            assert f" {entry.english}" in listed
    assert "any other word or construction" in listed
    examples = coverage.list_examples()
    assert len(examples) == len(sentences.CONSTRUCTIONS)
    for name, pairs in examples.items():
        assert f"{name}\n    {pairs[0][0]}\n    {pairs[0][1]}\n" in out


def test_all_words_of_the_corpus_are_known():
    """Each is a form of a listed word, or of numerals and clock times."""
    listed = set()
    for words in coverage.list_words().values():
        listed |= set(" ".join(words).lower().split())
    for noun in NOUN.values():
        listed.add(noun.english_plural)
    for adjective in ADJECTIVES:
        listed |= set(adjective.english_comparative.split())
    for group in VERBS.values():
        for entry in group:
            listed |= {entry.third, entry.past, entry.participle}
            listed |= set(entry.preposition[:2])
    for modal in (*MODALS, LIKE):
        for forms in (modal.present, modal.past or ()):
            listed |= set(forms)
    for pronoun in (*PRONOUNS.values(), WHO, WHAT):
        listed |= {form.lower() for form in pronoun.english_forms}
    for number in range(2, 100):
        listed.add(NUMBERS[number].english)
    # The closed classes: auxiliaries, prepositions, articles, clock times.
    listed |= set(
        "do does did not cannot will is are am was were an these than where"
        " why whom o'clock half past quarter at to one with without for of by"
        " in front behind on under next before after years old euros ago"
        " minutes hours days weeks".split()
    )
    unknown = set()
    for english, _ in make_split("valid", 1500):
        unknown |= set(re.sub("[.,?]", "", english).lower().split()) - listed
    assert not unknown


def test_limits_count_what_there_is():
    assert f"{len(NOUN)} nouns" in LIMITS[0]
    assert f"{len(sentences.CONSTRUCTIONS)} constructions" in LIMITS[0]
