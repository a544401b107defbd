"""Conversion of a batch of rows to the arrays of a search, in few shapes."""

import typing
from collections.abc import Sequence

import numpy as np

from keras_transformer.decoding import UNCONSTRAINED, Constraints
from keras_transformer.decoding.phrases import NO_TOKEN, Phrases
from keras_transformer.decoding.rules import NUMBERS
from keras_transformer.text.vocabulary import EOS, PAD
from keras_transformer.translation.automaton import Automaton
from keras_transformer.translation.draws import make_draws
from keras_transformer.translation.grouping import padded_length
from keras_transformer.translation.requests import Row


def constraints_of(
    rows: Sequence[Row],
    num_rows: int,
    longest: int,
    sampling: bool,
    tokens: np.ndarray | None = None,
) -> Constraints:
    """Makes the `Constraints` of a batch that is padded to B = `num_rows`.

    Outputs have at most `longest` tokens. With a shortlist, ids become indices
    into `tokens`.
    """

    def places(ids: np.ndarray) -> np.ndarray:
        if tokens is None:
            return ids
        found = np.searchsorted(tokens, ids).astype(np.int32)
        return np.where(ids < 0, ids, found)

    constraints = UNCONSTRAINED
    if any(row.target_ids for row in rows):
        targets = [row.target_ids for row in rows]
        prefix = pad_rows(targets, longest, PAD, num_rows)
        constraints = constraints._replace(prefix=places(prefix))
    columns = np.zeros((len(NUMBERS), num_rows, 1), np.int32)
    columns[:, : len(rows), 0] = np.transpose([numbers_of(row) for row in rows])
    for name, column in zip(NUMBERS, columns, strict=True):
        if column.any():
            value: typing.Any = column
            constraints = constraints._replace(**{name: value})
    if any(row.automaton for row in rows):
        phrases = stack([row.automaton for row in rows], num_rows)
        phrases = phrases._replace(tokens=places(phrases.tokens))
        constraints = constraints._replace(phrases=phrases)
    if sampling:
        draws = np.zeros((num_rows, longest), np.int32)
        for own, row in zip(draws, rows, strict=False):
            own[:] = make_draws(row.seed, row.source_ids, row.sample, longest)
        constraints = constraints._replace(draws=draws)
    return constraints


def numbers_of(row: Row) -> tuple[int, ...]:
    """Returns the fields of a row that `NUMBERS` names."""
    return tuple(getattr(row, name) for name in NUMBERS)


def stack(
    automata: Sequence[Automaton | None], num_rows: int | None = None
) -> Phrases:
    """Makes the `Phrases` of B = `num_rows` sentences from their automata.

    A sentence whose automaton is None or missing has no phrases. L, N and K
    are powers of two, so that there are few shapes.
    """
    given = [automaton for automaton in automata if automaton is not None]
    num_rows = num_rows or len(automata)
    num_tokens = _rounded(max(len(a.tokens) for a in given))
    num_states = _rounded(max(len(a.children) for a in given))
    num_terms = _rounded(max(len(a.sizes) for a in given))
    shape = num_rows, num_states
    tokens = np.full((num_rows, num_tokens), NO_TOKEN, np.int32)
    following = np.zeros((*shape, num_tokens + 1), np.int32)
    bans = np.zeros((*shape, num_tokens), np.int32)
    ends, parts = np.zeros((2, *shape, num_terms), np.int32)
    sizes = np.zeros((num_rows, num_terms), np.int32)
    for row, automaton in enumerate(automata):
        if automaton is None:
            continue
        tokens[row, : len(automaton.tokens)] = automaton.tokens
        sizes[row, : len(automaton.sizes)] = automaton.sizes
        place = {token: i for i, token in enumerate(automaton.tokens)}
        for state in automaton.order:
            following[row, state] = following[row, automaton.suffix[state]]
            for token, to in automaton.children[state].items():
                following[row, state, place[token]] = to
            ends[row, state, list(automaton.ends[state])] = 1
            for term, size in automaton.parts[state].items():
                parts[row, state, term] = size
        is_ban = np.array(automaton.bans, np.int32)
        bans[row] = is_ban[following[row, :, :-1]]
    has_terms = any(automaton.sizes for automaton in given)
    return Phrases(
        tokens,
        following,
        bans if bans.any() else (),
        *((ends, parts, sizes) if has_terms else ()),
    )


def _rounded(number):
    """Rounds up to a power of two."""
    return 1 << max(0, number - 1).bit_length()


def pad_rows(
    rows: Sequence[Sequence[int]],
    longest: int | None = None,
    filler: int = EOS,
    num_rows: int | None = None,
) -> np.ndarray:
    """Pads rows of ids with `PAD` to int32 `[B, T]`, in one of a few shapes.

    T is at most `longest`, as all rows must be. B is by default a power of two,
    since XLA compiles for each B. `filler` is the first id of added rows.

    >>> pad_rows([[5, 2], [6, 7, 2], [8, 2]]).shape
    (4, 8)
    >>> pad_rows([[5], [], [6, 7]], longest=5, filler=PAD).shape
    (4, 5)
    """
    length = padded_length(max(map(len, rows)))
    length = length if longest is None else min(length, longest)
    num_rows = num_rows or 1 << (len(rows) - 1).bit_length()
    padded = np.full((num_rows, length), PAD, np.int32)
    for ids, row in zip(padded, rows, strict=False):
        ids[: len(row)] = row
    padded[len(rows) :, 0] = filler
    return padded
