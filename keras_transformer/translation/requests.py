"""The record of one sentence, from its text to the arrays of a search.

    Request      the text, and what its translation must have
    Row          the same in ids, as the model reads them
    Constraints  arrays of a batch of rows, in the state of the search

A new input of a sentence, such as the terms of a glossary, is a field of these
three and a rule in `decoding/rules.py`. All code between passes them on and
does not look inside.
"""

import dataclasses
import hashlib
import re
import typing
from collections.abc import Sequence

from keras_transformer.config import DecodingConfig
from keras_transformer.data.languages import Direction
from keras_transformer.refusals import expect
from keras_transformer.tokenization import Tokenizer, TokenizerPair
from keras_transformer.translation.automaton import Automaton, make_automaton
from keras_transformer.translation.glossary import SPACELESS, Glossary
from keras_transformer.translation.limits import Limits
from keras_transformer.vocabulary import EOS, UNK

SHOWN = 60  # characters of a long sentence that a message shows


@dataclasses.dataclass(frozen=True)
class Request:
    """A sentence to translate.

    Attributes:
        text: The sentence.
        prefix: The beginning of its translation, "" for a free one. It is
            forced token by token: after "hou", the model cannot go on to
            "house" if that is one token.
        terms: What the translation must have: for each term its forms, one of
            which suffices.
        avoid: Words and phrases that the translation must not have.
        seed: Of samples; None for that of the translator.
        direction: What tells the model the languages; None for that of the
            translator.
    """

    text: str
    prefix: str = ""
    terms: tuple[tuple[str, ...], ...] = ()
    avoid: tuple[str, ...] = ()
    seed: int | None = None
    direction: Direction | None = None

    @property
    def as_source(self) -> "Request":
        """Its text and direction: of a pair with a given translation."""
        return Request(self.text, direction=self.direction)


@dataclasses.dataclass(frozen=True)
class Terminology:
    """What the translations of some texts must have, and must not have."""

    # Terms of the texts, with their translations.
    glossary: Glossary = dataclasses.field(default_factory=lambda: Glossary(()))
    avoid: tuple[str, ...] = ()  # as in `Request`

    def __post_init__(self):
        expect(all(map(str.strip, self.avoid)), "words in avoid", "a blank one")

    @property
    def sums(self) -> dict[str, str]:
        """SHA-256 of glossary and forbidden words, if any."""
        sums = {}
        if self.glossary.terms:
            sums["glossary_sha256"] = self.glossary.sha256
        if self.avoid:
            text = "\n".join(self.avoid)
            sums["avoid_sha256"] = hashlib.sha256(text.encode()).hexdigest()
        return sums

    def check(self, decoding: DecodingConfig) -> None:
        """Raises ValueError if a translator samples, which needs a search."""
        if self.glossary.terms and decoding.sampling:
            raise ValueError(
                "glossary excludes sampling. Received: sampling=True"
            )

    def of(self, request: Request) -> Request:
        """The request with the terms of its text, and the forbidden words."""
        terms = self.glossary.terms_of(request.text)
        if not terms and not self.avoid:
            return request
        return dataclasses.replace(
            request,
            terms=(*request.terms, *terms),
            avoid=(*request.avoid, *self.avoid),
        )


NO_TERMINOLOGY = Terminology()


class Row(typing.NamedTuple):
    """A sentence in ids."""

    # Language tokens, the text's, EOS, then language tokens; `[EOS]` if blank.
    source_ids: list[int]
    tag_length: int = 0  # number of tokens before the text
    # Tokens of the target that are given: those that the output begins with; or
    # all of a translation to score, EOS included.
    target_ids: Sequence[int] = ()
    notes: Sequence[str] = ()  # a sentence for each truncation
    num_given: int = 0  # how many are language tokens, which do not count
    # For each term the tokens of its forms, and its forms.
    terms: Sequence[Sequence[tuple[int, ...]]] = ()
    term_texts: Sequence[Sequence[str]] = ()
    avoid: tuple[str, ...] = ()  # as in `Request`
    # The phrases that write these words, as far as they are known.
    forbidden: frozenset[tuple[int, ...]] = frozenset()
    # Of terms and forbidden phrases; None if there are none.
    automaton: Automaton | None = None
    # For the text of the output, if it has terms or words to avoid.
    tokenizer: Tokenizer | None = None
    seed: int = 0  # of samples
    sample: int = 0  # number of the sample, from 0

    @property
    def has_terms(self) -> bool:
        """Whether the output must have a term."""
        return self.automaton is not None and bool(self.automaton.sizes)

    @property
    def required_ids(self) -> list[int]:
        """Tokens that the search must know."""
        tokens = self.automaton.tokens if self.automaton else []
        return [*self.target_ids, *tokens]


class UntaggedError(ValueError):
    """A source, with its index, without a tag, for several target languages."""

    def __init__(self, index: int, source: str, tags: Sequence[str]):
        super().__init__(
            "a source must begin with its target language, one of the words"
            f" {' '.join(tags)}. Received: {source!r}"
        )
        self.index = index


Sentences: typing.TypeAlias = Sequence[str | Request]
SentencePairs: typing.TypeAlias = Sequence[tuple[str | Request, str]]


def make_requests(
    strings: Sentences, prefixes: Sequence[str] | None = None
) -> list[Request]:
    """A `Request` for each sentence, with the prefixes, if there are any.

    Raises TypeError for anything but lists of `str` or of `Request`s.
    """
    _check_strings(strings, (str, Request))
    requests = [Request(s) if isinstance(s, str) else s for s in strings]
    if prefixes is None:
        return requests
    _check_strings(prefixes, str)
    if len(prefixes) != len(strings):
        raise ValueError(
            "expected one prefix for each string."
            f" Received: {len(prefixes)} and {len(strings)}"
        )
    return [
        dataclasses.replace(request, prefix=prefix)
        for request, prefix in zip(requests, prefixes, strict=True)
    ]


class Encoding(typing.NamedTuple):
    """How the sentences of a translator become ids."""

    tokenizer: Tokenizer | TokenizerPair  # for both sides
    limits: Limits  # which truncate them
    tags: Sequence[str] = ()  # one must begin a text without a direction
    # Of the sentences without one; None if each must have it.
    direction: Direction | None = Direction()
    seed: int = 0  # of those without one

    def direction_of(self, request: Request) -> Direction | None:
        """The direction of a sentence; None if its text begins with a tag."""
        own = request.direction
        return self.direction if own is None else own

    def tokenizer_of(self, request: Request) -> Tokenizer | TokenizerPair:
        """The tokenizer for text of both sides.

        Where tokens of a direction are given, tags in text are text.
        """
        return text_tokenizer(self.tokenizer, self.direction_of(request))

    def split(
        self, requests: Sequence[Request]
    ) -> dict[Direction | None, list[int]]:
        """The indices of the sentences of each direction."""
        found: dict[Direction | None, list[int]] = {}
        for index, request in enumerate(requests):
            found.setdefault(self.direction_of(request), []).append(index)
        return found


def text_tokenizer(
    tokenizer: Tokenizer | TokenizerPair, direction: Direction | None
) -> Tokenizer | TokenizerPair:
    """As `Encoding.tokenizer_of`, of a direction."""
    if direction in (None, Direction()):
        return tokenizer
    return TokenizerPair(
        tokenizer.source.without_tags, tokenizer.target.without_tags
    )


def encode(requests: Sequence[Request], encoding: Encoding) -> list[Row]:
    """A `Row` for each sentence.

    Every sentence that is not blank gets the tokens of its direction, or begins
    with a tag, if there are any.

    Raises UntaggedError: it does not; ValueError: there is no direction.
    """
    rows = _sources(requests, encoding)
    automata: dict = {}  # many sentences may have the same terms
    for i, request in enumerate(requests):
        own = encoding.seed if request.seed is None else request.seed
        if own != rows[i].seed:
            rows[i] = rows[i]._replace(seed=own)
        if not (request.terms or request.avoid or request.prefix):
            continue
        target = encoding.tokenizer_of(request).target
        rows[i] = rows[i]._replace(avoid=request.avoid, tokenizer=target)
        if request.terms:
            key = request.terms, encoding.direction_of(request)
            if key not in automata:
                terms = [phrase_ids(target, forms) for forms in request.terms]
                automata[key] = with_phrases(rows[i]._replace(terms=terms))
            rows[i] = rows[i]._replace(
                terms=automata[key].terms,
                term_texts=request.terms,
                automaton=automata[key].automaton,
            )
        if request.prefix:
            [ids] = target.to_prefixes([request.prefix])
            ids = [*rows[i].target_ids, *ids]
            rows[i] = _with_prefix(rows[i], ids, encoding.limits)
    return rows


def fits(encoding: Encoding, string: str) -> bool:
    """Whether a sentence is not truncated."""
    [row] = encode([Request(string)], encoding)
    return not row.notes


def encode_pairs(pairs: SentencePairs, encoding: Encoding) -> list[Row]:
    """As `encode`, for pairs of a sentence and a given translation."""
    requests = pair_requests(pairs)
    rows = _sources(requests, encoding)
    for direction, indices in encoding.split(requests).items():
        given = given_ids(encoding, direction)
        targets = _truncated(
            text_tokenizer(encoding.tokenizer, direction).target,
            [pairs[i][1] for i in indices],
            encoding.limits.max_target_length - len(given),
        )
        for i, (ids, notes) in zip(indices, targets, strict=True):
            rows[i] = rows[i]._replace(
                target_ids=[*given, *ids],
                num_given=len(given),
                notes=[*rows[i].notes, *notes],
            )
    return rows


def pair_requests(pairs: SentencePairs) -> list[Request]:
    """The sentences of pairs.

    Raises TypeError: it is no list of pairs of `str`; ValueError: a `Request`
    asks for what a given translation excludes.
    """
    _check_list(
        "pairs must be a list of (source, translation), both str",
        pairs,
        lambda pair: (
            isinstance(pair, (list, tuple))
            and len(pair) == 2
            and isinstance(pair[0], (str, Request))
            and isinstance(pair[1], str)
        ),
    )
    requests = make_requests([source for source, _ in pairs])
    for request in requests:
        if request != request.as_source:
            raise ValueError(
                "a pair has a given translation: expected a source with a text"
                f" and a direction alone. Received: {request}"
            )
    return requests


def phrase_ids(
    tokenizer: Tokenizer, phrases: Sequence[str]
) -> list[tuple[int, ...]]:
    """The tokens that write phrases: between spaces, or in spaceless text.

    Raises ValueError: the vocabulary cannot write a phrase.
    """
    found = []
    for phrase in phrases:
        ways = phrase_ways(tokenizer, phrase)
        expect(ways, "tokens for a translation in the vocabulary", repr(phrase))
        found += ways
    return found


def with_phrases(row: Row) -> Row:
    """The row with the automaton of its terms and forbidden phrases."""
    automaton = make_automaton(row.terms, sorted(row.forbidden))
    return row._replace(automaton=automaton)


def phrase_ways(tokenizer: Tokenizer, phrase: str) -> list[tuple[int, ...]]:
    """The sequences of tokens that write a phrase; none if it has unknown ones.

    Words of spaceless scripts may follow others, so that no space is before.
    """
    tokenizers = [tokenizer]
    if re.match(f"[{SPACELESS}]", phrase):
        tokenizers.append(tokenizer.inside_words)
    rows = [tuple(one.to_ids([phrase])[0][:-1]) for one in tokenizers]
    return [row for row in dict.fromkeys(rows) if row and UNK not in row]


def shown(string: str) -> str:
    """The beginning of a long sentence, for a message."""
    return f"{string.strip()[:SHOWN]} ..."


def _sources(requests, encoding):
    """Rows without other targets than the tokens of a direction."""
    rows: list = [None] * len(requests)
    for direction, indices in encoding.split(requests).items():
        strings = [requests[i].text for i in indices]
        if direction is None:
            _check_tags(strings, indices, encoding.tags)
        tokens = direction or Direction()
        before, after = (
            direction_ids(encoding.tokenizer.source, token)
            for token in (tokens.before, tokens.after)
        )
        given = given_ids(encoding, direction)
        for i, (ids, notes) in zip(
            indices,
            _truncated(
                text_tokenizer(encoding.tokenizer, direction).source,
                strings,
                encoding.limits.max_source_length,
                before,
                after,
            ),
            strict=True,
        ):
            rows[i] = Row(ids, notes=notes)
            if len(ids) > 1:
                rows[i] = Row(ids, len(before), given, notes, len(given))
    return rows


def _check_tags(strings, indices, tags):
    """Raises ValueError if texts without a direction do not name theirs."""
    for index, string in zip(indices, strings, strict=True):
        word = "".join(string.split(maxsplit=1)[:1])
        if word and not tags:
            raise ValueError(
                "expected the languages of a sentence, of which the model has"
                f" many. Received: none ({shown(string)})"
            )
        if word and word not in tags:
            raise UntaggedError(index, string, tags)


def given_ids(encoding: Encoding, direction: Direction | None) -> list[int]:
    """The first ids of an output, which a direction gives."""
    token = direction.output if direction else ""
    return direction_ids(encoding.tokenizer.target, token)


def direction_ids(tokenizer: Tokenizer, token: str) -> list[int]:
    """The id of a token of a `Direction`: of a piece, or of a tag in text.

    Raises ValueError if the vocabulary does not have it.
    """
    if not token:
        return []
    id = tokenizer.find(token)
    ids = tokenizer.to_ids([token])[0][:-1] if id is None else [id]
    expect(
        len(ids) == 1 and ids != [UNK],
        f"a language of the model: its vocabulary has no token {token!r}",
    )
    return ids


def _truncated(
    tokenizer: Tokenizer,
    strings: Sequence[str],
    max_length: int,
    before: Sequence[int] = (),
    after: Sequence[int] = (),
):
    """Yields ids and notes of each sentence, `[EOS]` if it is blank.

    The ids `before` and `after`, which follow EOS, are those of every sentence
    that is not blank.
    """
    max_length -= len(after)
    rows = tokenizer.to_ids(strings) if strings else []
    for string, ids in zip(strings, rows, strict=True):
        notes = []
        if len(ids) > 1:
            ids = [*before, *ids]
        if len(ids) > max_length:
            notes.append(
                f"has {len(ids) - 1} tokens, truncated to {max_length - 1}"
                f" ({shown(string)})"
            )
            ids = [*ids[: max_length - 1], EOS]
        yield [*ids, *after] if len(ids) > 1 else ids, notes


def _with_prefix(row: Row, ids: list[int], limits: Limits) -> Row:
    """The row of a sentence whose output begins with ids, if it is so long."""
    limit = len(row.source_ids) - 1
    if limit:
        limit = limits.prefix_limit(limit)
    if len(ids) <= limit:
        return row._replace(target_ids=ids)
    note = (
        f"has a prefix of {len(ids) - row.num_given} tokens, of which only"
        f" {limit - row.num_given} can be in the output"
    )
    return row._replace(target_ids=ids[:limit], notes=[*row.notes, note])


def _check_strings(items, types):
    """Raises TypeError unless it is a list of items of some types."""
    expected = "strings must be a list of str"
    _check_list(expected, items, lambda item: isinstance(item, types))


def _check_list(expected, items, is_right):
    """Raises TypeError unless it is a list whose items are right."""
    if not isinstance(items, (list, tuple)):
        raise TypeError(f"{expected}. Received: {type(items).__name__}")
    for i, item in enumerate(items):
        if not is_right(item):
            raise TypeError(f"{expected}. Received: {item!r} at index {i}")
