"""Text as papers of 2017 tokenized it for BLEU: Moses' tokenizer.perl.

The rules follow its version of December 2016, used at the time of the paper;
since November 2018 Moses also splits the last period of a line from an
abbreviation. Special characters are not escaped (`-no-escape`), which changes
no n-gram that matches.

Differs from Moses: the built-in abbreviations are our own lists, for English,
German and French. Moses' files of non-breaking prefixes can be given instead.
"""

import os
import pathlib

import regex

from keras_transformer.data.pairs import read_lines

DOTS = "\x00"  # stands for a dot of "..."; such characters are removed before
DIGITS = tuple("0123456789")

LETTERS = "A B C D E F G H I J K L M N O P Q R S T U V W X Y Z"
TITLES = "Col Dr Gen Gov Hon Jr Lt Maj Mr Mrs Ms Prof Rep Rev Sen Sgt Sr St"
ROMAN = (
    "i ii iii iv v vi vii viii ix x xi xii xiii xiv xv xvi xvii xviii xix xx"
)
# Words before a period that does not end a sentence.
ABBREVIATIONS = {
    "en": f"{LETTERS} {TITLES} Adm Capt Cmdr Co Corp Inc Ltd Messrs Ph Rt Supt"
    " e.g i.e rev v vs",
    "de": f"{LETTERS} {LETTERS.lower()} {TITLES} {ROMAN} {ROMAN.upper()} Art"
    " Buchst Ca Chr Co Corp Dkr Ing Ltd Mio Mrd MwSt Nr Std Zt bzgl bzw ca"
    " dergl dgl etc evtl ff ggf jun pp sen sog sogen spp usf usw vgl vs zzt "
    + " ".join(map(str, range(1, 100))),  # "3. Mai" is the third of May
    "fr": f"{LETTERS} {LETTERS.lower()} Dr Mgr MM Mlle Mme Prof St art av bd"
    " cf env etc ex fig hab no p.ex pp tél vol vs",
}
ABBREVIATIONS_BEFORE_NUMBERS = {"en": "Art No Nos pp"}

# Characters outside words, except the marks that need more rules.
_SPECIAL = regex.compile(r"([^\p{Alphabetic}\p{Nd}\s.'`,\-])")
_WORD_AND_PERIOD = regex.compile(r"(\S+)\.")
_LETTER = regex.compile(r"\p{Alphabetic}")
_LOWER = regex.compile(r"\p{Lowercase}")
_COMPOUND = regex.compile(r"(\S)-(\S)")
# Substitutions that separate apostrophes, by language, in order.
_APOSTROPHES = {
    "en": (
        (r"(\P{Alphabetic})'(\P{Alphabetic})", r"\1 ' \2"),
        (r"([^\p{Alphabetic}\p{N}])'(\p{Alphabetic})", r"\1 ' \2"),
        (r"(\p{Alphabetic})'(\P{Alphabetic})", r"\1 ' \2"),
        (r"(\p{Alphabetic})'(\p{Alphabetic})", r"\1 '\2"),  # it 's
        (r"(\p{N})'(s)", r"\1 '\2"),  # 1990 's
    ),
    "fr": (
        (r"(\P{Alphabetic})'(\P{Alphabetic})", r"\1 ' \2"),
        (r"(\P{Alphabetic})'(\p{Alphabetic})", r"\1 ' \2"),
        (r"(\p{Alphabetic})'(\P{Alphabetic})", r"\1 ' \2"),
        (r"(\p{Alphabetic})'(\p{Alphabetic})", r"\1' \2"),  # l' eau
    ),
}
_APOSTROPHES["it"] = _APOSTROPHES["ga"] = _APOSTROPHES["fr"]


class MosesTokenizer:
    """Tokenizes lines of a language, as BLEU of tokenized text needs it.

    Args:
        language: First part of a language code, such as "de". Languages without
            rules of their own follow the general ones.
        prefixes: Path of one of Moses' `nonbreaking_prefixes`, such as
            `nonbreaking_prefix.de`. By default the list above, or the English
            one for languages without a list.

    Attributes:
        name: Name in signatures, such as "moses-de".

    Raises:
        ValueError: The file is not UTF-8.
        OSError: It cannot be read.

    >>> MosesTokenizer("de")('Am 3. Mai, "heute"...')
    'Am 3. Mai , " heute " ...'
    """

    def __init__(
        self, language: str, prefixes: str | os.PathLike | None = None
    ):
        self.language = language
        self.name = f"moses-{language}"
        if prefixes is None:
            listed = language if language in ABBREVIATIONS else "en"
            self._always = frozenset(ABBREVIATIONS[listed].split())
            self._before_numbers = frozenset(
                ABBREVIATIONS_BEFORE_NUMBERS.get(listed, "").split()
            )
        else:
            self.name += f"-{pathlib.Path(prefixes).name}"
            self._always, self._before_numbers = read_prefixes(prefixes)

    def __call__(self, line: str) -> str:
        """The tokens of a line, with a space between them."""
        # Perl knows fewer spaces than Python: regex's \s is Unicode's.
        text = regex.sub(r"\s+", " ", f" {line} ")
        text = regex.sub(r"[\x00-\x1f]", "", text).strip(" ")
        text = _SPECIAL.sub(r" \1 ", text)
        text = regex.sub(
            r"\.{2,}", lambda dots: f" {DOTS * len(dots[0])} ", text
        ).rstrip(" ")
        text = self._split_commas(text)
        text = self._split_apostrophes(text)
        text = " ".join(self._split_periods(text.split(" ")))
        text = regex.sub(r"\.' ?$", " . ' ", text)
        return " ".join(text.split(" ")).strip(" ").replace(DOTS, ".")

    def _split_commas(self, text):
        """Separates commas, except between digits."""
        text = regex.sub(r"(\P{N}),", r"\1 , ", text)
        text = regex.sub(r",(\P{N})", r" , \1", text)
        return regex.sub(r"(\p{N}),$", r"\1 ,", text)

    def _split_apostrophes(self, text):
        if self.language not in _APOSTROPHES:
            return text.replace("'", " ' ")
        for pattern, replacement in _APOSTROPHES[self.language]:
            text = regex.sub(pattern, replacement, text)
        return text

    def _split_periods(self, words):
        """Yields the words, with periods apart unless they abbreviate."""
        words = [word for word in words if word]
        for word, following in zip(words, [*words, ""][1:], strict=True):
            found = _WORD_AND_PERIOD.fullmatch(word)
            if found and not self._is_abbreviation(found[1], following):
                word = f"{found[1]} ."
            yield word

    def _is_abbreviation(self, word, following):
        """Whether the period after a word is a part of it."""
        return bool(
            ("." in word and _LETTER.search(word))
            or word in self._always
            or _LOWER.match(following)
            or (word in self._before_numbers and following[:1] in DIGITS)
        )


def read_prefixes(
    path: str | os.PathLike,
) -> tuple[frozenset[str], frozenset[str]]:
    """Reads a file of prefixes: non-breaking always, and before numbers."""
    always: set[str] = set()
    before_numbers: set[str] = set()
    for line in read_lines(pathlib.Path(path)):
        if not line or line.startswith("#"):
            continue
        # The condition is #NUMERIC_ONLY#: an abbreviation before a number.
        word, _, condition = line.partition(" ")
        (before_numbers if condition else always).add(word)
    return frozenset(always), frozenset(before_numbers)


def split_compounds(tokenized: str) -> str:
    """Splits compounds at hyphens: "rich-text" is three tokens.

    The paper's BLEU for English to German is measured this way, as in earlier
    papers: `s{(\\S)-(\\S)}{$1 ##AT##-##AT## $2}g`.

    >>> split_compounds("a rich-text format")
    'a rich ##AT##-##AT## text format'
    """
    return _COMPOUND.sub(r"\1 ##AT##-##AT## \2", tokenized)
