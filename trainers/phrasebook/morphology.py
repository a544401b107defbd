"""Forms of words: numerals, determiners, endings, conjugation."""

import functools
import re

# Agreement of a verb with its subject. German `ihr` is missing, so that all
# plural subjects share their forms, and the paradigms have these four cells.
FIRST, SECOND, THIRD, PLURAL = range(4)

NOMINATIVE, ACCUSATIVE, DATIVE = "nominative", "accusative", "dative"
CASES = (NOMINATIVE, ACCUSATIVE, DATIVE)
GENDERS = {"der": "masculine", "die": "feminine", "das": "neuter"}

# Numerals from 0 to 99; German puts the ones before the tens: einundzwanzig.
_ENGLISH_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve"
    " thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
).split()
_GERMAN_ONES = (
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf"
    " dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn"
).split()
ENGLISH_NUMBERS = _ENGLISH_ONES + [
    tens + ones
    for tens in "twenty thirty forty fifty sixty seventy eighty ninety".split()
    for ones in ["", *(f"-{ones}" for ones in _ENGLISH_ONES[1:10])]
]
GERMAN_NUMBERS = _GERMAN_ONES + [
    ones + tens
    for tens in (
        "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig"
    ).split()
    for ones in ["", "einund", *(f"{ones}und" for ones in _GERMAN_ONES[2:10])]
]


# Determiner -> German stem. Der, dieser and jeder always show gender and case;
# ein, kein and mein sometimes do not.
DER_WORDS = {"the": "d", "this": "dies", "every": "jed"}
EIN_WORDS = {
    "a": "ein",
    "no": "kein",
    "my": "mein",
    "your": "dein",
    "his": "sein",
    "her": "ihr",
    "our": "unser",
    "their": "ihr",
}
STEMS = DER_WORDS | EIN_WORDS

# The strong endings: each shows gender (or plural) and case.
STRONG_ENDINGS = {
    "masculine": {NOMINATIVE: "er", ACCUSATIVE: "en", DATIVE: "em"},
    "feminine": {NOMINATIVE: "e", ACCUSATIVE: "e", DATIVE: "er"},
    "neuter": {NOMINATIVE: "es", ACCUSATIVE: "es", DATIVE: "em"},
    "plural": {NOMINATIVE: "e", ACCUSATIVE: "e", DATIVE: "en"},
}

# Where an ein-word has no ending.
BARE_EIN = {
    ("masculine", NOMINATIVE),
    ("neuter", NOMINATIVE),
    ("neuter", ACCUSATIVE),
}


@functools.cache
def _shown_ending(determiner, gender, case):
    """The ending by which a determiner shows gender and case, or ""."""
    is_bare = determiner in EIN_WORDS and (gender, case) in BARE_EIN
    if is_bare or determiner not in STEMS:
        return ""
    return STRONG_ENDINGS[gender][case]


def german_determiner(determiner, gender, case):
    """The German form of an English determiner, "" for none or a numeral.

    Args:
        determiner: A key of `DER_WORDS` or `EIN_WORDS`, or "".
        gender: "masculine", "feminine", "neuter", or "plural".
        case: A member of `CASES`.

    >>> german_determiner("the", "masculine", "dative")
    'dem'
    >>> german_determiner("my", "neuter", "accusative")
    'mein'
    """
    ending = _shown_ending(determiner, gender, case)
    if determiner == "the":
        ending = {"e": "ie", "es": "as"}.get(ending, ending)
    return STEMS.get(determiner, "") + ending


def adjective_ending(determiner, gender, case):
    """The ending of an attributive adjective.

    If the determiner shows gender and case, the ending is weak: "-e" in the
    nominative singular and in an accusative that equals it, else "-en".
    Otherwise the adjective shows them: the ending is strong.

    >>> [adjective_ending(d, "neuter", "nominative") for d in ("the", "a")]
    ['e', 'es']
    """
    if not _shown_ending(determiner, gender, case):
        return STRONG_ENDINGS[gender][case]
    unmarked = case == NOMINATIVE or (
        case == ACCUSATIVE and gender != "masculine"
    )
    return "e" if unmarked and gender != "plural" else "en"


# German present of the verbs that follow no rule: ich, du, er, wir.
IRREGULAR_PRESENT = {
    "sein": ("bin", "bist", "ist", "sind"),
    "haben": ("habe", "hast", "hat", "haben"),
    "werden": ("werde", "wirst", "wird", "werden"),
    "wissen": ("weiß", "weißt", "weiß", "wissen"),
}

# The verbs whose past is the Präteritum, not the Perfekt.
PRETERITE = {
    "sein": ("war", "warst", "war", "waren"),
    "haben": ("hatte", "hattest", "hatte", "hatten"),
}


def german_present(infinitive, changed_stem=""):
    """The present tense: ich, du, er, wir.

    Args:
        infinitive: Without a separable prefix.
        changed_stem: The stem of `du` and `er`, if their vowel changes.

    >>> german_present("arbeiten")
    ('arbeite', 'arbeitest', 'arbeitet', 'arbeiten')
    >>> german_present("lesen", "lies")
    ('lese', 'liest', 'liest', 'lesen')
    """
    if infinitive in IRREGULAR_PRESENT:
        return IRREGULAR_PRESENT[infinitive]
    stem = infinitive.removesuffix("en")
    singular = changed_stem or stem
    # After such a stem, -st and -t cannot be pronounced without an e.
    needs_e = not changed_stem and re.search("[dt]$|[^aeiouhlmnr][mn]$", stem)
    link = "e" if needs_e else ""
    second = "t" if singular[-1] in "sßxz" else f"{link}st"
    return (stem + "e", singular + second, f"{singular}{link}t", infinitive)


def english_s_form(word):
    """The third person singular (buys, carries), or a plural (boxes)."""
    if word == "have":
        return "has"
    if re.search("(s|sh|ch|x|z|o)$", word):
        return word + "es"
    return re.sub("([^aeiou])y$", r"\1ie", word) + "s"


def _doubled(verb):
    """The verb before an ending: a short syllable doubles its consonant."""
    is_short = re.fullmatch("[^aeiou]*[aeiou][bdgmnpt]", verb)
    return verb + verb[-1] if is_short else verb


def english_past(verb):
    """The past of a regular verb: walked, closed, carried, spotted."""
    stem = re.sub("([^aeiou])y$", r"\1i", _doubled(verb))
    return stem.removesuffix("e") + "ed"


def english_participle(verb):
    """The present participle: buying, writing, putting, lying."""
    if verb.endswith("ie"):
        return verb[:-2] + "ying"
    return re.sub("([^e])e$", r"\1", _doubled(verb)) + "ing"


def with_article(words):
    """The words with "a" or "an" before them."""
    return ("an " if words[0] in "aeiou" else "a ") + words
