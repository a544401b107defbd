"""The record of one sentence, from its text to the arrays of a search.

    Request      the text, and what its translation must have
    Row          the same in ids, as the model reads them
    Constraints  arrays of a batch of rows, in the state of the search

A new input of a sentence, such as the terms of a glossary, is a field of these
three and a rule in `decoding/rules.py`. All code between passes them on and
does not look inside.
"""

import bisect
import dataclasses
import hashlib
import itertools
import re
import typing
from collections.abc import Sequence

from keras_transformer.config import DecodingConfig
from keras_transformer.data.languages import Direction
from keras_transformer.tokenization import Tokenizer, TokenizerPair
from keras_transformer.translation.automaton import Automaton, make_automaton
from keras_transformer.translation.glossary import (
    SPACELESS,
    Glossary,
    casings,
    find_words,
)
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
    """

    text: str
    prefix: str = ""
    terms: tuple[tuple[str, ...], ...] = ()
    avoid: tuple[str, ...] = ()
    seed: int | None = None


@dataclasses.dataclass(frozen=True)
class Terminology:
    """What the translations of some texts must have, and must not have.

    Attributes:
        glossary: Terms of the texts, with their translations.
        avoid: As in `Request`.
    """

    glossary: Glossary = dataclasses.field(default_factory=lambda: Glossary(()))
    avoid: tuple[str, ...] = ()

    def __post_init__(self):
        if not all(map(str.strip, self.avoid)):
            raise ValueError("avoid must have words. Received: a blank one")

    @property
    def sums(self) -> dict[str, str]:
        """The checksums of those that there are."""
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
    """A sentence in ids.

    Attributes:
        source_ids: The tag of the target language, if there is one, the
            tokens, EOS; `[EOS]` if the sentence is blank.
        tag_length: Number of tokens before the text.
        target_ids: Tokens of the target that are given: those that the output
            begins with; or all of a translation to score, EOS included.
        num_given: How many of them are no part of the translation.
        notes: A sentence for each truncation.
        automaton: Of the phrases that the output must have, or must not; None
            if there are none.
        forbidden: The phrases that it must not have.
        seed: Of samples.
        sample: Number of the sample, from 0.
    """

    source_ids: list[int]
    tag_length: int
    target_ids: list[int]
    notes: list[str]
    automaton: Automaton | None = None
    forbidden: frozenset[tuple[int, ...]] = frozenset()
    seed: int = 0
    sample: int = 0
    num_given: int = 0

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


def text_tokenizer(
    tokenizer: Tokenizer | TokenizerPair, direction: Direction
) -> Tokenizer | TokenizerPair:
    """The tokenizer for the text of sentences.

    Where a direction is given for every source, tags in text are text.
    """
    if direction == Direction():
        return tokenizer
    return TokenizerPair(
        tokenizer.source.without_tags, tokenizer.target.without_tags
    )


def encode(
    requests: Sequence[Request],
    tokenizer: Tokenizer | TokenizerPair,
    tags: Sequence[str],
    direction: Direction,
    inference: Limits,
    seed: int = 0,
) -> list[Row]:
    """A `Row` for each sentence, truncated to the `Limits` of an engine.

    Every sentence that is not blank gets the tokens of the direction. Without
    one, if there are tags, it begins with one of them, or `UntaggedError` is
    raised. `seed` is for sentences without a seed.
    """
    rows = _sources(
        [r.text for r in requests], tokenizer, tags, direction, inference
    )
    target = text_tokenizer(tokenizer, direction).target
    for i, request in enumerate(requests):
        own = seed if request.seed is None else request.seed
        rows[i] = rows[i]._replace(seed=own)
        if request.terms:
            rows[i] = _with_phrases(rows[i], request, target)
    prefixes = [request.prefix for request in requests]
    if not any(prefixes):
        return rows
    targets = target.to_prefixes(prefixes)
    return [
        _with_prefix(row, [*row.target_ids, *ids], inference)
        for row, ids in zip(rows, targets, strict=True)
    ]


def encode_pairs(
    pairs: Sequence[tuple[str, str]],
    tokenizer: Tokenizer | TokenizerPair,
    tags: Sequence[str],
    direction: Direction,
    inference: Limits,
) -> list[Row]:
    """As `encode`, for pairs of a sentence and a given translation."""
    _check_list(
        "pairs must be a list of (source, translation), both str",
        pairs,
        lambda pair: (
            isinstance(pair, (list, tuple))
            and [isinstance(text, str) for text in pair] == [True, True]
        ),
    )
    rows = _sources(
        [source for source, _ in pairs], tokenizer, tags, direction, inference
    )
    given = direction_ids(tokenizer.target, direction.output)
    targets = _truncated(
        text_tokenizer(tokenizer, direction).target,
        [text for _, text in pairs],
        inference.max_target_length - len(given),
    )
    return [
        row._replace(
            target_ids=[*given, *ids],
            num_given=len(given),
            notes=[*row.notes, *notes],
        )
        for row, (ids, notes) in zip(rows, targets, strict=True)
    ]


def phrase_ids(
    tokenizer: Tokenizer, phrases: Sequence[str]
) -> list[tuple[int, ...]]:
    """The tokens that write phrases: between spaces, or in spaceless text.

    Raises:
        ValueError: The vocabulary cannot write a phrase.
    """
    found = []
    for phrase in phrases:
        ways = _ways(tokenizer, phrase)
        if not ways:
            raise ValueError(
                "the vocabulary has no tokens for a translation. Received:"
                f" {phrase!r}"
            )
        found += ways
    return found


def without_words(
    row: Row,
    request: Request,
    outputs: Sequence[Sequence[int]],
    tokenizer: Tokenizer,
) -> Row | None:
    """The row that also forbids the words to avoid that its outputs have.

    Forbidden are the tokens of those words, as emitted and of each casing. A
    long list of words costs nothing where a model would not emit them. None if
    that are no more than before: there are no such words, or a prefix has them.
    """
    forbidden = set(row.forbidden)
    for ids in outputs:
        parts = tokenizer.parts(ids)
        for match in find_words(request.avoid, "".join(parts)):
            forbidden.add(_emitted(ids, parts, match))
            for word in casings(match.group()):
                forbidden.update(_ways(tokenizer, word))
    if forbidden == row.forbidden:
        return None
    row = row._replace(forbidden=frozenset(forbidden))
    return _with_phrases(row, request, tokenizer)


def shown(string: str) -> str:
    """The beginning of a long sentence, for a message."""
    return f"{string.strip()[:SHOWN]} ..."


def _with_phrases(row, request, tokenizer):
    """The row with the automaton of its terms and forbidden phrases."""
    terms = [phrase_ids(tokenizer, forms) for forms in request.terms]
    automaton = make_automaton(terms, sorted(row.forbidden))
    return row._replace(automaton=automaton)


def _ways(tokenizer, phrase):
    """The sequences of tokens that write a phrase; none if it has unknown ones.

    Words of spaceless scripts may follow others, so that no space is before.
    """
    tokenizers = [tokenizer]
    if re.match(f"[{SPACELESS}]", phrase):
        tokenizers.append(tokenizer.inside_words)
    rows = [tuple(one.to_ids([phrase])[0][:-1]) for one in tokenizers]
    return [row for row in dict.fromkeys(rows) if row and UNK not in row]


def _emitted(ids, parts, match):
    """The tokens of an output that have written a match in its text."""
    ends = list(itertools.accumulate(map(len, parts)))
    first = bisect.bisect_right(ends, match.start())
    last = bisect.bisect_left(ends, match.end())
    # Without a space before it, a token may also be inside other words: the
    # one before it says that it is not.
    begins = ends[first] - len(parts[first]) == match.start()
    if begins and first and not re.match(f"[{SPACELESS}]", match.group()):
        first -= 1
    return tuple(ids[first : last + 1])


def _sources(strings, tokenizer, tags, direction, inference):
    """Rows without other targets than the tokens of a direction."""
    if tags and direction == Direction():
        for index, string in enumerate(strings):
            word = "".join(string.split(maxsplit=1)[:1])
            if word and word not in tags:
                raise UntaggedError(index, string, tags)
    before, after = (
        direction_ids(tokenizer.source, token)
        for token in (direction.before, direction.after)
    )
    given = direction_ids(tokenizer.target, direction.output)
    source = text_tokenizer(tokenizer, direction).source
    length = inference.max_source_length
    return [
        Row(ids, len(before), given, notes, num_given=len(given))
        if len(ids) > 1
        else Row(ids, 0, [], notes)
        for ids, notes in _truncated(source, strings, length, before, after)
    ]


def direction_ids(tokenizer: Tokenizer, token: str) -> list[int]:
    """The ids of a token of a `Direction`: a piece, or a word of the text."""
    if not token:
        return []
    id = tokenizer.find(token)
    return tokenizer.to_ids([token])[0][:-1] if id is None else [id]


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


def _with_prefix(row: Row, ids: list[int], inference: Limits) -> Row:
    """The row of a sentence whose output begins with ids, if it is so long."""
    limit = len(row.source_ids) - 1
    if limit:
        limit = inference.output_limit(limit)
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
