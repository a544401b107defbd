"""A multilingual model with the part of its vocabulary that a corpus needs.

These rows of the embeddings stay:

- of the tokens that occur in the corpus;
- of the pieces that these are merged from, in a BPE vocabulary;
- of bytes and single characters, but for letters of other scripts, so that
  other text can be written, in shorter tokens;
- of special tokens and of all languages, from whose complete list the
  tokenizers of transformers count their ids.

A text has the same segments as before if all of them stay: a merge of BPE that
took place still does, and a segmentation that had the best score still has it.
The logits of tokens that stay do not change. So their probabilities can only
rise: there are fewer others.
"""

import collections
import dataclasses
import itertools
import unicodedata
from collections.abc import Iterable

from keras_transformer.importers.imported import Imported
from keras_transformer.importers.vocabularies import with_pieces
from keras_transformer.tokenization import Tokenizer
from keras_transformer.vocabulary import SPECIAL_IDS, UNK

# Of the letters of a corpus, in a script that it has: not in a name or two.
SCRIPT_SHARE = 1e-3
ROWS = ("embedding/embeddings", "embedding/logits_bias")


def prune(imported: Imported, lines: Iterable[str]) -> Imported:
    """The model with what the lines of a corpus need of its vocabulary.

    Its notes say what that is. Raises ValueError for another kind of model, or
    a corpus without text.
    """
    tokenizer = imported.tokenizer
    if not imported.language_tokens or not isinstance(tokenizer, Tokenizer):
        raise ValueError(
            "a vocabulary can be pruned of a model with language_tokens."
            f" Received: language_tokens={imported.language_tokens!r}"
        )
    counts: collections.Counter[int] = collections.Counter()
    num_lines = 0
    for line in lines:
        num_lines += 1
        counts.update(tokenizer.to_ids([line])[0][:-1])
    if not counts:
        raise ValueError("expected a corpus with text. Received: none")
    scripts = _scripts(tokenizer, counts)
    size = tokenizer.vocab_size
    # Pieces after the table have no rows; they stay, with the end of the table.
    kept = {*SPECIAL_IDS, *counts, *range(size, len(tokenizer.entries))}
    characters, lost = set(), 0
    for id, (piece, _, kind) in enumerate(tokenizer.entries[:size]):
        if kind == "NORMAL" and len(piece) == 1:
            if _script(piece) in ("", *scripts):
                characters.add(id)
            else:
                lost += id not in counts
        elif kind not in ("NORMAL", "UNUSED"):
            kept.add(id)
    merged = _merged(tokenizer, kept | characters)
    groups = {
        "occur in the corpus": set(counts),
        "are merged into these": merged - kept,
        "are single characters": characters - kept - merged,
    }
    kept |= merged | characters
    rows = sorted(id for id in kept if id < size)
    config = dataclasses.replace(imported.config, vocab_size=len(rows))
    weights = {
        path: array[rows] if path in ROWS else array
        for path, array in imported.weights.items()
    }
    parameters = [
        sum(array.size for array in each.values())
        for each in (imported.weights, weights)
    ]
    shares = ", ".join(f"{len(ids):,} {what}" for what, ids in groups.items())
    notes = [
        f"pruned: {len(rows):,} of {size:,} rows stay ({shares}), and"
        f" {parameters[1]:,} of {parameters[0]:,} parameters",
        f"of the {counts.total():,} tokens of {num_lines:,} lines 100 % stay;"
        f" {counts[UNK]:,} are unknown, as before",
        "lost: other text is written in shorter tokens, and"
        f" {lost:,} characters become unknown, letters of scripts other than"
        f" {', '.join(sorted(map(str.title, scripts)))}",
    ]
    return imported._replace(
        config=config,
        weights=weights,
        tokenizer=with_pieces(tokenizer, kept),
        notes=[*imported.notes, *notes],
    )


def _script(character: str) -> str:
    """The script of a letter by its name in Unicode; "" for all others.

    >>> [_script(c) for c in "aß字か7é\u0301"]
    ['LATIN', 'LATIN', 'CJK', 'HIRAGANA', '', 'LATIN', '']
    """
    name = unicodedata.name(character, "").partition(" ")[0]
    if unicodedata.category(character)[0] not in "LM" or name == "COMBINING":
        return ""
    return name


def _scripts(tokenizer, counts):
    """The scripts of a corpus by the counts of its tokens."""
    letters: collections.Counter[str] = collections.Counter()
    for piece, count in zip(
        map(tokenizer.pieces.__getitem__, counts), counts.values(), strict=True
    ):
        for script in map(_script, piece):
            letters[script] += count
    del letters[""]
    least = SCRIPT_SHARE * letters.total()
    return {script for script, count in letters.items() if count >= least}


def _merged(tokenizer, ids):
    """The ids of all pieces that BPE merges on the way to some."""
    if tokenizer.model_type != "bpe":
        return set()
    scores, places = {}, {}
    for id, (piece, score, kind) in enumerate(tokenizer.entries):
        of_table = id < tokenizer.vocab_size
        if kind in ("NORMAL", "USER_DEFINED") or (
            kind == "UNUSED" and not of_table
        ):
            scores[piece], places[piece] = score, id
    by_id = {id: piece for piece, id in places.items()}
    return {
        places[piece]
        for id in ids
        if id in by_id
        for piece in _merges(by_id[id], scores)
    }


def _merges(piece, scores):
    """Yields what BPE merges on the way to a piece: the best pair each time.

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
