"""Cleaning and encoding of sentence pairs on all cores.

The rules do not depend on the language. The first rule that applies, in the
order of `shards.REASONS`, drops the pair and is counted as the reason.

`clean_chunks` applies the rules in separate processes. This module must not
import TensorFlow, so that these processes start fast and stay small.
"""

import collections
import hashlib
import itertools
import multiprocessing
import queue
import re
import signal
import string
import threading
import typing
import unicodedata
from collections.abc import Generator, Iterable, Sequence
from multiprocessing.connection import Connection

import numpy as np
from sentencepiece import sentencepiece_model_pb2

from keras_transformer.base.refusals import LostProcessError
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.text.vocabulary import EOS, SPACE

KEPT = ""  # the "reason" of pairs that are not dropped
CHUNK_SIZE = 4096  # pairs that a process takes at a time
MAX_WORDS = 2**18  # words whose ids an `Encoder` keeps: below 100 MB

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_REPLACEMENT = "\ufffd"  # replaces bytes that are not UTF-8
_NO_ASCII_LETTERS = bytes(set(range(256)) - set(string.ascii_letters.encode()))


def letter_share(text: str) -> float:
    """Computes the share of letters and marks among characters but spaces.

    >>> letter_share("No. 12"), letter_share("हिन्दी")
    (0.4, 1.0)
    """
    categories = [unicodedata.category(char)[0] for char in text if char != " "]
    letters = sum(category in "LM" for category in categories)
    return letters / max(1, len(categories))


def longest_word(text: str) -> int:
    """Counts the characters of the longest word.

    Scripts from U+0E00 on (Thai, Khmer, Chinese, Japanese, ...) may have no
    spaces, so each of their characters separates words, as a space does.

    >>> longest_word("a rose"), longest_word("薔薇は薔薇")
    (4, 0)
    """
    words = re.split("[ \u0e00-\U0010ffff]", text)
    return max(map(len, words))


class Rules(typing.NamedTuple):
    """The rules for dropping pairs.

    The defaults drop only pairs with an empty or too long side. Token counts
    include EOS.
    """

    max_length: int  # tokens on a side, below 65,536
    drop_unreadable: bool = False  # if a side has control or U+FFFD characters
    drop_identical: bool = False
    max_word_length: int = 0  # characters, as in `longest_word`; 0: no limit
    # As in `letter_share`, for each side; 0: a side needs no letter.
    min_letter_share: float = 0.0
    min_length: int = 2  # tokens on a side, at least 2
    max_ratio: float = 0.0  # tokens of longer to shorter side; 0: no limit

    def judge(self, source: str, target: str) -> str:
        """Returns the reason to drop a pair of strings, or `KEPT`.

        White space must be single spaces, as `read_parallel_files` makes it.
        Rules that need token counts are in `judge_lengths`.
        """
        if not source or not target:
            return "empty"
        both = f"{source} {target}"
        # Quick tests, which most pairs pass, come before exact ones.
        if self.drop_unreadable and (
            _REPLACEMENT in both
            or (not both.isprintable() and _CONTROL.search(both))
        ):
            return "unreadable"
        if self.drop_identical and source == target:
            return "identical"
        limit = self.max_word_length or len(both)
        longest = max(map(len, both.split()), default=0)
        if longest > limit and longest_word(both) > limit:
            return "long_word"
        if self.min_letter_share:
            shares = [
                letter_share(side)
                for side in (source, target)
                if not _surely_letters(side, self.min_letter_share)
            ]
            if 0 in shares:
                return "no_letter"
            if shares and min(shares) < self.min_letter_share:
                return "few_letters"
        return KEPT

    def judge_lengths(
        self, source_lengths: np.ndarray, target_lengths: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Returns disjoint masks of the pairs to drop, by reason.

        Lengths are in tokens, int `[pairs]`; masks are bool `[pairs]`.
        """
        shorter = np.minimum(source_lengths, target_lengths)
        longer = np.maximum(source_lengths, target_lengths)
        too_short = shorter < self.min_length
        too_long = ~too_short & (longer > self.max_length)
        uneven = longer > (self.max_ratio or np.inf) * shorter
        return {
            "too_short": too_short,
            "too_long": too_long,
            "uneven": ~too_short & ~too_long & uneven,
        }


Tag = typing.TypeVar("Tag")
Rows = tuple[np.ndarray, np.ndarray]  # flat ids, uint16 lengths


class Cleaned(typing.TypedDict):
    """The pairs of a chunk that are kept, and counts of the others."""

    dropped: dict[str, int]  # number of dropped pairs by reason
    hashes: np.ndarray  # uint64 [pairs], as in `hash_pairs`
    source: Rows
    target: Rows


class Cleaner:
    """The rules, except that for duplicates, and an encoder of kept pairs."""

    def __init__(self, model_bytes: bytes, rules: Rules):
        self._encoder = Encoder(model_bytes)
        self._rules = rules

    def clean(self, sources: Sequence[str], targets: Sequence[str]) -> Cleaned:
        """Cleans and encodes the pairs of a chunk."""
        reasons = list(map(self._rules.judge, sources, targets))
        dropped = collections.Counter(reasons)
        del dropped[KEPT]
        kept = [reason == KEPT for reason in reasons]
        sources = list(itertools.compress(sources, kept))
        targets = list(itertools.compress(targets, kept))
        source_ids, source_lengths = self._encoder.encode(sources)
        target_ids, target_lengths = self._encoder.encode(targets)
        keep = np.ones(len(sources), bool)
        judged = self._rules.judge_lengths(source_lengths, target_lengths)
        for reason, drop in judged.items():
            dropped[reason] += int(drop.sum())
            keep &= ~drop
        return {
            "dropped": dict(dropped),
            "hashes": hash_pairs(
                itertools.compress(zip(sources, targets, strict=True), keep)
            ),
            "source": select_rows(source_ids, source_lengths, keep),
            "target": select_rows(target_ids, target_lengths, keep),
        }


class Encoder:
    """A faster `Tokenizer.to_ids` that returns NumPy arrays.

    If pieces have a space only at their beginning, as in all vocabularies of
    `Tokenizer.train`, a word has the same ids in every sentence. Then each word
    is encoded once and its ids are kept, which is several times faster.
    Otherwise, and with case marks, every line is encoded.
    """

    def __init__(self, model_bytes: bytes):
        self._tokenizer = Tokenizer(model_bytes)
        self._dtype = np.dtype(self._tokenizer.id_dtype)
        self.by_word = _is_by_word(model_bytes)
        if self._tokenizer.has_case_marks:
            self.by_word = False  # capitals may extend over several words
        self._words: dict[str, bytes] = {}  # the ids of each word

    def encode(self, lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns flat ids of the lines, each with EOS, and int64 lengths.

        White space in lines must be single spaces.
        """
        encode = self._encode_words if self.by_word else self._encode_lines
        ids = np.frombuffer(encode(lines), self._dtype)
        # No text is encoded as EOS, so EOS occurs only at the ends of lines.
        ends = np.flatnonzero(ids == EOS)
        return ids, np.diff(ends, prepend=-1)

    def _encode_lines(self, lines: Sequence[str]) -> bytes:
        return b"".join(map(self._pack, self._tokenizer.to_ids(lines)))

    def _encode_words(self, lines: Sequence[str]) -> bytes:
        words = "".join(f"{line} \n " for line in lines).split(" ")
        new = set(words) - self._words.keys()
        if len(self._words) + len(new) > MAX_WORDS:
            self._words, new = {}, set(words)
        added = list(new - {"\n", ""})  # lines contain no line break
        rows = (row[:-1] for row in self._tokenizer.to_ids(added))  # no EOS
        self._words.update(zip(added, map(self._pack, rows), strict=True))
        self._words["\n"] = self._pack([EOS])
        self._words[""] = b""
        return b"".join(map(self._words.__getitem__, words))

    def _pack(self, ids: Sequence[int]) -> bytes:
        return np.array(ids, self._dtype).tobytes()


def _is_by_word(model_bytes: bytes) -> bool:
    """Tells whether a sentence's ids are its words' ids, in order."""
    model = sentencepiece_model_pb2.ModelProto.FromString(model_bytes)
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    pieces = [piece.piece for piece in model.pieces]
    return (
        trainer.model_type == trainer.BPE
        and not trainer.treat_whitespace_as_suffix
        and normalizer.add_dummy_prefix
        and normalizer.remove_extra_whitespaces
        and normalizer.escape_whitespaces
        and SPACE in pieces  # else unknown characters join across a space
        and not any(SPACE in piece[1:] for piece in pieces)
    )


def _surely_letters(text: str, share: float) -> bool:
    """Tells quickly, with false negatives, if `letter_share` >= `share`."""
    least = share * (len(text) - text.count(" "))
    # For most European languages, counting the ASCII letters is enough.
    return (
        len(text.encode().translate(None, _NO_ASCII_LETTERS)) >= least
        or sum(map(str.isalpha, text)) >= least
    )


def hash_pairs(pairs: Iterable[tuple[str, str]]) -> np.ndarray:
    """Hashes pairs to uint64 `[pairs]`, equally on every machine."""
    digests = b"".join(
        hashlib.blake2b(f"{source}\n{target}".encode(), digest_size=8).digest()
        for source, target in pairs
    )
    return np.frombuffer(digests, "<u8")


def find_new(hashes: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Marks hashes that are neither in sorted `seen` nor equal an earlier one.

    >>> find_new(np.array([7, 3, 7, 5]), seen=np.array([1, 5]))
    array([ True,  True, False, False])
    """
    values, first = np.unique(hashes, return_index=True)
    left = np.searchsorted(seen, values, "left")
    right = np.searchsorted(seen, values, "right")
    is_new = np.zeros(len(hashes), bool)
    is_new[first[left == right]] = True
    return is_new


def select_rows(ids: np.ndarray, lengths: np.ndarray, keep: np.ndarray) -> Rows:
    """Selects rows by a mask. Returns their flat ids and uint16 lengths."""
    return ids[np.repeat(keep, lengths)], lengths[keep].astype(np.uint16)


# ----------------------------------------------------------------- processes


def clean_chunks(
    chunks: Iterable[tuple[Tag, Sequence[str], Sequence[str]]],
    num_processes: int,
    model_bytes: bytes,
    rules: Rules,
) -> Generator[tuple[Tag, Cleaned], None, None]:
    """Cleans chunks `(tag, sources, targets)` of pairs in separate processes.

    Yields the tag and the result of `Cleaner.clean` for each chunk, in order.
    Limits the number of chunks in progress, so that memory stays bounded.
    Raises `LostProcessError` if a process was killed.
    """
    pending: collections.deque[tuple[Tag, _Process]] = collections.deque()
    processes = [_Process(model_bytes, rules) for _ in range(num_processes)]
    try:
        for (tag, *chunk), process in zip(chunks, itertools.cycle(processes)):
            process.send(chunk)
            pending.append((tag, process))
            if len(pending) > 2 * num_processes:
                done, process = pending.popleft()
                yield done, process.receive()
        for done, process in pending:
            yield done, process.receive()
    finally:
        for process in processes:
            process.end()


class _Process:
    """A process that cleans, with a pipe of its own.

    Only this process holds the other end of the pipe, so the pipe is closed
    when the process ends, even in the middle of a result. The processes of
    `concurrent.futures` share a pipe, so if one is killed while it sends, the
    parent waits forever.
    """

    def __init__(self, model_bytes: bytes, rules: Rules):
        context = multiprocessing.get_context("spawn")
        self._pipe, other_end = context.Pipe()
        context.Process(
            target=_run_process,
            args=(other_end, model_bytes, rules),
            daemon=True,
        ).start()
        other_end.close()

    def send(self, chunk: Sequence[Sequence[str]]) -> None:
        try:
            self._pipe.send(chunk)
        except OSError:
            raise LostProcessError("a cleaning process ended early") from None

    def receive(self):
        try:
            return self._pipe.recv()
        except (EOFError, OSError):
            raise LostProcessError("a cleaning process ended early") from None

    def end(self):
        self._pipe.close()


def _run_process(pipe: Connection, model_bytes: bytes, rules: Rules) -> None:
    """Receives chunks and sends their results, until the pipe is closed.

    Ignores Ctrl-C: the parent handles it, and its end closes the pipe.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    cleaner = Cleaner(model_bytes, rules)
    chunks: queue.SimpleQueue = queue.SimpleQueue()
    # Another thread receives, so that the parent never waits to send.
    threading.Thread(target=_receive, args=(pipe, chunks), daemon=True).start()
    for chunk in iter(chunks.get, None):
        try:
            pipe.send(cleaner.clean(*chunk))
        except OSError:
            return


def _receive(pipe: Connection, chunks: queue.SimpleQueue) -> None:
    """Puts the chunks from a pipe into a queue, and None when it is closed."""
    try:
        while True:
            chunks.put(pipe.recv())
    except (EOFError, OSError):
        chunks.put(None)
