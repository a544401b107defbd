"""A lexical shortlist: the tokens that translations of given sources may have.

On a CPU the softmax over a large vocabulary takes most of a decoding step. With
a shortlist, the search of a batch scores only frequent tokens and the best
translations of the batch's source tokens (L'Hostis et al. 2016, "Vocabulary
Selection Strategies for Neural Machine Translation"). IBM Model 1 (Brown et al.
1993, sec. 4.2) finds the translations in sentence pairs.

A file has a line for each source token: its piece, a tab, and the pieces that
translate it, best first, separated by spaces. A line without a source piece
lists the tokens that every output may have. CTranslate2 reads such a file as
`vmap.txt`.
"""

import hashlib
import os
import pathlib
from collections.abc import Iterable, Sequence

import numpy as np

from keras_transformer.base.files import write_atomically
from keras_transformer.base.refusals import expect
from keras_transformer.config import TransformerConfig
from keras_transformer.text.tokenization import Tokenizer, TokenizerPair
from keras_transformer.text.vocabulary import EOS, SPECIAL_IDS

SMALLEST = 1024  # minimum number of tokens for a batch
ITERATIONS = 5  # of the EM algorithm
CHUNK = 10_000  # pairs whose tokens are counted at once


class Shortlist:
    """The target tokens that the translations of given sources may have.

    `frequent` are ids that every output may have. `translations` has for each
    source id the target ids that translate it.

    >>> shortlist = Shortlist([9], [[], [], [], [], [7], [8]], vocab_size=3000)
    >>> shortlist.tokens([[4, 2]])[:8], shortlist.tokens([[4, 2]]).size
    (array([0, 1, 2, 3, 4, 5, 6, 7], dtype=int32), 1024)
    """

    def __init__(
        self,
        frequent: Sequence[int],
        translations: Sequence[Sequence[int]],
        vocab_size: int,
    ):
        self.frequent = np.array(frequent, np.int32)
        self.translations = [np.array(ids, np.int32) for ids in translations]
        self.vocab_size = vocab_size

    def check(self, config: TransformerConfig) -> None:
        """Raises ValueError if a model's vocabularies have other sizes."""
        sizes = len(self.translations), self.vocab_size
        wanted = config.num_source_tokens, config.vocab_size
        kind = "a shortlist of the model's source and target tokens"
        expect(sizes == wanted, f"{kind}, {wanted}", sizes)

    def tokens(
        self,
        sources: Iterable[Sequence[int]],
        required: Iterable[Sequence[int]] = (),
    ) -> np.ndarray | None:
        """Finds the tokens that the outputs of a batch may have.

        Returns ids, int32 `[C]`, ascending, including the special tokens and
        `required`. The lowest other ids are added so that C is one of a few
        sizes. Returns None if C would exceed half of the vocabulary.
        """
        chosen = np.zeros(self.vocab_size, bool)
        chosen[list(SPECIAL_IDS)] = True
        chosen[self.frequent] = True
        for ids in required:
            chosen[list(ids)] = True
        for id in set().union(*sources):
            chosen[self.translations[id]] = True
        number = int(np.count_nonzero(chosen))
        size = _rounded(number)
        if 2 * size > self.vocab_size:
            return None
        chosen[np.flatnonzero(~chosen)[: size - number]] = True
        return np.flatnonzero(chosen).astype(np.int32)

    @property
    def sha256(self) -> str:
        """The SHA-256 of the ids."""
        digest = hashlib.sha256()
        for ids in (self.frequent, *self.translations):
            digest.update(ids.tobytes() + b"\xff" * 4)  # -1, no id
        return digest.hexdigest()

    def write(
        self, path: str | os.PathLike, tokenizer: Tokenizer | TokenizerPair
    ) -> None:
        """Writes the shortlist to a file, which appears when it is complete.

        Omits pieces with white space, since no text contains them.
        """
        sources = ["", *tokenizer.source.pieces]
        targets, lines = tokenizer.target.pieces, []
        for piece, ids in zip(
            sources, [self.frequent, *self.translations], strict=True
        ):
            pieces = [targets[id] for id in ids if _is_word(targets[id])]
            if pieces and (not piece or _is_word(piece)):
                lines.append(f"{piece}\t{' '.join(pieces)}\n")
        write_atomically(path, "".join(lines))

    @classmethod
    def read(
        cls, path: str | os.PathLike, tokenizer: Tokenizer | TokenizerPair
    ) -> "Shortlist":
        """Reads a file that `write` wrote, with the tokenizer of the model.

        Raises ValueError if the file is not UTF-8 or a line is wrong.
        """
        sources = {"": -1} | _ids(tokenizer.source.pieces)
        targets = _ids(tokenizer.target.pieces)
        found: dict[int, list[int]] = {}
        try:
            text = pathlib.Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: not UTF-8 ({error.reason})") from error
        for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
            piece, tab, translations = line.partition("\t")
            pieces = translations.split(" ")
            unknown = [p for p in pieces if p not in targets]
            id = sources.get(piece, len(sources))
            expect(
                tab and piece in sources and id not in found and not unknown,
                "a new piece, a tab, and its translations, in the vocabulary",
                repr(line[:60]),
                where=f"{path}, line {number}",
            )
            found[id] = [targets[p] for p in pieces]
        return cls(
            found.get(-1, []),
            [found.get(id, []) for id in range(len(sources) - 1)],
            len(targets),
        )


def make_shortlist(
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
    tokenizer: Tokenizer | TokenizerPair,
    num_frequent: int,
    num_translations: int,
    min_probability: float = 0.0,
) -> Shortlist:
    """Makes a shortlist from sentence pairs, as ids, EOS included.

    A source token may always be copied if the target has the same piece, since
    the pairs may lack names and numbers. `num_frequent` is how many of the most
    frequent target tokens every output may have, beside the special ones and
    the translations of EOS. `num_translations` is how many translations a
    source token has, beside its copy; they need at least `min_probability`.
    """
    targets = tokenizer.target.pieces
    same = _ids(targets)
    counts = np.bincount(
        np.concatenate([target for _, target in pairs]), minlength=len(targets)
    )
    counts[list(SPECIAL_IDS)] = 0
    frequent = np.argsort(-counts, kind="stable")[:num_frequent]
    translations = [
        [same[piece]] if piece in same else []
        for piece in tokenizer.source.pieces
    ]
    sources, words, table = translation_table(pairs)
    order = np.lexsort([-table, sources])
    order = order[table[order] >= min_probability]
    sources = sources[order]
    rank = np.arange(len(order)) - np.searchsorted(sources, sources)
    is_best = rank < num_translations
    for source, word in zip(
        sources[is_best].tolist(), words[order][is_best].tolist(), strict=True
    ):
        if word not in translations[source]:
            translations[source].append(word)
    # EOS is in every source, though CTranslate2 does not look it up.
    always = [*SPECIAL_IDS, *frequent[counts[frequent] > 0], *translations[EOS]]
    translations[EOS] = []
    return Shortlist(list(dict.fromkeys(always)), translations, len(targets))


def translation_table(
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Computes translation probabilities of tokens by IBM Model 1.

    Returns source ids, target ids and t(target | source), int64, int64 and
    float64 `[N]`, for all tokens that occur in a pair together. The EOS of the
    source serves as Model 1's empty word. The EOS of the target is left out.

    >>> sources, words, table = translation_table(
    ...     [([4, 2], [6, 2]), ([4, 5, 2], [6, 7, 2])])
    >>> int(words[sources == 5][table[sources == 5].argmax()])
    7
    """
    base = 1 + max(max(target, default=0) for _, target in pairs)
    chunks = [
        _cells(pairs[start : start + CHUNK], base)
        for start in range(0, len(pairs), CHUNK)
    ]
    keys = np.unique(np.concatenate([np.unique(cells) for cells, _ in chunks]))
    indexed = [
        (np.searchsorted(keys, cells).astype(np.int32), width)
        for cells, width in chunks
    ]
    del chunks
    source, table = keys // base, np.ones(len(keys))
    for _ in range(ITERATIONS):
        counts = np.zeros(len(keys))
        for places, width in indexed:
            token = np.repeat(np.arange(len(width)), width)
            share = table[places]
            share /= np.bincount(token, share)[token]
            counts += np.bincount(places, share, len(keys))
        table = counts / np.bincount(source, counts)[source]
    return source, keys % base, table


def _cells(pairs, base):
    """Computes source * base + target, int64, for all token pairs of each pair.

    These are in the order of target tokens. Also returns the number of source
    tokens for each target token.
    """
    cells, width = [], []
    for source, target in pairs:
        row = np.array(source, np.int64) * base
        column = np.array([id for id in target if id != EOS], np.int64)
        cells.append((column[:, None] + row).ravel())
        width += [len(row)] * len(column)
    return np.concatenate(cells), width


def _is_word(piece: str) -> bool:
    return [piece] == piece.split()


def _ids(pieces):
    return {piece: id for id, piece in enumerate(pieces)}


def _rounded(number: int) -> int:
    """Rounds up to one of a few sizes, two for each power of two.

    >>> [_rounded(number) for number in (3, 1025, 1537, 2049)]
    [1024, 1536, 2048, 3072]
    """
    size = SMALLEST
    while size < number:
        is_power = size & (size - 1) == 0
        size += size // 2 if is_power else size // 3
    return size
