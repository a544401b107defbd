"""Terms of translations: an exact search with a beam of at least 4."""

import dataclasses
import functools
import operator
from collections.abc import Sequence

import numpy as np
from absl import logging

from keras_transformer.commands.startup import load
from keras_transformer.config import DecodingConfig
from keras_transformer.translation.automaton import missing_terms
from keras_transformer.translation.requests import Row
from keras_transformer.translation.search import Around, Found, Search

REASON = ": it does not fit beside the other terms, or is forbidden, too"
FAR_BELOW = 2.0  # a note warns if forced terms lower the score by more


class Terms(Around):
    """A search that passes rows with terms to another search, `exact`.

    It adds notes on missing terms, and on forced terms that may break an
    output.
    """

    concerns = operator.attrgetter("has_terms")

    def change(self, rows: Sequence[Row], num_best: int) -> list[Found]:
        results: list = [None] * len(rows)
        for has_terms in (False, True):
            chosen = [i for i, r in enumerate(rows) if r.has_terms == has_terms]
            if not chosen:
                continue
            own = [rows[i] for i in chosen]
            search = self.exact if has_terms else self.inner
            found = search.search(own, num_best)
            if has_terms:
                found = [*map(self._without_bonus, own, found)]
                found = [*map(_noted, own, found, self._without_terms(own))]
            for i, result in zip(chosen, found, strict=True):
                results[i] = result
        return results

    def _without_bonus(self, row, found):
        """Takes the bonus of preferred terms from the scores."""
        decoding = self.limits.decoding
        if decoding.glossary_mode != "prefer" or not row.automaton:
            return found
        rules = load("keras_transformer.decoding.rules")
        sizes, scores = row.automaton.sizes, []
        for ids, score in zip(found.ids, found.scores, strict=True):
            lacks = sum(sizes[n] for n in missing_terms(row.automaton, ids))
            bonus = decoding.glossary_bonus * (sum(sizes) - lacks) * bool(ids)
            penalty = float(rules.length_penalty(decoding, len(ids)))
            scores.append(score - bonus / penalty)
        return found._replace(scores=np.asarray(scores, np.float32))

    def _without_terms(self, rows):
        """Searches without terms if they are forced, else returns only None."""
        if self.limits.decoding.glossary_mode != "force":
            return [None] * len(rows)
        free = [
            row._replace(automaton=None, terms=(), avoid=()) for row in rows
        ]
        return self.inner.search(free, 1)

    @functools.cached_property
    def exact(self) -> Search:
        """The search for rows with terms, which has its own programs."""
        before = self.limits.decoding
        decoding = search_for_terms(before)
        if decoding == before:
            return self.inner
        if decoding.beam_size != before.beam_size:
            logging.warning(
                "sentences with terms of a glossary have beam_size=%d, the"
                " others beam_size=%d",
                decoding.beam_size,
                before.beam_size,
            )
        return self.inner.with_decoding(decoding)


def search_for_terms(decoding: DecodingConfig) -> DecodingConfig:
    """Returns the options of the search for sentences with terms.

    `stopping` is "exact", and the beam is at least as wide as the default.

    >>> search_for_terms(DecodingConfig(beam_size=1)).beam_size
    4
    """
    return dataclasses.replace(
        decoding,
        beam_size=max(decoding.beam_size, DecodingConfig.beam_size),
        stopping="exact",
    )


def _noted(row: Row, found: Found, free: Found | None) -> Found:
    """Adds notes on terms to the result of a row.

    A note warns if the best output lacks a term, or if forced terms lower the
    score by more than `FAR_BELOW`. `free` is the result without terms, None if
    terms are not forced.
    """
    reason = "" if free is None else REASON
    notes = [
        f"lacks the term {' or '.join(row.term_texts[number])!r} in its"
        f" translation{reason}"
        for number in missing_terms(row.automaton, found.ids[0])
    ]
    if free is not None and found.scores[0] < free.scores[0] - FAR_BELOW:
        notes.append(
            "may be broken by its terms: it has the score"
            f" {found.scores[0]:.2f}, without terms {free.scores[0]:.2f}"
            " (glossary_mode=prefer lets the model choose)"
        )
    return found._replace(notes=notes)
