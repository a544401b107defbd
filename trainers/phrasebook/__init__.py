"""The embedded corpus: a small English-German grammar that writes sentences.

Two grammars write every pair from one abstract structure (`clauses.Clause`), so
both sides are correct, and equal English sentences have equal German sentences.
To translate them, a model has to learn:

- gender, number and case, with the endings of articles and adjectives;
- German word order, with its two verbal brackets;
- separable verbs, modal verbs, the perfect with `haben` and `sein`, negation
  with `kein` and `nicht`, numbers, clock times, questions and five kinds of
  subordinate clauses.

"You" is always `du`. The German past is the Perfekt; `sein`, `haben` and the
modal verbs have the Präteritum, as in spoken German.

A module imports only from those above it:

    drawing        random choices; splits that share no sentence
    lexicon        the words, as tables of text
    morphology     forms of words: numerals, determiners, endings, conjugation
    phrases        phrases with one fixed spelling: times, manners
    entries        the words, read from the tables
    constituents   pronouns, names, noun phrases, prepositions
    clauses        the clause, spelled in English and in German word order
    collocations   which words can stand together
    sampling       random clauses that make sense
    sentences      templates of one clause or two
    corpus         distinct pairs, in splits that share none
    coverage       coverage of the grammar: words, constructions, limits

`python -m trainers.phrasebook` lists the words and the constructions.
"""

from trainers.phrasebook.corpus import make_split
from trainers.phrasebook.coverage import LIMITS

__all__ = ["LIMITS", "make_split"]
