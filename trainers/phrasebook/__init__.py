"""The embedded corpus: a small English-German grammar that writes sentences.

Every pair is spelled out from one abstract structure (`clauses.Clause`) by two
grammars, so that both sides are right and the German follows from the English
alone: equal English means equal German. What a translator has to learn is real:

- gender, number and case, with the endings of articles and adjectives;
- German word order, with its two verbal brackets;
- separable verbs, modal verbs, the perfect with `haben` and `sein`, negation
  with `kein` and `nicht`, numbers, clock times, questions and five kinds of
  subordinate clauses.

"You" is always `du`; the German past is the Perfekt, but the Präteritum for
`sein`, `haben` and the modal verbs, as one speaks.

A module imports only from those above it:

    lexicon        the words, as tables of text
    morphology     forms of words: numerals, determiners, endings, conjugation
    phrases        what is spelled the same everywhere: times, manners
    entries        the words, read from the tables
    constituents   pronouns, names, noun phrases, prepositions
    clauses        the clause, spelled in English and in German word order
    collocations   what goes with what
    sampling       draws clauses that make sense
    sentences      templates of one clause or two
    corpus         distinct pairs, in splits that share none
    coverage       what the grammar covers: words, constructions, limits

`python -m trainers.phrasebook` lists the words and the constructions.
"""

from trainers.phrasebook.corpus import (
    MAX_PAIRS,
    SPLITS,
    make_pairs,
    make_split,
)
from trainers.phrasebook.coverage import LIMITS

__all__ = ["LIMITS", "MAX_PAIRS", "SPLITS", "make_pairs", "make_split"]
