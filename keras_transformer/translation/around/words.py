"""Words that translations must not have: repeats the search until none is left.

Many token sequences can spell a word. Only the sequences that one search has
emitted are forbidden in the next. So a long list of words costs nothing if the
model does not emit them.
"""

import bisect
import itertools
import operator
import re
import typing
from collections.abc import Sequence

from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.translation.glossary import (
    SPACELESS,
    casings,
    find_words,
)
from keras_transformer.translation.requests import (
    Row,
    phrase_ways,
    with_phrases,
)
from keras_transformer.translation.search import Around, Found

# Maximum number of further searches for a sentence.
MORE_SEARCHES = 8


class Words(Around):
    """A search that avoids the words in `Row.avoid`."""

    concerns = operator.attrgetter("avoid")

    def change(self, rows: Sequence[Row], num_best: int) -> list[Found]:
        rows, found = list(rows), self.inner.search(rows, num_best)
        left = [i for i, row in enumerate(rows) if row.avoid]
        for _ in range(MORE_SEARCHES):
            again = {}
            for i in left:
                row = without_words(rows[i], found[i].ids)
                if row is not None:
                    again[i] = rows[i] = row
            if not again:
                break
            left = list(again)
            more = self.inner.search([*again.values()], num_best)
            for i, result in zip(left, more, strict=True):
                found[i] = result
        return [
            with_note(row, one) for row, one in zip(rows, found, strict=True)
        ]


def without_words(row: Row, outputs: Sequence[Sequence[int]]) -> Row | None:
    """Forbids the words of `row.avoid` that the outputs have.

    It forbids the emitted tokens and those of other casings. Returns None if
    this forbids nothing new: no output has such words, or a prefix has them.
    """
    forbidden = set(row.forbidden)
    tokenizer = typing.cast(Tokenizer, row.tokenizer)
    for ids in outputs:
        parts = tokenizer.parts(ids)
        for match in find_words(row.avoid, "".join(parts)):
            forbidden.add(_emitted(ids, parts, match))
            for word in casings(match.group()):
                forbidden.update(phrase_ways(tokenizer, word))
    if forbidden == row.forbidden:
        return None
    return with_phrases(row._replace(forbidden=frozenset(forbidden)))


def with_note(row: Row, found: Found) -> Found:
    """Adds a note for each forbidden word that is still in a hypothesis."""
    if not row.avoid:
        return found
    texts = typing.cast(Tokenizer, row.tokenizer).to_strings(found.ids)
    words = [m.group() for text in texts for m in find_words(row.avoid, text)]
    notes = [
        f"has the forbidden word {word!r} in its translation"
        for word in dict.fromkeys(words)
    ]
    return found._replace(notes=[*found.notes, *notes])


def _emitted(ids, parts, match):
    """Returns the tokens of an output that spell a match in its text."""
    ends = list(itertools.accumulate(map(len, parts)))
    first = bisect.bisect_right(ends, match.start())
    last = bisect.bisect_left(ends, match.end())
    # A token without a leading space may also occur inside other words. The
    # token before it shows that a word begins here.
    begins = ends[first] - len(parts[first]) == match.start()
    if begins and first and not re.match(f"[{SPACELESS}]", match.group()):
        first -= 1
    return tuple(ids[first : last + 1])
