"""The ids of a corpus, encoded once and kept flat in memory."""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import functools
import itertools
import typing
import zlib
from collections.abc import Iterable, Sequence

import numpy as np
import tqdm

from keras_transformer.base.machine import count_cores
from keras_transformer.base.refusals import expect
from keras_transformer.text.tokenization import Tokenizer, TokenizerPair


class JoinedIds:
    """Flat ids in several nonempty arrays, indexed as one array.

    >>> JoinedIds([np.array([5, 6, 2]), np.array([7, 2])])[[3, 0, 4]]
    array([7, 5, 2])
    """

    def __init__(self, arrays: Sequence[np.ndarray]):
        self._arrays = arrays
        self._ends = np.cumsum([len(array) for array in arrays])

    def __len__(self):
        return int(self._ends[-1])

    def __getitem__(self, positions: Sequence[int] | np.ndarray) -> np.ndarray:
        """Returns the ids at some positions, integers `[N]`."""
        positions = np.asarray(positions)
        if len(self._arrays) == 1 or not len(positions):
            return self._arrays[0][positions]
        which = np.searchsorted(self._ends, positions, side="right")
        order = np.argsort(which.astype(np.uint16), kind="stable")
        counts = np.bincount(which, minlength=len(self._arrays))
        found = np.empty(len(positions), self._arrays[0].dtype)
        stop = 0
        for number in np.flatnonzero(counts).tolist():
            start, stop = stop, stop + counts[number]
            array, these = self._arrays[number], order[start:stop]
            first = self._ends[number] - len(array)
            found[these] = array[positions[these] - first]
        return found


Ids = np.ndarray | JoinedIds
# The ids of the tokens of a `Direction`: any number for each field.
DirectionIds = tuple[Sequence[int], Sequence[int], Sequence[int]]


@dataclasses.dataclass(frozen=True)
class TokenRows:
    """Rows of ids, one after the other in a flat array.

    The rows `[5, 6, 2]` and `[7, 2]` are

        ids      5 6 2 7 2
        offsets  0     3   5
    """

    ids: Ids  # uint16 or int32 [tokens]; `JoinedIds` in a prepared corpus
    offsets: np.ndarray  # int64 [rows + 1]: start of each row, then the end

    @classmethod
    def of_lengths(cls, ids: Ids, lengths: np.ndarray) -> TokenRows:
        """Divides ids into rows of these lengths, integers `[rows]`."""
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, dtype=np.int64, out=offsets[1:])
        return cls(ids, offsets)

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens of each row, int64 `[rows]`."""
        return np.diff(self.offsets)

    def take(self, numbers: np.ndarray) -> TokenRows:
        """Returns the rows with these numbers, integers `[N]`."""
        starts = self.offsets[numbers]
        lengths = self.offsets[np.add(numbers, 1)] - starts
        taken = TokenRows.of_lengths(self.ids, lengths)
        shifts = np.repeat(starts - taken.offsets[:-1], lengths)
        positions = np.arange(len(shifts)) + shifts
        return dataclasses.replace(taken, ids=self.ids[positions])


@dataclasses.dataclass(frozen=True)
class CorpusCounts:
    """The numbers of pairs that were read, kept and dropped."""

    read: int
    kept: int
    empty: int
    too_long: int
    max_length: int

    def __str__(self):
        return (
            f"{self.read:,} pairs read, {self.kept:,} kept; dropped:"
            f" {self.empty:,} with an empty side,"
            f" {self.too_long:,} with more than {self.max_length} tokens"
        )


class SameEveryEpoch:
    """A corpus whose pairs have the same ids in every epoch."""

    @property
    def canonical(self):
        """The corpus with the ids of `Tokenizer.encode`: itself."""
        return self

    def of_epoch(self, epoch: int) -> typing.Self:
        """Returns the corpus with the ids of an epoch: itself."""
        return self

    def describe(self, epoch: int) -> str:
        """Returns "": nothing is counted in an epoch."""
        return ""

    def prepare(self, epoch: int) -> None:
        """Does nothing, because all epochs have the same ids."""


@dataclasses.dataclass(frozen=True)
class Corpus(SameEveryEpoch):
    """The ids of sentence pairs; each row ends with `EOS`.

    Attributes:
        source: `TokenRows` of the source sentences.
        target: `TokenRows` of the target sentences, the same number.
        counts: The numbers of pairs that were read, kept and dropped.
        selected: Whether each pair that was read is kept, bool `[read]`. None
            if all pairs are kept.
    """

    source: TokenRows
    target: TokenRows
    counts: CorpusCounts
    selected: typing.Any = None

    def __len__(self):
        return self.counts.kept

    @property
    def longer_side(self) -> np.ndarray:
        """The number of tokens of each pair's longer side, int64 `[pairs]`."""
        return np.maximum(self.source.lengths, self.target.lengths)

    @property
    def checksum(self) -> int:
        """The CRC-32 of all rows, in order."""
        checksum = 0
        for rows in (self.source, self.target):
            for array in (rows.ids, rows.offsets):
                content = np.ascontiguousarray(array).data.cast("B")
                checksum = zlib.crc32(content, checksum)
        return checksum

    def kept_of(self, sizes: Sequence[int]) -> list[int]:
        """Counts the kept pairs of each of several corpora.

        The corpora had `sizes` pairs and were read one after the other.
        """
        parts = np.split(self.selected, np.cumsum(sizes)[:-1])
        return [int(part.sum()) for part in parts]


def encode_corpus(
    pairs: Iterable[tuple[str, str]],
    tokenizer: Tokenizer | TokenizerPair,
    max_length: int,
    direction: DirectionIds = ((), (), ()),
) -> Corpus:
    """Encodes pairs, and drops those with an empty or too long side.

    Args:
        pairs: Iterable of `(source, target)` strings, read once.
        tokenizer: The `Tokenizer`, or a `TokenizerPair`.
        max_length: Longest side of a kept pair, in tokens, `EOS` and tokens of
            the direction included. At least 2.
        direction: The ids of the tokens to add, in the order of `Direction`.

    Returns:
        A `Corpus`.

    Raises:
        ValueError: No pair is left, or `max_length` is too small.
    """
    expect(max_length >= 2, "at least 2: a token and EOS", f"{max_length=}")
    dtype = np.result_type(tokenizer.source.id_dtype, tokenizer.target.id_dtype)
    kept_rows, selected = [], []
    empty = too_long = 0
    encode = functools.partial(
        encode_pairs, tokenizer=tokenizer, direction=direction
    )
    for source, target in _encode_chunks(pairs, encode):
        shortest = np.minimum(source.lengths, target.lengths)
        longest = np.maximum(source.lengths, target.lengths)
        keep = (shortest > 1) & (longest <= max_length)
        empty += int(np.sum(shortest <= 1))
        too_long += int(np.sum((shortest > 1) & (longest > max_length)))
        selected.append(keep)
        kept_rows.append(
            [_select_rows(rows, keep, dtype) for rows in (source, target)]
        )
    kept = sum(len(source.lengths) for source, _ in kept_rows)
    counts = CorpusCounts(
        read=kept + empty + too_long,
        kept=kept,
        empty=empty,
        too_long=too_long,
        max_length=max_length,
    )
    if not kept:
        raise ValueError(f"no sentence pair is left. Received: {counts}")
    source, target = map(concatenate_rows, zip(*kept_rows, strict=True))
    return Corpus(source, target, counts, np.concatenate(selected))


def join_corpora(corpora: Sequence[Corpus]) -> Corpus:
    """Joins corpora that were encoded with the same `max_length`."""
    sums = {
        name: sum(getattr(corpus.counts, name) for corpus in corpora)
        for name in ("read", "kept", "empty", "too_long")
    }
    max_length = corpora[0].counts.max_length
    return Corpus(
        concatenate_rows(corpus.source for corpus in corpora),
        concatenate_rows(corpus.target for corpus in corpora),
        CorpusCounts(**sums, max_length=max_length),
        np.concatenate([corpus.selected for corpus in corpora]),
    )


def _encode_chunks(pairs, encode, chunk_size=8192):
    """Encodes pairs. Yields source and target `TokenRows`, chunk by chunk.

    SentencePiece releases Python's lock, so threads share the work. On a
    terminal a bar shows the progress.
    """
    pairs = iter(tqdm.tqdm(pairs, "encode", disable=None, unit=" pairs"))
    num_threads = count_cores()
    pending = collections.deque()
    with concurrent.futures.ThreadPoolExecutor(num_threads) as threads:
        while chunk := list(itertools.islice(pairs, chunk_size)):
            pending.append(threads.submit(encode, chunk))
            if len(pending) > num_threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def encode_pairs(
    pairs: Iterable[tuple[str, str]],
    tokenizer: Tokenizer | TokenizerPair,
    direction: DirectionIds = ((), (), ()),
) -> list[TokenRows]:
    """Encodes pairs, at least one, as source and target `TokenRows`."""
    sources, targets = zip(*pairs, strict=True)
    before, after, output = direction
    return [
        _flatten(
            [*before, *ids, *after] if len(ids) > 1 else ids
            for ids in tokenizer.source.to_ids(sources)
        ),
        _flatten(
            [*output, *ids] if len(ids) > 1 else ids
            for ids in tokenizer.target.to_ids(targets)
        ),
    ]


def _flatten(rows: Iterable[Sequence[int]]) -> TokenRows:
    rows = list(rows)
    lengths = np.array([len(row) for row in rows])
    flat = itertools.chain.from_iterable(rows)
    ids = np.fromiter(flat, np.int32, lengths.sum())
    return TokenRows.of_lengths(ids, lengths)


def _select_rows(
    rows: TokenRows, keep: np.ndarray, dtype: np.dtype
) -> TokenRows:
    ids = rows.ids[np.repeat(keep, rows.lengths)].astype(dtype)
    return TokenRows.of_lengths(ids, rows.lengths[keep])


def concatenate_rows(chunks: Iterable[TokenRows]) -> TokenRows:
    """Joins the rows of all chunks, in order."""
    arrays = zip(*((rows.ids, rows.lengths) for rows in chunks), strict=True)
    return TokenRows.of_lengths(*map(np.concatenate, arrays))


def replace_rows(
    rows: TokenRows, numbers: np.ndarray, others: TokenRows
) -> TokenRows:
    """Replaces the rows with these increasing numbers by `others`."""
    lengths = rows.lengths.copy()
    replaced = np.zeros(len(lengths), bool)
    replaced[numbers] = True
    stay = rows.ids[np.repeat(~replaced, lengths)]
    lengths[numbers] = others.lengths
    is_other = np.repeat(replaced, lengths)
    ids = np.empty(len(is_other), stay.dtype)
    ids[is_other], ids[~is_other] = others.ids, stay
    return TokenRows.of_lengths(ids, lengths)
