"""Words that translations must not have: searches until they are gone.

A word may be written by many sequences of tokens. Those that a search emits are
forbidden in the next one, so a long list of words costs nothing where a model
would not emit them.
"""

import bisect
import itertools
import re
import typing
from collections.abc import Callable, Sequence

from keras_transformer.tokenization import Tokenizer
from keras_transformer.translation.glossary import (
    SPACELESS,
    casings,
    find_words,
)
from keras_transformer.translation.requests import (
    Request,
    Row,
    phrase_ways,
    with_phrases,
)

# More searches of a sentence, at most, whose translation has forbidden words.
MORE_SEARCHES = 8

# Ids and scores of the hypotheses of each row.
Found: typing.TypeAlias = list[tuple[list[list[int]], typing.Any]]


def search_without_words(
    search: Callable[[Sequence[Row]], Found],
    rows: Sequence[Row],
    requests: Sequence[Request],
    tokenizer_of: Callable[[Request], Tokenizer],
) -> tuple[list[Row], Found]:
    """Rows with what is forbidden in each at the end, and what a search found.

    Args:
        search: A search of rows.
        rows: The row of each request.
        requests: The sentences, with their words to avoid.
        tokenizer_of: The tokenizer of a sentence's outputs.
    """
    rows, found = list(rows), search(rows)
    left = [i for i, request in enumerate(requests) if request.avoid]
    for _ in range(MORE_SEARCHES):
        again = {}
        for i in left:
            row = without_words(
                rows[i], requests[i], found[i][0], tokenizer_of(requests[i])
            )
            if row is not None:
                again[i] = rows[i] = row
        if not again:
            break
        left = list(again)
        for i, result in zip(left, search([*again.values()]), strict=True):
            found[i] = result
    return rows, found


def without_words(
    row: Row,
    request: Request,
    outputs: Sequence[Sequence[int]],
    tokenizer: Tokenizer,
) -> Row | None:
    """The row that also forbids the words to avoid that its outputs have.

    Forbidden are the tokens of those words, as emitted and of each casing. None
    if that are no more than before: there are no such words, or a prefix has
    them.
    """
    forbidden = set(row.forbidden)
    for ids in outputs:
        parts = tokenizer.parts(ids)
        for match in find_words(request.avoid, "".join(parts)):
            forbidden.add(_emitted(ids, parts, match))
            for word in casings(match.group()):
                forbidden.update(phrase_ways(tokenizer, word))
    if forbidden == row.forbidden:
        return None
    row = row._replace(forbidden=frozenset(forbidden))
    return with_phrases(row, request, tokenizer)


def notes_on_words(request: Request, texts: Sequence[str]) -> list[str]:
    """A note for each forbidden word that translations have all the same."""
    if not request.avoid:
        return []
    found = [
        m.group() for text in texts for m in find_words(request.avoid, text)
    ]
    return [
        f"has the forbidden word {word!r} in its translation"
        for word in dict.fromkeys(found)
    ]


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
