"""The inputs of one sentence, from its text to the arrays of a search.

    Request      the text, and requirements on its translation
    Row          the same as ids, as the model reads them
    Constraints  arrays of a batch of rows, in the state of the search

A new kind of input, such as the terms of a glossary, needs a field in each of
these three and a rule in `decoding/rules.py`. Code in between passes it on.
"""

import bisect
import dataclasses
import hashlib
import re
import typing
from collections.abc import Callable, Sequence

from keras_transformer.base.refusals import expect
from keras_transformer.config import DecodingConfig
from keras_transformer.data.languages import Direction
from keras_transformer.text.signs import (
    EMPTY,
    INVISIBLE,
    PICTURE,
    UNKNOWN,
    Reading,
    has_bytes,
    read,
)
from keras_transformer.text.tokenization import Token, Tokenizer, TokenizerPair
from keras_transformer.text.vocabulary import EOS, UNK
from keras_transformer.translation.automaton import Automaton, make_automaton
from keras_transformer.translation.glossary import SPACELESS, Glossary
from keras_transformer.translation.limits import Limits

SHOWN = 60  # maximum number of characters of a sentence in a message


@dataclasses.dataclass(frozen=True)
class Request:
    """A sentence to translate.

    Attributes:
        text: The sentence.
        prefix: The beginning of its translation, "" for none. It is forced
            token by token: after "hou", the model cannot continue to "house" if
            "house" is one token.
        terms: Terms that the translation must have. Each is a tuple of forms,
            of which the translation needs one.
        avoid: Words and phrases that the translation must not have.
        seed: The seed of samples; None for the translator's.
        direction: The tokens that tell the model the languages; None for the
            translator's.
    """

    text: str
    prefix: str = ""
    terms: tuple[tuple[str, ...], ...] = ()
    avoid: tuple[str, ...] = ()
    seed: int | None = None
    direction: Direction | None = None

    @property
    def as_source(self) -> "Request":
        """The request with text and direction only, to score translations."""
        return Request(self.text, direction=self.direction)


@dataclasses.dataclass(frozen=True)
class Terminology:
    """Terms and forbidden words for the translations of some texts."""

    # Terms of the sources, with their translations.
    glossary: Glossary = dataclasses.field(default_factory=lambda: Glossary(()))
    avoid: tuple[str, ...] = ()  # as in `Request`

    def __post_init__(self):
        expect(all(map(str.strip, self.avoid)), "words in avoid", "a blank one")

    @property
    def sums(self) -> dict[str, str]:
        """The SHA-256 of the glossary and of the forbidden words, if any."""
        sums = {}
        if self.glossary.terms:
            sums["glossary_sha256"] = self.glossary.sha256
        if self.avoid:
            text = "\n".join(self.avoid)
            sums["avoid_sha256"] = hashlib.sha256(text.encode()).hexdigest()
        return sums

    def check(self, decoding: DecodingConfig) -> None:
        """Raises ValueError if there are terms and `sampling` is set."""
        is_usable = not (self.glossary.terms and decoding.sampling)
        expect(is_usable, "a glossary without sampling", "sampling=True")

    def of(self, request: Request) -> Request:
        """Adds to a request the terms in its text, and the forbidden words."""
        has_terms = bool(self.glossary.terms)
        terms = self.glossary.terms_of(request.text) if has_terms else ()
        if not terms and not self.avoid:
            return request
        return dataclasses.replace(
            request,
            terms=(*request.terms, *terms),
            avoid=(*request.avoid, *self.avoid),
        )


NO_TERMINOLOGY = Terminology()


class Row(typing.NamedTuple):
    """A sentence as ids."""

    # Language tokens, text, EOS, then language tokens; `[EOS]` if blank.
    source_ids: list[int]
    tag_length: int = 0  # number of tokens before the text
    # The first tokens of the output, if they are given; or all tokens of a
    # translation to score, EOS included.
    target_ids: Sequence[int] = ()
    notes: Sequence[str] = ()  # a sentence for each truncation
    # The first `target_ids` that are language tokens, which scores leave out.
    num_given: int = 0
    # For each term, the tokens of its forms.
    terms: Sequence[Sequence[tuple[int, ...]]] = ()
    term_texts: Sequence[Sequence[str]] = ()  # for each term, its forms
    avoid: tuple[str, ...] = ()  # as in `Request`
    # Token sequences that spell the words of `avoid`, as far as known.
    forbidden: frozenset[tuple[int, ...]] = frozenset()
    # The automaton of terms and forbidden phrases; None if there are none.
    automaton: Automaton | None = None
    # The output's tokenizer, if there are terms or words to avoid.
    tokenizer: Tokenizer | None = None
    seed: int = 0  # of samples
    reading: Reading = EMPTY  # the text, and what is not read of it
    prefix: Reading = EMPTY  # prefix or given translation likewise
    sample: int = 0  # number of the sample, from 0

    @property
    def has_terms(self) -> bool:
        """Whether the row has terms."""
        return self.automaton is not None and bool(self.automaton.sizes)

    @property
    def required_ids(self) -> list[int]:
        """Tokens that a shortlist must contain for this row."""
        tokens = self.automaton.tokens if self.automaton else []
        return [*self.target_ids, *tokens]


class UntaggedError(ValueError):
    """The source at `index` does not begin with a tag, and has no direction."""

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
    """Makes a `Request` for each sentence, and sets `prefixes`, if given.

    Raises TypeError if `strings` is not a list of `str` or `Request`s or
    `prefixes` not a list of `str`, and ValueError if their lengths differ.
    """
    _check_list(strings, lambda item: isinstance(item, str | Request))
    requests = [Request(s) if isinstance(s, str) else s for s in strings]
    if prefixes is None:
        return requests
    _check_list(prefixes, lambda item: isinstance(item, str))
    expect(
        len(prefixes) == len(strings),
        "one prefix for each string",
        f"{len(prefixes)} and {len(strings)}",
    )
    return [
        dataclasses.replace(request, prefix=prefix)
        for request, prefix in zip(requests, prefixes, strict=True)
    ]


class Encoding(typing.NamedTuple):
    """The settings with which a translator turns sentences into ids."""

    tokenizer: Tokenizer | TokenizerPair  # for both sides
    limits: Limits  # longer sentences are truncated
    tags: Sequence[str] = ()  # a text without a direction begins with one
    # The default direction; None if each sentence must have its own.
    direction: Direction | None = Direction()
    seed: int = 0  # the default seed

    def direction_of(self, request: Request) -> Direction | None:
        """Returns a sentence's direction, None if its text has a tag."""
        own = request.direction
        return self.direction if own is None else own

    def tokenizer_of(self, request: Request) -> Tokenizer | TokenizerPair:
        """Returns the tokenizer for a sentence; see `text_tokenizer`."""
        return text_tokenizer(self.tokenizer, self.direction_of(request))

    def split(
        self, requests: Sequence[Request]
    ) -> dict[Direction | None, list[int]]:
        """Groups the indices of sentences by direction."""
        found: dict[Direction | None, list[int]] = {}
        for index, request in enumerate(requests):
            found.setdefault(self.direction_of(request), []).append(index)
        return found


def text_tokenizer(
    tokenizer: Tokenizer | TokenizerPair, direction: Direction | None
) -> Tokenizer | TokenizerPair:
    """Returns the tokenizer for the text of both sides.

    With a direction that has tokens, it reads tags in a text as plain text.
    """
    if direction in (None, Direction()):
        return tokenizer
    return TokenizerPair(
        tokenizer.source.without_tags, tokenizer.target.without_tags
    )


def encode(requests: Sequence[Request], encoding: Encoding) -> list[Row]:
    """Makes a `Row` for each sentence.

    Sentences that are not blank get the tokens of their direction.

    Raises UntaggedError if a sentence must begin with a tag and does not.
    Raises ValueError if a sentence needs a direction and has none, or if the
    vocabulary cannot write a term.
    """
    rows = _sources(requests, encoding)
    automata: dict = {}  # shared, since many sentences may have the same terms
    for i, request in enumerate(requests):
        seed = encoding.seed if request.seed is None else request.seed
        row = rows[i]._replace(seed=seed)
        if request.terms or request.avoid or request.prefix:
            target = encoding.tokenizer_of(request).target
            row = row._replace(avoid=request.avoid, tokenizer=target)
        if request.terms:
            key = request.terms, encoding.direction_of(request)
            if key not in automata:
                terms = [phrase_ids(target, forms) for forms in request.terms]
                automata[key] = terms, make_automaton(terms, [])
            terms, automaton = automata[key]
            row = row._replace(
                terms=terms, term_texts=request.terms, automaton=automaton
            )
        if request.prefix:
            given = read_text(target, request.prefix)
            [ids] = target.to_prefixes([given.text])
            row = row._replace(prefix=given)
            row = _with_prefix(row, [*row.target_ids, *ids], encoding.limits)
        rows[i] = row
    return rows


def fits(encoding: Encoding, string: str) -> bool:
    """Tells whether a sentence fits into the limits, so is not truncated."""
    [row] = encode([Request(string)], encoding)
    return not row.notes


def encode_pairs(pairs: SentencePairs, encoding: Encoding) -> list[Row]:
    """Makes a `Row` for each pair of a sentence and a given translation.

    Raises the errors of `pair_requests` and, for directions, of `encode`.
    """
    requests = pair_requests(pairs)
    rows = _sources(requests, encoding)
    for direction, indices in encoding.split(requests).items():
        given = given_ids(encoding, direction)
        targets = _truncated(
            text_tokenizer(encoding.tokenizer, direction).target,
            [pairs[i][1] for i in indices],
            encoding.limits.max_target_length - len(given),
        )
        for i, (ids, notes, reading) in zip(indices, targets, strict=True):
            rows[i] = rows[i]._replace(
                target_ids=[*given, *ids],
                num_given=len(given),
                notes=[*rows[i].notes, *notes],
                prefix=reading,
            )
    return rows


def pair_requests(pairs: SentencePairs) -> list[Request]:
    """Makes a `Request` for the sentence of each pair.

    Raises TypeError if `pairs` is not a list of such pairs, and ValueError if a
    `Request` has more than a text and a direction.
    """
    _check_list(
        pairs,
        lambda pair: (
            isinstance(pair, (list, tuple))
            and len(pair) == 2
            and isinstance(pair[0], str | Request)
            and isinstance(pair[1], str)
        ),
        "a list of (source, translation), both str",
    )
    requests = make_requests([source for source, _ in pairs])
    for request in requests:
        expect(
            request == request.as_source,
            "a source with a text and a direction alone, as the translation is"
            " given",
            request,
        )
    return requests


def phrase_ids(
    tokenizer: Tokenizer, phrases: Sequence[str]
) -> list[tuple[int, ...]]:
    """Returns the `phrase_ways` of all phrases in one list.

    Raises ValueError if the vocabulary cannot write a phrase.
    """
    found = []
    for phrase in phrases:
        ways = phrase_ways(tokenizer, phrase)
        expect(ways, "tokens for a translation in the vocabulary", repr(phrase))
        found += ways
    return found


def with_phrases(row: Row) -> Row:
    """Adds to a row the automaton of its terms and forbidden phrases."""
    automaton = make_automaton(row.terms, sorted(row.forbidden))
    return row._replace(automaton=automaton)


def phrase_ways(tokenizer: Tokenizer, phrase: str) -> list[tuple[int, ...]]:
    """Returns the token sequences, without UNK, that write a phrase.

    A phrase in a spaceless script also has one without a space before it.
    """
    tokenizers = [tokenizer]
    if re.match(f"[{SPACELESS}]", phrase):
        tokenizers.append(tokenizer.inside_words)
    rows = [tuple(one.to_ids([phrase])[0][:-1]) for one in tokenizers]
    return [row for row in dict.fromkeys(rows) if row and UNK not in row]


def shown(string: str) -> str:
    """Shortens a long sentence for a message."""
    return f"{string.strip()[:SHOWN]} ..."


def _sources(requests, encoding):
    """Makes rows of sources; their targets are only the direction's tokens."""
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
        sources = _truncated(
            text_tokenizer(encoding.tokenizer, direction).source,
            strings,
            encoding.limits.max_source_length,
            before,
            after,
        )
        for i, (ids, notes, reading) in zip(indices, sources, strict=True):
            rows[i] = Row(ids, notes=notes, reading=reading)
            if len(ids) > 1:
                rows[i] = rows[i]._replace(
                    tag_length=len(before),
                    target_ids=given,
                    num_given=len(given),
                )
    return rows


def _check_tags(strings, indices, tags):
    """Raises UntaggedError if a text does not begin with one of the tags.

    Raises ValueError if there are no tags. Blank texts are ignored.
    """
    for index, string in zip(indices, strings, strict=True):
        word = "".join(string.split(maxsplit=1)[:1])
        expect(
            tags or not word,
            "the languages of a sentence: the model has many",
            f"none ({shown(string)})",
        )
        if word and word not in tags:
            raise UntaggedError(index, string, tags)


def given_ids(encoding: Encoding, direction: Direction | None) -> list[int]:
    """Returns the ids that a direction makes outputs begin with, if any."""
    token = direction.output if direction else ""
    return direction_ids(encoding.tokenizer.target, token)


def direction_ids(tokenizer: Tokenizer, token: str) -> list[int]:
    """Returns a list with the id of a token of a `Direction`, empty for "".

    The token is a piece, or a tag in text. Raises ValueError if the vocabulary
    does not have it.
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
    """Yields ids, notes and `Reading` of each sentence; `[EOS]` if blank.

    Other sentences begin with the ids `before`, and `after` follows their EOS.
    """
    max_length -= len(after)
    rows = tokenizer.to_ids(strings) if strings else []
    for string, ids in zip(strings, rows, strict=True):
        notes, reading = [], Reading(string)
        if UNK in ids or INVISIBLE.search(string) or PICTURE.search(string):
            reading = read_text(tokenizer, string)
            [ids] = tokenizer.to_ids([reading.text])
        if len(ids) > 1:
            ids = [*before, *ids]
        if len(ids) > max_length:
            notes.append(
                f"has {len(ids) - 1} tokens, truncated to {max_length - 1}"
                f" ({shown(string)})"
            )
            ids = [*ids[: max_length - 1], EOS]
        yield [*ids, *after] if len(ids) > 1 else ids, notes, reading


def read_text(tokenizer: Tokenizer, text: str) -> Reading:
    """Takes out of a text what a vocabulary cannot write.

    `UNKNOWN` stays, as a token of its own.
    """

    def encode(part: str) -> list[int]:
        return tokenizer.to_ids([part])[0]

    def knows(part: str) -> bool:
        return part == UNKNOWN or not (
            UNK in encode(part) or has_bytes(part, encode, tokenizer.is_byte)
        )

    return read(text, knows)


def tokens_of(tokenizer: Tokenizer, text: str) -> list[Token]:
    """Returns the tokens of a text as it is read, with places in the text."""
    reading = read_text(tokenizer, text)
    [tokens] = tokenizer.tokens([reading.text])
    if reading.origins is None:
        return tokens
    word_ends = [match.end() for match in re.finditer(r"\S+", text)]
    begins = [*reading.origins, len(text)]
    return [
        token._replace(
            begin=begins[token.begin],
            word=bisect.bisect(word_ends, begins[token.begin]),
        )
        for token in tokens
    ]


def _with_prefix(row: Row, ids: list[int], limits: Limits) -> Row:
    """Sets the ids that an output begins with, truncated to its limit."""
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


def _check_list(
    items: object,
    is_right: Callable[[typing.Any], bool],
    expected: str = "a list of str",
) -> None:
    """Raises TypeError unless each item of a list or tuple `is_right`."""
    if not isinstance(items, (list, tuple)):
        raise TypeError(
            f"expected {expected}. Received: {type(items).__name__}"
        )
    for i, item in enumerate(items):
        if not is_right(item):
            raise TypeError(
                f"expected {expected}. Received: {item!r} at index {i}"
            )
