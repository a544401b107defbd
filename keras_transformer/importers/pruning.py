"""Reduces the vocabulary of a multilingual model to what a corpus needs.

Embeddings are kept for:
- tokens of the corpus and, in a BPE vocabulary, the pieces they are merged from
- bytes and single characters, except letters of other scripts, so that other
  text can be written
- special tokens
- all languages, since the tokenizers of transformers compute ids from the
  complete list

A text is segmented as before if all its tokens stay: BPE merges the same
pieces, and the segmentation with the best score is still the best. The logits
of tokens that stay do not change, so their probabilities can only rise.
"""

import collections
import dataclasses
import itertools
import unicodedata
from collections.abc import Iterable

import numpy as np

from keras_transformer.base.refusals import expect
from keras_transformer.importers.imported import Imported
from keras_transformer.importers.vocabularies import with_pieces
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.text.vocabulary import SPECIAL_IDS, UNK

# The least share of a corpus's letters that makes a script one of its scripts:
# a name or two in another script do not.
SCRIPT_SHARE = 1e-3
ROWS = ("embedding/embeddings", "embedding/logits_bias")


def prune(imported: Imported, lines: Iterable[str]) -> Imported:
    """Reduces the vocabulary of a model to what the lines of a corpus need.

    A note of the result counts what stays. Raises ValueError if the model is
    not multilingual with one vocabulary, or if the corpus has no text.
    """
    tokenizer = imported.tokenizer
    if not imported.language_tokens or not isinstance(tokenizer, Tokenizer):
        raise ValueError(
            "only a multilingual vocabulary can be pruned. Received:"
            f" language_tokens={imported.language_tokens!r}"
        )
    counts: collections.Counter[int] = collections.Counter()
    for line in lines:
        counts.update(tokenizer.to_ids([line])[0][:-1])
    expect(counts, "a corpus with text", "none")
    entries, size = tokenizer.entries, tokenizer.vocab_size
    scripts = _scripts(tokenizer, counts)
    # <s>, which follows the special tokens, and the pieces after the table,
    # which have no row.
    others = {len(SPECIAL_IDS), *range(size, len(entries))}
    characters = set()
    for id, (piece, _, kind) in enumerate(entries[:size]):
        if kind == "NORMAL" and len(piece) == 1:
            if _script(piece) in ("", *scripts):
                characters.add(id)
        elif kind not in ("NORMAL", "UNUSED"):
            others.add(id)
    kept = {*SPECIAL_IDS, *counts, *characters, *others}
    merged = _merged(tokenizer, kept) - kept
    kept |= merged
    rows = sorted(id for id in kept if id < size)
    weights = {
        path: np.asarray(array)[rows] if path in ROWS else array
        for path, array in imported.weights.items()
    }
    note = (
        f"pruned: {len(rows):,} of {size:,} rows stay: {len(counts):,} occur in"
        f" the corpus, {len(merged):,} are merged into others,"
        f" {len(characters - counts.keys()):,} are single characters. All"
        f" {counts.total():,} tokens of the corpus stay, of which"
        f" {counts[UNK]:,} were unknown before. Other text is written in"
        " shorter tokens; unknown in it become letters of scripts other than"
        f" {', '.join(sorted(map(str.title, scripts)))}"
    )
    return imported._replace(
        config=dataclasses.replace(imported.config, vocab_size=len(rows)),
        weights=weights,
        tokenizer=with_pieces(tokenizer, kept),
        notes=[*imported.notes, note],
    )


def _script(character: str) -> str:
    """Returns the script in a letter's Unicode name, "" for other characters.

    >>> [_script(c) for c in "aß字か7é\u0301"]
    ['LATIN', 'LATIN', 'CJK', 'HIRAGANA', '', 'LATIN', '']
    """
    name = unicodedata.name(character, "").partition(" ")[0]
    is_letter = unicodedata.category(character)[0] in "LM"
    return name if is_letter and name != "COMBINING" else ""


def _scripts(tokenizer, counts):
    """Returns the scripts of a corpus, given counts by token id."""
    pieces = tokenizer.pieces
    letters: collections.Counter[str] = collections.Counter()
    for id, count in counts.items():
        for script in filter(None, map(_script, pieces[id])):
            letters[script] += count
    least = SCRIPT_SHARE * letters.total()
    return {script for script, count in letters.items() if count >= least}


def _merged(tokenizer, ids):
    """Returns the ids of all pieces that BPE forms on the way to `ids`."""
    if tokenizer.model_type != "bpe":
        return set()
    places, scores = {}, {}
    for id, (piece, score, kind) in enumerate(tokenizer.entries):
        if kind in ("NORMAL", "USER_DEFINED"):
            places[piece], scores[piece] = id, score
    return {
        places[merged]
        for piece, id in places.items()
        if id in ids
        for merged in _merges(piece, scores)
    }


def _merges(piece, scores):
    """Yields what BPE forms from a piece's characters, best pair first.

    >>> list(_merges("abcd", {"bc": -1, "ab": -2, "cd": -3, "bcd": -4}))
    ['bc', 'bcd']
    """
    symbols = list(piece)
    while len(symbols) > 1:
        pairs = [a + b for a, b in itertools.pairwise(symbols)]
        best = max(pairs, key=lambda pair: scores.get(pair, -float("inf")))
        if best not in scores:
            return
        place = pairs.index(best)
        symbols[place : place + 2] = [best]
        yield best
