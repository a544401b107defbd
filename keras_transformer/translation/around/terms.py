"""Terms that translations must have: an exact search, with at least 4 beams."""

import dataclasses
import functools
from collections.abc import Callable, Sequence

from absl import logging

from keras_transformer.config import DecodingConfig
from keras_transformer.translation.automaton import missing_terms
from keras_transformer.translation.requests import Request, Row
from keras_transformer.translation.search import Around, Found, Search

FAR_BELOW = 2.0  # a score of forced terms, below the score without them


@dataclasses.dataclass(eq=False)
class Terms(Around):
    """A search whose rows with terms have another one, `exact`."""

    decoding: DecodingConfig  # how the inner one searches
    make: Callable[[DecodingConfig], Search]  # makes another search

    def search(self, rows: Sequence[Row], num_best: int) -> list[Found]:
        if not any(row.has_terms for row in rows):
            return self.inner.search(rows, num_best)
        results: list = [None] * len(rows)
        for has_terms, search in ((False, self.inner), (True, self.exact)):
            chosen = [i for i, r in enumerate(rows) if r.has_terms == has_terms]
            found = search.search([rows[i] for i in chosen], num_best)
            for i, result in zip(chosen, found, strict=True):
                results[i] = result
        return results

    @functools.cached_property
    def exact(self) -> Search:
        """The search of rows with terms, which has programs of its own."""
        before, decoding = self.decoding, search_for_terms(self.decoding)
        if decoding.beam_size != before.beam_size:
            logging.warning(
                "sentences with terms of a glossary have beam_size=%d, the"
                " others beam_size=%d",
                decoding.beam_size,
                before.beam_size,
            )
        return self.make(decoding)


def search_for_terms(decoding: DecodingConfig) -> DecodingConfig:
    """The search of sentences with terms.

    >>> search_for_terms(DecodingConfig(beam_size=1)).beam_size
    4
    """
    return dataclasses.replace(
        decoding,
        beam_size=max(decoding.beam_size, DecodingConfig.beam_size),
        stopping="exact",
    )


def notes_on_terms(
    search: Search,
    requests: Sequence[Request],
    rows: Sequence[Row],
    found: Sequence[Found],
    mode: str,
) -> list[list[str]]:
    """Notes on each row, by `glossary_mode`.

    Its best output may lack a term; a forced term may break the sentence.
    """
    are_forced = mode == "force"
    reason = ": it does not fit beside the other terms, or is forbidden, too"
    free = [
        row._replace(automaton=None, terms=(), avoid=())
        for row in rows
        if are_forced and row.has_terms
    ]
    without = iter(search.search(free, 1) if free else [])
    results = []
    for request, row, (ids, scores) in zip(requests, rows, found, strict=True):
        notes = [
            f"lacks the term {' or '.join(request.terms[number])!r} in its"
            f" translation{reason * are_forced}"
            for number in missing_terms(row.automaton, ids[0])
        ]
        if are_forced and row.has_terms:
            forced, by_choice = scores[0], next(without).scores[0]
            if forced < by_choice - FAR_BELOW:
                notes.append(
                    "may be broken by its terms: it has the score"
                    f" {forced:.2f}, without terms {by_choice:.2f}"
                    " (glossary_mode=prefer lets the model choose)"
                )
        results.append(notes)
    return results
