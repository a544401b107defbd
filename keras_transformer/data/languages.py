"""The languages of a model, and how a multilingual model selects them.

A model of another system, such as NLLB-200, translates between many languages.
Special tokens name the languages of a sentence: see `LANGUAGE_TOKENS`.

A multilingual model that was trained here has one source language and several
target languages. The first word of a source, its tag, names the target language
(Johnson et al. 2017):

    <2de> A man sleeps.    Ein Mann schläft.
    <2fr> A man sleeps.    Un homme dort.
"""

import itertools
import re
import typing
from collections.abc import Iterable, Iterator, Sequence

from keras_transformer.base.fields import Fields, hp
from keras_transformer.data.files.pairs import (
    Pairs,
    has_file,
    read_aligned_files,
)

Row = typing.TypeVar("Row", bound=tuple)  # its first item is a source
SHOWN = 10  # languages in a message, if there are very many
# From three-letter codes (ISO 639-3), as in NLLB-200, to the two-letter codes
# by which tokenizers and sentence splitters have rules.
_SHORT_CODES = dict(
    pair.split(":")
    for pair in """
        amh:am arb:ar asm:as ben:bn bod:bo bul:bg cat:ca ces:cs cmn:zh dan:da
        deu:de dzo:dz ell:el eng:en est:et fin:fi fra:fr gle:ga guj:gu heb:he
        hin:hi hrv:hr hun:hu hye:hy ind:id isl:is ita:it jpn:ja kan:kn kat:ka
        kaz:kk khm:km kor:ko lao:lo lit:lt lvs:lv mal:ml mar:mr mya:my nld:nl
        nno:nn nob:nb npi:ne ory:or pan:pa pes:fa pol:pl por:pt ron:ro rus:ru
        slk:sk slv:sl spa:es srp:sr swe:sv tam:ta tel:te tha:th tur:tr ukr:uk
        urd:ur vie:vi zho:zh
    """.split()
)

_RIGHT_TO_LEFT = "ar arc azb ckb dv fa he iw ks nqo ps sd syr ug ur yi".split()
_RIGHT_TO_LEFT_SCRIPTS = "adlm arab hebr mand nkoo rohg syrc thaa".split()


def base_language(code: str) -> str:
    """Returns the language of a code, in two letters if there are rules for it.

    >>> [base_language(c) for c in ("zh-Hant", "zh_CN", "zho_Hans", "yue")]
    ['zh', 'zh', 'zh', 'yue']
    """
    base = code.lower().replace("_", "-").split("-")[0]
    return _SHORT_CODES.get(base, base)


def is_right_to_left(code: str) -> bool:
    """Returns whether a language is written from right to left.

    >>> [is_right_to_left(c) for c in ("ar-EG", "pes_Arab", "en", "ur_Latn")]
    [True, True, False, False]
    """
    scripts = re.findall(r"[-_]([A-Za-z]{4})(?![^-_])", code)
    if scripts:
        return scripts[0].lower() in _RIGHT_TO_LEFT_SCRIPTS
    return base_language(code) in _RIGHT_TO_LEFT


def name_of(code: str) -> str:
    """Returns the English name of a language, or the code if it is unknown.

    >>> name_of("de"), name_of("pt_BR"), name_of("source")
    ('German', 'Portuguese (Brazil)', 'source')
    """
    import babel  # an extra

    try:
        return babel.Locale.parse(code.replace("-", "_")).get_display_name("en")
    except (ValueError, babel.UnknownLocaleError):
        return code


class Direction(typing.NamedTuple):
    """The tokens that name the languages of a sentence, "" for none."""

    before: str = ""  # in front of the source
    after: str = ""  # after the EOS of the source
    output: str = ""  # the first token of the output


class LanguageTokens(typing.NamedTuple):
    """The form and the places of language tokens in a family of models."""

    form: str  # a token, with {} for the code of the language
    places: dict[str, str]  # fields of `Direction`, with "source" or "target"

    def direction(self, **languages: str | None) -> Direction | None:
        """Returns the tokens of the languages `source` and `target`.

        Returns None if a language that the model needs is None.
        """
        if None in map(languages.get, self.places.values()):
            return None
        return Direction(
            **{
                place: self.form.format(languages[side])
                for place, side in self.places.items()
            }
        )


_FIRST = {"before": "source", "output": "target"}
LANGUAGE_TOKENS = {
    "m2m100": LanguageTokens("__{}__", _FIRST),
    "small100": LanguageTokens("__{}__", {"before": "target"}),
    "nllb": LanguageTokens("{}", _FIRST),
    "nllb_legacy": LanguageTokens(
        "{}", {"after": "source", "output": "target"}
    ),
    "mbart50": LanguageTokens("{}", _FIRST),
    # Its decoder starts with the language, instead of BOS.
    "mbart": LanguageTokens("{}", {"after": "source"}),
}


class Languages(Fields):
    """The languages of a model.

    They are empty if its task is not translation.
    """

    source_language: str = hp(
        "",
        "Language to translate from, or several, separated by commas, of a"
        " model with language_tokens.",
        inherited=True,
        common=True,
    )
    target_language: str = hp(
        "",
        "Language to translate into, or several, separated by commas: see"
        " docs/multilingual.md.",
        inherited=True,
        common=True,
    )
    language_tokens: str = hp(
        "",
        "How tokens tell the model its languages: as in a family of models of"
        " other systems, such as m2m100. Default: see docs/multilingual.md.",
        choices=("", *LANGUAGE_TOKENS),
        inherited=True,
    )

    @property
    def sources(self) -> list[str]:
        """The languages to translate from, `[""]` if they are unknown."""
        return self.source_language.split(",")

    @property
    def targets(self) -> list[str]:
        """The languages to translate into, `[""]` if they are unknown."""
        return self.target_language.split(",")

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The source and target language of each direction.

        >>> Languages("en,de", "de,fr", "nllb").pairs
        [('en', 'de'), ('en', 'fr'), ('de', 'fr')]
        """
        pairs = itertools.product(self.sources, self.targets)
        if not self.language_tokens:
            return list(pairs)
        return [pair for pair in pairs if pair[0] != pair[1]]

    def direction(
        self, source: str | None = None, target: str | None = None
    ) -> Direction | None:
        """Returns the tokens that name the languages of a sentence.

        An argument None means the model's only language. Returns None if the
        model has several and needs one; with tags, the text then begins with a
        tag. Raises ValueError if the model lacks a language, or if both are the
        same.

        >>> Languages("en,fr", "de", "m2m100").direction("en")
        Direction(before='__en__', after='', output='__de__')
        >>> Languages("en", "de,fr").direction(target="fr")
        Direction(before='<2fr>', after='', output='')
        >>> Languages("en", "de").direction()
        Direction(before='', after='', output='')
        """
        source = _choose("source_language", "from", self.sources, source)
        target = _choose("target_language", "into", self.targets, target)
        if source == target and source:
            raise ValueError(
                "source_language and target_language must differ. Received:"
                f" source_language={source!r}, target_language={target!r}"
            )
        if self.language_tokens:
            tokens = LANGUAGE_TOKENS[self.language_tokens]
            return tokens.direction(source=source, target=target)
        if not self.tags:
            return Direction()
        return Direction(self.tags[target]) if target else None

    def pairs_in(self, *prefixes: str) -> list[tuple[str, str]]:
        """Returns those of `pairs` for which a prefix has both files."""
        return [
            codes for codes in self.pairs if prefixes_with(prefixes, *codes)
        ]

    @property
    def tags(self) -> dict[str, str]:
        """The tag of each target language.

        Empty with one target language or with `language_tokens`.

        >>> Languages("en", "de,fr").tags, Languages("en", "de").tags
        ({'de': '<2de>', 'fr': '<2fr>'}, {})
        """
        if self.language_tokens or len(self.targets) == 1:
            return {}
        return {language: f"<2{language}>" for language in self.targets}

    @property
    def tokens(self) -> tuple[str, ...]:
        """All language tokens that `direction` can return, without tags."""
        if not self.language_tokens:
            return ()
        found = [self.direction(*codes) or () for codes in self.pairs]
        return tuple(dict.fromkeys(t for tokens in found for t in tokens if t))

    @property
    def directions(self) -> dict[str, str]:
        """The target language of each tag; {"": language} without tags."""
        languages = {tag: language for language, tag in self.tags.items()}
        return languages or {"": self.target_language}

    def directions_in(self, *prefixes: str) -> dict[str, str]:
        """Returns `pairs_in` like {"en-de": "de"}, or `directions` if none.

        With tags these are the names, as in `directions`.
        """
        if not (self.tags or self.language_tokens):
            return self.directions
        found = {
            self.tags.get(codes[1], "-".join(codes)): codes[1]
            for codes in self.pairs_in(*prefixes)
        }
        return found or self.directions


def _choose(name, preposition, languages, chosen):
    """Returns the chosen language, else the only one, else None.

    Raises ValueError if the model lacks the chosen language.
    """
    if chosen is None:
        return languages[0] if len(languages) == 1 else None
    if chosen not in languages:
        raise ValueError(
            f"{name} must be one that the model translates {preposition}:"
            f" {shortened(languages)}. Received: {name}={chosen!r}"
        )
    return chosen


def shortened(codes: Sequence[str]) -> str:
    """Joins language codes for a message: all, or the first ten of many.

    >>> shortened(["en", "de"]), shortened(list("abcdefghijklmnopqrstuvw"))
    ('en, de', 'a, b, c, d, e, f, g, h, i, j and 13 others')
    """
    if len(codes) <= 2 * SHOWN:
        return ", ".join(codes)
    return f"{', '.join(codes[:SHOWN])} and {len(codes) - SHOWN} others"


def prefixes_with(prefixes: Sequence[str], *languages: str) -> tuple[str, ...]:
    """Returns the prefixes that have a file in each of the languages."""
    return tuple(
        prefix
        for prefix in prefixes
        if all(has_file(prefix, language) for language in languages)
    )


def read_directions(prefixes: Sequence[str], languages: Languages) -> Pairs:
    """Reads the pairs of all directions, one after the other.

    A direction has the pairs of each prefix with files in both languages. With
    tags, each source begins with its tag, but a blank source stays blank.
    A direction without files has none. `sizes` has the number of pairs in each
    of the others.

    Raises FileNotFoundError if a prefix has files for no direction. Raises
    ValueError as `read_aligned_files` does.
    """
    tags = languages.tags
    for prefix in prefixes:
        # With tags, a missing source is named when it is read.
        wanted = [(t,) for t in tags] or languages.pairs
        if not any(prefixes_with([prefix], *codes) for codes in wanted):
            endings = " or ".join(f"{prefix}.{language}" for language in tags)
            if not tags:  # any of its directions will do
                endings = " and ".join(f"{prefix}.{c}" for c in wanted[0])
            raise FileNotFoundError(f"No such file: {endings}, or their .gz")
    directions = {
        (source, target): read_aligned_files(files, source, target)
        for source, target in languages.pairs
        if (
            files := prefixes_with(
                prefixes, *(() if tags else (source,)), target
            )
        )
    }

    def read() -> Iterator[tuple[str, str]]:
        for (_, language), pairs in directions.items():
            tag = f"{tags[language]} " if tags else ""
            for source, target in pairs:
                yield source and f"{tag}{source}", target

    sizes = [len(pairs) for pairs in directions.values()]
    return Pairs(read, sum(sizes), sizes, () if tags else list(directions))


def with_tag(rows: Iterable[Row], tag: str) -> list[Row]:
    """Returns the rows, such as pairs, whose source begins with a tag."""
    return [row for row in rows if row[0].startswith(tag)]
